//! When a spare copy follows the program: what has changed at each look, and whether calls may be made for it now.

use std::time::{Duration, Instant};

use super::{
    super::{memory::Memory, objects::Objects},
    FIRST_PAUSE, is_stopped, told, work,
};
use crate::{
    cuda::{library, second::Chosen},
    daemon::spare,
    kept::{
        self,
        work::progress::{self, Pulse},
    },
    process::{log, settings},
};

/// Between two times that calls are made for it while nothing of the program's is seen to be done: longer than the GPU
/// stands still behind an illegal access, 110 to 150 ms (measured with 580.159.04 on an H200).
const UNSEEN: Duration = Duration::from_millis(200);
/// Between two times that is counted what the copy takes, which grows with what the program makes.
const BETWEEN_COUNTS: Duration = Duration::from_secs(60);
/// How long a look waits to see it.
const TO_SEE: Duration = Duration::from_millis(3);
const HAS_ALL: &str = "the spare copy has all that the program has";

/// What of the program's can be seen to have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    objects: OfObjects,
    values: OfValues,
    graphs: OfGraphs,
}

/// Objects, and beside which copy, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OfObjects {
    copy: u64,
    changes: u64,
}

/// What was set, and what variables have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OfValues {
    of: OfObjects,
    settled: u64,
    /// Whether what variables have is known.
    is_still: bool,
}

/// Graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OfGraphs {
    of: OfObjects,
    /// Which was the last change of one that has not changed again since the look before, and whether no other one has.
    quiet: u64,
    are_all_quiet: bool,
}

impl Seen {
    /// And how often graphs have changed, of which that was `last` at the look before.
    fn now(last: u64) -> (Self, u64) {
        let given = progress::given();
        let of = kept::recipes(|recipes| (recipes.changes(), recipes.settled(), recipes.still(given).is_some()));
        let (changes, settled, is_still) = of.unwrap_or_default();
        let of = OfObjects { copy: library::generation() + 1, changes };
        let graphs = kept::graphs(|graphs| (graphs.changes(), graphs.last_until(last)));
        let (changes, quiet) = graphs.unwrap_or_default();
        let graphs = OfGraphs { of, quiet, are_all_quiet: changes == last };
        (Self { objects: of, values: OfValues { of, settled, is_still }, graphs }, changes)
    }

    /// What is to follow now, after so many changes of graphs at the last look. What changes at every look, as variables or a
    /// graph may that a program writes again and again, is left until the program goes on with the copy, and keeps nothing
    /// else from following; what variables had at first is read once all the same.
    fn due(&self, (last, changes): (&Self, u64), followed: &Self) -> Due {
        let are_values_quiet = self.values == last.values || self.values.of != followed.values.of;
        Due {
            objects: self.objects != followed.objects,
            values: are_values_quiet && self.values != followed.values,
            graphs: (self.graphs != followed.graphs).then_some(changes),
        }
    }
}

/// What a copy is to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    objects: bool,
    pub(super) values: bool,
    /// Graphs, but for what has changed since there were so many changes.
    pub(super) graphs: Option<u64>,
}

impl Due {
    fn is_to_settle(self) -> bool {
        self.values || self.graphs.is_some()
    }
}

/// How far the thread has followed the program.
#[derive(Debug, Default)]
pub(super) struct Followed {
    seen: Seen,
    /// At the last look, and how often graphs had changed.
    last: (Seen, u64),
    level: Level,
    pulse: Pulse,
    pace: Pace,
    /// When was counted last what the copy takes.
    counted: Option<Instant>,
}

/// What a copy lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Level {
    #[default]
    Behind,
    ButWhatEnds,
    ButWhatChanges,
    /// But for what kernels write to variables, which is known at rest only.
    All,
    AllAtRest,
}

impl Followed {
    /// Whether that is followed, but for variables that go on changing.
    fn has(&self, seen: &Seen) -> bool {
        self.seen.objects == seen.objects && self.seen.graphs == seen.graphs && self.seen.values.of == seen.values.of
    }

    fn look(&mut self) -> (Seen, Due) {
        let now = Seen::now(self.last.1);
        (now.0, self.due(now))
    }

    fn due(&mut self, now: (Seen, u64)) -> Due {
        let last = std::mem::replace(&mut self.last, now);
        now.0.due((&last.0, last.1), &self.seen)
    }

