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
    /// It waits for its time to pass, since there was a sign of trouble.
    Settling,
    /// Its server is asked, for the same reason.
    Asked,
    /// The server is told of it.
    Told,
    /// The server has greeted it, and its answer to what it was asked before lies unread.
    Greeted,
    /// It has its end of the connection.
    HasEnd,
}

/// The newcomer comes this far.
fn comes(scene: &mut Scene, in_doubt: bool, step: Step) -> (ConnectionId, Vec<Effect>) {
    scene.pass(SETTLE * 2);
    if in_doubt {
        scene.is_in_doubt();
    }
    let (connection, mut effects) = scene.arrive(NEWCOMER);
    assert_eq!(is_dispatched(&effects, connection), !in_doubt);
    if in_doubt && step >= Step::Asked {
        effects = scene.pass(SETTLE);
    }
    if in_doubt && step >= Step::Told {
        effects = scene.answer_status(&effects, true);
        assert!(is_dispatched(&effects, connection));
    }
    if step >= Step::Greeted {
        let greeted = scene.feed(Input::ServerGreeted { connection });
        assert_eq!(greeted.contains(&Effect::HandOver { connection }), in_doubt);
    }
    if !in_doubt && step == Step::HasEnd {
        effects = scene.answer_status(&effects, true);
        assert!(effects.contains(&Effect::HandOver { connection }));
    }
    (connection, effects)
}

#[test]
fn a_newcomer_goes_to_another_server_at_whatever_step_the_fault_comes_until_it_has_its_end() {
    let quiet = [Step::Told, Step::Greeted, Step::HasEnd].map(|step| (false, step));
    let doubtful = [Step::Settling, Step::Asked, Step::Told, Step::HasEnd].map(|step| (true, step));
    for ((in_doubt, step), sign) in
        quiet.into_iter().chain(doubtful).flat_map(|way| [(way, Sign::MemoryFault), (way, Sign::Log)])
    {
        let mut scene = Scene::new(Policy::default());
        let (connection, before) = comes(&mut scene, in_doubt, step);
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
        if matches!(step, Step::Told | Step::Greeted) && sign == Sign::MemoryFault {
            assert!(effects.contains(&Effect::Recall { connection }), "{effects:?}");
        }
        assert!(scene.is_tainted());
        let starting: Vec<ServerEpoch> = scene.core.servers().filter(|s| s.is_starting()).map(|s| s.epoch).collect();
        assert_eq!(starting.len(), 1, "one server is on its way: {step:?} {sign:?}");
        let peer = Peer { pid: SERVER + 1, uid: 1000, gid: 0 };
        scene.feed(Input::ServerSpawned { server: starting[0], pid: peer.pid });
        let effects = scene.feed(Input::ServerHello { connection: ConnectionId(900), peer });
        let is_saved = step != Step::HasEnd;
        assert_eq!(is_dispatched(&effects, connection), is_saved, "{in_doubt} {step:?} {sign:?}");
        if is_saved {
            let effects = scene.feed(Input::ServerGreeted { connection });
            assert!(effects.contains(&Effect::HandOver { connection }));
        }
    }
}

#[test]
fn without_a_sign_of_trouble_the_server_is_told_of_a_newcomer_at_once_and_asked_right_before() {
    let mut scene = Scene::new(Policy::default());
    scene.pass(SETTLE * 2);
    for connections in 0..2 {
        let (connection, effects) = scene.arrive(NEWCOMER);
        let told = effects.iter().position(|effect| matches!(effect, Effect::Dispatch { .. })).expect("at once");
        let question = effects.iter().position(|effect| matches!(effect, Effect::Ask { .. })).expect("beside it");
        assert!(question < told, "a server does one thing after the other: {effects:?}");
        // Whichever the daemon reads first.
        let answered_first = connections == 0;
        let mut after = Vec::new();
        if answered_first {
            after.extend(scene.answer_status(&effects, true));
        }
        after.extend(scene.feed(Input::ServerGreeted { connection }));
        if !answered_first {
            assert!(!after.contains(&Effect::HandOver { connection }), "its answer is on the way");
            after.extend(scene.answer_status(&effects, true));
        }
        assert!(after.contains(&Effect::HandOver { connection }));
        scene.feed(Input::ClientDone { connection, status: Some(0) });
        scene.pass(SETTLE * 2);
    }
}

#[test]
fn a_fault_that_only_the_server_knows_of_takes_a_newcomer_back_from_it() {
    for is_greeted in [false, true] {
        let mut scene = Scene::new(Policy::default());
        scene.pass(SETTLE * 2);
        let (connection, asked) = scene.arrive(NEWCOMER);
        if is_greeted {
            scene.feed(Input::ServerGreeted { connection });
        }
        let effects = scene.answer_status(&asked, false);
        assert!(scene.is_tainted() && effects.contains(&Effect::Recall { connection }), "{effects:?}");
        assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), connection));
    }
}

#[test]
fn a_newcomer_whose_server_greets_it_and_never_answers_comes_back_to_the_queue() {
    let mut scene = Scene::new(Policy::default());
    scene.pass(SETTLE * 2);
    let (connection, effects) = scene.arrive(NEWCOMER);
    scene.feed(Input::ServerGreeted { connection });
    let request = asked(&effects, &Request::Status).expect("the server is asked");
    let effects = scene.feed(Input::Replied { request, reply: Err(NoReply::TimedOut) });
    assert!(effects.contains(&Effect::Recall { connection }));
    assert!(is_dispatched(&effects, connection) && asked(&effects, &Request::Status).is_some(), "it is tried again");
}

