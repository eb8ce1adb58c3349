//! The daemon's word to programs that come back in place: that their server is spoilt or gone, whose fault it was, and
//! that what a dead copy of the driver had is no longer held.
//!
//! A program that waits for nothing would not know that it has lost its context until its next call, and it cannot see
//! whether the server is reaped, which is what proves that no channel of it is left. The daemon knows both: it is the
//! servers' parent. So a program asks ([`Ask::Watch`](remps_proto::shim::Ask::Watch)) with what it was told last, and is
//! answered when that is no longer so.
//!
//! # Copies of a dead copy's descriptors
//! Such a program has two copies of the driver one after the other, each with an address space, and the daemon holds
//! copies of both. Those of the dead one keep its memory on the GPU. When the program says that it has cut the dead one
//! off, its descriptors are looked through, and what it has really closed is let go of. Its word alone changes nothing:
//! with the copies of a living address space gone its death in the middle of a kernel would end its neighbours.

use super::Driver;
use super::events::Event;
use super::processes::kernel_pid;
use super::vault::{Keeper, done};
use crate::core::{Confidence, Part, ProcessKey, ServerEpoch};
use crate::failpoint::reached;
use crate::vault::client::Client;
use crate::vault::{Reply, Request};
use crate::witness::uvm::{AttachError, OpenFiles};
use remps_proto::shim::{self, Answer, Ask, Failure, ServerState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest wait for one answer; a program asks again. So a thread of the door is not held for long by a program that
/// has closed its end.
const MOST_WAIT: Duration = Duration::from_secs(20);

/// A program that wants to know when its server is another one, or otherwise, than it was.
#[derive(Debug)]
struct Watcher {
    client: Arc<Client>,
    known: (u64, ServerState),
    until: Duration,
    reply: oneshot::Sender<Vec<Reply>>,
}

/// All of them, one for each process at most.
#[derive(Debug, Default)]
pub(super) struct Watchers(Vec<Watcher>);

impl Watchers {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.0.iter().map(|watcher| watcher.until).min()
    }

    pub(super) fn has(&self, process: ProcessKey) -> bool {
        self.0.iter().any(|watcher| watcher.client.caller.process == process)
    }

    /// A process has ended and wants to know nothing any more.
    pub(super) fn forget(&mut self, process: ProcessKey) {
        self.0.retain(|watcher| watcher.client.caller.process != process);
    }
}

impl Keeper {
    fn watcher_of(&mut self, process: ProcessKey) -> Option<Watcher> {
        let at = self.watchers.0.iter().position(|watcher| watcher.client.caller.process == process)?;
        Some(self.watchers.0.remove(at))
    }
}

impl Driver {
    /// Answers what is about a program's server and what is held for it.
    pub(super) fn word_asked(&mut self, request: Request) {
        let Request { client, ask, reply, .. } = request;
        let process = client.caller.process;
        match ask {
            Ask::Watch { server, state, wait_ms } => {
                reached("watch-asked");
                // Who asks again has given up its first request, or lost the connection that it was made on.
                if let Some(before) = self.vault.watcher_of(process) {
                    self.tell(before);
                }
                let until = self.now().saturating_add(Duration::from_millis(wait_ms).min(MOST_WAIT));
                // Its end must be noticed while it waits.
                self.watch_caller(&client);
                self.vault.watchers.0.push(Watcher { client, known: (server, state), until, reply });
            }
            Ask::Renewed => {
                reached("renewal-asked");
                self.sift_copies(process, reply);
            }
            Ask::Hello { .. }
            | Ask::Escrow(_)
            | Ask::Release { .. }
            | Ask::List { .. }
            | Ask::HandBack
            | Ask::Adopt { .. }
            | Ask::Discard { .. }
            | Ask::Report { .. }
            | Ask::Follow { .. }
            | Ask::Where
            | Ask::Commit { .. }
            | Ask::Succeed { .. }
            | Ask::Fate { .. } => {
                // A program that has gone meanwhile needs no answer.
                let _ = reply.send(vec![(Answer::Failed(Failure::UNKNOWN_REQUEST), None)]);
            }
        }
    }

    /// What a process is told of its server that was told of this one last.
    fn word_for(&self, process: ProcessKey, (known, state): (u64, ServerState)) -> Answer {
        let is_reaped = known != 0 && self.core.fate_of_server(ServerEpoch(known)).is_none();
        let (server, state) = match self.core.fate_of(process) {
            // What it waits for most, and before it is told of another one.
            _ if is_reaped && state != ServerState::GONE => (known, ServerState::GONE),
            None => (0, ServerState::NONE),
            Some((server, _)) if self.core.has_lost(process) => (server.0, ServerState::TAINTED),
            Some((server, _)) => (server.0, ServerState::HEALTHY),
        };
        Answer::Epoch { server, state, part: self.part_for(process, ServerEpoch(server)) }
    }

    /// What a process has to do with the faults of a server, as it is told.
    pub(super) fn part_for(&self, process: ProcessKey, server: ServerEpoch) -> shim::Part {
        match self.core.part_of(process, server) {
            Part::Unknown | Part::Culprit(Confidence::Unknown) => shim::Part::UNKNOWN,
            Part::Bystander => shim::Part::BYSTANDER,
            Part::Culprit(Confidence::Likely) => shim::Part::LIKELY_CULPRIT,
            Part::Culprit(Confidence::Certain) => shim::Part::CULPRIT,
        }
    }

    fn tell(&self, watcher: Watcher) {
        let word = self.word_for(watcher.client.caller.process, watcher.known);
        // A program that has gone meanwhile needs no answer.
        let _ = watcher.reply.send(vec![(word, None)]);
    }

    /// Tells those whose server is no longer as they were told. Called after everything that happens.
    pub(super) fn tell_watchers(&mut self) {
        let now = self.now();
        let is_due = |watcher: &Watcher| {
            let word = self.word_for(watcher.client.caller.process, watcher.known);
            watcher.until <= now
                || !matches!(word, Answer::Epoch { server, state, .. } if (server, state) == watcher.known)
        };
        let due: Vec<usize> =
            (0..self.vault.watchers.0.len()).filter(|at| is_due(&self.vault.watchers.0[*at])).collect();
        for at in due.into_iter().rev() {
            let watcher = self.vault.watchers.0.remove(at);
            self.tell(watcher);
        }
    }

    /// Has a process's descriptors looked through for those of its address spaces that it has closed.
    fn sift_copies(&mut self, process: ProcessKey, reply: oneshot::Sender<Vec<Reply>>) {
        let Some((uvm, pidfd)) = self.witnesses.following.looking_at(process) else {
            // Nothing is held of it.
            let _ = reply.send(vec![done(0)]);
            return;
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            use std::os::fd::AsFd;
            let open = uvm.files_open_in(kernel_pid(process.pid), pidfd.as_fd()).await;
            events.send(Event::Sifted { process, open, reply }).await;
        });
    }

    /// A process's descriptors have been looked through: copies of those that it has closed are let go of.
    pub(super) fn sifted(
        &mut self,
        process: ProcessKey,
        open: Result<OpenFiles, AttachError>,
        reply: oneshot::Sender<Vec<Reply>>,
    ) {
        reached("renewal-known");
        let released = match open {
            Ok(open) => self.release_closed(process, &open),
            Err(AttachError::Gone) => 0,
            Err(error) => {
                tracing::warn!(pid = process.pid, %error, "what a client has closed is held on");
                0
            }
        };
        reached("renewal-done");
        // A program that has gone meanwhile needs no answer.
        let _ = reply.send(vec![done(released)]);
    }
}
