//! A run of a program: what it has, and its operations as calls of the driver, tried again after an error as programs do.

mod arrays;
mod copies;
mod host;
mod launches;
pub(super) mod memory;
mod perform;
mod resets;

pub(super) use host::{call_data, mix_on_host, read_word, write_word};
pub(super) use memory::Block;

use super::api::{Answer, Api, Failed};
use super::base::Base;
use super::fate::{Fate, NO_NEIGHBOUR};
use super::graphs::Made;
use super::judge::{self, Judge};
use super::plan::{Plan, Step};
use super::program::{BLOCKS, CELL, EVENTS, GRAPHS, LATE, Place, Program, Queue, STREAMS, What};
use super::wrong::{Bytes, Differing, Wrong as Mistake};
use std::cell::Cell;

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const MEMORY_TYPE: u32 = 2;
/// How often a call is made that fails.
const TRIES: u32 = 4;

thread_local! {
    /// The device whose context is current, and how often it had been reset then.
    static CURRENT: Cell<Option<(u8, u32)>> = const { Cell::new(None) };
}

/// An event with its device.
#[derive(Debug, Clone, Copy)]
struct Event {
    handle: usize,
    device: u8,
}

/// A stream with its device.
#[derive(Debug, Clone, Copy)]
struct Stream {
    handle: usize,
    device: u8,
}

/// What is told of a value that was used: operation, cell.
pub(super) type Used = (usize, u16, Bytes);

/// A run.
pub(super) struct Machine<'a> {
    pub(super) api: &'static Api,
    pub(super) base: &'a Base,
    pub(super) program: &'a Program,
    pub(super) plan: &'a Plan,
    /// The values of the undisturbed run, in a disturbed one.
    pub(super) expected: Option<&'a [Used]>,
    pub(super) fate: Option<&'a mut Fate>,
    pub(super) judge: Judge,
    pub(super) used: Vec<Used>,
    pub(super) done: usize,
    streams: [Option<Stream>; STREAMS as usize],
    events: [Option<Event>; EVENTS as usize],
    /// How many recoveries there had been when each was recorded.
    recorded: [usize; EVENTS as usize],
    pub(super) blocks: [Option<Block>; BLOCKS as usize],
    pub(super) graphs: [Option<Made>; GRAPHS as usize],
    /// The module with the kernel that fails an assertion, by device.
    asserting: [Option<usize>; 2],
    /// When the late thread begins, and whose child it is.
    birth: Option<(usize, u8)>,
    /// The device whose context was reset and is not there again.
    reset: Option<u8>,
    /// What is otherwise than in the undisturbed run, where something is wrong with that.
    pub(super) differing: Vec<Differing>,
}

