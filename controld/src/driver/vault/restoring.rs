//! How the vault opens, and goes on with what an earlier daemon kept.

use super::holding::Files;
use super::keeper::Keeper;
use super::namespaces::Restored;
use crate::core::ProcessKey;
use crate::core::vault::{RegionId, VaultPolicy};
use crate::door::accept::Door;
use crate::door::descriptor::Descriptor;
use crate::door::device::Device;
use crate::door::note::{NameNote, RegionNote};
use crate::driver::keys;
use crate::driver::processes::kernel_pid;
use crate::driver::turn::Turn;
use crate::failpoint::reached;
use crate::holder::{Held, Kind};
use crate::io::process::open_same;
use crate::sys::clock::milliseconds;
use crate::witness::uvm::may_look;
use remps_proto::shim::{Capabilities, VERSION, Welcome};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What programs are told when they come.
fn welcome(policy: &VaultPolicy) -> Welcome {
    let follows = if may_look() { Capabilities::default() } else { Capabilities::FOLLOWS };
    Welcome {
        version: VERSION,
        capabilities: Capabilities::VAULT
            .and(follows)
            .and(Capabilities::REPORTS)
            .and(Capabilities::EPOCHS)
            .and(Capabilities::NEWS)
            .and(Capabilities::SUBSCRIPTIONS)
            .and(Capabilities::SPARES)
            .and(Capabilities::RECOVERIES)
            .and(Capabilities::REFUSALS)
            .and(Capabilities::BURIALS)
            .and(Capabilities::STATE),
        most_bytes: policy.user_bytes.into_iter().chain(policy.bytes).min().unwrap_or(u64::MAX),
        most_regions: u32::try_from(policy.user_regions.min(policy.regions)).unwrap_or(u32::MAX),
        ttl_ms: milliseconds(policy.ttl),
    }
}

impl Keeper {
    /// Opens the door to who comes by this socket. Without it the daemon does all else.
    pub(in crate::driver) fn open(&mut self, turn: &mut Turn<'_>, listener: OwnedFd) {
        let policy = *self.rules.policy();
        if policy.regions < VaultPolicy::default().regions {
            let VaultPolicy { regions, user_regions, .. } = policy;
            turn.say(format!(
                "So few files may be open that {regions} regions of memory are kept at most, {user_regions} of one user"
            ));
        }
        turn.successor.hold(keys::SHIM_LISTENER, Kind::LISTENER_SHIM, &[], &[listener.as_fd()]);
        let accepting = listener.try_clone();
        match accepting.and_then(|accepting| Door::open(accepting, welcome(&policy), self.requests_tx.clone())) {
            Ok(door) => self.door = Some(door),
            Err(error) => turn.say(format!("No memory is kept for programs: {error}")),
        }
        self.listener = Some(listener);
    }

    /// Goes on with what an earlier daemon kept.
    pub(in crate::driver) fn take_over(&mut self, turn: &mut Turn<'_>, found: Vec<Held>) {
        let (now, policy) = (turn.now, *self.rules.policy());
        let mut restored = Restored::default();
        for held in found {
            if let Some(number) = keys::namespace_of(held.key) {
                self.take_over_namespace(turn, number, held);
                continue;
            }
            let Held { key, state, fds, .. } = held;
            if let Some(id) = keys::name_of(key) {
                match NameNote::read(&state, now, &policy).filter(|_| policy.enabled) {
                    Some((name, entry)) => restored.entries.push((id, name, entry)),
                    None => turn.successor.release(key),
                }
                continue;
            }
            let mut fds = fds.into_iter();
            let kept = RegionNote::read(&state, now, &policy).filter(|_| policy.enabled);
            let memory = fds.next().map(|fd| Arc::new(Descriptor::proven(fd)));
            let (Some(id), Some(kept), Some(memory)) = (keys::region_of(key), kept, memory) else {
                turn.successor.release(key);
                continue;
            };
            let device = fds.next().map(|fd| Arc::new(Device::proven(fd)));
            self.files.insert(id, Files { memory, device });
            restored.regions.push((id, kept));
        }
        self.settle_scopes(turn, &mut restored);
        for (id, name, entry) in restored.entries {
            self.rules.restore_entry(id, name, entry);
        }
        for (id, kept) in restored.regions {
            self.rules.restore(id, kept);
        }
        let nameless: Vec<RegionId> = self.rules.remove_nameless_orphans();
        self.close_regions(turn, &nameless, None);
        let moved = self.rules.finish_adoptions();
        self.note_regions(turn, &moved);
        let regions = self.rules.iter().filter(|(_, kept)| kept.until.is_none());
        let entries = self.rules.entries().filter(|(_, _, entry)| entry.until.is_none());
        let owners: BTreeSet<ProcessKey> = regions
            .map(|(_, kept)| kept.owner.process)
            .chain(entries.map(|(_, _, entry)| entry.owner.process))
            .collect();
        for process in owners {
            self.watch(process, open_same(kernel_pid(process.pid), process.start_time));
        }
        let all: Vec<RegionId> = self.rules.iter().map(|(id, _)| id).collect();
        // The deadlines of orphans now count for the next successor too, and so does what was settled.
        self.note_regions(turn, &all);
        self.hold_entries(turn);
        reached("vault-restored");
    }
}
