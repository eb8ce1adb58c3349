//! Who succeeds whom: commits are noted with the holder, and a name is given to the next process when its owner is gone
//! and what it had given to the GPU is at rest.
//!
//! # When a name is given
//! Its owner's process is reaped (its pidfd says so), the core has noticed it too if the process was a client, and of the
//! server that it was on one of these holds. Nothing of it is a time that has passed.
//!
//! | the owner's server | known | given to who asks for |
//! |---|---|---|
//! | none was known, or its process is reaped | `SERVER`: no channel of either is left | anything |
//! | serves, and is not suspected of anything | `PROCESS`: a kernel of the dead owner may still run there | `PROCESS`, `NONE` |
//! | has met a fault, ends, or is being asked how it is | `PROCESS` | `NONE` alone; the others wait until it is reaped |
//!
//! A successor that came within milliseconds of the fault may be on the lost server itself. It would wait for that
//! server's end, and the server for its own, so it is told to come again ([`Failure::OWN_SERVER_LOST`]).
//!
//! Where nothing was noted of the name but its regions, an earlier release of this daemon kept them: that is `PROCESS`.

use super::{Deferred, Keeper, done};
use crate::core::vault::{Caller, Predecessor, Standing, Title};
use crate::core::{Fate, JournalEvent, Pid, ProcessKey, ServerEpoch};
use crate::door::client::Client;
use crate::door::{Reply, Request};
use crate::driver::Driver;
use crate::failpoint::reached;
use crate::io::process::WatchedProcess;
use remps_proto::shim::{Answer, Ask, Failure, Inherited, Part, Rest, ServerState};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest wait for one answer; a program asks again. So a thread of the door is not held for long by a program that
/// has closed its end.
const MOST_WAIT: Duration = Duration::from_secs(20);
/// Lost servers that are remembered.
const MOST_TAINTED: usize = 256;

/// A process that wants a name.
#[derive(Debug)]
struct Claim {
    client: Arc<Client>,
    name: String,
    until: Duration,
    even_if_nobody: bool,
    least: Rest,
    reply: oneshot::Sender<Vec<Reply>>,
}

/// Who wants a name, in the order in which they came; and the servers that a fault has tainted.
#[derive(Debug, Default)]
pub(in crate::driver) struct Claims {
    open: Vec<Claim>,
    tainted: BTreeSet<ServerEpoch>,
}

impl Claims {
    pub(in crate::driver) fn next_deadline(&self) -> Option<Duration> {
        self.open.iter().map(|claim| claim.until).min()
    }

    pub(in crate::driver) fn has(&self, process: ProcessKey) -> bool {
        self.open.iter().any(|claim| claim.client.caller.process == process)
    }

    /// A process has ended and wants nothing any more.
    pub(in crate::driver) fn forget(&mut self, process: ProcessKey) {
        self.open.retain(|claim| claim.client.caller.process != process);
    }
}

impl Keeper {
    /// Something was decided that is remembered here.
    pub(in crate::driver) fn hear(&mut self, event: &JournalEvent) {
        // An incident of 0 is no fault but the work of a dead client that may be endless.
        if let JournalEvent::ServerTainted { epoch, incident, .. } = event
            && *incident != 0
        {
            self.claims.tainted.insert(*epoch);
            if self.claims.tainted.len() > MOST_TAINTED {
                self.claims.tainted.pop_first();
            }
        }
    }
}

/// How a request for a name goes on.
enum Step {
    Wait,
    Fail(Failure),
    /// It is the caller's already; whom it has succeeded.
    Again(Option<Predecessor>),
    Give(Predecessor),
}

