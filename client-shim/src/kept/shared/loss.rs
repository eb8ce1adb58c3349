//! What a context's death, or end, takes from those who wait for its events.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Shared, is_used, shared, slot::Slot};
use crate::cuda::result::CUresult;

impl Shared {
    /// Records that have not come never will, of this context by name, or of all: who waits for them is told so.
    fn lose(&self, context: Option<usize>, error: CUresult) {
        for place in self.own.iter().flat_map(|page| page.places(context)) {
            let last = place.last();
            if let Some(first) = place.own.first_open(last) {
                place.slot.lose(first, last, error);
            }
            place.release();
        }
    }
}

/// Records of this context that have not come never will.
pub(super) fn lose(context: Option<usize>, error: CUresult) {
    // One at a time writes what was lost.
    shared(|shared| shared.lose(context, error));
}

/// Nobody will write the number of a record. What has its word, and has not come, is not known apart from it.
pub(super) fn skip(own: Slot, all @ [slot, ..]: [Slot; 3], number: u64, error: CUresult) {
    shared(|_| {
        if let Some(first) = own.first_open(number) {
            slot.lose(first, number, error);
        }
        all.into_iter().for_each(|slot| slot.withdraw(number));
    });
}

/// The program goes on with another copy, and has lost work by this error, or nothing: then all that records were behind
/// had been done. The gate is closed.
pub(crate) fn recovered(lost: Option<CUresult>) {
    if !is_used() {
        return;
    }
    GIVEN_UP.store(0, Ordering::SeqCst);
    shared(|shared| match lost {
        Some(error) => {
            shared.lose(None, error);
            // Waits were lost with the streams that waited, of which the program is told.
            shared.pending.clear();
            shared.awaited.clear();
        }
        None => {
            let places = shared.own.iter().flat_map(|page| page.places(None));
            places.for_each(|place| place.release());
        }
    });
}

/// The error by which the program does not go on; 0 while it does.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

/// It does not go on, now or for good. Nobody else is to wait for that.
pub(crate) fn given_up(error: CUresult) {
    if is_used() {
        GIVEN_UP.store(error.0, Ordering::SeqCst);
        lose(None, error);
    }
}

/// A record is there, for everybody: by a thread that was on its way when it was given up, perhaps.
pub(super) fn published() {
    let error = GIVEN_UP.load(Ordering::SeqCst);
    if error != 0 {
        lose(None, CUresult(error));
    }
}
