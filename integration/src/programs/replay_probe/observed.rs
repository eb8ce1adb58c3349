//! The process as the kernel shows it, in files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

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
