//! Servers that stay for those whom their fault has left alone, and who goes there.

use super::*;

#[test]
fn a_newcomer_for_a_sound_gpu_goes_to_the_same_server_when_that_says_it_takes_some() {
    let mut scene = default_scene();
    let (old, second) = (scene.server, uuid(1).to_string());
    let effects = memory_fault_on(&mut scene, 0);
    assert!(scene.core.must_know_clients(), "what a newcomer sees matters from now on");
    let new = spawned(&effects).expect("another server");
    scene.serve(&effects, SERVER + 1);
    let to = |effects: &[Effect], server, connection| {
        effects.contains(&Effect::Dispatch { server, connection: ConnectionId(connection) })
    };
    assert!(to(&arrive(&mut scene, 800, 20, Some(&second)), new, 800), "it refuses everybody still");
    scene.finish(ConnectionId(800));
    assert!(!to(&recovers(&mut scene, false), old, 800));
    scene.dies(CULPRIT, End::Exited(1));
    let effects = scene.pass(Duration::from_secs(5));
    let status = effects.iter().filter_map(|effect| match effect {
        Effect::Ask { server, id, request: Request::Status } if *server == old => Some(*id),
        _ => None,
    });
    for request in status.collect::<Vec<_>>() {
        scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
    }
    for (number, visible) in [(801, Some(second.as_str())), (802, Some("1"))] {
        arrive(&mut scene, number, 30 + u32::try_from(number).unwrap(), visible);
        let effects = scene.settle();
        assert!(to(&effects, old, number), "{visible:?}: {effects:?}");
        scene.finish(ConnectionId(number));
    }
    let first = uuid(0).to_string();
    for (number, visible) in [(810, None), (811, Some(first.as_str())), (812, Some("0,1")), (813, Some("x"))] {
        let mut effects = arrive(&mut scene, number, 40 + u32::try_from(number).unwrap(), visible);
        effects.extend(scene.pass(SETTLE));
        if let Some(request) = asked(&effects, &Request::Status) {
            effects.extend(scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) }));
        }
        assert!(to(&effects, new, number), "{visible:?}: {effects:?}");
        scene.finish(ConnectionId(number));
    }
}

#[test]
fn another_context_of_one_that_was_left_alone_waits_until_the_server_takes_it_but_not_for_ever() {
    for is_sound in [true, false] {
        let mut scene = default_scene();
        let effects = memory_fault_on(&mut scene, 0);
        scene.serve(&effects, SERVER + 1);
        let (context, effects) = scene.arrive(VICTIM);
        assert!(!is_dispatched(&effects, context), "it would be refused");
        let effects = if is_sound { recovers(&mut scene, true) } else { scene.pass(PATIENCE) };
        let own = Effect::Dispatch { server: scene.server, connection: context };
        assert!(effects.contains(&own), "and nobody else could have it: {effects:?}");
    }
}

#[test]
fn a_successor_keeps_a_server_for_those_whom_its_fault_has_left_alone() {
    let mut scene = default_scene();
    memory_fault_on(&mut scene, 0);
    let saved = scene.core.saved();
    let alive: Vec<_> = saved.servers.iter().filter(|server| server.ready).cloned().collect();
    let (core, effects) = Core::restored(scene.now, Policy::default(), &saved, &alive);
    scene.core = core;
    let request = asked(&effects, &Request::Clients).expect("who is there?");
    assert!(!is_told_to_end(&scene.pass(PATIENCE), scene.server), "nobody knows yet");
    scene.feed(Input::Replied { request, reply: Ok(Reply::Clients(vec![CULPRIT.pid, VICTIM.pid])) });
    for pid in [CULPRIT.pid, VICTIM.pid] {
        scene.feed(Input::IdentityKnown { pid, identity: identity(pid, 0) });
    }
    scene.dies(CULPRIT, End::Exited(1));
    for _ in 0..3 {
        assert!(!is_told_to_end(&scene.pass(PATIENCE), scene.server));
    }
    assert!(is_told_to_end(&scene.dies(VICTIM, End::Exited(0)), scene.server));
}

