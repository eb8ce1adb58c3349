//! What operators' commands are answered, and how servers and the daemon end by them.

use super::*;
use remps_proto::mps::device::DeviceUuid;
use remps_proto::mps::server::ClientContext;

#[test]
fn forced_shutdown_then_quit_ends_within_the_grace_time() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (server, _) = story.serve(&effects, 501);
    let effects = story.command(ROOT, "shutdown_server 501 -f");
    assert!(effects.contains(&Effect::Signal { server, signal: ServerSignal::Interrupt }));
    story.command(ROOT, "quit");
    let effects = story.pass(Policy::default().kill_timeout);
    assert!(effects.contains(&Effect::Signal { server, signal: ServerSignal::Kill }));
    let effects = story.feed(Input::ServerExited { server, cause: ExitCause::Signaled(9) });
    assert!(effects.contains(&Effect::Exit { status: 0 }));
}

#[test]
fn sigterm_drains_and_a_second_one_forces() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (server, _) = story.serve(&effects, 501);
    let effects = story.feed(Input::Terminate);
    assert!(asked(&effects, &Request::Shutdown).is_some());
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Signal { .. })));
    let effects = story.feed(Input::Terminate);
    assert!(effects.contains(&Effect::Signal { server, signal: ServerSignal::Interrupt }));
}

#[test]
fn quits_status_is_the_servers() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (server, _) = story.serve(&effects, 501);
    story.command(ROOT, "quit -t 1");
    let effects = story.feed(Input::ServerExited { server, cause: ExitCause::Exited(8) });
    assert!(effects.contains(&Effect::Exit { status: 8 }));
}

#[test]
fn a_command_for_a_starting_server_waits_a_little() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (server, _) = effects.iter().find_map(spawned).expect("a start");
    story.feed(Input::ServerSpawned { server, pid: 501 });
    assert_eq!(story.answer(ROOT, "get_server_status 501"), ["INITIALIZING"]);
    assert_eq!(answer(&story.command(ROOT, "get_client_list 501")), None);
    let effects = story.pass(Constants::default().command_patience);
    assert_eq!(answer(&effects), Some(vec![]), "the vendor's empty answer");
    assert_eq!(answer(&story.command(ROOT, "get_client_list 501")), None);
    let effects = story.feed(Input::ServerHello { connection: ConnectionId(1), peer: Peer { pid: 501, ..USER } });
    assert!(asked(&effects, &Request::Clients).is_some(), "asked as soon as it is ready");
}

#[test]
fn ps_tells_the_programs_that_are_known_and_leaves_the_others_to_be_read() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    story.serve(&effects, 501);
    let known = Peer { pid: 31, ..USER };
    story.arrive(known);
    let identity = Identity { program: "/usr/bin/train".to_owned(), ..Identity::clone(&identity(known.pid, 0)) };
    story.feed(Input::IdentityKnown { pid: known.pid, identity: Arc::new(identity) });
    let effects = story.command(ROOT, "ps");
    let request = asked(&effects, &Request::Snapshot).expect("the clients are asked for");
    let context =
        |peer: Peer| ClientContext { pid: peer.pid, context: 1, reserved: 0, device: DeviceUuid::default(), id: 1 };
    let reply = Ok(Reply::Snapshot(vec![context(USER), context(known)]));
    let effects = story.feed(Input::Replied { request, reply });
    let rows = effects.iter().find_map(|effect| match effect {
        Effect::AnswerPs { rows, .. } => Some(rows.iter().map(|row| (row.0.pid, row.0.command.as_str())).collect()),
        _ => None,
    });
    assert_eq!(rows, Some(vec![(USER.pid, ""), (known.pid, "/usr/bin/train")]));
}

#[test]
fn terminating_a_process_that_is_no_client_is_answered_in_the_vendors_words() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    story.serve(&effects, 501);
    let effects = story.command(ROOT, "terminate_client 501 99999");
    let id = asked(&effects, &Request::Clients).expect("the server knows its clients");
    let effects = story.feed(Input::Replied { request: id, reply: Ok(Reply::Clients(vec![10])) });
    assert_eq!(answer(&effects).expect("answered"), ["Invalid process 99999!", "1"]);
    let effects = story.command(ROOT, "terminate_client 501 10");
    let id = asked(&effects, &Request::Clients).expect("the server knows its clients");
    let effects = story.feed(Input::Replied { request: id, reply: Ok(Reply::Clients(vec![10])) });
    let id = asked(&effects, &Request::TerminateClient(10)).expect("it is one");
    let effects = story.feed(Input::Replied { request: id, reply: Ok(Reply::Terminated(0)) });
    assert_eq!(answer(&effects).expect("answered"), ["0"]);
}
