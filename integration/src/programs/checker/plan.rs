//! Which operations of a list are done, what each reads and writes, and what is ordered before it.
//!
//! A program that races has no right values, so one operation is let in after the other only if everything that it
//! meets in memory comes before it *for sure*: by the order of a stream, of the default streams with others, of events
//! that are waited for, of waits of the host, and of what threads hand over to each other. (What a query says is
//! not sure.) For every stream and thread the plan has the set of operations that are ordered before what comes next
//! there. The same sets tell what a wait proves to be done, and what a call that blocks must not wait for in vain:
//! kernels that are held are released before.

use super::program::{
    BLOCKS, CELLS, EVENTS, GRAPHS, LATE, Memory, Node, Op, Place, Program, Queue, STREAMS, THREADS, What,
};
use std::collections::BTreeMap;

/// A set of operations by their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ops([u64; Program::MOST / 64]);

impl Ops {
    /// Adds one.
    pub(super) fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Whether it is in.
    pub(super) fn contains(&self, at: usize) -> bool {
        self.0[at / 64] & 1 << (at % 64) != 0
    }

    /// Both together.
    pub(super) fn with(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(mine, others)| *mine |= others);
        self
    }

    /// Without those of the other.
    pub(super) fn without(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(mine, others)| *mine &= !others);
        self
    }

    /// Their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..Program::MOST).filter(|at| self.contains(*at))
    }
}

/// What one piece of work reads and writes, by cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Effect {
    pub(super) reads: Vec<u16>,
    pub(super) writes: Vec<u16>,
}

/// An operation that is done.
#[derive(Debug, Clone, Default)]
pub(super) struct Step {
    /// What it does to memory, one after the other.
    pub(super) effects: Vec<Effect>,
    /// Goes on after the call.
    pub(super) is_work: bool,
    /// What its success proves to be done.
    pub(super) proves: Ops,
    /// What is proven on the way there, device by device.
    pub(super) stages: Vec<Ops>,
    /// Holds that are released before it, by their index.
    pub(super) releases: Vec<usize>,
    /// Of a read: block and cell of the block, and the cell.
    pub(super) reads: Vec<(Place, u16)>,
    /// The device on whose context it works.
    pub(super) device: u8,
}

/// A stream's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Null(u8),
    Own(u8, u8),
    Stream(usize),
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    device: u8,
    is_blocking: bool,
    before: Ops,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    memory: Memory,
    device: u8,
    first: u16,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    has_value: bool,
    writer: Option<usize>,
    readers: Ops,
}

#[derive(Debug, Clone)]
struct Graph {
    device: u8,
    nodes: Vec<Node>,
    /// First cells of the blocks that it was made with.
    blocks: BTreeMap<u8, u16>,
}

/// The plan as far as it is.
#[derive(Debug, Clone)]
pub(super) struct Planner {
    devices: u8,
    next: usize,
    known: [Ops; THREADS as usize],
    streams: BTreeMap<Name, Stream>,
    places: [Option<usize>; STREAMS as usize],
    events: [Option<(u8, Option<Ops>)>; EVENTS as usize],
    blocks: [Option<Block>; BLOCKS as usize],
    graphs: [Option<Graph>; GRAPHS as usize],
    cells: Vec<Cell>,
    kinds: Vec<Memory>,
    held: Vec<usize>,
    /// Whose operation was the last one, and whether the late thread has begun.
    last: Option<u8>,
    has_late: bool,
}

/// The whole plan: a step for each operation that is done, and the kind of memory of each cell.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) steps: Vec<Option<Step>>,
    pub(super) kinds: Vec<Memory>,
}

impl Plan {
    /// The plan of a program on so many devices.
    pub(super) fn new(program: &Program, devices: u8) -> Self {
        let mut planner = Planner::new(devices);
        let steps = program.ops.iter().map(|op| planner.add(op)).collect();
        Self { steps, kinds: planner.kinds }
    }
}

fn slot<T: Clone>(slots: &[Option<T>], at: u8) -> Option<T> {
    slots.get(usize::from(at))?.clone()
}

