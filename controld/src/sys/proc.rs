//! `/proc`: where its files are, and one process's directory there. The directory stays that process's: when the process
//! has ended nothing can be read there. Nobody else writes such a path (`tests/leaf_floors.rs`).

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use std::collections::BTreeMap;

use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fstatat};

/// Where the kernel tells of processes and of itself.
pub(crate) const FOLDER: &str = "/proc";
/// This program's file, even when another one has its name by now.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";
/// A folder for each descriptor of this process, by its number.
pub(crate) const OWN_DESCRIPTORS: &str = "/proc/self/fd";
/// A folder for each thread of this process.
pub(crate) const OWN_THREADS: &str = "/proc/self/task";
/// Users, capabilities and more of this process.
pub(crate) const OWN_STATUS: &str = "/proc/self/status";
/// What is mounted where for this process.
pub(crate) const OWN_MOUNTS: &str = "/proc/self/mountinfo";
/// A path that nobody can make.
pub(crate) const NOWHERE: &str = "/proc/self/no-mps";
/// The major numbers of drivers.
pub(crate) const DEVICES: &str = "/proc/devices";
/// The driver's own folder.
pub(crate) const NVIDIA: &str = "/proc/driver/nvidia";
/// The release of the loaded kernel module.
pub(crate) const NVIDIA_VERSION: &str = "/proc/driver/nvidia/version";
/// A folder for each GPU.
pub(crate) const NVIDIA_GPUS: &str = "/proc/driver/nvidia/gpus";
/// A number that is another one after each boot.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// What the host is called.
pub(crate) const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// What is wrong where this process has no directory there.
pub(crate) const MISSING: &str = "/proc is not mounted here, or is that of another PID namespace, and by it the daemon \
    makes its sockets and starts its processes: mount it before (mount -t proc proc /proc), in a chroot or a container \
    there";
/// The inode of the first PID namespace on every Linux (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`).
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;
/// Bytes read of a file that the kernel keeps short.
const MOST_BYTES: u64 = 16 * 1024;
/// Places in `stat` counted from the state, which follows the name and is field 3: the start time is field 22, the wait
/// status field 52.
const START_TIME: usize = 22 - 3;
const WAIT_STATUS: usize = 52 - 3;
/// Field 9, the kernel's flags of the thread.
const FLAGS: usize = 9 - 3;
/// `PF_EXITING`: it never runs anything of its program again. Set before its files are closed, and never taken back.
const EXITING: u32 = 4;
/// Threads of a process that are looked at.
const MOST_THREADS: usize = 4096;

/// The directory.
#[derive(Debug, Clone)]
pub(crate) struct ProcDir(Arc<OwnedFd>);

impl ProcDir {
    /// Opens it; `None` when there is no such process.
    pub(crate) fn open(pid: u32) -> Option<Self> {
        Self::at(of(pid))
    }

    /// That of this process, whatever its pid is in the namespace of `/proc`.
    pub(crate) fn own() -> Option<Self> {
        Self::at("/proc/self")
    }

    /// That of a process in another mount of `/proc`, by its pid there.
    pub(super) fn below(folder: &Path, pid: u32) -> Option<Self> {
        Self::at(folder.join(pid.to_string()))
    }

    fn at(path: impl AsRef<Path>) -> Option<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Some(Self(Arc::new(open(path.as_ref(), flags, Mode::empty()).ok()?)))
    }

    /// Opens a file in it.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        let fd = openat(&*self.0, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY, Mode::empty())?;
        Ok(File::from(fd))
    }

    /// What is in a short file.
    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// What `stat` says, all of one moment; `None` when the process is no more.
    pub(crate) fn stat(&self) -> Option<Stat> {
        Stat::parse(&self.bytes("stat")?)
    }

    /// Whether no thread of it runs anything of its program any more: they all end, and have not ended yet or have.
    pub(crate) fn is_past_running(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("{}/task", path_of(&*self.0))) else { return false };
        let mut seen = 0;
        for thread in threads {
            let Ok(thread) = thread else { return false };
            seen += 1;
            // One that is gone meanwhile runs nothing.
            let Ok(stat) = std::fs::read(thread.path().join("stat")) else { continue };
            if seen > MOST_THREADS || Stat::parse(&stat).is_none_or(|stat| stat.flags & EXITING == 0) {
                return false;
            }
        }
        seen > 0
    }

    /// When the process was started, in clock ticks since boot.
    pub(crate) fn start_time(&self) -> Option<u64> {
        self.stat().map(|stat| stat.start_time)
    }

    /// Which namespace of a kind it is in: device and inode.
    ///
    /// # Errors
    /// `ENOENT` where the kernel has no such kind, `EACCES` without the right to trace the process.
    pub(crate) fn namespace(&self, kind: &str) -> nix::Result<(u64, u64)> {
        let found = fstatat(&*self.0, format!("ns/{kind}").as_str(), AtFlags::empty())?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Whether the kernel shows this process to us as it shows it to a debugger. Where it does not, some numbers are 0.
    pub(crate) fn is_open_to_us(&self) -> bool {
        self.namespace("pid").is_ok()
    }

    /// Whether its pid in the first PID namespace is its only one.
    pub(crate) fn is_in_first_pid_namespace(&self) -> bool {
        self.namespace("pid").is_ok_and(|(_, inode)| inode == FIRST_PID_NAMESPACE)
    }

    /// Its pid in this process's own PID namespace, where it is in that and not in one below.
    pub(super) fn pid_in_ours(&self) -> Option<u32> {
        let own = Self::own()?.namespace("pid").ok()?;
        (self.namespace("pid").ok()? == own).then_some(())?;
        let status = self.text("status")?;
        status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().next_back()?.parse().ok()
    }

    /// Whether the process has no PID in a namespace below that of `/proc`.
    pub(crate) fn has_one_pid(&self) -> bool {
        self.text("status").is_some_and(|status| has_one_pid(&status))
    }

    /// A short file as text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Its cgroups, as text.
    pub(crate) fn cgroup(&self) -> Option<String> {
        self.text("cgroup")
    }

    /// Its name in brackets, as `ps` shows a process without a command line.
    pub(crate) fn name(&self) -> Option<String> {
        let name = self.bytes("comm")?;
        let name = String::from_utf8_lossy(&name);
        Some(format!("[{}]", printable(name.trim_end_matches('\n'))))
    }
}

