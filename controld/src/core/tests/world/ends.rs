//! Ends: a process dies, or the daemon does and another one takes over.

use super::*;

impl World {
    /// A process is gone, with all that it had open.
    pub(super) fn end(&mut self, pid: u32, end: End) {
        self.living.remove(&pid);
        // The kernel closes what it had open, one after the other: meanwhile the others are still those of a client.
        let waiting: Vec<_> = self.waiting.iter().filter(|(_, peer)| peer.pid == pid).map(|(key, _)| *key).collect();
        let under_way: Vec<_> =
            self.dispatched.iter().filter(|(_, (peer, _))| peer.pid == pid).map(|(key, _)| *key).collect();
        for connection in waiting.into_iter().chain(under_way) {
            self.waiting.remove(&connection);
            self.dispatched.remove(&connection);
            self.told.remove(&connection);
            self.feed(Input::ClientDone { connection, status: None });
        }
        self.homes.remove(&pid);
        self.came_to.remove(&pid);
        let old = self.key(pid);
        self.accepted.remove(&pid);
        self.left_behind.remove(&pid);
        let has_several = self.contexts.remove(&pid).is_some_and(|own| own.len() > 1);
        self.placed.remove(&pid);
        self.listed.remove(&pid);
        *self.births.entry(pid).or_default() += 1;
        for (epoch, process) in &mut self.servers {
            // Where it has carried a fault is not followed up here; who ends well before there is any carries none.
            let has_signs = process.faulted || self.core.faults.incidents().contains_key(epoch);
            let may_carry = has_several && (has_signs || end != End::Exited(0));
            process.is_uncounted |= process.clients.remove(&pid) && may_carry;
            process.hit.remove(&pid);
            process.known_hit.remove(&pid);
        }
        if self.watched.remove(&pid) {
            self.feed(Input::ProcessGone { process: old, end });
        } else {
            // The driver lets go of what nobody waits for.
            self.copies.remove(&old);
        }
    }

    /// SIGKILL and a successor: it finds the servers that have said hello, and the clients that wait.
    pub(super) fn restart(&mut self) {
        let saved = self.core.saved();
        let (alive, unfinished): (Vec<_>, Vec<_>) = saved.servers.iter().cloned().partition(|server| {
            server.ready && self.servers.get(&ServerEpoch(server.epoch)).is_some_and(|process| process.hello)
        });
        for server in unfinished {
            self.servers.remove(&ServerEpoch(server.epoch));
        }
        let known: Vec<ServerEpoch> = alive.iter().map(|server| ServerEpoch(server.epoch)).collect();
        self.servers.retain(|epoch, _| known.contains(epoch));
        self.homes.retain(|_, home| known.contains(home));
        self.asked.clear();
        self.behind.clear();
        self.unanswered.clear();
        self.watched.clear();
        self.copies.clear();
        self.placed.clear();
        self.listed.clear();
        self.servers.values_mut().for_each(|process| process.is_uncounted = true);
        self.sought.clear();
        // A successor does not know what its predecessor has said.
        self.verdicts.clear();
        // What was made and never noted is taken away.
        let known: BTreeSet<u64> = saved.named.iter().flat_map(|it| &it.namespaces).map(|it| it.id).collect();
        self.open.retain(|id, _| known.contains(&id.0));
        // What was not told is lost with the daemon.
        self.unannounced.clear();
        let (core, effects) = Core::restored(self.now, self.policy.clone(), &saved, &alive);
        assert_eq!(core.entrances().len(), known.len(), "namespaces survive");
        assert_eq!(core.defaults, self.core.defaults, "defaults survive");
        self.core = core;
        self.thin.clear();
        self.quits.clear();
        if self.keeps {
            self.core.keep_servers();
        }
        self.core.faults.hold_is_watched(self.now);
        // What a server has not said yet is not kept for a successor.
        let lost: BTreeSet<ServerEpoch> = self.servers.keys().copied().filter(|epoch| self.is_lost(*epoch)).collect();
        let others = self.servers.iter_mut().filter(|(epoch, _)| !lost.contains(epoch));
        others.for_each(|(_, process)| process.forget());
        // The driver finds out from the server that it was not told, or tells it again.
        for connection in self.told.clone() {
            self.not_told(connection);
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.known_sound = self.servers.keys().map(|epoch| (*epoch, Duration::ZERO)).collect();
        for effect in effects {
            self.perform(effect);
        }
        let dispatched: Vec<_> = self.dispatched.iter().map(|(connection, to)| (*connection, *to)).collect();
        for (connection, (peer, server)) in dispatched {
            if let Some(effect) =
                self.core.restore_dispatched(self.now, connection, peer, self.identity(peer.pid), server)
            {
                self.perform(effect);
            }
        }
        if self.has_gpus {
            self.feed(Input::GpusFound(places()));
        }
        for (va_space, process) in self.spaces.clone() {
            self.feed(Input::AddressSpaceAdded { va_space, process, condemned: false });
        }
        self.feed(Input::HardwareKnown);
        for (connection, peer) in waiting {
            self.waiting.insert(connection, peer);
            self.came.insert(connection, self.now);
            let entrance = self.came_by.get(&connection).copied();
            self.feed(Input::ClientArrived { connection, peer, identity: self.at_once(peer.pid), entrance });
        }
    }
}
