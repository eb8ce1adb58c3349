//! How guests leave the servers that they have no place on any more.
//!
//! | what a guest is | what is done |
//! |---|---|
//! | one that has a place there | nothing |
//! | no client of any server, while this one is sound | it is a client of this one: there it can work |
//! | without a place | the server is asked for its clients, again and again, until it does not name it |
//! | the same after [`PATIENCE`] | the server is told to end its work, once |
//!
//! A process gets no other place on a server that it has not left.

use crate::core::clients::guests::Leave;
use crate::core::evidence::ProcessKey;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::servers::Clientele as _;
use crate::core::servers::questions::Purpose;
use crate::core::servers::server::Server;
use crate::core::{Core, Effect, NoReply};
use core::time::Duration;
use remps_proto::mps::server::{Reply, Request};

/// How long a program may take to give up a copy that has no place.
pub(in crate::core) const PATIENCE: Duration = Duration::from_secs(5);
/// Between two questions, at first.
const BETWEEN: Duration = Duration::from_secs(1);
/// At most, for one that the server never lets go.
const LONGEST: Duration = Duration::from_secs(60);

impl Core {
    /// What follows for guests from everything else.
    pub(in crate::core) fn advance_guests(&mut self) {
        let all: Vec<(ServerEpoch, Pid)> = self.clients.guests().iter().map(|(server, pid, _)| (server, pid)).collect();
        for (server, pid) in all {
            if self.has_place_on(server, pid) {
                continue;
            }
            let is_of_use = self.servers.get(server).is_some_and(Server::hosts_spares);
            if is_of_use && self.clients.process(pid).is_none() {
                self.becomes_client(server, pid);
            } else if self.servers.get(server).is_some_and(Server::is_connected) {
                self.leaves(server, pid);
            }
        }
    }

    fn has_place_on(&self, server: ServerEpoch, pid: Pid) -> bool {
        let mut grants = self.clients.spares().grants();
        grants.any(|(process, grant)| process.pid == pid && grant.server == server)
    }

    /// A process has nothing but what it has there.
    fn becomes_client(&mut self, server: ServerEpoch, pid: Pid) {
        let Some(guest) = self.clients.guests_mut().remove(server, pid) else { return };
        self.turn.log(format!("Client {pid} has nothing but its spare copy"));
        self.clients.insert_process(pid, guest.process);
        self.servers.is_used(server, pid);
        self.turn.push(Effect::WatchProcess { pid, connection: None });
        self.look_at(pid);
        self.turn.save();
    }

    fn leaves(&mut self, server: ServerEpoch, pid: Pid) {
        let now = self.turn.now;
        let Some(guest) = self.clients.guests_mut().get_mut(server, pid) else { return };
        let key = guest.process.key(pid);
        let leave = guest.leaves.get_or_insert(Leave { since: now, ask_at: now, is_ended: false });
        if leave.ask_at > now {
            return;
        }
        let waited = now.saturating_sub(leave.since);
        leave.ask_at = now + waited.clamp(BETWEEN, LONGEST);
        let is_over = waited >= PATIENCE && !core::mem::replace(&mut leave.is_ended, waited >= PATIENCE);
        if is_over {
            self.turn.log(format!("Client {pid} does not give up its spare copy, whose work is ended"));
            self.servers.ask(&mut self.turn, server, Request::TerminateClient(pid), Purpose::EndGuest(key));
        }
        self.servers.ask(&mut self.turn, server, Request::Clients, Purpose::Guests);
    }

    /// A server has said which clients it has.
    pub(in crate::core) fn guests_told(&mut self, server: ServerEpoch, reply: &Result<Reply, NoReply>) {
        let Ok(Reply::Clients(pids)) = reply else { return };
        let is_on_the_way = |pid: Pid| {
            self.clients.iter().any(|client| client.peer.pid == pid && client.stage.server() == Some(server))
        };
        let left = self.clients.guests().iter().filter(|(host, pid, guest)| {
            *host == server && guest.leaves.is_some() && !pids.contains(pid) && !is_on_the_way(*pid)
        });
        let left: Vec<Pid> = left.map(|(_, pid, _)| pid).collect();
        for pid in left {
            self.clients.guests_mut().remove(server, pid);
            self.servers.client_left(self.turn.now, server, !self.clients.are_on(server));
            self.turn.save();
        }
    }

    /// A server has ended what a guest does there, or says that it cannot: then nothing is concluded from it.
    pub(in crate::core) fn guest_ended(
        &mut self,
        server: ServerEpoch,
        key: ProcessKey,
        reply: &Result<Reply, NoReply>,
    ) {
        if let Some(guest) = self.clients.guests_mut().get_mut(server, key.pid)
            && let Some(leave) = &mut guest.leaves
        {
            leave.is_ended = matches!(reply, Ok(Reply::Terminated(_)));
        }
    }

    /// Whether a process may get a place on this server: it is no guest there, or what it had there is ended.
    pub(in crate::core) fn has_left(&self, server: ServerEpoch, pid: Pid) -> bool {
        self.clients.guests().get(server, pid).is_none_or(|guest| guest.leaves.is_some_and(|leave| leave.is_ended))
    }

    /// Whether a process is ended by the daemon, or its like is set apart or refused: then it gets no second server.
    pub(in crate::core) fn is_sanctioned(&self, process: ProcessKey) -> bool {
        self.clients.known(process).is_some_and(|known| {
            known.condemned
                || self.faults.is_ended(process)
                || self.clients.offenders().is_punished(self.turn.now, known.uid, &known.identity)
        })
    }
}
