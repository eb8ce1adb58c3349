//! How thin daemons join, go and are found again.
//!
//! A server as which one has joined outlives it: whoever comes again by the same name takes it up, with its limits and its
//! clients. It ends when the thin daemon says so or is told to (`quit`), as a daemon of its own would: newcomers are let in
//! no longer, and its processes go when they have no clients. One that nobody stands for and nobody uses is forgotten.

use super::named::chosen;
use crate::core::clients::client::Client;
use crate::core::ids::{ConnectionId, EntranceId, JoinId, ServerEpoch, SessionId};
use crate::core::peer::Entrance;
use crate::core::servers::joined::Joined;
use crate::core::{Core, Device, Effect};
use core::time::Duration;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::DeviceKey;
use remps_proto::admin::module::DEFAULT_NAMESPACE;

/// How long a server lasts without clients and without a thin daemon: longer than Kubernetes waits between two starts of a
/// container that fails (5 min).
const ALONE: Duration = Duration::from_secs(600);
/// How long a thin daemon may take to go when it is told, before those who wait for that are answered all the same.
const FAREWELL: Duration = Duration::from_secs(10);

/// A server that is gone from the list and still has processes, or a thin daemon.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ending {
    /// Those that it had: its own, and those of namespaces that somebody has made in it.
    pub(super) entrances: Vec<EntranceId>,
    /// The thin daemon that is told when it is over.
    join: Option<JoinId>,
    /// Sessions whose `quit` is answered when it is gone.
    sessions: Vec<SessionId>,
    /// When they are answered all the same, once it was told.
    answered_at: Option<Duration>,
}

impl Core {
    /// Whether there is a server of this name as which somebody has joined.
    pub(crate) fn has_joined(&self, name: &str) -> bool {
        self.servers.named().get(name).is_some_and(|server| server.joined.is_some())
    }

    /// Whether this is the entrance of a joined server, whose socket is in a directory that is not the daemon's.
    pub(crate) fn is_joined(&self, entrance: EntranceId) -> bool {
        self.servers.named().joined_at(entrance).is_some()
    }

    /// The name of the server whose clients come to this entrance.
    pub(crate) fn server_behind(&self, entrance: EntranceId) -> Option<String> {
        Some(self.servers.named().find(entrance)?.0.server)
    }

    /// The entrance of the server as which this thin daemon has joined.
    pub(crate) fn entrance_of_join(&self, join: JoinId) -> Option<EntranceId> {
        let name = self.servers.named().joined_by(join)?;
        self.servers.named().entrance_of(&name).map(|entrance| entrance.id)
    }

    /// A thin daemon wants to join. `is_same_place` says that its directory is that of the one that stands for this server
    /// now, which it has locked: so that one is dead.
    pub(in crate::core) fn join(
        &mut self,
        join: JoinId,
        name: &str,
        devices: &[DeviceKey],
        limits: Option<Defaults>,
        listed: &Result<Vec<Device>, String>,
        is_same_place: bool,
    ) {
        match self.prepared(join, name, devices, limits, listed, is_same_place) {
            Ok(entrance) => self.turn.push(Effect::BindJoined { join, entrance }),
            Err(reason) => self.turn.push(Effect::RefuseJoin { join, reason }),
        }
    }

    fn prepared(
        &mut self,
        join: JoinId,
        name: &str,
        devices: &[DeviceKey],
        limits: Option<Defaults>,
        listed: &Result<Vec<Device>, String>,
        is_same_place: bool,
    ) -> Result<Entrance, String> {
        if self.turn.quit.is_some() {
            return Err("the daemon is about to quit".to_owned());
        }
        let now = self.turn.now;
        let known = self.servers.named().entrance_of(name);
        match (self.servers.named_mut().get_mut(name), known) {
            (Some(server), Some(entrance)) => {
                let Some(joined) = &mut server.joined else {
                    return Err(format!("server {name} is there already, and nobody has joined as it"));
                };
                if joined.join.is_some() && !is_same_place {
                    return Err(format!("another daemon has joined as {name}, and lives"));
                }
                let before = joined.join.replace(join);
                if let Some(before) = before {
                    let reason = "another one has taken its place".to_owned();
                    self.turn.push(Effect::EndJoin { join: before, reason });
                }
                Ok(entrance)
            }
            _ => {
                let chosen = chosen(devices, listed)?;
                let visible = u32::try_from(listed.as_ref().map_or(0, Vec::len)).unwrap_or_default();
                let defaults = limits.unwrap_or_else(|| self.defaults.clone());
                let joined = Joined { defaults, join: Some(join), alone_since: now };
                self.servers.named_mut().add_joined(name, chosen, visible, joined)
            }
        }
    }

