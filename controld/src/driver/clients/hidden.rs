//! Clients without a pid here: those of other PID namespaces than the daemon's, which has not the host's.
//!
//! The kernel hands their process descriptors over all the same, and a `/proc` of theirs (`witness.proc`) says which
//! process that is. The core gives each a number in place of its pid; here is what else differs: how its end is heard,
//! what is noted of it with the holder, so that the next daemon knows it, and that no signal reaches it, since the kernel
//! lets none out of a PID namespace. What that costs is said when the first one comes, in `status` from then on, and by
//! `doctor` at any time.

use super::Driver;
use crate::core::{
    ConnectionId, Elsewhere, End, EntranceId, HiddenId, Identity, Input, Peer, Pid, ProcessKey, ServerEpoch, Uid,
    is_stand_in,
};
use crate::driver::events::Event;
use crate::driver::processes::{kernel_pid, known_at_once};
use crate::driver::successor::keys;
use crate::driver::successor::notes::HiddenNote;
use crate::holder::Kind;
use crate::io::process::WatchedProcess;
use crate::sys::other_proc;
use crate::witness::identity::{Found, hidden_id};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What can't be done for any of them.
const WITHOUT_PIDS: &str = "can't be signalled, nor ended beside another one on their server";
/// What gives them pids.
const ADVICE: &str = "hostPID: true";
/// How many of one user are noted with the holder, which has a descriptor of each. A GPU has 60 clients.
const MOST_NOTED_OF_USER: usize = 256;

/// Those of whom the next daemon is to know.
#[derive(Default)]
pub(in crate::driver) struct Noted(BTreeMap<Pid, (HiddenNote, OwnedFd)>);

impl Noted {
    fn has_room(&self, pid: Pid, uid: Uid) -> bool {
        self.0.contains_key(&pid) || self.0.values().filter(|(note, _)| note.uid == uid).count() < MOST_NOTED_OF_USER
    }
}

