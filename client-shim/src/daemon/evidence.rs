//! What a process tells the daemon of itself for the sake of faults, with `MPS_SHIM_FAULTS=tell`: its UVM descriptors, if
//! the daemon may not take them itself, and the first error that its driver answers with.
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
//! driver; for the daemon's greeting and its answer it waits [`PATIENCE_WITH_REPORTS`] each. What it is worth is the
//! daemon's to say: a victim's errors are mostly the same.

use std::{
    fs,
    os::{
        fd::RawFd,
        unix::{ffi::OsStrExt, fs::FileTypeExt},
    },
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use remps_proto::shim::{Answer, Ask, Capabilities, MOST_FOLLOWED};

use super::{connection::Connection, door};
use crate::{
    cuda::{library, result::CUresult},
    process::{log, panics::unpanicked, settings},
};

/// How long a program waits for the daemon to watch it. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a program whose context is dead waits for the daemon to hear that.
const PATIENCE_WITH_REPORTS: Duration = Duration::from_secs(1);
/// Answers of the driver that mean that work on the GPU has failed: 700, a kernel's time limit, a failed assertion, a
/// kernel's stack, instruction, alignment, address space, program counter and launch, tensor memory. Not those of a dead
/// server or of one that refuses, which nobody's work is to blame for.
const FAULTS: [u32; 10] = [700, 702, 710, 714, 715, 716, 717, 718, 719, 721];
/// How the name of the file ends, and what the kernel adds to that of one that was removed.
const NAME_END: &[u8] = b"nvidia-uvm";
const REMOVED: &[u8] = b" (deleted)";

/// What was sent last, and whether the daemon wants any.
static SENT: Mutex<(Vec<RawFd>, bool)> = Mutex::new((Vec::new(), true));

/// The copy of the driver, from 1, of which an error was told last.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Looks at an answer of the driver on its way to the program.
pub(crate) fn hear(answer: CUresult) {
    // Nearly every answer is a success.
    if answer.0 >= FAULTS[0] {
        hear_error(answer.0);
    }
}

#[cold]
fn hear_error(error: u32) {
    if !FAULTS.contains(&error) || !settings::is_telling_of_faults() {
        return;
    }
    let copy = library::generation() + 1;
    if TOLD.swap(copy, Ordering::AcqRel) == copy {
        return;
    }
    // Without a daemon there is nobody to tell.
    let _told = unpanicked(|| report(error));
}

/// Tells the daemon of an error of this process; `None` if that takes no reports.
fn report(error: u32) -> Option<()> {
    let mut connection = Connection::open_within(&door(), PATIENCE_WITH_REPORTS).ok()?;
    if !connection.welcome.capabilities.has(Capabilities::REPORTS) {
        return None;
    }
    let told = connection.ask_within(Ask::Report { error, own_work: true }, None, PATIENCE_WITH_REPORTS).ok()?;
    told.last().map(|_| ())
}

/// Sends what there is, if it is wanted and there is more than at the last time.
pub(crate) fn offer() {
    if !settings::is_telling_of_faults() {
        return;
    }
    let mut sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    if !sent.1 {
        return;
    }
    let found = descriptors();
    if found.is_empty() || found == sent.0 {
        return;
    }
    match send(&found) {
        Some(is_wanted) => *sent = (found, is_wanted),
        // The daemon may be there the next time.
        None => log::complain(format_args!(
            "the MPS control daemon takes no UVM descriptors now: it can't hear of this process's faults"
        )),
    }
}

/// Whether the daemon wants any; `None` if there is none, or it does not take them.
fn send(found: &[RawFd]) -> Option<bool> {
    let deadline = Instant::now() + PATIENCE;
    let mut connection = Connection::open(&door()).ok()?;
    if !connection.welcome.capabilities.has(Capabilities::FOLLOWS) {
        return Some(false);
    }
    for (index, number) in found.iter().enumerate() {
        let more = index + 1 < found.len();
        let left = deadline.saturating_duration_since(Instant::now());
        let told = connection.ask_within(Ask::Follow { more }, Some(*number), left).ok()?;
        if !matches!(told.last(), Some((Answer::Done { .. }, _))) {
            return None;
        }
    }
    Some(true)
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
