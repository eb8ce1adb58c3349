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

#[cfg(test)]
mod tests {
    use std::thread;

    use remps_proto::shim::{Answer, Part, ServerState};

    use super::{Recovery, get, refused, set, whole};
    use crate::daemon::{link::Link, news::PartAsked};

    const SERVER: u64 = 7;

    fn said(server: u64) -> Answer {
        Answer::Epoch { server, state: ServerState::TAINTED, part: Part::CULPRIT }
    }

    #[test]
    fn the_part_in_a_fault_is_told_to_who_reads_also_where_the_daemon_says_it_late() {
        let link = Link::new().unwrap();
        let recovered = |count| Recovery { count, ..Recovery::none() };
        // Said before the gate opened.
        let asked = PartAsked::over(Some(&link), SERVER);
        link.answers(said(SERVER));
        set(recovered(1), asked);
        assert_eq!((get().part, whole().part), (Part::CULPRIT.0, Part::CULPRIT.0));
        // Said later, to several who read at the same time, and to those who read then.
        set(recovered(2), PartAsked::over(Some(&link), SERVER));
        assert_eq!(get().part, Part::UNKNOWN.0);
        thread::scope(|scope| {
            let readers = [(); 3].map(|()| scope.spawn(whole));
            link.answers(said(SERVER));
            for reader in readers {
                assert_eq!(reader.join().unwrap().part, Part::CULPRIT.0);
            }
        });
        assert_eq!(whole(), Recovery { part: Part::CULPRIT.0, ..recovered(2) });
        // What is said of another server says nothing of this fault.
        set(recovered(3), PartAsked::over(Some(&link), SERVER));
        link.answers(said(SERVER + 1));
        assert_eq!(whole().part, Part::UNKNOWN.0);
        // What was not said of one recovery is none of the next one's.
        set(recovered(4), PartAsked::over(Some(&link), SERVER));
        refused(recovered(5));
        link.answers(said(SERVER));
        assert_eq!(whole().part, Part::UNKNOWN.0);
    }
}
