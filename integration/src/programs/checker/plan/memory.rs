//! Memory: who may read and write it now, and what an operation does there.

use super::super::program::{BLOCKS, CELLS, Memory, Node, Place, Queue};
use super::ops::{Effect, Ops, Step};
use super::{Planner, slot};

#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) memory: Memory,
    pub(super) device: u8,
    pub(super) first: u16,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub(super) has_value: bool,
    pub(super) writer: Option<usize>,
    pub(super) readers: Ops,
}

impl Planner {
    pub(super) fn block(&self, place: Place, cells: u8) -> Option<Block> {
        let is_in = cells > 0 && place.first.checked_add(cells).is_some_and(|end| end <= CELLS);
        slot(&self.blocks, place.block).filter(|_| is_in)
    }

    pub(super) fn cells(&self, place: Place, cells: u8) -> Option<Vec<u16>> {
        let block = self.block(place, cells)?;
        Some((place.first..place.first + cells).map(|cell| block.first + u16::from(cell)).collect())
    }

    /// Accesses memory in this order, if that is no race.
    pub(super) fn access(&mut self, at: usize, before: &Ops, effects: &[Effect]) -> Option<()> {
        for effect in effects {
            for cell in &effect.reads {
                let cell = &mut self.cells[usize::from(*cell)];
                let is_ordered = cell.writer.is_none_or(|writer| writer == at || before.contains(writer));
                if !cell.has_value || !is_ordered {
                    return None;
                }
                cell.readers.insert(at);
            }
            for cell in &effect.writes {
                let cell = &mut self.cells[usize::from(*cell)];
                let is_ordered = cell.writer.is_none_or(|writer| writer == at || before.contains(writer));
                let mut readers = cell.readers.without(before);
                readers.remove(at);
                if !is_ordered || readers != Ops::default() {
                    return None;
                }
                *cell = Cell { has_value: true, writer: Some(at), readers: Ops::default() };
            }
        }
        Some(())
    }

    /// What a node, or the operation like it, does on a device.
    pub(super) fn effect(&self, node: &Node, device: u8) -> Option<Effect> {
        let is_there = |block: &Block| block.memory.is_pinned() || block.device == device;
        let (to, from, count) = match *node {
            Node::Mix { to, from, cells, .. } | Node::Copy { to, from, cells } => (to, Some(from), cells),
            Node::Set { to, cells, .. } | Node::Call { to, cells, .. } => (to, None, cells),
        };
        let target = self.block(to, count)?;
        let source = from.map(|from| self.block(from, count).ok_or(())).transpose().ok()?;
        let writes = self.cells(to, count)?;
        let mut reads = from.map_or(Some(Vec::new()), |from| self.cells(from, count))?;
        let (target_memory, source_memory) = (target.memory, source.map(|source| source.memory));
        let is_right = match node {
            Node::Mix { .. } => {
                is_there(&target)
                    && source.as_ref().is_some_and(is_there)
                    && (target_memory, source_memory) != (Memory::Array, Some(Memory::Array))
                    && target_memory.is_for_kernels()
                    && source_memory.is_some_and(Memory::is_for_kernels)
            }
            Node::Copy { .. } => {
                let is_on_device = |block: &Block| block.memory.is_host() || block.device == device;
                let source = source?;
                is_on_device(&target) && is_on_device(&source) && !(target.memory.is_host() && source.memory.is_host())
            }
            Node::Set { .. } => !target_memory.is_host() && target_memory != Memory::Array && is_there(&target),
            Node::Call { .. } => target_memory.is_host(),
        };
        if !is_right || writes.iter().any(|cell| reads.contains(cell)) {
            return None;
        }
        if matches!(node, Node::Mix { .. } | Node::Call { .. }) {
            reads.extend(&writes);
        }
        Some(Effect { reads, writes })
    }

    /// A block is made.
    pub(super) fn allocate(&mut self, block: u8, device: u8, memory: Memory) -> Option<Step> {
        let device = self.has_device(device)?;
        let first = u16::try_from(self.cells.len()).ok()?;
        let place = self.blocks.get_mut(usize::from(block)).filter(|place| place.is_none())?;
        *place = Some(Block { memory, device, first });
        let has_value = memory.is_of_module() || memory.is_host();
        self.cells.extend((0..CELLS).map(|_| Cell { has_value, ..Cell::default() }));
        self.kinds.extend((0..CELLS).map(|_| memory));
        let waits_for = if memory.is_of_module() || memory.is_pinned() { self.everything() } else { Ops::default() };
        Some(Step { device, releases: self.releases(&waits_for), ..Step::default() })
    }

    /// A block is given back, at once or in the order of a stream.
    pub(super) fn free(&mut self, at: usize, thread: u8, block: u8, on: Option<Queue>) -> Option<Step> {
        let place = Place { block, first: 0 };
        let writes = self.cells(place, CELLS)?;
        let found = self.block(place, CELLS)?;
        let ends = [Effect { reads: Vec::new(), writes }];
        let mut step = Step { device: found.device, ..Step::default() };
        if let Some(on) = on {
            let (_, device) = self.stream(thread, on)?;
            if !found.memory.is_pooled() || device != found.device {
                return None;
            }
            self.give(at, thread, on, &ends)?;
            step.is_work = true;
        } else {
            let before = self.known[usize::from(thread)];
            self.access(at, &before, &ends)?;
            let everything = self.everything();
            step.releases = self.releases(&everything);
        }
        self.blocks[usize::from(block)] = None;
        Some(step)
    }

