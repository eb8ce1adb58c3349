//! Faults of several programs at one place of a GPU.

use super::scene::*;
use super::*;
use crate::core::events::JournalEvent;
use remps_proto::mps::server::Reply;
use std::sync::Arc;
use world::key;

const GPU: &str = "GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca";
const BUS: &str = "0000:3b:00";
const TEXT: &str = "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Misaligned Address";

fn scene() -> Scene {
    let mut scene = Scene::new(Policy::default());
    let place = GpuPlace { uuid: GPU.to_owned(), bus: BUS.to_owned(), instances: Vec::new() };
    scene.feed(Input::GpusFound(vec![place]));
    for peer in [CULPRIT, VICTIM] {
        scene.dies(peer, End::Exited(0));
    }
    scene.pass(Duration::from_secs(10));
    scene
}

/// A client of this pod and this program comes, its server meets an exception there, and it goes.
fn fault_of(scene: &mut Scene, pid: Pid, pod: &str, command: &str) -> Vec<Effect> {
    let peer = Peer { pid, ..CULPRIT };
    scene.joins(peer);
    let (pod, command, start_time) = (Some(pod.to_owned()), command.to_owned(), key(pid, 0).start_time);
    scene.feed(Input::IdentityKnown {
        pid,
        identity: Arc::new(Identity { start_time, pod, command, ..Identity::default() }),
    });
    let (class, bus, text) = (XidClass::Application, BUS.to_owned(), TEXT.to_owned());
    let line = Evidence::Xid { number: 13, class, bus, instance: None, pid: Some(SERVER), channel: None, text };
    let mut effects = scene.feed(Input::Evidence(line));
    for request in scene.open_questions() {
        effects.extend(scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) }));
    }
    effects.extend(scene.pass(Duration::from_secs(1)));
    effects.extend(scene.dies(peer, End::Exited(0)));
    effects.extend(scene.pass(Duration::from_secs(60)));
    effects
}

fn suspected(effects: &[Effect]) -> Option<(&str, &str, usize)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Record(event) => match &**event {
            JournalEvent::HardwareSuspected { gpu, place, faults } => Some((gpu.as_str(), place.as_str(), *faults)),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn several_tenants_programs_that_fault_on_one_processor_make_the_gpu_suspect() {
    let mut scene = scene();
    for (pid, pod) in [(20, "a"), (21, "b")] {
        let effects = fault_of(&mut scene, pid, pod, &format!("program of {pod}"));
        assert_eq!(suspected(&effects), None, "{pod}");
        assert_eq!(scene.verdict().suspicion, None);
    }
    let effects = fault_of(&mut scene, 22, "c", "program of c");
    assert_eq!(suspected(&effects), Some((GPU, "GPC 1, TPC 2", 3)));
    let suspicion = scene.verdict().suspicion.clone().expect("it is in the verdict");
    assert_eq!((suspicion.gpu.as_str(), suspicion.faults), (GPU, 3));
    assert!(
        scene.verdict().to_string().contains("may be ill: 3 faults at GPC 1, TPC 2 in 24 h"),
        "{}",
        scene.verdict()
    );
    assert_eq!(scene.core.suspicions(), [suspicion], "as status and metrics have it");
    // It is told once, and goes with the faults.
    assert_eq!(suspected(&fault_of(&mut scene, 23, "d", "program of d")), None);
    assert_eq!(scene.core.suspicions()[0].faults, 4);
    scene.pass(Duration::from_secs(25 * 60 * 60));
    assert_eq!(scene.core.suspicions(), []);
}

#[test]
fn one_program_or_one_tenant_that_faults_again_and_again_makes_nothing_suspect() {
    let mut scene = scene();
    for pid in 20..26 {
        let effects = fault_of(&mut scene, pid, &format!("replica-{pid}"), "the same program");
        assert_eq!(suspected(&effects), None, "{pid}");
    }
    let mut scene = self::scene();
    for pid in 30..36 {
        let effects = fault_of(&mut scene, pid, "one tenant", &format!("program {pid}"));
        assert_eq!(suspected(&effects), None, "{pid}");
    }
    assert_eq!(scene.core.suspicions(), []);
}

#[test]
fn a_line_of_the_kernel_that_comes_after_the_verdict_counts() {
    let mut scene = Scene::new(Policy::default());
    let place = GpuPlace { uuid: GPU.to_owned(), bus: BUS.to_owned(), instances: Vec::new() };
    scene.feed(Input::GpusFound(vec![place]));
    scene.memory_fault();
    assert_eq!(culprit(scene.verdict()), Some(key(CULPRIT.pid, 0).pid), "by proof, before any line");
    let before = scene.core.faults_counted();
    let text = "intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_4 faulted @ 0x0_00000000.".to_owned();
    let (class, bus) = (XidClass::Application, BUS.to_owned());
    let line = Evidence::Xid { number: 31, class, bus, instance: None, pid: Some(VICTIM.pid), channel: None, text };
    scene.feed(Input::Evidence(line));
    assert_eq!(scene.core.faults_counted(), before + 1);
}
