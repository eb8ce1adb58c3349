//! A copy's threads: those that it has made and nobody has joined.

mod ending;

use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    ptr,
    sync::{Arc, Mutex},
};

pub(crate) use ending::NotEnded;
pub(super) use ending::end;

use super::{Lead, RESOURCES, locked};
use crate::{
    cuda::threads::{Here, here},
    process::glibc,
};
use ending::SIGNAL;

/// Of a thread that has not begun.
const NOT_BEGUN: i32 = -1;

/// What is known of a thread. It can be joined until it has ended, also when the copy has detached it: a thread that
/// leaves in a handler is joined by us, since nobody else would give its stack back.
#[derive(Debug)]
struct State {
    /// Negative before it has begun, 0 once it has ended by itself.
    number: i32,
    /// The copy will not join it.
    is_detached: bool,
    /// It has left in a handler: its number may be another thread's by now, and we join it.
    has_left: bool,
}

/// One thread.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    handle: libc::pthread_t,
    state: Arc<Mutex<State>>,
}

/// What a new thread is to do.
struct Start {
    function: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
    state: Arc<Mutex<State>>,
}

fn own_number() -> i32 {
    // SAFETY: asks for this thread's number.
    i32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0)
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: made by `create` from a box, for this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // The program may have blocked all signals where it has called the driver.
    // SAFETY: a set with one signal; on Linux this is of the calling thread alone.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, ptr::from_ref(&the_signal()), ptr::null_mut()) };
    locked(&start.state).number = own_number();
    // Host functions of all threads run here: it knows no more than a thread of which nobody knows who has begun it.
    here(Here::comes_of_nobody);
    let result = (start.function)(start.argument);
    let mut state = locked(&start.state);
    state.number = 0;
    if state.is_detached {
        // SAFETY: asks for this thread's handle.
        let own = unsafe { libc::pthread_self() };
        // SAFETY: this thread, which nobody will join.
        unsafe { glibc::pthread_detach(own) };
    }
    drop(state);
    drop(start);
    result
}

unsafe extern "C" fn create<const OWNER: usize>(
    place: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    function: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let mut detached = libc::PTHREAD_CREATE_JOINABLE;
    if !attributes.is_null() {
        // SAFETY: the caller's attributes.
        unsafe { glibc::pthread_attr_getdetachstate(attributes, &raw mut detached) };
    }
    let is_detached = detached != libc::PTHREAD_CREATE_JOINABLE;
    let state = Arc::new(Mutex::new(State { number: NOT_BEGUN, is_detached, has_left: false }));
    let start = Box::into_raw(Box::new(Start { function, argument, state: Arc::clone(&state) }));
    let mut threads = locked(&RESOURCES[OWNER].threads);
    if is_detached {
        // SAFETY: the caller's attributes, which are as they were when this function ends.
        unsafe { libc::pthread_attr_setdetachstate(attributes.cast_mut(), libc::PTHREAD_CREATE_JOINABLE) };
    }
    // SAFETY: as the caller asks; the argument is what `begin` expects, and is given away.
    let failed = unsafe { glibc::pthread_create(place, attributes, begin, start.cast()) };
    if is_detached {
        // SAFETY: as above.
        unsafe { libc::pthread_attr_setdetachstate(attributes.cast_mut(), detached) };
    }
    if failed == 0 {
        threads.retain(|of| !of.has_gone());
        // SAFETY: the handle was written there.
        threads.push(Thread { handle: unsafe { place.read() }, state });
    } else {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(start) });
    }
    failed
}

/// Whether the calling thread is one that this copy has made.
pub(super) fn is_in_one_of(owner: usize) -> bool {
    let own = own_number();
    let is_own = |of: &Thread| matches!(*locked(&of.state), State { number, has_left: false, .. } if number == own);
    locked(&RESOURCES[owner].threads).iter().any(is_own)
}

/// Ends the calling thread if this copy, which is dead, has made it: it holds nothing that the living need, since it has called
/// the C library by way of here. Whoever gives the copy back joins it ([`ending`]).
pub(super) fn leave_if_of(owner: usize) {
    // Our own handler must not end it while it holds a lock.
    let blocked = Blocked::begin();
    if is_in_one_of(owner) {
        let own = own_number();
        for of in locked(&RESOURCES[owner].threads).iter() {
            let mut state = locked(&of.state);
            state.has_left |= state.number == own;
        }
        // SAFETY: ends this thread.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    drop(blocked);
}

/// As long as this lives the signal for those that are to end does not come to this thread.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn begin() -> Self {
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a set with one signal, and room for the other; on Linux this is of the calling thread alone.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, ptr::from_ref(&the_signal()), before.as_mut_ptr()) };
        // SAFETY: zeros are a set, written to or not.
        Self(unsafe { before.assume_init() })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: what was there before.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// The set of [`SIGNAL`] alone.
fn the_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: writes the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: adds to a set.
    unsafe { libc::sigaddset(set.as_mut_ptr(), SIGNAL) };
    // SAFETY: it was written.
    unsafe { set.assume_init() }
}

impl Thread {
    /// Whether it has ended and nobody will join it.
    pub(super) fn has_gone(&self) -> bool {
        let state = locked(&self.state);
        state.number == 0 && state.is_detached
    }
}

unsafe extern "C" fn join<const OWNER: usize>(handle: libc::pthread_t, result: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller asks.
    let failed = unsafe { glibc::pthread_join(handle, result) };
    if failed == 0 {
        locked(&RESOURCES[OWNER].threads).retain(|of| of.handle != handle);
    }
    failed
}

unsafe extern "C" fn detach<const OWNER: usize>(handle: libc::pthread_t) -> c_int {
    let threads = locked(&RESOURCES[OWNER].threads);
    let known = threads.iter().find(|of| of.handle == handle && !locked(&of.state).is_detached);
    let Some(thread) = known else {
        // SAFETY: as the caller asks.
        return unsafe { glibc::pthread_detach(handle) };
    };
    let mut state = locked(&thread.state);
    state.is_detached = true;
    // SAFETY: as the caller asks.
    if state.number == 0 { unsafe { glibc::pthread_detach(handle) } } else { 0 }
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> [Lead; 3] {
    [
        (c"pthread_create", create::<OWNER> as *const c_void),
        (c"pthread_join", join::<OWNER> as *const c_void),
        (c"pthread_detach", detach::<OWNER> as *const c_void),
    ]
}
