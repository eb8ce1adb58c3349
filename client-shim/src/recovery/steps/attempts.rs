//! When a recovery is begun, and by whom; that it is refused, for now or for good; and what is said of it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use remps_proto::shim::Unrecovered;

use super::recover;
use crate::cuda::{
    dead,
    errors::Meaning,
    functions::Effect,
    gate::{self, Late},
    library,
    resources::{self, Owner},
    result::CUresult,
    threads,
};
use crate::daemon::{
    evidence,
    recovered::{self, Said},
    stage,
};
use crate::kept::shared;
use crate::process::{log, settings};
use crate::recovery::{
    others,
    refusal::Refusal,
    report::{self, Recovery, Step},
    spare,
    told::{self, Verdict},
};

/// What is only touched by whoever recovers.
#[derive(Debug)]
struct Attempts {
    /// Nothing will be tried again.
    is_given_up: bool,
    /// Who did not come out the last time.
    late: Late,
    /// What was told last.
    told: String,
}

static ATTEMPTS: Mutex<Attempts> = Mutex::new(Attempts { is_given_up: false, late: Late::NOBODY, told: String::new() });

/// A call, of this name if it has one, that went into copy `seen` has got an answer with this meaning. Recovers, unless another
/// thread has meanwhile.
pub(in crate::recovery) fn after(
    answer: CUresult,
    meaning: Meaning,
    (effect, call): (Effect, &str),
    seen: u64,
    is_again: bool,
) -> Verdict {
    let mut attempts = ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner);
    if library::generation() == seen {
        if attempts.is_given_up {
            return Verdict::Answer(answer);
        }
        if settings::lines_wanted() {
            log::complain(format_args!("{call} answers {}: copy {seen} of the driver is dead", answer.0));
        }
        if !is_recovered(&mut attempts, answer, meaning, Begun::ByCall) {
            return Verdict::Answer(answer);
        }
    }
    drop(attempts);
    told::verdict(answer, effect, seen, is_again)
}

/// What has begun a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// A call of the program's.
    ByCall = 0,
    /// The daemon's announcement, confirmed by the driver.
    ByDaemon = 1,
    /// The daemon's announcement, before the driver has said anything.
    Ahead = 2,
}

/// The daemon has said that the server is spoilt or gone, and the driver of copy `seen` has confirmed it with this
/// answer. Recovers, unless another thread has meanwhile.
pub(in crate::recovery) fn on_the_daemons_word(answer: CUresult, meaning: Meaning, seen: u64) {
    let mut attempts = ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner);
    if library::generation() == seen && !attempts.is_given_up {
        let _told = is_recovered(&mut attempts, answer, meaning, Begun::ByDaemon);
    }
}

/// The daemon has said so of copy `seen`, and the driver says nothing yet. If nothing is at work the program goes on with
/// its spare copy now; else everything stays as it is.
pub(in crate::recovery) fn ahead_of_the_driver(seen: u64) {
    let Ok(attempts) = ATTEMPTS.try_lock() else { return };
    if library::generation() != seen || attempts.is_given_up || !spare::is_ready() || dead::is_one_given_back() {
        return;
    }
    let recover = || recover(CUresult::CUDA_SUCCESS, Begun::Ahead);
    if let Ok((recovery, anew)) = threads::here(|here| gate::behind(&here.passer, recover)) {
        recovered::tell(Said::Recovered(recovery.said()));
        tell(&recovery, &anew);
    }
}

/// Does something while nobody is in the driver, if nobody recovers and all threads come out at once.
pub(in crate::recovery) fn while_closed(patience: Duration, work: impl FnOnce()) {
    let Ok(attempts) = ATTEMPTS.try_lock() else { return };
    if attempts.is_given_up || threads::here(|here| here.passer.is_inside()) {
        return;
    }
    let closed = gate::close();
    if closed.wait(patience) == 0 {
        threads::here(|here| gate::behind(&here.passer, work));
    }
}

