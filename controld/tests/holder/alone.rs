//! A holder without a daemon: it drains, drops who hung up, and gives up in the end.

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use remps_controld::parts::holder::{HolderLink, Kind, LOG_BACKLOG_KEY, MAX_STATE_BYTES, SOCKET_NAME, Settings};

use crate::lab::{
    A_WHILE, DEADLINE, Lab, dial, eventually, exit_status, listener, open_descriptors, pair, settle, shows, trials,
};

trials![
    what_servers_write_is_drained_and_the_log_remembered,
    a_log_of_a_few_lines_comes_back_whole,
    connections_whose_peer_hung_up_are_dropped,
    giving_up_lets_newcomers_go_and_keeps_servers,
    as_many_files_as_there_are_go_when_it_gives_up,
    a_successor_after_giving_up_finds_the_servers,
    sigterm_is_for_the_daemon_while_there_is_one,
    a_holder_of_nothing_ends_with_its_daemon,
];

/// Long enough never to happen in a test.
const NEVER: Duration = Duration::from_secs(3600);

fn settings(link: &HolderLink, wait: Duration, unlink: &[std::path::PathBuf]) {
    let unlink = unlink.iter().map(|path| path.clone().into_os_string().into_encoded_bytes()).collect();
    let successor_wait_ms = u64::try_from(wait.as_millis()).unwrap();
    link.settings(&Settings { successor_wait_ms, log_buffer_bytes: 0, unlink, adds: false }).unwrap();
}

/// A byte that says where in the stream it is.
fn stream(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at / 7 % 251).unwrap()).collect()
}

async fn what_servers_write_is_drained_and_the_log_remembered(lab: &Lab) {
    const WRITTEN: usize = 1024 * 1024;
    const KEPT: usize = 256 * 1024;
    let (link, _) = lab.attach().await;
    let path = lab.path("log");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let (output, error_pipe) = nix::unistd::pipe().unwrap();
    link.hold(3, Kind::LOG_FIFO, b"", &[fifo.as_fd()]).unwrap();
    link.hold(4, Kind::SERVER_STDERR, b"", &[output.as_fd()]).unwrap();
    let holder = link.pid();
    drop((link, fifo, output));

    // Far more than a pipe takes: it ends only because somebody reads.
    let all = stream(WRITTEN);
    let mut log = std::fs::File::options().write(true).open(&path).unwrap();
    log.write_all(&all).unwrap();
    std::fs::File::from(error_pipe).write_all(&all).unwrap();
    // Its only writer is gone now, so it is dropped: what is left are streams, directory, attach, signals and the log.
    eventually("the server's output is dropped", || open_descriptors(holder) == 7);

    for _ in 0..2 {
        let (link, held) = lab.attach().await;
        let (pieces, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|held| held.kind == Kind::LOG_BACKLOG);
        assert_eq!(others.iter().map(|held| held.key).collect::<Vec<_>>(), [3], "the output ended");
        assert!(pieces.iter().all(|held| held.key == LOG_BACKLOG_KEY && held.state.len() <= MAX_STATE_BYTES));
        let mut kept: Vec<u8> = pieces.iter().flat_map(|held| held.state.clone()).collect();
        let dropped = usize::try_from(pieces[0].dropped_bytes).unwrap();
        assert!(kept.len() <= KEPT && dropped + kept.len() <= WRITTEN, "{} and {dropped}", kept.len());
        // The rest is still in the FIFO.
        let mut rest = vec![0; WRITTEN];
        let length = nix::unistd::read(&others[0].fds[0], &mut rest).unwrap_or(0);
        kept.extend_from_slice(&rest[..length]);
        assert_eq!(kept, all[dropped..dropped + kept.len()]);
        // Read twice the same, as nobody said that it was written down.
        drop(link);
        if length > 0 {
            return;
        }
        assert_eq!(dropped + kept.len(), WRITTEN);
    }
    let (mut link, _) = lab.attach().await;
    link.release(LOG_BACKLOG_KEY).unwrap();
    settle(&mut link).await;
    drop(link);
    let (_link, held) = lab.attach().await;
    assert_eq!(held.iter().map(|held| held.key).collect::<Vec<_>>(), [3]);
}

