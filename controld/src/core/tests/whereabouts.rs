//! A machine with two GPUs: the culprit of the scene is on the first, the other client on the second.

mod by_gpu;
mod kept;
mod reach;
mod unanswered;

use super::scene::*;
use super::*;
use crate::core::gpu::GpuSet;
use remps_proto::mps::server::{Reply, Request};
use std::sync::Arc;
use world::{bus, fault, identity, key, listing, places, records, uuid};

/// Longer than a client is looked at.
const LOOKED_AT: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(30);

/// The scene's two clients, each on a GPU or several.
fn scene(policy: Policy, culprits: &[u32], others: &[u32]) -> Scene {
    let mut scene = Scene::new(policy);
    let effects = scene.feed(Input::GpusFound(places()));
    let request = asked(&effects, &Request::QueryDevices).expect("a server says what its numbers mean");
    scene.feed(Input::Replied { request, reply: Ok(Reply::Devices(records())) });
    for (peer, gpus) in [(CULPRIT, culprits), (VICTIM, others)] {
        // One context the scene has made of each.
        for _ in 1..gpus.len() {
            let (context, _) = scene.arrive(peer);
            scene.finish(context);
        }
    }
    let of = |pid: u32, gpus: &[u32]| (1..).zip(gpus).map(move |(number, gpu)| (pid, number, *gpu)).collect::<Vec<_>>();
    look(&mut scene, &[of(CULPRIT.pid, culprits), of(VICTIM.pid, others)].concat());
    scene
}

fn default_scene() -> Scene {
    scene(Policy::default(), &[0], &[1])
}

/// Lets the time pass in which clients are looked at, and their server list these contexts: process, number and GPU.
fn look(scene: &mut Scene, contexts: &[(Pid, u32, u32)]) {
    for pause in [Duration::from_millis(50), LOOKED_AT] {
        let effects = scene.pass(pause);
        let request = asked(&effects, &Request::DeviceClients).expect("the server lists its contexts");
        scene.feed(Input::Replied { request, reply: Ok(listing(contexts)) });
    }
}

fn memory_fault_on(scene: &mut Scene, gpu: u32) -> Vec<Effect> {
    let fault = MemoryFault { gpu: Some(uuid(gpu).to_string()), ..fault() };
    scene.feed(Input::Evidence(Evidence::UvmEvent { process: key(CULPRIT.pid, 0), fault, is_of_own_server: true }))
}

fn xid(number: u32, gpu: u32, pid: Option<Pid>) -> Input {
    let (class, bus, text) = (XidClass::Application, bus(gpu), "x".to_owned());
    Input::Evidence(Evidence::Xid { number, class, bus, instance: None, pid, channel: None, text })
}

fn is_told_to_end(effects: &[Effect], epoch: ServerEpoch) -> bool {
    effects.iter().any(|effect| match effect {
        Effect::Signal { server, .. } => *server == epoch,
        Effect::Ask { server, request, .. } => *server == epoch && *request == Request::Shutdown,
        _ => false,
    })
}

/// A newcomer with this `CUDA_VISIBLE_DEVICES`.
fn arrive(scene: &mut Scene, connection: u64, pid: Pid, visible: Option<&str>) -> Vec<Effect> {
    let visible = visible.map(str::to_owned);
    let identity = Arc::new(Identity { visible, ..Identity::clone(&identity(pid, 0)) });
    let (connection, peer) = (ConnectionId(connection), Peer { pid, ..NEWCOMER });
    scene.feed(Input::ClientArrived { connection, peer, identity, entrance: None })
}

fn gpus(names: &[u32]) -> GpuSet {
    names.iter().map(|gpu| Gpu::new(&uuid(*gpu).to_string())).collect()
}

/// The server answers that it has, or has not, got over its fault.
fn recovers(scene: &mut Scene, is_sound: bool) -> Vec<Effect> {
    let effects = scene.pass(Duration::from_secs(5));
    goes_on(scene, &effects);
    scene.answer_status(&effects, is_sound)
}

