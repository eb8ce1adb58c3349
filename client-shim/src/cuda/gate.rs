//! The gate that every call of a program passes while recovery is on, so that the driver can be exchanged when nobody is
//! in it.
//!
//! Each thread has a seat, with a flag that it alone writes:
//!
//! | who passes | who closes |
//! |---|---|
//! | says that it is inside | says that the gate is closed |
//! | *nothing* | has the kernel put a barrier into every thread of the process (`membarrier`) |
//! | looks whether the gate is closed; if so, goes out again and waits | looks at all flags, and waits until none is set |
//! | at the end says that it is outside, and looks again: who waits for it is woken | |
//!
//! The barrier falls somewhere into each thread's steps. If it falls between saying and looking, or before, then the look
//! comes after the gate was closed and sees that; if it falls behind the look, then what was said is seen. So either sees
//! the other, though a passer has no barrier of its own, which would be what most of a call's price is. [`model`] goes
//! through all orders of the steps and of the stores behind them. Where the kernel has no such call, and for a thread that
//! is ending and has no seat, each passer has a barrier.
//!
//! One word says all that a call has to look at: [`healthy`] passes while it says nothing but that recovery is on. It has
//! a line of the cache to itself, since every call reads it and hardly anything writes it. A
//! thread that is inside already, because the driver called back, passes without being counted again, or it would wait
//! for itself. So does one that is in the driver for whoever has closed the gate ([`behind`]): a profiler has the driver
//! call back in whatever is called.
#![expect(unsafe_code, reason = "asks the kernel for barriers")]

mod closed;
#[cfg(test)]
mod model;
mod seats;
#[cfg(test)]
mod tests;

pub(crate) use closed::{Late, close};

use std::{
    cell::Cell,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence, fence},
    },
    time::{Duration, Instant},
};

use seats::{Seat, Where};

/// Calls pass the gate.
const ARMED: u32 = 1;
/// It is closed.
const CLOSED: u32 = 1 << 1;
/// Each passer needs a barrier.
const FENCED: u32 = 1 << 2;
/// There was a recovery: handles are translated, and there may be lost work to tell of. Or something else is to be looked at
/// at each call.
const CHANGED: u32 = 1 << 3;

#[derive(Debug)]
#[repr(align(64))]
struct Alone(AtomicU32);

impl std::ops::Deref for Alone {
    type Target = AtomicU32;

    #[inline(always)]
    fn deref(&self) -> &AtomicU32 {
        &self.0
    }
}

static STATE: Alone = Alone(AtomicU32::new(0));
/// How many are inside that have no seat.
static UNSEATED: AtomicUsize = AtomicUsize::new(0);
static CHANGES: Mutex<()> = Mutex::new(());
static WAKES: Condvar = Condvar::new();

fn changes() -> MutexGuard<'static, ()> {
    CHANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the call that a process needs before it.
const BARRIER: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers alone.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Calls pass the gate from now on.
pub(crate) fn arm() {
    let fenced = if membarrier(REGISTER) && membarrier(BARRIER) { 0 } else { FENCED };
    STATE.fetch_or(ARMED | fenced, Ordering::SeqCst);
}

/// They do no longer: this is a forked child.
pub(crate) fn disarm() {
    STATE.store(0, Ordering::SeqCst);
}

/// Does something in the driver for whoever has closed the gate, or closes it meanwhile: calls that the driver makes back
/// on this thread pass. It is outside.
pub(crate) fn behind<T>(passer: &Passer, work: impl FnOnce() -> T) -> T {
    struct Behind<'a>(&'a Passer);
    impl Drop for Behind<'_> {
        fn drop(&mut self) {
            self.0.is_inside.set(false);
            self.0.way.set(self.0.seat.get());
        }
    }
    passer.is_inside.set(true);
    passer.way.set(None);
    let _until_it_is_done = Behind(passer);
    work()
}

/// Whether calls pass the gate.
#[inline(always)]
pub(crate) fn is_armed() -> bool {
    STATE.load(Ordering::Relaxed) & ARMED != 0
}

/// Nothing is as it was before the first recovery. The gate is closed.
pub(crate) fn changed() {
    STATE.fetch_or(CHANGED, Ordering::SeqCst);
}

/// Nothing goes the short way any more: something is to be looked at before and after each call.
pub(crate) fn looks_at_each_call() {
    STATE.fetch_or(CHANGED, Ordering::SeqCst);
}

fn is_closed() -> bool {
    STATE.load(Ordering::SeqCst) & CLOSED != 0
}

/// What the gate knows of a thread. One that has not been here has zeros alone.
#[derive(Debug)]
pub(crate) struct Passer {
    seat: Cell<Option<&'static Seat>>,
    /// The same while it may be [`healthy`]: not [`behind`] the gate.
    way: Cell<Option<&'static Seat>>,
    /// It is inside, and went in without a seat or while the gate was not [`healthy`]; or it is [`behind`] the gate.
    is_inside: Cell<bool>,
}

