//! Who may do and see what.

use super::*;
use remps_proto::mps::device::DeviceUuid;
use remps_proto::mps::server::ClientContext;

#[test]
fn only_the_owner_root_and_the_servers_user_may_change_anything() {
    let mut story = Story::new(Policy { owner: 500, ..Policy::default() });
    let (_, effects) = story.arrive(USER);
    story.serve(&effects, 501);
    let refused = "Insufficient privileges for UID 1001. Control deamon settings can only be modified by the user who \
                   started it or by the root user.";
    for command in [
        "set_default_active_thread_percentage 5",
        "set_default_client_priority 1",
        "set_default_device_pinned_mem_limit 0 1G",
        "set_active_thread_percentage 501 5",
        "set_device_pinned_mem_limit 501 0 1G",
    ] {
        assert_eq!(story.answer(OTHER, command), [refused], "{command}");
    }
    for command in ["shutdown_server 501", "shutdown_server 501 -f"] {
        assert!(story.answer(OTHER, command)[0].starts_with("Insufficient privileges for UID 1001"), "{command}");
    }
    assert_eq!(story.answer(OTHER, "terminate_client 501 10"), [refused, "800"]);
    assert_eq!(story.answer(OTHER, "quit"), ["Not enough privilege to execute quit command"]);
    assert!(story.answer(OTHER, "start_server -uid 1000")[0].starts_with("Insufficient privileges for UID 1001"));
    assert_eq!(story.answer(OTHER, "get_default_active_thread_percentage"), ["100.0"]);
    assert_eq!(story.answer(USER, "shutdown_server 501"), Vec::<String>::new(), "its own server");
    assert_eq!(story.answer(Peer { uid: 500, ..OTHER }, "set_default_active_thread_percentage 50"), ["50.0"]);
}

#[test]
fn roots_number_alone_owns_nothing() {
    let mut story = Story::new(Policy { owner: 500, ..Policy::default() });
    let (_, effects) = story.arrive(USER);
    story.serve(&effects, 501);
    for (uid, rights) in [(0, from_pod(4)), (500, from_pod(4)), (0, Rights { privileged: true, ..Rights::default() })] {
        let rights = Rights { privileged: false, ..rights };
        let stranger = Peer { uid, ..ROOT };
        for command in [
            "quit",
            "quit -t 1",
            "set_default_active_thread_percentage 5",
            "set_default_device_pinned_mem_limit 0 1G",
            "set_default_client_priority 1",
            "start_server -uid 1000",
            "set_active_thread_percentage 501 5",
            "shutdown_server 501 -f",
            "terminate_client 501 10",
        ] {
            let answer = answer(&story.command_from(stranger, rights.clone(), command)).expect("at once");
            let refused = answer.first().is_some_and(|line| line.to_lowercase().contains("privilege"));
            assert!(refused, "{uid}: {command}: {answer:?}");
        }
        let answer = story.command_from(stranger, rights, "get_default_active_thread_percentage");
        assert_eq!(self::answer(&answer), Some(vec!["100.0".to_owned()]), "what everybody may ask");
    }
    assert_eq!(story.core.servers().count(), 1);
}

