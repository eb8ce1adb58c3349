//! The program's other GPUs.
//!
//! A fault on one GPU ends the contexts there and no others, but a fresh copy of the driver is one for all of them: what a
//! living context has at work would be lost with the dead copy, and its kernels would run on where the memory is no
//! longer mapped. So the driver is asked to wait for every context, each by a thread of its own: a dead one answers at
//! once, with its error, and one that lives when it has done all that it was given. As long as one has not, nothing is
//! changed, and the recovery is refused.

use std::{
    ffi::c_int,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::refusal::Refusal;
use crate::{
    cuda::{belongings, errors, gate, names, result::CUresult, threads, types::CUcontext},
    kept::{self, work::progress},
    process::{glibc, panics::unpanicked},
};

/// How long the work of other GPUs is waited for. With as long before, for threads, it is less than calls wait at the gate.
pub(super) const PATIENCE: Duration = Duration::from_secs(25);

/// The device of this number has work that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Working(pub(super) c_int);

/// What a context has answered, once it has.
#[derive(Debug, Default)]
struct Waiting {
    answer: Mutex<Option<CUresult>>,
    has_come: Condvar,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    /// Has a context waited for.
    fn begin(context: usize) -> Arc<Self> {
        let waiting = Arc::new(Self::default());
        let told = Arc::clone(&waiting);
        let ask = move || {
            let _as_long_as_it_takes = belongings::Ours::begin();
            let wait = || {
                let set = driver!(context::cuCtxSetCurrent(CUcontext(context)));
                let answer = if set.is_success() { driver!(context::cuCtxSynchronize()) } else { set };
                let _left = driver!(context::cuCtxSetCurrent(CUcontext(0)));
                answer
            };
            let answer = threads::here(|here| gate::behind(&here.passer, wait));
            *locked(&told.answer) = Some(answer);
            told.has_come.notify_all();
        };
        let has_begun = glibc::detached_thread(Box::new(|| {
            let _ended = unpanicked(ask);
        }));
        if !has_begun {
            *locked(&waiting.answer) = Some(CUresult::CUDA_ERROR_UNKNOWN);
        }
        waiting
    }

    fn until(&self, deadline: Instant) -> Option<CUresult> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.has_come.wait_timeout_while(locked(&self.answer), left, |answer| answer.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Those that had not answered when nobody could wait for them any longer, each with its device.
static LATE: Mutex<Vec<(c_int, Arc<Waiting>)>> = Mutex::new(Vec::new());

/// Whether the program has contexts of more than one device.
pub(super) fn are_there() -> bool {
    kept::objects(|objects| objects.contexts.retained().filter(|(_, of)| of.count > 0).count() > 1).unwrap_or(false)
}

/// Whether a context is still waited for since an earlier recovery was refused: there is no use in another one.
pub(super) fn still_working() -> Option<Working> {
    let mut late = locked(&LATE);
    late.retain(|(_, waiting)| locked(&waiting.answer).is_none());
    late.first().map(|(device, _)| Working(*device))
}

/// Waits until all contexts have answered, of which one is dead by this error. `None` if nothing runs any more in those that
/// are dead, else what there is to say of one in which something may. What those that live were given is done then. The gate
/// is closed and nobody is inside.
///
/// # Errors
/// One has not answered. Nothing was changed.
pub(super) fn wait(error: CUresult) -> Result<Option<Refusal>, Working> {
    let mut unsure = (!errors::is_at_rest(error)).then_some(Refusal::NotQuiet(error.0));
    if !are_there() {
        return Ok(unsure);
    }
    let contexts = kept::objects(|objects| {
        let retained = objects.contexts.retained().filter(|(_, of)| of.count > 0);
        retained.map(|(device, of)| (device, of.context)).collect::<Vec<_>>()
    });
    let begin = |(device, context)| (device, context, Waiting::begin(context));
    let asked: Vec<_> = contexts.unwrap_or_default().into_iter().map(begin).collect();
    let deadline = Instant::now() + PATIENCE;
    let mut working = None;
    for (device, context, waiting) in asked {
        match waiting.until(deadline) {
            None => {
                working = Some(Working(device));
                locked(&LATE).push((device, waiting));
            }
            Some(answer) if answer.is_success() => progress::finished_context(names::name_of(context)),
            Some(answer) if errors::is_at_rest(answer) => {}
            Some(answer) => unsure = Some(Refusal::NotQuietOn(device, answer.0)),
        }
    }
    working.map_or(Ok(unsure), Err)
}