fn has_one_pid(status: &str) -> bool {
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    pids.is_some_and(|pids| pids.split_whitespace().count() == 1)
}

/// Whether this process's pids are those that the kernel and its drivers speak of.
pub(crate) fn is_in_first_pid_namespace() -> bool {
    ProcDir::own().is_some_and(|own| own.is_in_first_pid_namespace())
}

/// Whether this process has its directory there, by which it finds its own files and its program.
pub(crate) fn is_there() -> bool {
    std::fs::symlink_metadata(OWN_DESCRIPTORS).is_ok()
}

/// The error of something that goes by that directory, which the kernel calls a missing file where it is missing.
pub(crate) fn explained(error: io::Error) -> io::Error {
    if is_there() { error } else { io::Error::other(MISSING) }
}

/// The effective capabilities of this process, a bit each.
pub(crate) fn own_capabilities() -> Option<u64> {
    let status = std::fs::read_to_string(OWN_STATUS).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// The path of an open file, whatever has its name by now; good while it is open.
pub(crate) fn path_of(file: impl AsFd) -> String {
    format!("{OWN_DESCRIPTORS}/{}", file.as_fd().as_raw_fd())
}

/// The path of a process's directory. Whose pid it is by now is not said: [`ProcDir`] stays with one process.
pub(crate) fn of(pid: impl Display) -> String {
    let pid = pid.to_string();
    shown(&pid).unwrap_or_else(|| format!("{FOLDER}/{pid}"))
}

/// The path of a file in a process's directory.
pub(crate) fn path_in(pid: impl Display, name: &str) -> String {
    format!("{}/{name}", of(pid))
}

/// Directories in other mounts, of processes that have a number above all pids here ([`super::other_proc`]).
static ELSEWHERE: RwLock<BTreeMap<u32, String>> = RwLock::new(BTreeMap::new());
/// The kernel gives no pid from here on.
const NO_PID: u32 = 1 << 22;

fn shown(pid: &str) -> Option<String> {
    let number = pid.parse().ok().filter(|number| *number >= NO_PID)?;
    ELSEWHERE.read().get(&number).cloned()
}

/// Has the directory of a process found by a number that is no pid.
pub(super) fn show(number: u32, directory: &Path) {
    if number >= NO_PID {
        ELSEWHERE.write().insert(number, directory.display().to_string());
    }
}

/// The number by which that directory is found.
pub(super) fn number_of(directory: &Path) -> Option<u32> {
    let directory = directory.display().to_string();
    ELSEWHERE.read().iter().find(|(_, shown)| **shown == directory).map(|(number, _)| *number)
}

/// Has it found no more.
pub(super) fn hide(number: u32) {
    if number >= NO_PID {
        ELSEWHERE.write().remove(&number);
    }
}

/// Fields of `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// `Z` for a process that has ended and whose parent has not asked for its status.
    pub(crate) state: u8,
    /// The kernel's, `PF_…`.
    pub(crate) flags: u32,
    /// Clock ticks from boot to its start.
    pub(crate) start_time: u64,
    /// Its wait status once it has ended; 0 also where the kernel does not show it.
    pub(crate) wait_status: Option<i32>,
}

impl Stat {
    pub(crate) fn parse(stat: &[u8]) -> Option<Self> {
        // The name is in parentheses and may itself contain blanks and parentheses.
        let after_name = &stat[stat.iter().rposition(|byte| *byte == b')')? + 1..];
        let fields: Vec<&str> = std::str::from_utf8(after_name).ok()?.split_ascii_whitespace().collect();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            flags: fields.get(FLAGS)?.parse().ok()?,
            start_time: fields.get(START_TIME)?.parse().ok()?,
            wait_status: fields.get(WAIT_STATUS).and_then(|field| field.parse().ok()),
        })
    }
}

/// Text without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_moves_no_field() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = Stat::parse(format!("1 (a) Z (b) 9) Z {}\n", fields.join(" ")).as_bytes()).unwrap();
        assert_eq!(stat, Stat { state: b'Z', flags: 9, start_time: 22, wait_status: Some(52) });
        assert_eq!(Stat::parse(b"1 (a) Z 1 2 3"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn a_process_of_a_namespace_below_has_more_pids_than_one() {
        assert!(has_one_pid("Name:\tcat\nNSpid:\t17\nNSpgid:\t17\n"));
        assert!(!has_one_pid("Name:\tcat\nNSpid:\t17\t1\n"));
        assert!(!has_one_pid("Name:\tcat\n"), "before Linux 4.1");
    }
}
