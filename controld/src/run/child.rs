//! The program as a child: its signals, its end, and the orphans that come to whoever is PID 1.

use crate::sys::child::unblock_signals;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Signals that are meant for the program.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];
/// Those of them that ask for an end: after one the program is not started again.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Signals of this process, which are read and not handled.
#[derive(Debug)]
pub(super) struct Signals(SignalFd);

impl Signals {
    /// Takes them from now on.
    pub(super) fn take() -> io::Result<Self> {
        let mut set: SigSet = PASSED_ON.into_iter().collect();
        set.add(Signal::SIGCHLD);
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// The next one that is there.
    fn next(&self) -> Option<Signal> {
        let read = self.0.read_signal().ok()??;
        Signal::try_from(i32::try_from(read.ssi_signo).ok()?).ok()
    }

    fn await_any(&self, timeout: PollTimeout) {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait is one turn more.
        let _ = poll(&mut polled, timeout);
    }

    /// Lets a pause pass; whether a signal has asked for the end meanwhile.
    pub(super) fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            while let Some(signal) = self.next() {
                if ENDING.contains(&signal) {
                    return true;
                }
                reap(None);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.await_any(PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX));
        }
    }
}

/// How the program ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    status: ExitStatus,
    /// Whether somebody had asked for it.
    pub(super) is_wanted: bool,
}

impl End {
    /// Whether it has done what it was to.
    pub(super) fn is_good(&self) -> bool {
        self.status.success()
    }

    /// The status that says the same of this process, as shells have it.
    pub(super) fn status(&self) -> u8 {
        let number = self.status.code().or_else(|| self.status.signal().map(|signal| 128 + signal));
        number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "the program has ended with status {code}"),
            (None, Some(signal)) => write!(f, "the program was ended by signal {signal}"),
            (None, None) => f.write_str("the program has ended"),
        }
    }
}

/// The running program.
#[derive(Debug)]
pub(super) struct Child {
    child: std::process::Child,
}

impl Child {
    /// Starts it, with no signal blocked.
    pub(super) fn start(
        program: &OsString,
        arguments: &[OsString],
        variables: &[(&'static str, OsString)],
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
        unblock_signals(&mut command);
        Ok(Self { child: command.spawn()? })
    }

    /// Its pid.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Passes signals on until it has ended.
    pub(super) fn wait(&mut self, signals: &Signals) -> End {
        let own = Pid::from_raw(self.child.id().cast_signed());
        let mut is_wanted = false;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return End { status, is_wanted },
                Ok(None) => {}
                // Nobody else waits for it.
                Err(_) => return End { status: ExitStatus::from_raw(255 << 8), is_wanted },
            }
            signals.await_any(PollTimeout::NONE);
            while let Some(signal) = signals.next() {
                if signal == Signal::SIGCHLD {
                    reap(Some(own));
                } else {
                    is_wanted |= ENDING.contains(&signal);
                    // One that has just ended is seen above.
                    let _ = kill(own, signal);
                }
            }
        }
    }
}

/// Reaps orphans, which only PID 1 and subreapers get, but not the program.
fn reap(program: Option<Pid>) {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
    loop {
        let looked = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT);
        let Ok(WaitStatus::Exited(ended, _) | WaitStatus::Signaled(ended, ..)) = looked else { return };
        if Some(ended) == program {
            // The kernel tells of the same one again; the others come when it has been waited for.
            return;
        }
        let _ = waitpid(ended, Some(WaitPidFlag::WNOHANG));
    }
}
