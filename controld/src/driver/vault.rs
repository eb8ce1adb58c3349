//! Keeps the vault: does with the descriptors what [`crate::core::vault`] says, and lets the holder keep them too
//! ([`holding`]).
//!
//! A release is answered when the memory is free: [`names`] has what goes on about names, [`offers`] what is offered of them before, and [`spares`] what programs ask
//! about spare copies of the driver.
//!
//! # After the daemon's death
//! | killed | found by the successor |
//! |---|---|
//! | before the region is held | nothing; the program was not answered and asks again |
//! | after that | the region, with its owner, or a deadline from now on if the owner ended meanwhile |
//! | in the middle of an adoption | some regions of a name with the new owner: it is given the rest |
//! | before a release is told | the region; its owner asks again, or ends |
//! | before a commit is held | the commit before; the program was not answered and asks again |
//! | after an offer | nothing of it: who has mapped it is told that it is withdrawn, and asks anew |
//! | in the middle of a succession | the entry or some regions with the new owner: it is given the rest, and asks again |

mod holding;
mod keeper;
mod names;
mod namespaces;
mod notices;
mod offers;
mod restoring;
mod spares;

pub(super) use keeper::{Keeper, VaultNews};

use super::Driver;
use super::turn::Turn;
use crate::core::vault::{Caller, Kept, RegionId};
use crate::core::{
    ClientRecovery, ClientRefusal, Confidence, Core, Evidence, Fate, Input, JournalEvent, Part, ProcessKey,
    ServerEpoch, Standing, Uid,
};
use crate::door::client::Client;
use crate::door::descriptor::Descriptor;
use crate::door::device::Device;
use crate::door::{ReplyTo, Request, done};
use crate::failpoint::reached;
use crate::io::process::start_time;
use holding::{Awaited, Deferred, Files};
use names::Wanted;
use remps_proto::shim::{self, Answer, Ask, Failure, Region, ServerState};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// What a process has to do with the faults of a server, as it is told.
fn part_of(core: &Core, process: ProcessKey, server: ServerEpoch) -> shim::Part {
    match core.part_of(process, server) {
        Part::Unknown | Part::Culprit(Confidence::Unknown) => shim::Part::UNKNOWN,
        Part::Bystander => shim::Part::BYSTANDER,
        Part::Culprit(Confidence::Likely) => shim::Part::LIKELY_CULPRIT,
        Part::Culprit(Confidence::Certain) => shim::Part::CULPRIT,
    }
}

/// On which server a process is, and how that is.
fn where_is(core: &Core, process: ProcessKey) -> Answer {
    let (server, state) = match core.fate_of(process) {
        None => (ServerEpoch(0), ServerState::NONE),
        Some((server, Fate::Healthy)) => (server, ServerState::HEALTHY),
        Some((server, Fate::Tainted)) => (server, ServerState::TAINTED),
        Some((server, Fate::Ending)) => (server, ServerState::GONE),
    };
    Answer::Epoch { server: server.0, state, part: part_of(core, process, server) }
}

/// The server of a caller, as it is noted; 0 is none.
fn server_of(turn: &Turn<'_>, caller: &Caller) -> u64 {
    turn.core.fate_of(caller.process).map_or(0, |(server, _)| server.0)
}

/// What nobody can guess; `None` when the kernel gives no random numbers.
fn new_number() -> Option<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom").ok()?.read_exact(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes)).filter(|number| *number != 0)
}

impl Driver {
    /// What concerns a program's own copies goes to those who follow it, everything else to the vault.
    pub(super) fn vault_news(&mut self, news: VaultNews) {
        let following = &self.witnesses.following;
        match news {
            VaultNews::Asked(request) if matches!(request.ask, Ask::Follow { .. }) => {
                following.descriptors_given(request);
            }
            VaultNews::Asked(request) if matches!(request.ask, Ask::Renewed) => following.sift(request),
            VaultNews::Asked(request) => self.vault(|vault, turn| vault.asked(turn, request)),
            VaultNews::Ends { process, end } => self.vault(|vault, _turn| vault.owner_ends(process, end)),
            VaultNews::Ended(process) => self.vault(|vault, turn| vault.owner_ended(turn, process)),
        }
    }
}

