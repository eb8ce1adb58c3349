//! Functions of the host that streams were given (`cuLaunchHostFunc`, `cuStreamAddCallback`) and that were lost with what
//! they were to come behind.
//!
//! A program may wait for one of them without a call of the driver's, as XLA does: a thread of it asks each of its streams from time
//! to time, and has all give up that wait for functions of one that answers with an error, since after an error the driver
//! calls none. Told by the first stream that thread would hear of success from the others. So a stream that has lost functions
//! answers a question for its state with the error once more. Who waits for streams is told once for all.
//!
//! Default streams don't count. They never end, so a question for the state of one may come much later, from somebody who
//! means other work.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::places;

/// Places with how much work they had been given with the last function, and those that have lost one.
#[derive(Debug)]
struct Functions {
    given: BTreeMap<usize, u64>,
    lost: BTreeSet<usize>,
}

static FUNCTIONS: Mutex<Functions> = Mutex::new(Functions { given: BTreeMap::new(), lost: BTreeSet::new() });
/// Whether any was lost and nobody was told by its stream: without that nobody looks.
static IS_LOST: AtomicBool = AtomicBool::new(false);

fn functions() -> MutexGuard<'static, Functions> {
    FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stream with this place was given one, by a call under way.
pub(super) fn given(place: usize) {
    functions().given.insert(place, places::at(place).counts().submitted());
}

/// All work is gone. Those of this recovery are lost that are not known to be done, if it loses any; the gate is closed, and
/// what is done is not yet noted as gone.
pub(super) fn lose(is_loss: bool) {
    let mut functions = functions();
    let given = std::mem::take(&mut functions.given);
    let is_open = |(place, number): &(usize, u64)| {
        let counts = places::at(*place).counts();
        counts.submitted() - counts.open() < *number
    };
    functions.lost.extend(given.into_iter().filter(|_| is_loss).filter(is_open).map(|(place, _)| place));
    IS_LOST.store(!functions.lost.is_empty(), Ordering::Release);
}

/// Whether a stream with this place has lost any, and has told nobody yet.
pub(super) fn are_lost(place: usize) -> bool {
    IS_LOST.load(Ordering::Acquire) && functions().lost.contains(&place)
}

/// The stream with this place has told, or has ended.
pub(super) fn are_told(place: usize) {
    if IS_LOST.load(Ordering::Acquire) {
        let mut functions = functions();
        functions.lost.remove(&place);
        IS_LOST.store(!functions.lost.is_empty(), Ordering::Release);
    }
}
