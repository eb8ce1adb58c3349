//! Whether an MPS control daemon answers: the probe that libcuda itself makes before it decides to run under MPS.
//!
//! libcuda connects to the control socket, reads the greeting and closes; then it connects again in earnest. This
//! module does the first half. A daemon that is not there yet may appear at any moment, by a socket file, a mount or a
//! `listen` on a socket that is already bound; most of that no file watch reports, so the probe is repeated.

use std::{
    ffi::OsStr,
    io,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollTimeout, poll},
    sys::{
        socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, setsockopt, socket, sockopt},
        time::{TimeVal, TimeValLike},
    },
};

use crate::process::{descriptors::Held, packets::borrowed};

/// The daemon's first packet on every connection.
const GREETING: &[u8] = b"OUTBHELL\0";

/// Room for a packet that is longer than the greeting and hence not one.
const PACKET: usize = 64;

/// The longest path of a control socket that libcuda uses, in bytes; with a longer one it does not even try and runs
/// without MPS (measured with 535.309.01; the kernel would take one byte more).
const LONGEST_PATH: usize = 106;

/// Time between two probes while no daemon answers.
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// What a listening daemon gets to greet, even when the time to wait for one is over.
const LEAST_TIME_TO_GREET: Duration = Duration::from_secs(1);

/// The kernel reads a time limit of zero as none.
const LEAST_LIMIT: Duration = Duration::from_millis(1);

/// Why no daemon is known to answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    /// The driver would not try this path either.
    #[error("the path is longer than the {LONGEST_PATH} bytes that the driver accepts")]
    PathTooLong,
    /// No socket could be made in this process.
    #[error("no socket can be opened: {0}")]
    NoSocket(io::Error),
    /// Nobody listens there, or we may not connect.
    #[error("{0}")]
    NoListener(io::Error),
    /// Somebody listens, and does not take the connection.
    #[error("whoever listens there takes no connections")]
    Busy,
    /// The connection stands and nothing comes.
    #[error("whoever listens there does not greet")]
    Silent,
    /// The connection was closed in place of a greeting.
    #[error("whoever listens there closes the connection without a greeting")]
    Closed,
    /// Something else than a daemon.
    #[error("whoever listens there is not an MPS control daemon")]
    Stranger,
}

/// Waits until a daemon greets at `path`, for `patience` at most; the last failure if none does.
pub(crate) fn wait_for_greeting(path: &OsStr, patience: Duration) -> Result<(), Unreachable> {
    let deadline = Instant::now() + patience;
    let mut limit = patience.max(LEAST_TIME_TO_GREET);
    loop {
        let failure = match probe(path, limit) {
            Ok(()) => return Ok(()),
            Err(failure @ Unreachable::PathTooLong) => return Err(failure),
            Err(failure) => failure,
        };
        limit = deadline.saturating_duration_since(Instant::now());
        if limit.is_zero() {
            return Err(failure);
        }
        pause(limit.min(RETRY_EVERY));
    }
}

/// One connection and one greeting, both within `limit`.
fn probe(path: &OsStr, limit: Duration) -> Result<(), Unreachable> {
    if path.len() > LONGEST_PATH {
        return Err(Unreachable::PathTooLong);
    }
    let address = UnixAddr::new(Path::new(path)).map_err(|errno| Unreachable::NoListener(errno.into()))?;
    let made = Held::made(|| socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None));
    let connection = made.map_err(Unreachable::NoSocket)?;
    let number = connection.number().ok_or_else(|| Unreachable::NoSocket(io::ErrorKind::NotFound.into()))?;
    let deadline = Instant::now() + limit;
    uninterrupted(deadline, |limit| {
        // A full queue of connections is waited for, under the limit for sending.
        setsockopt(&borrowed(number), sockopt::SendTimeout, &limit)?;
        connect(number, &address)
    })
    .map_err(|errno| if errno == Errno::EAGAIN { Unreachable::Busy } else { Unreachable::NoListener(errno.into()) })?;
    let mut packet = [0; PACKET];
    let received = uninterrupted(deadline, |limit| {
        setsockopt(&borrowed(number), sockopt::ReceiveTimeout, &limit)?;
        recv(number, &mut packet, MsgFlags::empty())
    });
    match received {
        Ok(0) => Err(Unreachable::Closed),
        Ok(length) if &packet[..length] == GREETING => Ok(()),
        Ok(_) => Err(Unreachable::Stranger),
        Err(Errno::EAGAIN) => Err(Unreachable::Silent),
        Err(errno) => Err(Unreachable::NoListener(errno.into())),
    }
}

