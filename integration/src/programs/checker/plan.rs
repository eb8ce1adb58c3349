//! Which operations of a list are done, what each reads and writes, and what is ordered before it.
//!
//! A program that races has no right values, so one operation is let in after the other only if everything that it
//! meets in memory comes before it *for sure*: by the order of a stream, of the default streams with others, of events
//! that are waited for, of waits of the host, and of what threads hand over to each other. (What a query says is
//! not sure.) For every stream and thread the plan has the set of operations that are ordered before what comes next
//! there. The same sets tell what a wait proves to be done, and what a call that blocks must not wait for in vain:
//! kernels that are held are released before.

mod copies;
mod graphs;
mod memory;
mod ops;
mod order;
mod resets;

pub(super) use ops::{Ops, Step};

use super::program::{BLOCKS, EVENTS, GRAPHS, LATE, Memory, Node, Op, Program, Queue, STREAMS, THREADS, What};
use graphs::Graph;
use memory::{Block, Cell};
use order::{Event, Name, Stream};
use std::collections::{BTreeMap, BTreeSet};

/// The plan as far as it is.
#[derive(Debug, Clone)]
pub(super) struct Planner {
    devices: u8,
    next: usize,
    known: [Ops; THREADS as usize],
    streams: BTreeMap<Name, Stream>,
    places: [Option<usize>; STREAMS as usize],
    events: [Option<Event>; EVENTS as usize],
    blocks: [Option<Block>; BLOCKS as usize],
    graphs: [Option<Graph>; GRAPHS as usize],
    cells: Vec<Cell>,
    kinds: Vec<Memory>,
    /// By device what all comes after that it is given from now on.
    awaited: BTreeMap<u8, Ops>,
    /// Kernels that are held, with their devices.
    held: Vec<(usize, u8)>,
    /// Devices that a fault has met, whether anybody has noticed or not.
    struck: BTreeSet<u8>,
    /// Whose operation was the last one, and whether the late thread has begun and ended.
    last: Option<u8>,
    has_late: bool,
    has_left: bool,
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
            awaited: BTreeMap::new(),
            held: Vec::new(),
            struck: BTreeSet::new(),
            last: None,
            has_late: false,
            has_left: false,
        }
    }

    /// Lets an operation in, or leaves it out.
    pub(super) fn add(&mut self, op: &Op) -> Option<Step> {
        let at = self.next;
        self.next += 1;
        if at >= Program::MOST || op.thread >= THREADS || (op.thread == LATE && self.has_left) {
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

    fn let_in(&mut self, at: usize, op: &Op) -> Option<Step> {
        let thread = op.thread;
        let mine = usize::from(thread);
        match &op.what {
            What::MakeStream { stream, device, is_blocking } => {
                let device = self.has_device(*device)?;
                let place = self.places.get_mut(usize::from(*stream)).filter(|place| place.is_none())?;
                *place = Some(at);
                let made = Stream::new(device, *is_blocking);
                self.streams.insert(Name::Stream(at), made);
                Some(Step { device, ..Step::default() })
            }
            What::EndStream { stream } => {
                let (_, device) = self.stream(thread, Queue::Stream(*stream))?;
                self.places[usize::from(*stream)] = None;
                Some(Step { device, ..Step::default() })
            }
            What::MakeEvent { event, device, is_timeless } => {
                let device = self.has_device(*device)?;
                let place = self.events.get_mut(usize::from(*event)).filter(|place| place.is_none())?;
                *place = Some(Event { device, has_time: !is_timeless, behind: None });
                Some(Step { device, ..Step::default() })
            }
            What::EndEvent { event } => {
                let Event { device, .. } = slot(&self.events, *event)?;
                self.events[usize::from(*event)] = None;
                Some(Step { device, ..Step::default() })
            }
            What::Record { event, on } => self.record(at, thread, *event, *on),
            What::RecordAll { event, .. } => self.record_all(thread, *event),
            What::AwaitAll { event, .. } => {
                let Event { device, behind, .. } = slot(&self.events, *event)?;
                let awaited = self.awaited.entry(device).or_default();
                *awaited = awaited.with(&behind.unwrap_or_default());
                Some(Step { device, ..Step::default() })
            }
            What::Await { event, on } => self.wait_for(thread, *event, *on),
            What::SyncEvent { event } => self.look_at_event(thread, *event, true),
            What::AskEvent { event } => self.look_at_event(thread, *event, false),
            What::AskTime { from, to } => self.ask_time(*from, *to),
            What::Allocate { block, device, memory } => self.allocate(*block, *device, *memory),
            What::Free { block } => self.free(at, thread, *block, None),
            What::FreeInOrder { block, on } => self.free(at, thread, *block, Some(*on)),
            What::Rest | What::Pause => Some(Step::default()),
            What::AskPointer { block } => {
                let block = slot(&self.blocks, *block)
                    .filter(|block| !matches!(block.memory, Memory::Pageable | Memory::Array))?;
                Some(Step { device: block.device, ..Step::default() })
            }
            What::HostWrite { to, cells, .. } => self.touch(at, thread, *to, *cells, false),
            What::HostRead { from, cells } => self.touch(at, thread, *from, *cells, true),
            What::Read { from, cells, on } => self.read(at, thread, *from, *cells, *on),
            What::Copy { to, from, cells, on, is_async, .. } => {
                let node = Node::Copy { to: *to, from: *from, cells: *cells };
                self.work(at, thread, *on, &node, *is_async)
            }
            What::Batch { copies, stream } => self.batch(at, thread, Queue::Stream(*stream), copies),
            What::PeerCopy { to, from, cells } => self.peer_copy(at, thread, *to, *from, *cells),
            What::Set { to, cells, key, on, is_async } => {
                let node = Node::Set { to: *to, cells: *cells, key: *key };
                self.work(at, thread, *on, &node, *is_async)
            }
            What::Mix { to, from, cells, key, on } => {
                let node = Node::Mix { to: *to, from: *from, cells: *cells, key: *key };
                let step = self.work(at, thread, *on, &node, true);
                self.is_kernel(at, thread, *on);
                step
            }
            What::MixBesides { to, from, cells, key, on, ended, begun, is_early } => {
                let node = Node::Mix { to: *to, from: *from, cells: *cells, key: *key };
                self.launch_besides(at, thread, *on, &node, (*ended, *begun, *is_early))
            }
            What::Call { to, cells, key, on } => {
                let node = Node::Call { to: *to, cells: *cells, key: *key };
                self.work(at, thread, *on, &node, true)
            }
            What::Hold { on } => {
                let (_, device) = self.stream(thread, *on)?;
                // A recovery waits for the work of all other devices.
                if self.struck.iter().any(|struck| *struck != device) {
                    return None;
                }
                self.give(at, thread, *on, &[])?;
                self.is_kernel(at, thread, *on);
                self.held.push((at, device));
                Some(Step { is_work: true, device, ..Step::default() })
            }
            What::Release { which } => {
                let at = usize::from(*which) % self.held.len().max(1);
                (at < self.held.len()).then(|| Step { releases: vec![self.held.remove(at).0], ..Step::default() })
            }
            What::SyncStream { on } => self.look_at_stream(thread, *on, true),
            What::AskStream { on } => self.look_at_stream(thread, *on, false),
            What::SyncContext { device } | What::SyncOther { device } => {
                let device = self.has_device(*device)?;
                let proves = self.all(device);
                self.known[mine] = self.known[mine].with(&proves);
                Some(Step { device, proves, releases: self.releases(&proves), ..Step::default() })
            }
            What::Reset { device } => self.reset(at, thread, *device),
            What::Further { device } => {
                let device = self.has_device(*device)?;
                let (proves, stages) = (self.everything(), self.stages());
                self.known[mine] = self.known[mine].with(&proves);
                Some(Step { device, proves, stages, releases: self.releases(&proves), ..Step::default() })
            }
            What::MakeGraph { graph, stream, is_captured, nodes } => {
                self.make_graph(thread, *graph, *stream, *is_captured, nodes)
            }
            What::UpdateGraph { graph, .. } => {
                let found = slot(&self.graphs, *graph)?;
                self.is_whole(&found).then(|| Step { device: found.device, ..Step::default() })
            }
            What::LaunchGraph { graph, on } => self.launch_graph(at, thread, *graph, *on),
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
            What::Leave => {
                self.has_left = thread == LATE;
                // Nobody says whether other streams are ordered with those of a thread that has ended: no value may depend
                // on that, and nobody may wait in vain.
                let mut given = Ops::default();
                for (_, stream) in self.streams.iter_mut().filter(|(name, _)| matches!(name, Name::Own(LATE, _))) {
                    stream.is_blocking = false;
                    given = given.with(&stream.before);
                }
                let releases = self.releases(&given);
                self.has_left.then(|| Step { releases, ..Step::default() })
            }
            What::ReadAll => Some(self.read_all(at, thread)),
            What::Fault { on, .. } => {
                let (_, device) = self.stream(thread, *on)?;
                self.give(at, thread, *on, &[])?;
                Some(Step { is_work: true, device, releases: self.strikes(device), ..Step::default() })
            }
            What::Neighbour { device, .. } => {
                let device = self.has_device(*device)?;
                let mut releases = self.strikes(device);
                // The kernel in a neighbour's place comes after what all waits for there.
                let awaited = self.awaited.get(&device).copied().unwrap_or_default();
                releases.extend(self.releases(&awaited));
                Some(Step { device, releases, ..Step::default() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
