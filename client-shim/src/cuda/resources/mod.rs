//! What a loaded copy of the driver has of this process, known so that it can be given back when the copy is dead.
//!
//! A copy calls the C library for all that it takes, and these calls are led here ([`imports`]). So nothing of the dead
//! copy has to run, nor to be trusted, when it goes:
//!
//! | of a copy | while it lives | when it is dead |
//! |---|---|---|
//! | [`heap`] | from a heap of its own | the pages go, and no other copy gets the addresses |
//! | [`mappings`] | where the system puts them, noted | unmapped, but for what a name of the program's lies in |
//! | [`threads`] | noted | ended where they wait, and joined |
//! | [`descriptors`] | noted | cut off with the rest, and closed |
//! | [`keys`] of threads' own data | called by way of here | deleted: no destructor is called |
//! | [`exits`]: functions for the process's end | called then | forgotten |
//!
//! What a library that the driver loads has (the compiler of PTX) is not the copy's. The copy that the program has loaded
//! itself ran before it could be led, so it is never given back. Measured with 580.159.04 on an H100: see OBSERVED.
#![expect(unsafe_code, reason = "stands in the place of functions of the C library")]

mod descriptors;
mod exits;
mod heap;
mod keys;
mod mappings;
mod threads;

use std::{
    ffi::{CStr, c_void},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

pub(crate) use descriptors::{forget_opened, opened};
pub(crate) use mappings::is_unmapped;
pub(crate) use threads::NotEnded;

use crate::process::imports::Library;

/// Copies that are there at a time: the one that lives, and dead ones that could not be given back.
const MOST: usize = 8;

/// What one copy has.
struct Resources {
    is_taken: AtomicBool,
    heap: Mutex<Option<heap::Heap>>,
    threads: Mutex<Vec<threads::Thread>>,
    descriptors: Mutex<descriptors::Opened>,
    keys: Mutex<keys::Keys>,
    destructors: keys::Destructors,
    exits: Mutex<Vec<exits::Exit>>,
}

static RESOURCES: [Resources; MOST] = [const {
    Resources {
        is_taken: AtomicBool::new(false),
        heap: Mutex::new(None),
        threads: Mutex::new(Vec::new()),
        descriptors: Mutex::new(descriptors::Opened::new()),
        keys: Mutex::new(keys::Keys::new()),
        destructors: keys::Destructors::new([None; _]),
        exits: Mutex::new(Vec::new()),
    }
}; MOST];

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The resources of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(usize);

/// A function of the C library, and what stands in its place.
type Lead = (&'static CStr, *const c_void);

/// All of them, for the copy of this number.
fn leads<const OWNER: usize>() -> Vec<Lead> {
    [
        heap::leads::<OWNER>().as_slice(),
        &mappings::leads::<OWNER>(),
        &threads::leads::<OWNER>(),
        &descriptors::leads::<OWNER>(),
        &keys::leads::<OWNER>(),
        &exits::leads::<OWNER>(),
    ]
    .concat()
}

impl Owner {
    /// Leads a copy that was just loaded; `None` where it cannot be, and nothing was changed.
    ///
    /// # Safety
    /// The handle is open, and no thread is in the copy.
    pub(crate) unsafe fn of(copy: *mut c_void) -> Option<Self> {
        // SAFETY: by the contract.
        let library = unsafe { Library::of(copy) }?;
        let heap = heap::Heap::new()?;
        // In turn, so that what comes late for a copy meets none that has just begun.
        let first = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut places = (0..MOST).map(|step| (first + step) % MOST);
        let free = places.find(|at| !RESOURCES[*at].is_taken.swap(true, Ordering::AcqRel))?;
        *locked(&RESOURCES[free].heap) = Some(heap);
        let leads = match free {
            0 => leads::<0>(),
            1 => leads::<1>(),
            2 => leads::<2>(),
            3 => leads::<3>(),
            4 => leads::<4>(),
            5 => leads::<5>(),
            6 => leads::<6>(),
            _ => leads::<7>(),
        };
        // SAFETY: each function here takes what its namesake takes.
        unsafe { library.lead(&leads) };
        Some(Self(free))
    }

    fn resources(self) -> &'static Resources {
        &RESOURCES[self.0]
    }

    /// The copy is dead: nothing of it is called at the process's end.
    pub(crate) fn forget_exits(self) {
        locked(&self.resources().exits).clear();
    }

    /// Ends the copy's threads, which lie in this library.
    ///
    /// # Errors
    /// One of them runs, or waits in a function of the program's: it goes on, and nothing of the copy may be touched.
    pub(crate) fn end_threads(self, copy: *mut c_void) -> Result<(), NotEnded> {
        let threads = locked(&self.resources().threads).clone();
        threads::end(&threads, copy)?;
        locked(&self.resources().threads).clear();
        Ok(())
    }

    /// Has nothing of the copy called by threads that end.
    pub(crate) fn delete_keys(self) {
        keys::delete(self.0);
    }

    /// Gives everything else back. Mappings in which one of the addresses `kept` lies stay reserved.
    ///
    /// # Safety
    /// The copy's threads have ended, and it is unloaded or nothing of it runs any more.
    pub(crate) unsafe fn release(self, kept: &[usize]) {
        let of = self.resources();
        locked(&of.descriptors).clear();
        // SAFETY: by the contract nobody uses them.
        unsafe { mappings::unmap(self.0, kept) };
        if let Some(heap) = locked(&of.heap).take() {
            // SAFETY: as above.
            unsafe { heap.free() };
        }
        of.is_taken.store(false, Ordering::Release);
    }
}