    /// The socket in a thin daemon's directory is there, or can't be.
    pub(in crate::core) fn join_bound(&mut self, join: JoinId, entrance: EntranceId, result: Result<(), String>) {
        let name = self.servers.named().joined_by(join);
        let found = name.and_then(|name| self.servers.named().entrance_of(&name)).filter(|it| it.id == entrance);
        let Some(Entrance { server: name, .. }) = found else {
            // It was deleted meanwhile, or another one has come in its place.
            let reason = "its server was deleted meanwhile".to_owned();
            return self.turn.push(Effect::RefuseJoin { join, reason });
        };
        if let Err(reason) = result {
            if self.servers.named().get(&name).is_some_and(|server| server.is_open()) {
                self.is_alone(&name);
            } else {
                self.servers.named_mut().remove(&name, DEFAULT_NAMESPACE);
            }
            return self.turn.push(Effect::RefuseJoin { join, reason });
        }
        self.servers.named_mut().opened(entrance);
        self.turn.log(format!("A daemon has joined as {name}"));
        self.turn.push(Effect::AcceptJoin { join, name: name.clone() });
        self.tell_join(&name);
        self.turn.save();
    }

    /// Tells the thin daemon that stands for a server what its clients may have, so that it can tell the next daemon of
    /// the node.
    pub(super) fn tell_join(&mut self, name: &str) {
        let joined = self.servers.named().get(name).and_then(|server| server.joined.as_ref());
        if let Some((join, defaults)) = joined.and_then(|joined| Some((joined.join?, joined.defaults.clone()))) {
            self.turn.push(Effect::TellJoin { join, defaults });
        }
    }

    fn is_alone(&mut self, name: &str) {
        let now = self.turn.now;
        if let Some(joined) = self.servers.named_mut().get_mut(name).and_then(|server| server.joined.as_mut()) {
            joined.join = None;
            joined.alone_since = now;
        }
    }

    /// A thin daemon is gone. Its server stays, and so do its clients.
    pub(in crate::core) fn join_gone(&mut self, join: JoinId) {
        if let Some(name) = self.servers.named().joined_by(join) {
            self.is_alone(&name);
            self.turn.log(format!("The daemon that has joined as {name} is gone; its clients are served on"));
        }
        for ending in self.commands.endings.iter_mut().filter(|ending| ending.join == Some(join)) {
            ending.join = None;
        }
    }

    /// A thin daemon says that it ends: it waits for nobody.
    pub(in crate::core) fn join_leaves(&mut self, join: JoinId) {
        if let Some(name) = self.servers.named().joined_by(join) {
            self.take_down(&name, None, None);
        }
        for ending in self.commands.endings.iter_mut().filter(|ending| ending.join == Some(join)) {
            ending.join = None;
        }
        self.turn.push(Effect::EndJoin { join, reason: "it was told to end".to_owned() });
    }

    /// Forgets a joined server: nobody is let in any more, who waits is let go, and its processes end when they have no
    /// clients, or at `force_at`.
    pub(super) fn take_down(&mut self, name: &str, session: Option<SessionId>, force_at: Option<Duration>) {
        let join = self.servers.named().get(name).and_then(|server| server.joined.as_ref()?.join);
        let removed = self.servers.named_mut().remove(name, DEFAULT_NAMESPACE);
        if removed.is_empty() {
            return;
        }
        let entrances: Vec<EntranceId> = removed.iter().map(|entrance| entrance.id).collect();
        removed.into_iter().for_each(|entrance| self.turn.push(Effect::CloseEntrance(entrance)));
        self.turn.log(format!("Clients of {name} are let in no longer"));
        let connections = self.connections_within(&entrances);
        self.refuse_those(&connections);
        self.servers.forget_requests_within(&entrances);
        self.drain_within(&entrances, force_at);
        let ending = Ending { entrances, join, sessions: session.into_iter().collect(), answered_at: None };
        self.commands.endings.push(ending);
        self.turn.save();
    }

