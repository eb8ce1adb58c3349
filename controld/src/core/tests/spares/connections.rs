//! The connections of a spare copy: which of them are let in, to which server, and what they count for.

use super::*;
use remps_proto::mps::server::ClientContext;

#[test]
fn a_spare_copy_goes_to_the_server_of_its_grant_and_is_no_client_there() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    assert_eq!(scene.server_of(VICTIM), Some(scene.server));
    assert!(!scene.core.clients.are_on(standby));
    let picture = scene.core.picture(scene.now, DaemonFacts::blank(), Vec::new());
    let counts: Vec<usize> = picture.servers.iter().map(|server| server.clients).collect();
    assert_eq!(counts, [2, 0]);
    assert_eq!((picture.domains[0].clients, picture.clients.len()), (2, 2));
    let own = picture.clients.iter().find(|client| client.process.pid == VICTIM.pid).expect("it is a client");
    assert_eq!((own.contexts, own.server), (1, Some(SERVER)));
    let spare = own.spare.clone().expect("it has one");
    assert_eq!((spare.server, spare.ready, spare.behind), (Some(STANDBY), true, 0));
    assert_eq!(spare.connections, 2);
    // Its server calls it a client, and so do the answers.
    let effects = scene.command(&format!("get_client_list {STANDBY}"));
    let request = asked(&effects, &Request::Clients).expect("the server is asked");
    let effects = scene.feed(Input::Replied { request, reply: Ok(Reply::Clients(vec![VICTIM.pid, 4711])) });
    let lines = effects.iter().find_map(|effect| match effect {
        Effect::Answer { lines, .. } => Some(lines.clone()),
        _ => None,
    });
    assert_eq!(lines.expect("it is answered"), [VICTIM.pid.to_string(), "4711".to_owned()]);
    let effects = scene.command(&format!("ps -p {STANDBY}"));
    let request = asked(&effects, &Request::Snapshot).expect("the server is asked");
    let context = |pid| ClientContext { pid, context: 1, reserved: 0, device: Default::default(), id: 1 };
    let reply = Ok(Reply::Snapshot(vec![context(VICTIM.pid), context(4711)]));
    let effects = scene.feed(Input::Replied { request, reply });
    let pids = effects.iter().find_map(|effect| match effect {
        Effect::AnswerPs { rows, .. } => Some(rows.iter().map(|PsRow(row)| row.pid).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(pids.expect("it is answered"), [VICTIM.pid, 4711]);
}

#[test]
fn a_token_opens_nothing_to_another_process_or_without_a_grant() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    for (peer, token) in
        [(CULPRIT, TOKEN), (NEWCOMER, TOKEN), (VICTIM, TOKEN + 1), (Peer { uid: 1001, ..VICTIM }, TOKEN)]
    {
        let (connection, effects) = scene.spare_comes(peer, token);
        assert!(effects.contains(&Effect::Close { connection }), "{peer:?} {token:x}");
        assert!(!is_dispatched(&effects, connection));
    }
    // The pid of the grant's process, used again.
    let (connection, peer) = (scene.new_connection(), VICTIM);
    let identity = identity(VICTIM.pid, 1);
    let effects = scene.feed(Input::SpareArrived { connection, peer, identity, token: TOKEN, entrance: None });
    assert!(effects.contains(&Effect::Close { connection }));
    scene.spare_stands(VICTIM, TOKEN, standby);
    assert_eq!(scene.core.clients.iter().count(), 0);
}

#[test]
fn who_comes_to_the_server_of_his_spare_copy_by_himself_has_none_there() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    scene.memory_fault();
    let (connection, effects) = scene.arrive(VICTIM);
    assert!(effects.contains(&Effect::Dispatch { server: standby, connection }), "the cold way: {effects:?}");
    assert!(is_void(&effects, VICTIM, TOKEN));
    assert_eq!(ended(&effects), Some(SpareEnd::Moved));
    assert!(scene.core.clients.guests().get(standby, VICTIM.pid).is_none(), "it is a client there");
}

#[test]
fn a_spare_copy_has_no_more_connections_than_it_needs_and_waits_with_them_for_a_busy_server() {
    let mut policy = Policy::default();
    policy.constants.max_handshakes = 1;
    let mut scene = Scene::unsettled(policy);
    let standby = scene.has_place(VICTIM, TOKEN);
    let (first, _) = scene.spare_comes(VICTIM, TOKEN);
    let mut waiting = Vec::new();
    for _ in 0..40 {
        let (connection, effects) = scene.spare_comes(VICTIM, TOKEN);
        assert!(!is_dispatched(&effects, connection));
        waiting.extend((!effects.contains(&Effect::Close { connection })).then_some(connection));
    }
    assert_eq!(waiting.len(), 1, "its own connection and one for a context");
    scene.feed(Input::ServerGreeted { connection: first });
    let effects = scene.feed(Input::ClientDone { connection: first, status: Some(0) });
    assert!(effects.contains(&Effect::Dispatch { server: standby, connection: waiting[0] }));
    assert_eq!(scene.core.waiting(), 0, "nobody counts them");
    scene.finish(waiting[0]);
    let (another, effects) = scene.spare_comes(VICTIM, TOKEN);
    assert!(effects.contains(&Effect::Close { connection: another }));
}
