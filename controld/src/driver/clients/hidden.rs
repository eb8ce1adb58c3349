//! Clients without a pid here: those of other PID namespaces than the daemon's, which has not the host's.
//!
//! The kernel hands their process descriptors over all the same, and a `/proc` of theirs (`witness.proc`) says which
//! process that is. Servers know them by pid 0, so nobody can be asked about one or told to end it, and a descriptor lets
//! nobody send a signal out of his namespace: they are placed, named, told apart and counted, and no more. What that costs is said when the
//! first one comes, in `status` from then on, and by `doctor` at any time.

use super::Driver;
use crate::core::{ConnectionId, Elsewhere, EntranceId, HiddenId, Identity, Input, Peer};
use crate::driver::events::Event;
use crate::sys::polled::register;
use crate::witness::identity::{Found, hidden_id};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;

/// What can't be done for any of them.
const WITHOUT_PIDS: &str = "can't be followed, listed by ps or ended";
/// What gives them pids.
const ADVICE: &str = "hostPID: true";

impl Driver {
    /// A client without a pid here waits for a server.
    pub(super) fn hidden_arrived(&mut self, connection: ConnectionId, peer: Peer, entrance: Option<EntranceId>) {
        let pidfd = self
            .connections
            .socket(connection)
            .map_or_else(|| Err(io::Error::from_raw_os_error(libc::ENOTCONN)), |socket| socket.peer_pidfd());
        self.tell_of_hidden(&pidfd);
        let identities = self.witnesses.identities.clone();
        let known = pidfd.ok();
        let Some(pidfd) = known.as_ref().filter(|_| identities.sees_others()).and_then(|fd| fd.try_clone().ok()) else {
            let id = known.as_ref().and_then(hidden_id);
            let elsewhere = id.map(|id| Box::new(Elsewhere { id, seen_as: None }));
            let identity = Arc::new(Identity { elsewhere, ..Identity::default() });
            return self.feed(Input::ClientArrived { connection, peer, identity, entrance });
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            let found = identities.of_hidden(pidfd, peer.uid).await;
            events.send(Event::Known { connection, peer, found: Box::new(found) }).await;
        });
    }

    /// Reports when a client's process without a pid here ends. One that can't be watched is a client until its server ends.
    pub(in crate::driver) fn watch_hidden(&mut self, hidden: HiddenId, connection: ConnectionId) {
        if !self.witnesses.hidden.insert(hidden) {
            return;
        }
        let socket = self.connections.socket(connection);
        let pidfd = socket.map_or_else(|| Err(io::ErrorKind::NotConnected.into()), |socket| socket.peer_pidfd());
        let watched = match pidfd.and_then(|fd| register(fd, Interest::READABLE)) {
            Ok(watched) => watched,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return self.hidden_gone(hidden),
            Err(error) => {
                tracing::warn!(%error, "the end of a client without a pid here can't be heard");
                self.witnesses.hidden.remove(&hidden);
                return;
            }
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            // What can't be waited for has no end either.
            let _ = watched.readable().await;
            events.send(Event::HiddenGone { hidden }).await;
        });
    }

    pub(in crate::driver) fn hidden_gone(&mut self, hidden: HiddenId) {
        self.witnesses.hidden.remove(&hidden);
        self.feed(Input::HiddenGone { hidden });
    }

    /// Says which process of the machine a client without a pid here is.
    pub(in crate::driver) fn hidden_known(&self, peer: Peer, found: &Found) {
        let Found { identity, missing, seen_as, .. } = found;
        let known = match seen_as {
            Some(pid) => format!("process {pid} of the machine, {} in {}", identity.command, identity.cgroup),
            None => missing.map_or_else(|| "not known".to_owned(), |missing| missing.to_string()),
        };
        self.logs.chatter(&format!("A client of user {} without a pid here: {known}", peer.uid));
    }

    /// What they do without, once.
    fn tell_of_hidden(&mut self, pidfd: &io::Result<OwnedFd>) {
        if self.reports.degraded.has_hidden_clients() {
            return;
        }
        let placed = match (&self.witnesses.no_other_proc, pidfd) {
            (None, Ok(_)) => "are known by witness.proc".to_owned(),
            (Some(why), _) => format!("are placed by user alone ({why})"),
            (None, Err(error)) => format!("are placed by user alone (the kernel names no process: {error})"),
        };
        let domains = &self.settings.file.policy.domains;
        let mut all = std::iter::once(&domains.default).chain(domains.overrides.iter().map(|(_, own)| own));
        let are_apart =
            self.witnesses.no_other_proc.is_none() || pidfd.as_ref().is_ok_and(|fd| hidden_id(fd).is_some());
        let uncounted = if all.any(|own| own.group.max_clients.is_some() && !are_apart) {
            ", and max_clients counts none"
        } else {
            ""
        };
        let text = format!("clients of other PID namespaces {placed} and {WITHOUT_PIDS}{uncounted} ({ADVICE})");
        self.say(&format!("Degraded: {text}"));
        self.reports.degraded.with_hidden_clients(text);
    }
}
