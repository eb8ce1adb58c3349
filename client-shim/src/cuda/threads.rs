//! What each thread has in the driver: its stack of contexts, its mode of captures, and what it was told.
//!
//! A copy of the driver knows nothing of the stacks and modes that the one before it had. So they are noted here, contexts
//! by name, and given to the new copy when a thread comes in again.
#![expect(unsafe_code, reason = "calls the driver, and finds what is the thread's own without the loader")]

use std::cell::{Cell, RefCell};

use super::{descent::Descent, gate::Passer, names};
use crate::{
    cuda::types::{CUcontext, CUstreamCaptureMode},
    process::birth,
};

/// What is known of a thread, in one place: finding it is what costs in a library that is loaded at run time. It begins
/// with zeros.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Here {
    /// To the gate.
    pub(crate) passer: Passer,
    /// The current context by name, 0 for none.
    current: Cell<usize>,
    /// In which copy of the driver it has been last: that one's number and 1, 0 for none.
    copy: Cell<u64>,
    /// When it began, in ticks of the kernel; 0 for one that was in the first copy, which was before any recovery.
    born: Cell<u64>,
    /// Up to which recovery it was told of lost work.
    told: Cell<u64>,
    /// Which unheard record was the last one when it was.
    heard: Cell<u64>,
}

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, in which every thread begins.
const GLOBAL: CUstreamCaptureMode = 0;

/// As many bytes as there are at `mps_shim_here`.
const SIZE: usize = 64;
const _: () = assert!(size_of::<Here>() <= SIZE && align_of::<Here>() <= SIZE);

thread_local! {
    /// Of whom it comes, if that is known: of those alone that had begun, or have begun others, since work was lost.
    static DESCENT: Cell<Option<Descent>> = const { Cell::new(None) };
    /// Its end is the thread's.
    static SEATED: Seated = const { Seated };
    /// What the program has exchanged its mode of captures for.
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(GLOBAL) };
    /// Contexts by name, the current one last.
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

std::arch::global_asm!(
    ".pushsection .tbss.mps_shim_here,\"awT\",@nobits",
    ".globl mps_shim_here",
    ".hidden mps_shim_here",
    ".type mps_shim_here, @object",
    ".size mps_shim_here, {size}",
    ".balign {size}",
    "mps_shim_here:",
    ".zero {size}",
    ".popsection",
    size = const SIZE,
);

/// Where this thread's is. A library that is preloaded may have a line of the cache at a place that the loader fixes for
/// all threads, which is found by two instructions; of the compiler's own variables the loader is asked each time.
#[inline(always)]
fn found() -> *const Here {
    let here: *const Here;
    // SAFETY: reads where the thread's own variables are, and how far from there this one is.
    unsafe {
        std::arch::asm!(
            "mov {here}, qword ptr fs:[0]",
            "add {here}, qword ptr [rip + mps_shim_here@GOTTPOFF]",
            here = out(reg) here,
            options(pure, readonly, nostack)
        );
    }
    here
}

/// A thread that has a seat at the gate, and gives it back at its end.
struct Seated;

impl Drop for Seated {
    fn drop(&mut self) {
        here(|here| here.passer.stand_up());
    }
}

/// What is known of this thread.
#[inline(always)]
pub(crate) fn here<T>(work: impl FnOnce(&Here) -> T) -> T {
    work(own())
}

/// The same. No other thread can be given it.
#[inline(always)]
pub(crate) fn own() -> &'static Here {
    // SAFETY: it lives as long as its thread, and none of its fields may be shared with another one; zeros, with which it
    // begins, are no references and the numbers that its fields begin with.
    unsafe { &*found() }
}

/// Works on the stack. A thread that is ending has none.
fn with<T: Default>(work: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    let changed = STACK.try_with(|stack| {
        let mut stack = stack.try_borrow_mut().ok()?;
        let result = work(&mut stack);
        here(|here| here.current.set(stack.last().copied().unwrap_or(0)));
        Some(result)
    });
    changed.ok().flatten().unwrap_or_default()
}

/// A context, by its handle, was made current in place of the one that is.
pub(crate) fn set(context: usize) {
    let name = names::name_of(context);
    with(|stack| {
        stack.pop();
        stack.extend((name != 0).then_some(name));
    });
}

/// A context was put on top.
pub(crate) fn push(context: usize) {
    let name = names::name_of(context);
    with(|stack| stack.push(name));
}

/// The top was taken off.
pub(crate) fn pop() {
    with(|stack| stack.truncate(stack.len().saturating_sub(1)));
}

/// A context was destroyed: where it is current it is taken off.
pub(crate) fn destroyed(context: usize) {
    let name = names::name_of(context);
    with(|stack| {
        if stack.last() == Some(&name) {
            stack.pop();
        }
    });
}

/// This thread's calls are allowed beside captures as this mode says, from now on.
pub(crate) fn set_capture_mode(mode: CUstreamCaptureMode) {
    MODE.set(mode);
}

impl Here {
    /// The current context by name, 0 if there is none.
    pub(crate) fn current(&self) -> usize {
        self.current.get()
    }

    /// Brings this thread to the copy of this number: it has its mode and its stack there.
    pub(crate) fn arrive(&self, generation: u64) {
        let before = self.copy.replace(generation + 1);
        if before == generation + 1 {
            return;
        }
        if before == 0 {
            // One that is ending cannot give a seat back any more.
            if SEATED.try_with(|_| ()).is_ok() {
                self.passer.sit();
            }
            if generation > 0 {
                self.born.set(birth::of_this_thread());
            }
            return;
        }
        let mut mode = MODE.get();
        if mode != GLOBAL {
            // The copy had none of this thread's.
            let _global = driver!(stream::cuThreadExchangeStreamCaptureMode(&raw mut mode));
        }
        // A context that has ended is left out. NVIDIA's driver would take its handle, which is of a dead copy, for a context of
        // its own, and end the program when the thread ends (580.159.04).
        let living = with(|stack| stack.clone()).into_iter().filter_map(names::made_again);
        for (depth, context) in living.map(CUcontext).enumerate() {
            // A context that cannot be made current is missed by the call that follows, which says so.
            let _refused = if depth == 0 {
                driver!(context::cuCtxSetCurrent(context))
            } else {
                driver!(context::cuCtxPushCurrent_v2(context))
            };
        }
    }

    /// When it began, in ticks of the kernel.
    pub(crate) fn born(&self) -> u64 {
        self.born.get()
    }

    /// Up to which recovery it was told of lost work.
    pub(crate) fn told(&self) -> u64 {
        self.told.get()
    }

    /// Which unheard record of an event was the last one when it was told.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.get()
    }

    /// This thread was told of the recovery of this number, when this unheard record was the last one.
    pub(crate) fn tell(&self, generation: u64, heard: u64) {
        self.told.set(self.told.get().max(generation));
        self.heard.set(self.heard.get().max(heard));
    }

    /// Of whom it comes.
    pub(crate) fn descent(&self) -> Option<Descent> {
        DESCENT.get()
    }

    /// It comes of a thread that has said so.
    pub(crate) fn comes_of(&self, descent: Descent) {
        DESCENT.set(Some(descent));
    }

    /// It is the driver's: host functions of all threads run there, so whoever has begun it says nothing.
    pub(crate) fn comes_of_nobody(&self) {
        DESCENT.set(None);
    }

    /// What the thread has that it begins now, the last recovery that has lost work being this one.
    pub(crate) fn begins_another(&self, last: u64) -> Descent {
        let (own, of_child) = Descent::of_child(DESCENT.get(), self.told.get(), last);
        DESCENT.set(Some(own));
        of_child
    }
}
