//! Clients that a fault of their server has left alone, because it did not reach a GPU that they have contexts on.
//!
//! NVIDIA's server loses the contexts of one GPU and goes on with those of the others; it refuses whoever comes until the
//! last client that it has hit has left, and says `FAULT` as long (measured on two H200s with 580). How far a fault
//! reaches is in [`reach`](super::reach). So a taint is of a server *and* GPUs. Where the signs name none it is of all, and
//! so is a client of which nobody knows where it is: both are taken for lost, as on a machine with one GPU. But the server
//! knows: who has contexts there still when it has been in the fault and says `ACTIVE` again, was not hit
//! ([`recovered`](super::recovered)).
//!
//! | as long as a spared client lives | |
//! |---|---|
//! | the server | is neither ended nor asked to end, except by a command or with the daemon |
//! | those that the fault has hit | have `victims_timeout` to leave, and are listed then; `victims = "terminate"` ends them |
//! | another context of a spared client | goes to the server, which is the only one that can have it, and waits until that is known to be sound again, for `victims_timeout` at most |
//! | a newcomer | goes to the domain's new server; but to this one when its `CUDA_VISIBLE_DEVICES` names sound GPUs only and the server itself has said since the fault that it is in none |
//!
//! That variable is the client's own claim. A wrong one harms the client alone: it shares a server that is soon empty.
//! When the last spared client is gone, the server goes as any that a fault has tainted.

use super::Faults;
use crate::core::Policy;
use crate::core::clients::client::Client;
use crate::core::gpu::{Gpu, GpuSet, are_apart};
use crate::core::saved::{SavedServer, read};
use crate::core::servers::Clientele as _;
use crate::core::servers::server::{Role, Server, ServerState};
use crate::core::{Core, Pid, ProcessKey, ServerEpoch};
use core::time::Duration;
use std::collections::BTreeSet;

/// What a server needs that a fault has spoilt for some GPUs only.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::core) struct Aftermath {
    /// The GPUs that the fault has reached, as far as they are known; none is all, as long as nobody knows better.
    pub(super) gpus: GpuSet,
    /// Whether it stays for its spared clients.
    pub(super) is_kept: bool,
    /// Whether this daemon has seen to that, and not an earlier one.
    pub(super) is_followed: bool,
    /// Whether it has said that it is in the fault.
    pub(super) is_admitted: bool,
    /// Whether it is asked how it is, whoever it may have left alone.
    pub(super) is_watched: bool,
    /// When those that the fault has hit have had their time; `None` when that is over, or the server goes with them.
    pub(super) victims_due: Option<Duration>,
    /// Since when it is known to be in no fault any more.
    pub(super) sound_since: Option<Duration>,
    /// Whether that was said.
    pub(super) is_announced: bool,
    /// When it is asked for that; `None` while it is.
    pub(super) ask_at: Option<Duration>,
    /// How long that is from the last time.
    pub(super) pause: Duration,
    /// Those whom it had left alone when an earlier daemon was told so, and who have not been found since.
    pub(super) remembered: BTreeSet<ProcessKey>,
}

impl Aftermath {
    /// Of a fault that an earlier daemon knew; those whom it has left alone are found again when the server names them.
    pub(super) fn restored(old: &SavedServer) -> Self {
        Self {
            gpus: old.gpus.iter().map(|name| Gpu::parse(name)).collect(),
            is_kept: !old.draining && !old.ending,
            remembered: old.spared.iter().map(|text| read(text)).collect(),
            ..Self::default()
        }
    }
}

impl Faults {
    /// The GPUs that the fault of a server has reached, as far as they are known.
    pub(in crate::core) fn spoilt_gpus(&self, server: ServerEpoch) -> impl Iterator<Item = &Gpu> {
        self.aftermaths.get(&server).into_iter().flat_map(|aftermath| &aftermath.gpus)
    }

    /// Whether a server that has met a fault is known to be in none any more.
    pub(super) fn has_recovered(&self, server: ServerEpoch) -> bool {
        self.aftermaths.get(&server).is_some_and(|aftermath| aftermath.sound_since.is_some())
    }

