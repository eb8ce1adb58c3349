//! A verdict on somebody who is still being read: others are told of it when it is known who that is, and nothing else
//! waits.

use super::scene::*;
use super::*;
use crate::core::faults::announce::PATIENCE;
use remps_proto::mps::server::Reply;
use std::sync::Arc;
use world::key;

const MOMENT: Duration = Duration::from_millis(10);

/// What the kernel tells of a process at once.
fn at_once(pid: Pid) -> Identity {
    let (pod, container) = (Some(format!("uid-of-{pid}")), Some(format!("container-{pid}")));
    let cgroup = format!("/kubepods/pod{pid}/container-{pid}");
    Identity { start_time: key(pid, 0).start_time, cgroup, pod, container, awaits_more: true, ..Identity::default() }
}

/// The same when its cluster's names and its memory were read.
fn read(pid: Pid) -> Identity {
    let names =
        PodNames { namespace: "research".into(), pod_name: format!("pod-{pid}"), container_name: "main".into() };
    let command = format!("program-{pid}");
    Identity { names: Some(Box::new(names)), command, awaits_more: false, ..at_once(pid) }
}

/// A scene where this is known of culprit and victim.
fn scene(known: [fn(Pid) -> Identity; 2]) -> Scene {
    let mut scene = Scene::new(Policy::default());
    for (peer, known) in [CULPRIT, VICTIM].into_iter().zip(known) {
        scene.feed(Input::IdentityKnown { pid: peer.pid, identity: Arc::new(known(peer.pid)) });
    }
    scene
}

fn is_known(scene: &mut Scene, identity: Identity) -> Vec<Effect> {
    let pid = if identity.start_time == key(CULPRIT.pid, 0).start_time { CULPRIT.pid } else { VICTIM.pid };
    scene.feed(Input::IdentityKnown { pid, identity: Arc::new(identity) })
}

fn told(effects: &[Effect]) -> Vec<&Announcement> {
    let told = effects.iter().filter_map(|effect| match effect {
        Effect::Announce(announcement) => Some(&**announcement),
        _ => None,
    });
    told.collect()
}

/// The pods of culprit and victims of the only verdict that is told.
fn pods(effects: &[Effect]) -> Vec<Option<String>> {
    let [announcement] = &told(effects)[..] else { panic!("one verdict is told: {effects:?}") };
    let all = announcement.verdict.culprit.iter().chain(&announcement.victims);
    all.map(|suspect| suspect.identity.names.as_ref().map(|names| names.pod_name.clone())).collect()
}

fn name(peer: Peer) -> Option<String> {
    Some(format!("pod-{}", peer.pid))
}

#[test]
fn whoever_was_read_before_his_fault_is_told_of_at_once() {
    let mut scene = scene([read, read]);
    let effects = scene.memory_fault();
    assert_eq!(pods(&effects), [name(CULPRIT), name(VICTIM)]);
    assert_eq!(told(&scene.pass(PATIENCE)).len(), 0, "once");
}

#[test]
fn a_verdict_waits_for_who_its_culprit_is_and_nothing_else_waits() {
    let mut scene = scene([at_once, read]);
    let effects = scene.memory_fault();
    assert!(told(&effects).is_empty(), "{effects:?}");
    assert!(spawned(&effects).is_some() && scene.is_tainted(), "it is acted upon: {effects:?}");
    let recorded = effects.iter().find_map(|effect| match effect {
        Effect::Record(event) => match &**event {
            JournalEvent::Verdict { verdict, .. } => verdict.culprit.clone(),
            _ => None,
        },
        _ => None,
    });
    let pod = recorded.and_then(|culprit| culprit.identity.pod);
    assert_eq!(pod, at_once(CULPRIT.pid).pod, "the journal has what the kernel has told");
    assert!(told(&scene.pass(MOMENT)).is_empty());
    let effects = is_known(&mut scene, read(CULPRIT.pid));
    assert_eq!(pods(&effects), [name(CULPRIT), name(VICTIM)]);
    assert_eq!(told(&effects)[0].verdict.culprit.as_ref().unwrap().identity.command, "program-10");
    assert_eq!(told(&scene.pass(PATIENCE)).len(), 0, "once");
}

#[test]
fn it_waits_for_its_victims_too() {
    let mut scene = scene([at_once, at_once]);
    assert!(told(&scene.memory_fault()).is_empty());
    assert!(told(&is_known(&mut scene, read(CULPRIT.pid))).is_empty());
    assert_eq!(pods(&is_known(&mut scene, read(VICTIM.pid))), [name(CULPRIT), name(VICTIM)]);
}

/// Of whose memory nothing could be read any more: its names are those of its container.
fn read_late(pid: Pid) -> Identity {
    Identity { command: String::new(), ..read(pid) }
}

#[test]
fn who_has_ended_before_he_is_read_is_told_of_all_the_same() {
    let mut scene = scene([at_once, read]);
    let mut effects = scene.memory_fault();
    effects.extend(scene.dies(CULPRIT, End::Exited(1)));
    assert!(told(&effects).is_empty(), "{effects:?}");
    assert_eq!(pods(&is_known(&mut scene, read_late(CULPRIT.pid))), [name(CULPRIT), name(VICTIM)]);
}

