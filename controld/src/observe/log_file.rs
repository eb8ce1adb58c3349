//! One log file with a size cap.
//!
//! When the cap is reached, the newest half is copied to `NAME.1` (replacing the one before) and the file is truncated
//! to nothing, in place: never renamed, because both Kubernetes users follow it with `tail -f`, by descriptor. Keeping
//! the newest half in the file itself would keep more for a reader who opens it, but `tail -f` starts at the front again
//! when a file has shrunk, and would print that half a second time.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;

use crate::io::append;

/// What is wrong with a file that has no name any more.
pub(super) const REMOVED: &str = "it was removed, and what is written there is lost";
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);

/// Makes a log directory (mode 0700) unless it exists; only its last part.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

/// An open log file.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// `O_APPEND`, so that every line goes to the end even when someone else truncates the file.
    file: File,
    /// As far as we know; someone else may have truncated it.
    size: u64,
    cap: u64,
    /// Whether the last line was cut short, by a full disk.
    torn: bool,
    truncations: u64,
}

impl LogFile {
    /// Opens a file for appending and makes it (mode 0644) if it does not exist. It may be a link or a device, as
    /// containers have it; then it has no cap. What other users could lead it to is refused ([`append`]).
    pub(super) fn open(path: &Path, cap: u64) -> io::Result<Self> {
        let file = append::open(path, FILE_MODE)?;
        let metadata = file.metadata()?;
        let cap = if metadata.is_file() { cap } else { u64::MAX };
        Ok(Self { path: path.to_owned(), file, size: metadata.len(), cap, torn: false, truncations: 0 })
    }

    /// Opens the file anew by its name.
    ///
    /// # Errors
    /// What the kernel says; the old one is then kept.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let truncations = self.truncations;
        *self = Self { truncations, ..Self::open(&self.path, self.cap)? };
        Ok(())
    }

    /// Its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The size at which it is truncated.
    pub(super) fn cap(&self) -> u64 {
        self.cap
    }

    /// Whether nobody can find it any more: it was removed, or its directory.
    pub(super) fn is_removed(&self) -> bool {
        append::is_removed(&self.file)
    }

    /// Times that the file was truncated.
    pub(super) fn truncations(&self) -> u64 {
        self.truncations
    }

    /// Appends whole lines.
    ///
    /// # Errors
    /// What the kernel says, as `ENOSPC`. A line that was cut short is ended before the next one.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.size.saturating_add(lines.len() as u64) > self.cap {
            self.truncate(lines.len() as u64)?;
        }
        if self.torn {
            self.write(b"\n")?;
            self.torn = false;
        }
        self.write(lines)
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len();
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.size += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.torn |= bytes.len() < length;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn truncate(&mut self, coming: u64) -> io::Result<()> {
        // Someone else may have truncated it since.
        self.size = self.file.metadata()?.len();
        if self.size.saturating_add(coming) <= self.cap || self.size == 0 {
            return Ok(());
        }
        // What cannot be kept (a full disk) is lost; the cap holds in any case.
        let _ = self.keep_newest_half();
        self.file.set_len(0)?;
        self.size = 0;
        self.torn = false;
        self.truncations += 1;
        Ok(())
    }

    fn keep_newest_half(&self) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".1");
        append::replace(Path::new(&name), FILE_MODE, |to| {
            let mut from = append::read_again(&self.file)?;
            from.seek(SeekFrom::Start(self.size - self.size / 2))?;
            io::copy(&mut from.take(self.size / 2), to).map(drop)
        })
    }
}
