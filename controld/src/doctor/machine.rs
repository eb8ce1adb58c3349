//! The facts that checks work with.
//!
//! Tests make folders that stand for `/proc`, `/sys` and `/dev`; whatever is no file is a field, found out by `gather`.

use crate::devices::gpus::ProbedGpu;
use crate::settings::ConfigFile;
use remps_proto::notice::Mode;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes read of any file.
const MOST_BYTES: u64 = 1 << 20;

/// A machine, as far as checks see it.
pub(super) struct Machine {
    /// Where `proc`, `sys` and `dev` are: `/`, or a made-up tree.
    pub(super) root: PathBuf,
    /// The daemon's pid, where it is known.
    pub(super) daemon_pid: Option<u32>,
    /// What was learnt by asking.
    pub(super) daemon: Daemon,
    /// `CUDA_MPS_PIPE_DIRECTORY` or its default.
    pub(super) pipe_directory: PathBuf,
    /// `CUDA_MPS_LOG_DIRECTORY` or its default.
    pub(super) log_directory: PathBuf,
    /// The configuration, or everything that is wrong with it.
    pub(super) config: Result<ConfigFile, String>,
    /// What is wrong with the environment, or out of date in the configuration.
    pub(super) remarks: Vec<String>,
    /// This program's file.
    pub(super) own_program: PathBuf,
    /// `PATH`.
    pub(super) search_path: Option<OsString>,
    /// `MPS_SERVER_BINARY`.
    pub(super) server_binary: Option<OsString>,
    /// Where the driver's library may lie.
    pub(super) library_folders: Vec<PathBuf>,
    /// What `nvidia-smi` says of the GPUs, or why it says nothing.
    pub(super) gpus: Result<Vec<Gpu>, String>,
    /// What the management library says of their compute modes and of who is on them, or why nothing.
    pub(super) look: Result<Vec<ProbedGpu>, String>,
    /// Opens a file for reading and writing, and closes it: only so is seen what a cgroup or a security module refuses.
    pub(super) open: fn(&Path) -> io::Result<()>,
    /// What the patched module does about faults now, by its device.
    pub(super) fault_mode: fn(&Path) -> io::Result<Mode>,
    /// The size of a file system.
    pub(super) space: fn(&Path) -> io::Result<Space>,
    /// Who listens at an address as `observe.listen` has it.
    pub(super) listening: fn(&str) -> Listening,
}

/// A GPU, in the words of `nvidia-smi`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Gpu {
    pub(super) index: String,
    pub(super) compute_mode: String,
    pub(super) persistence: String,
    pub(super) mig: String,
}

/// A file system's size, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) total: u64,
    /// What this user may still write.
    pub(super) free: u64,
}

/// Who listens where metrics are to be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Listening {
    /// Nobody.
    Nobody,
    /// A daemon of ours.
    Ours,
    /// Somebody who does not answer as a daemon of ours does.
    Another,
    /// That can't be found out, for this reason.
    Unknown(String),
}

/// What answers in the pipe directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Daemon {
    /// Nobody, and there is no socket.
    Absent,
    /// Nobody listens on the socket that is there.
    StaleSocket,
    /// Connections are kept for a daemon that is to come.
    Awaited,
    /// A daemon is there and does not answer, for this reason.
    Silent(String),
    /// A daemon answers.
    Answers {
        /// How long that took.
        took: Duration,
        /// Its servers with their status, where the release tells it.
        servers: Vec<(u32, String)>,
    },
}

impl Machine {
    /// A path below `/proc`.
    pub(super) fn proc(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("proc").join(path)
    }

    /// A path below `/sys`.
    pub(super) fn sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("sys").join(path)
    }

    /// A path below `/dev`.
    pub(super) fn dev(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("dev").join(path)
    }

    /// The folder below `/proc` of the process that is judged: the daemon, else this one.
    pub(super) fn judged(&self) -> PathBuf {
        self.proc(self.daemon_pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string()))
    }

    /// What to call it.
    pub(super) fn judged_name(&self) -> &'static str {
        if self.daemon_pid.is_some() { "the daemon" } else { "a daemon started from here" }
    }

    /// The value of a line of `status` of the process that is judged.
    pub(super) fn status(&self, key: &str) -> Option<String> {
        let text = read(&self.judged().join("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// Whether the process that is judged has a capability; `None` when that can't be read.
    pub(super) fn has_capability(&self, number: u32) -> Option<bool> {
        let mask = u64::from_str_radix(&self.status("CapEff")?, 16).ok()?;
        Some(mask >> number & 1 == 1)
    }

    /// The inode of a namespace of the process that is judged.
    pub(super) fn namespace(&self, kind: &str) -> Option<u64> {
        let link = fs::read_link(self.judged().join("ns").join(kind)).ok()?;
        let number = link.to_str()?.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?;
        number.parse().ok()
    }
}

/// A text file; `None` when it can't be read. Bytes that are no text are replaced.
pub(super) fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The numbers in a folder's names, such as the pids in `/proc`.
pub(super) fn numbers_in(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}
