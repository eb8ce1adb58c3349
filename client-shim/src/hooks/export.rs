//! Our side of every function: what the program calls in the driver's place.
//!
//! Each row of [`functions`](crate::cuda::functions) becomes an exported C function that passes the gate of recoveries,
//! runs the row's logic inside [`around`](super::around), or calls the driver.
//!
//! Of each there are several functions, so that the one that nearly every call takes is short: `entry` goes the shortest way
//! ([`recovery::quickly`](crate::recovery::quickly)), and has nothing else in it for which its arguments would have to be
//! saved before the driver is called. `through` is any other way where programs are recovered, `directly` where none are,
//! and `noted` has the row's logic.
#![expect(unsafe_code, reason = "C functions that are exported and that call the driver")]

mod aside;

use super::Hook;
use aside::Aside;

/// In what stands behind `then`: what the driver has written through an argument.
macro_rules! written {
    ($place:ident) => {{
        // SAFETY: it is the program's argument, and the driver has just written there with success.
        unsafe { $place.read_unaligned() }
    }};
}

/// In what stands behind `then`: what is in a list of so many.
macro_rules! each {
    ($list:ident, $count:ident) => {
        (0..if $list.is_null() { 0 } else { usize::try_from($count).unwrap_or(0) }).map(move |at| {
            // SAFETY: it is the program's argument, which has so many, and the driver has just succeeded with them.
            unsafe { $list.wrapping_add(at).read_unaligned() }
        })
    };
}

/// In what stands behind `then`: the same, or nothing where the program has not asked for it.
macro_rules! one {
    ($place:ident) => {
        (!$place.is_null()).then(|| written!($place)).into_iter()
    };
}

/// In what stands behind `then`: the row's own name.
macro_rules! name {
    () => {
        FUNCTION.text()
    };
}

/// In what stands behind `then`: the text that the driver has written the address of stays where it is.
macro_rules! lasting {
    ($place:ident) => {{
        // SAFETY: it is the program's argument, and the driver has just written there with success.
        unsafe { $crate::cuda::texts::keep($place) }
    }};
}

