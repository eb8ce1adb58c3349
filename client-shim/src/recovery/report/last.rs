//! The last recovery of the process. What the daemon says that the process had to do with it may come later than the rest.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use remps_proto::shim::Part;

use super::{Recovery, Step, microseconds};
use crate::{daemon::news::PartAsked, recovery::amputation::Cut};

static LAST: Mutex<Recovery> = Mutex::new(Recovery::none());
/// The number of a recovery of which the daemon had not said yet what this process had to do with it when the gate opened.
static ASKED: Mutex<Option<(u64, Arc<Mutex<PartAsked>>)>> = Mutex::new(None);
/// How long who reads of that one waits for it.
const FOR_ITS_PART: Duration = Duration::from_secs(1);

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last one.
pub(in crate::recovery) fn get() -> Recovery {
    *locked(&LAST)
}

/// There is another one, of which the daemon says, or will say, what this process had to do with it.
pub(in crate::recovery) fn set(mut recovery: Recovery, mut part: PartAsked) {
    let (number, said) = (recovery.count, part.within(Duration::ZERO));
    recovery.part = said.unwrap_or(Part::UNKNOWN).0;
    *locked(&ASKED) = said.is_none().then(|| (number, Arc::new(Mutex::new(part))));
    *locked(&LAST) = recovery;
}

/// One was refused.
pub(in crate::recovery) fn refused(recovery: Recovery) {
    *locked(&LAST) = recovery;
}

/// The last one, with the daemon's word of this process's part in it, if that comes in time.
pub(super) fn whole() -> Recovery {
    let asked = locked(&ASKED).clone();
    if let Some((number, asked)) = asked {
        let part = locked(&asked).within(FOR_ITS_PART);
        let mut last = locked(&LAST);
        if last.count == number {
            last.part = part.unwrap_or(Part::UNKNOWN).0;
        }
    }
    get()
}

/// The dead copy is cut off, which took so long and was done that long after the recovery of this number had begun.
pub(in crate::recovery) fn cut_off(number: u64, cut: &Cut, took: Duration, after: Duration) {
    let mut last = locked(&LAST);
    if last.count == number {
        last.cut(cut);
        last.steps[Step::Amputate as usize] = microseconds(took);
        last.cut_off = microseconds(after).max(1);
    }
}
