//! A server whose end a program's successor waits for, because its predecessor was there and nothing but that end proves
//! that no work of it is left.
//!
//! Such a server drains: the predecessor died suddenly and alone on it, or a fault has spoilt it. It would be asked to end
//! and answer, for as long as it takes a dead client down, that it still has one, and be asked again after a pause. Where
//! nobody is left on it that is waiting for nothing, so it is ended at once, as the operator's order does it.
//!
//! | | |
//! |---|---|
//! | nobody is harmed | no client, guest or newcomer is on it or on the way there, also none without a pid here or of whom a daemon before this one knew, and nobody whose recovery holds its burial |
//! | the predecessor itself | has ended; or is past running anything, as the kernel says, and ends by a signal: it gives nothing more to the GPU, and the server is retired for it as it would be in a moment |
//!
//! That a server is waited for is known until its end, also when the name is given with less than that: it is ended so only
//! when it is to end and is of no use to anybody.
//!
//! The dead one's copies stay open until the server's end, as always. Whoever comes waits for the server in its place.

use crate::core::evidence::{End, ProcessKey};
use crate::core::faults::taint::Cause;
use crate::core::ids::ServerEpoch;
use crate::core::servers::server::{Server, ServerState};
use crate::core::{Core, Pid};

impl Core {
    /// Somebody waits for the end of a server, of which a client may be about to end, and how.
    pub(in crate::core) fn end_awaited(&mut self, epoch: ServerEpoch, ending: Option<(ProcessKey, End)>) {
        let sudden = ending.filter(|(_, end)| matches!(end, End::Signaled(_) | End::OutOfMemory));
        let dying = sudden.map(|(process, _)| process).filter(|process| self.clients.known(*process).is_some());
        self.servers.await_end(epoch, dying);
        let condemned = dying.and_then(|process| self.clients.known(process)).is_some_and(|known| known.condemned);
        let is_connected = self.servers.get(epoch).is_some_and(Server::is_connected);
        if dying.is_some() && !condemned && is_connected && self.is_left(epoch) {
            self.taint(epoch, Cause::DeadClient);
        }
    }

    /// Ends the servers that are waited for and that nobody is left on.
    pub(in crate::core) fn end_awaited_servers(&mut self) {
        if self.turn.quit.is_some() {
            return;
        }
        let now = self.turn.now;
        let is_due = |server: &Server| {
            let drains = matches!(server.state, ServerState::Draining(_)) && server.tainted().is_some();
            drains && server.is_connected() && server.held_until.is_none_or(|until| until <= now)
        };
        let due: Vec<ServerEpoch> =
            self.servers.awaited_ends().filter(|server| is_due(server)).map(|s| s.epoch).collect();
        for epoch in due {
            if self.is_left(epoch) {
                self.servers.force(&mut self.turn, epoch);
            }
        }
    }

    /// Whether nobody is on a server, or on the way there, but one that is past doing anything.
    fn is_left(&self, epoch: ServerEpoch) -> bool {
        let Some(server) = self.servers.get(epoch) else { return false };
        let dying: Option<Pid> = self.servers.dying_on(epoch).map(|process| process.pid);
        let is_unknown = server.census_due || server.has_hidden_clients || server.has_unknown_clients;
        let others = self.clients.on(epoch).filter(|(pid, _)| Some(*pid) != dying).count();
        let guests = self.clients.guests().on(epoch).count();
        let coming =
            self.clients.iter().any(|client| client.stage.server() == Some(epoch) && Some(client.peer.pid) != dying);
        !is_unknown && others == 0 && guests == 0 && !coming
    }
}
