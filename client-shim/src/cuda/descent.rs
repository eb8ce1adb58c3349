//! Which thread has begun which, since work was lost.
//!
//! A program's thread that begins another one hands over what it knows of lost work, and if it knows nothing it may hand
//! over what it takes for good. So the new thread is told in its place. That would be without end where a thread that
//! makes no call any more begins one for each piece of work, as a server does for each request. Therefore the threads
//! that come of such a thread are one family: once one of them was told, those that begin later are not told for
//! their descent.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many families are known to have been told. One that is forgotten is told again.
const MOST: usize = 256;

/// The families that were told last, 0 for none.
static TOLD: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The number of the last family; none has its number again.
static LAST: AtomicU64 = AtomicU64::new(0);

/// What a thread has from the one that has begun it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descent {
    /// The last recovery that had lost work by then.
    since: u64,
    /// Up to which recovery whoever has begun it knew of lost work.
    known: u64,
    /// The number of its family.
    family: u64,
    /// It was there before, and its family are those that come of it.
    is_founder: bool,
}

impl Descent {
    /// What this thread and the one that it begins now have, the last recovery that has lost work being this one. It was
    /// told up to that one, and has this descent itself.
    pub(super) fn of_child(own: Option<Self>, told: u64, last: u64) -> (Self, Self) {
        let founded = || Self { since: last, known: told, family: new_family(), is_founder: true };
        let own = own.filter(|own| own.since == last).unwrap_or_else(founded);
        let of_family = if has_been_told(own.family) { last } else { 0 };
        let known = told.max(own.known).max(of_family);
        (own, Self { known, is_founder: false, ..own })
    }

    /// Whether its thread has to be told of what this recovery has lost, which is the last one.
    pub(crate) fn owes(&self, last: u64) -> bool {
        self.since < last || self.known < last
    }

    /// Its thread was told of what this recovery has lost.
    pub(crate) fn was_told(&self, last: u64) {
        if self.since == last && self.known < last && !self.is_founder && !has_been_told(self.family) {
            TOLD[NEXT.fetch_add(1, Ordering::Relaxed) % MOST].store(self.family, Ordering::Release);
        }
    }
}

fn new_family() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

fn has_been_told(family: u64) -> bool {
    TOLD.iter().any(|told| told.load(Ordering::Acquire) == family)
}

#[cfg(test)]
mod tests {
    use super::{Descent, MOST};

    fn child(own: &mut Option<Descent>, told: u64, last: u64) -> Descent {
        let (of_creator, of_child) = Descent::of_child(*own, told, last);
        *own = Some(of_creator);
        of_child
    }

    /// One test, since there is one table.
    #[test]
    fn a_thread_is_told_in_the_place_of_the_one_that_has_begun_it_and_once_in_a_family() {
        // Whoever knows has children that know.
        let mut knowing = None;
        assert!(!child(&mut knowing, 3, 3).owes(3));
        // What is lost later they have to hear.
        assert!(child(&mut knowing, 3, 3).owes(4));
        assert!(child(&mut knowing, 3, 4).owes(4));

        // Who does not know has children that do not, and they theirs.
        let mut unaware = None;
        let (first, second) = (child(&mut unaware, 3, 4), child(&mut unaware, 3, 4));
        let mut own = Some(second);
        let of_second = child(&mut own, 0, 4);
        assert!(first.owes(4) && second.owes(4) && of_second.owes(4));
        // One that was told has children that know, whoever has begun it.
        let mut own = Some(first);
        assert!(!child(&mut own, 4, 4).owes(4));

        // What the one hears that was there from the start says nothing of the others.
        unaware.expect("it has begun some").was_told(4);
        let mut own = Some(second);
        assert!(child(&mut own, 0, 4).owes(4));
        // Once one of the family was told, who begins later is not, and those that have begun by then are.
        of_second.was_told(4);
        assert!(!child(&mut unaware, 3, 4).owes(4));
        let mut own = Some(second);
        assert!(!child(&mut own, 0, 4).owes(4));
        assert!(second.owes(4));
        // The next loss is another matter.
        assert!(child(&mut unaware, 3, 5).owes(5));

        // Another thread's family has not heard of it, and one that was forgotten is told again.
        let mut other = None;
        assert!(child(&mut other, 0, 5).owes(5));
        child(&mut other, 0, 5).was_told(5);
        assert!(!child(&mut other, 0, 5).owes(5));
        for _ in 0..MOST {
            child(&mut None, 0, 5).was_told(5);
        }
        assert!(child(&mut other, 0, 5).owes(5));
    }
}