impl Passer {
    /// A thread that has not been here.
    #[cfg(test)]
    pub(crate) const fn new() -> Self {
        Self { seat: Cell::new(None), way: Cell::new(None), is_inside: Cell::new(false) }
    }

    /// Whether this thread is inside already.
    #[inline(always)]
    pub(crate) fn is_inside(&self) -> bool {
        self.is_inside.get() || self.seat.get().is_some_and(Seat::is_inside)
    }

    /// Has a seat from now on.
    pub(crate) fn sit(&self) {
        if self.seat.get().is_none() {
            let seat = Some(Seat::take());
            self.seat.set(seat);
            // One that has come in without a seat goes out first.
            self.way.set(seat.filter(|_| !self.is_inside.get()));
        }
    }

    /// Gives its seat to another thread. It is outside.
    pub(crate) fn stand_up(&self) {
        self.way.set(None);
        if let Some(seat) = self.seat.take() {
            seat.leave();
        }
    }

    /// The number of its seat, from 1; 0 if it has none. No two threads have one at a time.
    #[inline(always)]
    pub(crate) fn seat(&self) -> u32 {
        self.seat.get().map_or(0, Seat::number)
    }
}

/// While it lives, this thread is inside, and nothing is translated.
#[derive(Debug)]
pub(crate) struct Healthy(&'static Seat);

impl Healthy {
    /// The number of the thread's seat.
    #[inline(always)]
    pub(crate) fn seat(&self) -> u32 {
        self.0.number()
    }

    /// Goes out without a look whether somebody waits for that. Whoever does so goes in by [`enter`] at once, or is in a
    /// child, and looks when it comes out of there, or finds the gate closed. So the few instructions that precede a
    /// call have none in which its arguments would have to be saved.
    #[inline(always)]
    pub(crate) fn withdraw(self) {
        self.0.say(Where::Outside);
        std::mem::forget(self);
    }
}

/// Goes in, if the gate is open, there was no recovery yet, and this thread has a seat and is outside. `compiles` says
/// whether it may be in the driver for as long as a compilation takes. Whoever finds that it must not go in
/// [withdraws](Healthy::withdraw).
#[inline(always)]
pub(crate) fn healthy(passer: &Passer, compiles: bool) -> Option<Healthy> {
    let seat = passer.way.get()?;
    if seat.is_inside() {
        return None;
    }
    seat.say(if compiles { Where::Compiling } else { Where::Inside });
    compiler_fence(Ordering::SeqCst);
    let pass = Healthy(seat);
    // Whoever is inside sees all that was done while the gate was closed.
    if STATE.load(Ordering::Acquire) == ARMED {
        return Some(pass);
    }
    pass.withdraw();
    None
}

impl Drop for Healthy {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.say(Where::Outside);
        compiler_fence(Ordering::SeqCst);
        if STATE.load(Ordering::Relaxed) & CLOSED != 0 {
            wake();
        }
    }
}

/// Somebody may wait for this thread to be outside.
#[cold]
fn wake() {
    let _locked = changes();
    WAKES.notify_all();
}

/// While it lives, this thread is inside.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    seat: Option<&'static Seat>,
    passer: &'a Passer,
}

/// Says that the thread is inside, or that it is not, before it looks at anything else.
fn say(seat: Option<&'static Seat>, is_inside: bool) {
    match seat {
        Some(seat) => {
            seat.say(if is_inside { Where::Inside } else { Where::Outside });
            fence(Ordering::SeqCst);
        }
        None if is_inside => {
            UNSEATED.fetch_add(1, Ordering::SeqCst);
        }
        None => {
            UNSEATED.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Goes in; waits while the gate is closed, for `patience` at most. `None` if it stays closed.
pub(crate) fn enter(passer: &Passer, patience: Duration) -> Option<Pass<'_>> {
    let seat = passer.seat.get();
    say(seat, true);
    if is_closed() {
        enter_later(seat, patience)?;
    }
    passer.is_inside.set(true);
    Some(Pass { seat, passer })
}

#[cold]
fn enter_later(seat: Option<&'static Seat>, patience: Duration) -> Option<()> {
    let deadline = Instant::now() + patience;
    let mut guard = changes();
    loop {
        // Given up under the lock, so that whoever waits for the flags does not miss it.
        say(seat, false);
        WAKES.notify_all();
        while is_closed() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            guard = WAKES.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        say(seat, true);
        if !is_closed() {
            return Some(());
        }
    }
}

impl Pass<'_> {
    /// It is in the driver for as long as a compilation takes, from now on. Of a thread without a seat nobody knows.
    pub(crate) fn compiles(&self) {
        if let Some(seat) = self.seat {
            seat.say(Where::Compiling);
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.passer.is_inside.set(false);
        self.passer.way.set(self.passer.seat.get());
        say(self.seat, false);
        if is_closed() {
            wake();
        }
    }
}
