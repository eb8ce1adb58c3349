//! What a successor finds with the holder, and what it does:
//!
//! | found | done |
//! |---|---|
//! | a server's connection, noted as a link and still open | resumed: answers to the earlier daemon are dropped |
//! | a server without a link, or one whose configuration may be half told | ended: it has no clients yet |
//! | no server that goes on | servers start with what this daemon's environment says, and else with what commands have said |
//! | a client that waits | it waits |
//! | a client whose server was being told | it waits until the server shows whether it was ([`handover`](crate::driver::clients::handover)) |
//! | a client without a pid here | it is known again, and its end is waited for ([`hidden`](crate::driver::clients::hidden)) |
//! | a client whose server has its end | it is sent its own end again; if it had it, it ignores the second |
//! | copies of a living client's UVM descriptors | watched and kept on when its server names it |
//! | a dead client's | kept for the rest of their time |
//! | what is noted of compute modes | gone on with ([`gpus`](crate::driver::gpus)) |
//! | a connection without a role | its next packet says what it is |
//!
//! Sessions of the command line are not kept: nobody could say which of their commands were done.

mod connections;
mod found;

use super::keys;
use super::notes::{ConnectionNote, Stage};
use crate::core::saved::{Saved, SavedServer};
use crate::core::{ConnectionId, Core, Policy, ServerEpoch};
use crate::driver::Driver;
use crate::driver::processes::kernel_pid;
use crate::io::process::{WatchedProcess, open_process, start_time};
use crate::io::seqpacket::SeqPacket;
use found::{Next, next_packet};
use nix::sys::signal::Signal;

pub(in crate::driver) use found::Found;

impl Driver {
    /// Goes on with the servers of an earlier daemon.
    pub(in crate::driver) fn take_over(&mut self, policy: Policy, saved: &Saved, found: &mut Found) {
        let mut alive = Vec::new();
        for server in &saved.servers {
            match self.resume_server(server, found) {
                true => alive.push(server.clone()),
                false => self.end_unfinished(server, found),
            }
        }
        // Of servers that were started and not yet in the saved state: without us they end at their hello.
        for server in std::mem::take(&mut found.stderr).into_keys() {
            self.successor.release(keys::stderr(server));
        }
        let (core, effects) = Core::restored(self.now(), policy, saved, &alive);
        self.core = core;
        self.core.restore_said(saved.defaults_said, &self.settings.defaults);
        if alive.is_empty() {
            for variable in self.core.begin_anew(&self.settings.defaults, self.settings.defaults_said) {
                self.say(&format!("Servers start with what {variable} says, and not with what an earlier daemon had"));
            }
        }
        for server in &alive {
            self.server_has(ServerEpoch(server.epoch), server.pid);
        }
        self.feeding = true;
        for effect in effects {
            self.perform(effect);
        }
        self.feeding = false;
    }

    fn resume_server(&mut self, saved: &SavedServer, found: &mut Found) -> bool {
        let epoch = ServerEpoch(saved.epoch);
        let is_link = |(_, note, _): &(ConnectionId, ConnectionNote, SeqPacket)| {
            note.stage() == Stage::Link && note.server == saved.epoch
        };
        let Some(index) = found.connections.iter().position(is_link) else {
            return false;
        };
        let (connection, _, socket) = found.connections.swap_remove(index);
        // An open connection proves that the process is alive, and names it.
        let process = match (next_packet(&socket), socket.peer_pidfd()) {
            (Next::End, _) => None,
            (_, Ok(fd)) => WatchedProcess::from_pidfd(kernel_pid(saved.pid), fd).ok(),
            (_, Err(_)) => open_process(kernel_pid(saved.pid)).ok(),
        };
        let resumed = process.and_then(|process| self.links.resume(epoch, connection, socket).ok().map(|()| process));
        let Some(process) = resumed else {
            self.successor.release(connection.0);
            return false;
        };
        let stderr = found.stderr.remove(&epoch).map(|(fd, _)| fd);
        self.servers.adopt(epoch, saved.uid, process, stderr);
        true
    }

    /// Ends a server that was starting when its daemon was killed.
    fn end_unfinished(&mut self, saved: &SavedServer, found: &mut Found) {
        let epoch = ServerEpoch(saved.epoch);
        let started = found.stderr.remove(&epoch).map(|(_, started)| started);
        self.successor.release(keys::stderr(epoch));
        if saved.pid != 0
            && started.is_some()
            && let Ok(process) = open_process(kernel_pid(saved.pid))
            && start_time(kernel_pid(saved.pid)) == started
        {
            self.say(&format!("Server {} had not become ready under an earlier daemon, it is ended", saved.pid));
            // One that has ended by itself is as good.
            let _ = process.signal(Some(Signal::SIGKILL));
        }
    }
}
