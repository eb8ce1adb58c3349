//! Random programs. An operation that the plan would leave out is replaced by another one, so that programs are dense.

use super::plan::Planner;
use super::program::{
    BLOCKS, CELLS, Copying, EVENTS, GRAPHS, LATE, Memory, Node, Op, Place, Program, Queue, STREAMS, THREADS, What,
    Wrong,
};
use super::random::Random;

/// Operations of a program, at least and at most.
const LENGTHS: [u8; 2] = [24, 120];
/// Of so many times each operation has its share.
const ALL: u8 = 144;
/// How often another operation is tried.
const TRIES: usize = 6;
/// Errors by which a neighbour's faults are seen.
const CODES: [u32; 3] = [700, 719, 716];
const WRONGS: [Wrong; 4] = [Wrong::OutOfBounds, Wrong::Trap, Wrong::Misaligned, Wrong::Assertion];

/// What kinds of faults there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) own: bool,
    pub(super) neighbours: bool,
}

/// Makes programs.
pub(super) struct Generator {
    random: Random,
    devices: u8,
    faults: Faults,
    /// The program has variables and constants: it is told of faults but for those that find it at rest.
    has_modules: bool,
    /// The program has threads' own default streams.
    has_own: bool,
    /// The program resets contexts, after which it has less to compare.
    has_resets: bool,
}

/// The program of a seed.
pub(super) fn program(seed: u64, devices: u8, faults: Faults) -> Program {
    let mut random = Random::new(seed);
    let (has_modules, has_own, has_resets) = (random.in_hundred(35), random.in_hundred(70), random.in_hundred(30));
    Generator { random, devices, faults, has_modules, has_own, has_resets }.program()
}

impl Generator {
    fn program(mut self) -> Program {
        let length = usize::from(LENGTHS[0] + self.random.below(LENGTHS[1] - LENGTHS[0]));
        let faults = if self.random.in_hundred(80) { 1 } else { 2 };
        let at: Vec<usize> =
            (0..faults).map(|_| length / 4 + usize::from(self.random.below(100)) * length * 7 / 1000).collect();
        // The late thread may begin behind the faults, by any other's doing.
        let late_from = if self.random.in_hundred(50) { at.iter().max().copied().unwrap_or(0) } else { 0 };
        let (mut planner, mut program) = (Planner::new(self.devices), Program::default());
        let (mut thread, mut has_late, mut has_left) = (0, false, false);
        let beginning = self.beginning();
        for op in beginning {
            if planner.add(&op).is_some() {
                program.ops.push(op);
            } else {
                planner = planned(&program, self.devices);
            }
        }
        for index in 0..length {
            if at.contains(&index) {
                // What a program at rest has in variables must be there, without a word, after a neighbour's fault.
                if self.has_modules && self.random.in_hundred(50) {
                    let all = [What::SyncContext { device: 0 }, What::SyncContext { device: 1 }, What::Rest];
                    for op in all.map(|what| Op { thread, what }) {
                        let mut trial = planner.clone();
                        if trial.add(&op).is_some() {
                            planner = trial;
                            program.ops.push(op);
                        }
                    }
                }
                let fault = self.fault(thread);
                planner.add(&fault);
                program.ops.push(fault);
            }
            for _ in 0..TRIES {
                if self.random.in_hundred(35) {
                    thread = self.random.below(if index < late_from || has_left { LATE } else { THREADS });
                }
                if thread == LATE && !has_late {
                    has_late = true;
                    program.ops.extend(self.parent(late_from).inspect(|op| drop(planner.add(op))));
                }
                let op = Op { thread, what: self.what() };
                let mut trial = planner.clone();
                if trial.add(&op).is_some() {
                    planner = trial;
                    if op.what == What::Leave {
                        (thread, has_left) = (0, true);
                    }
                    program.ops.push(op);
                    break;
                }
            }
        }
        for _ in 0..1 + self.random.below(2) {
            let thread = self.random.below(if has_left { LATE } else { THREADS });
            program.ops.push(Op { thread, what: What::ReadAll });
        }
        program.ops.truncate(Program::MOST);
        program
    }

