//! What another holder is given when one is gone, and what a successor needs in any case.

use super::Sought;
use super::keys;
use super::notes::{ConnectionNote, Stage};
use super::whole::Readiness;
use crate::core::ConnectionId;
use crate::driver::Driver;
use crate::failpoint::reached;
use crate::holder::{HolderError, HolderLink, Kind, Settings};
use crate::sys::clock::milliseconds;
use std::os::fd::{AsFd, BorrowedFd};

impl Driver {
    /// The holder is gone: another one is started, beside everything else, and gets what is to survive us.
    pub(in crate::driver) fn holder_lost(&mut self, error: &HolderError) {
        self.say(&format!("The holder process is gone ({error}), another one is started"));
        self.successor.seek(self.directory.folder());
    }

    /// What has come of an attempt to replace the holder.
    pub(in crate::driver) fn holder_sought(&mut self, result: Result<HolderLink, HolderError>) {
        match self.successor.sought(result, self.directory.folder()) {
            Sought::Found { was_missed } => {
                reached("holder-replaced");
                self.hold_everything();
                reached("everything-held");
                if was_missed {
                    self.say("Another holder process is started");
                }
                if self.successor.is_to_leave() {
                    self.hand_over();
                }
            }
            Sought::Missing(Some(failure)) => self.say(&format!("The holder process can't be started: {failure}")),
            Sought::Missing(None) => {}
        }
    }

    /// Ends this process and leaves everything to a successor: an upgrade of the binary that no client notices.
    pub(in crate::driver) fn hand_over(&mut self) {
        if self.core.is_quitting() {
            // Also where it was asked before the end was, and the holder has answered since: nobody would start the next one.
            self.successor.stays();
            self.say("A signal to hand over is refused: the daemon ends, and waits for its clients");
            return;
        }
        if !self.successor.may_leave() {
            self.say("A signal to hand over: there is no holder process yet to leave anything with");
            return;
        }
        self.save();
        match self.successor.readiness() {
            Readiness::Ready => {}
            // It comes back to this when the holder has answered.
            Readiness::Asked => return self.successor.awaits_word(),
            Readiness::Lacking(why) => {
                self.successor.stays();
                return self.say(&format!("A signal to hand over is refused, since servers would be lost: {why}"));
            }
        }
        self.say("A signal to hand over: servers and clients wait for the next daemon");
        self.directory.keep_files();
        // The holder notices that we are gone; nothing may run in between.
        std::process::exit(0);
    }

    /// Gives the holder what the successor of this daemon needs.
    fn hold_everything(&mut self) {
        for (key, kind, listener) in &self.successor.listeners {
            self.successor.hold(*key, *kind, &[], &[listener.as_fd()]);
        }
        self.successor.hold(keys::LOG_FIFO, Kind::LOG_FIFO, &[], &[self.logs.fifo()]);
        self.hold_settings();
        self.save();
        for (server, connection, socket) in self.links.iter() {
            let note = ConnectionNote::of(Stage::Link, self.servers.peer(server), Some(server));
            self.successor.hold(connection.0, Kind::SERVER_CONNECTION, &note, &[socket.as_fd()]);
        }
        for (connection, socket) in self.connections.iter() {
            let (note, end) = self.note_of(connection);
            self.successor.hold(connection.0, Kind::CONNECTION, &note, &[socket.as_fd()]);
            if let Some(end) = end {
                let key = keys::client_end(connection);
                self.successor.hold(key, Kind::CLIENT_END, &connection.0.to_le_bytes(), &[end]);
            }
        }
        self.servers.hold_all(&self.successor);
        self.hold_hidden();
        self.following(|following, turn| following.hold_all_copies(turn));
        self.vault(|vault, turn| vault.hold_all(turn));
        self.gpus.hold_records(&self.successor);
        let remarks = self.gpus.hold_modes(&self.core.managed_modes(), &self.successor);
        self.say_all(&remarks);
    }

    /// How far a connection has come, and the end of a pair that goes with it.
    fn note_of(&self, connection: ConnectionId) -> (Vec<u8>, Option<BorrowedFd<'_>>) {
        match (self.handovers.kept(connection), self.core.client_peer(connection)) {
            (Some((note, end)), _) => (note, Some(end)),
            (None, Some(peer)) => (ConnectionNote::of(Stage::Waiting, peer, None), None),
            // Its next packet says what it is.
            (None, None) => (Vec::new(), None),
        }
    }

    pub(in crate::driver) fn hold_settings(&self) {
        use crate::io::runtime_dir::{CONTROL, CONTROL_PRIVILEGED, LOG, PID_FILE};
        use remps_proto::shim;
        let wait = self.settings.file.successor_wait;
        let paths = [CONTROL, CONTROL_PRIVILEGED, LOG, PID_FILE, shim::SOCKET_NAME, shim::DEFAULTS_NAME]
            .map(|name| self.directory.file(name));
        let left = self.successor.settings(&Settings {
            // Zero would stand for the holder's own default.
            successor_wait_ms: milliseconds(wait).max(1),
            log_buffer_bytes: 0,
            unlink: paths
                .into_iter()
                .chain(self.entrance_paths())
                .map(|path| path.into_os_string().into_encoded_bytes())
                .collect(),
            adds: false,
        });
        if left > 0 {
            let text = "The holder process is of an earlier release, which leaves files of namespaces where they are";
            self.say(&format!("{text} when no daemon comes back: {left} of them"));
        }
    }

    /// Keeps what a successor goes on with. What does not reach the holder is said, once until it does.
    pub(in crate::driver) fn save(&mut self) {
        self.successor.save(&self.core.saved());
        self.tell_of_state();
    }

    fn tell_of_state(&mut self) {
        if let Some(remark) = self.successor.remark() {
            self.say(&remark);
        }
    }

    /// The holder has done everything before a barrier that was behind a state, or refuses a part of one.
    pub(in crate::driver) fn state_settled(&mut self) {
        self.tell_of_state();
        if !self.successor.is_to_leave() {
            return;
        }
        match self.successor.readiness() {
            Readiness::Lacking(_) => {
                self.successor.stays();
                self.say("A signal to hand over is refused: the holder has not all that a successor would need");
            }
            // What has changed meanwhile is told, and asked about, in the same way.
            Readiness::Ready | Readiness::Asked => self.hand_over(),
        }
    }
}
