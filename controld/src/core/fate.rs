//! Which server a process has, and how that is.

use super::evidence::ProcessKey;
use super::ids::{Pid, ServerEpoch, Uid};
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

    /// How a server is, and whether it is being asked just now; `None` when its process is reaped.
    #[must_use]
    pub fn fate_of_server(&self, server: ServerEpoch) -> Option<(Fate, bool)> {
        let server = self.servers.get(&server)?;
        let fate = match server {
            Server { tainted: Some(_), .. } => Fate::Tainted,
            Server { state: ServerState::Ending { .. }, .. } => Fate::Ending,
            _ => Fate::Healthy,
        };
        Some((fate, server.suspected))
    }

    /// The server that a client of this pid was on, which has ended and was noticed to have.
    #[must_use]
    pub fn server_of_ended(&self, pid: Pid, uid: Uid) -> Option<ServerEpoch> {
        let death = self.deaths.iter().rev().find(|death| death.key.pid == pid && death.process.uid == uid)?;
        Some(death.process.server)
    }

    /// Whether a process of this pid is a client, or has ended and that was not noticed yet.
    #[must_use]
    pub fn is_client(&self, pid: Pid) -> bool {
        self.processes.contains_key(&pid)
    }
}