/// A successor takes a server for idle until that has named its clients.
#[test]
fn a_server_that_was_to_make_room_before_it_named_its_clients_stays_for_those_who_are_left_alone() {
    let mut scene = default_scene();
    let saved = scene.core.saved();
    let alive: Vec<_> = saved.servers.iter().filter(|server| server.ready).cloned().collect();
    let (core, effects) = Core::restored(scene.now, Policy::default(), &saved, &alive);
    scene.core = core;
    let census = asked(&effects, &Request::Clients).expect("who is there?");
    let effects = scene.feed(Input::GpusFound(places()));
    let request = asked(&effects, &Request::QueryDevices).expect("what are its numbers?");
    scene.feed(Input::Replied { request, reply: Ok(Reply::Devices(records())) });
    let (connection, peer) = (ConnectionId(900), Peer { pid: 20, uid: 1001, gid: 1001 });
    let effects = scene.feed(Input::ClientArrived { connection, peer, identity: identity(20, 0), entrance: None });
    let server = spawned(&effects).expect("another user needs one");
    let effects = scene.feed(Input::SpawnFailed { server, reason: "EXCLUSIVE_PROCESS".to_owned() });
    let request = asked(&effects, &Request::Shutdown).expect("it seems to have nobody");
    scene.feed(Input::Replied { request: census, reply: Ok(Reply::Clients(vec![CULPRIT.pid, VICTIM.pid])) });
    for pid in [CULPRIT.pid, VICTIM.pid] {
        scene.feed(Input::IdentityKnown { pid, identity: identity(pid, 0) });
    }
    let effects = memory_fault_on(&mut scene, 0);
    goes_on(&mut scene, &effects);
    scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(4)) });
    // Nobody has counted how many contexts they have, but the server knows.
    let effects = scene.pass(Duration::from_millis(100));
    goes_on(&mut scene, &effects);
    scene.answer_status(&effects, false);
    scene.dies(CULPRIT, End::Exited(1));
    names(&mut scene, &[(VICTIM.pid, 1, 1)]);
    for _ in 0..3 {
        assert!(!is_told_to_end(&scene.pass(PATIENCE), scene.server));
    }
}

#[test]
fn a_replacement_that_cannot_start_does_not_cost_those_who_were_left_alone_their_server() {
    let mut scene = default_scene();
    let server = spawned(&memory_fault_on(&mut scene, 0)).expect("a replacement");
    let effects = scene.feed(Input::SpawnFailed { server, reason: "EXCLUSIVE_PROCESS".to_owned() });
    assert!(!is_told_to_end(&effects, scene.server));
}

/// A server's word that comes late is of the time at which it was asked for.
#[test]
fn a_word_that_was_asked_for_before_a_newcomer_came_does_not_let_it_join_a_server_that_has_met_a_fault() {
    let mut scene = default_scene();
    let (old, second) = (scene.server, uuid(1).to_string());
    let effects = memory_fault_on(&mut scene, 0);
    let new = spawned(&effects).expect("another server");
    scene.feed(Input::SpawnFailed { server: new, reason: "it is not wanted".to_owned() });
    scene.dies(CULPRIT, End::Exited(1));
    let effects = scene.pass(Duration::from_secs(5));
    let question = |effects: &[Effect]| {
        effects.iter().rev().find_map(|effect| match effect {
            Effect::Ask { server, id, request: Request::Status } if *server == old => Some(*id),
            _ => None,
        })
    };
    let request = question(&effects).expect("it is asked whether it has got over it");
    scene.pass(Duration::from_secs(1));
    arrive(&mut scene, 800, 20, Some(&second));
    let to_old = Effect::Dispatch { server: old, connection: ConnectionId(800) };
    scene.pass(SETTLE);
    let effects = scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
    assert!(!effects.contains(&to_old), "{effects:?}");
    let request = question(&effects).unwrap_or_else(|| panic!("it is asked once more: {effects:?}"));
    let effects = scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
    assert!(effects.contains(&to_old), "{effects:?}");
}