impl Driver {
    /// A client without a pid here waits for a server.
    pub(super) fn hidden_arrived(&mut self, connection: ConnectionId, peer: Peer, entrance: Option<EntranceId>) {
        let pidfd = self.connections.process_of(connection);
        self.tell_of_hidden(&pidfd);
        let identities = self.witnesses.identities.clone();
        let known = pidfd.ok();
        let Some(pidfd) = known.as_ref().filter(|_| identities.sees_others()).and_then(|fd| fd.try_clone().ok()) else {
            let identity = Identity { elsewhere: known.as_ref().and_then(apart), ..Identity::default() };
            return self.hidden_is(connection, peer, identity, entrance);
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            let found = identities.of_hidden(pidfd, peer.uid).await;
            events.send(Event::Known { connection, peer, found: Box::new(found) }).await;
        });
    }

    /// It is known who a client without a pid here is. One that has its number from before and is another process now,
    /// since who connected is all that the kernel says after the daemon's end, is nobody that can be told apart.
    pub(in crate::driver) fn hidden_is(
        &mut self,
        connection: ConnectionId,
        peer: Peer,
        mut identity: Identity,
        entrance: Option<EntranceId>,
    ) {
        if is_stand_in(peer.pid) && self.core.number_of(&identity) != peer.pid {
            identity.elsewhere = None;
        }
        // Once for each connection: who has been looked at comes here again, by its number.
        let number = self.core.number_of(&identity);
        if peer.pid == 0
            && let Some(process) = self.core.client_key(number)
            && self.following(|following, turn| {
                following.look_first(turn, process, connection, Peer { pid: number, ..peer })
            })
        {
            return;
        }
        self.feed(Input::ClientArrived { connection, peer, identity: Arc::new(identity), entrance });
    }

    /// What is known at once of a client's process.
    pub(in crate::driver) fn client_at_once(&self, connection: ConnectionId, peer: Peer) -> Arc<Identity> {
        if !is_stand_in(peer.pid) {
            return known_at_once(peer.pid);
        }
        let elsewhere = self.connections.process_of(connection).ok().as_ref().and_then(apart);
        Arc::new(Identity { elsewhere, ..Identity::default() })
    }

    /// Reports when a client's process without a pid here ends. One that can't be watched is a client until its server
    /// ends.
    pub(in crate::driver) fn watch_hidden(&mut self, pid: Pid, connection: Option<ConnectionId>) {
        let process = self.core.client_key(pid).unwrap_or(ProcessKey { pid, start_time: 0 });
        let noted = self.witnesses.hidden.0.get(&pid).map(|(_, pidfd)| pidfd.try_clone());
        let opened = noted.unwrap_or_else(|| {
            connection.map_or_else(|| Err(io::ErrorKind::NotFound.into()), |it| self.connections.process_of(it))
        });
        match opened.and_then(|pidfd| WatchedProcess::from_pidfd(kernel_pid(pid), pidfd)) {
            Ok(opened) => {
                if let Some(seen_as) = self.core.seen_as(pid) {
                    self.witnesses.identities.shows(pid, seen_as);
                    let pidfd = opened.pidfd().and_then(|pidfd| pidfd.try_clone_to_owned().ok());
                    self.following(|following, turn| following.follow(turn, process, pidfd));
                }
                self.witnesses.await_hidden_end(process, opened);
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                self.feed(Input::ProcessGone { process, end: End::Unknown });
            }
            Err(error) => tracing::warn!(%error, pid, "the end of a client without a pid here can't be heard"),
        }
    }

    /// Has the next daemon know of a client without a pid here, before its server is told of it.
    pub(in crate::driver) fn note_hidden(&mut self, connection: ConnectionId, peer: Peer, server: ServerEpoch) {
        if !is_stand_in(peer.pid) || !self.witnesses.hidden.has_room(peer.pid, peer.uid) {
            return;
        }
        let identity = self.core.client_identity(connection).unwrap_or_default();
        let (Ok(pidfd), Some(known)) = (self.connections.process_of(connection), identity.elsewhere.as_deref()) else {
            return;
        };
        let Elsewhere { id: HiddenId([more, number]), seen_as } = *known;
        let seen_as = seen_as.unwrap_or_default();
        let Peer { uid, gid, .. } = peer;
        let note = HiddenNote { uid, gid, server: server.0, more, number, seen_as, start_time: identity.start_time };
        if self.witnesses.hidden.0.get(&peer.pid).is_some_and(|(before, _)| *before == note) {
            return;
        }
        self.successor.hold(keys::hidden(peer.pid), Kind::CLIENT_END, &note.encoded(), &[pidfd.as_fd()]);
        self.witnesses.hidden.0.insert(peer.pid, (note, pidfd));
    }

    /// Gives another holder what is noted.
    pub(in crate::driver) fn hold_hidden(&self) {
        for (pid, (note, pidfd)) in &self.witnesses.hidden.0 {
            self.successor.hold(keys::hidden(*pid), Kind::CLIENT_END, &note.encoded(), &[pidfd.as_fd()]);
        }
    }

    /// Goes on with those whom an earlier daemon has noted.
    pub(in crate::driver) fn take_over_hidden(&mut self, found: BTreeMap<Pid, (HiddenNote, OwnedFd)>) {
        for (pid, (note, pidfd)) in found {
            let seen_as = Some(note.seen_as).filter(|pid| *pid != 0);
            let elsewhere = Some(Box::new(Elsewhere { id: HiddenId([note.more, note.number]), seen_as }));
            let identity = Arc::new(Identity { elsewhere, start_time: note.start_time, ..Identity::default() });
            let peer = Peer { pid, uid: note.uid, gid: note.gid };
            let (now, server) = (self.now(), ServerEpoch(note.server));
            let again = pidfd.try_clone();
            self.witnesses.hidden.0.insert(pid, (note, pidfd));
            match self.core.restore_hidden(now, server, peer, identity) {
                Some(effect) => self.perform(effect),
                None => self.forget_hidden(pid),
            }
            let identities = self.witnesses.identities.clone();
            if let Ok(pidfd) = again
                && self.witnesses.hidden.0.contains_key(&pid)
                && identities.sees_others()
            {
                let events = self.events.clone();
                tokio::spawn(async move {
                    let found = Box::new(identities.of_hidden(pidfd, peer.uid).await);
                    let process = ProcessKey { pid, start_time: 0 };
                    events.send(Event::Identified { process, found }).await;
                });
            }
        }
    }

    /// A process is gone, and nothing of it is noted any more.
    pub(in crate::driver) fn forget_hidden(&mut self, pid: Pid) {
        other_proc::hide(pid);
        if self.witnesses.hidden.0.remove(&pid).is_some() {
            self.successor.release(keys::hidden(pid));
        }
    }

    /// Says which process of the machine a client without a pid here is.
    pub(in crate::driver) fn hidden_known(&self, peer: Peer, found: &Found) {
        let Found { identity, missing, seen_as, .. } = found;
        let known = match seen_as {
            Some(pid) => format!("process {pid} of the machine, {} in {}", identity.command, identity.cgroup),
            None => missing.map_or_else(|| "not known".to_owned(), |missing| missing.to_string()),
        };
        let number = self.core.number_of(identity);
        let name = if number == 0 { String::new() } else { format!(", {number} from now on") };
        self.logs.chatter(&format!("A client of user {} without a pid here{name}: {known}", peer.uid));
    }

    /// What they do without, once.
    fn tell_of_hidden(&mut self, pidfd: &io::Result<OwnedFd>) {
        if self.reports.degraded.has_hidden_clients() {
            return;
        }
        let placed = match (&self.witnesses.no_other_proc, pidfd) {
            (None, Ok(_)) => "are known by witness.proc and".to_owned(),
            (Some(why), _) => format!("are placed by user alone ({why}), can't be watched for faults,"),
            (None, Err(error)) => format!("are placed by user alone (the kernel names no process: {error}) and"),
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
        let text = format!("clients of other PID namespaces {placed} {WITHOUT_PIDS}{uncounted} ({ADVICE})");
        self.say(&format!("Degraded: {text}"));
        self.reports.degraded.with_hidden_clients(text);
    }
}

/// By what the process of a descriptor is told apart.
fn apart(pidfd: &OwnedFd) -> Option<Box<Elsewhere>> {
    hidden_id(pidfd).map(|id| Box::new(Elsewhere { id, seen_as: None }))
}
