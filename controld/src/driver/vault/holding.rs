//! What the holder keeps of the vault, and in which order it and the program learn of what.
//!
//! What the program is told to be kept must survive this daemon. So a region is held first, then the holder is asked to
//! say when it has done everything before (a barrier), and only when it says so is the program answered. In the same way a descriptor is closed here only when the holder has closed its own before:
//! the last one to close pays for the freeing of memory, and that must be a thread of this process and never the holder,
//! for which everybody waits.

use crate::core::vault::{NameId, RegionId};
use crate::door::Reply;
use crate::door::descriptor::Descriptor;
use crate::door::device::Device;
use crate::door::note::{Note, TitleNote};
use crate::driver::{Driver, keys};
use crate::failpoint::reached;
use crate::holder::Kind;
use remps_proto::shim::{Answer, Failure};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

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

/// What is done when the holder has passed a barrier.
#[derive(Debug)]
pub(in crate::driver) enum Deferred {
    /// Answers a request, whose region or title may have been refused meanwhile.
    Answer {
        region: Option<RegionId>,
        name: Option<NameId>,
        point: &'static str,
        answers: Vec<Reply>,
        reply: oneshot::Sender<Vec<Reply>>,
    },
    /// Closes what the holder has closed, and then answers whoever asked for it.
    Close { files: Vec<Files>, then: Option<(Vec<Reply>, oneshot::Sender<Vec<Reply>>)> },
}

impl Deferred {
    pub(super) fn close(files: Vec<Files>) -> Self {
        Self::Close { files, then: None }
    }
}

/// Closes files on other threads, and answers when the kernel is done with those that nobody else has.
fn close_and_tell(files: Vec<Files>, answers: Vec<Reply>, reply: oneshot::Sender<Vec<Reply>>) {
    let memories = files.into_iter().filter_map(|files| Arc::into_inner(files.memory));
    let closings: Vec<_> = memories.filter_map(Descriptor::close).collect();
    tokio::spawn(async move {
        for closing in closings {
            closing.done().await;
        }
        // A program that has gone meanwhile needs no answer.
        let _ = reply.send(answers);
    });
}

impl Driver {
    /// Gives another holder everything, and the requests that the one before had not answered.
    pub(in crate::driver) fn hold_vault(&self) {
        if let Some(listener) = &self.vault.listener {
            self.successor.hold(keys::SHIM_LISTENER, Kind::LISTENER_SHIM, &[], &[listener.as_fd()]);
        }
        self.hold_namespaces();
        for id in self.vault.files.keys() {
            self.hold_region(*id);
        }
        self.hold_titles();
        // The answer to this one may be lost with the holder before; then it is sent again.
        if let Some((number, _)) = self.vault.in_flight {
            self.successor.barrier(number);
        }
    }

    pub(super) fn hold_region(&self, id: RegionId) {
        if let (Some(kept), Some(files)) = (self.vault.rules.get(id), self.vault.files.get(&id)) {
            self.successor.hold(keys::region(id), Kind::REGION, &Note::of(kept, self.now()), &files.all());
        }
    }

    pub(super) fn hold_titles(&self) {
        for (id, name, title) in self.vault.rules.titles() {
            self.successor.hold(keys::name(id), Kind::NAME, &TitleNote::of(name, title, self.now()), &[]);
        }
    }

    /// Tells the holder what has changed about names.
    pub(in crate::driver) fn note_titles(&mut self) {
        let now = self.now();
        self.forget_namespaces();
        for (id, title) in self.vault.rules.take_changed_titles() {
            match title {
                Some((name, title)) => {
                    self.successor.hold(keys::name(id), Kind::NAME, &TitleNote::of(&name, &title, now), &[]);
                }
                None => self.successor.release(keys::name(id)),
            }
        }
    }

    pub(in crate::driver) fn note_regions(&self, ids: &[RegionId]) {
        for id in ids {
            if let Some(kept) = self.vault.rules.get(*id) {
                self.successor.update(keys::region(*id), &Note::of(kept, self.now()));
                reached("adoption-half-noted");
            }
        }
    }

    fn send_barrier(&mut self, number: u64) {
        self.vault.in_flight = Some((number, self.now()));
        self.successor.barrier(number);
    }

    pub(in crate::driver) fn after_barrier(&mut self, deferred: Deferred) {
        self.vault.last_barrier += 1;
        self.vault.deferred.push_back((self.vault.last_barrier, deferred));
        if self.vault.in_flight.is_none() {
            self.send_barrier(self.vault.last_barrier);
        }
    }

    /// The holder has passed a barrier, and with it everything that was sent before.
    pub(in crate::driver) fn barrier_passed(&mut self, number: u64) {
        if self.vault.in_flight.is_none_or(|(awaited, _)| awaited != number) {
            // One that was sent twice.
            return;
        }
        while let Some((_, deferred)) = self.vault.deferred.pop_front_if(|(barrier, _)| *barrier <= number) {
            match deferred {
                Deferred::Answer { point, answers, reply, .. } => {
                    reached(point);
                    // A program that has gone meanwhile needs no answer.
                    let _ = reply.send(answers);
                }
                Deferred::Close { files, then: Some((answers, reply)) } => close_and_tell(files, answers, reply),
                Deferred::Close { files, then: None } => drop(files),
            }
        }
        self.vault.in_flight = None;
        if !self.vault.deferred.is_empty() {
            self.send_barrier(self.vault.last_barrier);
        }
    }

    /// Whether something that the holder could not keep is the vault's, and then is not kept.
    pub(in crate::driver) fn vault_refused(&mut self, key: u64) -> bool {
        if let Some(refused) = keys::name_of(key) {
            tracing::warn!(name = refused.0, "the holder could not keep what is noted of a name");
            self.vault.rules.remove_title(refused);
            for (_, deferred) in &mut self.vault.deferred {
                if let Deferred::Answer { name: Some(name), answers, .. } = deferred
                    && *name == refused
                {
                    *answers = vec![(Answer::Failed(Failure::NOT_SAFE), None)];
                }
            }
            return true;
        }
        if let Some(number) = keys::namespace_of(key) {
            tracing::warn!(number, "the holder could not keep a user namespace open");
            return true;
        }
        let Some(id) = keys::region_of(key) else { return false };
        tracing::warn!(region = id.0, "the holder could not keep a region of the vault");
        self.vault.files.remove(&id);
        if let Some(kept) = self.vault.rules.remove(id) {
            self.vault.forget(kept.owner.process);
        }
        for (_, deferred) in &mut self.vault.deferred {
            if let Deferred::Answer { region: Some(region), answers, .. } = deferred
                && *region == id
            {
                *answers = vec![(Answer::Failed(Failure::NOT_SAFE), None)];
            }
        }
        true
    }

    /// Asks a holder again that has not answered.
    pub(super) fn renew_barrier(&mut self, now: Duration) {
        if let Some((number, _)) = self.vault.in_flight.filter(|(_, sent)| *sent + BARRIER_PATIENCE <= now) {
            self.send_barrier(number);
        }
    }

    /// Lets go of regions that the rules have let go of: the holder first.
    pub(super) fn close_regions(&mut self, ids: &[RegionId], then: Option<(Vec<Reply>, oneshot::Sender<Vec<Reply>>)>) {
        self.note_titles();
        if ids.is_empty() && then.is_none() {
            return;
        }
        let mut files = Vec::new();
        for id in ids {
            files.extend(self.vault.files.remove(id));
            self.successor.release(keys::region(*id));
        }
        reached("region-released");
        self.after_barrier(Deferred::Close { files, then });
    }
}