/// It says that it has clients, if it is asked to end when it has none.
fn goes_on(scene: &mut Scene, effects: &[Effect]) {
    if let Some(request) = asked(effects, &Request::Shutdown) {
        scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(4)) });
    }
}

/// It has got over its fault, and names these contexts.
fn names(scene: &mut Scene, contexts: &[(Pid, u32, u32)]) {
    let effects = recovers(scene, true);
    let request = asked(&effects, &Request::DeviceClients).expect("whose contexts are left?");
    scene.feed(Input::Replied { request, reply: Ok(listing(contexts)) });
}

/// A third client comes, with so many contexts.
fn third(scene: &mut Scene, contexts: usize) {
    scene.joins(NEWCOMER);
    for _ in 1..contexts {
        let (context, _) = scene.arrive(NEWCOMER);
        scene.finish(context);
    }
}

/// The UVM driver says which GPUs it sees.
fn sees(scene: &mut Scene, gpus: &[u32]) {
    let gpus = gpus.iter().map(|gpu| uuid(*gpu).to_string()).collect();
    scene.feed(Input::SpacesFound { process: key(NEWCOMER.pid, 0), gpus: Some(gpus) });
}

/// Whom the last verdict calls victims, and whom spared.
fn told(scene: &Scene) -> (Vec<Pid>, Vec<Pid>) {
    (scene.verdict().victims.clone(), scene.verdict().spared.clone())
}

#[test]
fn who_has_nothing_on_the_gpu_of_a_fault_is_no_victim_and_its_server_stays_as_long_as_it_lives() {
    let mut scene = default_scene();
    let old = scene.server;
    let effects = memory_fault_on(&mut scene, 0);
    let verdict = scene.verdict();
    assert_eq!((verdict.victims.as_slice(), verdict.spared.as_slice()), (&[][..], &[VICTIM.pid][..]));
    assert_eq!(verdict.gpus, gpus(&[0]).into_iter().collect::<Vec<_>>());
    assert!(scene.is_tainted() && spawned(&effects).is_some(), "newcomers get another server");
    assert!(!is_told_to_end(&effects, old));
    scene.serve(&effects, SERVER + 1);
    scene.dies(CULPRIT, End::Exited(1));
    for _ in 0..10 {
        assert!(!is_told_to_end(&scene.pass(PATIENCE), old), "today it would be ended after {PATIENCE:?}");
    }
    assert_eq!(scene.core.fate_of(key(VICTIM.pid, 0)), Some((old, Fate::Healthy)));
    let effects = scene.dies(VICTIM, End::Exited(0));
    assert!(is_told_to_end(&effects, old), "then it goes");
}

#[test]
fn those_that_the_fault_has_hit_have_their_time_beside_one_that_it_has_not() {
    let mut policy = Policy::default();
    policy.domains.default.faults.victims = VictimAction::Terminate;
    let mut scene = scene(policy, &[0], &[0]);
    scene.joins(NEWCOMER);
    look(&mut scene, &[(CULPRIT.pid, 1, 0), (VICTIM.pid, 1, 0), (NEWCOMER.pid, 1, 1)]);
    memory_fault_on(&mut scene, 0);
    assert_eq!(
        (scene.verdict().victims.as_slice(), scene.verdict().spared.as_slice()),
        (&[VICTIM.pid][..], &[NEWCOMER.pid][..])
    );
    scene.dies(CULPRIT, End::Exited(1));
    let effects = scene.pass(PATIENCE);
    let line = format!("Server {SERVER} still has clients after a fault: {}", VICTIM.pid);
    assert!(effects.contains(&Effect::Log(line)), "{effects:?}");
    assert!(asked(&effects, &Request::TerminateClient(VICTIM.pid)).is_some());
    assert!(asked(&effects, &Request::TerminateClient(NEWCOMER.pid)).is_none());
    assert!(!is_told_to_end(&effects, scene.server));
}

#[test]
fn who_comes_just_before_a_fault_and_has_nothing_there_yet_is_not_spared_and_keeps_no_server() {
    let mut scene = default_scene();
    let (connection, _) = scene.comes(NEWCOMER);
    scene.finish(connection);
    memory_fault_on(&mut scene, 0);
    assert_eq!(told(&scene), (vec![], vec![VICTIM.pid]));
    scene.dies(CULPRIT, End::Exited(188));
    let effects = scene.dies(VICTIM, End::Exited(0));
    assert!(is_told_to_end(&effects, scene.server), "{effects:?}");
}

