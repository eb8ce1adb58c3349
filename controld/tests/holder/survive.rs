//! What a successor finds when its predecessor was killed at any point.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::PollFlags;
use remps_controld::parts::holder::{FIRST_HOLDER_KEY, Failure, FromHolder, Held, HolderError, HolderLink, Kind};

use crate::lab::{A_WHILE, Lab, of, pair, read, settle, shows, trials};

trials![
    a_daemon_killed_after_any_step_leaves_exactly_what_it_held,
    requests_that_were_sent_survive_their_sender,
    a_barrier_is_passed_behind_the_failures_of_what_came_before,
    a_successor_killed_while_it_takes_over_harms_nothing,
    what_is_held_stays_over_many_daemons,
    a_second_daemon_is_refused_while_the_first_lives,
    a_successor_that_comes_a_moment_early_is_let_in,
    a_killed_holder_is_noticed_and_replaced,
    a_holder_leaves_when_told,
    a_stopped_holder_is_killed_when_it_must_leave,
    a_stale_socket_is_replaced,
    a_pipe_directory_too_long_for_a_socket_address_works,
];

/// What must be held after each order: the key, its kind and its state.
type Model = BTreeMap<u64, (Kind, &'static str)>;

const ORDERS: &[&str] = &[
    "attach",
    "listen 1 control",
    "listen 2 control_privileged",
    "fifo 3",
    "connection 10 starting",
    "update 10 ready",
    "state 7 defaults",
    "connection 20 starting",
    "release 20",
    "release 21",
    "update 7 other",
    "state 7 again",
    "update 999 nobody",
    "release 999",
];

fn after(orders: &[&'static str]) -> Model {
    let mut model = Model::new();
    for order in orders {
        let words: Vec<&'static str> = order.split(' ').collect();
        let key = || words[1].parse::<u64>().unwrap();
        match words[0] {
            "listen" if words[2] == "control" => drop(model.insert(key(), (Kind::LISTENER_PUBLIC, ""))),
            "listen" => drop(model.insert(key(), (Kind::LISTENER_PRIVILEGED, ""))),
            "fifo" => drop(model.insert(key(), (Kind::LOG_FIFO, ""))),
            "connection" => {
                model.insert(key(), (Kind::SERVER_CONNECTION, words[2]));
                model.insert(key() + 1, (Kind::CLIENT_END, "peer"));
            }
            "state" => drop(model.insert(key(), (Kind::STATE, words[2]))),
            "update" => {
                if let Some(entry) = model.get_mut(&key()) {
                    entry.1 = words[2];
                }
            }
            "release" => drop(model.remove(&key())),
            "attach" => {}
            other => panic!("{other}"),
        }
    }
    model
}

fn found(held: &[Held]) -> BTreeMap<u64, (Kind, &str)> {
    held.iter().map(|held| (held.key, (held.kind, std::str::from_utf8(&held.state).unwrap()))).collect()
}

/// Whether two ends still reach each other.
fn connected(one: &OwnedFd, other: &OwnedFd) {
    nix::unistd::write(one, b"still here").unwrap();
    assert_eq!(read(other), b"still here");
}

async fn a_daemon_killed_after_any_step_leaves_exactly_what_it_held(_: &Lab) {
    for steps in 1..=ORDERS.len() {
        let orders = &ORDERS[..steps];
        let lab = Lab::fresh();
        lab.daemon(orders).kill_9();
        let (link, held) = lab.attach().await;
        assert_eq!(found(&held), after(orders), "after {orders:?}");
        for held_one in &held {
            assert_eq!(held_one.fds.len(), usize::from(held_one.kind != Kind::STATE), "{held_one:?}");
        }
        if steps > 4 {
            connected(&of(&held, 10).fds[0], &of(&held, 11).fds[0]);
        }
        if steps == 8 {
            connected(&of(&held, 21).fds[0], &of(&held, 20).fds[0]);
        }
        drop(link);
    }
}

async fn requests_that_were_sent_survive_their_sender(lab: &Lab) {
    let (link, _) = lab.attach().await;
    let (here, there) = pair();
    // As many as the socket takes while the holder is stopped, then the daemon is gone before it runs again.
    nix::sys::signal::kill(link.pid(), nix::sys::signal::Signal::SIGSTOP).unwrap();
    let mut sent = 0;
    let refused = loop {
        match link.hold(sent, Kind::CLIENT_END, &sent.to_le_bytes(), &[there.as_fd()]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, HolderError::Full), "{refused}");
    let pid = link.pid();
    drop((link, there));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();

    let (_link, held) = lab.attach().await;
    assert!(sent > 10);
    assert_eq!(held.iter().map(|held| held.key).collect::<Vec<_>>(), (0..sent).collect::<Vec<_>>());
    assert!(held.iter().all(|held| held.state == held.key.to_le_bytes()));
    connected(&here, &of(&held, sent - 1).fds[0]);
}

async fn a_barrier_is_passed_behind_the_failures_of_what_came_before(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    // What daemons before barriers ask instead: no holder keeps a log that it has not read itself.
    link.hold(7, Kind::LOG_BACKLOG, b"", &[]).unwrap();
    link.barrier(u64::MAX).unwrap();
    let refused = link.next().await.unwrap();
    assert!(matches!(refused, FromHolder::Failed { key: 7, reason: Failure::WRONG_DESCRIPTORS }), "{refused:?}");
    let passed = link.next().await.unwrap();
    assert!(matches!(passed, FromHolder::Passed { number: u64::MAX }), "{passed:?}");
}

async fn a_successor_killed_while_it_takes_over_harms_nothing(lab: &Lab) {
    /// More than the socket takes at once, so that the holder waits in the middle.
    const ENTRIES: u64 = 600;
    let (mut link, _) = lab.attach().await;
    let (here, there) = pair();
    for key in 0..ENTRIES {
        link.hold(key, Kind::CLIENT_END, &[5; 1000], &[there.as_fd()]).unwrap();
        settle(&mut link).await;
    }
    drop((link, there));
    for read_before_end in [0, 1, 50, 0] {
        let successor = lab.raw_attach().unwrap();
        for _ in 0..read_before_end {
            read(&successor);
        }
    }
    let (_link, held) = lab.attach().await;
    assert_eq!(u64::try_from(held.len()).unwrap(), ENTRIES);
    assert!(held.iter().all(|held| held.state == [5; 1000] && held.fds.len() == 1));
    connected(&here, &held[599].fds[0]);
}

async fn what_is_held_stays_over_many_daemons(lab: &Lab) {
    let (link, _) = lab.attach().await;
    let (here, there) = pair();
    let pid = link.pid();
    link.hold(5, Kind::SERVER_CONNECTION, b"0", &[there.as_fd()]).unwrap();
    drop((link, there));
    for generation in 0..20_u8 {
        let (link, held) = lab.attach().await;
        assert_eq!((link.pid(), link.is_child()), (pid, false));
        assert_eq!(of(&held, 5).state, [b'0' + generation]);
        link.update(5, &[b'0' + generation + 1]).unwrap();
        connected(&here, &of(&held, 5).fds[0]);
    }
    assert!(!shows(here.as_fd(), PollFlags::POLLHUP, A_WHILE));
}

async fn a_second_daemon_is_refused_while_the_first_lives(lab: &Lab) {
    let daemon = lab.daemon(&["attach", "state 1 first"]);
    let refused = HolderLink::attach(lab.dir()).await.unwrap_err();
    assert!(matches!(refused, HolderError::Busy), "{refused}");
    daemon.kill_9();
    let (_link, held) = lab.attach().await;
    assert_eq!(of(&held, 1).state, b"first");
}

async fn a_successor_that_comes_a_moment_early_is_let_in(lab: &Lab) {
    let daemon = lab.daemon(&["attach", "state 1 first"]);
    // The first poll of the one connects, then the other kills.
    let (attached, ()) = tokio::join!(HolderLink::attach(lab.dir()), async { daemon.kill_9() });
    let (link, held) = attached.unwrap();
    assert_eq!((of(&held, 1).state.as_slice(), link.is_child()), (&b"first"[..], false));
}

async fn a_killed_holder_is_noticed_and_replaced(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    assert!(link.is_child());
    let old = link.pid();
    nix::sys::signal::kill(old, nix::sys::signal::Signal::SIGKILL).unwrap();
    let lost = link.next().await.unwrap_err();
    assert!(matches!(lost, HolderError::Lost), "{lost}");
    let lost = link.hold(1, Kind::STATE, b"", &[]).unwrap_err();
    assert!(matches!(lost, HolderError::Lost), "{lost}");
    link.reap();
    assert_eq!(nix::sys::signal::kill(old, None), Err(nix::errno::Errno::ESRCH));

    let (mut link, held) = lab.attach().await;
    assert!(held.is_empty() && link.pid() != old);
    link.hold(FIRST_HOLDER_KEY - 1, Kind::STATE, b"", &[]).unwrap();
    settle(&mut link).await;
}

async fn a_holder_leaves_when_told(lab: &Lab) {
    let (link, _) = lab.attach().await;
    let (here, there) = pair();
    let pid = link.pid();
    link.hold(1, Kind::SERVER_CONNECTION, b"", &[there.as_fd()]).unwrap();
    drop(there);
    link.leave(crate::lab::DEADLINE).await.unwrap();
    assert!(shows(here.as_fd(), PollFlags::POLLHUP, crate::lab::DEADLINE));
    assert!(!lab.path(remps_controld::parts::holder::SOCKET_NAME).exists());
    assert_eq!(nix::sys::signal::kill(pid, None), Err(nix::errno::Errno::ESRCH), "it is reaped too");
}

async fn a_stopped_holder_is_killed_when_it_must_leave(lab: &Lab) {
    let (link, _) = lab.attach().await;
    let pid = link.pid();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    link.leave(A_WHILE).await.unwrap();
    assert_eq!(nix::sys::signal::kill(pid, None), Err(nix::errno::Errno::ESRCH));
}

async fn a_stale_socket_is_replaced(lab: &Lab) {
    drop(crate::lab::listener(&lab.path(remps_controld::parts::holder::SOCKET_NAME)));
    let (link, held) = lab.attach().await;
    assert!(link.is_child() && held.is_empty());
}

async fn a_pipe_directory_too_long_for_a_socket_address_works(lab: &Lab) {
    let deep = lab.path(&"d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let (link, _) = HolderLink::attach(&deep).await.unwrap();
    link.hold(1, Kind::STATE, b"deep", &[]).unwrap();
    drop(link);
    let (link, held) = HolderLink::attach(&deep).await.unwrap();
    assert_eq!(of(&held, 1).state, b"deep");
    link.leave(crate::lab::DEADLINE).await.unwrap();
}
