//! What the daemon knows of the GPUs themselves, and when it looks at them again.
//!
//! | part | decides |
//! |---|---|
//! | `device` | what answers about devices need of one |
//! | this file | when to look, and what an exclusive GPU means for servers |
//! | `modes` | which compute modes are changed, and given back |
//! | `strangers` | who uses a GPU outside MPS, and what becomes of him |
//! | `known` | which GPUs the machine has, and a server |
//!
//! On a GPU in compute mode `EXCLUSIVE_PROCESS` one process has contexts at a time, so a second server of whatever kind
//! can't start there. The daemon either changes that while it runs (`compute_mode = "manage"`), or does not try what
//! can't work and says so once.

mod device;
mod known;
mod modes;
mod strangers;

use super::ids::{Pid, Uid};
use super::{Effect, ProcessKey};
use crate::core::effect::Turn;
use crate::core::gpu::{ComputeMode, ManagedMode};
use core::time::Duration;
pub(crate) use device::Device;
pub(crate) use known::GpuPlace;
use known::KnownGpus;
use modes::Modes;
use std::collections::BTreeMap;
use strangers::Stranger;

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
    /// Which GPUs the machine and its servers have.
    pub(super) fn known(&self) -> &KnownGpus {
        &self.known
    }

    pub(super) fn known_mut(&mut self) -> &mut KnownGpus {
        &mut self.known
    }

    /// When they are to be looked at.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.look_at.filter(|_| self.is_watched && !self.is_looking)
    }

    pub(super) fn advance_gpus(&mut self, turn: &mut Turn) {
        let now = turn.now;
        if self.deadline().is_some_and(|at| at <= now) {
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

impl Gpus {
    /// Begins to look at the GPUs, with what an earlier daemon has noted of their modes.
    pub(super) fn watch(&mut self, now: Duration, modes: Vec<ManagedMode>, may_end: bool) {
        self.is_watched = true;
        self.may_end = may_end;
        self.modes = Modes::found(modes);
        self.look_at = Some(now);
    }

    /// A look has found these, or could not be had; `is_of_mps` knows the daemon's own servers and clients.
    pub(super) fn seen(
        &mut self,
        turn: &mut Turn,
        seen: Result<Vec<GpuSeen>, String>,
        is_of_mps: impl Fn(Pid) -> bool,
    ) {
        let now = turn.now;
        self.is_looking = false;
        if std::mem::take(&mut self.is_outdated) {
            self.look_at = Some(now);
            return;
        }
        let manages = turn.policy.gpus.manages();
        match seen {
            Ok(seen) => {
                self.unseen = None;
                self.look_at_modes(turn, &seen);
                if manages {
                    self.look_for_strangers(turn, &seen, is_of_mps);
                }
                self.seen = seen;
                self.tell_exclusive(turn);
            }
            Err(reason) => {
                if self.unseen.as_ref() != Some(&reason) && manages {
                    turn.log(format!(
                        "The GPUs' compute modes are not managed, and strangers not found: {reason}; the daemon goes \
                         on as with compute_mode = \"leave\""
                    ));
                }
                self.unseen = Some(reason);
                self.give_back_unwanted(turn);
            }
        }
        let is_left = self.exclusive().next().is_some();
        let again = if manages { Some(turn.policy.gpus.interval) } else { Some(SELDOM).filter(|_| is_left) };
        self.look_at = again.map(|pause| now + pause);
    }
}

impl GpuSeen {
    /// How the log calls it.
    fn name(&self) -> String {
        format!("GPU {} ({})", self.index, self.uuid)
    }
}
