//! A successor finds out which server each process is on, also of one that two servers name.

use super::scene::*;
use super::*;
use remps_proto::mps::server::{Reply, Request};
use world::{identity, key};

/// A process that comes after the newcomer.
const JOINER: Peer = Peer { pid: 13, uid: 1000, gid: 1000 };
const OTHER_SERVER: Pid = SERVER + 1;

/// A server falls silent before the newcomer has a context there, and another one is ready in its place.
fn moves_on() -> (Scene, ServerEpoch) {
    let mut scene = Scene::new(Policy::default());
    let (connection, _) = scene.comes(NEWCOMER);
    scene.finish(connection);
    scene.pass(SETTLE * 2);
    let (context, effects) = scene.arrive(NEWCOMER);
    assert!(asked(&effects, &Request::Status).is_some());
    let effects = scene.pass(Duration::from_secs(1));
    let other = spawned(&effects).expect("the silent one is replaced");
    assert!(is_dispatched(&scene.serve(&effects, OTHER_SERVER), context));
    (scene, other)
}

/// A successor takes over those that are ready: what it asks them.
fn taken_over(scene: &mut Scene) -> Vec<Effect> {
    let saved = scene.core.saved();
    let ready: Vec<_> = saved.servers.iter().filter(|server| server.ready).cloned().collect();
    let (core, effects) = Core::restored(scene.now, Policy::default(), &saved, &ready);
    scene.core = core;
    effects
}

/// A server names its clients.
fn names(scene: &mut Scene, effects: &[Effect], named: ServerEpoch, clients: &[Peer]) -> Vec<Effect> {
    let request = effects.iter().find_map(|effect| match effect {
        Effect::Ask { server, id, request: Request::Clients } if *server == named => Some(*id),
        _ => None,
    });
    let reply = Ok(Reply::Clients(clients.iter().map(|client| client.pid).collect()));
    scene.feed(Input::Replied { request: request.expect("it is asked"), reply })
}

fn watches(effects: &[Effect], peer: Peer) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::WatchProcess { pid, .. } if *pid == peer.pid)).count()
}

/// The newcomer is on that server: so is its next context, and who joins it has the server asked.
fn is_on(scene: &mut Scene, server: ServerEpoch) {
    let (context, effects) = scene.arrive(NEWCOMER);
    assert!(effects.contains(&Effect::Dispatch { server, connection: context }), "{effects:?}");
    scene.finish(context);
    scene.pass(SETTLE * 2);
    let (joiner, effects) = scene.arrive(JOINER);
    assert!(effects.contains(&Effect::Dispatch { server, connection: joiner }));
    assert!(asked(&effects, &Request::Status).is_some(), "it is not alone there");
}

#[test]
fn a_process_that_two_servers_name_is_on_the_one_that_it_went_to_whichever_answers_first() {
    for is_first in [true, false] {
        let (mut scene, other) = moves_on();
        let silent = scene.server;
        let questions = taken_over(&mut scene);
        let mut censuses = vec![(silent, vec![CULPRIT, VICTIM, NEWCOMER]), (other, vec![NEWCOMER])];
        if is_first {
            censuses.reverse();
        }
        let mut watched = 0;
        for (server, clients) in censuses {
            watched += watches(&names(&mut scene, &questions, server, &clients), NEWCOMER);
            scene.feed(Input::IdentityKnown { pid: NEWCOMER.pid, identity: identity(NEWCOMER.pid, 0) });
            scene.feed(Input::CopiesHeld { process: key(NEWCOMER.pid, 0), descriptors: 2 });
        }
        assert_eq!(watched, 1, "it is one process");
        is_on(&mut scene, other);
    }
}

#[test]
fn copies_of_a_process_that_two_servers_name_are_held_and_closed_as_of_any_other() {
    let (mut scene, other) = moves_on();
    let lost = scene.server;
    scene.feed(Input::Evidence(Evidence::ServerStatus { server: lost }));
    let questions = taken_over(&mut scene);
    names(&mut scene, &questions, lost, &[CULPRIT, VICTIM, NEWCOMER]);
    scene.feed(Input::IdentityKnown { pid: NEWCOMER.pid, identity: identity(NEWCOMER.pid, 0) });
    scene.feed(Input::CopiesHeld { process: key(NEWCOMER.pid, 0), descriptors: 2 });
    // They were told of on account of the first server that named it, and are not told of again.
    names(&mut scene, &questions, other, &[NEWCOMER]);
    assert!(is_released(&scene.dies(NEWCOMER, End::Exited(0)), NEWCOMER));
}

#[test]
fn a_process_whose_handshake_was_under_way_is_on_that_server_whatever_the_one_that_it_left_says() {
    for is_late in [true, false] {
        let (mut scene, other) = moves_on();
        let questions = taken_over(&mut scene);
        let silent = scene.server;
        let connection = ConnectionId(900);
        if is_late {
            names(&mut scene, &questions, silent, &[CULPRIT, VICTIM, NEWCOMER]);
        }
        let watched = scene.core.restore_dispatched(scene.now, connection, NEWCOMER, identity(NEWCOMER.pid, 0), other);
        assert_eq!(watched.is_none(), is_late, "it is watched once");
        if !is_late {
            names(&mut scene, &questions, silent, &[CULPRIT, VICTIM, NEWCOMER]);
        }
        names(&mut scene, &questions, other, &[]);
        scene.finish(connection);
        is_on(&mut scene, other);
    }
}

#[test]
fn a_process_that_left_a_server_for_one_that_is_lost_by_now_is_not_sent_back() {
    let (mut scene, other) = moves_on();
    scene.feed(Input::Evidence(Evidence::ServerStatus { server: other }));
    let questions = taken_over(&mut scene);
    let silent = scene.server;
    names(&mut scene, &questions, other, &[NEWCOMER]);
    names(&mut scene, &questions, silent, &[CULPRIT, VICTIM, NEWCOMER]);
    let (context, effects) = scene.arrive(NEWCOMER);
    assert!(!is_dispatched(&effects, context), "the one says nothing, and the other has lost its clients");
    assert!(is_dispatched(&scene.serve(&effects, OTHER_SERVER + 1), context));
}
