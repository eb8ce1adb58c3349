//! Which server each process is on that an earlier daemon had sent there.
//!
//! The servers that were taken over name their clients, and the clients that were in the middle of their handshake are
//! found with the holder. A process can be named twice: one without a context leaves a server that gets no newcomers any
//! more, or that ends, and NVIDIA's server counts it as its client until the process ends. It is on the server that it
//! went to. Taken for one of the other server's, it would be sent back there, and the one that it is on would seem to
//! have no clients: newcomers would join it without waiting until it is known to be sound.

use crate::core::clients::client::{Client, Process, Stage, UNCOUNTED};
use crate::core::evidence::ProcessKey;
use crate::core::gpu::Whereabouts;
use crate::core::identity::Identity;
use crate::core::ids::{ConnectionId, Pid, ServerEpoch, Uid};
use crate::core::{Core, Effect, NoReply, Peer};
use core::time::Duration;
use remps_proto::mps::server::Reply;
use std::sync::Arc;

impl Core {
    pub(in crate::core) fn census_answered(&mut self, epoch: ServerEpoch, reply: Result<Reply, NoReply>) {
        // One that does not answer holds nobody up: its processes are taken for newcomers.
        let Some(uid) = self.servers.census_over(epoch) else {
            return;
        };
        let Ok(Reply::Clients(pids)) = reply else {
            return;
        };
        // Those that have no pid here all have this one; who they are is noted elsewhere.
        for pid in pids.into_iter().filter(|pid| *pid != 0) {
            if self.note_found(epoch, pid, uid, Arc::default()) {
                self.turn.push(Effect::WatchProcess { pid, connection: None });
            }
        }
    }

    /// A client that an earlier daemon had handed to a server when it was killed, and what is to be done about it.
    #[must_use]
    pub(crate) fn restore_dispatched(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        client: Peer,
        identity: Arc<Identity>,
        server: ServerEpoch,
    ) -> Option<Effect> {
        self.turn.now = now;
        let domain = self.servers.get(server)?.domain;
        self.servers.is_used(server, client.pid);
        self.servers.handshake_begins(server);
        self.servers.client_has_end(server);
        let process = ProcessKey { pid: client.pid, start_time: identity.start_time };
        let grant = self.clients.spares().grant_of(process).filter(|grant| grant.server == server);
        let spare = grant.map(|grant| grant.token);
        let entrance =
            self.servers.domain(domain).and_then(|domain| domain.key.entrance.as_ref()).map(|entrance| entrance.id);
        if spare.is_some() {
            let guest = Process::guest(server, client.uid, Arc::clone(&identity));
            self.clients.guests_mut().comes(client.pid, guest);
        }
        let entry = Client {
            spare,
            entrance,
            ..Client::new(now, client, Arc::clone(&identity), domain, Stage::HasEnd { server })
        };
        self.clients.insert(connection, entry);
        let is_new = client.pid != 0 && self.note_found(server, client.pid, client.uid, identity);
        is_new.then_some(Effect::WatchProcess { pid: client.pid, connection: Some(connection) })
    }

    /// A client without a pid that an earlier daemon had noted on this server, and what is to be done about it.
    #[must_use]
    pub(crate) fn restore_hidden(
        &mut self,
        now: Duration,
        server: ServerEpoch,
        client: Peer,
        identity: Arc<Identity>,
    ) -> Option<Effect> {
        self.turn.now = now;
        self.servers.get(server)?;
        let is_new = self.note_found(server, client.pid, client.uid, identity);
        is_new.then_some(Effect::WatchProcess { pid: client.pid, connection: None })
    }

    /// Notes that a process was found on this server, and says whether nobody knew it yet. One that is known stays what
    /// it is, with its copies and whoever watches it, on whichever of the two servers it is.
    fn note_found(&mut self, epoch: ServerEpoch, pid: Pid, uid: Uid, identity: Arc<Identity>) -> bool {
        // The process is on the other server that names it, or was.
        if self.clients.guests().get(epoch, pid).is_some() {
            return false;
        }
        if let Some(home) = self.clients.process(pid).map(|process| process.server) {
            let is_later = self.went_from_to(home, epoch);
            let is_spared =
                is_later && self.faults.was_spared(epoch, ProcessKey { pid, start_time: identity.start_time });
            if is_later {
                self.clients.is_found_on(pid, epoch, is_spared);
                self.look_at(pid);
            }
            return false;
        }
        let is_spared = self.faults.was_spared(epoch, ProcessKey { pid, start_time: identity.start_time });
        let process = Process {
            server: epoch,
            uid,
            identity,
            copies: 0,
            tracked: false,
            condemned: false,
            connections: UNCOUNTED,
            gpus: Whereabouts { is_spared, ..Whereabouts::default() },
        };
        self.clients.insert_process(pid, process);
        self.look_at(pid);
        true
    }

    /// Whether a process that both servers know went from the first to the second, and not the other way. It left the
    /// one that can be left; where that is so of both, the one that was started first.
    fn went_from_to(&self, first: ServerEpoch, second: ServerEpoch) -> bool {
        let order = |epoch: ServerEpoch| self.servers.get(epoch).map(|server| (!server.can_be_left(), server.epoch));
        order(first) < order(second)
    }
}