impl Driver {
    /// Answers what is about names.
    pub(in crate::driver) fn name_asked(&mut self, request: Request) {
        let Request { client, ask, reply, .. } = request;
        let caller = &client.caller;
        let answers = match ask {
            Ask::Commit { name, commit } => {
                reached("commit-asked");
                let server = self.server_of_caller(caller);
                match self.vault.rules.commit(caller, &name, commit) {
                    Ok(id) => {
                        self.vault.rules.note_server(caller, &name, server);
                        self.keep_namespace(&client);
                        self.note_titles();
                        reached("commit-held");
                        self.watch_caller(&client);
                        let (answers, point) = (vec![done(0)], "commit-safe");
                        return self.after_barrier(Deferred::Answer {
                            region: None,
                            name: Some(id),
                            point,
                            answers,
                            reply,
                        });
                    }
                    Err(failure) => vec![(Answer::Failed(failure), None)],
                }
            }
            Ask::Succeed { name, wait_ms, even_if_nobody, least } => {
                let until = self.now().saturating_add(Duration::from_millis(wait_ms).min(MOST_WAIT));
                // Who asks again has given up its first request, or lost the connection that it was made on.
                self.vault
                    .claims
                    .open
                    .retain(|claim| claim.client.caller.process != caller.process || claim.name != name);
                self.vault.claims.open.push(Claim {
                    client: Arc::clone(&client),
                    name,
                    until,
                    even_if_nobody,
                    least,
                    reply,
                });
                // Its end must be noticed while it waits.
                return self.watch_caller(&client);
            }
            Ask::Fate { pid } => vec![self.fate_of_ended(caller, pid)],
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
            | Ask::Watch { .. }
            | Ask::Subscribe { .. }
            | Ask::Renewed => vec![(Answer::Failed(Failure::UNKNOWN_REQUEST), None)],
        };
        // A program that has gone meanwhile needs no answer.
        let _ = reply.send(answers);
    }

    pub(super) fn server_of_caller(&self, caller: &Caller) -> u64 {
        self.core.fate_of(caller.process).map_or(0, |(server, _)| server.0)
    }

    pub(in crate::driver) fn watch_caller(&mut self, client: &Client) {
        let pid = crate::driver::processes::kernel_pid(client.caller.process.pid);
        let opened = client.pidfd.try_clone();
        self.vault.watch(client.caller.process, opened.and_then(|pidfd| WatchedProcess::from_pidfd(pid, pidfd)));
    }

    /// How the server of a process was that has ended, for a process of the same user.
    fn fate_of_ended(&self, caller: &Caller, pid: Pid) -> Reply {
        let epoch = |server: ServerEpoch, state| Answer::Epoch { server: server.0, state, part: Part::UNKNOWN };
        let answer = match self.core.server_of_ended(pid, caller.uid) {
            _ if self.core.is_client_of(pid, caller.uid) => Answer::Failed(Failure::NOT_YET),
            None => epoch(ServerEpoch(0), ServerState::NONE),
            Some(server) if self.vault.claims.tainted.contains(&server) => epoch(server, ServerState::TAINTED),
            Some(server) => match self.core.fate_of_server(server) {
                Some((_, true)) => Answer::Failed(Failure::NOT_YET),
                Some(_) => epoch(server, ServerState::HEALTHY),
                None => epoch(server, ServerState::GONE),
            },
        };
        (answer, None)
    }

    /// Looks through those who want a name whether one can be given. Called after everything that happens.
    pub(in crate::driver) fn succeed(&mut self) {
        let now = self.now();
        let mut at = 0;
        while let Some(claim) = self.vault.claims.open.get(at) {
            match self.step(claim, now) {
                Step::Wait => at += 1,
                Step::Fail(failure) => {
                    let claim = self.vault.claims.open.remove(at);
                    // A program that has gone meanwhile needs no answer.
                    let _ = claim.reply.send(vec![(Answer::Failed(failure), None)]);
                }
                Step::Again(predecessor) => {
                    let claim = self.vault.claims.open.remove(at);
                    self.give_name(claim, predecessor, false);
                }
                Step::Give(predecessor) => {
                    let claim = self.vault.claims.open.remove(at);
                    self.give_name(claim, Some(predecessor), true);
                }
            }
        }
    }

