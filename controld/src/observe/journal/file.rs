//! The journal's file: appended, capped, and read back at the start.
//!
//! At the cap the file is renamed to `events.jsonl.1`, replacing the one before, and a new one is begun. So the two
//! never have more than twice the cap, and a follower by name (`tail -F`) misses nothing. Unlike the logs, which old
//! programs follow by descriptor, nobody has read this file before.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;

use crate::io::append;

/// Command lines and cgroups of all users stand in it: the owner writes, his group may read.
const MODE: Mode = Mode::from_bits_truncate(0o640);
/// How much of the end of a file is read at the start: enough for hundreds of events.
const TAIL: u64 = 256 << 10;

/// An open journal file.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    file: File,
    size: u64,
    cap: u64,
    /// Whether the last line has no end: a daemon was killed in the middle of it, or the disk was full.
    torn: bool,
}

impl JournalFile {
    /// Opens the file for appending and makes it if it does not exist. It may be a link or a device; then it has no cap.
    /// What other users could lead it to is refused ([`append`]).
    pub(super) fn open(path: &Path, cap: u64) -> io::Result<Self> {
        let file = append::open(path, MODE)?;
        let metadata = file.metadata()?;
        let cap = if metadata.is_file() { cap } else { u64::MAX };
        let torn = metadata.is_file() && !ends_with_a_line(&file, metadata.len());
        Ok(Self { path: path.to_owned(), file, size: metadata.len(), cap, torn })
    }

    /// Appends a line and its end.
    ///
    /// # Errors
    /// What the kernel says, as `ENOSPC`. A line that was cut short is ended before the next one.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(line.len() + 2);
        if self.torn {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        if self.size > 0 && self.size.saturating_add(bytes.len() as u64) > self.cap {
            self.begin_anew()?;
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = &rest[count..];
                    self.size += count as u64;
                    self.torn = !rest.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether nobody can find it any more: it was removed, or its directory.
    pub(super) fn is_removed(&self) -> bool {
        append::is_removed(&self.file)
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        match fs::rename(&self.path, earlier(&self.path)) {
            // Somebody has renamed or removed it already.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        *self = Self::open(&self.path, self.cap)?;
        Ok(())
    }
}

/// The name of the file before.
fn earlier(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".1");
    PathBuf::from(name)
}

fn ends_with_a_line(file: &File, size: u64) -> bool {
    let last = || {
        let mut file = append::read_again(file)?;
        file.seek(SeekFrom::Start(size.saturating_sub(1)))?;
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        Ok::<u8, io::Error>(byte[0])
    };
    // A file that can't be read gets a line end too many, which readers skip, rather than a line run into another.
    size == 0 || last().is_ok_and(|byte| byte == b'\n')
}

/// The newest whole lines of the journal, oldest first: of the file, or of the one before when it has none.
///
/// A last line without its end was never finished, and is none. What is not UTF-8 is not of this daemon.
pub(super) fn newest_lines(path: &Path) -> Vec<String> {
    let lines = tail(path);
    if lines.is_empty() { tail(&earlier(path)) } else { lines }
}

fn tail(path: &Path) -> Vec<String> {
    let read = || {
        // A FIFO or a device is written to and can't be read back.
        let mut file = append::read(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        // The first line is cut when more was there than is read.
        let start =
            if size > TAIL { bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1) } else { 0 };
        Ok::<_, io::Error>(bytes.split_off(start))
    };
    let Ok(bytes) = read() else {
        return Vec::new();
    };
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let lines = bytes[..whole].split(|&byte| byte == b'\n');
    lines
        .filter_map(|line| std::str::from_utf8(line).ok())
        .filter(|line| sequence(line).is_some())
        .map(str::to_owned)
        .collect()
}

/// The number of a line; `None` when it is no line of a journal.
pub(super) fn sequence(line: &str) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    value["time"].as_str().zip(value["event"].as_str())?;
    value["seq"].as_u64()
}