#[test]
fn so_is_who_has_died_in_a_kernel() {
    for is_read_in_time in [true, false] {
        let mut scene = scene([at_once, read]);
        scene.dies(CULPRIT, End::Signaled(9));
        if is_read_in_time {
            is_known(&mut scene, read_late(CULPRIT.pid));
        }
        let (class, bus, text) = (XidClass::Application, "0000:3b:00".to_owned(), "MMU Fault".to_owned());
        let line = Evidence::Xid { number: 31, class, bus, instance: None, pid: Some(SERVER), channel: None, text };
        let mut effects = scene.feed(Input::Evidence(line));
        for request in scene.open_questions() {
            effects.extend(scene.feed(Input::Replied { request, reply: Ok(Reply::Active(false)) }));
        }
        effects.extend(scene.pass(Duration::from_secs(1)));
        if !is_read_in_time {
            assert!(told(&effects).is_empty(), "{effects:?}");
            effects = is_known(&mut scene, read_late(CULPRIT.pid));
        }
        assert_eq!(pods(&effects), [name(CULPRIT), name(VICTIM)], "read in time: {is_read_in_time}");
    }
}

#[test]
fn nothing_that_was_known_is_forgotten_when_nothing_can_be_read_any_more() {
    let mut scene = scene([read, read]);
    let gone = Identity { start_time: key(CULPRIT.pid, 0).start_time, ..Identity::default() };
    is_known(&mut scene, gone);
    let effects = scene.memory_fault();
    assert_eq!(pods(&effects), [name(CULPRIT), name(VICTIM)]);
}

#[test]
fn another_process_with_the_pid_is_not_taken_for_the_culprit() {
    let mut scene = scene([at_once, read]);
    scene.memory_fault();
    scene.dies(CULPRIT, End::Exited(1));
    let other = Identity { start_time: key(CULPRIT.pid, 1).start_time, ..read(VICTIM.pid) };
    let effects = scene.feed(Input::IdentityKnown { pid: CULPRIT.pid, identity: Arc::new(other) });
    assert!(told(&effects).is_empty());
    assert_eq!(pods(&is_known(&mut scene, read(CULPRIT.pid))), [name(CULPRIT), name(VICTIM)]);
}

#[test]
fn it_is_told_as_it_is_known_when_nobody_comes_to_know_more() {
    let mut scene = scene([at_once, read]);
    scene.memory_fault();
    assert!(told(&scene.pass(PATIENCE - MOMENT)).is_empty());
    assert_eq!(scene.core.next_deadline(), Some(PATIENCE + scene.now - (PATIENCE - MOMENT)), "it asks to be waked");
    let effects = scene.pass(MOMENT);
    assert_eq!(pods(&effects), [None, name(VICTIM)]);
    let culprit = told(&effects)[0].verdict.culprit.as_ref().unwrap();
    assert_eq!(culprit.identity.pod, at_once(CULPRIT.pid).pod);
}

#[test]
fn a_daemon_that_ends_has_it_told_before() {
    let mut scene = scene([at_once, read]);
    scene.memory_fault();
    let mut effects = scene.feed(Input::Terminate);
    assert!(told(&effects).is_empty(), "it may be known before the servers are gone");
    let servers: Vec<ServerEpoch> = scene.core.servers().map(|server| server.epoch).collect();
    for server in servers {
        effects.extend(scene.feed(Input::SpawnFailed { server, reason: "the end".into() }));
        effects.extend(scene.feed(Input::ServerExited { server, cause: ExitCause::Exited(0) }));
    }
    let exit = effects.iter().position(|effect| matches!(effect, Effect::Exit { .. })).expect("it ends");
    let at = effects.iter().position(|effect| matches!(effect, Effect::Announce(_))).expect("it is told");
    assert!(at < exit, "{effects:?}");
    assert_eq!(pods(&effects), [None, name(VICTIM)]);
}

/// A client has failed, and another process with its pid is a client when the kernel tells of the fault.
#[test]
fn nor_is_it_taken_for_a_victim_that_has_died() {
    let mut scene = scene([read, read]);
    let effects = scene.dies(VICTIM, End::Exited(207));
    scene.answer_status(&effects, true);
    scene.pass(SETTLE);
    let (connection, identity) = (scene.new_connection(), world::identity(VICTIM.pid, 1));
    let effects = scene.feed(Input::ClientArrived { connection, peer: VICTIM, identity, entrance: None });
    assert!(is_dispatched(&effects, connection), "{effects:?}");
    scene.finish(connection);
    let (class, bus, text) = (XidClass::Application, world::bus(0), "x".to_owned());
    let pid = Some(SERVER);
    let line = Evidence::Xid { number: 13, class, bus, instance: None, pid, channel: None, text };
    let effects = scene.feed(Input::Evidence(line));
    scene.answer_status(&effects, true);
    let effects = scene.pass(Duration::from_secs(1));
    let [announcement] = &told(&effects)[..] else { panic!("one verdict is told: {effects:?}") };
    let victims: Vec<ProcessKey> = announcement.victims.iter().map(|victim| victim.process).collect();
    assert_eq!(victims, [key(VICTIM.pid, 0)]);
}