    /// What the late thread's parent does right before, if it is to be another one than whose turn it is.
    fn parent(&mut self, late_from: usize) -> Option<Op> {
        let is_chosen = late_from > 0 && self.random.in_hundred(50);
        is_chosen.then(|| Op { thread: self.random.below(LATE), what: What::Pause })
    }

    /// Some of everything.
    fn beginning(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut push = |what| ops.push(Op { thread: 0, what });
        for stream in 0..1 + self.random.below(STREAMS - 1) {
            push(What::MakeStream { stream, device: self.device(), is_blocking: self.random.in_hundred(50) });
        }
        for event in 0..self.random.below(EVENTS) {
            push(What::MakeEvent { event, device: self.device(), is_timeless: self.random.in_hundred(40) });
        }
        for block in 0..3 + self.random.below(BLOCKS - 3) {
            let (device, memory) = (self.device(), self.memory());
            push(What::Allocate { block, device, memory });
            let to = Place { block, first: 0 };
            let key = self.key();
            if memory.is_host() {
                push(What::HostWrite { to, cells: CELLS, key });
            } else {
                push(What::Set { to, cells: CELLS, key, on: Queue::Null(device), is_async: false });
            }
        }
        push(What::SyncContext { device: 0 });
        push(What::SyncContext { device: 1 });
        (1..THREADS).for_each(|to| push(What::HandOver { to }));
        ops
    }

    fn device(&mut self) -> u8 {
        if self.random.in_hundred(75) { 0 } else { self.random.below(self.devices) }
    }

    fn memory(&mut self) -> Memory {
        let memory = Memory::ALL[usize::from(self.random.below(13))];
        if memory.is_of_module() && !self.has_modules || self.random.in_hundred(30) { Memory::Device } else { memory }
    }

    fn key(&mut self) -> u32 {
        u32::try_from(self.random.next() >> 40).unwrap_or(7)
    }

    fn queue(&mut self) -> Queue {
        let device = self.device();
        match self.random.below(10) {
            0 => Queue::Null(device),
            1 => Queue::Legacy(device),
            2 if self.has_own => Queue::Own(device),
            3 if self.has_own => Queue::OwnHandle(device),
            _ => Queue::Stream(self.random.below(STREAMS)),
        }
    }

    /// One that a call without a stream works on.
    fn default_queue(&mut self) -> Queue {
        let device = self.device();
        if self.has_own && self.random.in_hundred(50) { Queue::Own(device) } else { Queue::Null(device) }
    }

    fn place(&mut self, cells: u8) -> Place {
        Place { block: self.random.below(BLOCKS), first: self.random.below(CELLS + 1 - cells) }
    }

    fn event_or_none(&mut self) -> Option<u8> {
        self.random.in_hundred(40).then(|| self.random.below(EVENTS))
    }

    fn node(&mut self) -> Node {
        let cells = 1 + self.random.below(CELLS);
        let (to, from, key) = (self.place(cells), self.place(cells), self.key());
        match self.random.below(8) {
            0..4 => Node::Mix { to, from, cells, key },
            4 => Node::Set { to, cells, key },
            5 | 6 => Node::Copy { to, from, cells },
            _ => Node::Call { to, cells, key },
        }
    }

    fn fault(&mut self, thread: u8) -> Op {
        let Faults { own, neighbours } = self.faults;
        let is_own = own && (!neighbours || self.random.in_hundred(30));
        let what = if is_own {
            What::Fault { wrong: WRONGS[usize::from(self.random.below(4))], on: self.queue() }
        } else {
            What::Neighbour { device: self.device(), code: CODES[usize::from(self.random.below(3))] }
        };
        Op { thread, what }
    }

