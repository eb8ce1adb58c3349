//! One process's directory in `/proc`. It stays that process's: when the process has ended nothing can be read there.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fstatat};

use crate::core::Pid;

/// Bytes read of a file that the kernel keeps short.
const MOST_BYTES: u64 = 16 * 1024;
/// Places in `stat` counted from the state, which follows the name and is field 3: the start time is field 22, the wait
/// status field 52.
const START_TIME: usize = 22 - 3;
const WAIT_STATUS: usize = 52 - 3;

/// The directory.
#[derive(Debug, Clone)]
pub(super) struct ProcDir(Arc<OwnedFd>);

impl ProcDir {
    /// Opens it; `None` when there is no such process.
    pub(super) fn open(pid: Pid) -> Option<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = open(format!("/proc/{pid}").as_str(), flags, Mode::empty()).ok()?;
        Some(Self(Arc::new(dir)))
    }

    /// That of this process, whatever its pid is in the namespace of `/proc`.
    pub(super) fn own() -> Option<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = open("/proc/self", flags, Mode::empty()).ok()?;
        Some(Self(Arc::new(dir)))
    }

    /// Opens a file in it.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let fd = openat(&*self.0, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY, Mode::empty())?;
        Ok(File::from(fd))
    }

    fn short(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// What `stat` says, all of one moment; `None` when the process is no more.
    pub(super) fn stat(&self) -> Option<Stat> {
        Stat::parse(&self.short("stat")?)
    }

    /// When the process was started, in clock ticks since boot.
    pub(super) fn start_time(&self) -> Option<u64> {
        self.stat().map(|stat| stat.start_time)
    }

    /// Whether the kernel shows this process to us as it shows it to a debugger. Where it does not, some numbers are 0.
    pub(super) fn is_open_to_us(&self) -> bool {
        fstatat(&*self.0, "ns/pid", AtFlags::empty()).is_ok()
    }

    /// A short file as text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.short(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Its cgroups, as text.
    pub(super) fn cgroup(&self) -> Option<String> {
        self.text("cgroup")
    }

    /// Its name in brackets, as `ps` shows a process without a command line.
    pub(super) fn name(&self) -> Option<String> {
        let name = self.short("comm")?;
        let name = String::from_utf8_lossy(&name);
        Some(format!("[{}]", printable(name.trim_end_matches('\n'))))
    }
}

/// Fields of `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// `Z` for a process that has ended and whose parent has not asked for its status.
    pub(super) state: u8,
    /// Clock ticks from boot to its start.
    pub(super) start_time: u64,
    /// Its wait status once it has ended; 0 also where the kernel does not show it.
    pub(super) wait_status: Option<i32>,
}

impl Stat {
    fn parse(stat: &[u8]) -> Option<Self> {
        // The name is in parentheses and may itself contain blanks and parentheses.
        let after_name = &stat[stat.iter().rposition(|byte| *byte == b')')? + 1..];
        let fields: Vec<&str> = std::str::from_utf8(after_name).ok()?.split_ascii_whitespace().collect();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            start_time: fields.get(START_TIME)?.parse().ok()?,
            wait_status: fields.get(WAIT_STATUS).and_then(|field| field.parse().ok()),
        })
    }
}

/// Text without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_moves_no_field() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = Stat::parse(format!("1 (a) Z (b) 9) Z {}\n", fields.join(" ")).as_bytes()).unwrap();
        assert_eq!(stat, Stat { state: b'Z', start_time: 22, wait_status: Some(52) });
        assert_eq!(Stat::parse(b"1 (a) Z 1 2 3"), None);
        assert_eq!(Stat::parse(b""), None);
    }
}
