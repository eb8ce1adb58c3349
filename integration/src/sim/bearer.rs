//! A process that does nothing but bear descriptors of the test's choice: a client in whatever state is wanted, or a
//! hostile one.
#![expect(unsafe_code, reason = "descriptors are passed on between fork and exec")]

use crate::lab::process::Process;
use crate::under_test::Skipped;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sim_wire::memory_file::memory_file;
use sim_wire::uvm::{FILE_LENGTH, FILE_NAME};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Starts it; it has copies of these, and lives until it is dropped.
///
/// # Panics
/// When it can't be started.
#[must_use]
pub fn start(descriptors: &[BorrowedFd<'_>]) -> Process {
    start_as(Command::new("sleep").arg("infinity"), descriptors)
}

/// The same, and it opens `later` when somebody has opened and closed the FIFO `gate` for writing.
///
/// # Panics
/// When it can't be started.
#[must_use]
pub fn start_with_more(descriptors: &[BorrowedFd<'_>], later: BorrowedFd<'_>, gate: &Path) -> Process {
    let script = "read -r _ < \"$1\"; exec 9<> \"$2\"; exec sleep infinity";
    let later = format!("/proc/{}/fd/{}", std::process::id(), later.as_raw_fd());
    start_as(Command::new("sh").args(["-c", script, "sh"]).arg(gate).arg(later), descriptors)
}

/// The same, and it opens a file by its path first, which then has the number 9.
///
/// # Panics
/// When it can't be started.
#[must_use]
pub fn start_with_path(descriptors: &[BorrowedFd<'_>], path: &Path) -> Process {
    let script = "exec 9< \"$1\"; echo opened; exec sleep infinity";
    start_as(Command::new("sh").args(["-c", script, "sh"]).arg(path), descriptors)
}

/// Starts it with so many other descriptors, before the ones that it is given.
///
/// # Errors
/// When so many can't be had.
pub fn start_behind(others: u64, descriptors: &[BorrowedFd<'_>]) -> Result<Process, Skipped> {
    let room = others + 1024;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|errno| Skipped(errno.to_string()))?;
    if room > most && !may_raise_limits() {
        return Err(Skipped(format!(
            "{others} descriptors are more than the limit of {most}, which may not be raised"
        )));
    }
    let numbers: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let first = i32::try_from(others).map_err(|_| Skipped("too many".to_owned()))?;
    let crowd = move || {
        setrlimit(Resource::RLIMIT_NOFILE, room, room.max(most))?;
        // SAFETY: the path ends with NUL; the call is allowed between fork and exec.
        let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) };
        for number in numbers.iter() {
            // SAFETY: three integers.
            if unsafe { libc::fcntl(*number, libc::F_DUPFD, first) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: three integers; it fills the free numbers from below, up to the first that was just taken.
        while (0..first).contains(&unsafe { libc::fcntl(null, libc::F_DUPFD, 0) }) {}
        Ok(())
    };
    let mut command = Command::new("sleep");
    command.arg("infinity");
    // SAFETY: the closure only makes system calls on numbers that were prepared before.
    unsafe { command.pre_exec(crowd) };
    Ok(Process::start(&mut command))
}

/// Whether this process has `CAP_SYS_RESOURCE`.
fn may_raise_limits() -> bool {
    const SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << SYS_RESOURCE) != 0)
}

/// Starts any program with copies of these, under the same numbers.
///
/// # Panics
/// When it can't be started.
#[must_use]
pub fn start_as(command: &mut Command, descriptors: &[BorrowedFd<'_>]) -> Process {
    let numbers: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let pass_on = move || {
        for &number in &numbers {
            // SAFETY: three integers; the system call is allowed between fork and exec.
            if unsafe { libc::fcntl(number, libc::F_SETFD, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls on numbers that were prepared before.
    unsafe { command.pre_exec(pass_on) };
    Process::start(command)
}

/// A stand-in for a UVM descriptor that has been opened and not yet been initialised.
///
/// # Panics
/// When there are no memory files.
#[must_use]
pub fn opened() -> File {
    let file = memory_file(FILE_NAME).expect("every Linux has memory files");
    file.set_len(FILE_LENGTH).expect("a memory file can be made longer");
    file
}
