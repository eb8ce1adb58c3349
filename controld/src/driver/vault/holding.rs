//! What the holder keeps of the vault, and in which order it and the program learn of what.
//!
//! What the program is told to be kept must survive this daemon. So a region is held first, then the holder is asked to
//! say when it has done everything before (a barrier), and only when it says so is the program answered. In the same way a descriptor is closed here only when the holder has closed its own before:
//! the last one to close pays for the freeing of memory, and that must be a thread of this process and never the holder,
//! for which everybody waits.

use super::keeper::Keeper;
use crate::core::vault::{NameId, RegionId};
use crate::door::descriptor::Descriptor;
use crate::door::device::Device;
use crate::door::note::{NameNote, RegionNote};
use crate::door::{Reply, ReplyTo, failed};
use crate::driver::keys;
use crate::driver::turn::Turn;
use crate::failpoint::reached;
use crate::holder::Kind;
use remps_proto::shim::Failure;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long the holder may take to pass a barrier before it is asked again: it does not tell what there is no room for.
pub(super) const BARRIER_PATIENCE: Duration = Duration::from_millis(100);

/// The descriptors of one region.
#[derive(Debug, Clone)]
pub(in crate::driver) struct Files {
    pub(super) memory: Arc<Descriptor>,
    pub(super) device: Option<Arc<Device>>,
}

impl Files {
    fn all(&self) -> Vec<BorrowedFd<'_>> {
        let device = self.device.as_ref().map(|device| device.as_fd());
        std::iter::once(self.memory.as_fd()).chain(device).collect()
    }
}

/// What an answer waits for beside the barrier: what the holder may refuse to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    Region(RegionId),
    Name(NameId),
}

/// What is done when the holder has passed a barrier.
#[derive(Debug)]
pub(super) enum Deferred {
    /// Answers a request, unless what it awaits was refused meanwhile; `point` is what has been reached then.
    Answer { awaited: Option<Awaited>, point: &'static str, answers: Vec<Reply>, reply: ReplyTo },
    /// Closes what the holder has closed, and then answers whoever asked for it.
    Close { files: Vec<Files>, then: Option<ReplyTo> },
}

/// Closes files on other threads, and answers when the kernel is done with those that nobody else has.
fn close_and_tell(files: Vec<Files>, reply: ReplyTo) {
    let regions = files.len();
    let memories = files.into_iter().filter_map(|files| Arc::into_inner(files.memory));
    let closings: Vec<_> = memories.filter_map(Descriptor::close).collect();
    tokio::spawn(async move {
        for closing in closings {
            closing.done().await;
        }
        reply.done(Ok(regions));
    });
}

impl Keeper {
    /// Gives another holder everything, and the requests that the one before had not answered.
    pub(in crate::driver) fn hold_all(&self, turn: &Turn<'_>) {
        if let Some(listener) = &self.listener {
            turn.successor.hold(keys::SHIM_LISTENER, Kind::LISTENER_SHIM, &[], &[listener.as_fd()]);
        }
        self.hold_namespaces(turn);
        for id in self.files.keys() {
            self.hold_region(turn, *id);
        }
        self.hold_entries(turn);
        // The answer to this one may be lost with the holder before; then it is sent again.
        if let Some((number, _)) = self.in_flight {
            turn.successor.barrier(number);
        }
    }

    pub(super) fn hold_region(&self, turn: &Turn<'_>, id: RegionId) {
        if let (Some(kept), Some(files)) = (self.rules.get(id), self.files.get(&id)) {
            turn.successor.hold(keys::region(id), Kind::REGION, &RegionNote::of(kept, turn.now), &files.all());
        }
    }

    pub(super) fn hold_entries(&self, turn: &Turn<'_>) {
        for (id, name, entry) in self.rules.entries() {
            turn.successor.hold(keys::name(id), Kind::NAME, &NameNote::of(name, entry, turn.now), &[]);
        }
    }

    /// Tells the holder what has changed about names.
    pub(super) fn note_entries(&mut self, turn: &Turn<'_>) {
        self.forget_namespaces(turn);
        for (id, entry) in self.rules.take_changed_entries() {
            match entry {
                Some((name, entry)) => {
                    turn.successor.hold(keys::name(id), Kind::NAME, &NameNote::of(&name, &entry, turn.now), &[]);
                }
                None => turn.successor.release(keys::name(id)),
            }
        }
    }