    fn what(&mut self) -> What {
        let cells = 1 + self.random.below(CELLS);
        let (to, from, key, on) = (self.place(cells), self.place(cells), self.key(), self.queue());
        let (event, stream, block) = (self.random.below(EVENTS), self.random.below(STREAMS), self.random.below(BLOCKS));
        let (graph, device) = (self.random.below(GRAPHS), self.device());
        match self.random.below(ALL) {
            0..3 => What::MakeStream { stream, device, is_blocking: self.random.in_hundred(50) },
            3 | 4 => What::EndStream { stream },
            5..8 => What::MakeEvent { event, device, is_timeless: self.random.in_hundred(40) },
            8..10 => What::EndEvent { event },
            10..15 => What::Record { event, on },
            15..19 => What::Await { event, on },
            19..22 => What::SyncEvent { event },
            22..25 => What::AskEvent { event },
            25..29 => What::Allocate { block, device, memory: self.memory() },
            29 => What::Free { block },
            30 => What::FreeInOrder { block, on },
            31 => What::AskPointer { block },
            32..35 => What::HostWrite { to, cells, key },
            35..38 => What::HostRead { from, cells },
            38..42 => What::Read { from, cells, on: self.default_queue() },
            42..53 => {
                let is_async = self.random.in_hundred(70);
                let on = if is_async { on } else { self.default_queue() };
                What::Copy { to, from, cells, on, is_async, is_generic: self.random.in_hundred(30) }
            }
            53..58 => {
                let is_async = self.random.in_hundred(70);
                let on = if is_async { on } else { self.default_queue() };
                What::Set { to, cells, key, on, is_async }
            }
            58..71 => What::Mix { to, from, cells, key, on },
            71..73 => What::Call { to, cells, key, on },
            73..78 => What::Hold { on },
            78 => What::Release { which: self.random.below(4) },
            79..82 => What::SyncStream { on },
            82..84 => What::AskStream { on },
            84 => What::SyncContext { device },
            85 => What::SyncOther { device },
            86..89 => {
                let is_captured = self.random.in_hundred(60);
                let nodes = (0..1 + self.random.below(4)).map(|_| self.node()).collect();
                What::MakeGraph { graph, stream, is_captured, nodes }
            }
            89 => What::UpdateGraph { graph, key },
            90..93 => What::LaunchGraph { graph, on },
            93 => What::EndGraph { graph },
            94..97 => What::HandOver { to: self.random.below(THREADS) },
            97 | 98 => What::Rest,
            99 => What::ReadAll,
            100..105 | 127..130 => {
                let (ended, begun) = (self.event_or_none(), self.event_or_none());
                What::MixBesides { to, from, cells, key, on, ended, begun, is_early: self.random.in_hundred(40) }
            }
            105..107 => What::RecordAll { event, is_away: self.random.in_hundred(30) },
            107..110 => What::AwaitAll { event, is_away: self.random.in_hundred(30) },
            110..112 if self.has_resets => What::Reset { device },
            // In its place the program has new memory more often, as behind a reset.
            110..112 => What::Allocate { block, device, memory: self.memory() },
            112 => What::Further { device },
            113..117 | 119..127 => {
                // The more it is, the more often it is left out.
                let copies =
                    (0..1 + self.random.below(2)).map(|_| Copying { to: self.place(1), from: self.place(1), cells: 1 });
                What::Batch { copies: copies.collect(), stream }
            }
            117 | 118 => What::PeerCopy { to, from, cells },
            142 | 143 => What::Leave,
            _ => {
                // Two that have both come are rare.
                let to = if self.random.in_hundred(50) { event } else { self.random.below(EVENTS) };
                What::AskTime { from: event, to }
            }
        }
    }
}

fn planned(program: &Program, devices: u8) -> Planner {
    let mut planner = Planner::new(devices);
    program.ops.iter().for_each(|op| drop(planner.add(op)));
    planner
}
