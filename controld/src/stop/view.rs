//! Pids of this namespace and of the daemon's.
//!
//! A hook often runs in a container whose pids the daemon has never seen, and a daemon in a container counts otherwise
//! than the host. The kernel tells as much as can be known: `NSpid` of `/proc/PID/status` has a process's pid in each
//! namespace from that of the mounted `/proc` to its own, and `/proc/PID/ns/pid` names its own.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Bytes read of a file in `/proc`.
const MOST_PROC_BYTES: u64 = 16 * 1024;

/// How the daemon's pids relate to those of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// They are the same.
    Same,
    /// The daemon is in this namespace within ours; its pids are the innermost ones of the processes there.
    Within(u64),
    /// The daemon can't be seen from here, or not well enough.
    Unknown,
}

/// How the daemon counts that has answered as process `speaker`.
pub(super) fn view(proc: &Path, speaker: u32) -> View {
    let (own, theirs) = (pids(proc, "self"), pids(proc, &speaker.to_string()));
    match (own.len(), theirs.len()) {
        // The kernel says 0 of a process that can't be seen, and there is no such folder.
        (0, _) | (_, 0) => View::Unknown,
        // Whoever can be seen from here is in this namespace or within it, and this one has as many above it.
        (ours, theirs) if ours == theirs => View::Same,
        _ => namespace(proc, &speaker.to_string()).map_or(View::Unknown, View::Within),
    }
}

/// The pid that the daemon has for a process of ours; `None` when that can't be known.
pub(super) fn as_seen(proc: &Path, view: View, pid: u32) -> Option<u32> {
    match view {
        View::Same => Some(pid),
        View::Within(inode) if namespace(proc, &pid.to_string()) == Some(inode) => {
            pids(proc, &pid.to_string()).last().copied()
        }
        View::Within(_) | View::Unknown => None,
    }
}

/// The inode of a process's pid namespace, by which the daemon names it too.
pub(super) fn namespace(proc: &Path, process: &str) -> Option<u64> {
    let link = fs::read_link(proc.join(process).join("ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The pids of a process in each namespace, from that of the mounted `/proc` on; empty when there is no such process.
fn pids(proc: &Path, process: &str) -> Vec<u32> {
    let status = status_of(proc, process);
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Whether a process has a handler for SIGTERM: if not, the signal ends it on the spot, whatever it is doing.
pub(super) fn handles_sigterm(proc: &Path, pid: u32) -> bool {
    const SIGTERM_BIT: u32 = libc::SIGTERM.cast_unsigned() - 1;
    let status = status_of(proc, &pid.to_string());
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> SIGTERM_BIT & 1 == 1)
}

fn status_of(proc: &Path, process: &str) -> String {
    let mut text = String::new();
    // A process that is gone, or text that is none, has no lines.
    let _ = File::open(proc.join(process).join("status"))
        .and_then(|file| file.take(MOST_PROC_BYTES).read_to_string(&mut text));
    text
}
