//! Which server a process has, and how that is.

use super::evidence::ProcessKey;
use super::ids::ServerEpoch;
use super::server::ServerState;
use super::{Core, server::Server};

/// How a process's server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It serves.
    Healthy,
    /// It has met a fault that its clients share.
    Tainted,
    /// It ends.
    Ending,
}

impl Core {
    /// The server of a process, while it is known: a process that was forgotten has none.
    #[must_use]
    pub fn fate_of(&self, process: ProcessKey) -> Option<(ServerEpoch, Fate)> {
        let known = self.processes.get(&process.pid).filter(|known| known.is(process))?;
        let fate = match self.servers.get(&known.server) {
            None | Some(Server { state: ServerState::Ending { .. }, .. }) => Fate::Ending,
            Some(Server { tainted: Some(_), .. }) => Fate::Tainted,
            Some(_) => Fate::Healthy,
        };
        Some((known.server, fate))
    }
}
