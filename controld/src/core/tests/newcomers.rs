//! A fault that comes while a newcomer is on its way to a server with other clients: who can be saved is.

use super::scene::*;
use super::*;
use remps_proto::mps::server::{Reply, Request};

/// What tells the daemon of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// The culprit's tools queue.
    MemoryFault,
    /// The server, in its log and when it is asked; nothing else tells of a `trap`.
    Log,
}

/// How far the newcomer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// It waits for its time to pass.
    Settling,
    /// Its server is asked.
    Asked,
    /// The server is told of it.
    Told,
    /// It has its end of the connection.
    HasEnd,
}

/// The newcomer comes this far.
fn comes(scene: &mut Scene, step: Step) -> (ConnectionId, Vec<Effect>) {
    let (connection, mut effects) = scene.arrive(NEWCOMER);
    assert!(!is_dispatched(&effects, connection), "it waits");
    if step >= Step::Asked {
        effects = scene.pass(SETTLE);
    }
    if step >= Step::Told {
        effects = scene.answer_status(&effects, true);
        assert!(is_dispatched(&effects, connection));
    }
    if step == Step::HasEnd {
        effects = scene.feed(Input::ServerGreeted { connection });
        assert!(effects.contains(&Effect::HandOver { connection }));
    }
    (connection, effects)
}

#[test]
fn a_newcomer_goes_to_another_server_at_whatever_step_the_fault_comes_until_it_has_its_end() {
    for step in [Step::Settling, Step::Asked, Step::Told, Step::HasEnd] {
        for sign in [Sign::MemoryFault, Sign::Log] {
            let mut scene = Scene::new(Policy::default());
            let (connection, before) = comes(&mut scene, step);
            let mut effects = match sign {
                Sign::MemoryFault => scene.memory_fault(),
                Sign::Log => scene.log_record(CULPRIT.pid),
            };
            if sign == Sign::Log {
                if step == Step::Told {
                    // The server can't answer before the handshake is over.
                    let greeted = scene.feed(Input::ServerGreeted { connection });
                    assert!(greeted.contains(&Effect::Recall { connection }), "{greeted:?}");
                }
                if step == Step::Asked {
                    scene.answer_status(&before, false);
                }
                effects = scene.answer_status(&effects, false);
            }
            if step == Step::Told && sign == Sign::MemoryFault {
                assert!(effects.contains(&Effect::Recall { connection }), "{effects:?}");
            }
            assert!(scene.is_tainted());
            let starting: Vec<ServerEpoch> =
                scene.core.servers().filter(|s| s.is_starting()).map(|s| s.epoch).collect();
            assert_eq!(starting.len(), 1, "one server is on its way: {step:?} {sign:?}");
            let peer = Peer { pid: SERVER + 1, uid: 1000, gid: 0 };
            scene.feed(Input::ServerSpawned { server: starting[0], pid: peer.pid });
            let effects = scene.feed(Input::ServerHello { connection: ConnectionId(900), peer });
            let is_saved = step != Step::HasEnd;
            assert_eq!(is_dispatched(&effects, connection), is_saved, "{step:?} {sign:?}");
            if is_saved {
                let effects = scene.feed(Input::ServerGreeted { connection });
                assert!(effects.contains(&Effect::HandOver { connection }));
            }
        }
    }
}

#[test]
fn the_first_context_of_a_process_may_still_go_to_another_server_and_the_second_not() {
    for contexts in [0, 1] {
        let mut scene = Scene::new(Policy::default());
        let (connection, _) = comes(&mut scene, Step::HasEnd);
        scene.feed(Input::ClientDone { connection, status: Some(0) });
        for _ in 0..contexts {
            scene.pass(Duration::from_millis(1));
            let (connection, effects) = scene.arrive(NEWCOMER);
            assert!(is_dispatched(&scene.answer_status(&effects, true), connection), "without delay");
            scene.finish(connection);
        }
        scene.pass(Duration::from_millis(1));
        let (context, effects) = scene.arrive(NEWCOMER);
        assert_eq!(is_dispatched(&effects, context), contexts == 1, "one that can't be moved need not wait");
        if contexts == 0 {
            let effects = scene.answer_status(&effects, false);
            assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), context));
        }
    }
}

