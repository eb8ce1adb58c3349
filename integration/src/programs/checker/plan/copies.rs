//! Copies by one call that are several, or between devices.

use super::super::program::{Copying, Memory, Node, Place, Queue};
use super::ops::{Effect, Ops, Step};
use super::order::{Name, Stream};
use super::{Planner, slot};

impl Planner {
    /// Copies in any order.
    pub(super) fn batch(&mut self, at: usize, thread: u8, on: Queue, copies: &[Copying]) -> Option<Step> {
        let (_, device) = self.stream(thread, on)?;
        let is_right = |place: Place| {
            let memory = slot(&self.blocks, place.block).map(|block| block.memory);
            !matches!(memory, Some(Memory::Array | Memory::Pageable))
        };
        let effect = |Copying { to, from, cells }: &Copying| {
            let node = Node::Copy { to: *to, from: *from, cells: *cells };
            self.effect(&node, device).filter(|_| is_right(*to) && is_right(*from))
        };
        let effects = copies.iter().map(effect).collect::<Option<Vec<Effect>>>()?;
        let meets = |one: &Effect, other: &Effect| {
            one.writes.iter().any(|cell| other.reads.contains(cell) || other.writes.contains(cell))
        };
        let are_apart = effects.iter().enumerate().all(|(index, one)| {
            effects.iter().enumerate().all(|(other_index, other)| index == other_index || !meets(one, other))
        });
        let are_there = copies
            .iter()
            .zip(&effects)
            .all(|(copy, effect)| self.is_source_there(thread, on, copy.from, &effect.reads, true));
        if copies.is_empty() || !are_apart || !are_there {
            return None;
        }
        self.give(at, thread, on, &effects)?;
        Some(Step { effects, is_work: true, is_many: true, device, ..Step::default() })
    }

    /// A copy by the default streams of both devices. That it comes after all that both devices have, and before all that they
    /// are given later, is documented, and not so with NVIDIA's driver where both are one: what a stream had that does not wait
    /// for the default one came behind it (`OBSERVED.md`).
    pub(super) fn peer_copy(&mut self, at: usize, thread: u8, to: Place, from: Place, cells: u8) -> Option<Step> {
        let [target, source] = [self.block(to, cells)?, self.block(from, cells)?];
        let is_right = |memory: Memory| !memory.is_host() && memory != Memory::Array;
        let effect = Effect { reads: self.cells(from, cells)?, writes: self.cells(to, cells)? };
        if !is_right(target.memory)
            || !is_right(source.memory)
            || effect.writes.iter().any(|cell| effect.reads.contains(cell))
        {
            return None;
        }
        let devices = [target.device, source.device];
        let mut before = self.known[usize::from(thread)];
        for device in devices {
            let (name, _) = self.stream(thread, Queue::Null(device))?;
            before = before.with(&self.before(thread, name, device));
        }
        let effects = vec![effect];
        self.access(at, &before, &effects)?;
        // The simulated driver waits for all of them.
        let waits_for = devices.iter().fold(before, |all, device| all.with(&self.all(*device)));
        let releases = self.releases(&waits_for);
        before.insert(at);
        for device in devices {
            let stream = self.streams.entry(Name::Null(device)).or_insert(Stream::new(device, false));
            (stream.before, stream.kernels) = (before, Ops::default());
        }
        Some(Step { effects, is_work: true, device: target.device, releases, ..Step::default() })
    }
}