#[test]
fn nobody_asks_where_the_server_has_just_said_how_it_is() {
    let mut scene = Scene::new(Policy::default());
    scene.pass(SETTLE * 2);
    let (first, effects) = scene.arrive(NEWCOMER);
    scene.pass(SETTLE / 2);
    let (second, others) = scene.arrive(Peer { pid: 13, ..NEWCOMER });
    assert!(is_dispatched(&others, second));
    assert_eq!(asked(&others, &Request::Status), None, "the answer to the first question comes before");
    let greeted = [first, second].map(|connection| scene.feed(Input::ServerGreeted { connection }));
    assert!(!greeted.concat().iter().any(|effect| matches!(effect, Effect::HandOver { .. })));
    let effects = scene.answer_status(&effects, true);
    assert!([first, second].into_iter().all(|connection| effects.contains(&Effect::HandOver { connection })));
    let (third, effects) = scene.arrive(Peer { pid: 14, ..NEWCOMER });
    assert!(is_dispatched(&effects, third) && asked(&effects, &Request::Status).is_none());
    assert!(scene.feed(Input::ServerGreeted { connection: third }).contains(&Effect::HandOver { connection: third }));
    scene.pass(SETTLE);
    let (_, effects) = scene.arrive(Peer { pid: 15, ..NEWCOMER });
    assert!(asked(&effects, &Request::Status).is_some(), "that was too long ago");
}

#[test]
fn after_a_sign_of_trouble_the_question_comes_first() {
    let mut scene = Scene::new(Policy::default());
    scene.pass(SETTLE * 2);
    scene.is_in_doubt();
    let (connection, effects) = scene.arrive(NEWCOMER);
    assert!(!is_dispatched(&effects, connection) && asked(&effects, &Request::Status).is_none(), "its time runs");
    let effects = scene.pass(SETTLE);
    assert!(!is_dispatched(&effects, connection));
    assert!(is_dispatched(&scene.answer_status(&effects, true), connection));
    scene.finish(connection);
    // Another one's end.
    scene.is_in_doubt();
    let (context, effects) = scene.arrive(NEWCOMER);
    assert!(!is_dispatched(&effects, context), "its first context waits for the word alone");
    assert!(is_dispatched(&scene.answer_status(&effects, true), context));
}

#[test]
fn the_first_context_of_a_process_may_still_go_to_another_server_and_the_second_not() {
    for contexts in [0, 1] {
        let mut scene = Scene::new(Policy::default());
        let (connection, _) = comes(&mut scene, false, Step::HasEnd);
        scene.feed(Input::ClientDone { connection, status: Some(0) });
        for _ in 0..contexts {
            scene.pass(SETTLE * 2);
            let (connection, _) = scene.comes(NEWCOMER);
            scene.finish(connection);
        }
        scene.pass(SETTLE * 2);
        let (context, effects) = scene.arrive(NEWCOMER);
        assert!(is_dispatched(&effects, context));
        assert_eq!(asked(&effects, &Request::Status).is_some(), contexts == 0, "one that can't be moved asks nothing");
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
    scene.is_in_doubt();
    let (first, _) = scene.arrive(NEWCOMER);
    scene.pass(SETTLE / 3);
    let (second, _) = scene.arrive(Peer { pid: 13, ..NEWCOMER });
    let effects = scene.pass(SETTLE - SETTLE / 3);
    let early = asked(&effects, &Request::Status).expect("the first one's time has come");
    let effects = scene.pass(SETTLE / 3);
    assert_eq!(asked(&effects, &Request::Status), None, "one question at a time");
    let effects = scene.feed(Input::Replied { request: early, reply: Ok(Reply::Active(true)) });
    assert!(is_dispatched(&effects, first) && !is_dispatched(&effects, second), "it says nothing of later");
    let effects = scene.answer_status(&effects, true);
    assert!(is_dispatched(&effects, second));
}

#[test]
fn a_flood_of_forged_records_takes_a_newcomer_back_once() {
    let mut scene = Scene::new(Policy::default());
    let (connection, _) = comes(&mut scene, true, Step::Told);
    let effects = scene.log_record(VICTIM.pid);
    assert!(scene.feed(Input::ServerGreeted { connection }).contains(&Effect::Recall { connection }));
    assert!(is_dispatched(&scene.answer_status(&effects, true), connection));
    scene.log_record(VICTIM.pid);
    assert!(scene.feed(Input::ServerGreeted { connection }).contains(&Effect::HandOver { connection }));
}

#[test]
fn a_newcomer_that_is_on_its_way_when_the_daemon_quits_is_not_left_waiting() {
    let mut scene = Scene::new(Policy::default());
    let (connection, _) = comes(&mut scene, false, Step::Told);
    scene.feed(Input::Terminate);
    let effects = scene.memory_fault();
    assert!(effects.contains(&Effect::Recall { connection }) && effects.contains(&Effect::Close { connection }));
    assert!(scene.core.client_peer(connection).is_none());
    assert!(scene.core.servers().all(|server| server.handshakes == 0));
}
