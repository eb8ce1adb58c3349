//! What a process tells the daemon of itself for the sake of faults: with `MPS_SHIM_FAULTS=tell` its UVM descriptors, if
//! the daemon may not take them itself, and with that or a spare copy of the driver the first error that its driver
//! answers with.
//!
//! # Descriptors
//! The daemon hears of a client's memory faults, and keeps its neighbours safe from its sudden death, by copies of the
//! client's descriptors of `/dev/nvidia-uvm`. It takes them with the right to trace (`CAP_SYS_PTRACE`). Where it has not
//! got that, as in a container without further rights or under an ordinary user, it says so in its greeting, and with
//! `MPS_SHIM_FAULTS=tell` this library sends them: after `cuInit`, in which the driver opens them, and where memory is
//! kept also after a context has been made, for which it may open more. The program goes on when the daemon watches, or
//! after [`PATIENCE`] without it.
//!
//! What is sent are duplicates that the kernel makes; nothing is opened or closed in the program. To a daemon that has
//! the right nothing is sent.
//!
//! # The first error
//! An exception leaves nothing in a tools queue, and whoever has caused it hears of it first. So the first answer of
//! the driver that means that work on the GPU has failed is told before the program gets it, once for each copy of the
//! driver; it waits [`PATIENCE_WITH_REPORTS`] for the daemon. What it is worth is the daemon's to say: a victim's errors
//! are mostly the same.
//!
//! A program that goes on with a spare copy has no time to wait. It leaves its word, a victim's too, and with it that of
//! which server it speaks: the daemon asks that one, and may end it at once for all who are on it.
//!
//! # A server that gives no context
//! Who gets 401 for a context says so, whatever is set: its server may answer that to everybody until it ends, and nothing
//! else tells of it (`OBSERVED.md`). The daemon has newcomers go to another one then.