    fn step(&self, claim: &Claim, now: Duration) -> Step {
        let rules = &self.vault.rules;
        let (caller, name) = (&claim.client.caller, claim.name.as_str());
        let title = rules.title(caller, name);
        let step = match rules.standing(caller, name) {
            Standing::Own => return Step::Again(title.and_then(|title| title.predecessor)),
            Standing::Nobody if !rules.policy().enabled => return Step::Fail(Failure::SWITCHED_OFF),
            Standing::Nobody if !claim.even_if_nobody => return Step::Fail(Failure::NOT_FOUND),
            Standing::Nobody | Standing::Taken => Step::Wait,
            Standing::Free(owner) => match self.rest_of(owner, title, claim.least) {
                Some(rest) => Step::Give(Predecessor { pid: owner.pid, server: title.map_or(0, |of| of.server), rest }),
                None if self.is_on_lost_server(caller.process, title) => return Step::Fail(Failure::OWN_SERVER_LOST),
                None => Step::Wait,
            },
        };
        let is_over = matches!(step, Step::Wait) && claim.until <= now;
        if is_over { Step::Fail(Failure::NOT_YET) } else { step }
    }

    /// Whether a process is itself a client of the server that the owner of this title was on, and that a fault has cost
    /// its clients.
    fn is_on_lost_server(&self, process: ProcessKey, title: Option<&Title>) -> bool {
        let own = self.core.fate_of(process).map(|(server, _)| server);
        own.is_some_and(|own| self.core.has_lost(process) && title.is_some_and(|title| title.server == own.0))
    }

    /// What is known of a dead owner's work; `None` when that is less than is asked for.
    fn rest_of(&self, owner: ProcessKey, title: Option<&Title>, least: Rest) -> Option<Rest> {
        let Some(title) = title else { return (least <= Rest::PROCESS).then_some(Rest::PROCESS) };
        let is_noticed = self.core.fate_of(owner).is_none();
        let rest = match self.core.fate_of_server(ServerEpoch(title.server)) {
            None if is_noticed => return Some(Rest::SERVER),
            Some((Fate::Healthy, false)) if is_noticed => Rest::PROCESS,
            _ => Rest::NONE,
        };
        match least {
            Rest::NONE => Some(Rest::PROCESS),
            _ => (rest >= least).then_some(rest),
        }
    }

    fn give_name(&mut self, claim: Claim, predecessor: Option<Predecessor>, is_new: bool) {
        let Claim { client, name, reply, .. } = claim;
        let caller = &client.caller;
        let ids = match self.vault.rules.adopt(caller, &name) {
            Ok(ids) => ids,
            Err(failure) => {
                let _ = reply.send(vec![(Answer::Failed(failure), None)]);
                return;
            }
        };
        if let Some(predecessor) = predecessor.filter(|_| is_new) {
            let server = self.server_of_caller(caller);
            self.vault.rules.note_predecessor(caller, &name, predecessor, server);
        }
        reached("succession-known");
        self.keep_namespace(&client);
        self.note_titles();
        self.note_regions(&ids);
        reached("succession-noted");
        self.watch_caller(&client);
        let commit = self.vault.rules.title(caller, &name).and_then(|title| title.commit.clone());
        let Predecessor { pid, server, rest } =
            predecessor.unwrap_or(Predecessor { pid: caller.process.pid, server: 0, rest: Rest::NONE });
        let inherited = Inherited { commit, predecessor: pid, server, rest };
        let regions = self.vault.told(&ids, true, self.now());
        let answers = std::iter::once((Answer::Inherited(inherited), None)).chain(regions).collect();
        if is_new {
            let kept = ids.iter().filter_map(|id| self.vault.rules.get(*id));
            let bytes = kept.map(|kept| kept.region.bytes).sum();
            let (process, uid, regions) = (caller.process, caller.uid, ids.len());
            self.record(&JournalEvent::RegionsAdopted { process, uid, name, regions, bytes });
        }
        self.after_barrier(Deferred::Answer { region: None, name: None, point: "succession-safe", answers, reply });
    }
}
