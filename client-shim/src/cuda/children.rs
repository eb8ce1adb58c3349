//! Forked children have nothing of the driver.
//!
//! A child can use no driver that its parent has initialised, and has its files and mappings all the same. As long as it
//! lived the kernel would keep what a dead copy had on the GPU, its server would wait for the copy's end, and the socket
//! name that the next copy needs would be taken, so that a program with such children could not be recovered.
//!
//! So the child puts something else in the place of each, at once: a descriptor that is never ready, so that nobody who
//! believes that he has the number closes another file; plain memory, since a function of the driver's that runs at the
//! child's end may look there. As a child of a program with threads must, it asks the system for that and nobody else; the
//! locks of the lists are its own, since whoever forks takes them before.
#![expect(unsafe_code, reason = "descriptors and mappings are exchanged by number and address")]

use std::{
    cell::UnsafeCell,
    ffi::c_int,
    ptr,
    sync::{MutexGuard, Once},
};

use super::{
    belongings::{self, Living},
    resources::{self, All, Opened},
};
use crate::process::descriptors::identity_of;

/// What a thread holds that forks.
struct Held {
    mappings: MutexGuard<'static, All>,
    living: MutexGuard<'static, Living>,
    opened: Option<MutexGuard<'static, Opened>>,
    of_the_spare: Option<MutexGuard<'static, Opened>>,
}

/// Of the thread that forks now: it has the locks.
struct Place(UnsafeCell<Option<Held>>);

// SAFETY: only touched by the thread that has the locks.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(None));

/// Has children have nothing of the driver from now on.
pub(crate) fn have_nothing() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        // SAFETY: the handlers are functions of ours in a library that is never unloaded.
        let _without = unsafe { libc::pthread_atfork(Some(before), Some(in_the_parent), Some(in_a_child)) };
    });
}

extern "C" fn before() {
    // In this order everywhere.
    let (mappings, living) = (All::lock(), belongings::living());
    let held = Held { mappings, living, opened: resources::noted(), of_the_spare: resources::of_the_spare() };
    // SAFETY: this thread has the locks.
    unsafe { *PLACE.0.get() = Some(held) };
}

fn take() -> Option<Held> {
    // SAFETY: called by the thread that has the locks, or by its child.
    unsafe { (*PLACE.0.get()).take() }
}

extern "C" fn in_the_parent() {
    drop(take());
}

extern "C" fn in_a_child() {
    let Some(held) = take() else { return };
    // SAFETY: makes a descriptor.
    let silent = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    let exchange = |number: c_int, identity| {
        if identity_of(number) == Some(identity) {
            // SAFETY: the child's copy of a descriptor of the driver's.
            unsafe { libc::dup3(silent, number, libc::O_CLOEXEC) };
        }
    };
    held.living.all().for_each(|(number, identity)| exchange(number, identity));
    if held.living.is_in_an_interval() {
        held.opened.iter().flat_map(|of| of.iter()).for_each(|(number, identity)| exchange(*number, *identity));
    }
    held.of_the_spare.iter().flat_map(|of| of.iter()).for_each(|(number, identity)| exchange(*number, *identity));
    for (start, end) in held.mappings.all_files() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let place = ptr::with_exposed_provenance_mut(start);
        // SAFETY: what a copy has mapped itself, which is of no use to the child.
        unsafe { libc::mmap(place, end - start, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    }
    // SAFETY: made above.
    unsafe { libc::close(silent) };
}
