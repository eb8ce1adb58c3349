//! Giving GPUs back their compute modes when the daemon is dead and no other has come.
//!
//! The holder loads nothing of NVIDIA's either: a child of the same program does what is to be done and ends. It changes
//! only what the daemon has set and nobody has changed since, and on no GPU whose mode another daemon of the machine counts
//! on: the last one gives it back.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use remps_proto::holder::{ModeNote, ModesNote};

use crate::devices::gpus::{Change, change_arguments};
use crate::patience::patient;
use crate::sys::child::unblock_signals;
use crate::sys::proc::OWN_PROGRAM;

/// How long the child may take: without persistence mode it first wakes every GPU up.
const LIMIT: Duration = Duration::from_secs(30);

/// A child that is at it.
#[derive(Debug)]
pub(super) struct Restoring {
    child: Child,
    until: Instant,
    /// The locked records: no other daemon begins to count on a mode meanwhile.
    _records: Vec<File>,
}

impl Restoring {
    /// Starts a child where there is anything to give back. There is nobody to tell when none can be started.
    pub(super) fn begin(note: &ModesNote, records: Vec<(String, OwnedFd)>) -> Option<Self> {
        let records: Vec<(String, File)> = records.into_iter().map(|(uuid, file)| (uuid, file.into())).collect();
        let (last, shared): (Vec<_>, Vec<_>) = records.into_iter().partition(|(_, file)| file.try_lock().is_ok());
        let is_shared = |gpu: &ModeNote| shared.iter().any(|(uuid, _)| *uuid == gpu.uuid);
        let change = |gpu: &ModeNote| Change { uuid: gpu.uuid.clone(), from: gpu.set, to: gpu.original };
        let changes: Vec<Change> = note.owed().filter(|gpu| !is_shared(gpu)).map(change).collect();
        if changes.is_empty() {
            return None;
        }
        let folders: Vec<PathBuf> = note.records.iter().map(|path| OsString::from_vec(path.clone()).into()).collect();
        let mut command = Command::new(OWN_PROGRAM);
        command
            .args(change_arguments(Path::new(&note.library), &folders, &changes))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        unblock_signals(&mut command);
        let files = last.into_iter().map(|(_, file)| file).collect();
        Some(Self { child: command.spawn().ok()?, until: Instant::now() + patient(LIMIT), _records: files })
    }

    /// When it is waited for no longer.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether it has ended, or is waited for no longer. One that hangs in the driver is left to itself.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        if self.until <= now {
            let _ = self.child.kill();
            return true;
        }
        !matches!(self.child.try_wait(), Ok(None))
    }
}