    /// The host reads or writes memory of its own.
    pub(super) fn touch(&mut self, at: usize, thread: u8, place: Place, cells: u8, is_read: bool) -> Option<Step> {
        let found = self.block(place, cells).filter(|block| block.memory.is_host())?;
        let touched = self.cells(place, cells)?;
        let (reads, writes) = if is_read { (touched.clone(), Vec::new()) } else { (Vec::new(), touched.clone()) };
        let effects = vec![Effect { reads, writes }];
        let before = self.known[usize::from(thread)];
        self.access(at, &before, &effects)?;
        self.known[usize::from(thread)].insert(at);
        let reads = (place.first..).map(|first| Place { block: place.block, first }).zip(touched);
        let reads = if is_read { reads.collect() } else { Vec::new() };
        Some(Step { effects, reads, device: found.device, ..Step::default() })
    }

    /// The host has a copy of what a block holds.
    pub(super) fn read(&mut self, at: usize, thread: u8, from: Place, cells: u8, on: Queue) -> Option<Step> {
        let found = self.block(from, cells).filter(|block| !block.memory.is_host())?;
        let (_, device) = self.stream(thread, on)?;
        if device != found.device || !matches!(on, Queue::Null(_) | Queue::Own(_)) {
            return None;
        }
        let touched = self.cells(from, cells)?;
        let effects = vec![Effect { reads: touched.clone(), writes: Vec::new() }];
        let proves = self.give(at, thread, on, &effects)?;
        self.known[usize::from(thread)] = self.known[usize::from(thread)].with(&proves);
        let reads = (from.first..).map(|first| Place { block: from.block, first }).zip(touched).collect();
        let releases = self.releases(&proves);
        Some(Step { effects, reads, device, proves, releases, ..Step::default() })
    }

    /// Whether all that writes the source of a copy comes before it in spite of when the driver reads that: pageable memory
    /// during the call, whatever the stream still has before it, and page-locked memory, too, where the stream has nothing to
    /// do itself ([`waits`](super::super::waits)). There the default streams' order does not help.
    pub(super) fn is_source_there(&self, thread: u8, on: Queue, from: Place, reads: &[u16], is_async: bool) -> bool {
        let memory = slot(&self.blocks, from.block).map(|block| block.memory);
        let known = self.known[usize::from(thread)];
        let before = match memory {
            Some(Memory::Pageable) => known,
            Some(memory) if memory.is_pinned() && (is_async || !matches!(on, Queue::Null(_))) => {
                let own = self.named(thread, on).and_then(|name| self.streams.get(&name));
                own.map_or(known, |stream| known.with(&stream.before))
            }
            _ => return true,
        };
        let is_before = |cell: &u16| self.cells[usize::from(*cell)].writer.is_none_or(|writer| before.contains(writer));
        reads.iter().all(is_before)
    }

    pub(super) fn work(&mut self, at: usize, thread: u8, on: Queue, node: &Node, is_async: bool) -> Option<Step> {
        if !is_async && !matches!(on, Queue::Null(_) | Queue::Own(_)) {
            return None;
        }
        let (_, device) = self.stream(thread, on)?;
        let effects = vec![self.effect(node, device)?];
        if let Node::Copy { from, .. } = node
            && !self.is_source_there(thread, on, *from, &effects[0].reads, is_async)
        {
            return None;
        }
        let given = self.give(at, thread, on, &effects)?;
        let mut step = Step { effects, is_work: true, device, ..Step::default() };
        let memory_of = |place: Place| slot(&self.blocks, place.block).map(|block| block.memory);
        let is_to_host = matches!(node, Node::Copy { to, .. } if memory_of(*to).is_some_and(Memory::is_host));
        let is_to_pageable = matches!(node, Node::Copy { to, .. } if memory_of(*to) == Some(Memory::Pageable));
        if !is_async || is_to_pageable {
            step.releases = self.releases(&given);
        }
        if is_to_pageable || (!is_async && is_to_host) {
            step.proves = given;
            self.known[usize::from(thread)] = self.known[usize::from(thread)].with(&given);
        }
        Some(step)
    }

    /// All that a thread may read when all work is done.
    pub(super) fn read_all(&mut self, at: usize, thread: u8) -> Step {
        let proves = self.everything();
        let stages = self.stages();
        let releases = self.releases(&proves);
        let mine = usize::from(thread);
        self.known[mine] = self.known[mine].with(&proves);
        let before = self.known[mine];
        let (mut reads, mut effect) = (Vec::new(), Effect::default());
        for block in 0..BLOCKS {
            let Some(found) = slot(&self.blocks, block) else { continue };
            for first in 0..CELLS {
                let cell = found.first + u16::from(first);
                let seen = [Effect { reads: vec![cell], writes: Vec::new() }];
                if self.access(at, &before, &seen).is_some() {
                    reads.push((Place { block, first }, cell));
                    effect.reads.push(cell);
                }
            }
        }
        self.known[mine].insert(at);
        for device in 0..self.devices {
            if let Some((name, _)) = self.stream(thread, Queue::Null(device)) {
                let mut before = self.before(thread, name, device);
                before.insert(at);
                self.streams.entry(name).and_modify(|stream| stream.before = before);
            }
        }
        Step { effects: vec![effect], reads, proves, stages, releases, ..Step::default() }
    }
}
