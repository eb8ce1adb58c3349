//! What the daemon knows of the GPUs themselves, and when it looks at them again.
//!
//! | part | decides |
//! |---|---|
//! | `device` | what answers about devices need of one |
//! | this file | when to look, and what an exclusive GPU means for servers |
//! | `modes` | which compute modes are changed, and given back |
//! | `strangers` | who uses a GPU outside MPS, and what becomes of him |
//! | `whereabouts` | which GPUs the machine and a server have, and where each client is |
//!
//! On a GPU in compute mode `EXCLUSIVE_PROCESS` one process has contexts at a time, so a second server of whatever kind
//! can't start there. The daemon either changes that while it runs (`compute_mode = "manage"`), or does not try what
//! can't work and says so once.

mod device;
mod modes;
mod strangers;
pub(super) mod whereabouts;

use super::ids::Uid;
use super::{Core, Effect, ProcessKey};
use crate::core::effect::Turn;
use crate::core::gpu::{ComputeMode, ManagedMode};
use core::time::Duration;
pub(crate) use device::Device;
use modes::Modes;
use std::collections::BTreeMap;
use strangers::Stranger;
use whereabouts::KnownGpus;

/// How soon a GPU that is left exclusive is looked at again, and any GPU after a server has failed to start.
const SELDOM: Duration = Duration::from_secs(60);

/// A GPU that the daemon's servers see, as a look at it has found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuSeen {
    /// The number that `nvidia-smi` gives it.
    pub index: usize,
    /// `GPU-…`.
    pub uuid: String,
    /// Its compute mode, where it has one.
    pub mode: Option<ComputeMode>,
    /// The mode before another daemon of this machine changed it; that one may end, and this one gives the mode back.
    pub before: Option<ComputeMode>,
    /// Whether servers see all of it, and not instances of it alone.
    pub whole: bool,
    /// Who has a context on it and is no client of MPS, servers included; `None` when that can't be told.
    pub outside: Option<Vec<Outsider>>,
}

/// A process with a context on a GPU that is no client of MPS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outsider {
    /// Which.
    pub process: ProcessKey,
    pub uid: Uid,
    /// Its name, as the kernel has it.
    pub command: String,
    /// Whether it seems to be a server of MPS, somebody else's perhaps.
    pub is_server: bool,
    /// Its GPU memory in bytes, where that is known.
    pub bytes: Option<u64>,
    /// GPU instance and compute instance, on a GPU that is divided.
    pub instance: Option<(u32, u32)>,
}

/// Everything about GPUs.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    /// Whether anybody looks: not before the driver says so.
    is_watched: bool,
    is_looking: bool,
    is_changing: bool,
    /// Whether the look that is under way began before modes were changed, and so may tell what was before.
    is_outdated: bool,
    look_at: Option<Duration>,
    looked_at: Option<Duration>,
    seen: Vec<GpuSeen>,
    /// Why the last look told nothing.
    unseen: Option<String>,
    /// The exclusive GPUs that were spoken of last.
    told_exclusive: Vec<String>,
    modes: Modes,
    strangers: BTreeMap<ProcessKey, Stranger>,
    /// Whether strangers can be ended, which takes root in the machine's own pid namespace.
    may_end: bool,
    known: KnownGpus,
}

impl Gpus {
    /// When one of them, or a client on one of them, is to be looked at.
    pub(super) fn deadline(&self) -> Option<Duration> {
        [self.gpus_deadline(), self.whereabouts_deadline()].into_iter().flatten().min()
    }

    /// Which GPUs the machine and its servers have.
    pub(super) fn known(&self) -> &KnownGpus {
        &self.known
    }

    pub(super) fn gpus_deadline(&self) -> Option<Duration> {
        self.look_at.filter(|_| self.is_watched && !self.is_looking)
    }

    pub(super) fn advance_gpus(&mut self, turn: &mut Turn) {
        let now = turn.now;
        if self.gpus_deadline().is_some_and(|at| at <= now) {
            self.look_at = None;
            self.looked_at = Some(now);
            self.is_looking = true;
            turn.push(Effect::LookAtGpus);
        }
    }

    /// A server has failed to start, which a changed compute mode would explain.
    pub(super) fn doubt_gpus(&mut self, now: Duration) {
        let soon = self.looked_at.map_or(now, |at| now.max(at + SELDOM));
        self.look_at.get_or_insert(soon);
    }

    /// The GPUs that take one server at a time.
    fn exclusive(&self) -> impl Iterator<Item = &GpuSeen> {
        self.seen.iter().filter(|gpu| gpu.mode.is_some_and(ComputeMode::is_exclusive))
    }

    /// Whether a second server can't start beside a first one.
    pub(super) fn fits_one_server(&self) -> bool {
        self.exclusive().next().is_some()
    }

    /// Says once what does not work on GPUs that stay exclusive.
    fn tell_exclusive(&mut self, turn: &mut Turn) {
        if self.is_changing {
            // Their modes are being changed.
            return;
        }
        let found: Vec<String> = self.exclusive().map(|gpu| gpu.uuid.clone()).collect();
        if found != self.told_exclusive && !found.is_empty() {
            let names: Vec<String> = self.exclusive().map(GpuSeen::name).collect();
            turn.log(format!(
                "Exclusive compute mode on {}: one server at a time has contexts there, so servers of several domains \
                 don't run side by side, none stands by, and one that a fault has tainted ends before another starts; \
                 [gpu] compute_mode = \"manage\" or nvidia-smi -c DEFAULT changes that",
                names.join(", ")
            ));
        }
        self.told_exclusive = found;
    }
}

impl Core {
    /// Begins to look at the GPUs, with what an earlier daemon has noted of their modes.
    pub(super) fn watch_gpus(&mut self, modes: Vec<ManagedMode>, may_end: bool) {
        let now = self.turn.now;
        self.gpus.is_watched = true;
        self.faults.hold_is_watched(now);
        self.gpus.may_end = may_end;
        self.gpus.modes = Modes::found(modes);
        self.gpus.look_at = Some(now);
    }

    pub(super) fn gpus_seen(&mut self, seen: Result<Vec<GpuSeen>, String>) {
        let now = self.turn.now;
        self.gpus.is_looking = false;
        if std::mem::take(&mut self.gpus.is_outdated) {
            self.gpus.look_at = Some(now);
            return;
        }
        let manages = self.turn.policy.gpus.manages();
        match seen {
            Ok(seen) => {
                self.gpus.unseen = None;
                self.look_at_modes(&seen);
                if manages {
                    self.look_for_strangers(&seen);
                }
                self.gpus.seen = seen;
                self.gpus.tell_exclusive(&mut self.turn);
            }
            Err(reason) => {
                if self.gpus.unseen.as_ref() != Some(&reason) && manages {
                    self.turn.log(format!(
                        "The GPUs' compute modes are not managed, and strangers not found: {reason}; the daemon goes \
                         on as with compute_mode = \"leave\""
                    ));
                }
                self.gpus.unseen = Some(reason);
                self.gpus.give_back_unwanted(&mut self.turn);
            }
        }
        let is_left = self.gpus.exclusive().next().is_some();
        let again = if manages { Some(self.turn.policy.gpus.interval) } else { Some(SELDOM).filter(|_| is_left) };
        self.gpus.look_at = again.map(|pause| now + pause);
    }
}

impl GpuSeen {
    /// How the log calls it.
    fn name(&self) -> String {
        format!("GPU {} ({})", self.index, self.uuid)
    }
}
