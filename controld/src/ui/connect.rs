//! Finds the daemon of a pipe directory and greets it.

use super::Broken;
use crate::io::listener_owner::may_be_the_daemon;
use crate::io::packets::send_with_credentials;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect as connect_to, recv, send, setsockopt, socket,
    sockopt::PassCred,
};
use nix::sys::stat::Mode;
use remps_proto::mps::handshake::{CREDENTIALS, GREETING, Role};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Tried in this order: only the daemon's user and root may use the first.
const SOCKETS: [&str; 2] = ["control_privileged", "control"];
/// Held by the daemon with `fcntl`.
const LOCK: &str = "control_lock";
/// How long a daemon that holds its lock may be busy before it takes a connection or greets.
const GREETING_LIMIT: Duration = Duration::from_secs(60);
/// The same when the lock can't be looked at, as in our daemon's folder for other users: nobody knows then whether a
/// daemon is busy or gone, and one of ours is never busy for long.
const BLIND_LIMIT: Duration = Duration::from_secs(3);
/// How often the lock is looked at in the meantime, in milliseconds.
const LOCK_PERIOD_MS: u8 = 200;

/// A connection that the daemon knows to be a user interface.
///
/// A socket that takes connections is no proof of a daemon: while one is being restarted, another process keeps its
/// listening sockets so that CUDA programs wait instead of running without it. The lock is the proof.
///
/// `until` bounds the patience with a busy daemon further than this module does by itself.
pub(super) fn connect(pipe_dir: &Path, until: Option<Instant>) -> Result<OwnedFd, Broken> {
    let limit = match lock(pipe_dir) {
        Lock::Free => return Err(Broken::NotFound("nobody holds its lock")),
        Lock::Held => GREETING_LIMIT,
        Lock::Unknown => BLIND_LIMIT,
    };
    let own = Instant::now() + limit;
    let deadline = until.map_or(own, |until| until.min(own));
    let socket = SOCKETS
        .iter()
        .find_map(|name| connect_one(&pipe_dir.join(name), pipe_dir, deadline))
        .ok_or(Broken::NotFound("no socket takes the connection"))?;
    // Before a word is said: in a directory that others can write to, anybody may have put his own socket there.
    if !may_be_the_daemon(&socket, pipe_dir) {
        return Err(Broken::NotFound("another user's process listens in its place"));
    }
    greet(socket.as_fd(), pipe_dir, deadline)?;
    Ok(socket)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lock {
    Held,
    Free,
    /// No such file, or no right to look.
    Unknown,
}

/// Whether a process holds the daemon's lock.
pub(super) fn lock(pipe_dir: &Path) -> Lock {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let Ok(file) = open(&pipe_dir.join(LOCK), flags, Mode::empty()) else {
        return Lock::Unknown;
    };
    let mut wanted = libc::flock { l_type: WRITE_LOCK, l_whence: WHOLE_FILE, l_start: 0, l_len: 0, l_pid: 0 };
    match fcntl(&file, FcntlArg::F_GETLK(&mut wanted)) {
        Ok(_) if wanted.l_type == UNLOCKED => Lock::Free,
        Ok(_) => Lock::Held,
        Err(_) => Lock::Unknown,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the kernel's numbers for lock types are below 3")]
const WRITE_LOCK: i16 = libc::F_WRLCK as i16;
#[expect(clippy::cast_possible_truncation, reason = "the kernel's numbers for lock types are below 3")]
const UNLOCKED: i16 = libc::F_UNLCK as i16;
#[expect(clippy::cast_possible_truncation, reason = "the kernel's numbers for origins are below 3")]
const WHOLE_FILE: i16 = libc::SEEK_SET as i16;

fn connect_one(path: &Path, pipe_dir: &Path, deadline: Instant) -> Option<OwnedFd> {
    let address = UnixAddr::new(path).ok()?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).ok()?;
    // Both ends must ask for credentials before anything is read, or the first packets come without.
    setsockopt(&socket, PassCred, &true).ok()?;
    loop {
        match connect_to(socket.as_raw_fd(), &address) {
            Ok(()) => return Some(socket),
            Err(Errno::EINTR) => {}
            // The queue of connections is full; there is nothing to wait on but time.
            Err(Errno::EAGAIN) if Instant::now() < deadline && lock(pipe_dir) != Lock::Free => {
                let _ = poll(&mut [], PollTimeout::from(LOCK_PERIOD_MS));
            }
            Err(_) => return None,
        }
    }
}

fn greet(socket: BorrowedFd<'_>, pipe_dir: &Path, deadline: Instant) -> Result<(), Broken> {
    let mut greeting = [0; GREETING.len() + 1];
    let length = loop {
        match recv(socket.as_raw_fd(), &mut greeting, MsgFlags::empty()) {
            Ok(length) => break length,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                if Instant::now() >= deadline {
                    return Err(Broken::NotFound("no greeting in time"));
                }
                if lock(pipe_dir) == Lock::Free {
                    return Err(Broken::NotFound("the daemon ended before it greeted"));
                }
                let _ = poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], PollTimeout::from(LOCK_PERIOD_MS));
            }
            Err(_) => return Err(Broken::NotFound("no greeting")),
        }
    };
    if greeting[..length] != GREETING[..] {
        return Err(Broken::NotFound("not the greeting of a daemon"));
    }
    // Two small packets always fit the socket's buffer.
    send_with_credentials(socket, CREDENTIALS)
        .and_then(|()| send(socket.as_raw_fd(), &Role::UI.encode(), MsgFlags::MSG_NOSIGNAL))
        .map_err(|_| Broken::Lost("it closed after its greeting"))?;
    Ok(())
}