#[test]
fn who_is_on_both_gpus_or_nobody_knows_where_is_a_victim_as_ever() {
    for others in [&[0, 1][..], &[]] {
        let mut scene = scene(Policy::default(), &[0], others);
        let effects = memory_fault_on(&mut scene, 0);
        assert_eq!(scene.verdict().victims, [VICTIM.pid], "{others:?}");
        assert!(is_told_to_end(&effects, scene.server));
        let effects = scene.pass(PATIENCE);
        assert!(effects.contains(&Effect::Signal { server: scene.server, signal: ServerSignal::Interrupt }));
    }
}

#[test]
fn the_server_says_in_the_end_whom_its_fault_has_left_alone_and_stays_for_them() {
    let mut scene = default_scene();
    let old = scene.server;
    third(&mut scene, 2);
    let effects = memory_fault_on(&mut scene, 0);
    assert!(told(&scene).1.is_empty(), "nobody knows");
    scene.serve(&effects, SERVER + 1);
    goes_on(&mut scene, &effects);
    recovers(&mut scene, false);
    scene.dies(CULPRIT, End::Exited(1));
    scene.dies(NEWCOMER, End::Exited(1));
    names(&mut scene, &[(VICTIM.pid, 1, 1)]);
    for _ in 0..3 {
        assert!(!is_told_to_end(&scene.pass(PATIENCE), old), "it would have been ended after {PATIENCE:?}");
    }
    assert_eq!(scene.core.fate_of(key(VICTIM.pid, 0)), Some((old, Fate::Healthy)));
    assert!(is_told_to_end(&scene.dies(VICTIM, End::Exited(0)), old));
}

/// It knows of a fault 60 to 130 ms after.
#[test]
fn a_server_that_has_not_noticed_its_fault_yet_has_not_got_over_it() {
    let mut scene = default_scene();
    let effects = memory_fault_on(&mut scene, 0);
    scene.serve(&effects, SERVER + 1);
    let effects = scene.pass(Duration::from_millis(100));
    let effects = scene.answer_status(&effects, true);
    assert_eq!(asked(&effects, &Request::DeviceClients), None);
    let (context, effects) = scene.arrive(VICTIM);
    assert!(!is_dispatched(&effects, context), "it would be refused");
}

#[test]
fn a_client_that_has_just_made_a_context_may_be_anywhere() {
    let mut scene = default_scene();
    let (context, effects) = scene.arrive(VICTIM);
    assert!(is_dispatched(&effects, context));
    scene.finish(context);
    memory_fault_on(&mut scene, 0);
    assert_eq!(scene.verdict().victims, [VICTIM.pid]);
}

#[test]
fn what_the_uvm_driver_says_afterwards_takes_the_end_of_a_server_back() {
    let mut scene = scene(Policy::default(), &[0], &[]);
    let effects = memory_fault_on(&mut scene, 0);
    let request = asked(&effects, &Request::Shutdown).expect("nobody knows better");
    let names = vec![uuid(1).to_string()];
    scene.feed(Input::SpacesFound { process: key(VICTIM.pid, 0), gpus: Some(names) });
    scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(4)) });
    for _ in 0..3 {
        assert!(!is_told_to_end(&scene.pass(PATIENCE), scene.server));
    }
}

#[test]
fn the_kernel_says_on_which_gpu_an_exception_was_before_or_after_the_server_is_known_to_be_lost() {
    for is_first in [true, false] {
        let mut scene = default_scene();
        let line = xid(13, 0, None);
        let mut effects = scene.log_record(CULPRIT.pid);
        if is_first {
            scene.feed(line.clone());
        }
        effects.extend(scene.answer_status(&effects, false));
        if !is_first {
            let request = asked(&effects, &Request::Shutdown).expect("nobody knows better");
            scene.feed(line);
            scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(4)) });
        }
        scene.pass(Duration::from_millis(500));
        let verdict = scene.verdict();
        // Nobody says who did it, so it is one of those that it has hit.
        let (victims, spared) = (&[CULPRIT.pid][..], &[VICTIM.pid][..]);
        assert_eq!((verdict.victims.as_slice(), verdict.spared.as_slice()), (victims, spared));
        assert!(!is_told_to_end(&scene.pass(PATIENCE), scene.server));
    }
}

