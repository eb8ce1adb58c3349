//! Who may not attach, and what no message can do.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use remps_controld::parts::holder::{Kind, SOCKET_NAME};
use remps_controld::parts::io::runtime_dir::{CONTROL_LOCK, RuntimeDir};
use remps_proto::holder::{FromHolder, Kind as ProtoKind, Refusal, ToHolder};

use crate::lab::{Lab, dial, listener, open_descriptors, pair, read, settle, trials};

trials![
    another_user_is_refused,
    root_of_a_container_is_refused,
    a_daemon_that_cannot_close_its_directory_says_what_to_do,
    the_attach_socket_is_its_owners_alone,
    a_socket_of_another_user_is_not_taken_for_the_holder,
    messages_that_make_no_sense_are_skipped,
];

/// First argument of the role of another user; what they do and the attach socket's path follow.
pub(crate) const ARGUMENT: &str = "--stranger";
/// The stranger connects and reports by the exit status what came of it.
const CONNECTS: &str = "connects";
/// The stranger listens where a holder would, says `ready` and waits for the end of standard input.
const LISTENS: &str = "listens";
/// The stranger connects from a PID namespace of his own.
const CONNECTS_APART: &str = "connects-apart";
/// The stranger starts a daemon there, and prints why he can't.
const OPENS: &str = "opens";
/// Exit statuses of a stranger who connects.
const APART_IS_IMPOSSIBLE: u8 = 9;
const REFUSED: u8 = 10;
const NO_ACCESS: u8 = 11;
const LET_IN: u8 = 12;
/// Somebody who is neither root nor the holder's user: `nobody`.
const STRANGER: u32 = 65_534;

/// Is the stranger.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let socket = Path::new(&arguments[1]);
    if arguments[0] == LISTENS {
        let _listener = listener(socket);
        std::io::stdout().write_all(b"ready").unwrap();
        std::io::stdout().flush().unwrap();
        let _ = std::io::stdin().read(&mut [0]);
        return ExitCode::SUCCESS;
    }
    if arguments[0] == OPENS {
        if let Err(error) = RuntimeDir::open(socket) {
            println!("{error}");
        }
        return ExitCode::SUCCESS;
    }
    if arguments[0] == CONNECTS_APART {
        if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWPID).is_err() {
            return APART_IS_IMPOSSIBLE.into();
        }
        let mut inner = Command::new("/proc/self/exe");
        let status = inner.arg(ARGUMENT).arg(CONNECTS).arg(socket).status().unwrap();
        return u8::try_from(status.code().unwrap()).unwrap().into();
    }
    let Ok(link) = dial(socket) else { return NO_ACCESS.into() };
    match FromHolder::decode(&read(&link)) {
        Ok(FromHolder::Refused(Refusal::NOT_PERMITTED)) if read(&link).is_empty() => REFUSED.into(),
        _ => LET_IN.into(),
    }
}

fn stranger(what: &str, socket: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(what).arg(socket).current_dir("/").uid(STRANGER).gid(STRANGER);
    command
}

fn as_stranger(socket: &Path) -> Option<i32> {
    stranger(CONNECTS, socket).status().unwrap().code()
}

fn skipped_without_root() -> bool {
    let skipped = !nix::unistd::geteuid().is_root();
    if skipped {
        eprintln!("Skipped(only root can become another user)");
    }
    skipped
}

async fn another_user_is_refused(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let (link, _) = lab.attach().await;
    link.hold(1, Kind::STATE, b"secret", &[]).unwrap();
    std::fs::set_permissions(lab.dir(), PermissionsExt::from_mode(0o755)).unwrap();
    let socket = lab.path(SOCKET_NAME);
    assert_eq!(as_stranger(&socket), Some(NO_ACCESS.into()));
    // Even where the mode would let them in.
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(as_stranger(&socket), Some(REFUSED.into()), "while a daemon is attached");
    drop(link);
    assert_eq!(as_stranger(&socket), Some(REFUSED.into()), "while none is");
    assert_eq!(lab.attach().await.1[0].state, b"secret");
}

async fn root_of_a_container_is_refused(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let (link, _) = lab.attach().await;
    link.hold(1, Kind::STATE, b"secret", &[]).unwrap();
    drop(link);
    let mut command = Command::new("/proc/self/exe");
    let status = command.arg(ARGUMENT).arg(CONNECTS_APART).arg(lab.path(SOCKET_NAME)).status().unwrap();
    if status.code() == Some(APART_IS_IMPOSSIBLE.into()) {
        return eprintln!("Skipped(no PID namespace can be made here)");
    }
    assert_eq!(status.code(), Some(REFUSED.into()));
    assert_eq!(lab.attach().await.1[0].state, b"secret");
}

