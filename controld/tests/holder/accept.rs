//! Connections: accepted while a daemon is attached, waiting while none is, never known to a daemon alone.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::PollFlags;
use nix::sys::socket::{getsockopt, sockopt};
use remps_controld::parts::holder::{FIRST_HOLDER_KEY, FromHolder, HolderLink, Kind};

use crate::lab::{
    A_WHILE, DEADLINE, Lab, dial, eventually, listener, of, open_descriptors, pair, read, rests, settle, shows, trials,
};

trials![
    a_newcomer_is_greeted_and_told_with_its_listener,
    newcomers_wait_while_there_is_no_daemon_and_are_served_then,
    a_connection_that_a_dead_daemon_never_heard_of_is_found,
    a_connection_ends_when_it_is_released_and_closed,
    a_daemon_that_does_not_listen_costs_nobody_a_connection,
    newcomers_wait_while_descriptors_have_run_out,
    a_released_listener_accepts_no_more,
];

const GREETING: &[u8] = b"OUTBHELL\0";

async fn accepted(link: &mut HolderLink) -> (u64, bool, OwnedFd) {
    match link.next().await.unwrap() {
        FromHolder::Accepted { key, privileged, fd } => (key, privileged, fd),
        other @ (FromHolder::Failed { .. } | FromHolder::Passed { .. }) => panic!("{other:?}"),
    }
}

fn hold_listener(link: &HolderLink, lab: &Lab, key: u64, kind: Kind, name: &str) {
    link.hold(key, kind, b"", &[listener(&lab.path(name)).as_fd()]).unwrap();
}

async fn a_newcomer_is_greeted_and_told_with_its_listener(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    hold_listener(&link, lab, 1, Kind::LISTENER_PUBLIC, "control");
    hold_listener(&link, lab, 2, Kind::LISTENER_PRIVILEGED, "control_privileged");
    let mut keys = BTreeSet::new();
    for (name, expected) in [("control", false), ("control_privileged", true), ("control", false)] {
        let client = dial(&lab.path(name)).unwrap();
        assert_eq!(read(&client), GREETING);
        let (key, privileged, fd) = accepted(&mut link).await;
        assert_eq!(privileged, expected);
        assert!(key >= FIRST_HOLDER_KEY && keys.insert(key));
        assert_eq!(getsockopt(&fd, sockopt::PassCred), Ok(true));
        nix::unistd::write(&client, b"to the daemon").unwrap();
        assert_eq!(read(&fd), b"to the daemon");
    }
}

async fn newcomers_wait_while_there_is_no_daemon_and_are_served_then(lab: &Lab) {
    let daemon = lab.daemon(&["attach", "listen 1 control", "listen 2 control_privileged"]);
    let first = dial(&lab.path("control_privileged")).unwrap();
    assert_eq!(read(&first), GREETING);
    daemon.kill_9();

    // What the first says meanwhile waits too, and so does everybody who comes now.
    nix::unistd::write(&first, b"said to nobody").unwrap();
    let waiting: Vec<OwnedFd> = (0..50).map(|_| dial(&lab.path("control")).unwrap()).collect();
    assert!(!shows(waiting[0].as_fd(), PollFlags::POLLIN | PollFlags::POLLHUP, A_WHILE));

    let (mut link, held) = lab.attach().await;
    let old = held.iter().find(|held| held.kind == Kind::CONNECTION).unwrap();
    assert!(old.privileged && old.key >= FIRST_HOLDER_KEY && old.state.is_empty());
    assert_eq!(read(&old.fds[0]), b"said to nobody");
    let mut keys = BTreeSet::from([old.key]);
    for client in &waiting {
        assert!(keys.insert(accepted(&mut link).await.0), "a key is given twice");
        assert_eq!(read(client), GREETING);
    }
}

async fn a_connection_that_a_dead_daemon_never_heard_of_is_found(lab: &Lab) {
    // The daemon does not ask for news before it is killed.
    let daemon = lab.daemon(&["attach", "listen 1 control"]);
    let client = dial(&lab.path("control")).unwrap();
    assert_eq!(read(&client), GREETING);
    daemon.kill_9();
    let (link, held) = lab.attach().await;
    let key = held.iter().find(|held| held.kind == Kind::CONNECTION).unwrap().key;
    assert_eq!(of(&held, key).fds.len(), 1);

    // It becomes a server's, keeps its key, and is still known by where it came from.
    link.hold(key, Kind::SERVER_CONNECTION, b"ready", &[of(&held, key).fds[0].as_fd()]).unwrap();
    drop((link, held));
    let (_link, held) = lab.attach().await;
    let server = of(&held, key);
    assert_eq!((server.kind, &server.state[..], server.privileged), (Kind::SERVER_CONNECTION, &b"ready"[..], false));
    nix::unistd::write(&server.fds[0], b"hello").unwrap();
    assert_eq!(read(&client), b"hello");
}

