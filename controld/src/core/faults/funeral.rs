//! What is done for a client that died, so that its death harms nobody.
//!
//! A kernel of a client that died goes on until it ends by itself, and faults as soon as the client's page tables are
//! gone, which ends every client of the server (measured on an H200 with 580, as everything here). The page tables stay
//! as long as anybody has the client's UVM descriptors open, so the driver holds a copy of them from the client's first
//! context on. Nothing tells when the dead client's work has drained: the server has forgotten it 20 ms after the
//! `kill`, the driver's accounting adds it to the server's, and other clients' work hides it. So the copies are kept
//!
//! - not at all after an orderly exit, which waits for the work, and of a client whose fault was isolated (`teardown.rs`);
//!   after an orderly exit from a spoilt server for as long as its burial is held (`burials.rs`);
//! - until the server's end after a sudden death when nobody else is on it. The server is retired at once: the fault
//!   would spoil it unseen, it would go on to say `ACTIVE`, and its next client would get 719 (3 of 3, with the vendor's
//!   daemon as well). The domain has another server, and the dead client's memory is free when this one has ended;
//! - for `hold_timeout` after a sudden death beside others, since they also pin the dead client's memory, and of that
//!   only so much at a time (`held.rs`);
//! - in the places that the living need: with 24 of them on a server its newcomers get another one;
//! - beyond that while others are still on the server, because the work may be endless: newcomers get another server
//!   then, and the copies are closed after `endless_hold`, or when the others have left and the server has ended.

mod restored;

pub(crate) use restored::Mourned;

use super::Faults;
use super::held::TAKEN_FOR;
use super::taint::Cause;
use crate::core::Core;
use crate::core::Effect;
use crate::core::clients::client::{BEFORE_CONTEXTS, Process};
use crate::core::effect::Turn;
use crate::core::events::{FuneralEnd, JournalEvent};
use crate::core::evidence::{End, ProcessKey};
use crate::core::facts::FuneralFacts;
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::servers::Clientele as _;
use crate::core::servers::server::{Server, ServerState};
use core::time::Duration;

/// How long copies are kept of a client of which nobody can say whether its death was sudden.
const UNKNOWN_END_HOLD: Duration = Duration::from_secs(1);
/// How long a server without clients may take to end by itself that is retired because of a dead one's work. SIGINT
/// ended one under an endless kernel in 22 ms.
const RETIREMENT: Duration = Duration::from_secs(1);
/// Dead clients whose copies are kept at one time; one of the user who has most of them makes room.
const MAX_FUNERALS: usize = 256;
/// Dead clients of one server whose copies are kept before its domain gets another one. Each keeps its place there, and
/// a server has places for some 60 clients: beside 8 living and 55 dead ones a newcomer's context failed with
/// `CUDA_ERROR_OUT_OF_MEMORY` on an H200 with 580.
const MANY_DEAD: usize = 24;

/// A dead client whose copies are held.
#[derive(Debug, Clone)]
pub(in crate::core) struct Funeral {
    pub(in crate::core) process: Process,
    pub(in crate::core) domain: String,
    pub(in crate::core) since: Duration,
    /// When they are closed, or the domain gets another server; `None` is when the others have left.
    act_at: Option<Duration>,
    /// Whether its work counts as endless.
    is_endless: bool,
    /// Whether they are kept only so that closing them holds up nobody who recovers.
    is_for_recoveries: bool,
    /// The GPU memory that it holds, in bytes, once that is known.
    pub(in crate::core) pinned: Option<u64>,
    /// Whether that was looked at, and if it is not known it is not known whose of several it is.
    pub(super) is_looked_at: bool,
}

impl Funeral {
    /// The GPU memory that it holds, in bytes, or is taken to hold.
    pub(in crate::core) fn bytes(&self) -> u64 {
        self.pinned.unwrap_or(TAKEN_FOR)
    }

    /// What reports and metrics say of it.
    fn facts(&self, process: ProcessKey, now: Duration) -> FuneralFacts {
        FuneralFacts {
            process,
            uid: self.process.uid,
            domain: self.domain.clone(),
            descriptors: self.process.copies,
            pinned_bytes: self.pinned,
            held: now.saturating_sub(self.since),
            endless: self.is_endless,
        }
    }
}

impl Faults {
    /// The dead whose copies are held, for reports.
    pub(in crate::core) fn funeral_facts(&self, now: Duration) -> Vec<FuneralFacts> {
        self.funerals.iter().map(|(key, funeral)| funeral.facts(*key, now)).collect()
    }

    /// Whether work of dead clients may run on a server.
    pub(in crate::core) fn has_funerals(&self, server: ServerEpoch) -> bool {
        self.funerals.values().any(|funeral| funeral.process.server == server)
    }

