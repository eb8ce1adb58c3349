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
//! What is offered of it before that is in [`offers`](super::offers).
//!
//! Where nothing was noted of the name but its regions, an earlier release of this daemon kept them: that is `PROCESS`.

use super::holding::Awaited;
use super::keeper::Keeper;
use super::offers::is_lost;
use super::server_of;
use crate::core::vault::{Caller, NameEntry, Predecessor, Sign, Standing};
use crate::core::{Core, End, Fate, Input, JournalEvent, Pid, ProcessKey, ServerEpoch};
use crate::door::client::Client;
use crate::door::{ReplyTo, done};
use crate::driver::turn::Turn;
use crate::failpoint::reached;
use remps_proto::shim::{Answer, Commit, Failure, Inherited, Part, Rest, ServerState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for one answer; a program asks again. So a thread of the door is not held for long by a program that
/// has closed its end.
pub(super) const MOST_WAIT: Duration = Duration::from_secs(20);
/// Lost servers that are remembered.
const MOST_TAINTED: usize = 256;

/// A process that wants a name.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) client: Arc<Client>,
    pub(super) name: String,
    until: Duration,
    even_if_nobody: bool,
    pub(super) least: Rest,
    /// The offer that it has mapped, or 0; `None` where it maps nothing before it is its own.
    pub(super) offer: Option<u64>,
    pub(super) reply: ReplyTo,
}

impl Claim {
    /// The same of one that is not offered anything.
    pub(super) fn maps_nothing_before(self) -> Self {
        Self { offer: None, ..self }
    }
}

/// What a process says when it asks for a name.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) wait_ms: u64,
    pub(super) even_if_nobody: bool,
    pub(super) least: Rest,
    pub(super) offer: Option<u64>,
}

/// Who wants a name, in the order in which they came; and the servers that a fault has tainted.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) open: Vec<Claim>,
    tainted: BTreeSet<ServerEpoch>,
    /// How those end that have not yet, and are past doing anything else.
    pub(super) ending: BTreeMap<ProcessKey, End>,
    /// What the core was told of servers whose ends are waited for.
    pub(super) awaited: BTreeMap<ServerEpoch, Option<ProcessKey>>,
}

impl Claims {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.open.iter().map(|claim| claim.until).min()
    }

    pub(super) fn has(&self, process: ProcessKey) -> bool {
        self.open.iter().any(|claim| claim.client.caller.process == process)
    }

    /// A process has ended and wants nothing any more.
    pub(super) fn forget(&mut self, process: ProcessKey) {
        self.open.retain(|claim| claim.client.caller.process != process);
        self.ending.remove(&process);
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
    /// It may map what there is.
    Offer(Sign),
    /// It is the caller's already; whom it has succeeded.
    Again(Option<Predecessor>),
    Give(Predecessor),
}

/// Whether a process is itself a client of the server that the owner of this entry was on, and that a fault has cost
/// its clients.
fn is_on_lost_server(core: &Core, process: ProcessKey, entry: Option<&NameEntry>) -> bool {
    let own = core.fate_of(process).map(|(server, _)| server);
    own.is_some_and(|own| core.has_lost(process) && entry.is_some_and(|entry| entry.server == own.0))
}

/// What is known of a dead owner's work; `None` when that is less than is asked for.
fn rest_of(core: &Core, owner: ProcessKey, entry: Option<&NameEntry>, least: Rest) -> Option<Rest> {
    let Some(entry) = entry else { return (least <= Rest::PROCESS).then_some(Rest::PROCESS) };
    let is_noticed = core.fate_of(owner).is_none();
    let rest = match core.fate_of_server(ServerEpoch(entry.server)) {
        None if is_noticed => return Some(Rest::SERVER),
        Some((Fate::Healthy, false)) if is_noticed => Rest::PROCESS,
        _ => Rest::NONE,
    };
    match least {
        Rest::NONE => Some(Rest::PROCESS),
        _ => (rest >= least).then_some(rest),
    }
}

impl Keeper {
    /// Notes what a program is to be able to find again under a name.
    pub(super) fn commit(&mut self, turn: &mut Turn<'_>, client: &Client, name: &str, commit: Commit, reply: ReplyTo) {
        reached("commit-asked");
        let id = match self.rules.commit(&client.caller, name, commit) {
            Ok(id) => id,
            Err(failure) => return reply.done(Err(failure)),
        };
        self.rules.note_server(&client.caller, name, server_of(turn, &client.caller));
        self.keep_namespace(turn, client);
        self.note_entries(turn);
        reached("commit-held");
        self.watch_caller(client);
        self.answer_when_held(turn, Some(Awaited::Name(id)), "commit-safe", vec![done(0)], reply);
    }

    /// A program wants a name, with the memory that is under it.
    pub(super) fn claim(&mut self, turn: &Turn<'_>, client: Arc<Client>, wanted: Wanted, reply: ReplyTo) {
        let Wanted { name, wait_ms, even_if_nobody, least, offer } = wanted;
        let until = turn.now.saturating_add(Duration::from_millis(wait_ms).min(MOST_WAIT));
        let process = client.caller.process;
        // Who asks again has given up its first request, or lost the connection that it was made on.
        self.claims.open.retain(|claim| claim.client.caller.process != process || claim.name != name);
        // Its end must be noticed while it waits.
        self.watch_caller(&client);
        self.claims.open.push(Claim { client, name, until, even_if_nobody, least, offer, reply });
    }

