//! A `/proc` of another PID namespace than this process's own, as a container has it where the machine's is mounted. It
//! shows processes that have no pid here, and says itself which of them a process descriptor names: in `fdinfo` pids are
//! those of the mount's namespace and not the reader's.

use super::proc::{self, ProcDir};
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// Where it is mounted.
#[derive(Debug, Clone)]
pub(crate) struct OtherProc(PathBuf);

/// A process that is seen there.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Its pid there.
    pub pid: u32,
    /// Its directory there.
    pub dir: ProcDir,
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

impl OtherProc {
    /// Takes a folder for one.
    ///
    /// # Errors
    /// When it can't be looked at, is no such file system, or does not show this very process.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        if statfs(folder)?.filesystem_type() != PROC_SUPER_MAGIC {
            return Err(io::Error::other("it is no proc file system"));
        }
        // Without a process here to read by there is no `fdinfo`.
        match std::fs::read_link(folder.join("self")) {
            Ok(_) => Ok(Self(folder.to_owned())),
            Err(_) => Err(io::Error::other("it does not show the daemon: it is of a namespace beside the daemon's")),
        }
    }

    /// The pid there of the process that a descriptor names.
    fn pid_of(&self, pidfd: &impl AsFd) -> io::Result<u32> {
        let path = self.0.join("self/fdinfo").join(pidfd.as_fd().as_raw_fd().to_string());
        let text = std::fs::read_to_string(path)?;
        let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")).ok_or_else(gone)?;
        // Of one that has been reaped it is -1, of one that is not seen there 0.
        pid.trim().parse().ok().filter(|pid| *pid != 0).ok_or_else(gone)
    }

    /// Has the directory of a process there found by a number that no process has here, as by a pid.
    pub(crate) fn show(&self, number: u32, pid: u32) {
        proc::show(number, &self.0.join(pid.to_string()));
    }

    /// Whether it shows the processes of the first PID namespace, of which the kernel's log speaks.
    pub(crate) fn is_first(&self) -> bool {
        ProcDir::below(&self.0, 1).is_some_and(|first| first.is_in_first_pid_namespace())
    }

    /// What a process there is known by here: its pid, or the number under which its directory is found.
    pub(crate) fn here(&self, pid: u32) -> Option<u32> {
        proc::number_of(&self.0.join(pid.to_string())).or_else(|| ProcDir::below(&self.0, pid)?.pid_in_ours())
    }

    /// The process that a descriptor names.
    ///
    /// # Errors
    /// `ESRCH` when it has ended or is not seen there, too.
    pub(crate) fn find(&self, pidfd: &impl AsFd) -> io::Result<Seen> {
        let pid = self.pid_of(pidfd)?;
        let dir = ProcDir::below(&self.0, pid).ok_or_else(gone)?;
        // It has its pid until it is reaped: if it has it still, the directory was opened for nobody else.
        if self.pid_of(pidfd)? == pid { Ok(Seen { pid, dir }) } else { Err(gone()) }
    }
}

/// Has the directory found by this number no more.
pub(crate) fn hide(number: u32) {
    proc::hide(number);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pidfd;
    use std::process::{Command, Stdio};

    /// Above all pids.
    const NUMBER: u32 = (1 << 22) + 77;

    #[test]
    fn a_process_is_found_by_its_descriptor_while_it_lives_and_no_other_one_is() {
        let there = OtherProc::open(Path::new(proc::FOLDER)).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = pidfd::open(nix::unistd::Pid::from_raw(child.id().cast_signed())).unwrap();
        let seen = there.find(&process).unwrap();
        assert_eq!((seen.pid, seen.dir.start_time().is_some()), (child.id(), true));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(there.find(&process).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        // By a number that is no pid it is found here as well, as long as that is wanted.
        let own = std::process::id();
        assert!(ProcDir::open(NUMBER).is_none());
        there.show(NUMBER, own);
        there.show(own, 1);
        let by_number = ProcDir::open(NUMBER).unwrap().start_time();
        assert_eq!(by_number, ProcDir::open(own).unwrap().start_time(), "a pid is nobody else's");
        assert!(proc::path_in(NUMBER, "fd").ends_with(&format!("/{own}/fd")));
        let parent = std::os::unix::process::parent_id();
        assert_eq!(there.here(own), Some(NUMBER));
        assert_eq!((there.here(parent), there.here(child.id())), (Some(parent), None), "one has ended");
        hide(NUMBER);
        assert_eq!(there.here(own), Some(own));
        assert!(ProcDir::open(NUMBER).is_none());
        // What names no process at all.
        let (reader, _writer) = io::pipe().unwrap();
        assert!(there.find(&reader).is_err());
    }

    #[test]
    fn what_is_no_proc_is_told() {
        let error = OtherProc::open(Path::new("/dev")).unwrap_err().to_string();
        assert!(error.contains("no proc file system"), "{error}");
        assert!(OtherProc::open(Path::new("/no/such/folder")).is_err());
    }
}