    pub(super) fn end_funeral(&mut self, turn: &mut Turn, key: ProcessKey, reason: FuneralEnd) {
        let now = turn.now;
        let Some(funeral) = self.funerals.remove(&key) else {
            return;
        };
        let Funeral { process, domain, since, pinned, is_looked_at, .. } = funeral;
        let (uid, descriptors, held) = (process.uid, process.copies, now.saturating_sub(since));
        let pinned_bytes = pinned;
        turn.record(JournalEvent::FuneralEnded { process: key, uid, domain, descriptors, pinned_bytes, reason, held });
        self.renew_death(now, key);
        turn.push(Effect::ReleaseCopies { process: key });
        self.hold_ends(now, is_looked_at && pinned.is_none());
    }

    pub(in crate::core) fn end_funerals_of(&mut self, turn: &mut Turn, server: ServerEpoch, reason: FuneralEnd) {
        let own = self.funerals.iter().filter(|(_, funeral)| funeral.process.server == server);
        let keys: Vec<ProcessKey> = own.map(|(key, _)| *key).collect();
        for key in keys {
            self.end_funeral(turn, key, reason);
        }
    }

    /// Closes what was kept only for those who recover from the fault of this server.
    pub(in crate::core) fn end_funerals_for_recoveries(&mut self, turn: &mut Turn, server: ServerEpoch) {
        let is_one = |funeral: &Funeral| funeral.is_for_recoveries && funeral.process.server == server;
        let keys: Vec<ProcessKey> =
            self.funerals.iter().filter(|(_, funeral)| is_one(funeral)).map(|(key, _)| *key).collect();
        for key in keys {
            self.end_funeral(turn, key, FuneralEnd::Recovered);
        }
    }

    pub(super) fn funerals_deadline(&self) -> Option<Duration> {
        self.funerals.values().filter_map(|funeral| funeral.act_at).min()
    }
}

impl Core {
    /// The driver holds this many copies of a client's UVM descriptors.
    pub(in crate::core) fn copies_held(&mut self, key: ProcessKey, descriptors: usize) {
        if self.clients.copies_held(key, descriptors) {
            return;
        }
        match self.faults.funerals.get_mut(&key) {
            // It was looked at once more when it died.
            Some(funeral) => funeral.process.copies = descriptors,
            // It died before the driver had any.
            None if descriptors > 0 => self.turn.push(Effect::ReleaseCopies { process: key }),
            None => {}
        }
    }

    /// A client's process is gone; it is in no table any more.
    pub(in crate::core) fn client_died(&mut self, pid: Pid, process: &Process, end: End) {
        let key = process.key(pid);
        self.faults.does_not_recover(key);
        self.faults.endings.remove(&key);
        let server = self.servers.get(process.server);
        let (server_pid, domain) = server.map_or((0, String::new()), |server| {
            (server.pid.unwrap_or_default(), self.servers.domain_name(server.domain))
        });
        let incident = self.faults.incident_of(process.server);
        let (uid, name) = (process.uid, domain.clone());
        self.turn.record(JournalEvent::ClientEnded {
            process: key,
            uid,
            domain: name,
            server: server_pid,
            end,
            incident,
        });
        self.faults.remember_death(self.turn.now, key, process, end);
        // One that met an error says so with its status, and may have been the first to meet it.
        if end != End::Exited(0) {
            self.suspect(process.server);
        }
        let is_sudden = matches!(end, End::Signaled(_) | End::OutOfMemory);
        if is_sudden && !process.condemned && !self.has_clients(process.server) {
            self.retire(process.server);
        }
        if process.copies > 0 {
            self.bury(key, process, domain.clone(), end);
        }
        if process.condemned {
            self.faults.await_last_trace(&mut self.turn, pid, process, domain);
        }
    }

    /// A process is gone that was a guest of this server: it may have been in the middle of work there.
    pub(in crate::core) fn guest_died(&mut self, pid: Pid, guest: &Process, end: End) {
        self.faults.remember_death(self.turn.now, guest.key(pid), guest, end);
        let is_sudden = matches!(end, End::Signaled(_) | End::OutOfMemory);
        let is_alone = self.clients.guests().on(guest.server).next().is_none() && !self.has_clients(guest.server);
        // With its first connection alone it had nothing that could work there.
        if is_sudden && is_alone && guest.connections > BEFORE_CONTEXTS {
            self.retire(guest.server);
        }
    }

    /// Ends a server whose last client has died suddenly, or that only the work of dead clients is left on.
    fn retire(&mut self, epoch: ServerEpoch) {
        if self.servers.get(epoch).is_none_or(|server| !server.is_connected()) {
            return;
        }
        self.taint(epoch, Cause::DeadClient);
        if self.servers.get(epoch).is_some_and(|server| !server.has_hidden_clients) {
            self.servers.hurry(epoch, self.turn.now + RETIREMENT);
        }
    }

    /// Whether a client that has died may have left work on any server.
    fn is_anywhere(&self, key: ProcessKey, process: &Process) -> bool {
        let guest_of = self.clients.guests().of(key).map(|(server, _)| server);
        let mut all = guest_of.chain([process.server]);
        // One that ends because its end is waited for may have been told so before the client's own end.
        all.any(|server| {
            self.servers.get(server).is_some_and(Server::is_connected) || self.servers.is_end_awaited(server)
        })
    }

