//! Blocks that the program has freed in a stream's order: each waits for an event, unless somebody asks in the same order.
//!
//! Whoever asks the driver of an event does so without the lock. What waits stays in its place meanwhile, so that it can be
//! given to who asks in its order, and ends with its context. The event is destroyed by the last one who asks of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, Slabs};
use crate::{cuda::types::CUevent, kept::memory::extents::GRAIN};

/// What waits in one order that is looked at for somebody who could have it.
const LOOKED_AT: usize = 256;

/// A block by its address, and the number that no other one has at that address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    /// Where it begins.
    pub(crate) address: u64,
    /// [`Block::number`].
    pub(crate) number: u64,
}

/// A block that is freed when the event has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// The block.
    pub(crate) block: Freed,
    /// Recorded where the program freed it.
    pub(crate) event: CUevent,
    /// The context that the event was made in, and ends with.
    pub(crate) event_context: usize,
    /// The stream in whose order that was, by name; 0 for one that has ended.
    pub(crate) order: usize,
}

/// What has become of what was waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waits,
    /// Nobody waits for the event any longer; who asks of it last destroys it.
    Over,
    /// The event has ended with its context.
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    pending: Pending,
    fate: Fate,
    /// How many ask the driver of its event right now.
    askers: u32,
}

/// What somebody asks the driver of.
#[derive(Clone, Copy, Debug)]
#[must_use = "it is to be settled"]
pub(crate) struct Asked {
    place: u64,
    /// The event.
    pub(crate) event: CUevent,
}

/// What is to be done when somebody has asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "nobody else does it"]
pub(crate) struct Settled {
    /// This block is free.
    pub(crate) free: Option<Freed>,
    /// This event is nobody's any more.
    pub(crate) destroy: Option<CUevent>,
}

/// All that waits.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    /// By place: those that were looked at last are at the end.
    entries: BTreeMap<u64, Entry>,
    /// By order that somebody can ask in: the places of what waits.
    by_order: BTreeMap<usize, BTreeSet<u64>>,
    last: u64,
}

impl Ordered {
    /// Adds what waits.
    pub(crate) fn push(&mut self, pending: Pending) {
        self.put(Entry { pending, fate: Fate::Waits, askers: 0 });
    }

    fn put(&mut self, entry: Entry) -> u64 {
        self.last += 1;
        if entry.pending.order != 0 {
            self.by_order.entry(entry.pending.order).or_default().insert(self.last);
        }
        self.entries.insert(self.last, entry);
        self.last
    }

    /// Takes what waits out of its order, in which nobody gets it any more.
    fn leave_order(&mut self, place: u64) {
        let Some(Entry { pending, .. }) = self.entries.get_mut(&place) else { return };
        let order = std::mem::take(&mut pending.order);
        if let Some(places) = self.by_order.get_mut(&order) {
            places.remove(&place);
            if places.is_empty() {
                self.by_order.remove(&order);
            }
        }
    }

    /// What becomes of an event for which nobody waits any longer, unless it has ended by itself; it, if it is to be destroyed now.
    fn let_go(&mut self, place: u64, fate: Fate) -> Option<CUevent> {
        self.leave_order(place);
        let entry = self.entries.get_mut(&place)?;
        entry.fate = fate;
        if entry.askers > 0 {
            return None;
        }
        let event = entry.pending.event;
        self.entries.remove(&place);
        (fate == Fate::Over).then_some(event)
    }

    /// Up to so many that nobody asks of yet, for somebody to ask; the ones that were looked at longest ago.
    pub(crate) fn ask(&mut self, most: usize) -> Vec<Asked> {
        let free = self.entries.iter().filter(|(_, entry)| entry.askers == 0).map(|(place, _)| *place);
        let places: Vec<u64> = free.take(most).collect();
        places.into_iter().filter_map(|place| self.ask_of(place)).collect()
    }

    /// All, also those that others ask of.
    pub(crate) fn ask_all(&mut self) -> Vec<Asked> {
        let waiting = self.entries.iter().filter(|(_, entry)| entry.fate == Fate::Waits).map(|(place, _)| *place);
        waiting.collect::<Vec<_>>().into_iter().filter_map(|place| self.ask_of(place)).collect()
    }

    fn ask_of(&mut self, place: u64) -> Option<Asked> {
        let entry = self.entries.get_mut(&place)?;
        entry.askers += 1;
        Some(Asked { place, event: entry.pending.event })
    }

    /// Somebody has asked, and knows whether the event has come.
    pub(crate) fn settle(&mut self, asked: Asked, has_come: bool) -> Settled {
        let Some(entry) = self.entries.get_mut(&asked.place) else { return Settled::default() };
        entry.askers -= 1;
        match entry.fate {
            Fate::Waits if has_come => {
                let free = Some(entry.pending.block);
                Settled { free, destroy: self.let_go(asked.place, Fate::Over) }
            }
            Fate::Waits if entry.askers == 0 => {
                // Others are looked at first the next time.
                let entry = *entry;
                self.leave_order(asked.place);
                self.entries.remove(&asked.place);
                self.put(entry);
                Settled::default()
            }
            Fate::Waits => Settled::default(),
            fate if entry.askers == 0 => Settled { free: None, destroy: self.let_go(asked.place, fate) },
            Fate::Over | Fate::Ended => Settled::default(),
        }
    }

