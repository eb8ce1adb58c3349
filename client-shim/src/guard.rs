//! What stands around every hook: one level of entry in a thread, no panic across the C boundary, and the driver's
//! function called at most once.
//!
//! A hook's logic returns the result for the program, or a [`Bypass`]: the reason for which the library has no part in
//! this call. "We let it pass" is thus a value with a name and never a forgotten branch. Whatever the logic does, the
//! program gets what the driver said: if the logic had called the driver before it bailed out or panicked, that answer
//! is used; if not, the driver is called then.

use std::{
    cell::Cell,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    notes::{self, Event},
    sys::CUresult,
    table::Hook,
};

/// Declares the reasons, their texts and the list of them all.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $text:literal,)+) => {
        /// Why a call or a lookup went to the driver untouched.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bypass {
            $($(#[$doc])* $reason,)+
        }

        impl Bypass {
            /// Every reason.
            #[cfg(test)]
            pub(crate) const ALL: [Self; [$($text),+].len()] = [$(Self::$reason),+];

            /// The reason in words, for the log.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Self::$reason => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// The driver, or something it loaded, called a hooked function while it worked for a hook.
    Reentered = "called from inside another hooked call",
    /// The hook's own code panicked; the panic's message stands on standard error.
    Panicked = "an error inside this library",
    /// Nobody asked for a check of the daemon.
    NotRequired = "MPS_SHIM_REQUIRE is not set",
    /// The process is the MPS server: the daemon is its parent and may be busy starting it.
    IsServer = "this is the MPS server itself",
    /// The driver was already initialised, so it no longer looks for a daemon.
    AlreadyInitialised = "the driver is already initialised",
    /// `cuGetProcAddress` found no function, so there is none to replace.
    NotFound = "the driver has no such function",
    /// `cuGetProcAddress` found a function that is none of ours.
    NotHooked = "the function asked for is not hooked",
    /// The function found belongs to a second copy of the driver, or to a wrapper around the first.
    SecondCopy = "found in a second driver library",
    /// A library has a function of the same name that is not the driver's.
    NotDriver = "found in a library that is not the driver",
    /// The library it was found in cannot be kept loaded: it lives in another linker namespace or is the program.
    NotKept = "found in a library that cannot be kept loaded",
    /// `cuInit` has not succeeded in this process, or it is a forked child.
    NotKeeping = "nothing is kept in this process",
    /// Something is wrong with the arguments or the context, and the driver says it best.
    ForTheDriver = "the driver is to say what is wrong with it",
    /// Memory that this library did not allocate.
    NotOurs = "the memory is not this library's",
}

/// The driver's function behind a hook, which can be called once.
pub(crate) struct Driver<F> {
    function: F,
    progress: Progress,
}

#[derive(Clone, Copy)]
enum Progress {
    NotCalled,
    InCall,
    Answered(CUresult),
}

impl<F: Copy> Driver<F> {
    /// Calls the driver's function through `with`; a second time only repeats the first answer.
    pub(crate) fn call(&mut self, with: impl FnOnce(F) -> CUresult) -> CUresult {
        match self.progress {
            Progress::NotCalled => {
                self.progress = Progress::InCall;
                let answer = with(self.function);
                self.progress = Progress::Answered(answer);
                answer
            }
            // `with` unwound: whether the driver did its work is unknown, and it must not do it twice.
            Progress::InCall => CUresult::CUDA_ERROR_UNKNOWN,
            Progress::Answered(answer) => answer,
        }
    }
}

/// Runs the `logic` of `hook` for one call of the program; `pass` calls the driver's function with the program's
/// arguments. `function` is the driver's own.
pub(crate) fn run<F: Copy>(
    hook: &Hook,
    function: F,
    logic: impl FnOnce(&mut Driver<F>) -> Result<CUresult, Bypass>,
    pass: impl FnOnce(F) -> CUresult,
) -> CUresult {
    let mut driver = Driver { function, progress: Progress::NotCalled };
    let outcome = match Inside::enter() {
        None => Err(Bypass::Reentered),
        Some(_inside) => unpanicked(|| {
            notes::note(hook, Event::Reached);
            logic(&mut driver)
        })
        .unwrap_or(Err(Bypass::Panicked)),
    };
    outcome.unwrap_or_else(|reason| {
        notes::note(hook, Event::Bypassed(reason));
        driver.call(pass)
    })
}

/// Runs `work`; `None` if it panicked.
pub(crate) fn unpanicked<T>(work: impl FnOnce() -> T) -> Option<T> {
    // What `work` borrowed is either the call state, which is consistent at every step, or given up by the caller.
    catch_unwind(AssertUnwindSafe(work)).map_err(mem::forget).ok()
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
    use crate::{api::cuInit, sys::CUresult};

    const ANSWER: CUresult = CUresult(7);

    /// A driver's function that counts its calls.
    fn counting(calls: &Cell<u32>) -> CUresult {
        calls.set(calls.get() + 1);
        ANSWER
    }

    #[test]
    fn a_panic_before_the_drivers_call_calls_it_once() {
        let calls = Cell::new(0);
        let answer = run(&cuInit::HOOK, (), |_| panic!("expected by the test"), |()| counting(&calls));
        assert_eq!((answer, calls.get()), (ANSWER, 1));
    }

    #[test]
    fn a_panic_after_the_drivers_call_keeps_its_answer() {
        let calls = Cell::new(0);
        let answer = run(
            &cuInit::HOOK,
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
            &cuInit::HOOK,
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
            &cuInit::HOOK,
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
            &cuInit::HOOK,
            (),
            |driver| {
                Ok(driver.call(|()| {
                    run(
                        &cuInit::HOOK,
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
        let after = run(&cuInit::HOOK, (), |_| Ok(CUresult::CUDA_SUCCESS), |()| counting(&calls));
        assert_eq!(after, CUresult::CUDA_SUCCESS, "the guard opens again");
    }
}
