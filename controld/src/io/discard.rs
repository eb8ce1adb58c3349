//! Descriptors that peers have sent and nobody wanted, where the kernel could not refuse them
//! ([`passed`](crate::sys::passed)).
//!
//! Each may be of a file that takes as long to close as its sender wishes. So a few threads close them that do nothing
//! else, and end when there is nothing left. What hangs makes others of its kind wait, and nobody else.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;

/// Closings that may hang at a time.
const THREADS: usize = 16;

struct Unwanted {
    waiting: VecDeque<Vec<OwnedFd>>,
    threads: usize,
}

static UNWANTED: Mutex<Unwanted> = Mutex::new(Unwanted { waiting: VecDeque::new(), threads: 0 });

/// Closes these, on another thread.
pub(super) fn close(descriptors: Vec<OwnedFd>) {
    let mut unwanted = UNWANTED.lock();
    unwanted.waiting.push_back(descriptors);
    // Without a thread they wait for the next one.
    let may_start = unwanted.threads < THREADS;
    if may_start && std::thread::Builder::new().name("unwanted".to_owned()).spawn(work).is_ok() {
        unwanted.threads += 1;
    }
}

fn work() {
    while let Some(descriptors) = next() {
        drop(descriptors);
    }
}

fn next() -> Option<Vec<OwnedFd>> {
    let mut unwanted = UNWANTED.lock();
    let next = unwanted.waiting.pop_front();
    if next.is_none() {
        unwanted.threads -= 1;
    }
    next
}