impl Planner {
    /// Nothing yet.
    pub(super) fn new(devices: u8) -> Self {
        Self {
            devices,
            next: 0,
            known: [Ops::default(); THREADS as usize],
            streams: BTreeMap::new(),
            places: [None; STREAMS as usize],
            events: [const { None }; EVENTS as usize],
            blocks: [None; BLOCKS as usize],
            graphs: [const { None }; GRAPHS as usize],
            cells: Vec::new(),
            kinds: Vec::new(),
            held: Vec::new(),
            last: None,
            has_late: false,
        }
    }

    /// Lets an operation in, or leaves it out.
    pub(super) fn add(&mut self, op: &Op) -> Option<Step> {
        let at = self.next;
        self.next += 1;
        if at >= Program::MOST || op.thread >= THREADS {
            return None;
        }
        if op.thread == LATE && !self.has_late {
            self.has_late = true;
            let parent = self.last.map_or(Ops::default(), |parent| self.known[usize::from(parent)]);
            self.known[usize::from(LATE)] = parent.with(&self.known[usize::from(LATE)]);
        }
        self.last = Some(op.thread);
        let before = self.clone();
        let step = self.let_in(at, op);
        if step.is_none() {
            *self = before;
        }
        step
    }

    fn has_device(&self, device: u8) -> Option<u8> {
        (device < self.devices).then_some(device)
    }

    /// The stream that is meant, which is there from now on.
    fn stream(&mut self, thread: u8, on: Queue) -> Option<(Name, u8)> {
        let (name, device) = match on {
            Queue::Null(device) | Queue::Legacy(device) => (Name::Null(device), self.has_device(device)?),
            Queue::Own(device) | Queue::OwnHandle(device) => (Name::Own(thread, device), self.has_device(device)?),
            Queue::Stream(place) => {
                let name = Name::Stream(slot(&self.places, place)?);
                (name, self.streams.get(&name)?.device)
            }
        };
        let is_blocking = !matches!(name, Name::Null(_));
        self.streams.entry(name).or_insert(Stream { device, is_blocking, before: Ops::default() });
        Some((name, device))
    }

    /// What is ordered before the next piece of work there.
    fn before(&self, thread: u8, name: Name, device: u8) -> Ops {
        let mut before = self.streams[&name].before.with(&self.known[usize::from(thread)]);
        let is_blocking = self.streams[&name].is_blocking;
        for (other, stream) in &self.streams {
            let is_ordered = match (name, other) {
                (Name::Null(_), _) => stream.device == device && stream.is_blocking,
                (_, Name::Null(of)) => is_blocking && *of == device,
                _ => false,
            };
            if is_ordered {
                before = before.with(&stream.before);
            }
        }
        before
    }

    /// All work on a device.
    fn all(&self, device: u8) -> Ops {
        let of_device = self.streams.values().filter(|stream| stream.device == device);
        of_device.fold(Ops::default(), |all, stream| all.with(&stream.before))
    }

    fn everything(&self) -> Ops {
        (0..self.devices).fold(Ops::default(), |all, device| all.with(&self.all(device)))
    }

    fn releases(&mut self, waits_for: &Ops) -> Vec<usize> {
        self.held.extract_if(.., |hold| waits_for.contains(*hold)).collect()
    }

    fn block(&self, place: Place, cells: u8) -> Option<Block> {
        let is_in = cells > 0 && place.first.checked_add(cells).is_some_and(|end| end <= CELLS);
        slot(&self.blocks, place.block).filter(|_| is_in)
    }

    fn cells(&self, place: Place, cells: u8) -> Option<Vec<u16>> {
        let block = self.block(place, cells)?;
        Some((place.first..place.first + cells).map(|cell| block.first + u16::from(cell)).collect())
    }