fn none() -> Failed {
    Failed { call: "a handle that could not be made", code: 0 }
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        base: &'a Base,
        program: &'a Program,
        plan: &'a Plan,
        expected: Option<&'a [Used]>,
        fate: Option<&'a mut Fate>,
        recoveries: (bool, bool),
    ) -> Self {
        Self {
            api: base.api,
            base,
            program,
            plan,
            expected,
            fate,
            judge: Judge::new(plan, recoveries),
            used: Vec::new(),
            done: 0,
            streams: [None; STREAMS as usize],
            events: [None; EVENTS as usize],
            recorded: [0; EVENTS as usize],
            blocks: [const { None }; BLOCKS as usize],
            graphs: [const { None }; GRAPHS as usize],
            asserting: [None; 2],
            birth: program.birth(),
            reset: None,
            differing: Vec::new(),
        }
    }

    /// Does an operation, on its thread.
    pub(super) fn step(&mut self, at: usize) -> Result<(), Mistake> {
        let (plan, program) = (self.plan, self.program);
        if let Some((_, parent)) = self.birth.take_if(|(birth, _)| *birth == at) {
            self.judge.hand_over(parent, LATE);
        }
        let Some(step) = &plan.steps[at] else { return Ok(()) };
        let op = &program.ops[at];
        step.releases.iter().for_each(|hold| self.base.release(*hold));
        if op.what.is_fault() && self.expected.is_none() {
            return self.stand_in(&op.what, step.device).map_err(Mistake::Undisturbed);
        }
        if op.what.is_fault() {
            super::steps::meet();
        }
        self.judge.look(plan, None);
        for attempt in 1.. {
            let (mut read, mut is_not_ready) = (Vec::new(), false);
            if op.what.is_fault() {
                judge::strike(1);
            }
            let answer = self.perform(at, op.thread, step, &mut read, &mut is_not_ready);
            self.judge.look(plan, Some(at));
            if let Some(error) = self.judge.unprovoked() {
                return Err(Mistake::Unprovoked(error));
            }
            let Err(failed) = answer else {
                self.done += 1;
                let mut shown = step.clone();
                if is_not_ready {
                    shown.proves = super::plan::Ops::default();
                }
                self.judge.done(at, &shown);
                return self.use_values(at, op.thread, step, &read);
            };
            if self.expected.is_none() {
                return Err(Mistake::Undisturbed(failed));
            }
            if self.judge.is_refused() {
                return Err(Mistake::Refused(failed, super::api::reason()));
            }
            if self.has_no_time_any_more(&op.what) {
                self.judge.is_told(op.thread, failed);
                return Ok(());
            }
            self.judge.failed(op.thread, failed, op.what.is_ignored())?;
            if op.what.is_ignored() {
                return Ok(());
            }
            if attempt == TRIES {
                // An event of lost work may stay lost until it is recorded again.
                let is_of_event = matches!(
                    op.what,
                    What::Await { .. } | What::AwaitAll { .. } | What::SyncEvent { .. } | What::AskEvent { .. }
                );
                self.judge.given_up(step);
                return if is_of_event { Ok(()) } else { Err(Mistake::Persistent(failed)) };
            }
        }
        Ok(())
    }

    /// Whether this asks for a time since an event that was recorded before a recovery: it is as if it never had been.
    fn has_no_time_any_more(&self, what: &What) -> bool {
        let What::AskTime { from, to } = what else { return false };
        [from, to].iter().any(|event| self.recorded[usize::from(**event)] < self.judge.recoveries.len())
    }

    /// In the undisturbed run a kernel that does nothing is in a fault's place, since it orders what comes after it.
    fn stand_in(&self, fault: &What, device: u8) -> Answer {
        let What::Fault { on, .. } = fault else { return Ok(()) };
        self.enter(device)?;
        let nowhere = self.base.hold(device, 0) as u64;
        self.launch(self.base.kernels(device).mix, *on, &[nowhere, nowhere, 0, 0])
    }

    fn use_values(&mut self, at: usize, thread: u8, step: &Step, read: &[Bytes]) -> Result<(), Mistake> {
        let (mut first, mut others) = (Ok(()), Vec::new());
        for ((place, cell), bytes) in step.reads.iter().zip(read) {
            if let Some(expected) = self.expected {
                let known = expected.iter().find(|(of, which, _)| (*of, *which) == (at, *cell));
                if let Some((_, _, expected)) = known {
                    let address = self.address(*place)?;
                    first = first.and(self.judge.used(thread, *cell, address, bytes, expected));
                    if bytes != expected {
                        others.push((*place, *cell, address, bytes, expected));
                    }
                }
            }
            self.used.push((at, *cell, *bytes));
        }
        if first.is_err() {
            // Only now: the driver is asked.
            let seen = others.into_iter().map(|(place, cell, address, found, expected)| {
                self.judge.differing(place, cell, self.known_as(address), found, expected)
            });
            self.differing = seen.collect();
        }
        first
    }

    /// What the driver says of an address: the type of its memory, or the call's error.
    fn known_as(&self, address: usize) -> Result<u32, u32> {
        let mut kind = 0;
        self.api.cuPointerGetAttribute(&raw mut kind, MEMORY_TYPE, address).map(|()| kind).map_err(|failed| failed.code)
    }

    /// Makes a device's context current on this thread.
    fn enter(&self, device: u8) -> Answer {
        let wanted = Some((device, self.base.resets(device)));
        if CURRENT.get() != wanted {
            self.api.cuCtxSetCurrent(self.base.context(device))?;
            CURRENT.set(wanted);
        }
        Ok(())
    }

    /// Makes another device's context current, if that is wanted.
    fn be_away(&self, device: u8, is_away: bool) -> Answer {
        if is_away { self.enter((device + 1) % self.base.devices()) } else { Ok(()) }
    }

    /// Whether the functions for threads' own default streams are meant, and the handle.
    fn on(&self, queue: Queue) -> Answer<(bool, usize)> {
        Ok(match queue {
            Queue::Null(_) => (false, 0),
            Queue::Legacy(_) => (false, 1),
            Queue::Own(_) => (true, 0),
            Queue::OwnHandle(_) => (false, 2),
            Queue::Stream(place) => (false, self.streams[usize::from(place)].ok_or(none())?.handle),
        })
    }

    fn event(&self, event: u8) -> Answer<usize> {
        Ok(self.events[usize::from(event)].ok_or(none())?.handle)
    }

    pub(super) fn block(&self, block: u8) -> Answer<&Block> {
        self.blocks[usize::from(block)].as_ref().ok_or(none())
    }

    pub(super) fn stream(&self, place: u8) -> Answer<usize> {
        Ok(self.streams[usize::from(place)].ok_or(none())?.handle)
    }

    pub(super) fn has_stream(&self, place: u8, device: u8) -> bool {
        self.streams[usize::from(place)].is_some_and(|stream| stream.device == device)
    }

    fn address(&self, place: Place) -> Result<usize, Mistake> {
        self.at(place).map_err(Mistake::Undisturbed)
    }

    pub(super) fn at(&self, place: Place) -> Answer<usize> {
        Ok(self.block(place.block)?.address + usize::from(place.first) * CELL)
    }

    fn is_host(&self, place: Place) -> Answer<bool> {
        Ok(self.block(place.block)?.memory.is_host())
    }

    /// Ends everything that is left; errors are dropped, and told of to nobody.
    pub(super) fn tidy_up(&mut self) {
        (0..Program::MOST).for_each(|hold| self.base.release(hold));
        if let Some(fate) = &mut self.fate {
            fate.cancel(self.base, NO_NEIGHBOUR);
        }
        // Errors of the program's last calls are told here, to the thread that runs programs.
        let _settled = self.base.settle();
        for device in 0..self.base.devices() {
            let _current = self.enter(device);
            for graph in &mut self.graphs {
                if let Some(graph) = graph.take_if(|graph| graph.device == device) {
                    let _ended = self.api.cuGraphExecDestroy(graph.executable);
                    let _ended = self.api.cuGraphDestroy(graph.graph);
                }
            }
            for stream in &mut self.streams {
                if let Some(stream) = stream.take_if(|stream| stream.device == device) {
                    let _ended = self.api.cuStreamDestroy_v2(stream.handle);
                }
            }
            if let Some(module) = self.asserting[usize::from(device)].take() {
                let _ended = self.api.cuModuleUnload(module);
            }
        }
        for event in &mut self.events {
            if let Some(event) = event.take() {
                let _ended = self.api.cuEventDestroy_v2(event.handle);
            }
        }
        let blocks: Vec<Block> = self.blocks.iter_mut().filter_map(Option::take).collect();
        for block in &blocks {
            let _freed = self.free(block);
        }
        let _settled = self.base.settle();
        // Whatever context the next program's calls on this thread mean they say.
        CURRENT.set(None);
    }
}
