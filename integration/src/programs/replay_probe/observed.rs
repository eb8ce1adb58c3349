//! The process as the kernel shows it, in files.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The library's thread that gives back what a dead copy had.
const GIVING_BACK: &str = "mps-shim-copy\n";
/// How long that may take, with all tries on a slow machine, and between two looks.
const PATIENCE: Duration = Duration::from_secs(90);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

fn entries(folder: &str) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// How much the process has of what it could run out of, once the library has given back what it gives back.
pub(super) fn resources() -> Value {
    let name_of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    while entries("/proc/self/task").map(name_of).any(|name| name == GIVING_BACK) && Instant::now() < deadline {
        std::thread::park_timeout(BETWEEN_LOOKS);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    json!({
        "descriptors": entries("/proc/self/fd").count(), "threads": entries("/proc/self/task").count(),
        "mappings": maps.lines().count(), "libraries": maps.matches("/fd/").count() + maps.matches("(deleted)").count(),
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
