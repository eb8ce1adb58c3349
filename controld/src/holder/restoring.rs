//! Giving GPUs back their compute modes when the daemon is dead and no other has come.
//!
//! The holder loads nothing of NVIDIA's either: a child of the same program does what is to be done and ends. It changes
//! only what the daemon has set and nobody has changed since.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use remps_proto::holder::ModesNote;

use crate::devices::gpus::{Change, change_arguments};
use crate::patience::patient;
use crate::sys::child::unblock_signals;

/// How long the child may take: without persistence mode it first wakes every GPU up.
const LIMIT: Duration = Duration::from_secs(30);
/// This program, even when its file has been replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// A child that is at it.
#[derive(Debug)]
pub(super) struct Restoring {
    child: Child,
    until: Instant,
}

impl Restoring {
    /// Starts a child where there is anything to give back. There is nobody to tell when none can be started.
    pub(super) fn begin(note: &ModesNote) -> Option<Self> {
        let change =
            |gpu: &remps_proto::holder::ModeNote| Change { uuid: gpu.uuid.clone(), from: gpu.set, to: gpu.original };
        let changes: Vec<Change> = note.owed().map(change).collect();
        if changes.is_empty() {
            return None;
        }
        let mut command = Command::new(SELF);
        command
            .args(change_arguments(Path::new(&note.library), &changes))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        unblock_signals(&mut command);
        Some(Self { child: command.spawn().ok()?, until: Instant::now() + patient(LIMIT) })
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