impl Keeper {
    fn asked(&mut self, turn: &mut Turn<'_>, request: Request) {
        let Request { client, ask, descriptor, device, given: _, line, reply } = request;
        let caller = &client.caller;
        match ask {
            Ask::Escrow(region) => {
                if let Some(descriptor) = descriptor {
                    self.escrow(turn, &client, region, (descriptor, device), reply);
                }
            }
            Ask::Release { key } => {
                let released = self.rules.release(caller, key).map(|kept| vec![kept]);
                self.given_up(turn, caller, released, reply);
            }
            Ask::Discard { name } => {
                self.look_at_owner(turn, caller, &name);
                let discarded = self.rules.discard(caller, &name);
                self.given_up(turn, caller, discarded, reply);
            }
            Ask::List { name } => {
                let rules = &self.rules;
                let fits = |kept: &Kept| rules.may_see(caller, kept) && (name.is_empty() || kept.region.name == name);
                let ids: Vec<RegionId> = rules.iter().filter(|(_, kept)| fits(kept)).map(|(id, _)| id).collect();
                reply.answer(self.told(&ids, false, turn.now));
            }
            Ask::HandBack => {
                let ids: Vec<RegionId> = self.rules.of_process(caller.process).collect();
                reply.answer(self.told(&ids, true, turn.now));
            }
            Ask::Adopt { name } => self.adopt(turn, &client, name, reply),
            Ask::Report { error, own_work, server } => {
                let (process, server) = (caller.process, Some(ServerEpoch(server)).filter(|_| server != 0));
                turn.feed(Input::Evidence(Evidence::Shim { process, error, own_work, server }));
                reply.done(Ok(0));
            }
            Ask::Where => reply.answer(vec![(where_is(turn.core, caller.process), None)]),
            Ask::Commit { name, commit } => self.commit(turn, &client, &name, commit, reply),
            Ask::Succeed { name, wait_ms, even_if_nobody, least, offer } => {
                self.claim(turn, client, Wanted { name, wait_ms, even_if_nobody, least, offer }, reply);
            }
            Ask::Fate { pid } => reply.answer(vec![(self.fate_of_ended(turn, caller, pid), None)]),
            Ask::Watch { server, state, wait_ms } => self.asks_for_news(turn, client, (server, state), wait_ms, reply),
            Ask::Subscribe { server } => self.subscribe(caller.process, server, line, reply),
            Ask::Spare { wait_ms } => self.wants_spare(turn, client, wait_ms, &line, reply),
            Ask::SpareStands { token, is_ready, behind, takes } => {
                let standing = Standing { is_ready, behind, takes };
                self.spare_stands(turn, (caller.process, token), standing, &line, reply);
            }
            Ask::SpareLives { token } => self.spare_lives(turn, (caller.process, token), reply),
            Ask::SpareGone { token } => self.spare_gone(turn, (caller.process, token), reply),
            Ask::Recovery { stage } => {
                let held = turn.core.held_burials();
                turn.feed(Input::RecoveryStands { process: caller.process, stage });
                reply.done(Ok(held.saturating_sub(turn.core.held_burials())));
            }
            Ask::Unrecovered(unrecovered) => {
                let (process, uid, refusal) = (caller.process, caller.uid, ClientRefusal::of(unrecovered));
                turn.feed(Input::ClientUnrecovered { process, uid, refusal });
                reply.done(Ok(0));
            }
            Ask::Recovered(recovered) => {
                let (process, uid, recovery) = (caller.process, caller.uid, ClientRecovery::of(&recovered));
                turn.feed(Input::ClientRecovered { process, uid, recovery });
                reply.done(Ok(0));
            }
            // The session answers the first itself, and the others are not the vault's.
            Ask::Hello { .. } | Ask::Follow { .. } | Ask::Renewed => reply.done(Err(Failure::NOT_GREETED)),
        }
    }

    fn escrow(
        &mut self,
        turn: &mut Turn<'_>,
        client: &Client,
        region: Region,
        (memory, device): (Descriptor, Option<Arc<Device>>),
        reply: ReplyTo,
    ) {
        reached("region-asked");
        let caller = &client.caller;
        let region = Region { owner: 0, left_ms: 0, ..region };
        let (name, gpu, bytes) = (region.name.clone(), region.gpu.clone(), region.bytes);
        let id = match self.rules.escrow(caller, region) {
            Ok(id) => id,
            Err(failure) => return reply.done(Err(failure)),
        };
        let before = self.files.insert(id, Files { memory: Arc::new(memory), device });
        self.rules.note_server(caller, &name, server_of(turn, caller));
        self.keep_namespace(turn, client);
        self.note_entries(turn);
        self.hold_region(turn, id);
        reached("region-held");
        self.watch_caller(client);
        self.answer_when_held(turn, Some(Awaited::Region(id)), "region-safe", vec![done(1)], reply);
        match before {
            // The same again, which is nothing new.
            Some(files) => self.after_barrier(turn, Deferred::Close { files: vec![files], then: None }),
            None => {
                let (process, uid) = (caller.process, caller.uid);
                turn.record(JournalEvent::RegionEscrowed { process, uid, name, gpu, bytes });
            }
        }
    }