    /// A server that an earlier daemon knew has named a client: it may be one that a fault had left alone.
    pub(in crate::core) fn was_spared(&mut self, epoch: ServerEpoch, key: ProcessKey) -> bool {
        let Some(aftermath) = self.aftermaths.get_mut(&epoch) else {
            return false;
        };
        // A server names its clients by their pids alone.
        let is_it =
            |known: &ProcessKey| known.pid == key.pid && (key.start_time == 0 || known.start_time == key.start_time);
        let before = aftermath.remembered.len();
        aftermath.remembered.retain(|known| !is_it(known));
        aftermath.remembered.len() < before
    }

    /// Whether what a newcomer claims to see decides where it goes.
    pub(in crate::core) fn must_know_claims(&self, policy: &Policy) -> bool {
        policy.grouping().by_gpu || self.aftermaths.values().any(|aftermath| aftermath.is_kept)
    }
}

impl Core {
    /// The signs of a server's incident name these GPUs. More of them may hit clients that were spared before.
    pub(super) fn spoil(&mut self, epoch: ServerEpoch, gpus: &GpuSet) {
        if !self.is_lost(epoch) {
            return;
        }
        let gpus = self.faults.with_unanswered(epoch, gpus);
        let aftermath = self.faults.aftermaths.entry(epoch).or_default();
        let before = aftermath.gpus.len();
        aftermath.gpus.extend(gpus);
        if aftermath.gpus.len() == before {
            return;
        }
        aftermath.is_admitted = false;
        // An earlier daemon knew of the first fault alone.
        aftermath.remembered.clear();
        // Those whom the first fault left alone have as long as those whom it hit.
        if before > 0 {
            self.servers.is_hit_again(epoch, self.turn.now);
        }
        self.clients.spare_nobody(epoch);
        self.find_spared(epoch);
        self.turn.save();
    }

    /// Notes who is known by now to be where the fault has not reached. Once spared is spared until a fault names another
    /// GPU: what such a client takes of the lost one afterwards it has from the server itself. Who has nothing there yet
    /// has nothing to be spared, and goes elsewhere.
    pub(super) fn find_spared(&mut self, epoch: ServerEpoch) {
        let Some(reached) = self.reach_of(epoch) else {
            return;
        };
        let own = self.clients.on(epoch).filter(|(_, process)| !process.gpus.is_spared);
        let own = own.filter(|(pid, process)| self.has_reached(epoch, *pid, process));
        let found = own.filter(|(pid, process)| self.is_elsewhere(*pid, process, &reached)).map(|(pid, _)| pid);
        let found: BTreeSet<Pid> = found.collect();
        let grows = self.faults.aftermaths.get_mut(&epoch).is_some_and(|aftermath| {
            let before = core::mem::replace(&mut aftermath.gpus, reached);
            before != aftermath.gpus
        });
        if self.clients.spare(epoch, &found) || grows {
            self.turn.save();
        }
    }

    /// Servers that a fault has spoilt for some of their clients, and that have not decided to end.
    fn aftermaths(&self) -> impl Iterator<Item = &Server> {
        let is_there = |server: &&Server| server.is_lost() && !matches!(server.state, ServerState::Ending { .. });
        self.servers.iter().filter(is_there).filter(|server| self.may_spare(server))
    }

    /// Whether the fault of a server may have left anybody alone.
    fn may_spare(&self, server: &Server) -> bool {
        self.gpus.known().are_several() || self.faults.spoilt_gpus(server.epoch).next().is_some()
    }

    /// Until when contexts of spared clients wait for a server that is in its fault still.
    fn held_until(&self, server: &Server) -> Option<Duration> {
        let patience = self.servers.domain(server.domain)?.policy.faults.victims_timeout;
        Some(server.tainted()?.at + patience)
    }

    /// Whether a client had better not go to its own server now, which would refuse it.
    pub(in crate::core) fn is_held_back(&self, server: &Server) -> bool {
        server.is_lost()
            && !self.faults.has_recovered(server.epoch)
            && self.held_until(server).is_some_and(|until| until > self.turn.now)
    }

    pub(in crate::core) fn spared_deadline(&self) -> Option<Duration> {
        let own = |server: &Server| {
            let Aftermath { is_kept, is_watched, victims_due, ask_at, .. } =
                *self.faults.aftermaths.get(&server.epoch)?;
            let held = self.held_until(server).filter(|until| *until > self.turn.now);
            let kept = [victims_due, held].into_iter().flatten().filter(|_| is_kept);
            kept.chain(ask_at.filter(|_| is_watched)).min()
        };
        self.aftermaths().filter_map(own).min()
    }

