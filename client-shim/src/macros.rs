//! The `hooks!` table: one line for each hooked function of the driver.

/// From each line `fn name(argument: type, ..) => logic;` makes
/// - `entry::name`, the exported C function that a program calls in the driver's place: guard, panic boundary, logic;
/// - `signature::name`, the type of the driver's function;
/// - `hook::name`, its row in the table: name, entry, and the driver's address once known;
/// - a row of [`HOOKS`](crate::HOOKS), by which `dlsym` and `cuGetProcAddress` find it;
/// - under test, a check of the line against the declaration in NVIDIA's header, made by the compiler.
///
/// `logic` takes the [`Driver`](crate::guard::Driver) and the arguments and returns `Result<CUresult, Bypass>`.
macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) => $logic:path;)+) => {
        /// Every hook.
        pub(crate) static HOOKS: [&$crate::table::Hook; [$(stringify!($name)),+].len()] = [$(&hook::$name),+];

        #[expect(non_upper_case_globals, reason = "the driver's names")]
        pub(crate) mod hook {
            use super::entry;
            use $crate::table::Hook;

            hooks!(@rows 0; $($name)+);
        }

        pub(crate) mod signature {
            use super::*;

            $(
                #[expect(non_camel_case_types, reason = "the driver's name")]
                pub(crate) type $name = unsafe extern "C" fn($($type),*) -> CUresult;
            )+
        }

        mod entry {
            use super::*;

            $(
                $(#[$doc])*
                #[cfg_attr(not(test), unsafe(no_mangle))]
                #[cfg_attr(test, expect(non_snake_case, reason = "the driver's name"))]
                pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
                    let function = hook::$name.driver_for_call().map(|address| {
                        // SAFETY: the address was found under this function's name, whose type this is.
                        unsafe { std::mem::transmute::<*mut std::ffi::c_void, signature::$name>(address.as_ptr()) }
                    });
                    $crate::guard::run(
                        &hook::$name,
                        function,
                        |driver| $logic(driver, $($argument),*),
                        // SAFETY: the program's own call, with its own arguments.
                        |function| unsafe { function($($argument),*) },
                    )
                }
            )+
        }

        /// The compiler compares each line with the declaration in the vendor's header.
        #[cfg(test)]
        mod against_the_header {
            use $crate::sys::header::*;
            use std::ffi::{c_char, c_int, c_uint, c_void};

            $(const _: unsafe fn($($type),*) -> CUresult = $name;)+
        }
    };

    // Word 0 of the fork page belongs to the process, the next ones to the hooks in their order.
    (@rows $before:expr; $name:ident $($rest:ident)*) => {
        pub(crate) static $name: Hook =
            Hook::new(concat!(stringify!($name), "\0"), entry::$name as *const (), 1 + $before);
        hooks!(@rows $before + 1; $($rest)*);
    };
    (@rows $before:expr;) => {};
}