#[test]
fn a_user_of_a_container_changes_what_is_of_his_container_and_nothing_else() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (server, _) = story.serve(&effects, 501);
    story.knows(USER, &from_pod(4));
    let (own, other) = (from_pod(4), from_pod(5));
    let is_refused = |effects: &[Effect]| {
        answer(effects).is_some_and(|lines| lines.first().is_some_and(|line| line.contains("Insufficient privileges")))
    };
    let limit = "set_active_thread_percentage 501 5";
    assert!(is_refused(&story.command_from(USER, other.clone(), limit)), "the same number in another container");
    assert!(is_refused(&story.command_from(USER, other.clone(), "terminate_client 501 10")));
    assert!(!is_refused(&story.command_from(USER, own.clone(), limit)), "it serves his container alone");
    assert!(!is_refused(&story.command_from(USER, own.clone(), "terminate_client 501 10")));
    // Another container joins.
    let neighbour = Peer { pid: 31, ..USER };
    let (_, effects) = story.arrive(neighbour);
    assert_eq!(dispatched(&effects).first().map(|(server, _)| *server), Some(server));
    assert!(is_refused(&story.command_from(USER, own.clone(), limit)), "nothing is known of the newcomer");
    story.knows(neighbour, &other);
    for rights in [own.clone(), other.clone()] {
        assert!(is_refused(&story.command_from(USER, rights.clone(), limit)), "it serves both");
        assert!(is_refused(&story.command_from(USER, rights, "shutdown_server 501")));
    }
    assert!(!is_refused(&story.command_from(USER, other, "terminate_client 501 31")), "his own client");
    assert!(is_refused(&story.command_from(USER, own, "terminate_client 501 31")), "the neighbour's");
    // Root of a container ends what is in it, of whatever user, as it could with a signal.
    let (own, other) = (from_pod(4), from_pod(5));
    assert!(is_refused(&story.command_from(ROOT, own.clone(), "terminate_client 501 31")));
    assert!(is_refused(&story.command_from(ROOT, own, limit)), "the server is another user's");
    assert!(!is_refused(&story.command_from(ROOT, other, "terminate_client 501 31")));
    let elsewhere = Rights { privileged: false, ..Rights::beside_the_daemon() };
    assert!(is_refused(&story.command_from(ROOT, elsewhere, "terminate_client 501 31")), "by the open socket");
    // Beside the daemon a user reaches every process of his, as with signals.
    assert!(!is_refused(&story.command(USER, "terminate_client 501 31")));
    assert!(!is_refused(&story.command(USER, limit)));
}

#[test]
fn a_client_is_ended_by_its_pid_by_whom_terminate_client_obeys_and_another_users_is_not_there() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    story.serve(&effects, 501);
    story.knows(USER, &from_pod(4));
    let line = format!("client terminate {}", USER.pid);
    let failure = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::AnswerFailure { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    };
    let not_found = Some(vec![format!("Client {} not found", USER.pid)]);
    assert_eq!(failure(&story.command(OTHER, &line)), not_found, "another user's");
    assert_eq!(failure(&story.command(ROOT, "client terminate 4294967295")).map(|lines| lines.len()), Some(1));
    // The same user's number in another container sees it in no list that it could end it from.
    let refused = answer(&story.command_from(USER, from_pod(5), &line)).expect("at once");
    assert!(refused[0].contains("Insufficient privileges"), "{refused:?}");
    for (asker, rights) in [(USER, from_pod(4)), (ROOT, Rights::beside_the_daemon())] {
        let effects = story.command_from(asker, rights, &line);
        let request = asked(&effects, &Request::Clients).expect("its server is asked whether it has it");
        let effects = story.feed(Input::Replied { request, reply: Ok(Reply::Clients(vec![USER.pid])) });
        assert!(asked(&effects, &Request::TerminateClient(USER.pid)).is_some(), "{effects:?}");
    }
}

#[test]
fn ps_shows_a_user_his_own_clients_and_root_everybodys() {
    for (sharing, asker, shown) in [
        (Sharing::PerUser, ROOT, &[USER.pid, OTHER.pid][..]),
        (Sharing::PerUser, USER, &[USER.pid]),
        (Sharing::MultiUser, ROOT, &[USER.pid, OTHER.pid]),
        (Sharing::MultiUser, USER, &[USER.pid]),
    ] {
        let mut story = Story::new(Policy { sharing, ..Policy::default() });
        let (_, effects) = story.arrive(USER);
        story.serve(&effects, 501);
        // A client on a server, and one that waits.
        story.arrive(OTHER);
        let effects = story.command(asker, "ps");
        let request = asked(&effects, &Request::Snapshot).expect("the clients are asked for");
        let context = |pid| ClientContext { pid, context: 1, reserved: 0, device: DeviceUuid::default(), id: 1 };
        let on_server = if sharing == Sharing::MultiUser { vec![USER.pid, OTHER.pid] } else { vec![USER.pid] };
        let contexts = on_server.into_iter().map(context).collect();
        let effects = story.feed(Input::Replied { request, reply: Ok(Reply::Snapshot(contexts)) });
        let mut rows: Vec<Pid> = effects
            .iter()
            .find_map(|effect| match effect {
                Effect::AnswerPs { rows, .. } => Some(rows.iter().map(|row| row.0.pid).collect()),
                _ => None,
            })
            .expect("it is answered");
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows, shown, "{sharing:?} {asker:?}");
    }
}
