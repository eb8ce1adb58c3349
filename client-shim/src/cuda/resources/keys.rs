//! The keys by which a copy has data in each thread, and what is done with that data when a thread ends.
//!
//! A thread that ends takes the destructor's address out of the C library's table and calls it, and may come to that when
//! the copy has just been unloaded. So the C library has addresses of this library's, which look whether the copy lives.
//!
//! The destructor of a copy that is left for another one, that has answered that its context is dead, or of which the daemon says
//! that its server is spoilt or gone, must not run: where the thread had a default stream of its own it asks that server about what is unfinished there, gets nothing,
//! and writes that down with data that the thread has no more, which ends the process by signal 11 (seen once with 580.159.04
//! on an H100, the calls being those). The driver makes its keys in `cuInit`, before which the copy that the program has loaded
//! itself is led, too.

use std::{
    ffi::{c_int, c_void},
    sync::{PoisonError, RwLock},
};

use super::{Lead, RESOURCES, locked};
use crate::process::glibc;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// Keys with a destructor that a copy may have; the real driver has 3. The data of further ones goes with the heap.
const MOST: usize = 16;

/// A copy's keys.
#[derive(Debug)]
pub(super) struct Keys {
    /// Each with the number of its destructor, if it has one here.
    known: Vec<(libc::pthread_key_t, Option<usize>)>,
}

/// By number. Read-locked while one is called.
pub(super) type Destructors = RwLock<[Option<Destructor>; MOST]>;

impl Keys {
    pub(super) const fn new() -> Self {
        Self { known: Vec::new() }
    }
}

/// Of a thread that ends: the destructor of this number.
unsafe extern "C" fn destroy<const OWNER: usize, const NUMBER: usize>(data: *mut c_void) {
    if RESOURCES[OWNER].is_of_no_use() {
        return;
    }
    let destructors = RESOURCES[OWNER].destructors.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(destructor) = destructors[NUMBER] {
        // SAFETY: the copy lives as long as its destructors stand there, and has asked for this.
        unsafe { destructor(data) };
    }
}

macro_rules! numbered {
    ($owner:ident: $($number:literal)+) => {
        [$(destroy::<$owner, $number>),+]
    };
}

unsafe extern "C" fn create<const OWNER: usize>(
    place: *mut libc::pthread_key_t,
    destructor: Option<Destructor>,
) -> c_int {
    const { assert!(MOST == 16) };
    let ours: [Destructor; MOST] = numbered!(OWNER: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    let mut keys = locked(&RESOURCES[OWNER].keys);
    let number = destructor.and_then(|destructor| {
        let mut destructors = RESOURCES[OWNER].destructors.write().unwrap_or_else(PoisonError::into_inner);
        let free = destructors.iter().position(Option::is_none)?;
        destructors[free] = Some(destructor);
        Some(free)
    });
    // SAFETY: as the caller asks, with a function of this library, which is never unloaded.
    let failed = unsafe { glibc::pthread_key_create(place, number.map(|number| ours[number])) };
    if failed == 0 {
        // SAFETY: the key was written there.
        keys.known.push((unsafe { place.read() }, number));
    } else {
        forget(OWNER, number);
    }
    failed
}

/// The destructor of this number is called no more.
fn forget(owner: usize, number: Option<usize>) {
    if let Some(number) = number {
        RESOURCES[owner].destructors.write().unwrap_or_else(PoisonError::into_inner)[number] = None;
    }
}

unsafe extern "C" fn delete_one<const OWNER: usize>(key: libc::pthread_key_t) -> c_int {
    let mut keys = locked(&RESOURCES[OWNER].keys);
    let at = keys.known.iter().position(|(known, _)| *known == key);
    // SAFETY: as the caller asks.
    let failed = unsafe { glibc::pthread_key_delete(key) };
    if let Some(at) = at {
        let (_, number) = keys.known.swap_remove(at);
        forget(OWNER, number);
    }
    failed
}

/// Deletes all keys of a copy. When it returns no thread is in a destructor, and none comes there.
pub(super) fn delete(owner: usize) {
    for (key, number) in locked(&RESOURCES[owner].keys).known.drain(..) {
        // SAFETY: the copy has made it and not deleted it.
        unsafe { glibc::pthread_key_delete(key) };
        forget(owner, number);
    }
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> [Lead; 2] {
    [
        (c"pthread_key_create", create::<OWNER> as *const c_void),
        (c"pthread_key_delete", delete_one::<OWNER> as *const c_void),
    ]
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::c_void,
        ptr,
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::{create, delete_one};
    use crate::cuda::resources::Owner;

    /// A place that no other test takes.
    const PLACE: usize = 5;
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn counts(_data: *mut c_void) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn a_thread_that_ends_has_nothing_done_in_a_copy_whose_server_is_spoilt() {
        let mut key = 0;
        // SAFETY: there is room for the key, and the destructor is a function.
        assert_eq!(unsafe { create::<PLACE>(&raw mut key, Some(counts)) }, 0);
        let ends = |is_doomed| {
            Owner(PLACE).is_doomed(is_doomed);
            let before = DESTROYED.load(Ordering::SeqCst);
            let ended = thread::spawn(move || {
                let data = ptr::from_ref(&DESTROYED).cast::<c_void>();
                // SAFETY: the key was just made.
                unsafe { libc::pthread_setspecific(key, data) }
            });
            assert_eq!(ended.join().ok(), Some(0));
            DESTROYED.load(Ordering::SeqCst) - before
        };
        assert_eq!([false, true, false].map(ends), [1, 0, 1]);
        // SAFETY: as above.
        assert_eq!(unsafe { delete_one::<PLACE>(key) }, 0);
    }
}
