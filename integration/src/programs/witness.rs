//! `mps-witness`: watches one client through the UVM tools queue, with the daemon's own code.
//!
//! ```text
//! mps-witness [--wait SECONDS] [--hold SECONDS|--hold-until-stdin-closes] [--given N]… PID
//! mps-witness [--wait SECONDS] [--hold SECONDS|--hold-until-stdin-closes] -- PROGRAM [ARGUMENT…]
//! ```
//! With a program it starts that first, with the same standard output, and looks from its first moment on.
//!
//! - `attached`: the queue's version, the client's descriptors that are held (the address space first), whether both
//!   kinds are among them, and the milliseconds since the process's start. For a PID the kernel tells that to 10 ms
//!   only.
//! - `completed`: the second descriptor came later.
//! - `fault`: address, access, fault type, GPU, the driver's reason, and how many milliseconds ago the driver noted it.
//! - `ended`: the process has ended; then `closed`, with the time that the kernel took to close tracker and copies.
//!
//! A process that opens another address space has all these lines for that too, with the next number as `space`.
//!
//! With `--hold` only the copies are kept, for so many seconds or until standard input closes, whatever becomes of the
//! process, and then closed.
//! `--given N` instead of looking into the process takes the inherited descriptor of this number, as often as it is
//! there, as from a client that hands its descriptors over.
//! `--wait`, 30 else, is how long an address space is waited for. A refusal is a line `failed` and exit status 1.

mod space;

use super::report::Report;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};
use remps_controld::parts::io::process::start_time;
use remps_controld::parts::sys::uvm::get_descriptor;
use remps_controld::parts::sys::{pidfd, polled};
use remps_controld::parts::witness::uvm::{AttachError, Uvm};
use serde_json::json;
use space::Space;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

/// How long an address space is waited for.
const WAIT: Duration = Duration::from_secs(30);

/// How long a second address space is waited for: for as long as the process lives.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why it can't go on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Task(#[from] JoinError),
}

/// How long copies are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    For(Duration),
    UntilStdinCloses,
}

#[derive(Debug)]
struct Options {
    wait: Duration,
    hold: Option<Hold>,
    given: Vec<RawFd>,
    pid: Option<Pid>,
    program: Vec<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { wait: WAIT, hold: None, given: Vec::new(), pid: None, program: Vec::new() };
        let seconds = |text: Option<String>| Duration::try_from_secs_f64(text?.parse().ok()?).ok();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--wait" => options.wait = seconds(arguments.next())?,
                "--hold" => options.hold = Some(Hold::For(seconds(arguments.next())?)),
                "--hold-until-stdin-closes" => options.hold = Some(Hold::UntilStdinCloses),
                "--given" => options.given.push(arguments.next()?.parse().ok().filter(|number| *number > 2)?),
                "--" => options.program = arguments.by_ref().collect(),
                pid => options.pid = Some(Pid::from_raw(pid.parse().ok().filter(|&pid: &i32| pid > 0)?)),
            }
        }
        (options.pid.is_some() == options.program.is_empty()).then_some(options)
    }
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some(options) = Options::parse(arguments) else {
        let text =
            "mps-witness [--wait SECONDS] [--hold SECONDS|--hold-until-stdin-closes] PID | -- PROGRAM [ARGUMENT…]";
        report.say("usage", json!({ "text": text }));
        return ExitCode::from(2);
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(report, &error),
    };
    match runtime.block_on(watch(report, options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(report, &error),
    }
}

fn fail(report: Report, error: &dyn std::error::Error) -> ExitCode {
    report.say("failed", json!({ "error": error.to_string() }));
    ExitCode::FAILURE
}

/// The process that is watched.
struct Client {
    pid: Pid,
    pidfd: OwnedFd,
    started: Instant,
}

impl Client {
    fn of_pid(pid: Pid) -> io::Result<Self> {
        let pidfd = pidfd::open(pid)?;
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|rate| u32::try_from(rate).ok());
        let start = start_time(pid).zip(per_second.filter(|rate| *rate > 0));
        let age = start.map(|(ticks, rate)| since_boot().saturating_sub(ticks_to_time(ticks, rate)));
        let started = Instant::now().checked_sub(age.unwrap_or_default()).unwrap_or_else(Instant::now);
        Ok(Self { pid, pidfd, started })
    }

    fn of_program(words: &[String]) -> io::Result<Self> {
        let started = Instant::now();
        let child = Command::new(&words[0]).args(&words[1..]).spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        Ok(Self { pid, pidfd: pidfd::open(pid)?, started })
    }

    fn has_ended(&self) -> io::Result<bool> {
        Ok(poll(&mut [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? > 0)
    }

    /// Readable when the process has ended.
    fn end(&self) -> io::Result<AsyncFd<OwnedFd>> {
        polled::register(self.pidfd.try_clone()?, Interest::READABLE)
    }
}

fn ticks_to_time(ticks: u64, per_second: u32) -> Duration {
    Duration::from_secs(ticks) / per_second
}

fn clock(clock: ClockId) -> Duration {
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

fn since_boot() -> Duration {
    clock(ClockId::CLOCK_BOOTTIME)
}

async fn watch(report: Report, options: Options) -> Result<(), Failure> {
    let uvm = Uvm::open()?;
    let client = Arc::new(match options.pid {
        Some(pid) => Client::of_pid(pid)?,
        None => Client::of_program(&options.program)?,
    });
    let mut tasks = JoinSet::new();
    let mut deadline = Instant::now() + options.wait;
    for number in 1.. {
        let first = if number == 1 { take_given(&options.given)? } else { Vec::new() };
        let attached = match first.is_empty() {
            true => uvm.attach_when_ready(client.pid, client.pidfd.as_fd(), deadline, &Notify::new()).await,
            false => uvm.attach_given(client.pid, first).await,
        };
        let attached = match attached {
            Err(AttachError::Gone) if number > 1 => break,
            // What is found in a process that is ending is what was given up a moment ago.
            Ok(_) if number > 1 && client.has_ended()? => break,
            attached => attached?,
        };
        let space = Space { report, client: Arc::clone(&client), uvm: Arc::clone(&uvm), number };
        space.say_attached(&attached);
        if let Some(hold) = options.hold {
            return space.hold(attached, hold).await;
        }
        tasks.spawn(space.follow(attached));
        deadline = Instant::now() + FOR_EVER;
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

/// Duplicates of inherited descriptors.
fn take_given(numbers: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    // As from any other process: the same open files.
    let own = pidfd::open(Pid::this())?;
    numbers.iter().map(|&number| get_descriptor(own.as_fd(), number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Option<Options> {
        Options::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn it_takes_a_pid_or_a_program_and_not_both() {
        assert_eq!(parse(&["--hold", "2.5", "12"]).unwrap().hold, Some(Hold::For(Duration::from_millis(2500))));
        assert_eq!(parse(&["--hold-until-stdin-closes", "12"]).unwrap().hold, Some(Hold::UntilStdinCloses));
        assert_eq!(parse(&["--", "prog", "--hold"]).unwrap().program, ["prog", "--hold"]);
        for wrong in [&["12", "--", "prog"][..], &[], &["0"], &["--hold", "x", "1"]] {
            assert!(parse(wrong).is_none(), "{wrong:?}");
        }
    }
}
