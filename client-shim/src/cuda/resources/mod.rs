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
//! | [`descriptors`] | noted; a spare copy's [`sockets`] are named | cut off with the rest, and closed; no others are opened |
//! | [`keys`] of threads' own data | called by way of here | no destructor is called; deleted |
//! | [`exits`]: functions for the process's end | called then | forgotten |
//!
//! A function that a copy asks the dynamic linker for is led as one that it imports ([`lookups`]). What a library that the
//! driver loads has (the compiler of PTX) is not the copy's. The copy that the program has loaded itself ran before it
//! could be led, so it is never given back; what it opens and maps from `cuInit` on, and has in threads, is noted, so that it
//! can be cut off and nothing else is. Measured with 580.159.04 on an H100: see OBSERVED.
#![expect(unsafe_code, reason = "stands in the place of functions of the C library")]

mod descriptors;
mod exits;
mod heap;
mod keys;
mod lookups;
mod mappings;
mod sockets;
mod taken;
mod threads;

use std::{
    ffi::{CStr, c_void},
    sync::{
        Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

pub(crate) use descriptors::{Opened, forget_opened, noted, of_the_spare, opened, opened_by_others};
pub(crate) use exits::before_the_end;
pub(crate) use heap::{is_in_a_heap, watch_freed};
pub(crate) use mappings::{All, Known, is_overlaid, is_unmapped};
pub(crate) use sockets::is_drivers_name;
pub(crate) use threads::NotEnded;

use super::library;
use crate::process::imports::Library;

/// Copies of this library's that are there at a time: the one that lives, and dead ones that could not be given back.
const MOST: usize = 8;
/// The place of the copy that the program has loaded itself.
const FIRST: usize = MOST;
const PLACES: usize = MOST + 1;

/// What one copy has.
struct Resources {
    is_taken: AtomicBool,
    /// The program goes on with another copy.
    is_left: AtomicBool,
    /// Its server has met a fault, or is gone, or it has answered that its context is dead.
    is_doomed: AtomicBool,
    /// It is cut off. Changed under the lock of its descriptors.
    is_dead: AtomicBool,
    heap: Mutex<Option<heap::Heap>>,
    threads: Mutex<Vec<threads::Thread>>,
    descriptors: Mutex<Opened>,
    keys: Mutex<keys::Keys>,
    destructors: keys::Destructors,
    exits: Mutex<Vec<exits::Exit>>,
}

static RESOURCES: [Resources; PLACES] = [const {
    Resources {
        is_taken: AtomicBool::new(false),
        is_left: AtomicBool::new(false),
        is_doomed: AtomicBool::new(false),
        is_dead: AtomicBool::new(false),
        heap: Mutex::new(None),
        threads: Mutex::new(Vec::new()),
        descriptors: Mutex::new(Opened::new()),
        keys: Mutex::new(keys::Keys::new()),
        destructors: keys::Destructors::new([None; _]),
        exits: Mutex::new(Vec::new()),
    }
}; PLACES];

impl Resources {
    /// Whether nobody has anything to do in the copy any more, or it is about to be so.
    fn is_of_no_use(&self) -> bool {
        [&self.is_left, &self.is_doomed, &self.is_dead].iter().any(|of| of.load(Ordering::Acquire))
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The resources of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(usize);

/// Whose calls are noted now: a place and 1, or 0 if nobody knows what the copy that lives takes.
static NOTING: AtomicUsize = AtomicUsize::new(0);

/// The copy of whose calls notes are taken.
pub(crate) fn noting() -> Option<Owner> {
    NOTING.load(Ordering::Acquire).checked_sub(1).map(Owner)
}

/// From now on this copy lives, and what it opens and maps is known if it has resources here; which one it was before.
pub(crate) fn note(owner: Option<Owner>) -> Option<Owner> {
    let before = NOTING.swap(owner.map_or(0, |owner| owner.0 + 1), Ordering::AcqRel).checked_sub(1).map(Owner);
    before.inspect(|of| of.resources().is_left.store(true, Ordering::Release));
    owner.inspect(|of| of.resources().is_left.store(false, Ordering::Release));
    before
}

/// Which copy is spare: a place and 1, or 0 for none.
static SPARE: AtomicUsize = AtomicUsize::new(0);

/// The spare copy, if there is one.
pub(crate) fn spare() -> Option<Owner> {
    SPARE.load(Ordering::Acquire).checked_sub(1).map(Owner)
}

/// From now on this copy is spare, and what it opens is nobody's else.
pub(crate) fn note_spare(owner: Option<Owner>) {
    SPARE.store(owner.map_or(0, |owner| owner.0 + 1), Ordering::Release);
}

/// Has the copy that the program has loaded itself called here for what it opens and maps, and for the data that it has in
/// threads. Its heap and threads stay its own, since it has some already.
pub(crate) fn lead_first() {
    static LED: Once = Once::new();
    LED.call_once(|| {
        let Some(handle) = library::known() else { return };
        // SAFETY: the handle is open for good.
        let Some(library) = (unsafe { Library::of(handle) }) else { return };
        let [versioned, _] = lookups::all::<FIRST>();
        let (descriptors, mappings) = (descriptors::leads::<FIRST>(), mappings::leads::<FIRST>());
        let leads = [descriptors.as_slice(), &mappings, &keys::leads::<FIRST>(), &[versioned]].concat();
        // SAFETY: each function here takes what its namesake takes, and does the same; before `cuInit` nobody waits in one.
        if unsafe { library.lead(&leads) } > 0 {
            note(Some(Owner(FIRST)));
        }
    });
}

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
        &lookups::all::<OWNER>(),
        &sockets::leads::<OWNER>(),
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
        let of = &RESOURCES[free];
        [&of.is_left, &of.is_doomed, &of.is_dead].iter().for_each(|is| is.store(false, Ordering::Release));
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

    /// What it has opened and not closed: all of it for a spare copy, for another one since that was forgotten last.
    pub(crate) fn opened(self) -> Opened {
        locked(&self.resources().descriptors).clone()
    }

    /// Its sockets have names from now on: the one that each copy binds another than its own, and those that lead to the
    /// daemon one with this token.
    pub(crate) fn names_sockets(self, token: u64) {
        sockets::name(self.0, token);
    }

    /// Connections that it makes from now on have no names.
    pub(crate) fn is_spare_no_more(self) {
        sockets::unname(self.0);
    }

    /// Puts plain memory where it has mapped files, and no code, but for ranges that are another copy's by now, by where
    /// each begins and its bytes; how many.
    pub(crate) fn overlay_files(self, is_anothers: impl Fn((usize, usize)) -> bool) -> u32 {
        mappings::overlay_files(self.0, is_anothers)
    }

    /// Its server has met a fault, or is gone, or a context of it is dead; or none of that is so.
    pub(crate) fn is_doomed(self, is_doomed: bool) {
        self.resources().is_doomed.store(is_doomed, Ordering::Release);
    }

    /// The copy is about to be cut off: what it has opened until now is noted, its own threads open nothing any more and end
    /// where they would, and nobody gets a pipe for it. More than once is as good as once.
    pub(crate) fn dies(self) {
        let of = self.resources();
        let _nothing_is_noted = locked(&of.descriptors);
        of.is_dead.store(true, Ordering::Release);
    }

    /// The copy is dead: nothing of it is called at the process's end.
    pub(crate) fn forget_exits(self) {
        locked(&self.resources().exits).clear();
    }

    /// Ends the copy's threads, which lie in this library, within a time or until somebody else comes first.
    ///
    /// # Errors
    /// One of them runs, or waits in a function of the program's: it goes on, and nothing of the copy may be touched.
    pub(crate) fn end_threads(
        self,
        copy: *mut c_void,
        patience: Duration,
        gives_way: fn() -> bool,
    ) -> Result<(), NotEnded> {
        let threads = locked(&self.resources().threads).clone();
        threads::end(&threads, copy, patience, gives_way)?;
        locked(&self.resources().threads).clear();
        Ok(())
    }

    /// Has nothing of the copy called by threads that end.
    pub(crate) fn delete_keys(self) {
        keys::delete(self.0);
    }

    /// Gives everything else back. Pages in which something lies that is `known` stay reserved, those of its heap with
    /// something that is `staying` stay as they are.
    ///
    /// # Safety
    /// The copy's threads have ended, and it is unloaded or nothing of it runs any more.
    pub(crate) unsafe fn release(self, known: &[(usize, usize)], staying: &[(usize, usize)]) {
        let of = self.resources();
        locked(&of.descriptors).clear();
        sockets::forget(self.0);
        // SAFETY: by the contract nobody uses them.
        unsafe { mappings::unmap(self.0, known) };
        if let Some(heap) = locked(&of.heap).take() {
            // SAFETY: as above.
            unsafe { heap.free(staying) };
        }
        of.is_taken.store(false, Ordering::Release);
    }
}
