//! Spare copies of the driver: a program may have a second one, which stands by on another server than its own.
//!
//! The program asks for a place, and gets a *grant*: a server and a token that its spare copy's connections show. A spare
//! copy is no client of the server that it stands on, and nothing waits for it there; its process is a guest there
//! ([`guests`](super::guests)), which is named, listed and ended as a client is.
//! It becomes what the program works with when the program says so, or when the program's own server is gone; until then
//! the program is a client of its own server alone.
//!
//! Where it may stand is [`servers`](crate::core::servers)' to say, when a grant is made and ends `serving`'s.

use super::Clients;
use super::client::{BEFORE_CONTEXTS, Client, Process, UNCOUNTED};
use super::guests::Leave;
use crate::core::Core;
use crate::core::evidence::ProcessKey;
use crate::core::gpu::Whereabouts;
use crate::core::identity::Identity;
use crate::core::ids::{ConnectionId, Pid, ServerEpoch, Uid};
use crate::core::saved::{SavedSpare, read, written};
use core::time::Duration;
use remps_proto::shim::SpareTakes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far a spare copy is, as its program says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    /// Whether the program could go on with it.
    pub is_ready: bool,
    /// How many things of the program's it lacks.
    pub behind: u64,
    /// What it takes of the process.
    pub takes: SpareTakes,
}

/// A place for a spare copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::core) struct Grant {
    pub(in crate::core) token: u64,
    pub(in crate::core) server: ServerEpoch,
    pub(in crate::core) uid: Uid,
    pub(in crate::core) identity: Arc<Identity>,
    pub(in crate::core) since: Duration,
    /// How far it is, as the program says.
    pub(in crate::core) standing: Standing,
    /// Whether the program could ever go on with it.
    pub(in crate::core) was_ready: bool,
    /// How many of its connections the server has accepted.
    pub(in crate::core) connections: usize,
}

/// A process that has asked for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) struct Wish {
    /// What the grant is to be known by.
    pub(in crate::core) token: u64,
    /// Until when it waits.
    pub(in crate::core) until: Duration,
}

/// What a process has of a spare's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SparePlace {
    /// Nothing.
    None,
    /// It waits for a server.
    Wanted,
    /// This server, for connections that show this token.
    Granted {
        /// What they show.
        token: u64,
        /// Where they go.
        server: ServerEpoch,
    },
}

/// All grants, and who waits for one. A process has one of both at most.
#[derive(Debug, Default)]
pub(in crate::core) struct Spares {
    grants: BTreeMap<ProcessKey, Grant>,
    wishes: BTreeMap<ProcessKey, Wish>,
    /// By which token the copy once stood by that each process works with now. Its further connections still show it.
    lived: BTreeMap<ProcessKey, u64>,
    /// When servers on which nobody but spare copies are were first seen to be on their way out.
    pub(in crate::core) ousted: BTreeMap<ServerEpoch, Duration>,
}

impl Spares {
    pub(in crate::core) fn grant_of(&self, process: ProcessKey) -> Option<&Grant> {
        self.grants.get(&process)
    }

    /// The same for reports: of a process whose start nobody knows yet too.
    pub(in crate::core) fn shown_of(&self, process: ProcessKey) -> Option<&Grant> {
        let of_pid = || self.grants.iter().find(|(known, _)| known.pid == process.pid).map(|(_, grant)| grant);
        if process.start_time == 0 { of_pid() } else { self.grant_of(process) }
    }

    pub(in crate::core) fn grant_mut(&mut self, process: ProcessKey, token: u64) -> Option<&mut Grant> {
        self.grants.get_mut(&process).filter(|grant| grant.token == token)
    }

    pub(in crate::core) fn grants(&self) -> impl Iterator<Item = (ProcessKey, &Grant)> {
        self.grants.iter().map(|(process, grant)| (*process, grant))
    }

    pub(in crate::core) fn wishes(&self) -> impl Iterator<Item = (ProcessKey, Wish)> {
        self.wishes.iter().map(|(process, wish)| (*process, *wish))
    }