    /// How the server of a process was that has ended, for a process of the same user.
    pub(super) fn fate_of_ended(&self, turn: &Turn<'_>, caller: &Caller, pid: Pid) -> Answer {
        let epoch = |server: ServerEpoch, state| Answer::Epoch { server: server.0, state, part: Part::UNKNOWN };
        match turn.core.server_of_ended(pid, caller.uid) {
            _ if turn.core.is_client_of(pid, caller.uid) => Answer::Failed(Failure::NOT_YET),
            None => epoch(ServerEpoch(0), ServerState::NONE),
            Some(server) if self.claims.tainted.contains(&server) => epoch(server, ServerState::TAINTED),
            Some(server) => match turn.core.fate_of_server(server) {
                Some((_, true)) => Answer::Failed(Failure::NOT_YET),
                Some(_) => epoch(server, ServerState::HEALTHY),
                None => epoch(server, ServerState::GONE),
            },
        }
    }

    /// Looks through those who want a name whether one can be given, or offered. Called after everything that happens.
    pub(in crate::driver) fn succeed(&mut self, turn: &mut Turn<'_>) {
        self.claims.awaited.retain(|server, _| turn.core.fate_of_server(*server).is_some());
        let mut at = 0;
        while let Some(claim) = self.claims.open.get(at) {
            let sign = self.rules.sign(&claim.client.caller, &claim.name, |owner| is_lost(turn.core, owner));
            self.rules.review_offer(&claim.client.caller, &claim.name, sign);
            let step = self.step(turn.core, claim, sign, turn.now);
            if matches!(step, Step::Wait | Step::Offer(_))
                && let Some((server, ending)) = self.awaits_end(turn.core, claim, sign)
            {
                self.claims.awaited.insert(server, ending.map(|(process, _)| process));
                turn.feed(Input::EndAwaited { server, ending });
            }
            if matches!(step, Step::Wait) {
                at += 1;
                continue;
            }
            let claim = self.claims.open.remove(at);
            match step {
                Step::Wait => {}
                Step::Fail(failure) => {
                    claim.reply.done(Err(failure));
                    self.forget(claim.client.caller.process);
                }
                Step::Offer(sign) => self.offer(turn, claim, sign),
                Step::Again(predecessor) => self.give_name(turn, claim, predecessor, false),
                Step::Give(predecessor) => self.give_name(turn, claim, Some(predecessor), true),
            }
        }
    }

    fn step(&self, core: &Core, claim: &Claim, sign: Option<Sign>, now: Duration) -> Step {
        let rules = &self.rules;
        let (caller, name) = (&claim.client.caller, claim.name.as_str());
        let entry = rules.entry(caller, name);
        let standing = rules.standing(caller, name);
        let is_withdrawn = |offer: &u64| *offer != 0 && !rules.is_offered(caller, name, *offer);
        if standing != Standing::Own && claim.offer.as_ref().is_some_and(is_withdrawn) {
            return Step::Fail(Failure::WITHDRAWN);
        }
        let step = match standing {
            Standing::Own => return Step::Again(entry.and_then(|entry| entry.predecessor)),
            Standing::Nobody if !rules.policy().enabled => return Step::Fail(Failure::SWITCHED_OFF),
            Standing::Nobody if !claim.even_if_nobody => return Step::Fail(Failure::NOT_FOUND),
            Standing::Nobody | Standing::Taken => Step::Wait,
            Standing::Free(_) if rules.is_promised(now, caller, name) => Step::Wait,
            Standing::Free(owner) => match rest_of(core, owner, entry, claim.least) {
                Some(rest) => Step::Give(Predecessor { pid: owner.pid, server: entry.map_or(0, |of| of.server), rest }),
                None if is_on_lost_server(core, caller.process, entry) => return Step::Fail(Failure::OWN_SERVER_LOST),
                None => Step::Wait,
            },
        };
        match (step, sign) {
            (Step::Wait, Some(sign)) if claim.offer == Some(0) && !core.has_lost(caller.process) => Step::Offer(sign),
            (Step::Wait, _) if claim.until <= now => Step::Fail(Failure::NOT_YET),
            (step, _) => step,
        }
    }

    fn give_name(&mut self, turn: &mut Turn<'_>, claim: Claim, predecessor: Option<Predecessor>, is_new: bool) {
        let Claim { client, name, reply, .. } = claim;
        let caller = &client.caller;
        let ids = match self.rules.adopt(caller, &name) {
            Ok(ids) => ids,
            Err(failure) => {
                reply.done(Err(failure));
                return self.forget(caller.process);
            }
        };
        if let Some(predecessor) = predecessor.filter(|_| is_new) {
            self.rules.note_predecessor(caller, &name, predecessor, server_of(turn, caller));
        }
        reached("succession-known");
        self.keep_namespace(turn, &client);
        self.note_entries(turn);
        self.note_regions(turn, &ids);
        reached("succession-noted");
        self.watch_caller(&client);
        let commit = self.rules.entry(caller, &name).and_then(|entry| entry.commit.clone());
        let Predecessor { pid, server, rest } =
            predecessor.unwrap_or(Predecessor { pid: caller.process.pid, server: 0, rest: Rest::NONE });
        let inherited = Inherited { commit, predecessor: pid, server, rest };
        let regions = self.told(&ids, true, turn.now);
        let answers = std::iter::once((Answer::Inherited(inherited), None)).chain(regions).collect();
        if is_new {
            self.record_adoption(turn, &client, name, &ids);
        }
        self.answer_when_held(turn, None, "succession-safe", answers, reply);
    }
}
