//! What stands around every hook: one level of entry in a thread, no panic across the C boundary, and the driver's
//! function called at most once.
//!
//! Whatever a hook's logic does, the program gets what the driver said: if the logic had called the driver before it
//! bailed out or panicked, that answer is used; if not, the driver is called then.

use std::cell::Cell;

use super::notes::{self, Event};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::Function,
        result::CUresult,
    },
    kept,
    process::{log, panics::unpanicked},
};

/// Runs the `logic` of a function for one call of the program; `pass` calls the driver's function with the program's
/// arguments. `function` is the driver's own.
pub(crate) fn run<F: Copy>(
    called: &Function,
    function: F,
    logic: impl FnOnce(&mut Driver<F>) -> Result<CUresult, Bypass>,
    pass: impl Fn(F) -> CUresult,
) -> CUresult {
    let mut driver = Driver::new(function, &pass);
    let outcome = match Inside::enter() {
        None => Err(Bypass::Reentered),
        Some(_inside) => unpanicked(|| {
            notes::note(called, Event::Reached);
            logic(&mut driver)
        })
        .unwrap_or(Err(Bypass::Panicked)),
    };
    outcome.unwrap_or_else(|reason| {
        notes::note(called, Event::Bypassed(reason));
        driver.pass()
    })
}

/// Whether anything may have to be noted when a call of this function has succeeded. `copies` says whether it is a copy or
/// a set, and is a constant.
#[inline(always)]
pub(crate) fn is_noted(called: &Function, copies: bool) -> bool {
    // Of those it is what they write to variables.
    (!copies || kept::has_variables()) && called.is_active()
}

/// What noting a call gives: nothing, or that nothing is kept.
pub(crate) trait Outcome {
    /// The same as a result.
    fn outcome(self) -> Result<(), Bypass>;
}

impl Outcome for () {
    fn outcome(self) -> Result<(), Bypass> {
        Ok(self)
    }
}

impl Outcome for Result<(), Bypass> {
    fn outcome(self) -> Result<(), Bypass> {
        self
    }
}

/// A call that cannot be translated.
pub(crate) fn untranslatable(called: &Function) -> CUresult {
    let name = called.text();
    log::complain(format_args!("{name} cannot be used after a recovery: CUDA_ERROR_NOT_SUPPORTED (801)"));
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

/// While it lives, this thread is inside a hook.
struct Inside;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Inside {
    fn enter() -> Option<Self> {
        (!INSIDE.replace(true)).then_some(Self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{Bypass, run};
    use crate::cuda::{functions::lookup::cuInit, result::CUresult};

    const ANSWER: CUresult = CUresult(7);

    /// A driver's function that counts its calls.
    fn counting(calls: &Cell<u32>) -> CUresult {
        calls.set(calls.get() + 1);
        ANSWER
    }

    #[test]
    fn a_panic_before_the_drivers_call_calls_it_once() {
        let calls = Cell::new(0);
        let answer = run(&cuInit::FUNCTION, (), |_| panic!("expected by the test"), |()| counting(&calls));
        assert_eq!((answer, calls.get()), (ANSWER, 1));
    }

    #[test]
    fn a_panic_after_the_drivers_call_keeps_its_answer() {
        let calls = Cell::new(0);
        let answer = run(
            &cuInit::FUNCTION,
            (),
            |driver| {
                driver.call(|()| counting(&calls));
                panic!("expected by the test")
            },
            |()| counting(&calls),
        );
        assert_eq!((answer, calls.get()), (ANSWER, 1));
    }

    #[test]
    fn a_panic_in_the_middle_of_the_drivers_call_never_repeats_it() {
        let calls = Cell::new(0);
        let answer = run(
            &cuInit::FUNCTION,
            (),
            |driver| {
                Ok(driver.call(|()| {
                    counting(&calls);
                    panic!("expected by the test")
                }))
            },
            |()| counting(&calls),
        );
        assert_eq!((answer, calls.get()), (CUresult::CUDA_ERROR_UNKNOWN, 1));
    }

    #[test]
    fn a_bypass_after_the_drivers_call_does_not_call_it_again() {
        let calls = Cell::new(0);
        let answer = run(
            &cuInit::FUNCTION,
            (),
            |driver| {
                driver.call(|()| counting(&calls));
                Err(Bypass::NotHooked)
            },
            |()| counting(&calls),
        );
        assert_eq!((answer, calls.get()), (ANSWER, 1));
    }

    #[test]
    fn a_hook_called_from_inside_a_hook_goes_straight_to_the_driver() {
        let calls = Cell::new(0);
        let inner_logic_ran = Cell::new(false);
        let answer = run(
            &cuInit::FUNCTION,
            (),
            |driver| {
                Ok(driver.call(|()| {
                    run(
                        &cuInit::FUNCTION,
                        (),
                        |_| {
                            inner_logic_ran.set(true);
                            Ok(CUresult::CUDA_SUCCESS)
                        },
                        |()| counting(&calls),
                    )
                }))
            },
            |()| counting(&calls),
        );
        assert_eq!((answer, calls.get(), inner_logic_ran.get()), (ANSWER, 1, false));
        let after = run(&cuInit::FUNCTION, (), |_| Ok(CUresult::CUDA_SUCCESS), |()| counting(&calls));
        assert_eq!(after, CUresult::CUDA_SUCCESS, "the guard opens again");
    }
}