/// Does something with the copy that lives, if nobody recovers.
pub(in crate::recovery) fn with_the_living(work: impl FnOnce(Owner)) {
    let Ok(_nobody_recovers) = ATTEMPTS.try_lock() else { return };
    if let Some(living) = resources::noting() {
        work(living);
    }
}

/// Waits until nobody recovers, and says then which copy lives and whether there may be another one.
pub(in crate::recovery) fn settled() -> (u64, bool) {
    let attempts = ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner);
    (library::generation(), !attempts.is_given_up)
}

fn is_recovered(attempts: &mut Attempts, answer: CUresult, meaning: Meaning, begun: Begun) -> bool {
    let (of, server) = (library::generation(), evidence::server());
    // It may stay: a recovery can be refused, and no daemon need be there that says so.
    resources::noting().inspect(|dead| dead.is_doomed(true));
    let outcome = match meaning {
        Meaning::ForGood(why) => Err(Refusal::Obstacle(why.to_owned())),
        // Whoever would be waited for in vain again is not waited for.
        Meaning::Dead | Meaning::Perhaps if !attempts.late.have_come_out() => {
            Err(Refusal::Stuck(attempts.late.clone()))
        }
        Meaning::Dead | Meaning::Perhaps => match others::still_working() {
            Some(working) => Err(working.into()),
            None => threads::here(|here| gate::behind(&here.passer, || recover(answer, begun))),
        },
    };
    match outcome {
        Ok((recovery, anew)) => {
            // The program runs again.
            evidence::hear_late(answer, of, server);
            recovered::tell(Said::Recovered(recovery.said()));
            tell(&recovery, &anew);
            true
        }
        Err(refusal) => {
            attempts.is_given_up = !refusal.is_for_now();
            if attempts.is_given_up {
                stage::gives_up();
            }
            if let Refusal::Stuck(late) = &refusal {
                attempts.late = late.clone();
            }
            refuse(attempts, answer, &refusal);
            false
        }
    }
}

fn refuse(attempts: &mut Attempts, answer: CUresult, refusal: &Refusal) {
    shared::given_up(answer);
    let text = refusal.to_string();
    let mut last = report::get();
    last.refused += 1;
    last.error = answer.0;
    last.set_reason(&text);
    report::refused(last);
    if attempts.told != text {
        log::complain(format_args!("not recovered from CUDA error {}: {text}", answer.0));
        recovered::tell_before_the_end(Unrecovered {
            number: last.refused,
            error: answer.0,
            reason: Unrecovered::words(&text),
            is_final: attempts.is_given_up,
        });
        attempts.told = text;
    }
}

/// `anew` has the modules that have begun anew, each with why.
fn tell(recovery: &Recovery, anew: &BTreeMap<usize, String>) {
    let Recovery { count, error, total, lost_streams, modules_anew, begun_again, .. } = recovery;
    let way = report::Way::text(recovery.way);
    let from = if recovery.begun == Begun::Ahead as u32 {
        "before any error of CUDA's".to_owned()
    } else {
        format!("from CUDA error {error}")
    };
    // The last one is mostly still to be done.
    let is_done = |step: &(usize, u64)| step.1 > 0 || step.0 != Step::Amputate as usize;
    let done = recovery.steps.into_iter().enumerate().filter(is_done);
    let steps = done.map(|(step, time)| format!(" {} {time}", report::STEPS[step])).collect::<String>();
    let again = if *begun_again > 0 { format!(", copies hit meanwhile: {begun_again}") } else { String::new() };
    log::complain(format_args!(
        "recovered {from} in {total} us, number {count}{way}; streams with lost work: {lost_streams}, modules \
         begun anew: {modules_anew}{again};{steps}"
    ));
    let mut reasons = BTreeMap::<&str, usize>::new();
    anew.values().for_each(|why| *reasons.entry(why).or_default() += 1);
    for (why, count) in reasons {
        log::complain(format_args!("modules begun anew: {count}: {why}"));
    }
}