/// Repeats `call` while signals interrupt it, each time with what is left until `deadline`. A profiler's timer may be
/// faster than the daemon.
fn uninterrupted<T>(deadline: Instant, mut call: impl FnMut(TimeVal) -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = i64::try_from(left.max(LEAST_LIMIT).as_micros()).unwrap_or(i64::MAX);
        match call(TimeVal::microseconds(limit)) {
            Err(Errno::EINTR) if left.is_zero() => return Err(Errno::EAGAIN),
            Err(Errno::EINTR) => {}
            outcome => return outcome,
        }
    }
}

/// Lets `time` pass. An interrupted pause is a shorter one, and the next probe comes sooner.
fn pause(time: Duration) {
    let _interrupted = poll(&mut [], PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO));
}

#[cfg(test)]
mod tests {
    use std::{
        iter,
        os::fd::{AsRawFd, OwnedFd},
        path::Path,
        thread,
        time::Duration,
    };

    use nix::sys::socket::{
        AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, send, socket,
    };

    use super::{GREETING, LONGEST_PATH, Unreachable, wait_for_greeting};

    const TRIES: usize = 20;
    const BRIEF: Duration = Duration::from_millis(200);
    const AMPLE: Duration = Duration::from_secs(120);

    fn bound(path: &Path) -> OwnedFd {
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        listener
    }

    /// Takes one connection, sends `packet` and closes.
    fn answer_once(listener: &OwnedFd, packet: &[u8]) {
        let connection = accept(listener.as_raw_fd()).unwrap();
        if !packet.is_empty() {
            send(connection, packet, MsgFlags::MSG_NOSIGNAL).unwrap();
        }
        nix::unistd::close(connection).unwrap();
    }

    /// What one answer leads to. One that comes too late, where the machine stands still, is not the one that is meant.
    fn outcome_of_one_answer(packet: &'static [u8]) -> Result<(), Unreachable> {
        let mut outcomes = iter::repeat_with(|| outcome_of_one_try(packet)).take(TRIES);
        outcomes.find(|outcome| !matches!(outcome, Err(Unreachable::Silent))).expect("it is answered in time")
    }

    fn outcome_of_one_try(packet: &'static [u8]) -> Result<(), Unreachable> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = bound(&path);
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| answer_once(&listener, packet));
            wait_for_greeting(path.as_os_str(), Duration::ZERO)
        })
    }

    #[test]
    fn the_daemons_greeting_is_enough() {
        outcome_of_one_answer(GREETING).unwrap();
    }

    #[test]
    fn a_stranger_is_told_from_a_daemon_by_every_byte() {
        for packet in [b"OUTBHELL".as_slice(), b"OUTBHELL\0\0", b"OUTBCRED\0", &[b'O'; 65]] {
            let outcome = outcome_of_one_answer(packet);
            assert!(matches!(outcome, Err(Unreachable::Stranger)), "{packet:?}: {outcome:?}");
        }
    }

    #[test]
    fn a_connection_closed_at_once_is_no_greeting() {
        let outcome = outcome_of_one_answer(b"");
        assert!(matches!(outcome, Err(Unreachable::Closed)), "{outcome:?}");
    }

    #[test]
    fn a_full_queue_of_connections_ends_at_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = bound(&path);
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        // The one place in the queue.
        let waiting = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        nix::sys::socket::connect(waiting.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        let outcome = wait_for_greeting(path.as_os_str(), BRIEF);
        assert!(matches!(outcome, Err(Unreachable::Busy)), "{outcome:?}");
    }

    #[test]
    fn a_bound_socket_that_begins_to_listen_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = bound(&path);
        thread::scope(|scope| {
            scope.spawn(|| {
                // The prober has found the socket deaf at least once by the time it has slept and asked again; which
                // of the two comes first does not matter to the outcome.
                let deaf = wait_for_greeting(path.as_os_str(), BRIEF);
                assert!(matches!(deaf, Err(Unreachable::NoListener(_))), "{deaf:?}");
                listen(&listener, Backlog::new(1).unwrap()).unwrap();
                answer_once(&listener, GREETING);
            });
            wait_for_greeting(path.as_os_str(), AMPLE).unwrap();
        });
    }

    #[test]
    fn a_path_that_the_driver_would_not_try_fails_without_waiting() {
        // One that waited would do so for longer than anybody lets a test run.
        let outcome = wait_for_greeting("x".repeat(LONGEST_PATH + 1).as_ref(), Duration::from_secs(365 * 24 * 3600));
        assert!(matches!(outcome, Err(Unreachable::PathTooLong)), "{outcome:?}");
        let outcome = wait_for_greeting("/x".repeat(LONGEST_PATH / 2).as_ref(), Duration::ZERO);
        assert!(matches!(outcome, Err(Unreachable::NoListener(_))), "{outcome:?}");
    }
}