    /// Keeps servers for the clients that their fault has left alone, and lets them go when the last of those is gone.
    pub(in crate::core) fn advance_spared(&mut self) {
        let epochs: Vec<ServerEpoch> = self.aftermaths().map(|server| server.epoch).collect();
        for epoch in epochs {
            self.find_spared(epoch);
            self.watch_aftermath(epoch);
            let is_told = self.servers.get(epoch).is_some_and(|server| !server.census_due);
            if self.clients.has_spared(epoch) {
                self.keep(epoch);
            } else if is_told {
                self.let_go(epoch);
            }
        }
    }

    /// The server stays, whatever was begun to end it on account of the fault.
    fn keep(&mut self, epoch: ServerEpoch) {
        let now = self.turn.now;
        let patience = self.servers.get(epoch).and_then(|server| self.held_until(server));
        if self.servers.stays_after_fault(epoch) {
            self.turn.save();
        }
        let Some(server) = self.servers.get(epoch) else {
            return;
        };
        let aftermath = self.faults.aftermaths.entry(epoch).or_default();
        aftermath.is_kept = true;
        if !core::mem::replace(&mut aftermath.is_followed, true) {
            aftermath.victims_due = patience.map(|at| at.max(now));
            let (pid, reached) = (server.pid.unwrap_or_default(), aftermath.gpus.clone());
            // By its own word it may have left some alone of whom that was not known.
            let mut own = self.clients.on(epoch).filter(|(_, process)| process.gpus.is_spared);
            let are_known = own.all(|(pid, process)| self.is_elsewhere(pid, process, &reached));
            let whom = whom(&if are_known { reached } else { GpuSet::new() });
            self.turn.log(format!("Server {pid} stays for its clients that {whom}"));
            self.turn.save();
        }
        let due =
            self.faults.aftermaths.get_mut(&epoch).and_then(|aftermath| aftermath.victims_due.take_if(|at| *at <= now));
        if due.is_some() {
            self.list_victims(epoch);
        }
    }

    /// Nobody is left whom the fault has spared: the server goes as any other that has met one.
    fn let_go(&mut self, epoch: ServerEpoch) {
        let now = self.turn.now;
        let force_at = self.servers.get(epoch).and_then(|server| self.held_until(server)).map(|at| at.max(now));
        let (Some(server), Some(aftermath)) = (self.servers.get(epoch), self.faults.aftermaths.get_mut(&epoch)) else {
            return;
        };
        if core::mem::take(&mut aftermath.is_kept) {
            aftermath.is_followed = false;
            aftermath.victims_due = None;
            let pid = server.pid.unwrap_or_default();
            self.turn.log(format!("Server {pid} has no clients any more that its fault has left alone"));
            self.servers.drain_after_fault(&mut self.turn, epoch, force_at);
        }
    }

    /// The server with a fault that a newcomer can go to all the same.
    pub(in crate::core) fn server_beside_fault(&self, client: &Client) -> Option<&Server> {
        let names = client.identity.visible.as_deref()?;
        let takes = |server: &&Server| {
            server.domain == client.domain
                && server.role == Role::Active
                && server.is_connected()
                && self.faults.aftermaths.get(&server.epoch).is_some_and(|aftermath| aftermath.is_kept)
                && self.faults.has_recovered(server.epoch)
                && matches!(server.state, ServerState::Serving)
        };
        let sees_none_of = |server: &Server| {
            let seen = self.gpus.known().visible(server.epoch, names);
            let spoilt: GpuSet = self.faults.spoilt_gpus(server.epoch).cloned().collect();
            seen.is_some_and(|seen| !seen.is_empty() && !spoilt.is_empty() && are_apart(&seen, &spoilt))
        };
        self.servers.iter().filter(takes).find(|server| sees_none_of(server))
    }
}

/// Those whom a fault on these GPUs has left alone.
pub(in crate::core) fn whom(gpus: &GpuSet) -> String {
    if gpus.is_empty() { "its fault has left alone".to_owned() } else { format!("have nothing on {}", words(gpus)) }
}

/// GPUs in a sentence.
pub(in crate::core) fn words(gpus: &GpuSet) -> String {
    gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
