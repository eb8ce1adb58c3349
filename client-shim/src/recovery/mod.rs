//! `MPS_SHIM_REPLAY=in-place`: a program whose context has died goes on with a fresh copy of the driver.
//!
//! A CUDA program that was hit by a fault, its own or a neighbour's, gets the same error from every call until it ends:
//! the driver's library never recovers. But the memory is still there ([`kept`](crate::kept)), and how everything else was
//! made is known. So a private copy of the driver's library is loaded beside the dead one, is given the same memory at
//! the same addresses and the same objects, and takes over ([`steps`] has the steps).
//!
//! ```text
//!  program ── hooks ── gate ── names, progress ── logic of the hook ──► the copy that lives
//!                      │ the answer is one of errors                     ▲
//!                      └──► recovery: everybody out, load, rebuild; then the dead one is cut off
//! ```
//!
//! Before the first recovery a call costs the gate, its notes of work, and nothing for names. Without the setting it
//! costs one look at a flag.
//!
//! Not recovered, with the reason on standard error and in `mps_shim_last_recovery`: a program with anything that
//! [`account`](crate::kept::account) counts, private tables that [`private`](crate::recovery::private) does not know among it; one
//! in the middle of a capture; one with a thread that does not come out of the driver; one that the operator has
//! terminated. A forked child never is: it has no driver.
#![expect(unsafe_code, reason = "asks the linker whose an address is, and what to do in forked children")]

mod ahead;
mod amputation;
mod announced;
pub(crate) mod burial;
mod exchange;
mod graphs;
mod memory;
mod objects;
mod others;
pub(crate) mod private;
mod refusal;
mod report;
mod rest;
mod set_again;
pub(crate) mod spare;
mod steps;
mod textures;
mod told;
mod variables;
mod with_others;

use std::{ffi::c_void, ptr::NonNull, sync::OnceLock, time::Duration};

pub(crate) use crate::cuda::gate::is_armed;
use crate::{
    cuda::{
        arguments::Subject,
        copies, dead, errors,
        functions::{Effect, Function, lookup::cuInit},
        gate, library, resources,
        result::CUresult,
        threads::{self, Here},
    },
    daemon::evidence,
    kept::{self, shared, work::progress},
    process::{failpoint::reached, log, settings, signals},
};
use told::Verdict;
pub(crate) use told::of_child;

/// How long a call waits while another thread recovers: longer than any recovery takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a call is named of which nobody knows what it does.
const UNNAMED: &str = "a function of a private table";

static CONSTANT_RANGES: OnceLock<ConstantRanges> = OnceLock::new();

/// Tells which ranges, by address and size, the program has said that it no longer writes.
pub(crate) type ConstantRanges = fn() -> Vec<(u64, u64)>;

/// From now on calls pass the gate: the driver has been initialised in this process.
pub(crate) fn arm(constant_ranges: ConstantRanges) {
    if !settings::is_replaying() || is_armed() {
        return;
    }
    // SAFETY: the handler is a function of ours in a library that is never unloaded.
    let is_known_in_children = unsafe { libc::pthread_atfork(None, None, Some(disarm)) } == 0;
    if !is_known_in_children || !copies::learn() {
        log::complain(format_args!("MPS_SHIM_REPLAY: the driver's file is not found, so nothing is recovered"));
        return;
    }
    library::remember_first(cuInit::FUNCTION.driver());
    dead::prepare();
    burial::prepare();
    let _the_same = CONSTANT_RANGES.set(constant_ranges);
    // A forked child takes no lock of ours.
    resources::watch_freed(|address| {
        if is_armed() {
            private::is_freed(address);
        }
    });
    gate::arm();
    announced::listen();
    variables::watch();
    spare::begin();
}

/// Runs in a forked child before anything else does.
extern "C" fn disarm() {
    gate::disarm();
    signals::in_a_child();
}

/// A call of a hooked function under way by the shortest way: nothing was ever recovered, so nothing is translated, and
/// there is little to be noted of it.
#[derive(Debug)]
pub(crate) struct Quick {
    given: progress::Quick,
    _pass: gate::Healthy,
}

/// Begins such a call: the driver's function, and what is to be told of its end; `None` where it must go another way
/// ([`through`]). The second to fourth argument are constants, from which the compiler makes the few instructions that each function needs.
#[inline(always)]
pub(crate) fn quickly(
    called: &Function,
    effect: Effect,
    compiles: bool,
    is_per_thread: bool,
    subject: &Subject,
) -> Option<(NonNull<c_void>, Quick)> {
    if !progress::may_be_quick(effect) || with_others::may_record_elsewhere(effect, subject) {
        return None;
    }
    let here = threads::own();
    let pass = gate::healthy(&here.passer, compiles)?;
    // Inside, where nobody exchanges it.
    let Some(address) = called.known_for_call() else {
        pass.withdraw();
        return None;
    };
    let Some(given) = progress::begin_quickly(effect, is_per_thread, subject, here.current(), pass.seat()) else {
        pass.withdraw();
        return None;
    };
    Some((address, Quick { given, _pass: pass }))
}

impl Quick {
    /// It has come back with this answer.
    #[inline(always)]
    pub(crate) fn end(self, answer: CUresult) {
        self.given.end(answer);
    }
}