async fn a_log_of_a_few_lines_comes_back_whole(lab: &Lab) {
    lab.daemon(&["attach", "fifo 3"]).kill_9();
    let mut log = std::fs::File::options().write(true).open(lab.path("log")).unwrap();
    let mut expected = Vec::new();
    for line in 0..10 {
        let text = format!("record {line}\n");
        log.write_all(text.as_bytes()).unwrap();
        expected.extend_from_slice(text.as_bytes());
    }
    let mut got = Vec::new();
    eventually("all records are remembered", || got_by_now(lab, &mut got) && got == expected);
}

/// Attaches as a successor that dies before it has written anything down.
fn got_by_now(lab: &Lab, got: &mut Vec<u8>) -> bool {
    use remps_proto::holder::FromHolder;
    let successor = lab.raw_attach().unwrap();
    got.clear();
    loop {
        match FromHolder::decode(&crate::lab::read(&successor)).unwrap() {
            FromHolder::Held(held) if held.kind == Kind::LOG_BACKLOG => {
                assert_eq!(held.dropped_bytes, 0);
                got.extend_from_slice(&held.state);
            }
            FromHolder::AttachDone(_) => return true,
            FromHolder::Held(_) => {}
            other @ (FromHolder::Accepted { .. }
            | FromHolder::Refused(_)
            | FromHolder::Failed { .. }
            | FromHolder::Passed { .. }) => panic!("not while attaching: {other:?}"),
        }
    }
}

async fn connections_whose_peer_hung_up_are_dropped(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    let holder = link.pid();
    let pairs: Vec<(OwnedFd, OwnedFd)> = (0..4).map(|_| pair()).collect();
    let kinds = [Kind::CONNECTION, Kind::SERVER_CONNECTION, Kind::CLIENT_END, Kind::CONNECTION];
    for (key, (kind, (_, there))) in (0..).zip(kinds.into_iter().zip(&pairs)) {
        link.hold(key, kind, b"", &[there.as_fd()]).unwrap();
    }
    settle(&mut link).await;
    drop(link);
    let mut here: Vec<OwnedFd> = pairs.into_iter().map(|(here, _)| here).collect();
    let last = here.pop();
    drop(here);
    // Streams, directory, attach and signals, the end of a pair and the one living connection.
    eventually("the dead are dropped", || open_descriptors(holder) == 6 + 2);
    let (_link, held) = lab.attach().await;
    assert_eq!(held.iter().map(|held| held.key).collect::<Vec<_>>(), [2, 3]);
    drop(last);
}

async fn giving_up_lets_newcomers_go_and_keeps_servers(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    let holder = link.pid();
    let (server, server_end) = pair();
    let (client, client_end) = pair();
    link.hold(1, Kind::LISTENER_PUBLIC, b"", &[listener(&lab.path("control")).as_fd()]).unwrap();
    link.hold(2, Kind::SERVER_CONNECTION, b"", &[server_end.as_fd()]).unwrap();
    link.hold(3, Kind::CONNECTION, b"", &[client_end.as_fd()]).unwrap();
    std::fs::write(lab.path("pid"), "1").unwrap();
    std::fs::write(lab.path("theirs"), "").unwrap();
    settings(&link, A_WHILE, &["control", "pid", "theirs", "missing"].map(|name| lab.path(name)));
    settle(&mut link).await;
    std::fs::write(lab.path("new"), "another daemon's").unwrap();
    std::fs::rename(lab.path("new"), lab.path("theirs")).unwrap();
    drop((server_end, client_end));
    drop(link);

    // It may have given up before anybody comes.
    if let Ok(newcomer) = dial(&lab.path("control")) {
        assert!(shows(newcomer.as_fd(), PollFlags::POLLHUP, DEADLINE), "nobody will ever answer");
    }
    assert!(shows(client.as_fd(), PollFlags::POLLHUP, DEADLINE));
    eventually("the files are gone", || !lab.path("control").exists() && !lab.path("pid").exists());
    assert!(!lab.path("control").exists() && !lab.path("pid").exists() && lab.path("theirs").exists());
    assert!(!shows(server.as_fd(), PollFlags::POLLHUP, A_WHILE), "a running server goes on");

    assert!(lab.path(SOCKET_NAME).exists());
    drop(server);
    assert_eq!(exit_status(holder), 0);
    assert!(!lab.path(SOCKET_NAME).exists());
}