    fn drain_within(&mut self, entrances: &[EntranceId], force_at: Option<Duration>) {
        for epoch in self.servers_within(entrances) {
            self.servers.drain(&mut self.turn, epoch, force_at, false);
        }
    }

    /// Another `quit` for a server that is gone from the list already; whether it still has to end.
    pub(super) fn ends_already(&mut self, id: EntranceId, session: SessionId, force_at: Option<Duration>) -> bool {
        let ending = self.commands.endings.iter_mut().find(|ending| ending.entrances.contains(&id));
        let entrances = ending.map(|ending| {
            ending.sessions.push(session);
            ending.entrances.clone()
        });
        if let Some(entrances) = &entrances {
            self.drain_within(entrances, force_at);
        }
        entrances.is_some()
    }

    pub(super) fn connections_within(&self, entrances: &[EntranceId]) -> Vec<ConnectionId> {
        let is_there = |client: &Client| self.is_within(client.domain, entrances);
        self.clients.connections().filter(|(_, client)| is_there(client)).map(|(connection, _)| connection).collect()
    }

    pub(super) fn servers_within(&self, entrances: &[EntranceId]) -> Vec<ServerEpoch> {
        let is_there = |domain| self.is_within(domain, entrances);
        self.servers.iter().filter(|server| is_there(server.domain)).map(|server| server.epoch).collect()
    }

    fn is_in_use(&self, entrances: &[EntranceId]) -> bool {
        let of_it = self.servers_within(entrances);
        !self.connections_within(entrances).is_empty()
            || of_it.iter().any(|epoch| self.clients.on(*epoch).next().is_some())
    }

    /// Ends what is over: servers whose last process has gone, and those that nobody has stood for long.
    pub(in crate::core) fn advance_joined(&mut self) {
        let now = self.turn.now;
        let mut endings = core::mem::take(&mut self.commands.endings);
        for ending in &mut endings {
            if ending.answered_at.is_none() && self.servers_within(&ending.entrances).is_empty() {
                ending.answered_at = Some(now.saturating_add(FAREWELL));
                if let Some(join) = ending.join {
                    self.turn.push(Effect::EndJoin { join, reason: "it was told to quit".to_owned() });
                }
            }
        }
        // Who waits for `quit` must find the thin daemon gone when he is answered.
        let is_over = |ending: &mut Ending| ending.answered_at.is_some_and(|at| ending.join.is_none() || at <= now);
        for over in endings.extract_if(.., is_over) {
            for session in over.sessions {
                self.turn.push(Effect::EndSession { session });
            }
        }
        self.commands.endings = endings;
        let alone: Vec<String> =
            self.alone().filter(|(_, since)| since.saturating_add(ALONE) <= now).map(|it| it.0).collect();
        for name in alone {
            let of_it = self.servers.named().entrances().filter(|entrance| entrance.server == name);
            let entrances: Vec<EntranceId> = of_it.map(|entrance| entrance.id).collect();
            if self.is_in_use(&entrances) {
                self.is_alone(&name);
            } else {
                self.turn.log(format!("Nobody has stood for {name} for {} s", ALONE.as_secs()));
                self.take_down(&name, None, None);
            }
        }
    }

    /// The joined servers without a thin daemon, and since when.
    fn alone(&self) -> impl Iterator<Item = (String, Duration)> {
        self.servers.named().iter().filter_map(|(name, server)| {
            let joined = server.joined.as_ref().filter(|joined| joined.join.is_none())?;
            Some((name.to_owned(), joined.alone_since))
        })
    }

    /// When [`advance_joined`](Self::advance_joined) has something to do without anything having happened.
    pub(in crate::core) fn joined_deadline(&self) -> Option<Duration> {
        let alone = self.alone().map(|(_, since)| since.saturating_add(ALONE));
        alone.chain(self.commands.endings.iter().filter_map(|ending| ending.answered_at)).min()
    }
}
