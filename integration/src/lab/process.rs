//! Child processes with a deadline, and the ends of processes that are nobody's children.
#![expect(unsafe_code, reason = "the parent-death signal is set between fork and exec; pidfd_open has no safe wrapper")]

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A program that has ended.
#[derive(Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, signal, .. } = self;
        let (stdout, stderr) = (self.stdout_text(), self.stderr_text());
        write!(f, "status {code:?}, signal {signal:?}\n--- standard output\n{stdout}\n--- standard error\n{stderr}")
    }
}

impl Finished {
    /// Standard output as text.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// Runs a program with this standard input.
///
/// A program that leaves a daemon behind has ended when it has, and when nobody holds its outputs open any more; a
/// daemon that keeps them runs into the deadline, as it would block a shell's pipe.
///
/// # Errors
/// When it can't be started or outlives the limit (it is killed then).
pub fn run(command: &mut Command, stdin: &[u8], limit: Duration) -> io::Result<Finished> {
    let deadline = Instant::now() + limit;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    die_with_parent(command);
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().expect("standard input is piped");
    let text = stdin.to_vec();
    // A program that does not read its input closes it, which is no error of the test; one that only leaves it open
    // keeps this thread and not the test.
    thread::spawn(move || drop(input.write_all(&text)));
    let (stdout, stderr) = (Collected::new(child.stdout.take()), Collected::new(child.stderr.take()));
    let status = wait(&mut child, deadline)?;
    Ok(Finished {
        code: status.code(),
        signal: status.signal(),
        stdout: stdout.all(deadline)?,
        stderr: stderr.all(deadline)?,
    })
}

fn wait(child: &mut Child, deadline: Instant) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid is a positive i32"));
    if !ended_within(pid, deadline.saturating_duration_since(Instant::now())) {
        child.kill()?;
        child.wait()?;
        return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not end"));
    }
    child.wait()
}

/// Kills the child when the test's thread ends, however it ends.
pub(crate) fn die_with_parent(command: &mut Command) {
    let set = || {
        let signal = libc::c_ulong::try_from(libc::SIGKILL).expect("a signal is a small number");
        // SAFETY: prctl is async-signal-safe and takes no pointer here.
        let done = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only calls prctl, which is allowed between fork and exec.
    unsafe { command.pre_exec(set) };
}

/// An output that is read in the background, so that a full pipe never blocks the program.
#[derive(Clone, Debug, Default)]
struct Collected {
    state: Arc<Mutex<(Vec<u8>, bool)>>,
    ended: Arc<Mutex<Option<OwnedFd>>>,
}

impl Collected {
    fn new(source: Option<impl Read + Send + 'static>) -> Self {
        let collected = Self::default();
        let Some(mut source) = source else { return collected };
        // The read end becomes readable when the reader thread drops the write end.
        let (read_end, write_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
        *collected.ended.lock().expect("no reader panics") = Some(read_end);
        let state = Arc::clone(&collected.state);
        thread::spawn(move || {
            let _end = write_end;
            let mut piece = [0; 8192];
            while let Ok(length @ 1..) = source.read(&mut piece) {
                state.lock().expect("no reader panics").0.extend_from_slice(&piece[..length]);
            }
        });
        collected
    }

    fn so_far(&self) -> Vec<u8> {
        self.state.lock().expect("no reader panics").0.clone()
    }

    fn all(&self, deadline: Instant) -> io::Result<Vec<u8>> {
        if let Some(end) = self.ended.lock().expect("no reader panics").as_ref()
            && !readable_until(end, deadline)
        {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a process that it left behind keeps its output open"));
        }
        Ok(self.so_far())
    }
}

fn readable_until(fd: &impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(count) => return count > 0,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Whether a process ends in time, or has ended already. It need not be a child; a dead child that nobody has waited
/// for counts as ended.
#[must_use]
pub fn ended_within(pid: Pid, limit: Duration) -> bool {
    // SAFETY: pidfd_open takes two numbers and returns a new descriptor or -1.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let Ok(number) = i32::try_from(number) else { return false };
    if number < 0 {
        return true;
    }
    // SAFETY: the descriptor is new and nothing else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(number) };
    readable_until(&pidfd, Instant::now() + limit)
}

/// A program that runs beside the test, in a process group of its own.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    stdout: Collected,
    stderr: Collected,
}

impl Process {
    /// Starts it.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, Stdio::null())
    }

    /// Starts it with a standard input that stays open, and has nothing to read, until [`Self::finish`].
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn start_with_input(command: &mut Command) -> Self {
        Self::start_with(command, Stdio::piped())
    }

    fn start_with(command: &mut Command, input: Stdio) -> Self {
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        die_with_parent(command);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdout, stderr) = (Collected::new(child.stdout.take()), Collected::new(child.stderr.take()));
        Self { input: child.stdin.take(), child, stdout, stderr }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid is a positive i32"))
    }

    /// What it has written so far.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.stdout.so_far()).into_owned()
    }

    /// What it has written to its standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr.so_far()).into_owned()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.pid(), signal);
    }

    /// Closes its standard input, if that is open, and waits for its end.
    ///
    /// # Errors
    /// When it outlives the limit.
    pub fn finish(mut self, limit: Duration) -> io::Result<Finished> {
        drop(self.input.take());
        let deadline = Instant::now() + limit;
        let status = wait(&mut self.child, deadline)?;
        Ok(Finished {
            code: status.code(),
            signal: status.signal(),
            stdout: self.stdout.all(deadline)?,
            stderr: self.stderr.all(deadline)?,
        })
    }

    /// Whether it has ended, waiting no longer than `limit`.
    #[must_use]
    pub fn ended_within(&self, limit: Duration) -> bool {
        ended_within(self.pid(), limit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}
