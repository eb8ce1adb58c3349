//! Events: behind which work each was recorded last, as far as that is known for certain.
//!
//! | recorded | behind |
//! |---|---|
//! | in a stream | what the stream had when the call began, and all of whose calls had come back |
//! | in a stream without work | nothing |
//! | while another thread records it too, or looks at it | nobody knows what: the driver's order is not ours |
//! | by a graph, in a capture, by a launch, for a context | nobody knows what; by a graph and in a capture, for good |
//!
//! An event that has come says that what it is known to be behind is done. It says nothing if it was recorded again
//! meanwhile, and nothing of what another event was behind that had its handle.
//!
//! A record is *unheard* if its thread had to be told of lost work and was not: it succeeds, since programs put events
//! behind work where they free memory, in destructors that end them at an error. Whoever waits for the event is told in
//! its place, however much that one knew before the record. Such records are numbered, over all events.

use super::counts::Mark;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// How many records were unheard so far.
static UNHEARD: AtomicU64 = AtomicU64::new(0);

/// What an event is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Behind {
    /// Nobody knows.
    #[default]
    Unknown,
    /// Nothing.
    Nothing,
    /// A stream's work up to some time: its place, and how far that was.
    Work(usize, Mark),
}

/// What is known of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    behind: Behind,
    /// Which record of any event it was.
    record: u64,
    /// Calls that record it and are in the driver, and whether there was another one meanwhile.
    on_their_way: u32,
    is_mixed: bool,
    /// A graph may record it whenever it is launched.
    is_of_a_graph: bool,
    /// The recovery that has lost what it was recorded behind, until it is recorded again; 0 for none.
    doubt: u64,
    /// Which unheard record was its last one; 0 if that was another one.
    unheard: u64,
}

/// What a record has put an event behind, besides work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// The recovery that has lost what it is behind; 0 for none.
    pub(super) doubt: u64,
    /// Its thread had to be told.
    pub(super) is_unheard: bool,
}

/// Those that were recorded, by name.
#[derive(Debug, Default)]
pub(super) struct Events {
    known: BTreeMap<usize, Known>,
    /// Records so far.
    records: u64,
}

impl Events {
    /// A call begins that records an event.
    pub(super) fn begin(&mut self, event: usize) {
        self.records += 1;
        let known = self.known.entry(event).or_default();
        (known.behind, known.record) = (Behind::Unknown, self.records);
        known.on_their_way += 1;
        known.is_mixed |= known.on_their_way > 1;
    }

    /// It has come back; `passed` if with success.
    pub(super) fn end(&mut self, event: usize, behind: Behind, passed: Option<Passed>) {
        let Some(known) = self.known.get_mut(&event) else { return };
        if let Some(Passed { doubt, is_unheard }) = passed {
            known.doubt = doubt;
            known.unheard = if is_unheard { UNHEARD.fetch_add(1, Ordering::AcqRel) + 1 } else { 0 };
        }
        known.on_their_way = known.on_their_way.saturating_sub(1);
        if !known.is_mixed && !known.is_of_a_graph {
            known.behind = behind;
        }
        known.is_mixed &= known.on_their_way > 0;
    }

    /// An event is recorded behind what nobody knows; by a graph, whenever that is launched.
    pub(super) fn elsewhere(&mut self, event: usize, is_of_a_graph: bool) {
        self.records += 1;
        let known = self.known.entry(event).or_default();
        (known.behind, known.record) = (Behind::Unknown, self.records);
        known.is_of_a_graph |= is_of_a_graph;
    }

    /// A launch has recorded an event behind what this recovery has lost, 0 for none, on a thread that had been told.
    pub(super) fn launched(&mut self, event: usize, doubt: u64) {
        let known = self.known.entry(event).or_default();
        (known.doubt, known.unheard) = (doubt, 0);
    }

    /// What an event is behind, and by which record.
    pub(super) fn behind(&self, event: usize) -> (Behind, u64) {
        self.known.get(&event).map_or((Behind::Unknown, 0), |known| (known.behind, known.record))
    }

    /// Whether this is still its last record.
    pub(super) fn is_still(&self, event: usize, record: u64) -> bool {
        self.known.get(&event).is_some_and(|known| known.record == record)
    }

    /// An event ends, or a new one has this name.
    pub(super) fn take(&mut self, event: usize) -> Option<Known> {
        self.known.remove(&event)
    }

    /// Whether anything is known of an event.
    pub(super) fn has(&self, event: usize) -> bool {
        self.known.contains_key(&event)
    }

    /// How many are known.
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing is known of an event that another record would not change, and none is on its way.
    pub(super) fn is_idle(&self, event: usize) -> bool {
        self.known.get(&event).is_none_or(|known| {
            known.on_their_way == 0 && !known.is_of_a_graph && known.doubt == 0 && known.unheard == 0
        })
    }

    /// A record that is not noted here is on its way while the next one begins.
    pub(super) fn is_met(&mut self, event: usize) {
        self.known.entry(event).or_default().is_mixed = true;
    }

    /// What was noted elsewhere of an event is noted here from now on. Of one of which something is known nobody knows
    /// which record was the last.
    pub(super) fn found(&mut self, event: usize, behind: Behind) {
        self.records += 1;
        let behind = if self.has(event) { Behind::Unknown } else { behind };
        let known = self.known.entry(event).or_default();
        (known.behind, known.record) = (behind, self.records);
    }

    /// The driver has refused to end it.
    pub(super) fn put_back(&mut self, event: usize, known: Known) {
        self.known.entry(event).or_insert(known);
    }

    /// The recovery that has lost what an event is behind; 0 for none.
    pub(super) fn doubt(&self, event: usize) -> u64 {
        self.known.get(&event).map_or(0, |known| known.doubt)
    }

    /// The same of any event.
    pub(super) fn any_doubt(&self) -> u64 {
        self.known.values().map(|known| known.doubt).max().unwrap_or(0)
    }

    /// Which unheard record was an event's last one; 0 if that was another one.
    pub(super) fn unheard(&self, event: usize) -> u64 {
        self.known.get(&event).map_or(0, |known| known.unheard)
    }

    /// Events whose last record is unheard, and later than this one.
    pub(super) fn unheard_since(&self, record: u64) -> Vec<usize> {
        self.known.iter().filter(|(_, known)| known.unheard > record).map(|(event, _)| *event).collect()
    }

    /// All work is gone, and nothing is behind any. What of it `is_done` was not lost; what was is the doing of this
    /// recovery, 0 for one by which nothing was lost. Whether any is in doubt.
    pub(super) fn lose(&mut self, recovery: u64, is_done: impl Fn(usize, &Mark) -> bool) -> bool {
        self.known.retain(|_, known| {
            let is_sound = match known.behind {
                Behind::Unknown => false,
                Behind::Nothing => true,
                Behind::Work(place, mark) => is_done(place, &mark),
            };
            if !is_sound && recovery > 0 {
                known.doubt = recovery;
            }
            known.behind = Behind::Nothing;
            known.doubt > 0 || known.unheard > 0 || known.is_of_a_graph
        });
        self.known.values().any(|known| known.doubt > 0)
    }
}

/// Which unheard record was the last one so far.
pub(crate) fn last_unheard() -> u64 {
    UNHEARD.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests;