/// Makes of each row of a class a module with its `entry`, and of all rows together `HOOKS`.
macro_rules! export {
    (
        $file:ident: $class:ident $usual:ident;
        { $($row:tt)* }
        elsewhere { $($other:tt)* }
    ) => {
        pub(crate) mod $file {
            // The logic of rows is named from here on.
            use $crate::{cuda::{functions::{self, $file as described}, types::*}, *};
            use $crate::hooks::export::Aside;

            /// Whether they are copies and sets.
            const COPIES: bool = matches!(functions::Class::$class, functions::Class::Copy);
            // In some classes nobody asks.
            const _: bool = COPIES;

            export! { @rows $($row)* $($other)* }
        }
    };
    (
        @rows
        $(
            $(#[$doc:meta])*
            fn $name:ident $arguments:tt $(/ $variant:ident)? $(: $effect:ident)?
            $(made $reason:ident($out:ident $(, $bytes:ident)?))? $(gone($key:ident))?
            $(then $note:expr)? $(=> $logic:path)?;
        )*
    ) => {
        /// The class's hooks.
        pub(in $crate::hooks::export) static HOOKS: &[&hooks::Hook] =
            &[$(&$name::HOOK, $(export!(@variant $name $variant),)?)*];

        $(export! {
            @row $name [$($variant)?] {
                $arguments [$(made $reason $out $($bytes)?)? $(gone $key)?] [$(then $note)? $(=> $logic)?]
            }
        })*
    };
    (@row $name:ident [$($variant:ident)?] $rest:tt) => {
        #[expect(non_snake_case, reason = "the driver's name")]
        pub(crate) mod $name {
            use super::*;
            use described::$name::{FUNCTION, Signature};

            export! { @entry (stringify!($name)) false $name $rest }
            export! { @per_thread $name [$($variant)?] $rest }
        }
    };
    (@per_thread $name:ident [] $rest:tt) => {};
    (@per_thread $name:ident [$variant:ident] $rest:tt) => {
        /// The same with the thread's own default stream.
        pub(crate) mod per_thread {
            use super::{Signature, *};
            use described::$name::per_thread::FUNCTION;

            export! { @entry (concat!(stringify!($name), stringify!($variant))) true $name $rest }
        }
    };
    (@variant $name:ident $variant:ident) => { &$name::per_thread::HOOK };
    (
        @entry ($symbol:expr) $per_thread:literal $name:ident { ($($argument:ident: $type:ty),* $(,)?) $count:tt $logic:tt }
    ) => {
        pub(crate) static HOOK: hooks::Hook = hooks::Hook { function: &FUNCTION, entry: entry as *const () };

        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        pub(crate) unsafe extern "C" fn entry($($argument: $type),*) -> CUresult {
            let subject = $crate::cuda::arguments::Subject::default()$(.with($argument))*;
            let (effect, compiles) = (described::$name::EFFECT, described::$name::COMPILES);
            let begun = $crate::recovery::quickly(&FUNCTION, effect, compiles, $per_thread, &subject);
            let Some((address, quick)) = begun else {
                return match $crate::recovery::is_armed() {
                    // SAFETY: the program's own call, with its own arguments.
                    true => unsafe { through(false, CUresult::CUDA_SUCCESS, $($argument),*) },
                    // SAFETY: as above.
                    false => unsafe { directly($($argument),*) },
                };
            };
            let aside = Arguments { $($argument: Aside::new(),)* };
            let _: &Arguments = &aside;
            $(aside.$argument.put($argument);)*
            // SAFETY: the address was found under this function's name, whose type this is.
            let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Signature>(address.as_ptr()) };
            // SAFETY: the program's own call, with its own arguments.
            let answer = unsafe { of(function, $($argument),*) };
            quick.end(answer);
            if answer.is_success() || $crate::cuda::errors::meaning(answer).is_none() {
                return answer;
            }
            $(
                // SAFETY: it was put there above.
                let $argument = unsafe { aside.$argument.take() };
            )*
            // SAFETY: the program's own call, with its own arguments.
            unsafe { through(true, answer, $($argument),*) }
        }

        /// The arguments, for a call that is not over when the driver has answered.
        struct Arguments {
            $($argument: Aside<$type>,)*
        }

        /// The call without a gate, since there is no recovery.
        #[inline(never)]
        unsafe extern "C" fn directly($($argument: $type),*) -> CUresult {
            // SAFETY: the program's own call, with its own arguments.
            let answer = unsafe { call($($argument),*) };
            $crate::daemon::evidence::hear(answer, $crate::cuda::library::generation());
            answer
        }

        /// The call by another way than the shortest, by which it may have been made and have had this answer.
        #[cold]
        #[inline(never)]
        unsafe extern "C" fn through(is_made: bool, answer: CUresult, $($argument: $type),*) -> CUresult {
            let answer = is_made.then_some(answer);
            let subject = $crate::cuda::arguments::Subject::default()$(.with($argument))*;
            $crate::recovery::through(&FUNCTION, &subject, answer, &mut |is_renamed| {
                if !is_renamed {
                    // SAFETY: the program's own call, with its own arguments.
                    return unsafe { call($($argument),*) };
                }
                let launched = $crate::cuda::arguments::Launched::default()$(.with($argument))*;
                $(
                    let Ok($argument) = $crate::cuda::arguments::Argument::hold($argument, &launched) else {
                        return $crate::hooks::around::untranslatable(&FUNCTION);
                    };
                )*
                launched.end();
                // SAFETY: the program's own call, with handles of the driver that lives.
                let answer = unsafe { call($(<$type as $crate::cuda::arguments::Argument>::pass(&$argument)),*) };
                if answer.is_success() {
                    $(<$type as $crate::cuda::arguments::Argument>::name_results(&$argument);)*
                }
                answer
            })
        }

        /// The call in the handles of the driver that lives.
        #[inline(always)]
        unsafe extern "C" fn call($($argument: $type),*) -> CUresult {
            let Some(address) = FUNCTION.driver_for_call() else {
                return CUresult::CUDA_ERROR_STUB_LIBRARY;
            };
            // SAFETY: the address was found under this function's name, whose type this is.
            let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Signature>(address.as_ptr()) };
            // SAFETY: the program's own call, with its own arguments.
            unsafe { of(function, $($argument),*) }
        }

        /// The same of the driver's function.
        #[inline(always)]
        unsafe extern "C" fn of(function: Signature, $($argument: $type),*) -> CUresult {
            export!(@guarded $name function ($($argument: $type),*) $logic);
            export!(@counted $name function ($($argument: $type),*) $count);
            // SAFETY: the program's own call, with its own arguments.
            unsafe { function($($argument),*) }
        }
    };
    (@counted $name:ident $function:ident ($($argument:ident: $type:ty),*) []) => {};
    (@counted $name:ident $function:ident ($($argument:ident: $type:ty),*) [made $reason:ident $out:ident]) => {
        if $crate::process::settings::is_recording() {
            // SAFETY: the program's own call, with its own arguments.
            let answer = unsafe { $function($($argument),*) };
            if answer.is_success() && !$out.is_null() {
                // SAFETY: the driver has just written there.
                let object = unsafe { $out.read_unaligned() };
                $crate::kept::account::made(stringify!($name), $crate::kept::account::Reason::$reason, object.key());
            }
            return answer;
        }
    };
    (
        @counted $name:ident $function:ident ($($argument:ident: $type:ty),*) [made $reason:ident $out:ident $bytes:ident]
    ) => {
        export!(@guarded $name $function ($($argument: $type),*) [then $crate::kept::account::lost_range(
            stringify!($name), $crate::kept::account::Reason::$reason, written!($out), $bytes,
        )]);
    };
    (@counted $name:ident $function:ident ($($argument:ident: $type:ty),*) [gone $key:ident]) => {
        if $crate::process::settings::is_recording() {
            // SAFETY: the program's own call, with its own arguments.
            let answer = unsafe { $function($($argument),*) };
            if answer.is_success() {
                $crate::kept::account::gone($key.key());
            }
            return answer;
        }
    };

    (@guarded $name:ident $function:ident $arguments:tt []) => {};
    (@guarded $name:ident $function:ident $arguments:tt [then $note:expr]) => {
        export!(@run ($crate::hooks::around::is_noted(&FUNCTION, COPIES)) $function $arguments |driver| {
            let answer = driver.pass();
            if answer.is_success() {
                $crate::hooks::around::Outcome::outcome($note)?;
            }
            Ok(answer)
        });
    };
    (@guarded $name:ident $function:ident ($($argument:ident: $type:ty),*) [=> $logic:path]) => {
        export!(
            @run (FUNCTION.is_active()) $function ($($argument: $type),*) |driver| $logic(driver, $($argument),*)
        );
    };
    (@run ($is_run:expr) $function:ident ($($argument:ident: $type:ty),*) $logic:expr) => {
        if $is_run {
            /// The same with what this library does about it.
            #[inline(never)]
            unsafe extern "C" fn noted($function: Signature, $($argument: $type),*) -> CUresult {
                $crate::hooks::around::run(
                    &FUNCTION,
                    $function,
                    $logic,
                    // SAFETY: the program's own call, with its own arguments.
                    |function| unsafe { function($($argument),*) },
                )
            }

            // SAFETY: the program's own call, with its own arguments.
            return unsafe { noted($function, $($argument),*) };
        }
    };
}

/// Every entry, by class.
pub(crate) mod entries {
    lookup!(export);
    query!(export);
    context!(export);
    memory!(export);
    mapping!(export);
    copy!(export);
    pool!(export);
    host!(export);
    ipc!(export);
    stream!(export);
    event!(export);
    module!(export);
    library!(export);
    kernel!(export);
    graph!(export);
    array!(export);
    external!(export);
    other!(export);
}

/// Every hook, class by class.
static HOOKS: &[&[&Hook]] = &[
    entries::lookup::HOOKS,
    entries::query::HOOKS,
    entries::context::HOOKS,
    entries::memory::HOOKS,
    entries::mapping::HOOKS,
    entries::copy::HOOKS,
    entries::pool::HOOKS,
    entries::host::HOOKS,
    entries::ipc::HOOKS,
    entries::stream::HOOKS,
    entries::event::HOOKS,
    entries::module::HOOKS,
    entries::library::HOOKS,
    entries::kernel::HOOKS,
    entries::graph::HOOKS,
    entries::array::HOOKS,
    entries::external::HOOKS,
    entries::other::HOOKS,
];

/// Every hook.
pub(super) fn hooks() -> impl Iterator<Item = &'static Hook> {
    HOOKS.iter().copied().flatten().copied()
}