#[test]
fn an_xid_without_a_pid_is_about_servers_that_have_something_on_its_gpu() {
    let mut scene = scene(Policy::default(), &[0], &[0]);
    assert_eq!(asked(&scene.feed(xid(13, 1, None)), &Request::Status), None);
    assert!(asked(&scene.feed(xid(13, 0, None)), &Request::Status).is_some());
}

#[test]
fn a_second_fault_on_the_other_gpu_hits_whom_the_first_had_left_alone() {
    let mut scene = default_scene();
    let effects = memory_fault_on(&mut scene, 0);
    scene.serve(&effects, SERVER + 1);
    scene.dies(CULPRIT, End::Exited(1));
    recovers(&mut scene, true);
    scene.pass(PATIENCE);
    let gpu = Some(uuid(1).to_string());
    let fault = Evidence::UvmEvent {
        process: key(VICTIM.pid, 0),
        fault: MemoryFault { gpu, ..fault() },
        is_of_own_server: true,
    };
    let effects = scene.feed(Input::Evidence(fault));
    assert_eq!(culprit(scene.verdict()), Some(VICTIM.pid));
    let request = asked(&effects, &Request::Shutdown).expect("nobody is left alone");
    scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(2)) });
    let is_forced = |effects: &[Effect]| {
        effects.contains(&Effect::Signal { server: ServerEpoch(1), signal: ServerSignal::Interrupt })
    };
    let half = scene.pass(PATIENCE / 2);
    assert!(!is_forced(&half), "it has its time, too: {half:?}");
    let request = asked(&half, &Request::Shutdown).expect("it is asked again");
    scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(2)) });
    assert!(is_forced(&scene.pass(PATIENCE / 2)), "and no more");
}

#[test]
fn on_a_machine_with_one_gpu_nobody_is_asked_for_anything() {
    let mut scene = Scene::new(Policy::default());
    let mut effects = scene.feed(Input::GpusFound(places()[..1].to_vec()));
    effects.extend(scene.pass(LOOKED_AT));
    let (context, more) = scene.arrive(VICTIM);
    effects.extend(more);
    scene.finish(context);
    effects.extend(scene.pass(LOOKED_AT));
    let asks = |effect: &Effect| {
        matches!(effect, Effect::FindGpus { .. })
            || matches!(effect, Effect::Ask { request: Request::DeviceClients | Request::QueryDevices, .. })
    };
    assert!(!effects.iter().any(asks), "{effects:?}");
    memory_fault_on(&mut scene, 0);
    assert_eq!(scene.verdict().victims, [VICTIM.pid]);
}

/// Until the server has named its clients a successor knows those whom the fault has left alone by what its predecessor kept.
#[test]
fn a_second_fault_before_a_successor_knows_the_clients_hits_whom_the_first_had_left_alone() {
    for is_hit_again in [true, false] {
        let mut scene = default_scene();
        let effects = memory_fault_on(&mut scene, 0);
        scene.serve(&effects, SERVER + 1);
        let saved = scene.core.saved();
        let (core, effects) = Core::restored(scene.now, Policy::default(), &saved, &saved.servers);
        scene.core = core;
        scene.feed(Input::GpusFound(places()));
        if is_hit_again {
            scene.feed(xid(43, 1, Some(SERVER)));
        }
        let request = asked(&effects, &Request::Clients).expect("it is asked who is there");
        let pids = vec![CULPRIT.pid, VICTIM.pid];
        scene.feed(Input::Replied { request, reply: Ok(Reply::Clients(pids)) });
        let is_spared = scene.core.clients.process(VICTIM.pid).expect("it is named").gpus.is_spared;
        assert_eq!(is_spared, !is_hit_again);
    }
}
