//! Who is told that what another process was to give is lost, beside a copy of the driver that lives on.
//!
//! What streams wait for is noted until it is known to have come. A call by which the program learns that work is done
//! looks at all of it first: if some was lost each thread that had begun by then, and one at least, gets the error once,
//! from such a call or from any other that tells ([`Effect::tells`]).

use std::{
    cell::Cell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::{
    Shared, is_used, shared,
    slot::{State, Wait},
};
use crate::{
    cuda::{functions::Effect, result::CUresult},
    process::birth,
};

/// How often something was lost, by which error the last time, and when, in ticks of the kernel.
static LOSSES: AtomicU64 = AtomicU64::new(0);
static ERROR: AtomicU32 = AtomicU32::new(0);
static WHEN: AtomicU64 = AtomicU64::new(0);
/// The last one of which some thread was told.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Waits that are not looked at when another one comes.
const FEW: usize = 64;

thread_local! {
    /// The last one of which this thread was told.
    static OWN: Cell<u64> = const { Cell::new(0) };
    /// When it began; 0 before anybody has asked.
    static BORN: Cell<u64> = const { Cell::new(0) };
}

/// A stream is to wait for something.
pub(super) fn expect(wait: Wait) {
    shared(|shared| {
        let latest = shared.awaited.entry(wait.slot.address(wait.number)).or_insert(wait);
        if latest.number < wait.number {
            *latest = wait;
        }
        shared.pending.push(wait);
        if shared.pending.len() > shared.many.max(FEW) {
            shared.look();
            shared.many = 2 * shared.pending.len();
        }
    });
}

/// The driver has refused it.
pub(super) fn expect_no_more(wait: &Wait) {
    shared(|shared| {
        if let Some(at) = shared.pending.iter().rposition(|of| of == wait) {
            shared.pending.swap_remove(at);
        }
    });
}

fn lose(error: CUresult) {
    ERROR.store(error.0, Ordering::Release);
    WHEN.store(birth::now(), Ordering::Release);
    LOSSES.fetch_add(1, Ordering::AcqRel);
}

impl Shared {
    /// Takes out what is known to have come, and what is lost; whether some has come that is not settled.
    pub(super) fn look(&mut self) -> bool {
        let (mut lost, mut is_unsettled) = (None, false);
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|wait| match wait.state(self.has_ended(wait.owner)) {
            State::Come => false,
            State::Open => true,
            State::Unsettled => {
                is_unsettled = true;
                true
            }
            State::Lost(error) => {
                lost = Some(error);
                false
            }
        });
        self.pending = pending;
        lost.into_iter().for_each(lose);
        is_unsettled
    }
}

fn owes() -> bool {
    let last = LOSSES.load(Ordering::Acquire);
    if OWN.get() >= last {
        return false;
    }
    if BORN.get() == 0 {
        BORN.set(birth::of_this_thread());
    }
    BORN.get() <= WHEN.load(Ordering::Acquire) || TOLD.load(Ordering::Acquire) < last
}

/// The error that this thread has to report, because what it waited for was lost and it has not said so. It has now.
pub(crate) fn owed(effect: Effect) -> Option<CUresult> {
    if LOSSES.load(Ordering::Acquire) == 0 || !effect.tells() || !owes() {
        return None;
    }
    let last = LOSSES.load(Ordering::Acquire);
    OWN.set(last);
    TOLD.fetch_max(last, Ordering::AcqRel);
    Some(CUresult(ERROR.load(Ordering::Acquire)))
}

/// The error that this thread has to report, and goes on to have.
pub(super) fn still_owed() -> Option<CUresult> {
    owes().then(|| CUresult(ERROR.load(Ordering::Acquire)))
}

/// Whether a call that has succeeded says that work is done.
fn finishes(effect: Effect) -> bool {
    matches!(
        effect,
        Effect::FinishesStream
            | Effect::FinishesEvent
            | Effect::FinishesContext
            | Effect::CopiesToHost
            // There is a time only when both events have come.
            | Effect::ReadsEvents
    )
}

/// Whether a call that has succeeded is to be believed only when others know more.
pub(crate) fn is_to_be_awaited(effect: Effect, answer: CUresult) -> bool {
    is_used() && answer.is_success() && finishes(effect) && shared(Shared::look)
}

/// What the program is told of a call with this answer.
pub(crate) fn judged(effect: Effect, answer: CUresult) -> CUresult {
    let is_of_interest = is_used() && answer.is_success() && finishes(effect);
    if is_of_interest { owed(effect).unwrap_or(answer) } else { answer }
}