    fn bury(&mut self, key: ProcessKey, process: &Process, domain: String, end: End) {
        let now = self.turn.now;
        let hold = match end {
            _ if !self.turn.policy.funerals.hold => Duration::ZERO,
            // Nobody is there to be harmed.
            _ if !self.is_anywhere(key, process) => Duration::ZERO,
            // The patched module has given its work pages that can't fault.
            _ if process.condemned => Duration::ZERO,
            End::Exited(_) => self.faults.burial_left(now, process.server),
            End::Unknown => self.turn.policy.funerals.hold_timeout.min(UNKNOWN_END_HOLD),
            End::Signaled(_) | End::OutOfMemory => self.turn.policy.funerals.hold_timeout,
        };
        if hold.is_zero() {
            self.faults.renew_death(now, key);
            self.turn.push(Effect::ReleaseCopies { process: key });
            return;
        }
        if self.faults.funerals.len() >= MAX_FUNERALS {
            self.make_room_for_hold();
        }
        let (uid, descriptors) = (process.uid, process.copies);
        let begun =
            JournalEvent::FuneralBegun { process: key, uid, domain: domain.clone(), descriptors, pinned_bytes: None };
        self.turn.record(begun);
        let act_at = Some(now + hold);
        let process = process.clone();
        let server = process.server;
        let (is_endless, pinned, is_looked_at) = (false, None, false);
        let is_for_recoveries = matches!(end, End::Exited(_));
        let funeral =
            Funeral { process, domain, since: now, act_at, is_endless, is_for_recoveries, pinned, is_looked_at };
        self.faults.funerals.insert(key, funeral);
        self.hold_begins();
        // There may be no room for it.
        if self.faults.funerals.contains_key(&key) {
            // A successor knows of nobody who recovers, and closes them then.
            let endless = is_for_recoveries;
            self.turn.push(Effect::NoteFuneral { process: key, until: act_at, endless });
        }
        if self.faults.funerals.values().filter(|funeral| funeral.process.server == server).count() >= MANY_DEAD {
            self.taint(server, Cause::DeadClient);
        }
    }

    /// How long copies are kept after a sudden death; `None` is not at all.
    pub(crate) fn hold_timeout(&self) -> Option<Duration> {
        self.turn.policy.funerals.hold.then_some(self.turn.policy.funerals.hold_timeout)
    }

    /// Whether a server has a client that lives, or has still to say so after it was taken over.
    pub(in crate::core) fn has_clients(&self, server: ServerEpoch) -> bool {
        self.clients.are_on(server) || self.servers.get(server).is_some_and(|server| server.census_due)
    }

    /// Whether copies of a client's descriptors are of use: it lives, or its funeral is under way.
    pub(crate) fn holds_copies_of(&self, key: ProcessKey) -> bool {
        self.faults.funerals.contains_key(&key) || self.clients.known(key).is_some()
    }

    /// Whether a server that is left to the dead has been told to go.
    fn is_retired(&self, epoch: ServerEpoch) -> bool {
        self.servers.get(epoch).is_none_or(|server| match &server.state {
            ServerState::Draining(drain) => {
                server.tainted().is_some() && (server.has_hidden_clients || drain.force_at.is_some())
            }
            ServerState::Ending { .. } => true,
            ServerState::Starting { .. } | ServerState::Serving => false,
        })
    }

    pub(in crate::core) fn advance_funerals(&mut self) {
        let now = self.turn.now;
        // Those that are closed as soon as nobody recovers leave no work behind.
        let sudden = self.faults.funerals.iter().filter(|(_, funeral)| !funeral.is_for_recoveries);
        let alone = sudden.filter(|(_, funeral)| !self.has_clients(funeral.process.server));
        let alone: Vec<ServerEpoch> = alone.map(|(_, funeral)| funeral.process.server).collect();
        for server in alone {
            if !self.is_retired(server) {
                self.retire(server);
            }
        }
        let due = self.faults.funerals.iter().filter(|(_, funeral)| funeral.act_at.is_some_and(|at| at <= now));
        let due: Vec<(ProcessKey, ServerEpoch, bool)> = due
            .map(|(key, funeral)| (*key, funeral.process.server, funeral.is_endless || funeral.is_for_recoveries))
            .collect();
        for (key, server, is_over) in due {
            if is_over || self.turn.policy.funerals.endless_hold == Some(Duration::ZERO) {
                self.faults.end_funeral(&mut self.turn, key, FuneralEnd::TimedOut);
                continue;
            }
            self.turn.log(format!(
                "Client {} died {} s ago and its work may never end: its descriptors stay open while others are on \
                 its server",
                key.pid,
                self.turn.policy.funerals.hold_timeout.as_secs()
            ));
            let until = self.turn.policy.funerals.endless_hold.map(|hold| now + hold);
            if let Some(funeral) = self.faults.funerals.get_mut(&key) {
                funeral.is_endless = true;
                funeral.act_at = until;
            }
            self.turn.push(Effect::NoteFuneral { process: key, until, endless: true });
            self.taint(server, Cause::DeadClient);
        }
    }
}