/// One call in the ordinary way: nothing was ever recovered, so nothing is translated. `None` where that is not so, and
/// then `call` was not made.
fn healthily(
    here: &Here,
    called: &Function,
    subject: &Subject,
    call: &mut dyn FnMut(bool) -> CUresult,
) -> Option<CUresult> {
    if with_others::may_record_elsewhere(called.effect(), subject) {
        return None;
    }
    let pass = gate::healthy(&here.passer, called.compiles())?;
    let given = progress::begin_healthy(called.effect(), called.is_per_thread(), subject, here.current(), pass.seat());
    let answer = call(false);
    given.end(answer);
    Some(answer)
}

/// One call of a hooked function, with names for handles if `call` is told so. It has this answer already if it was made
/// [`quickly`].
#[inline(never)]
pub(crate) fn through(
    called: &'static Function,
    subject: &Subject,
    answer: Option<CUresult>,
    call: &mut dyn FnMut(bool) -> CUresult,
) -> CUresult {
    threads::here(|here| {
        let answer = answer.or_else(|| healthily(here, called, subject, call));
        match answer {
            Some(answer) if errors::meaning(answer).is_none() => answer,
            _ => pass(here, called, subject, answer, call),
        }
    })
}

/// One call that is in no table of ours: of a function of which nobody knows what it takes. It passes the gate, and if it
/// finds the context dead that is the beginning of a recovery; but it says nothing of work, and nothing of lost work is
/// told by it, since what it returns may be no code.
pub(crate) fn aside(call: &mut dyn FnMut() -> CUresult) {
    if !is_armed() {
        call();
        return;
    }
    threads::here(|here| pass_aside(here, call));
}

fn pass_aside(here: &Here, call: &mut dyn FnMut() -> CUresult) {
    if here.passer.is_inside() {
        call();
        return;
    }
    let mut is_again = false;
    loop {
        // Where it stays closed the call is made all the same: its answer cannot be made up.
        let pass = gate::enter(&here.passer, PATIENCE);
        let generation = library::generation();
        here.arrive(generation);
        progress::aside();
        let answer = call();
        let Some(meaning) = errors::meaning(answer) else { return };
        evidence::hear(answer, generation);
        let is_capturing = kept::is_capturing().unwrap_or(true);
        if (meaning == errors::Meaning::Perhaps && is_capturing) || !errors::is_confirmed(meaning) {
            return;
        }
        drop(pass);
        match steps::after(answer, meaning, (Effect::None, UNNAMED), generation, is_again) {
            Verdict::Again => is_again = true,
            Verdict::Answer(_) => return,
        }
    }
}

#[cold]
fn pass(
    here: &Here,
    called: &'static Function,
    subject: &Subject,
    answer: Option<CUresult>,
    call: &mut dyn FnMut(bool) -> CUresult,
) -> CUresult {
    if here.passer.is_inside() {
        progress::unseen(called.effect());
        return call(library::generation() > 0);
    }
    if let Some(answer) = with_others::instead(here, called, subject, PATIENCE) {
        return answer;
    }
    if answer.is_some() {
        reached("error-answered");
    }
    let mut healthy = answer;
    let mut is_again = false;
    let mut known = answer.unwrap_or(CUresult::CUDA_ERROR_UNKNOWN);
    loop {
        let Some(pass) = gate::enter(&here.passer, PATIENCE) else { return known };
        let living = library::generation();
        here.arrive(living);
        let (answer, generation) = match healthy.take() {
            // It was made and noted before the first recovery.
            Some(answer) => (answer, 0),
            None => {
                let (context, seat) = (here.current(), here.passer.seat());
                let effect = with_others::effect(called, subject);
                let mut given = progress::begin(effect, subject, called.is_per_thread(), context, seat);
                let of_recovery = if living > 0 { told::owed(here, called, subject.event, &mut given) } else { None };
                if let Some(error) = of_recovery.or_else(|| shared::owed(called.effect())) {
                    given.end(error, false);
                    return error;
                }
                if called.compiles() {
                    pass.compiles();
                }
                match with_others::call(called, subject, &mut || call(living > 0)) {
                    Ok(answer) => {
                        given.end(answer, living > 0 && told::knows(here));
                        (answer, living)
                    }
                    Err(error) => {
                        given.end(error, false);
                        return error;
                    }
                }
            }
        };
        let Some(meaning) = errors::meaning(answer) else {
            drop(pass);
            return with_others::settled(called.effect(), answer);
        };
        evidence::hear(answer, generation);
        // A question in the middle of a capture would break it, and one to another copy says nothing of this answer.
        let is_capturing = kept::is_capturing().unwrap_or(true);
        let is_asked = generation == living;
        if is_asked && ((meaning == errors::Meaning::Perhaps && is_capturing) || !errors::is_confirmed(meaning)) {
            return answer;
        }
        drop(pass);
        known = answer;
        match steps::after(answer, meaning, (called.effect(), called.text()), generation, is_again) {
            Verdict::Again => is_again = true,
            Verdict::Answer(answer) => {
                progress::has_told(called.effect(), subject, called.is_per_thread(), here.current());
                return answer;
            }
        }
    }
}