    /// Accesses memory in this order, if that is no race.
    fn access(&mut self, at: usize, before: &Ops, effects: &[Effect]) -> Option<()> {
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
                readers.0[at / 64] &= !(1 << (at % 64));
                if !is_ordered || readers != Ops::default() {
                    return None;
                }
                *cell = Cell { has_value: true, writer: Some(at), readers: Ops::default() };
            }
        }
        Some(())
    }

    /// What a node, or the operation like it, does on a device.
    fn effect(&self, node: &Node, device: u8) -> Option<Effect> {
        let is_there = |block: &Block| block.memory == Memory::Pinned || block.device == device;
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
                    && target_memory.is_for_kernels()
                    && source_memory.is_some_and(Memory::is_for_kernels)
            }
            Node::Copy { .. } => {
                let is_on_device = |block: &Block| block.memory.is_host() || block.device == device;
                let source = source?;
                is_on_device(&target) && is_on_device(&source) && !(target.memory.is_host() && source.memory.is_host())
            }
            Node::Set { .. } => !target_memory.is_host() && is_there(&target),
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

    /// Gives work to a stream; what is ordered before it and itself.
    fn give(&mut self, at: usize, thread: u8, on: Queue, effects: &[Effect]) -> Option<Ops> {
        let (name, device) = self.stream(thread, on)?;
        let mut before = self.before(thread, name, device);
        self.access(at, &before, effects)?;
        before.insert(at);
        self.streams.get_mut(&name)?.before = before;
        Some(before)
    }

    fn let_in(&mut self, at: usize, op: &Op) -> Option<Step> {
        let thread = op.thread;
        let mine = usize::from(thread);
        match &op.what {
            What::MakeStream { stream, device, is_blocking } => {
                let device = self.has_device(*device)?;
                let place = self.places.get_mut(usize::from(*stream)).filter(|place| place.is_none())?;
                *place = Some(at);
                let made = Stream { device, is_blocking: *is_blocking, before: Ops::default() };
                self.streams.insert(Name::Stream(at), made);
                Some(Step { device, ..Step::default() })
            }
            What::EndStream { stream } => {
                let (_, device) = self.stream(thread, Queue::Stream(*stream))?;
                self.places[usize::from(*stream)] = None;
                Some(Step { device, ..Step::default() })
            }
            What::MakeEvent { event, device } => {
                let device = self.has_device(*device)?;
                let place = self.events.get_mut(usize::from(*event)).filter(|place| place.is_none())?;
                *place = Some((device, None));
                Some(Step { device, ..Step::default() })
            }
            What::EndEvent { event } => {
                let (device, _) = slot(&self.events, *event)?;
                self.events[usize::from(*event)] = None;
                Some(Step { device, ..Step::default() })
            }
            What::Record { event, on } => {
                let (of, _) = slot(&self.events, *event)?;
                let (_, device) = self.stream(thread, *on)?;
                if of != device {
                    return None;
                }
                let before = self.give(at, thread, *on, &[])?;
                self.events[usize::from(*event)] = Some((device, Some(before)));
                Some(Step { is_work: true, device, ..Step::default() })
            }
            What::Await { event, on } => {
                let (of, recorded) = slot(&self.events, *event)?;
                let (name, device) = self.stream(thread, *on)?;
                // Whether a wait there is also one for the other streams, nobody says.
                if of != device || matches!(name, Name::Null(_)) {
                    return None;
                }
                let stream = self.streams.get_mut(&name)?;
                stream.before = stream.before.with(&recorded.unwrap_or_default());
                Some(Step { device, ..Step::default() })
            }
            What::SyncEvent { event } | What::AskEvent { event } => {
                let (device, recorded) = slot(&self.events, *event)?;
                let proves = recorded.unwrap_or_default();
                if matches!(op.what, What::AskEvent { .. }) {
                    return Some(Step { device, proves, ..Step::default() });
                }
                self.known[mine] = self.known[mine].with(&proves);
                Some(Step { device, proves, releases: self.releases(&proves), ..Step::default() })
            }
            What::Allocate { block, device, memory } => {
                let device = self.has_device(*device)?;
                let first = u16::try_from(self.cells.len()).ok()?;
                let place = self.blocks.get_mut(usize::from(*block)).filter(|place| place.is_none())?;
                *place = Some(Block { memory: *memory, device, first });
                let has_value = memory.is_of_module() || memory.is_host();
                self.cells.extend((0..CELLS).map(|_| Cell { has_value, ..Cell::default() }));
                self.kinds.extend((0..CELLS).map(|_| *memory));
                let waits_for =
                    if memory.is_of_module() || *memory == Memory::Pinned { self.everything() } else { Ops::default() };
                Some(Step { device, releases: self.releases(&waits_for), ..Step::default() })
            }
            What::Free { block } | What::FreeInOrder { block, .. } => {
                let place = Place { block: *block, first: 0 };
                let writes = self.cells(place, CELLS)?;
                let found = self.block(place, CELLS)?;
                let ends = [Effect { reads: Vec::new(), writes: writes.clone() }];
                let mut step = Step { device: found.device, ..Step::default() };
                if let What::FreeInOrder { on, .. } = op.what {
                    let (_, device) = self.stream(thread, on)?;
                    if found.memory != Memory::Pooled || device != found.device {
                        return None;
                    }
                    self.give(at, thread, on, &ends)?;
                    step.is_work = true;
                } else {
                    let before = self.known[mine];
                    self.access(at, &before, &ends)?;
                    let everything = self.everything();
                    step.releases = self.releases(&everything);
                }
                self.blocks[usize::from(*block)] = None;
                Some(step)
            }
            What::AskPointer { block } => {
                let block = slot(&self.blocks, *block).filter(|block| block.memory != Memory::Pageable)?;
                Some(Step { device: block.device, ..Step::default() })
            }
            What::HostWrite { to, cells, .. } | What::HostRead { from: to, cells } => {
                let found = self.block(*to, *cells).filter(|block| block.memory.is_host())?;
                let touched = self.cells(*to, *cells)?;
                let is_read = matches!(op.what, What::HostRead { .. });
                let (reads, writes) =
                    if is_read { (touched.clone(), Vec::new()) } else { (Vec::new(), touched.clone()) };
                let effects = vec![Effect { reads, writes }];
                let before = self.known[mine];
                self.access(at, &before, &effects)?;
                self.known[mine].insert(at);
                let reads = (to.first..).map(|first| Place { block: to.block, first }).zip(touched);
                let reads = if is_read { reads.collect() } else { Vec::new() };
                Some(Step { effects, reads, device: found.device, ..Step::default() })
            }
            What::Read { from, cells, on } => {
                let found = self.block(*from, *cells).filter(|block| !block.memory.is_host())?;
                let (_, device) = self.stream(thread, *on)?;
                if device != found.device || !matches!(on, Queue::Null(_) | Queue::Own(_)) {
                    return None;
                }
                let touched = self.cells(*from, *cells)?;
                let effects = vec![Effect { reads: touched.clone(), writes: Vec::new() }];
                let proves = self.give(at, thread, *on, &effects)?;
                self.known[mine] = self.known[mine].with(&proves);
                let reads = (from.first..).map(|first| Place { block: from.block, first }).zip(touched).collect();
                let releases = self.releases(&proves);
                Some(Step { effects, reads, device, proves, releases, ..Step::default() })
            }
            What::Copy { to, from, cells, on, is_async, .. } => {
                let node = Node::Copy { to: *to, from: *from, cells: *cells };
                self.work(at, thread, *on, &node, *is_async)
            }
            What::Set { to, cells, key, on, is_async } => {
                let node = Node::Set { to: *to, cells: *cells, key: *key };
                self.work(at, thread, *on, &node, *is_async)
            }
            What::Mix { to, from, cells, key, on } => {
                let node = Node::Mix { to: *to, from: *from, cells: *cells, key: *key };
                self.work(at, thread, *on, &node, true)
            }
            What::Call { to, cells, key, on } => {
                let node = Node::Call { to: *to, cells: *cells, key: *key };
                self.work(at, thread, *on, &node, true)
            }
            What::Hold { on } => {
                let (_, device) = self.stream(thread, *on)?;
                self.give(at, thread, *on, &[])?;
                self.held.push(at);
                Some(Step { is_work: true, device, ..Step::default() })
            }
            What::Release { which } => {
                let at = usize::from(*which) % self.held.len().max(1);
                (at < self.held.len()).then(|| Step { releases: vec![self.held.remove(at)], ..Step::default() })
            }
            What::SyncStream { on } | What::AskStream { on } => {
                let (name, device) = self.stream(thread, *on)?;
                let proves = self.streams[&name].before;
                if matches!(op.what, What::AskStream { .. }) {
                    return Some(Step { device, proves, ..Step::default() });
                }
                let waits_for = self.before(thread, name, device);
                self.known[mine] = self.known[mine].with(&proves);
                Some(Step { device, proves, releases: self.releases(&waits_for), ..Step::default() })
            }
            What::SyncContext { device } | What::SyncOther { device } => {
                let device = self.has_device(*device)?;
                let proves = self.all(device);
                self.known[mine] = self.known[mine].with(&proves);
                Some(Step { device, proves, releases: self.releases(&proves), ..Step::default() })
            }
            What::MakeGraph { graph, stream, is_captured, nodes } => {
                let (_, device) = self.stream(thread, Queue::Stream(*stream))?;
                let free = self.graphs.get(usize::from(*graph)).is_some_and(Option::is_none);
                let is_right = |node: &Node| {
                    let is_pageable = |place: Place| {
                        slot(&self.blocks, place.block).is_none_or(|block| block.memory == Memory::Pageable)
                    };
                    let is_allowed = match node {
                        // A capture of pageable memory reads and writes when it is launched, and no two agree when.
                        Node::Copy { to, from, .. } => *is_captured && !is_pageable(*to) && !is_pageable(*from),
                        Node::Mix { .. } | Node::Set { .. } | Node::Call { .. } => true,
                    };
                    is_allowed && self.effect(node, device).is_some()
                };
                if !free || nodes.is_empty() || !nodes.iter().all(is_right) {
                    return None;
                }
                let used = nodes.iter().flat_map(places_of).map(|place| place.block);
                let blocks = used.filter_map(|block| Some((block, slot(&self.blocks, block)?.first))).collect();
                self.graphs[usize::from(*graph)] = Some(Graph { device, nodes: nodes.clone(), blocks });
                Some(Step { device, ..Step::default() })
            }
            What::UpdateGraph { graph, .. } => {
                let found = slot(&self.graphs, *graph)?;
                self.is_whole(&found).then(|| Step { device: found.device, ..Step::default() })
            }
            What::LaunchGraph { graph, on } => {
                let found = slot(&self.graphs, *graph).filter(|graph| self.is_whole(graph))?;
                let (_, device) = self.stream(thread, *on)?;
                if device != found.device {
                    return None;
                }
                let effects: Vec<Effect> =
                    found.nodes.iter().map(|node| self.effect(node, device)).collect::<Option<_>>()?;
                self.give(at, thread, *on, &effects)?;
                Some(Step { effects, is_work: true, device, ..Step::default() })
            }
            What::EndGraph { graph } => {
                let found = self.graphs.get_mut(usize::from(*graph))?.take()?;
                Some(Step { device: found.device, ..Step::default() })
            }
            What::HandOver { to } => {
                let known = self.known[mine];
                let other = self.known.get_mut(usize::from(*to)).filter(|_| *to != thread)?;
                *other = other.with(&known);
                Some(Step::default())
            }
            What::ReadAll => Some(self.read_all(at, thread)),
            What::Fault { on, .. } => {
                let (_, device) = self.stream(thread, *on)?;
                self.give(at, thread, *on, &[])?;
                Some(Step { is_work: true, device, ..Step::default() })
            }
            What::Neighbour { device, .. } => Some(Step { device: self.has_device(*device)?, ..Step::default() }),
        }
    }

    /// Whether a graph's memory is still what it was made with.
    fn is_whole(&self, graph: &Graph) -> bool {
        let is_same = |(block, first): (&u8, &u16)| slot(&self.blocks, *block).is_some_and(|now| now.first == *first);
        graph.blocks.iter().all(is_same)
    }

    fn work(&mut self, at: usize, thread: u8, on: Queue, node: &Node, is_async: bool) -> Option<Step> {
        if !is_async && !matches!(on, Queue::Null(_) | Queue::Own(_)) {
            return None;
        }
        let (_, device) = self.stream(thread, on)?;
        let effects = vec![self.effect(node, device)?];
        // The driver reads pageable memory during the call, whatever the stream still has before it.
        let reads_now =
            |place: Place| slot(&self.blocks, place.block).is_some_and(|block| block.memory == Memory::Pageable);
        let known = self.known[usize::from(thread)];
        let is_known = |cell: &u16| self.cells[usize::from(*cell)].writer.is_none_or(|writer| known.contains(writer));
        if matches!(node, Node::Copy { from, .. } if reads_now(*from)) && !effects[0].reads.iter().all(is_known) {
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
    fn read_all(&mut self, at: usize, thread: u8) -> Step {
        let proves = self.everything();
        let stages = (0..self.devices).map(|device| self.all(device)).collect();
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

/// The places that a node uses.
pub(super) fn places_of(node: &Node) -> Vec<Place> {
    match *node {
        Node::Mix { to, from, .. } | Node::Copy { to, from, .. } => vec![to, from],
        Node::Set { to, .. } | Node::Call { to, .. } => vec![to],
    }
}
