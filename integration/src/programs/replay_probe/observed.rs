//! The process as the kernel shows it, in files.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The library's thread that gives back what a dead copy had.
const GIVING_BACK: &str = "mps-shim-copy\n";
/// How long that may take, with all tries on a slow machine, and between two looks.
const PATIENCE: Duration = Duration::from_secs(90);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// The first copies stay for good.
const FIRST_STEADY: usize = 5;

fn entries(folder: &str) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Heaps that the C library has for threads, and mappings that are none of these: 64 MiB at a multiple of that, writable as
/// far as they were used (glibc's `malloc/arena.c`, `HEAP_MAX_SIZE`). A thread that ends in the middle of a system call
/// leaves its own to nobody, and when there are eight for each CPU the library makes no more.
fn arenas(maps: &str) -> (usize, usize) {
    const SIZE: u64 = 64 << 20;
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let access = words.next()?.to_owned();
        let has_file = words.count() > 3;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?, access, has_file))
    };
    let ranges: Vec<_> = maps.lines().filter_map(parse).collect();
    let (mut found, mut parts) = (0, 0);
    for (at, (start, end, access, has_file)) in ranges.iter().enumerate() {
        let rest = ranges.get(at + 1).filter(|next| next.0 == *end && next.2 == "---p" && !next.3);
        let is_whole = |end: u64| end - start == SIZE;
        if start % SIZE == 0 && access == "rw-p" && !has_file {
            if is_whole(*end) {
                (found, parts) = (found + 1, parts + 1);
            } else if rest.is_some_and(|next| is_whole(next.1)) {
                (found, parts) = (found + 1, parts + 2);
            }
        }
    }
    (found, maps.lines().count() - parts)
}

/// What was seen of copies of the driver at earlier looks: how many looks, the least mappings of their files, and how long any
/// more of them may be waited for.
static SEEN: Mutex<(usize, usize, Duration)> = Mutex::new((0, usize::MAX, PATIENCE));

/// Mappings of files of copies of the driver.
fn libraries(maps: &str) -> usize {
    maps.matches("/fd/").count() + maps.matches("(deleted)").count()
}

/// Waits until there are no more copies than there were: on a busy machine the library gives one back later.
fn wait_for_copies() {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (looks, least, left) = *seen;
    let begin = Instant::now();
    let there = || libraries(&fs::read_to_string("/proc/self/maps").unwrap_or_default());
    let mut now = there();
    while now > least && begin.elapsed() < left {
        std::thread::park_timeout(BETWEEN_LOOKS);
        now = there();
    }
    let is_steady = looks + 1 >= FIRST_STEADY;
    *seen = (looks + 1, if is_steady { now.min(least) } else { least }, left.saturating_sub(begin.elapsed()));
}

/// How much the process has of what it could run out of, once the library has given back what it gives back. The thread that
/// does so for the last recovery has its name once that one's dead copy is cut off.
pub(super) fn resources() -> Value {
    let _is_cut_off = super::last::get().map(super::last::Recovery::when_cut_off);
    let name_of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    while entries("/proc/self/task").map(name_of).any(|name| name == GIVING_BACK) && Instant::now() < deadline {
        std::thread::park_timeout(BETWEEN_LOOKS);
    }
    wait_for_copies();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let (arenas, others) = arenas(&maps);
    json!({
        "descriptors": entries("/proc/self/fd").count(), "threads": entries("/proc/self/task").count(),
        "mappings": others, "arenas": arenas, "libraries": libraries(&maps),
        "resident_kib": kib("VmRSS:"), "addresses_kib": kib("VmSize:"),
    })
}

/// Writes mappings and descriptors to files of this name. What cannot be written is missed by whoever reads it.
pub(super) fn write(folder: &Path, name: &str) {
    let own = folder.join(format!("{}-{name}", std::process::id()));
    let _missed = fs::copy("/proc/self/maps", own.with_extension("maps"));
    let mut text = String::new();
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let link = fs::read_link(entry.path()).unwrap_or_default();
        let _fits = writeln!(text, "{} {}", entry.file_name().display(), link.display());
    }
    let _fits = writeln!(text, "threads {}", fs::read_dir("/proc/self/task").into_iter().flatten().count());
    let _missed = fs::write(own.with_extension("descriptors"), text);
}

#[cfg(test)]
mod tests {
    use super::arenas;

    #[test]
    fn heaps_for_threads_are_told_from_other_mappings() {
        let maps = "\
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
7f0004000000-7f0008000000 rw-p 00000000 00:00 0 
7f0008000000-7f0008021000 rw-p 00000000 00:00 0 
7f0008021000-7f000a000000 ---p 00000000 00:00 0 
7f000c000000-7f000c021000 rw-p 00000000 fe:10 42                         /some/file
7f000c021000-7f0010000000 ---p 00000000 00:00 0 
";
        assert_eq!(arenas(maps), (2, 4));
    }
}
