//! Changes of named servers and default limits are kept on disk before they are so, where the operator wants that: a command that was
//! answered is found again after the daemon's end, and one that can't be kept changes nothing and says why.
//!
//! One change at a time: what is to be kept is everything as it will be after it, so the next one waits.

use crate::core::clients::client::Client;
use crate::core::events::RefusalReason;
use crate::core::ids::{ConnectionId, EntranceId, SessionId, Uid};
use crate::core::kept_defaults::Said;
use crate::core::peer::Entrance;
use crate::core::servers::named::{Named, not_found};
use crate::core::{Core, DomainId, Effect, Peer};
use remps_proto::admin::command::Command;
use remps_proto::admin::module::{DEFAULT_NAMESPACE, Limits};
use std::collections::VecDeque;

/// What one change does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A namespace that has its socket by now lets clients in; for whom it was made.
    Open { entrance: EntranceId, maker: Peer },
    /// Limits are set, and whom a server serves.
    Set { server: String, namespace: String, uid: Option<Uid>, limits: Limits },
    /// A namespace goes, or with `default` its server.
    Delete { server: String, namespace: String, force: bool },
    /// A command of the second interface sets a value that servers to come start with.
    Default(Box<Command>),
    /// What is so is kept once more: a change was kept that could not be made.
    Again,
}

/// A change, and who waits for it.
type Wanted = (Option<SessionId>, Step);

/// Which changes wait to be kept.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    is_wanted: bool,
    /// The one that is being kept, by its number.
    under_way: Option<(u64, Wanted)>,
    waiting: VecDeque<Wanted>,
    last: u64,
    /// Which of the defaults commands have set.
    pub(super) said: Said,
    /// Whether this daemon has gone on where another one stopped.
    pub(super) goes_on: bool,
}

impl Core {
    /// Has all changes kept before they are made.
    pub(crate) fn keep_servers(&mut self) {
        self.commands.keeping.is_wanted = true;
    }

    /// Makes a change, once it is kept.
    pub(super) fn make(&mut self, session: Option<SessionId>, step: Step) {
        if !self.commands.keeping.is_wanted {
            return self.commit((session, step));
        }
        self.commands.keeping.waiting.push_back((session, step));
        self.keep_next();
    }

    fn keep_next(&mut self) {
        while self.commands.keeping.under_way.is_none() {
            let Some((session, step)) = self.commands.keeping.waiting.pop_front() else { return };
            match self.after(&step) {
                Ok(after) => {
                    let defaults = self.kept_defaults_after(&step);
                    let keeping = &mut self.commands.keeping;
                    keeping.last += 1;
                    let number = keeping.last;
                    keeping.under_way = Some((number, (session, step)));
                    self.turn.push(Effect::KeepServers { number, servers: after.saved(), defaults });
                }
                Err(reason) => self.undo(session, &step, reason),
            }
        }
    }

    /// What was to be kept is, or can't be.
    pub(in crate::core) fn servers_kept(&mut self, number: u64, result: Result<(), String>) {
        let Some((_, (session, step))) = self.commands.keeping.under_way.take_if(|(wanted, _)| *wanted == number)
        else {
            return;
        };
        match result {
            Ok(()) => self.commit((session, step)),
            Err(reason) => {
                let what = if matches!(step, Step::Default(_)) { "Default limits" } else { "Named servers" };
                self.undo(session, &step, format!("{what} can't be kept: {reason}"));
            }
        }
        self.keep_next();
    }

    /// All named servers as they are after a change.
    fn after(&self, step: &Step) -> Result<Named, String> {
        let mut named = self.servers.named().clone();
        match step {
            Step::Open { entrance, .. } => {
                if named.entrances().all(|known| known.id != *entrance) {
                    return Err("It was deleted meanwhile".to_owned());
                }
                named.opened(*entrance);
            }
            Step::Set { server, namespace, uid, limits } => {
                set(&mut named, server, namespace, *limits)?;
                if let Some(uid) = uid {
                    let uid = self.user_of_server(Some(*uid))?;
                    named.set_user(server, uid)?;
                }
            }
            Step::Delete { server, namespace, force } => {
                self.may_go(server, namespace, *force)?;
                named.remove(server, namespace);
            }
            Step::Default(_) | Step::Again => {}
        }
        Ok(named)
    }

    /// Nothing comes of a change.
    fn undo(&mut self, session: Option<SessionId>, step: &Step, reason: String) {
        if let Step::Open { entrance, .. } = step {
            let made = self.servers.named().entrances().find(|known| known.id == *entrance);
            for gone in made.map_or_else(Vec::new, |it| self.servers.named_mut().remove(&it.server, &it.namespace)) {
                self.turn.push(Effect::CloseEntrance(gone));
            }
        }
        match session {
            Some(session) => self.fail(session, reason),
            None => self.turn.log(reason),
        }
    }

