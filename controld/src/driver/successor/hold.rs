//! What the driver tells the holder, so that a successor finds it.

use super::keys;
use super::notes::{ConnectionNote, Stage};
use crate::core::{ConnectionId, Peer, ServerEpoch};
use crate::driver::processes::RunningServer;
use crate::driver::{Connection, Driver};
use crate::failpoint::reached;
use crate::holder::{self, HolderError, HolderLink, Kind};
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before a holder that can't be started is tried again.
const HOLDER_RETRY: Duration = Duration::from_secs(1);

/// The search for a holder in place of one that is gone.
pub(in crate::driver) struct Replacement {
    /// The attempt that is under way.
    pub(in crate::driver) attempt: Pin<Box<dyn Future<Output = Result<HolderLink, HolderError>>>>,
    /// Why the last one failed, as it was said.
    failure: Option<String>,
}

impl Driver {
    /// Notes beside a connection how far it has come.
    pub(in crate::driver) fn note(
        &self,
        connection: ConnectionId,
        stage: Stage,
        peer: Peer,
        server: Option<ServerEpoch>,
    ) {
        self.kept(self.holder.update(connection.0, &ConnectionNote::of(stage, peer, server)));
    }

    pub(in crate::driver) fn release(&self, connection: ConnectionId) {
        self.kept(self.holder.release(connection.0));
    }

    /// A holder that is gone is replaced when its connection breaks; until then only what a successor would need is
    /// missing. One that does not read is ended, so that this happens: what it was not told would never be released.
    pub(in crate::driver) fn kept(&self, result: Result<(), HolderError>) {
        if let Err(error) = result {
            tracing::warn!(%error, "the holder was not told");
            if matches!(error, HolderError::Full) {
                // The connection is open, so the pid is still its own. One that is dead already is as good.
                let _ = nix::sys::signal::kill(self.holder.pid(), nix::sys::signal::Signal::SIGKILL);
            }
        }
    }

    /// Closes a connection here and with the holder.
    pub(in crate::driver) fn close(&mut self, connection: ConnectionId) {
        self.kept(self.holder.release(keys::client_end(connection)));
        if let Some(known) = self.connections.get(&connection) {
            known.socket.refuse_the_rest();
        }
        self.release(connection);
        self.connections.remove(&connection);
    }

    /// The holder is gone: another one is started, beside everything else, and gets what is to survive us.
    pub(in crate::driver) fn holder_lost(&mut self, error: &HolderError) {
        self.say(&format!("The holder process is gone ({error}), another one is started"));
        self.holder.reap();
        self.replace_holder_after(Duration::ZERO, None);
    }

    fn replace_holder_after(&mut self, pause: Duration, failure: Option<String>) {
        let folder = Arc::clone(self.directory.folder());
        let attempt = Box::pin(async move {
            tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
            Ok(HolderLink::attach_in(&folder).await?.0)
        });
        self.replacement = Some(Replacement { attempt, failure });
    }

    /// What has come of an attempt to replace the holder. It is made until one succeeds, since nobody can connect
    /// meanwhile; what stands in its way is said once.
    pub(in crate::driver) fn holder_attempted(&mut self, result: Result<HolderLink, HolderError>) {
        let said = self.replacement.take().and_then(|before| before.failure);
        match result {
            Ok(holder) => {
                self.holder = holder;
                reached("holder-replaced");
                self.hold_everything();
                reached("everything-held");
                if said.is_some() {
                    self.say("Another holder process is started");
                }
                if self.hand_over_due {
                    self.hand_over();
                }
            }
            Err(error) => {
                let failure = error.to_string();
                if said.as_ref() != Some(&failure) {
                    self.say(&format!("The holder process can't be started: {failure}"));
                }
                self.replace_holder_after(HOLDER_RETRY, Some(failure));
            }
        }
    }

    /// Ends this process and leaves everything to a successor: an upgrade of the binary that no client notices. Without
    /// a holder there would be nothing left, so it waits for one.
    pub(in crate::driver) fn hand_over(&mut self) {
        if self.replacement.is_some() {
            self.say("A signal to hand over: there is no holder process yet to leave anything with");
            self.hand_over_due = true;
            return;
        }
        self.say("A signal to hand over: servers and clients wait for the next daemon");
        self.save();
        self.directory.keep_files();
        // The holder notices that we are gone; nothing may run in between.
        std::process::exit(0);
    }

    /// Gives the holder what the successor of this daemon needs.
    fn hold_everything(&mut self) {
        for (key, kind, listener) in &self.listeners {
            self.kept(self.holder.hold(*key, *kind, &[], &[listener.as_fd()]));
        }
        self.kept(self.holder.hold(keys::LOG_FIFO, Kind::LOG_FIFO, &[], &[self.fifo.as_fd()]));
        self.hold_settings();
        self.save();
        for (server, link) in &self.links {
            let peer = self.servers.get(server).map_or(Peer { pid: 0, uid: 0, gid: 0 }, RunningServer::peer);
            let note = ConnectionNote::of(Stage::Link, peer, Some(*server));
            let socket = link.link.socket();
            self.kept(self.holder.hold(link.connection.0, Kind::SERVER_CONNECTION, &note, &[socket.as_fd()]));
        }
        for (connection, known) in &self.connections {
            let (note, end) = self.note_of(*connection, known);
            self.kept(self.holder.hold(connection.0, Kind::CONNECTION, &note, &[known.socket.as_fd()]));
            if let Some(end) = end {
                let key = keys::client_end(*connection);
                self.kept(self.holder.hold(key, Kind::CLIENT_END, &connection.0.to_le_bytes(), &[end]));
            }
        }
        for (server, running) in &self.servers {
            self.hold_stderr(*server, running);
        }
        self.hold_all_copies();
        self.hold_vault();
        self.hold_mode_records();
        self.hold_modes(&self.core.managed_modes());
    }

    /// How far a connection has come, and the end of a pair that goes with it.
    fn note_of<'a>(&'a self, connection: ConnectionId, known: &'a Connection) -> (Vec<u8>, Option<BorrowedFd<'a>>) {
        if let Some(undecided) = self.undecided.get(&connection) {
            let (note, end) = undecided.kept();
            return (note, Some(end));
        }
        let peer = self.core.client_peer(connection);
        match (peer, &known.handed_over) {
            (Some(peer), Some((server, end))) => {
                (ConnectionNote::of(Stage::HandedOver, peer, Some(*server)), Some(end.as_fd()))
            }
            (Some(peer), None) => (ConnectionNote::of(Stage::Waiting, peer, None), None),
            // Its next packet says what it is.
            (None, _) => (Vec::new(), None),
        }
    }

    pub(in crate::driver) fn hold_settings(&self) {
        use crate::io::runtime_dir::{CONTROL, CONTROL_PRIVILEGED, LOG, PID_FILE};
        let wait = self.settings.file.successor_wait;
        let paths = [CONTROL, CONTROL_PRIVILEGED, LOG, PID_FILE, remps_proto::shim::SOCKET_NAME]
            .map(|name| self.directory.file(name));
        self.kept(self.holder.settings(&holder::Settings {
            // Zero would stand for the holder's own default.
            successor_wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1),
            log_buffer_bytes: 0,
            unlink: paths.into_iter().map(|path| path.into_os_string().into_encoded_bytes()).collect(),
        }));
    }

    pub(in crate::driver) fn save(&self) {
        use prost::Message as _;
        let state = self.core.saved().encode_to_vec();
        self.kept(self.holder.hold(keys::STATE, Kind::STATE, &state, &[]));
    }
}