    fn adopt(&mut self, turn: &mut Turn<'_>, client: &Client, name: String, reply: ReplyTo) {
        self.look_at_owner(turn, &client.caller, &name);
        let ids = match self.rules.adopt(&client.caller, &name) {
            Ok(ids) => ids,
            Err(failure) => return reply.done(Err(failure)),
        };
        reached("adoption-known");
        self.keep_namespace(turn, client);
        self.note_entries(turn);
        self.note_regions(turn, &ids);
        reached("adoption-noted");
        self.watch_caller(client);
        let answers = self.told(&ids, true, turn.now);
        self.record_adoption(turn, client, name, &ids);
        self.answer_when_held(turn, None, "region-safe", answers, reply);
    }

    fn record_adoption(&self, turn: &mut Turn<'_>, client: &Client, name: String, ids: &[RegionId]) {
        let bytes = ids.iter().filter_map(|id| self.rules.get(*id)).map(|kept| kept.region.bytes).sum();
        let (process, uid, regions) = (client.caller.process, client.caller.uid, ids.len());
        turn.record(JournalEvent::RegionsAdopted { process, uid, name, regions, bytes });
    }

    /// Looks whether a name's owner has ended: a successor may ask sooner than its watch is heard.
    fn look_at_owner(&mut self, turn: &mut Turn<'_>, caller: &Caller, name: &str) {
        let owner = self.rules.owner_of_name(caller, name);
        let owner = owner.filter(|owner| self.watched.contains_key(owner));
        if let Some(owner) = owner
            && start_time(super::processes::kernel_pid(owner.pid)) != Some(owner.start_time)
        {
            self.owner_ended(turn, owner);
        }
    }

    fn owner_ended(&mut self, turn: &mut Turn<'_>, process: ProcessKey) {
        reached("owner-end-seen");
        self.watched.remove(&process);
        self.claims.forget(process);
        self.watchers.forget(process);
        self.spares.forget(process);
        let (orphaned, closed) = self.rules.ended(turn.now, process);
        self.note_entries(turn);
        self.note_regions(turn, &orphaned);
        reached("owner-end-noted");
        if let Some(uid) = closed.first().map(|(_, kept)| kept.owner.uid) {
            self.released(turn, process, uid, closed, None);
        }
    }

    /// What a program has given up, or why it can't.
    fn given_up(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        gone: Result<Vec<(RegionId, Kept)>, Failure>,
        reply: ReplyTo,
    ) {
        match gone {
            Ok(gone) => self.released(turn, caller.process, caller.uid, gone, Some(reply)),
            Err(failure) => reply.done(Err(failure)),
        }
    }

    /// Regions were given up; whoever asked for it is told when their memory is free.
    fn released(
        &mut self,
        turn: &mut Turn<'_>,
        process: ProcessKey,
        uid: Uid,
        gone: Vec<(RegionId, Kept)>,
        reply: Option<ReplyTo>,
    ) {
        let bytes = gone.iter().map(|(_, kept)| kept.region.bytes).sum();
        let ids: Vec<RegionId> = gone.into_iter().map(|(id, _)| id).collect();
        self.close_regions(turn, &ids, reply);
        self.forget(process);
        turn.record(JournalEvent::RegionsReleased { process, uid, regions: ids.len(), bytes });
    }

    /// Lets go of regions that nobody has adopted in time, and asks a holder again that has not answered.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        self.renew_barrier(turn);
        let expired = self.rules.expire(turn.now);
        let ids: Vec<RegionId> = expired.iter().map(|(id, _)| *id).collect();
        self.close_regions(turn, &ids, None);
        for (_, kept) in expired {
            let (Caller { process, uid, .. }, Region { name, bytes, .. }) = (kept.owner, kept.region);
            turn.record(JournalEvent::RegionExpired { process, uid, name, bytes });
        }
    }
}