    /// Makes a change that is kept, if it was to be.
    fn commit(&mut self, (session, step): Wanted) {
        let after = match self.after(&step) {
            Ok(after) => after,
            Err(reason) => {
                // What was kept is not so: somebody came meanwhile to what was to be deleted.
                self.undo(session, &step, reason);
                if self.commands.keeping.is_wanted && step != Step::Again {
                    self.commands.keeping.waiting.push_front((None, Step::Again));
                }
                return;
            }
        };
        match step {
            Step::Again => return,
            Step::Default(command) => return self.set_default(session, &command),
            Step::Open { entrance, maker } => {
                *self.servers.named_mut() = after;
                let opened = self.servers.named().entrances().find(|known| known.id == entrance);
                if let Some(entrance) = opened {
                    self.turn.log(format!("Clients of {} are let in", said(&entrance)));
                    self.begin_server(&entrance, maker);
                }
            }
            Step::Set { server, namespace, limits, .. } => {
                *self.servers.named_mut() = after;
                self.tell_limits(&server, &namespace, limits);
            }
            Step::Delete { server, namespace, force } => self.delete(&server, &namespace, force),
        }
        self.turn.save();
        if let Some(session) = session {
            self.answer(session, vec![]);
        }
    }

    pub(super) fn is_within(&self, domain: DomainId, entrances: &[EntranceId]) -> bool {
        let entrance = self.servers.domain(domain).and_then(|domain| domain.key.entrance.as_ref());
        entrance.is_some_and(|entrance| entrances.contains(&entrance.id))
    }

    /// The entrances that go with a namespace, or with `default` all of the server.
    fn going(&self, server: &str, namespace: &str) -> Vec<EntranceId> {
        let of_all = namespace == DEFAULT_NAMESPACE;
        let spaces = self.servers.named().get(server).map(|known| &known.namespaces).into_iter().flatten();
        spaces.filter(|(name, _)| of_all || *name == namespace).map(|(_, space)| space.id).collect()
    }

    /// Why a namespace can't be deleted, or with `default` its server.
    fn may_go(&self, server: &str, namespace: &str, force: bool) -> Result<(), String> {
        if self.servers.named().get(server).is_none() {
            return Err(not_found(server));
        }
        let gone = self.going(server, namespace);
        if gone.is_empty() {
            return Err(format!("Namespace {namespace} of server {server} not found"));
        }
        let processes = self.servers_within(&gone).iter().map(|epoch| self.clients.on(*epoch).count()).sum::<usize>();
        let count = processes.max(self.connections_within(&gone).len());
        if !force && count > 0 {
            let whose = if namespace == DEFAULT_NAMESPACE {
                format!("Server {server}")
            } else {
                format!("Namespace {namespace}")
            };
            return Err(format!("{whose} has clients: {count}; --force deletes it all the same"));
        }
        Ok(())
    }

    fn delete(&mut self, server: &str, namespace: &str, force: bool) {
        let gone = self.going(server, namespace);
        let (of_them, connections) = (self.servers_within(&gone), self.connections_within(&gone));
        let known = self.servers.named().get(server).filter(|_| namespace == DEFAULT_NAMESPACE);
        if let Some(join) = known.and_then(|known| known.joined.as_ref()).and_then(|joined| joined.join) {
            let reason = format!("server {server} was deleted");
            self.turn.push(Effect::EndJoin { join, reason });
        }
        for entrance in self.servers.named_mut().remove(server, namespace) {
            self.turn.log(format!("Clients of {} are let in no longer", said(&entrance)));
            self.turn.push(Effect::CloseEntrance(entrance));
        }
        self.refuse_those(&connections);
        self.servers.forget_requests_within(&gone);
        for epoch in of_them {
            self.servers.drain(&mut self.turn, epoch, None, false);
            if force {
                self.servers.force(&mut self.turn, epoch);
            }
        }
    }

    /// Lets those go who wait for a server that is never to come.
    pub(super) fn refuse_those(&mut self, connections: &[ConnectionId]) {
        for connection in connections {
            let waits = |client: &&Client| client.stage.server().is_none();
            let Some(client) = self.clients.get(*connection).filter(waits).cloned() else { continue };
            self.clients.dequeue(client.domain, *connection);
            self.clients.forget_connection(*connection);
            let (reason, words) = (RefusalReason::Namespace, "its namespace is gone");
            self.clients.refuse(&mut self.turn, *connection, client.peer, &client.identity, reason, words);
        }
    }
}

fn set(named: &mut Named, server: &str, namespace: &str, limits: Limits) -> Result<(), String> {
    let known = named.get_mut(server).filter(|known| known.is_open());
    let known = known.ok_or_else(|| not_found(server))?;
    let is_limited = limits.memory.is_some_and(|limit| !limit.is_none());
    if is_limited && known.devices_seen() == 0 {
        return Err(format!("Nobody could tell which devices server {server} has, so no memory limit would hold"));
    }
    let space = known.namespaces.get_mut(namespace).filter(|space| space.is_open);
    let space = space.ok_or_else(|| format!("Namespace {namespace} of server {server} not found"))?;
    space.limits = limits.or(space.limits);
    Ok(())
}

/// A namespace, for the log.
pub(super) fn said(Entrance { server, namespace, .. }: &Entrance) -> String {
    if namespace == DEFAULT_NAMESPACE {
        format!("server {server}")
    } else {
        format!("namespace {namespace} of server {server}")
    }
}
