//! What is let in, and what is left out since it would race.

use super::super::program::{CELLS, Memory, Op, Place, Program, Queue, What};
use super::Plan;

const STREAM: Queue = Queue::Stream(0);
const TO: Place = Place { block: 0, first: 0 };
const SOURCE: Place = Place { block: 1, first: 0 };
const OTHER: Place = Place { block: 2, first: 0 };

/// Whether a copy from this memory in a blocking stream is let in behind a kernel that writes its source in the default
/// one, with this between them.
fn is_let_in(memory: Memory, between: &[What], is_generic: bool) -> bool {
    let host = |block, memory| {
        let to = Place { block, first: 0 };
        [What::Allocate { block, device: 0, memory }, What::HostWrite { to, cells: CELLS, key: 7 }]
    };
    let mut ops = vec![What::MakeStream { stream: 0, device: 0, is_blocking: true }];
    ops.push(What::MakeEvent { event: 0, device: 0, is_timeless: true });
    ops.push(What::Allocate { block: 0, device: 0, memory: Memory::Device });
    ops.extend(host(1, memory).into_iter().chain(host(2, memory)));
    let on = Queue::Null(0);
    ops.push(What::Mix { to: SOURCE, from: OTHER, cells: CELLS, key: 2, on });
    ops.extend(between.iter().cloned());
    let copy = What::Copy { to: TO, from: SOURCE, cells: CELLS, on: STREAM, is_async: true, is_generic };
    ops.push(copy);
    let ops = ops.into_iter().map(|what| Op { thread: 0, what }).collect();
    let plan = Plan::new(&Program { ops }, 1);
    let (copy, others) = plan.steps.split_last().expect("there are some");
    assert!(others.iter().all(Option::is_some), "{others:?}");
    copy.is_some()
}

#[test]
fn a_copy_from_page_locked_memory_is_no_order_for_what_the_default_stream_writes_there() {
    for memory in [Memory::Pinned, Memory::Registered] {
        for is_generic in [false, true] {
            let is_let_in = |between: &[What]| is_let_in(memory, between, is_generic);
            assert!(!is_let_in(&[]));
            // Its stream has work behind the kernel.
            assert!(is_let_in(&[What::Hold { on: STREAM }]));
            assert!(is_let_in(&[What::Record { event: 0, on: Queue::Null(0) }, What::Await { event: 0, on: STREAM }]));
            assert!(is_let_in(&[What::SyncContext { device: 0 }]));
            // That a context waits for an event is nothing that the stream has to do.
            let record = What::Record { event: 0, on: Queue::Null(0) };
            assert!(!is_let_in(&[record, What::AwaitAll { event: 0, is_away: false }]));
        }
    }
}
