//! What the process is like: small, quiet, detached, and without leaks.

use std::os::fd::AsFd;

use nix::unistd::{Pid, getsid};
use remps_controld::parts::holder::{HolderError, HolderLink, Kind};

use crate::lab::{Lab, open_descriptors, pair, rests, settle, status_field, trials};

trials![
    the_process_has_left_everything_of_its_daemon_behind,
    started_by_hand_it_says_so_and_fails,
    an_idle_holder_sleeps,
    ten_thousand_cycles_leak_nothing,
];

/// Memory of its own that an idle holder may have, in KiB. Everything else resident are pages of the executable and of
/// the C library, which it shares with the daemon.
const MAX_ANONYMOUS_KIB: u64 = 512;
/// All resident memory that an idle holder may have as an optimised program, in KiB.
const MAX_RESIDENT_KIB: u64 = 3072;

fn proc(pid: Pid, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap()
}

async fn the_process_has_left_everything_of_its_daemon_behind(lab: &Lab) {
    // Something inheritable, as a careless parent leaves it.
    let (leaked, _other) = pair();
    nix::fcntl::fcntl(&leaked, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let (mut link, _) = lab.attach().await;
    settle(&mut link).await;
    let pid = link.pid();
    assert_eq!(proc(pid, "comm"), "mps-holder\n");
    let arguments = format!("nvidia-cuda-mps-control\0--holder\0{}\0", lab.dir().display());
    assert_eq!(proc(pid, "cmdline"), arguments);
    assert!(!arguments.replace('\0', " ").contains("nvidia-cuda-mps-control -d"));
    assert_eq!(proc(pid, "environ"), "");
    assert_eq!(getsid(Some(pid)), Ok(pid));
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
    assert_eq!(proc(pid, "status").lines().find(|line| line.starts_with("Umask")), Some("Umask:\t0077"));
    assert_eq!(status_field(pid, "Threads"), 1);
    let limits = proc(pid, "limits");
    let files: Vec<&str> =
        limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(files[3], files[4], "the soft limit is the hard one");

    // Three streams, the pipe directory, the attach socket, the signals and the daemon's connection.
    let mut open: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().to_str().unwrap().to_owned())
        .map(|name| name.split(':').next().unwrap().to_owned())
        .collect();
    open.sort();
    let directory = lab.dir().to_str().unwrap();
    assert_eq!(open, ["/dev/null", "/dev/null", "/dev/null", directory, "anon_inode", "socket", "socket"]);
    drop(leaked);

    let (resident, anonymous) = (status_field(pid, "VmRSS"), status_field(pid, "RssAnon"));
    eprintln!("resident {resident} KiB, of that anonymous {anonymous} KiB");
    assert!(anonymous <= MAX_ANONYMOUS_KIB, "{anonymous} KiB");
    // The size of an unoptimised program says nothing about the product.
    assert!(resident <= MAX_RESIDENT_KIB || cfg!(debug_assertions), "{resident} KiB");
}

async fn started_by_hand_it_says_so_and_fails(lab: &Lab) {
    let mut command = std::process::Command::new("/proc/self/exe");
    let output = command.arg("--holder").arg(lab.dir()).stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("nvidia-cuda-mps-control: the holder is started by the daemon only"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

async fn an_idle_holder_sleeps(lab: &Lab) {
    let (mut link, _) = lab.attach().await;
    let (quiet, there) = pair();
    link.hold(1, Kind::SERVER_CONNECTION, b"", &[there.as_fd()]).unwrap();
    settle(&mut link).await;
    let pid = link.pid();
    rests(pid);
    drop(link);
    rests(pid);
    drop(quiet);
}

async fn ten_thousand_cycles_leak_nothing(lab: &Lab) {
    // In a process of its own: here other tests open and close theirs at the same time.
    lab.daemon(&["attach", "cycles 10000"]).kill_9();
}

/// Holds, updates and releases again and again and compares both sides before and after.
pub(crate) async fn cycle(link: &mut HolderLink, cycles: u32) {
    let (_here, there) = pair();
    let (fds, state) = ([there.as_fd()], [7; 64]);
    settle(link).await;
    let before = (open_descriptors(link.pid()), open_descriptors(Pid::this()));
    let anonymous = status_field(link.pid(), "RssAnon");
    for number in 0..cycles {
        let key = u64::from(number % 100);
        for request in 0..3 {
            loop {
                let done = match request {
                    0 => link.hold(key, Kind::CLIENT_END, &state, &fds),
                    1 => link.update(key, &state[..32]),
                    _ => link.release(key),
                };
                match done {
                    Ok(()) => break,
                    Err(HolderError::Full) => settle(link).await,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    settle(link).await;
    assert_eq!((open_descriptors(link.pid()), open_descriptors(Pid::this())), before);
    assert!(status_field(link.pid(), "RssAnon") <= anonymous + 256);
}