#[test]
fn who_is_alone_on_a_server_waits_for_nothing_and_neither_does_anybody_when_that_is_switched_off() {
    let mut scene = Scene::new(Policy::default());
    scene.dies(CULPRIT, End::Exited(0));
    scene.dies(VICTIM, End::Exited(0));
    let (connection, effects) = scene.arrive(NEWCOMER);
    assert!(is_dispatched(&effects, connection));

    let mut scene = Scene::unsettled(Policy::default());
    let (connection, effects) = scene.arrive(NEWCOMER);
    assert!(is_dispatched(&effects, connection));
}

#[test]
fn who_comes_right_after_a_client_that_ended_badly_does_not_get_the_server_that_it_spoilt() {
    let just_after = |end, pause| {
        let mut scene = Scene::new(Policy::default());
        scene.dies(VICTIM, End::Exited(0));
        let effects = scene.dies(CULPRIT, end);
        if end != End::Exited(0) {
            // What it has done is not known yet.
            scene.answer_status(&effects, true);
        }
        scene.pass(pause);
        let (connection, effects) = scene.arrive(NEWCOMER);
        (scene, connection, is_dispatched(&effects, connection))
    };
    let (_, _, dispatched) = just_after(End::Exited(207), SETTLE);
    assert!(dispatched, "a fault would be known by now");
    let (_, _, dispatched) = just_after(End::Exited(0), Duration::ZERO);
    assert!(dispatched, "it ended well");
    let (mut scene, connection, dispatched) = just_after(End::Exited(207), SETTLE / 2);
    assert!(!dispatched);
    let effects = scene.pass(SETTLE);
    let effects = scene.answer_status(&effects, false);
    assert!(scene.is_tainted());
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), connection));
}

#[test]
fn a_sign_that_comes_while_the_server_is_asked_is_asked_about_again() {
    let mut scene = Scene::new(Policy::default());
    // A culprit ends with its error a moment before its server knows.
    let first = scene.dies(CULPRIT, End::Exited(207));
    scene.log_record(CULPRIT.pid);
    let second = scene.answer_status(&first, true);
    assert!(!scene.is_tainted());
    let third = scene.answer_status(&second, false);
    assert!(scene.is_tainted() && spawned(&third).is_some());
}

#[test]
fn the_time_in_the_queue_counts_and_one_answer_is_for_all() {
    let mut scene = Scene::new(Policy::default());
    let (first, _) = scene.arrive(NEWCOMER);
    scene.pass(SETTLE / 2);
    let (second, _) = scene.arrive(Peer { pid: 13, ..NEWCOMER });
    let effects = scene.pass(SETTLE / 2);
    let early = asked(&effects, &Request::Status).expect("the first one's time has come");
    let effects = scene.pass(SETTLE / 2);
    assert_eq!(asked(&effects, &Request::Status), None, "one question at a time");
    let effects = scene.feed(Input::Replied { request: early, reply: Ok(Reply::Active(true)) });
    assert!(is_dispatched(&effects, first) && !is_dispatched(&effects, second), "it says nothing of later");
    let (third, _) = scene.arrive(Peer { pid: 14, ..NEWCOMER });
    let effects = scene.answer_status(&effects, true);
    assert!(is_dispatched(&effects, second) && !is_dispatched(&effects, third));
}

#[test]
fn a_flood_of_forged_records_takes_a_newcomer_back_once() {
    let mut scene = Scene::new(Policy::default());
    let (connection, _) = comes(&mut scene, Step::Told);
    let effects = scene.log_record(VICTIM.pid);
    assert!(scene.feed(Input::ServerGreeted { connection }).contains(&Effect::Recall { connection }));
    assert!(is_dispatched(&scene.answer_status(&effects, true), connection));
    scene.log_record(VICTIM.pid);
    assert!(scene.feed(Input::ServerGreeted { connection }).contains(&Effect::HandOver { connection }));
}

#[test]
fn a_newcomer_that_is_on_its_way_when_the_daemon_quits_is_not_left_waiting() {
    let mut scene = Scene::new(Policy::default());
    let (connection, _) = comes(&mut scene, Step::Told);
    scene.feed(Input::Terminate);
    let effects = scene.memory_fault();
    assert!(effects.contains(&Effect::Recall { connection }) && effects.contains(&Effect::Close { connection }));
    assert!(scene.core.client_peer(connection).is_none());
    assert!(scene.core.servers().all(|server| server.handshakes == 0));
}