    /// A process wants a place; who asks again waits for as long as it says then.
    pub(in crate::core) fn wish(&mut self, process: ProcessKey, wish: Wish) {
        let known = self.wishes.entry(process).or_insert(wish);
        known.until = wish.until;
    }

    pub(in crate::core) fn forget_wish(&mut self, process: ProcessKey) {
        self.wishes.remove(&process);
    }

    pub(in crate::core) fn grant(&mut self, process: ProcessKey, grant: Grant) {
        self.wishes.remove(&process);
        self.grants.insert(process, grant);
    }

    /// A grant is over.
    pub(in crate::core) fn take(&mut self, process: ProcessKey, token: u64) -> Option<Grant> {
        self.grants.get(&process).filter(|grant| grant.token == token)?;
        self.grants.remove(&process)
    }

    /// Whether a connection of this process that shows this token is one of the copy that it works with now.
    pub(in crate::core) fn has_lived(&self, process: ProcessKey, token: u64) -> bool {
        self.lived.get(&process) == Some(&token)
    }

    /// A process has ended.
    pub(in crate::core) fn process_gone(&mut self, pid: Pid) {
        self.grants.retain(|process, _| process.pid != pid);
        self.wishes.retain(|process, _| process.pid != pid);
        self.lived.retain(|process, _| process.pid != pid);
    }

    /// A server is gone.
    pub(in crate::core) fn server_gone(&mut self, server: ServerEpoch) {
        self.ousted.remove(&server);
    }

    /// What a successor must know.
    fn saved(&self) -> Vec<SavedSpare> {
        let granted = self.grants.iter().map(|(process, grant)| SavedSpare {
            process: written(*process),
            token: grant.token,
            server: grant.server.0,
            uid: grant.uid,
            ready: grant.standing.is_ready,
            behind: grant.standing.behind,
            connections: u32::try_from(grant.connections).unwrap_or(u32::MAX),
            lived: false,
            threads: grant.standing.takes.threads,
            host_bytes: grant.standing.takes.host_bytes,
        });
        let lived = self.lived.iter().map(|(process, token)| SavedSpare {
            process: written(*process),
            token: *token,
            lived: true,
            ..SavedSpare::default()
        });
        granted.chain(lived).collect()
    }

    /// Goes on with what an earlier daemon knew of places.
    fn restore(&mut self, now: Duration, saved: &[SavedSpare]) {
        for old in saved {
            let process = read(&old.process);
            if old.lived {
                self.lived.insert(process, old.token);
            } else if old.token != 0 {
                let grant = Grant {
                    token: old.token,
                    server: ServerEpoch(old.server),
                    uid: old.uid,
                    identity: identity_of(process),
                    since: now,
                    standing: Standing {
                        is_ready: old.ready,
                        behind: old.behind,
                        takes: SpareTakes { threads: old.threads, host_bytes: old.host_bytes },
                    },
                    was_ready: old.ready,
                    connections: usize::try_from(old.connections).unwrap_or(UNCOUNTED),
                };
                self.grants.insert(process, grant);
            }
        }
    }
}

/// What an earlier daemon has left of who a process is.
fn identity_of(process: ProcessKey) -> Arc<Identity> {
    Arc::new(Identity { start_time: process.start_time, ..Identity::default() })
}

impl Clients {
    /// What a successor must know of spare copies and guests.
    pub(in crate::core) fn saved_spares(&self) -> Vec<SavedSpare> {
        let has_place = |server: ServerEpoch, pid: Pid| {
            self.spares.grants.iter().any(|(process, grant)| process.pid == pid && grant.server == server)
        };
        let left = self.guests().iter().filter(|(server, pid, _)| !has_place(*server, *pid));
        let left = left.map(|(server, pid, guest)| SavedSpare {
            process: written(guest.process.key(pid)),
            server: server.0,
            uid: guest.process.uid,
            connections: u32::try_from(guest.process.connections).unwrap_or(u32::MAX),
            ..SavedSpare::default()
        });
        self.spares.saved().into_iter().chain(left).collect()
    }

