//! The `hooks!` table: one line for each function of the driver.

/// From each line `fn name(argument: type, ..);` of a class makes a module `name` with
/// - `name`, the exported C function that a program calls in the driver's place;
/// - `Signature`, the type of the driver's function;
/// - `HOOK`, its row: name, class, entry, and the driver's address once known.
///
/// From all lines together it makes `ROWS`, by which `dlsym` and `cuGetProcAddress` find them.
///
/// A line without more passes the call on. One with `=> logic` runs `logic` inside the guard and the panic boundary:
/// it takes the [`Driver`](crate::guard::Driver) and the arguments and returns `Result<CUresult, Bypass>`.
/// `made Reason(argument)` counts what a successful call writes through the argument as not recoverable, and
/// `gone(argument)` takes it out of the count.
///
/// Under test the compiler compares each line of the first block with the declaration in NVIDIA's header. Lines after
/// `elsewhere` are in another release's header, or stand for a variant of a function (`_ptds`, `_ptsz`: the same with
/// another default stream). The test in [`api`](crate::api) compares the texts of all of them.
macro_rules! hooks {
    (
        $class:ident;
        { $(
            $(#[$doc:meta])*
            fn $name:ident $arguments:tt $(made $reason:ident($out:ident))? $(gone($key:ident))? $(=> $logic:path)?;
        )* }
        elsewhere { $(
            $(#[$other_doc:meta])*
            fn $other:ident $other_arguments:tt
            $(made $other_reason:ident($other_out:ident))? $(gone($other_key:ident))? $(=> $other_logic:path)?;
        )* }
    ) => {
        use $crate::api::types::*;

        /// The class's functions.
        pub(super) static ROWS: &[&$crate::table::Hook] = &[$(&$name::HOOK,)* $(&$other::HOOK,)*];

        $(hooks!(
            @row $class $(#[$doc])* $name $arguments [$(made $reason $out)? $(gone $key)?] $($logic)?
        );)*
        $(hooks!(
            @row $class $(#[$other_doc])* $other $other_arguments
            [$(made $other_reason $other_out)? $(gone $other_key)?] $($other_logic)?
        );)*

        /// The compiler compares each line with the declaration in the vendor's header.
        #[cfg(test)]
        mod against_the_header {
            #[expect(unused_imports, reason = "not every class names a type")]
            use {$crate::sys::header::*, std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void}};

            $(const _: hooks!(@type $arguments) = $name;)*
        }

        /// Names and argument types of all lines.
        #[cfg(test)]
        pub(super) const TEXTS: &[(&str, &str)] = &[
            $((stringify!($name), stringify!($arguments)),)*
            $((stringify!($other), stringify!($other_arguments)),)*
        ];
    };

    (@type ($($argument:ident: $type:ty),* $(,)?)) => { unsafe fn($($type),*) -> CUresult };

    (
        @row $class:ident $(#[$doc:meta])* $name:ident ($($argument:ident: $type:ty),* $(,)?) $count:tt $($logic:path)?
    ) => {
        $(#[$doc])*
        #[expect(non_snake_case, reason = "the driver's name")]
        pub(crate) mod $name {
            use super::*;

            /// The driver's function.
            pub(crate) type Signature = unsafe extern "C" fn($($type),*) -> CUresult;

            pub(crate) static HOOK: $crate::table::Hook = $crate::table::Hook::new(
                concat!(stringify!($name), "\0"),
                $name as *const (),
                $crate::api::Class::$class,
            );

            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
                if $crate::replay::is_armed() {
                    let subject = $crate::replay::Subject::default()$(.with($argument))*;
                    let numbers = || -> Vec<u64> { vec![$($crate::replay::Argument::number($argument)),*] };
                    return $crate::replay::through(&HOOK, &subject, &numbers, &mut |is_renamed| {
                        if !is_renamed {
                            // SAFETY: the program's own call, with its own arguments.
                            return unsafe { call($($argument),*) };
                        }
                        let launched = $crate::replay::Launched::default();
                        $(
                            let Ok($argument) = $crate::replay::Argument::hold($argument, &launched) else {
                                return $crate::replay::untranslatable(&HOOK);
                            };
                        )*
                        launched.end();
                        // SAFETY: the program's own call, with handles of the driver that lives.
                        let answer = unsafe { call($(<$type as $crate::replay::Argument>::pass(&$argument)),*) };
                        if answer.is_success() {
                            $(<$type as $crate::replay::Argument>::name_results(&$argument);)*
                        }
                        answer
                    });
                }
                // SAFETY: the program's own call, with its own arguments.
                let answer = unsafe { call($($argument),*) };
                $crate::witness::hear(answer);
                answer
            }

            /// The call in the handles of the driver that lives.
            unsafe extern "C" fn call($($argument: $type),*) -> CUresult {
                let Some(address) = HOOK.driver_for_call() else {
                    return CUresult::CUDA_ERROR_STUB_LIBRARY;
                };
                // SAFETY: the address was found under this function's name, whose type this is.
                let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Signature>(address.as_ptr()) };
                hooks!(@guarded function ($($argument),*) $($logic)?);
                hooks!(@counted $name function ($($argument),*) $count);
                // SAFETY: the program's own call, with its own arguments.
                unsafe { function($($argument),*) }
            }
        }
    };
    (@counted $name:ident $function:ident ($($argument:ident),*) []) => {};
    (@counted $name:ident $function:ident ($($argument:ident),*) [made $reason:ident $out:ident]) => {
        if $crate::process::settings::is_recording() {
            // SAFETY: the program's own call, with its own arguments.
            let answer = unsafe { $function($($argument),*) };
            if answer.is_success() && !$out.is_null() {
                // SAFETY: the driver has just written there.
                let object = unsafe { $out.read_unaligned() };
                $crate::keep::account::made(stringify!($name), $crate::keep::account::Reason::$reason, object.key());
            }
            return answer;
        }
    };
    (@counted $name:ident $function:ident ($($argument:ident),*) [gone $key:ident]) => {
        if $crate::process::settings::is_recording() {
            // SAFETY: the program's own call, with its own arguments.
            let answer = unsafe { $function($($argument),*) };
            if answer.is_success() {
                $crate::keep::account::gone($key.key());
            }
            return answer;
        }
    };

    (@guarded $function:ident ($($argument:ident),*)) => {};
    (@guarded $function:ident ($($argument:ident),*) $logic:path) => {
        if HOOK.is_active() {
            return $crate::guard::run(
                &HOOK,
                $function,
                |driver| $logic(driver, $($argument),*),
                // SAFETY: the program's own call, with its own arguments.
                |function| unsafe { function($($argument),*) },
            );
        }
    };
}

/// `driver!(class::function(arguments))` calls the driver's own function, from the logic of another one.
macro_rules! driver {
    ($class:ident::$name:ident($($argument:expr),* $(,)?)) => {
        match $crate::api::$class::$name::HOOK.driver() {
            Some(address) => {
                // SAFETY: the address was found under this function's name, whose type this is.
                let function = unsafe {
                    std::mem::transmute::<*mut std::ffi::c_void, $crate::api::$class::$name::Signature>(
                        address.as_ptr(),
                    )
                };
                // SAFETY: the arguments are as the driver documents them, and pointers are to our own variables.
                unsafe { function($($argument),*) }
            }
            None => $crate::sys::CUresult::CUDA_ERROR_NOT_SUPPORTED,
        }
    };
}