use std::{
    fs,
    os::{
        fd::RawFd,
        unix::{ffi::OsStrExt, fs::FileTypeExt},
    },
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use remps_proto::shim::{Answer, Ask, Capabilities, MOST_FOLLOWED};

use super::{
    connection::{Connection, Lost},
    link::{linked, started},
    news,
};
use crate::{
    cuda::{library, result::CUresult},
    process::{log, panics::unpanicked, settings},
};

/// How long a program waits for the daemon to watch it. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a program whose context is dead waits for the daemon to hear that.
const PATIENCE_WITH_REPORTS: Duration = Duration::from_secs(2);
/// Answers of the driver that mean that work on the GPU has failed: 700, a kernel's time limit, a failed assertion, a
/// kernel's stack, instruction, alignment, address space, program counter and launch, tensor memory. Not those of a dead
/// server or of one that refuses, which nobody's work is to blame for.
const FAULTS: [u32; 10] = [700, 702, 710, 714, 715, 716, 717, 718, 719, 721];
/// `CUDA_ERROR_ILLEGAL_STATE`.
const NO_CONTEXT: CUresult = CUresult(401);
/// How the name of the file ends, and what the kernel adds to that of one that was removed.
const NAME_END: &[u8] = b"nvidia-uvm";
const REMOVED: &[u8] = b" (deleted)";

/// The copy of the driver, from 1, of which an error was told last.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Looks at an answer of the driver's copy `of` on its way to the program.
pub(crate) fn hear(answer: CUresult, of: u64) {
    // Nearly every answer is a success.
    if answer.0 >= FAULTS[0] {
        hear_error(answer.0, of);
    }
}

#[cold]
fn hear_error(error: u32, of: u64) {
    let has_time = !settings::is_with_spare();
    if !FAULTS.contains(&error) || (has_time && !settings::is_telling_of_faults()) {
        return;
    }
    let copy = of + 1;
    // A thread may come out of a copy that has been replaced: whoever has found out has told of that one's error, and what is
    // known of servers is another one's by now.
    if of != library::generation() {
        return;
    }
    if TOLD.swap(copy, Ordering::AcqRel) == copy {
        return;
    }
    // Without a daemon there is nobody to tell.
    let _told = unpanicked(|| {
        let ask = Ask::Report { error, own_work: true, server: news::said().0 };
        if has_time {
            linked()?.ask_now(ask, Capabilities::REPORTS, PATIENCE_WITH_REPORTS).map(drop)
        } else {
            started().map(|link| link.tell(ask, Capabilities::REPORTS, PATIENCE_WITH_REPORTS))
        }
    });
}

/// The server of which the daemon has spoken last, for [`hear_late`].
pub(crate) fn server() -> u64 {
    news::said().0
}

/// The copy `of` had this error, by which its successor was begun, on this server. Where that was found out by asking the
/// driver, no call of the program's has told of it, and none will.
pub(crate) fn hear_late(answer: CUresult, of: u64, server: u64) {
    let is_meant = settings::is_with_spare() && FAULTS.contains(&answer.0);
    if !is_meant || TOLD.swap(of + 1, Ordering::AcqRel) == of + 1 {
        return;
    }
    let _told = unpanicked(|| {
        let ask = Ask::Report { error: answer.0, own_work: false, server };
        started().map(|link| link.tell(ask, Capabilities::REPORTS, PATIENCE_WITH_REPORTS))
    });
}

/// Looks at the answer to a call that makes a context on the server of this number; 0 where the daemon knows which one that is.
pub(crate) fn hear_of_context(answer: CUresult, server: u64) {
    if answer != NO_CONTEXT {
        return;
    }
    // Without a daemon there is nobody to tell.
    let _told = unpanicked(|| {
        let ask = Ask::Report { error: answer.0, own_work: false, server };
        linked()?.ask_now(ask, Capabilities::REPORTS, PATIENCE_WITH_REPORTS).map(drop)
    });
}

/// Has the daemon given what there is, if it wants that and there is more than at the last time.
pub(crate) fn offer() {
    if settings::is_telling_of_faults()
        && let Some(link) = linked()
    {
        link.follow(PATIENCE);
    }
}

/// What the daemon follows this process by: the worker's.
#[derive(Debug, Default)]
pub(super) struct Followed {
    sent: Vec<RawFd>,
    found: Vec<RawFd>,
    is_unwanted: bool,
}

impl Followed {
    /// Looks whether there is anything to send.
    pub(super) fn has_news(&mut self) -> bool {
        if self.is_unwanted || !settings::is_telling_of_faults() {
            return false;
        }
        self.found = descriptors();
        !self.found.is_empty() && self.found != self.sent
    }

    /// Sends what was found; who is not there may be so the next time.
    pub(super) fn offer_to(&mut self, connection: Option<&mut Connection>) -> Result<(), Lost> {
        let sent = connection.map_or(Ok(false), |connection| self.send(connection));
        if !matches!(sent, Ok(true)) {
            log::complain(format_args!(
                "the MPS control daemon takes no UVM descriptors now: it can't hear of this process's faults"
            ));
        }
        sent.map(drop)
    }

    /// Whether the daemon has what it wants.
    fn send(&mut self, connection: &mut Connection) -> Result<bool, Lost> {
        self.is_unwanted = !connection.can(Capabilities::FOLLOWS);
        let (deadline, mut left) = (Instant::now() + PATIENCE, self.found.len());
        for number in self.found.iter().filter(|_| !self.is_unwanted) {
            left -= 1;
            let patience = deadline.saturating_duration_since(Instant::now());
            let told = connection.ask_within(Ask::Follow { more: left > 0 }, Some(*number), patience)?;
            if !matches!(told.last(), Some((Answer::Done { .. }, _))) {
                return Ok(false);
            }
        }
        self.sent.clone_from(&self.found);
        Ok(true)
    }
}

/// The numbers of the process's descriptors of the UVM driver, in order.
fn descriptors() -> Vec<RawFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter(|entry| is_uvm(&entry.path()));
    let mut numbers: Vec<RawFd> = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.truncate(MOST_FOLLOWED);
    numbers
}

/// By the name; the daemon looks at the device. A file of that name that is neither a device nor in memory is none.
fn is_uvm(entry: &Path) -> bool {
    fs::read_link(entry).is_ok_and(|target| is_named(target.as_os_str().as_bytes()))
        && fs::metadata(entry).is_ok_and(|file| file.file_type().is_char_device() || file.is_file())
}

fn is_named(path: &[u8]) -> bool {
    path.strip_suffix(REMOVED).unwrap_or(path).ends_with(NAME_END)
}

#[cfg(test)]
mod tests {
    use super::{FAULTS, descriptors, is_named};
    use std::{fs::File, os::fd::AsRawFd};

    #[test]
    fn errors_are_in_order_so_that_most_answers_are_passed_on_after_one_look() {
        assert!(FAULTS.is_sorted());
    }

    #[test]
    fn the_drivers_files_are_found_by_name() {
        assert!(is_named(b"/dev/nvidia-uvm") && is_named(b"/memfd:nvidia-uvm (deleted)"));
        assert!(!is_named(b"/dev/nvidia-uvm-tools") && !is_named(b"/dev/nvidia0"));
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("nvidia-uvm")).unwrap();
        assert!(descriptors().contains(&file.as_raw_fd()));
    }
}
