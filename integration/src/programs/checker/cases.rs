//! Programs that have shown a mistake, each by name. None may show it again.

mod threads;

use super::program::{CELLS, Memory, Node, Op, Place, Program, Queue, What, Wrong};

/// A program that has shown a mistake.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The mistake.
    pub(super) name: &'static str,
    /// The program.
    pub(super) program: Program,
}

type Row = (&'static str, fn() -> Program);

/// What a program has shown, and the program.
const TABLE: &[Row] = &[
    ("a wait of one thread completes work of another one's default stream", threads::own_streams),
    ("an event that was destroyed stands for another one of its handle", event_handle),
    ("a wait for another context completes work of the current one", other_context),
    ("a stream keeps the context of the one that had its handle", stream_handle),
    ("a thread that comes late finds an event of lost work complete", threads::late_consumer),
    ("the end of an event takes the one telling", told_by_end_of_event),
    ("a free takes the one telling", told_by_free),
    ("the end of a stream takes the one telling", told_by_end_of_stream),
    ("a question about a pointer takes the one telling", told_by_question),
    ("a constant that the device has copied is reset in silence", constant_of_device),
    ("a constant that was copied from pinned memory is reset in silence", constant_of_pinned),
    ("bytes that a kernel has written over a text are reset in silence", text),
    ("host memory that a lost copy would have written is not in doubt", host_in_doubt),
    ("a clean recovery clears what is in doubt", doubt_is_kept),
    ("what comes behind a fault comes in another order without it", behind_a_fault),
    ("what one device has done is lost with the other one's context", one_device_after_the_other),
    ("what was lost and told is lost again with another device's context", told_before),
    ("a thread is not told of what the one that has begun it was not told of", threads::begun_by_untold),
    ("a thread of the checker's own is told in the place of a program's", threads::told_elsewhere),
    ("a graph whose kernels have ended with their context is in a recovery's way", graph_of_reset),
    ("the end of a thread that has given work is a fault of its own", threads::ended_at_work),
    ("an event has a time when it comes where it was recorded before", time_of_before),
];

/// All of them.
pub(super) fn all() -> Vec<Case> {
    TABLE.iter().map(|(name, program)| Case { name, program: program() }).collect()
}

const A: Queue = Queue::Stream(0);
const B: Queue = Queue::Stream(1);

fn program(ops: impl IntoIterator<Item = (u8, What)>) -> Program {
    Program { ops: ops.into_iter().map(|(thread, what)| Op { thread, what }).collect() }
}

fn all_of(block: u8) -> Place {
    Place { block, first: 0 }
}

fn stream(stream: u8, device: u8) -> (u8, What) {
    (0, What::MakeStream { stream, device, is_blocking: false })
}

fn set(block: u8, device: u8) -> (u8, What) {
    let what = What::Set { to: all_of(block), cells: CELLS, key: 7, on: Queue::Null(device), is_async: false };
    (0, what)
}

/// Memory of this kind with something in it.
fn block(block: u8, device: u8, memory: Memory) -> [(u8, What); 2] {
    let first = What::Allocate { block, device, memory };
    let filled = if memory.is_host() {
        (0, What::HostWrite { to: all_of(block), cells: CELLS, key: 7 })
    } else {
        set(block, device)
    };
    [(0, first), filled]
}

/// Two blocks of a device, known to all threads to be there.
fn two_blocks(device: u8) -> Vec<(u8, What)> {
    let mut ops = [block(0, device, Memory::Device), block(1, device, Memory::Device)].concat();
    ops.push((0, What::SyncContext { device }));
    ops.extend((1..4).map(|to| (0, What::HandOver { to })));
    ops
}

/// Work on the first block behind a kernel that takes long, by a thread.
fn busy(thread: u8, on: Queue) -> [(u8, What); 2] {
    let mix = What::Mix { to: all_of(0), from: all_of(1), cells: CELLS, key: 3, on };
    [(thread, What::Hold { on }), (thread, mix)]
}

fn neighbour(device: u8) -> (u8, What) {
    (0, What::Neighbour { device, code: 719 })
}

/// A thread waits for a queue, and reads the first block.
fn look(thread: u8, on: Queue, device: u8) -> [(u8, What); 2] {
    let read = What::Read { from: all_of(0), cells: CELLS, on: Queue::Null(device) };
    [(thread, What::SyncStream { on }), (thread, read)]
}

fn event_handle() -> Program {
    let mut ops = two_blocks(0);
    ops.extend([stream(0, 0), (0, What::MakeEvent { event: 0, device: 0, is_timeless: false })]);
    ops.extend(busy(0, A));
    ops.extend([
        (0, What::Record { event: 0, on: A }),
        (0, What::EndEvent { event: 0 }),
        (0, What::MakeEvent { event: 0, device: 0, is_timeless: false }),
        (0, What::SyncEvent { event: 0 }),
        neighbour(0),
    ]);
    ops.extend(look(0, A, 0));
    program(ops)
}

fn other_context() -> Program {
    let mut ops = two_blocks(0);
    ops.push(stream(0, 0));
    ops.extend(busy(0, A));
    ops.extend([(0, What::SyncOther { device: 1 }), neighbour(0)]);
    ops.extend(look(0, A, 0));
    program(ops)
}

fn stream_handle() -> Program {
    let mut ops = two_blocks(1);
    let on_first = What::Hold { on: A };
    ops.extend([
        stream(0, 0),
        (0, on_first),
        (0, What::SyncStream { on: A }),
        (0, What::EndStream { stream: 0 }),
        stream(0, 1),
    ]);
    ops.extend(busy(0, A));
    ops.extend([(0, What::SyncContext { device: 0 }), neighbour(1)]);
    ops.extend(look(0, A, 1));
    program(ops)
}

fn told_by(last: What, before: Vec<(u8, What)>) -> Program {
    let mut ops = two_blocks(0);
    ops.push(stream(0, 0));
    ops.extend(before);
    ops.extend(busy(0, A));
    ops.extend([neighbour(0), (0, last)]);
    ops.extend(look(0, A, 0));
    program(ops)
}

fn told_by_end_of_event() -> Program {
    told_by(What::EndEvent { event: 0 }, vec![(0, What::MakeEvent { event: 0, device: 0, is_timeless: false })])
}

fn told_by_free() -> Program {
    told_by(What::Free { block: 2 }, block(2, 0, Memory::Pinned).to_vec())
}

fn told_by_end_of_stream() -> Program {
    told_by(What::EndStream { stream: 1 }, vec![stream(1, 0)])
}

fn told_by_question() -> Program {
    // Whoever recovers is another one: a question alone does not find a context dead.
    let mut program = told_by(What::AskPointer { block: 1 }, vec![]);
    let at = program.ops.iter().position(|op| matches!(op.what, What::AskPointer { .. })).unwrap_or(0);
    program.ops.insert(at, Op { thread: 1, what: What::SyncContext { device: 0 } });
    program
}

/// Something that is not a copy from pageable memory has written a constant, and is done.
fn module(memory: Memory, write: What, more: Vec<(u8, What)>) -> Program {
    let mut ops = two_blocks(0);
    ops.push(stream(0, 0));
    ops.extend(more);
    ops.push((0, What::Allocate { block: 2, device: 0, memory }));
    ops.extend([(0, What::SyncContext { device: 0 }), (0, write), (0, What::SyncContext { device: 0 }), neighbour(0)]);
    ops.push((0, What::Read { from: all_of(2), cells: CELLS, on: Queue::Null(0) }));
    program(ops)
}

fn copy_to_module(from: u8) -> What {
    What::Copy { to: all_of(2), from: all_of(from), cells: CELLS, on: A, is_async: true, is_generic: false }
}

fn constant_of_device() -> Program {
    module(Memory::Constant, copy_to_module(1), vec![])
}

fn constant_of_pinned() -> Program {
    module(Memory::Constant, copy_to_module(3), block(3, 0, Memory::Pinned).to_vec())
}

fn text() -> Program {
    let mix = What::Mix { to: all_of(2), from: all_of(1), cells: CELLS, key: 5, on: A };
    module(Memory::Text, mix, vec![])
}

/// A copy to pinned memory is lost.
fn lost_copy() -> Vec<(u8, What)> {
    let mut ops = two_blocks(0);
    ops.push(stream(0, 0));
    ops.extend(block(2, 0, Memory::Pinned));
    ops.extend([
        (0, What::Hold { on: A }),
        (0, What::Copy { to: all_of(2), from: all_of(1), cells: CELLS, on: A, is_async: true, is_generic: false }),
        (0, What::Mix { to: all_of(0), from: all_of(1), cells: CELLS, key: 9, on: A }),
        neighbour(0),
        (0, What::SyncStream { on: A }),
    ]);
    ops
}

fn host_in_doubt() -> Program {
    let mut ops = lost_copy();
    ops.push((0, What::HostRead { from: all_of(2), cells: CELLS }));
    program(ops)
}

fn doubt_is_kept() -> Program {
    let mut ops = lost_copy();
    ops.extend([
        (0, What::SyncContext { device: 0 }),
        neighbour(0),
        (0, What::SyncContext { device: 0 }),
        (0, What::Read { from: all_of(0), cells: CELLS, on: Queue::Null(0) }),
    ]);
    program(ops)
}

fn behind_a_fault() -> Program {
    let mut ops = two_blocks(0);
    ops.extend(busy(0, Queue::OwnHandle(0)));
    ops.push((0, What::Fault { wrong: Wrong::Assertion, on: Queue::Null(0) }));
    let (to, from, on) = (all_of(0), all_of(1), Queue::Own(0));
    ops.push((2, What::Copy { to, from, cells: CELLS, on, is_async: false, is_generic: false }));
    ops.push((0, What::ReadAll));
    program(ops)
}

fn one_device_after_the_other() -> Program {
    let mut ops = two_blocks(0);
    let on = Queue::Legacy(0);
    ops.push((0, What::Hold { on }));
    ops.push((0, What::Set { to: all_of(1), cells: CELLS, key: 9, on, is_async: true }));
    ops.push(neighbour(0));
    ops.push((0, What::Read { from: all_of(1), cells: CELLS, on: Queue::Null(0) }));
    ops.push(neighbour(1));
    let (to, from, on) = (all_of(0), all_of(1), Queue::Null(0));
    ops.push((2, What::Copy { to, from, cells: CELLS, on, is_async: false, is_generic: false }));
    ops.push((0, What::ReadAll));
    program(ops)
}

/// The first device's fault takes nothing from the second one, which copies by then what an earlier fault has cost it.
fn told_before() -> Program {
    let mut ops = two_blocks(1);
    let on = Queue::Legacy(1);
    ops.push((0, What::Hold { on }));
    ops.push((0, What::Set { to: all_of(1), cells: CELLS, key: 9, on, is_async: true }));
    ops.push(neighbour(1));
    ops.push((0, What::SyncStream { on }));
    let (to, from) = (all_of(0), all_of(1));
    ops.push((0, What::Copy { to, from, cells: CELLS, on, is_async: true, is_generic: false }));
    ops.push(neighbour(0));
    ops.push((0, What::ReadAll));
    program(ops)
}

/// The other device's fault is met by the new context.
fn graph_of_reset() -> Program {
    let mut ops = two_blocks(0);
    let mix = Node::Mix { to: all_of(0), from: all_of(1), cells: CELLS, key: 3 };
    let graph = What::MakeGraph { graph: 0, stream: 0, is_captured: true, nodes: vec![mix] };
    ops.extend([stream(0, 0), (0, graph), neighbour(1), (0, What::Reset { device: 0 })]);
    program(ops)
}

/// It was recorded in one stream, and then in another one, which does not come so far.
fn time_of_before() -> Program {
    let mut ops = two_blocks(0);
    ops.extend([
        stream(0, 0),
        stream(1, 0),
        (0, What::MakeEvent { event: 0, device: 0, is_timeless: false }),
        (0, What::Hold { on: A }),
        (0, What::Record { event: 0, on: A }),
    ]);
    ops.extend(busy(0, B));
    ops.extend([
        (0, What::Record { event: 0, on: B }),
        (0, What::SyncStream { on: A }),
        (0, What::AskTime { from: 0, to: 0 }),
        neighbour(0),
        (0, What::ReadAll),
    ]);
    program(ops)
}

#[cfg(test)]
mod tests;