async fn as_many_files_as_there_are_go_when_it_gives_up(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    // More than one message has room for, of as many names as the most namespaces have files.
    let name = |number| format!("{number}-{}", "x".repeat(200));
    let paths: Vec<_> = (0..774).map(|number| lab.path(&name(number))).collect();
    paths.iter().for_each(|path| std::fs::write(path, "ours").unwrap());
    // The second ones replace the first, all of them.
    settings(&link, NEVER, &paths);
    settings(&link, A_WHILE, &paths[1..]);
    settle(&mut link).await;
    let (server, server_end) = pair();
    link.hold(2, Kind::SERVER_CONNECTION, b"", &[server_end.as_fd()]).unwrap();
    settle(&mut link).await;
    drop((link, server_end));
    eventually("the files are gone", || !paths[1..].iter().any(|path| path.exists()));
    assert!(paths[0].exists());
    drop(server);
}

async fn a_successor_after_giving_up_finds_the_servers(lab: &Lab) {
    let (link, _) = lab.attach().await;
    let (server, server_end) = pair();
    link.hold(1, Kind::LISTENER_PUBLIC, b"", &[listener(&lab.path("control")).as_fd()]).unwrap();
    link.hold(2, Kind::SERVER_CONNECTION, b"mine", &[server_end.as_fd()]).unwrap();
    link.hold(3, Kind::STATE, b"words", &[]).unwrap();
    link.hold(4, Kind::STATE, b"memory", &[server_end.as_fd()]).unwrap();
    settings(&link, Duration::from_millis(1), &[]);
    drop((link, server_end));
    eventually("it gives up", || dial(&lab.path("control")).is_err());

    let (link, held) = lab.attach().await;
    assert_eq!(held.iter().map(|held| held.key).collect::<Vec<_>>(), [2, 3]);
    // With a daemon it is an ordinary holder again.
    settings(&link, NEVER, &[]);
    link.release(2).unwrap();
    drop((link, held, server));
    let (_link, held) = lab.attach().await;
    assert_eq!(held.iter().map(|held| held.key).collect::<Vec<_>>(), [3]);
}

/// Signals sent to a process and not taken yet, as a mask in hexadecimal.
fn pending_signals(pid: Pid) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap().trim().to_owned()
}

async fn sigterm_is_for_the_daemon_while_there_is_one(lab: &Lab) {
    let (link, _) = lab.attach().await;
    let holder = link.pid();
    let (server, server_end) = pair();
    link.hold(1, Kind::LISTENER_PUBLIC, b"", &[listener(&lab.path("control")).as_fd()]).unwrap();
    link.hold(2, Kind::SERVER_CONNECTION, b"", &[server_end.as_fd()]).unwrap();
    settings(&link, NEVER, &[lab.path("control")]);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM] {
        kill(holder, signal).unwrap();
        eventually("the signal is taken", || pending_signals(holder) == "0000000000000000");
    }
    assert!(lab.path("control").exists());
    drop((link, server_end));

    kill(holder, Signal::SIGINT).unwrap();
    kill(holder, Signal::SIGHUP).unwrap();
    assert!(!shows(server.as_fd(), PollFlags::POLLHUP, A_WHILE));
    kill(holder, Signal::SIGTERM).unwrap();
    eventually("it gives up", || !lab.path("control").exists());
    assert!(!shows(server.as_fd(), PollFlags::POLLHUP, A_WHILE), "servers are kept");
    kill(holder, Signal::SIGTERM).unwrap();
    assert!(shows(server.as_fd(), PollFlags::POLLHUP, DEADLINE));
    assert_eq!(exit_status(holder), 0);
}

async fn a_holder_of_nothing_ends_with_its_daemon(lab: &Lab) {
    let daemon = lab.daemon(&["attach"]);
    let holder = lab.holder().unwrap();
    daemon.kill_9();
    assert_eq!(exit_status(holder), 0);
    assert!(!lab.path(SOCKET_NAME).exists());
}