    pub(super) fn note_regions(&self, turn: &Turn<'_>, ids: &[RegionId]) {
        for id in ids {
            if let Some(kept) = self.rules.get(*id) {
                turn.successor.update(keys::region(*id), &RegionNote::of(kept, turn.now));
                reached("adoption-half-noted");
            }
        }
    }

    fn send_barrier(&mut self, turn: &Turn<'_>, number: u64) {
        self.in_flight = Some((number, turn.now));
        turn.successor.barrier(number);
    }

    pub(super) fn after_barrier(&mut self, turn: &Turn<'_>, deferred: Deferred) {
        self.last_barrier += 1;
        self.deferred.push_back((self.last_barrier, deferred));
        if self.in_flight.is_none() {
            self.send_barrier(turn, self.last_barrier);
        }
    }

    /// The holder has passed a barrier, and with it everything that was sent before.
    pub(in crate::driver) fn barrier_passed(&mut self, turn: &mut Turn<'_>, number: u64) {
        if self.in_flight.is_none_or(|(awaited, _)| awaited != number) {
            // One that was sent twice.
            return;
        }
        while let Some((_, deferred)) = self.deferred.pop_front_if(|(barrier, _)| *barrier <= number) {
            match deferred {
                Deferred::Answer { point, answers, reply, .. } => {
                    reached(point);
                    reply.answer(answers);
                }
                Deferred::Close { files, then: Some(reply) } => close_and_tell(files, reply),
                Deferred::Close { files, then: None } => drop(files),
            }
        }
        self.in_flight = None;
        if !self.deferred.is_empty() {
            self.send_barrier(turn, self.last_barrier);
        }
    }

    /// Whether something that the holder could not keep is the vault's, and then is not kept.
    pub(in crate::driver) fn refused(&mut self, key: u64) -> bool {
        if let Some(refused) = keys::name_of(key) {
            tracing::warn!(name = refused.0, "the holder could not keep what is noted of a name");
            let owner = self.rules.remove_entry(refused);
            self.fail(Awaited::Name(refused));
            owner.into_iter().for_each(|owner| self.forget(owner));
            return true;
        }
        if let Some(number) = keys::namespace_of(key) {
            tracing::warn!(number, "the holder could not keep a user namespace open");
            return true;
        }
        let Some(id) = keys::region_of(key) else { return false };
        tracing::warn!(region = id.0, "the holder could not keep a region of the vault");
        self.files.remove(&id);
        if let Some(kept) = self.rules.remove(id) {
            self.forget(kept.owner.process);
        }
        self.fail(Awaited::Region(id));
        true
    }

    /// The holder does not keep this: who waits for it is told so.
    fn fail(&mut self, refused: Awaited) {
        for (_, deferred) in &mut self.deferred {
            if let Deferred::Answer { awaited, answers, .. } = deferred
                && *awaited == Some(refused)
            {
                *answers = failed(Failure::NOT_SAFE);
            }
        }
    }

    /// Asks a holder again that has not answered.
    pub(super) fn renew_barrier(&mut self, turn: &Turn<'_>) {
        if let Some((number, _)) = self.in_flight.filter(|(_, sent)| *sent + BARRIER_PATIENCE <= turn.now) {
            self.send_barrier(turn, number);
        }
    }

    /// Answers a program when the holder has all that was told to it before.
    pub(super) fn answer_when_held(
        &mut self,
        turn: &Turn<'_>,
        awaited: Option<Awaited>,
        point: &'static str,
        answers: Vec<Reply>,
        reply: ReplyTo,
    ) {
        self.after_barrier(turn, Deferred::Answer { awaited, point, answers, reply });
    }

    /// Lets go of regions that the rules have let go of: the holder first. Whoever asked for it is told when they are free.
    pub(super) fn close_regions(&mut self, turn: &Turn<'_>, ids: &[RegionId], then: Option<ReplyTo>) {
        self.note_entries(turn);
        if ids.is_empty() && then.is_none() {
            return;
        }
        let mut files = Vec::new();
        for id in ids {
            files.extend(self.files.remove(id));
            turn.successor.release(keys::region(*id));
        }
        reached("region-released");
        self.after_barrier(turn, Deferred::Close { files, then });
    }
}