async fn a_connection_ends_when_it_is_released_and_closed(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    hold_listener(&link, lab, 1, Kind::LISTENER_PUBLIC, "control");
    let client = dial(&lab.path("control")).unwrap();
    let (key, _, fd) = accepted(&mut link).await;
    drop(fd);
    assert!(!shows(client.as_fd(), PollFlags::POLLHUP, A_WHILE), "the holder keeps it");
    link.release(key).unwrap();
    assert!(shows(client.as_fd(), PollFlags::POLLHUP, DEADLINE));
}

async fn a_daemon_that_does_not_listen_costs_nobody_a_connection(lab: &Lab) {
    /// More than the holder's socket to the daemon takes.
    const CLIENTS: usize = 1000;
    let (mut link, _) = lab.attach().await;
    hold_listener(&link, lab, 1, Kind::LISTENER_PUBLIC, "control");
    settle(&mut link).await;
    let clients: Vec<OwnedFd> = (0..CLIENTS).map(|_| dial(&lab.path("control")).unwrap()).collect();
    let last = clients.last().unwrap();
    assert!(!shows(last.as_fd(), PollFlags::POLLIN, A_WHILE), "it is not accepted before it can be told");

    // It waits without turning round in circles.
    rests(link.pid());
    assert!(!shows(last.as_fd(), PollFlags::POLLIN, std::time::Duration::ZERO));

    let mut told = BTreeSet::new();
    for client in &clients {
        let (key, _, fd) = accepted(&mut link).await;
        assert!(told.insert(key));
        assert_eq!(read(client), GREETING);
        link.release(key).unwrap();
        drop(fd);
    }
}

async fn newcomers_wait_while_descriptors_have_run_out(lab: &Lab) {
    /// Open descriptors that the holder may have.
    const LIMIT: &str = "24";
    const CLIENTS: usize = 40;
    lab.daemon(&[&format!("limit {LIMIT}"), "attach", "listen 1 control"]).kill_9();
    let (mut link, _) = lab.attach().await;
    let holder = link.pid();
    let clients: Vec<OwnedFd> = (0..CLIENTS).map(|_| dial(&lab.path("control")).unwrap()).collect();
    eventually("descriptors run out", || open_descriptors(holder) >= 24);

    // One that is to be held meanwhile cannot be, and that is said; nothing is left open by it.
    let (here, there) = pair();
    let mut served = BTreeSet::new();
    link.hold(5, Kind::CLIENT_END, b"", &[there.as_fd()]).unwrap();
    drop(there);
    let failed = loop {
        match link.next().await.unwrap() {
            FromHolder::Accepted { key, .. } => served.insert(key),
            FromHolder::Failed { key, reason } => break (key, reason),
            FromHolder::Passed { number } => panic!("nobody asked for {number}"),
        };
    };
    assert_eq!(failed, (5, remps_controld::parts::holder::Failure::DESCRIPTORS));
    assert!(shows(here.as_fd(), PollFlags::POLLHUP, DEADLINE));

    // Each that is served makes room for one that waits.
    let mut open = served.clone();
    while served.len() < CLIENTS {
        while let Some(key) = open.pop_first() {
            link.release(key).unwrap();
        }
        let (key, _, _) = accepted(&mut link).await;
        assert!(served.insert(key) && open.insert(key));
    }
    assert!(clients.iter().all(|client| read(client) == GREETING));
    drop(link);
    let (link, _) = lab.attach().await;
    assert!(link.attach_done().accept_pauses >= 1);
}

async fn a_released_listener_accepts_no_more(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    hold_listener(&link, lab, 1, Kind::LISTENER_PUBLIC, "control");
    settle(&mut link).await;
    link.release(1).unwrap();
    settle(&mut link).await;
    assert_eq!(dial(&lab.path("control")).unwrap_err(), nix::errno::Errno::ECONNREFUSED);
}