    /// A stream by name, or with 0 any one, may have ended: what was freed in its order waits for that alone.
    pub(crate) fn order_ends(&mut self, stream: usize) {
        let of_it = |order: usize| stream == 0 || order == stream;
        for entry in self.entries.values_mut().filter(|entry| of_it(entry.pending.order)) {
            entry.pending.order = 0;
        }
        self.by_order.retain(|order, _| !of_it(*order));
    }

    /// A context has ended, with its events: the blocks that wait for one of them, whose work is over.
    pub(super) fn events_end(&mut self, context: usize) -> Vec<Freed> {
        let is_one = |entry: &Entry| entry.fate == Fate::Waits && entry.pending.event_context == context;
        let ended: Vec<(u64, Freed)> = self
            .entries
            .iter()
            .filter(|(_, entry)| is_one(entry))
            .map(|(place, entry)| (*place, entry.pending.block))
            .collect();
        for (place, _) in &ended {
            let _none = self.let_go(*place, Fate::Ended);
        }
        // Who asks of such an event is not to destroy it afterwards.
        for entry in self.entries.values_mut().filter(|entry| entry.pending.event_context == context) {
            entry.fate = Fate::Ended;
        }
        ended.into_iter().map(|(_, block)| block).collect()
    }

    /// Blocks are gone: the events that nobody needs any more.
    pub(super) fn blocks_end(&mut self, is_gone: impl Fn(u64) -> bool) -> Vec<CUevent> {
        let is_one = |entry: &Entry| entry.fate == Fate::Waits && is_gone(entry.pending.block.number);
        let gone: Vec<u64> = self.entries.iter().filter(|(_, entry)| is_one(entry)).map(|(place, _)| *place).collect();
        gone.into_iter().filter_map(|place| self.let_go(place, Fate::Over)).collect()
    }

    /// The work of all streams is gone, and so are all events: the blocks that waited.
    pub(super) fn take_all(&mut self) -> Vec<Freed> {
        self.by_order.clear();
        let all = std::mem::take(&mut self.entries).into_values();
        all.filter(|entry| entry.fate == Fate::Waits).map(|entry| entry.pending.block).collect()
    }
}

/// A block that was freed in a stream's order and is the program's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    /// Its address.
    pub(crate) address: u64,
    /// The event that nobody needs any longer.
    pub(crate) destroy: Option<CUevent>,
}

/// What somebody asks for who can have what was freed in a stream's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The current context.
    pub(crate) context: usize,
    /// The pool's handle.
    pub(crate) pool: usize,
    /// Bytes.
    pub(crate) size: u64,
}

impl Slabs {
    fn fulfils(&self, pending: &Pending, wish: &Wish) -> bool {
        let Freed { address, number } = pending.block;
        let is_it = |block: &&Block| {
            block.number == number
                && block.context == wish.context
                && block.taken() == wish.size.next_multiple_of(GRAIN)
        };
        self.blocks.get(&address).filter(is_it).is_some() && self.pools.of(address) == Some(wish.pool)
    }

    /// Gives a block that was freed in a stream's order to who asks in the same order for as many bytes of the same pool.
    pub(crate) fn again(&mut self, order: usize, wish: &Wish) -> Option<Again> {
        let places = self.pending.by_order.get(&order)?.iter().take(LOOKED_AT);
        let is_it =
            |place: &&u64| self.pending.entries.get(place).is_some_and(|entry| self.fulfils(&entry.pending, wish));
        let place = *places.into_iter().find(is_it)?;
        self.give_again(place, wish)
    }

    /// The event after which a block would be free that could be given to who asks for this, in whichever order it was freed.
    pub(crate) fn elsewhere(&mut self, wish: &Wish) -> Option<Asked> {
        let waiting = self.pending.entries.iter().filter(|(_, entry)| entry.fate == Fate::Waits).take(LOOKED_AT);
        let mut fitting = waiting.filter(|(_, entry)| self.fulfils(&entry.pending, wish));
        let place = *fitting.next()?.0;
        self.pending.ask_of(place)
    }

    /// Gives the block of [`Self::elsewhere`] to who has made its stream wait for the event, unless another one has it by now.
    pub(crate) fn again_elsewhere(&mut self, asked: Asked, wish: &Wish) -> (Option<Again>, Settled) {
        let is_there = self.pending.entries.get(&asked.place).is_some_and(|entry| entry.fate == Fate::Waits);
        let again = if is_there { self.give_again(asked.place, wish) } else { None };
        (again, self.pending.settle(asked, false))
    }

    fn give_again(&mut self, place: u64, wish: &Wish) -> Option<Again> {
        let address = self.pending.entries.get(&place)?.pending.block.address;
        let block = self.blocks.get_mut(&address)?;
        self.last_number += 1;
        (block.size, block.number, block.is_freed) = (wish.size, self.last_number, false);
        self.pools.gave(address);
        self.pools.took(wish.pool, address, wish.size);
        Some(Again { address, destroy: self.pending.let_go(place, Fate::Over) })
    }
}

#[cfg(test)]
mod tests;
