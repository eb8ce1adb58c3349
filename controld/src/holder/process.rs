//! The holder as a process: what it is before it serves.
//!
//! The daemon starts it with the listening attach socket as standard input, so that nobody ever finds a path without
//! a listener, with its own connection as standard output, and with the pipe directory as standard error, so that it need
//! not look for it by a path that may lead elsewhere by now. It then leaves the daemon's session, folder, standard
//! streams and every descriptor behind.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    AddressFamily, Backlog, SockaddrLike, SockaddrStorage, getpeername, getsockname, getsockopt, listen, sockopt,
};
use nix::sys::stat::{Mode, umask};
use remps_proto::holder::SOCKET_NAME;

use super::place::Named;
use super::serve::Holder;
use crate::io::folder::cleaning::Uncleaned;
use crate::sys::proc::OWN_DESCRIPTORS;

/// Daemons that wait to attach; there is never more than one, and somebody who tries.
pub(super) const ATTACH_BACKLOG: i32 = 16;
/// Name in `ps` and `/proc/PID/comm`; without it the process would be called `exe`.
const NAME: &std::ffi::CStr = c"mps-holder";

/// Is the holder until nothing is left to hold.
///
/// To be called first thing in `main`, when the first argument is [`ARGUMENT`](super::ARGUMENT) and with the second as
/// the pipe directory. The attach socket is expected, listening, on standard input, and the daemon's connection on
/// standard output; started in any other way it prints one line and fails.
#[must_use]
pub fn run(pipe_dir: &Path) -> ExitCode {
    match prepare(pipe_dir) {
        Ok(mut holder) => {
            holder.serve();
            ExitCode::SUCCESS
        }
        Err(error) => {
            // Somebody who ran it by hand is told why it ended; there may also be nobody to tell.
            let _ = writeln!(io::stderr(), "{}: the holder is started by the daemon only: {error}", super::PROGRAM);
            ExitCode::FAILURE
        }
    }
}

fn prepare(pipe_dir: &Path) -> io::Result<Holder> {
    let own_path = Named::now(&std::path::absolute(pipe_dir)?.join(SOCKET_NAME));
    let attach = take_attach_socket()?;
    let daemon = take_connection()?;
    let signals = take_signals()?;
    keep_only(&[attach.as_raw_fd(), daemon.as_raw_fd(), signals.as_fd().as_raw_fd()])?;
    let uncleaned = take_directory();
    detach_streams()?;
    // Fails only for the leader of a group, which a started child is not; then it has a session already.
    let _ = nix::unistd::setsid();
    nix::unistd::chdir("/")?;
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    nix::sys::prctl::set_name(NAME)?;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(Holder::new(attach, daemon, signals, own_path, uncleaned))
}

/// Moves the attach socket away from standard input and checks that it is one.
fn take_attach_socket() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    let domain = getsockname::<SockaddrStorage>(stdin.as_fd().as_raw_fd())?.family();
    if domain != Some(AddressFamily::Unix) || !getsockopt(&stdin, sockopt::AcceptConn)? {
        return Err(Errno::EINVAL.into());
    }
    let attach = stdin.as_fd().try_clone_to_owned()?;
    // Listening once more makes this process the one that peers see in their credentials, and not the daemon.
    listen(&attach, Backlog::new(ATTACH_BACKLOG)?)?;
    fcntl(&attach, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(attach)
}

/// Moves the daemon's connection away from standard output and checks that it is one.
fn take_connection() -> io::Result<OwnedFd> {
    let stdout = io::stdout();
    let domain = getpeername::<SockaddrStorage>(stdout.as_fd().as_raw_fd())?.family();
    if domain != Some(AddressFamily::Unix) {
        return Err(Errno::EINVAL.into());
    }
    stdout.as_fd().try_clone_to_owned()
}

/// Moves the pipe directory away from standard error, and keeps it from being cleaned. What can't be kept so is held
/// all the same.
fn take_directory() -> Option<Uncleaned> {
    let directory = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?);
    let is_directory = directory.metadata().is_ok_and(|given| given.is_dir());
    is_directory.then(|| Uncleaned::lock(directory.into()).ok())?
}

fn take_signals() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    // SIGCHLD ends a wait when the child that restores compute modes has ended.
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        mask.add(signal);
    }
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

/// Closes everything but the standard streams and the given ones: whatever started the daemon may have leaked more.
fn keep_only(kept: &[RawFd]) -> io::Result<()> {
    let mut leaked: Vec<RawFd> = Vec::new();
    for entry in std::fs::read_dir(OWN_DESCRIPTORS)? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        leaked.extend(number.filter(|fd| *fd > libc::STDERR_FILENO && !kept.contains(fd)));
    }
    for fd in leaked {
        // The directory just read is among them and closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

fn detach_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    Ok(())
}
