//! Clients' processes: what is known of them when they come, and how the daemon ends them.

pub(super) mod handover;
pub(super) mod hidden;

use super::Driver;
use super::events::Event;
use super::processes::{kernel_pid, known_at_once};
use crate::core::{
    ConnectionId, EntranceId, Identity, Input, Peer, Pid, ProcessKey, PsRow, SessionId, Uid, is_hidden, is_stand_in,
};
use crate::io::process::{open_same, pid_namespace_inode, start_time, uid_of};
use crate::patience::patient;
use crate::witness::identity::{Found, Identities};
use nix::sys::signal::Signal;
use remps_proto::admin::reply::{ClientRow, ps_table};
use remps_proto::shim::SpareName;
use std::sync::Arc;
use std::time::Duration;

/// How long clients are read for an answer to `ps`.
const PS_DEADLINE: Duration = Duration::from_secs(1);

/// Fills in the programs that are missing: the kernel's name of the process, in brackets, where it can't be read, and
/// nothing where the process is gone.
async fn read_programs(identities: &Identities, rows: &mut [ClientRow], users: &[Uid]) {
    let read = async {
        for (row, uid) in rows.iter_mut().zip(users).filter(|(row, _)| row.command.is_empty()) {
            row.command = identities.of(row.pid, *uid, None).await.identity.program;
        }
    };
    // What could not be read in time is told by its name alone.
    let _ = tokio::time::timeout(patient(PS_DEADLINE), read).await;
    for row in rows.iter_mut().filter(|row| row.command.is_empty()) {
        row.command = Identities::name(row.pid).unwrap_or_default();
    }
}

impl Driver {
    /// A client waits for a server; where it has to be looked at first, it does so for that.
    pub(super) fn client_arrives(&mut self, connection: ConnectionId, peer: Peer) {
        let process = ProcessKey { pid: peer.pid, start_time: start_time(kernel_pid(peer.pid)).unwrap_or_default() };
        if !self.following(|following, turn| following.look_first(turn, process, connection, peer)) {
            self.client_arrived(connection, peer);
        }
    }

    /// The same when it has been looked at. Where its domain depends on what only its own memory tells, that is read
    /// first.
    pub(super) fn client_arrived(&mut self, connection: ConnectionId, peer: Peer) {
        let identity = known_at_once(peer.pid);
        let socket = self.connections.socket(connection);
        let entrance = socket.and_then(|socket| socket.entrance()).map(EntranceId);
        if let Some(SpareName { token, .. }) = socket.and_then(|socket| SpareName::read(&socket.peer_name()?)) {
            self.feed(Input::SpareArrived { connection, peer, identity, token, entrance });
            return;
        }
        if is_hidden(peer.pid) {
            return self.hidden_arrived(connection, peer, entrance);
        }
        if !self.core.must_know_clients() {
            self.feed(Input::ClientArrived { connection, peer, identity, entrance });
            return;
        }
        let (identities, events) = (self.witnesses.identities.clone(), self.events.clone());
        tokio::spawn(async move {
            let found = identities.of(peer.pid, peer.uid, None).await;
            events.send(Event::Known { connection, peer, found: Box::new(found) }).await;
        });
    }

    /// Who a client's process is.
    pub(super) fn identified(&mut self, process: ProcessKey, found: Found) {
        if let Some(missing) = found.missing {
            tracing::debug!(pid = process.pid, %missing, "not everything is known of a client");
        }
        let started = if is_stand_in(process.pid) { found.identity.start_time } else { process.start_time };
        let identity = Identity { start_time: started, ..found.identity };
        self.feed(Input::IdentityKnown { pid: process.pid, identity: Arc::new(identity) });
    }

    /// Answers `ps`. Which program a client is lies in its own memory and may keep a reader waiting: the core has it of
    /// clients that were read when they came, and the others are read as they are, beside the driver and for
    /// [`PS_DEADLINE`] at the most.
    pub(super) fn describe(&mut self, session: SessionId, rows: Vec<PsRow>) {
        let with_namespace = |PsRow(row)| ClientRow { namespace: self.namespace_of(row.pid), ..row };
        let mut rows: Vec<ClientRow> = rows.into_iter().map(with_namespace).collect();
        if rows.iter().all(|row| !row.command.is_empty()) {
            self.answer(session, ps_table(&rows));
            return;
        }
        let users: Vec<Uid> = rows.iter().map(|row| self.user_of(row.pid)).collect();
        let (identities, events) = (self.witnesses.identities.clone(), self.events.clone());
        tokio::spawn(async move {
            read_programs(&identities, &mut rows, &users).await;
            events.send(Event::Described { session, rows }).await;
        });
    }

    /// The PID namespace of a client, by its inode, as far as it may be known.
    pub(super) fn namespace_of(&self, pid: Pid) -> Option<u64> {
        self.core.hidden_namespace(pid).or_else(|| pid_namespace_inode(kernel_pid(pid)))
    }

    fn user_of(&self, pid: Pid) -> Uid {
        self.core.process_user(pid).or_else(|| uid_of(kernel_pid(pid))).unwrap_or(self.owner)
    }

    /// Ends a client's process; one that is gone, or whose pid is another's by now, needs nothing.
    pub(super) fn end_process(&self, process: ProcessKey, force: bool) {
        if is_stand_in(process.pid) {
            let what = if force { "killed" } else { "asked to end" };
            return self.say(&format!("Client {} has no pid here and can't be {what}", process.pid));
        }
        let pid = kernel_pid(process.pid);
        let Ok(opened) = open_same(pid, process.start_time) else {
            return;
        };
        let signal = if force { Signal::SIGKILL } else { Signal::SIGTERM };
        if let Err(error) = opened.signal(Some(signal)) {
            self.say(&format!("Client {} can't be sent {signal}: {error}", process.pid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn row(pid: Pid) -> ClientRow {
        let (device, command) = ("GPU-0".to_owned(), String::new());
        ClientRow { pid, id: 1, server: 2, device, namespace: None, command }
    }

    #[tokio::test]
    async fn ps_shows_a_program_or_the_kernels_name_for_it_or_nothing() {
        let mut ended = Command::new("cat").stdin(Stdio::null()).spawn().unwrap();
        // It is a zombie until it is asked for: its memory is gone, its name is not.
        let id = nix::sys::wait::Id::Pid(kernel_pid(ended.id()));
        let flags = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        nix::sys::wait::waitid(id, flags).unwrap();
        let mut rows = [row(std::process::id()), row(ended.id()), row(0)];
        rows[2].command = "told before".to_owned();
        read_programs(&Identities::default(), &mut rows, &[0, 0, 0]).await;
        let own = std::env::args().next().unwrap();
        assert_eq!(rows.map(|row| row.command), [own, "[cat]".to_owned(), "told before".to_owned()]);
        ended.wait().unwrap();
        let mut gone = [row(ended.id())];
        read_programs(&Identities::default(), &mut gone, &[0]).await;
        assert_eq!(gone[0].command, "");
    }
}