async fn a_daemon_that_cannot_close_its_directory_says_what_to_do(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let said = |mode| {
        std::fs::set_permissions(lab.dir(), PermissionsExt::from_mode(mode)).unwrap();
        String::from_utf8(stranger(OPENS, lab.dir()).output().unwrap().stdout).unwrap()
    };
    let refused = said(0o777);
    assert!(refused.starts_with("Other users can replace the daemon's files in "), "{refused}");
    assert!(refused.contains("(mode 0777): chmod go-w it, or chmod +t"), "{refused}");
    assert_eq!(std::fs::read_dir(lab.dir()).unwrap().count(), 0);
    assert_eq!(said(0o1777), "");
    // And what he can't move out of his way is named.
    std::fs::create_dir(lab.path(CONTROL_LOCK)).unwrap();
    let refused = said(0o1777);
    assert!(refused.contains("control_lock is in the way and can't be moved"), "{refused}");
}

async fn the_attach_socket_is_its_owners_alone(lab: &Lab) {
    let (_link, _) = lab.attach().await;
    let mode = std::fs::metadata(lab.path(SOCKET_NAME)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

async fn a_socket_of_another_user_is_not_taken_for_the_holder(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    std::fs::set_permissions(lab.dir(), PermissionsExt::from_mode(0o777)).unwrap();
    let mut trap = stranger(LISTENS, &lab.path(SOCKET_NAME));
    let mut trap = trap.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(read(&OwnedFd::from(trap.stdout.take().unwrap())), b"ready");
    let (link, held) = lab.attach().await;
    assert!(link.is_child() && held.is_empty());
    trap.kill().unwrap();
    trap.wait().unwrap();
}

async fn messages_that_make_no_sense_are_skipped(lab: &Lab) {
    const JUNK: u64 = 2000;
    let (mut link, _) = lab.attach().await;
    link.hold(1, Kind::STATE, b"before", &[]).unwrap();
    settle(&mut link).await;
    let descriptors = open_descriptors(link.pid());
    drop(link);

    let raw = lab.raw_attach().unwrap();
    while !matches!(FromHolder::decode(&read(&raw)), Ok(FromHolder::AttachDone(_))) {}
    // A cheap generator: the bytes only have to differ.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for length in 0..JUNK {
        let mut junk = vec![0; usize::try_from(length % 300).unwrap()];
        for byte in &mut junk {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed.to_le_bytes()[3];
        }
        // No request of this protocol begins so; an empty packet is one of them.
        if let Some(first) = junk.first_mut() {
            *first = 0xff;
        }
        send(&raw, &junk, &[]);
        // The holder says so as long as somebody listens.
        drop(read_if_any(&raw));
    }
    // Too long, and with more descriptors than allowed.
    let (here, there) = pair();
    send(&raw, &vec![1; 100_000], &[&there; 3]);
    let hold = ToHolder::Hold { key: 2, kind: ProtoKind::STATE, state: Vec::new() }.encode().unwrap();
    send(&raw, &hold, &[&there; 12]);
    drop(there);
    assert!(crate::lab::shows(here.as_fd(), nix::poll::PollFlags::POLLHUP, crate::lab::DEADLINE));
    drop(raw);

    let (mut link, held) = lab.attach().await;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].state, b"before");
    assert_eq!(link.attach_done().malformed, JUNK + 1);
    settle(&mut link).await;
    assert_eq!(open_descriptors(link.pid()), descriptors);
}

fn send(raw: &OwnedFd, packet: &[u8], fds: &[&OwnedFd]) {
    use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
    use std::os::fd::AsRawFd;
    let raw_fds: Vec<i32> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw_fds)];
    let ancillary = if fds.is_empty() { &[][..] } else { &rights[..] };
    let pieces = [std::io::IoSlice::new(packet)];
    sendmsg::<UnixAddr>(raw.as_raw_fd(), &pieces, ancillary, MsgFlags::MSG_NOSIGNAL, None).unwrap();
}

fn read_if_any(raw: &OwnedFd) -> Vec<u8> {
    if crate::lab::shows(raw.as_fd(), nix::poll::PollFlags::POLLIN, std::time::Duration::ZERO) {
        read(raw)
    } else {
        Vec::new()
    }
}
