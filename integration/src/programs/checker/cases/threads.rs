//! Cases in which it matters which thread does something: what it has heard of, who has begun it, and that it ends.

use super::{
    A, B, CELLS, Memory, Program, Queue, What, all_of, block, busy, look, neighbour, program, stream, two_blocks,
};

pub(super) fn own_streams() -> Program {
    let other = What::Read { from: all_of(1), cells: CELLS, on: Queue::Own(0) };
    let mut ops = two_blocks(0);
    ops.extend(busy(0, Queue::Own(0)));
    ops.extend([(1, other), neighbour(0)]);
    ops.extend(look(0, Queue::Own(0), 0));
    program(ops)
}

pub(super) fn late_consumer() -> Program {
    let mut ops = two_blocks(0);
    ops.extend([stream(0, 0), stream(1, 0), (0, What::MakeEvent { event: 0, device: 0, is_timeless: false })]);
    ops.extend(busy(0, A));
    ops.extend([
        (0, What::Record { event: 0, on: A }),
        neighbour(0),
        (0, What::SyncContext { device: 0 }),
        (1, What::Await { event: 0, on: B }),
    ]);
    ops.extend([
        (1, What::Copy { to: all_of(1), from: all_of(0), cells: CELLS, on: B, is_async: true, is_generic: false }),
        (1, What::SyncStream { on: B }),
        (1, What::Read { from: all_of(1), cells: CELLS, on: Queue::Null(0) }),
    ]);
    program(ops)
}

/// One thread is told and waits; another one, which has made no call since, begins a third.
pub(super) fn begun_by_untold() -> Program {
    let mut ops = two_blocks(0);
    let on = Queue::Legacy(0);
    ops.extend([
        (2, What::Hold { on }),
        (2, What::Set { to: all_of(1), cells: CELLS, key: 9, on, is_async: true }),
        neighbour(0),
        (2, What::SyncContext { device: 0 }),
        (1, What::Pause),
        (3, What::AskStream { on: Queue::Own(0) }),
        (3, What::ReadAll),
    ]);
    program(ops)
}

/// The thread that begins the late one has a neighbour put beside the device before.
pub(super) fn told_elsewhere() -> Program {
    let mut ops = two_blocks(0);
    let strike = What::Neighbour { device: 0, code: 700 };
    let mix = What::Mix { to: all_of(0), from: all_of(1), cells: CELLS, key: 3, on: Queue::Null(0) };
    ops.extend([
        (2, What::MakeStream { stream: 0, device: 0, is_blocking: true }),
        (0, What::Hold { on: A }),
        (1, mix),
        (1, strike.clone()),
        (0, What::AskStream { on: Queue::Null(0) }),
        (2, strike),
        (2, What::Pause),
        (3, What::ReadAll),
    ]);
    program(ops)
}

/// Seen on a GPU by another program, in place and not with a spare copy; not explained.
pub(super) fn ended_at_work() -> Program {
    let mut ops = [block(0, 0, Memory::Pinned), block(1, 0, Memory::Device)].concat();
    let mix = What::Mix { to: all_of(0), from: all_of(1), cells: CELLS, key: 3, on: Queue::Own(0) };
    ops.extend([
        (0, What::SyncContext { device: 0 }),
        (1, What::Hold { on: Queue::Own(0) }),
        (0, What::Neighbour { device: 0, code: 700 }),
        (0, What::SyncContext { device: 0 }),
        (3, mix),
        (3, What::Leave),
        (0, What::SyncContext { device: 0 }),
        (0, What::ReadAll),
    ]);
    program(ops)
}