    /// Goes on with what an earlier daemon knew of them.
    pub(in crate::core) fn restore_spares(&mut self, now: Duration, saved: &[SavedSpare]) {
        self.spares.restore(now, saved);
        for old in saved.iter().filter(|old| !old.lived && (old.token == 0 || old.connections > 0)) {
            let (key, server) = (read(&old.process), ServerEpoch(old.server));
            let connections = usize::try_from(old.connections).unwrap_or(UNCOUNTED);
            let guest = Process { connections, ..Process::guest(server, old.uid, identity_of(key)) };
            self.guests_mut().comes(key.pid, guest);
            if let Some(guest) = self.guests_mut().get_mut(server, key.pid).filter(|_| old.token == 0) {
                guest.leaves = Some(Leave { since: now, ask_at: now, is_ended: false });
            }
        }
    }

    pub(in crate::core) fn spares(&self) -> &Spares {
        &self.spares
    }

    pub(in crate::core) fn spares_mut(&mut self) -> &mut Spares {
        &mut self.spares
    }

    /// The connections of spare copies that wait for the server of their grant, in the order in which they came.
    pub(in crate::core) fn waiting_spares(&self) -> impl Iterator<Item = (ConnectionId, &Client)> {
        let is_waiting = |client: &&Client| client.spare.is_some() && client.stage.server().is_none();
        self.connections.iter().filter(move |(_, client)| is_waiting(client)).map(|(id, client)| (*id, client))
    }

    /// A process works with its spare copy from now on; the server that it was on, and whether it was a client at all.
    pub(in crate::core) fn goes_on_with(&mut self, key: ProcessKey, grant: &Grant) -> (Option<ServerEpoch>, bool) {
        let connections = grant.connections.max(BEFORE_CONTEXTS);
        self.guests_mut().remove(grant.server, key.pid);
        self.spares.lived.insert(key, grant.token);
        if let Some(process) = self.known_mut(key) {
            let former = core::mem::replace(&mut process.server, grant.server);
            (process.connections, process.gpus) = (connections, Whereabouts::default());
            return (Some(former), true);
        }
        let connections = if grant.connections > BEFORE_CONTEXTS { UNCOUNTED } else { connections };
        let process = Process::guest(grant.server, grant.uid, Arc::clone(&grant.identity));
        self.insert_process(key.pid, Process { connections, ..process });
        (None, false)
    }
}

impl Core {
    /// What a process has of a place for a spare copy.
    pub(crate) fn spare_of(&self, process: ProcessKey) -> SparePlace {
        let spares = &self.clients.spares;
        match (spares.grants.get(&process), spares.wishes.contains_key(&process)) {
            (Some(grant), _) => SparePlace::Granted { token: grant.token, server: grant.server },
            (None, true) => SparePlace::Wanted,
            (None, false) => SparePlace::None,
        }
    }

    /// Whether a process may have address spaces that belong to another server than its own.
    pub(crate) fn may_be_guest(&self, process: ProcessKey) -> bool {
        self.clients.spares.grants.contains_key(&process) || self.clients.guests().of(process).next().is_some()
    }

    /// Whether a process works with the copy that stood by under this token.
    pub(crate) fn spare_has_lived(&self, process: ProcessKey, token: u64) -> bool {
        self.clients.spares.has_lived(process, token)
    }

    /// A spare copy's handshake is over.
    pub(in crate::core) fn spare_is_done(&mut self, client: &Client, server: Option<ServerEpoch>, status: Option<u32>) {
        let (Some(token), Some(server)) = (client.spare, server) else {
            return;
        };
        let pid = client.peer.pid;
        match status {
            Some(0) => {
                self.clients.guests_mut().is_accepted(server, pid);
                let grant = self.clients.spares.grant_mut(client.process(), token);
                if let Some(grant) = grant.filter(|grant| grant.server == server) {
                    grant.connections += 1;
                    self.turn.save();
                }
            }
            Some(status) => {
                self.turn.log(format!("A spare copy of client {pid} was not accepted by its server, status {status}"));
            }
            None => self.turn.log(format!("A spare copy of client {pid} left during its handshake")),
        }
    }
}
