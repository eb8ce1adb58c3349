//! Servers as which thin daemons have joined: named ones whose socket is in a directory of that daemon's own, and whose
//! clients go by defaults of their own, as under a daemon of their own.

use super::named::{Named, NamedDevice, NamedServer};
use crate::core::ids::{EntranceId, JoinId, Uid};
use crate::core::peer::Entrance;
use crate::core::saved::SavedDefaults;
use core::time::Duration;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::module::DEFAULT_NAMESPACE;

/// What makes a named server a joined one.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::core) struct Joined {
    /// What its servers to come start with.
    pub(in crate::core) defaults: Defaults,
    /// The thin daemon that stands for it now.
    pub(in crate::core) join: Option<JoinId>,
    /// Since when there is none.
    pub(in crate::core) alone_since: Duration,
}

impl Joined {
    pub(super) fn saved(&self) -> SavedDefaults {
        SavedDefaults::of(&self.defaults)
    }

    /// As an earlier daemon has left it: whoever stands for it has to join again.
    pub(super) fn restored(saved: &SavedDefaults) -> Self {
        Self { defaults: saved.read(), join: None, alone_since: Duration::ZERO }
    }
}

impl Named {
    /// Notes a server as which a thin daemon joins, and whose socket is still to be made.
    ///
    /// # Errors
    /// Why it can't be, in words for who wants it.
    pub(in crate::core) fn add_joined(
        &mut self,
        name: &str,
        devices: Vec<NamedDevice>,
        visible: u32,
        joined: Joined,
    ) -> Result<Entrance, String> {
        let nobodys: Option<Uid> = None;
        let entrance = self.add_server(name, nobodys, devices, visible)?;
        if let Some(server) = self.get_mut(name) {
            server.joined = Some(joined);
        }
        Ok(entrance)
    }

    /// The entrance of a server with its number there, open or about to be.
    pub(in crate::core) fn entrance_of(&self, server: &str) -> Option<Entrance> {
        let space = self.get(server)?.namespaces.get(DEFAULT_NAMESPACE)?;
        Some(Entrance { id: space.id, server: server.to_owned(), namespace: DEFAULT_NAMESPACE.to_owned() })
    }

    /// The joined server that has this entrance, open or about to be.
    pub(in crate::core) fn joined_at(&self, id: EntranceId) -> Option<&NamedServer> {
        let is_it = |server: &&NamedServer| server.namespaces.values().any(|space| space.id == id);
        self.iter().map(|(_, server)| server).filter(|server| server.joined.is_some()).find(is_it)
    }

    /// The server as which this thin daemon has joined.
    pub(in crate::core) fn joined_by(&self, join: JoinId) -> Option<String> {
        let is_its = |server: &NamedServer| server.joined.as_ref().is_some_and(|joined| joined.join == Some(join));
        self.iter().find(|(_, server)| is_its(server)).map(|(name, _)| name.to_owned())
    }
}