    fn has_settled(&mut self, due: Due, seen: &Seen) {
        if due.values {
            self.seen.values = seen.values;
        }
        if due.graphs.is_some() {
            self.seen.graphs = seen.graphs;
        }
    }
}

/// When calls are made for the copy.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Instant>,
}

impl Pace {
    /// Whether they may be now, where the GPU is seen to move or is not.
    fn is_time(&mut self, is_moving: bool, now: Instant) -> bool {
        let is_time = is_moving || self.last.is_none_or(|last| now.duration_since(last) >= UNSEEN);
        if is_time {
            self.last = Some(now);
        }
        is_time
    }
}

/// Has the copy that stands follow the program, or gives it up.
pub(super) fn follow(followed: &mut Followed) {
    // Before it has the copy to itself, for which a switch would wait.
    let is_moving = followed.pulse.is_felt(TO_SEE);
    let mut work = work();
    let Some(spare) = &mut work.spare else { return };
    let grant = spare.grant;
    // What a first look finds has all just changed.
    let is_first = followed.last.0 == Seen::default();
    let (seen, due) = followed.look();
    let is_to_settle = due.is_to_settle();
    let done = if spare::is_void(grant) {
        Err("its server is of no use any more".to_owned())
    } else if spare.generation != library::generation() {
        Err("it stands beside a copy that is dead".to_owned())
    } else if is_stopped() || !followed.pace.is_time(is_moving, Instant::now()) {
        return;
    } else if let (Some(memory), _) = Memory::survey() {
        let _chosen = Chosen::begin();
        let objects = (due.objects || is_to_settle).then(Objects::survey);
        let done = spare.follow(&memory, objects.as_ref());
        done.map(|behind| (behind, objects)).map_err(|failed| format!("{} answers {}", failed.call, failed.answer.0))
    } else {
        Ok((0, None))
    };
    if due.objects || is_to_settle {
        // What it has is told again when it has that.
        followed.level = Level::Behind;
    }
    match done {
        Ok((behind, objects)) => {
            if due.objects {
                followed.seen.objects = seen.objects;
            }
            let mut is_settled = true;
            if let Some(objects) = objects.filter(|_| is_to_settle && !is_stopped()) {
                let _chosen = Chosen::begin();
                // What can't be done is tried again when something has changed, and at last at the switch.
                is_settled = spare.settle(&objects, due).is_ok();
                if !is_stopped() {
                    followed.has_settled(due, &seen);
                }
            }
            let has_quiet =
                is_settled && !is_stopped() && (is_to_settle || behind == 0) && followed.has(&seen) && !is_first;
            let level = match has_quiet {
                _ if spare.is_waiting() => Level::ButWhatEnds,
                false => Level::Behind,
                true if followed.seen == seen && seen.graphs.are_all_quiet => match seen.values.is_still {
                    true => Level::AllAtRest,
                    false => Level::All,
                },
                true => Level::ButWhatChanges,
            };
            let is_new = std::mem::replace(&mut followed.level, level) != level;
            if is_new && settings::lines_wanted() {
                match level {
                    Level::Behind => {}
                    Level::ButWhatEnds => log::complain(format_args!("{HAS_ALL}, but for what is being destroyed")),
                    Level::ButWhatChanges => log::complain(format_args!("{HAS_ALL}, but for what goes on changing")),
                    Level::All => log::complain(format_args!("{HAS_ALL}")),
                    Level::AllAtRest => log::complain(format_args!("{HAS_ALL}, which is at rest")),
                }
            }
            let is_due = followed.counted.is_none_or(|counted| counted.elapsed() >= BETWEEN_COUNTS);
            if is_new && is_due && matches!(level, Level::ButWhatChanges | Level::All | Level::AllAtRest) {
                followed.counted = Some(Instant::now());
                // Found out while nobody else could unload it.
                let place = spare.copy.place();
                drop(work);
                told::takes(grant.token, place);
            }
        }
        Err(why) => {
            let spare = work.spare.take();
            // The next one may be made at once: what has changed is no failure of the making.
            work.pause = FIRST_PAUSE;
            if let Some(spare) = spare {
                spare.discard();
            }
            work.failed(&why);
            drop(work);
            told::gone(grant.token);
        }
    }
}

#[cfg(test)]
mod tests;
