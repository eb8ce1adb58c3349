//! Dead copies with a thread that has not ended, each with when it is tried again.
//!
//! A thread does not wait yet where the machine is slow, and mostly does a moment later: so each copy has pauses of its own,
//! short ones first, whatever others were tried before it. One that was tried too often is left alone, until another
//! recovery comes.

use std::time::{Duration, Instant};

/// How often one is tried of its own accord, and the time before the second try and the longest.
const MOST_TRIES: u32 = 12;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// One that was tried so often.
#[derive(Debug)]
struct Waiting<T> {
    of: T,
    tries: u32,
    /// Not before, `None` for no more.
    next: Option<Instant>,
}

/// Those that are to be tried again.
#[derive(Debug)]
pub(super) struct Line<T>(Vec<Waiting<T>>);

impl<T> Line<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// One was tried so often by now, in vain.
    pub(super) fn was_tried(&mut self, of: T, tries: u32, now: Instant) {
        let pause = FIRST_PAUSE * (1 << tries.saturating_sub(1).min(10));
        let next = (tries < MOST_TRIES).then(|| now + pause.min(LONGEST_PAUSE));
        self.0.push(Waiting { of, tries, next });
    }

    /// One was not tried, or not for as long as it was to be: somebody else comes first.
    pub(super) fn gives_way(&mut self, of: T, tries: u32, now: Instant) {
        self.0.push(Waiting { of, tries, next: Some(now) });
    }

    /// When the next one is due, if any is.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.iter().filter_map(|waiting| waiting.next).min()
    }

    /// One that is due by now, and how often it was tried.
    pub(super) fn due(&mut self, now: Instant) -> Option<(T, u32)> {
        let at = self.0.iter().position(|waiting| waiting.next.is_some_and(|next| next <= now))?;
        let Waiting { of, tries, .. } = self.0.remove(at);
        Some((of, tries))
    }

    /// Has all tried once more, those that were tried too often, too.
    pub(super) fn all_are_due(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|waiting| waiting.next = Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_PAUSE, LONGEST_PAUSE, Line, MOST_TRIES};
    use std::time::{Duration, Instant};

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn one_that_has_just_come_is_tried_soon_whatever_others_were_tried_before() {
        let (mut line, now) = (Line::new(), Instant::now());
        line.was_tried("old", MOST_TRIES - 1, now);
        assert_eq!(line.next(), Some(now + LONGEST_PAUSE));
        line.was_tried("new", 1, now);
        assert_eq!(line.next(), Some(now + FIRST_PAUSE));
        assert_eq!(line.due(now + FIRST_PAUSE - MOMENT), None);
        assert_eq!(line.due(now + FIRST_PAUSE), Some(("new", 1)));
        line.was_tried("new", 2, now);
        assert_eq!(line.next(), Some(now + FIRST_PAUSE * 2));
        line.gives_way("first", 0, now);
        assert_eq!(line.due(now), Some(("first", 0)), "somebody came before it");
    }

    #[test]
    fn one_that_was_tried_too_often_is_tried_once_at_each_recovery() {
        let (mut line, mut now, mut count) = (Line::new(), Instant::now(), 0);
        line.was_tried("stays", 1, now);
        while let Some(next) = line.next() {
            now = next;
            let (of, tries) = line.due(now).expect("it is due");
            count += 1;
            line.was_tried(of, tries + 1, now);
        }
        assert_eq!(count, MOST_TRIES - 1);
        for tries in MOST_TRIES..MOST_TRIES + 3 {
            assert_eq!(line.due(now + LONGEST_PAUSE * 100), None);
            line.all_are_due(now);
            assert_eq!(line.due(now), Some(("stays", tries)));
            line.was_tried("stays", tries + 1, now);
            assert_eq!(line.next(), None);
        }
    }
}
