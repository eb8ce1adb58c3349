//! Calls that are forbidden while a stream is being captured, though they have nothing to do with it.
//!
//! By NVIDIA's documentation of `cuStreamBeginCapture` and `cuThreadExchangeStreamCaptureMode`: a thread's own mode and
//! the capture's say whether a potentially unsafe call is; it fails then, and the capture is broken. Which calls are
//! unsafe is documented for `cudaMalloc` and events' queries only; here they are those that allocate, free or wait.

use crate::abi::{In, Out, entry_points};
use crate::codes::{Code, Outcome};
use crate::driver::driver;
use std::cell::Cell;
use std::ffi::c_int;
use std::thread::{self, ThreadId};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, `…_THREAD_LOCAL`, `…_RELAXED`.
const GLOBAL: c_int = 0;
const THREAD_LOCAL: c_int = 1;
const RELAXED: c_int = 2;

thread_local! {
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

/// Who has begun a capture, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    mode: c_int,
    thread: ThreadId,
}

impl Begun {
    /// By this thread.
    pub(crate) fn new(mode: c_int) -> Self {
        Self { mode, thread: thread::current().id() }
    }

    /// Whether only another thread may end it.
    pub(super) fn is_anothers(self) -> bool {
        self.mode != RELAXED && self.thread != thread::current().id()
    }

    fn forbids(self) -> bool {
        let is_own = self.thread == thread::current().id();
        match MODE.get() {
            GLOBAL => self.mode == GLOBAL || (is_own && self.mode == THREAD_LOCAL),
            THREAD_LOCAL => is_own && self.mode != RELAXED,
            _ => false,
        }
    }
}

/// Before a potentially unsafe call: it is refused if a capture forbids it, which is broken then.
pub(crate) fn unsafe_call() -> Outcome {
    let mut tables = driver()?.tables();
    let mut forbidding =
        tables.graphs.captures.values_mut().filter(|capture| capture.begun.is_some_and(Begun::forbids)).peekable();
    if forbidding.peek().is_none() {
        return Ok(());
    }
    forbidding.for_each(|capture| capture.is_broken = true);
    Err(Code::STREAM_CAPTURE_UNSUPPORTED)
}

entry_points! {
    fn cuThreadExchangeStreamCaptureMode(mode: usize) {
        let wanted = In::<c_int>::placed(mode).get()?;
        if !(GLOBAL..=RELAXED).contains(&wanted) {
            return Err(Code::INVALID_VALUE);
        }
        Out::at(mode).put(MODE.replace(wanted))
    }
}
