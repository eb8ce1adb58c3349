//! How the driver's own functions are called: at most once for a call of the program, and why one went by us.
//!
//! The logic of a function takes the [`Driver`] and the program's arguments, and returns the result for the program or a
//! [`Bypass`]: the reason for which the library has no part in this call. "We let it pass" is thus a value with a name and
//! never a forgotten branch.

use super::result::CUresult;

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
pub(crate) struct Driver<'call, F> {
    function: F,
    /// Calls it with the program's arguments.
    pass: &'call dyn Fn(F) -> CUresult,
    progress: Progress,
}

#[derive(Clone, Copy)]
enum Progress {
    NotCalled,
    InCall,
    Answered(CUresult),
}

impl<'call, F: Copy> Driver<'call, F> {
    /// One that was not called yet, and how it is called with the program's arguments.
    pub(crate) fn new(function: F, pass: &'call dyn Fn(F) -> CUresult) -> Self {
        Self { function, pass, progress: Progress::NotCalled }
    }

    /// Makes the program's call with the program's arguments.
    pub(crate) fn pass(&mut self) -> CUresult {
        self.call(self.pass)
    }

    /// Calls the driver's function through `with`, with other arguments; a second time only repeats the first answer.
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

/// `driver!(class::function(arguments))` calls the driver's own function, from the logic of another one.
///
/// `driver!(per_thread class::function(arguments))` calls the one whose default stream is the thread's own.
macro_rules! driver {
    (per_thread $class:ident::$name:ident($($argument:expr),* $(,)?)) => {
        driver!(@call $class $name ($crate::cuda::functions::$class::$name::per_thread::FUNCTION) $($argument),*)
    };
    ($class:ident::$name:ident($($argument:expr),* $(,)?)) => {
        driver!(@call $class $name ($crate::cuda::functions::$class::$name::FUNCTION) $($argument),*)
    };
    (@call $class:ident $name:ident ($function:path) $($argument:expr),*) => {
        match $function.driver() {
            Some(address) => {
                // SAFETY: the address was found under this function's name, whose type this is.
                let function = unsafe {
                    std::mem::transmute::<*mut std::ffi::c_void, $crate::cuda::functions::$class::$name::Signature>(
                        address.as_ptr(),
                    )
                };
                // SAFETY: the arguments are as the driver documents them, and pointers are to our own variables.
                unsafe { function($($argument),*) }
            }
            None => $crate::cuda::result::CUresult::CUDA_ERROR_NOT_SUPPORTED,
        }
    };
}
