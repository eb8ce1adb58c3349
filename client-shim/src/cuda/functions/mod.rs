//! Every function of the driver, each described in one row.
//!
//! A row has the name, the arguments by their types, what the call does to a stream's work ([`Effect`], where it is
//! not what the class does as a rule), and, for the hooks alone, what becomes of a call that the program makes:
//!
//! ```text
//! fn cuStreamDestroy_v2(stream: CUstream): EndsStream => kept::objects::ends;
//! fn cuEventRecord(event: CUevent, stream: CUstream) / _ptsz: RecordsEvent;
//!    name          arguments                           variant effect
//! fn cuCtxSetLimit(limit: CUlimit, value: usize) then kept::streams::limit(limit, value);
//! ```
//! `/ _ptsz` or `/ _ptds` stands for a second function, which is the same with the thread's own default stream. A row
//! without logic passes the call on. What stands behind `then` is done when it has succeeded, where
//! `written!(argument)` is what the driver has written through an argument, `one!(argument)` the same or nothing where that is
//! null, `each!(list, count)` what is in a list, and `name!()` the function's name.
//! `made Reason(argument)` counts what a successful call writes through the argument as not recoverable, or `made
//! Reason(argument, bytes)` a range of memory, and `gone(argument)` takes it out of the count. Before logic that counts, too,
//! `made` says for the manual page what becomes of it. Logic behind `=>` is given
//! the driver's function and all arguments, and says itself when it calls it.
//!
//! Each file has the rows of a class as a macro that hands them to another one: to `describe` here, which makes the
//! driver's side of each function, and to the hooks' `export`, which makes ours. So whatever is to be made of every
//! function needs no list of its own. Under test the compiler compares each row of the first block with the declaration
//! in NVIDIA's header; rows after `elsewhere` are in another release's header, and the texts of all of them are compared
//! below.
//!
//! The lists cover the driver API from CUDA 11 to 13.5. What is exported by the driver and in none of them is in
//! [`left_alone`], with the reason.

mod effect;
mod function;
#[cfg(test)]
mod left_alone;
#[cfg(test)]
mod tests;

pub(crate) use effect::Effect;
pub(crate) use function::Function;

use crate::process::settings;

/// Makes of each row of a class a module with the function's `Signature` and its `FUNCTION`, and with the variant's in
/// a module `per_thread` there; and of all rows together `ROWS`.
macro_rules! describe {
    (
        $file:ident: $class:ident $usual:ident;
        { $($row:tt)* }
        elsewhere { $($other:tt)* }
    ) => {
        use $crate::cuda::types::*;

        describe! { @rows $class $usual $($row)* $($other)* }

        /// The compiler compares each row with the declaration in the vendor's header.
        #[cfg(test)]
        mod against_the_header {
            #[expect(unused_imports, reason = "not every class names a type")]
            use {
                $crate::cuda::result::header::*,
                std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void},
            };

            describe! { @checks $($row)* }
        }
    };
    (
        @rows $class:ident $usual:ident
        $(
            $(#[$doc:meta])*
            fn $name:ident $arguments:tt $(/ $variant:ident)? $(: $effect:ident)?
            $(made $reason:ident($out:ident $(, $bytes:ident)?))? $(gone($key:ident))?
            $(then $note:expr)? $(=> $logic:path)?;
        )*
    ) => {
        /// The class's functions.
        pub(super) static ROWS: &[&super::Function] = &[
            $(&$name::FUNCTION, $(describe!(@variant $name $variant),)?)*
        ];

        $(
            $(#[$doc])*
            #[expect(non_snake_case, reason = "the driver's name")]
            pub(crate) mod $name {
                use super::*;
                use $crate::cuda::functions::{Class, Effect, Function};

                /// The driver's function.
                pub(crate) type Signature = describe!(@signature $arguments);

                /// What it does to a stream's work.
                pub(crate) const EFFECT: Effect = describe!(@effect $usual $($effect)?);

                /// Whether the driver may compile in it.
                pub(crate) const COMPILES: bool = Class::$class.compiles();

                /// Whether nothing of it is noted or counted, and nothing done in its place.
                const IS_PLAIN: bool = {
                    let done: &[&str] = &[
                        $(stringify!($reason),)? $(stringify!($key),)? $(stringify!($note),)? $(stringify!($logic),)?
                    ];
                    done.is_empty()
                };

                pub(crate) static FUNCTION: Function =
                    Function::new(concat!(stringify!($name), "\0"), Class::$class, EFFECT, IS_PLAIN);

                $(
                    /// The same with the thread's own default stream.
                    pub(crate) mod per_thread {
                        use super::{Class, EFFECT, Function, IS_PLAIN};

                        pub(crate) static FUNCTION: Function = Function::new(
                            concat!(stringify!($name), stringify!($variant), "\0"),
                            Class::$class,
                            EFFECT,
                            IS_PLAIN,
                        );
                    }
                )?
            }
        )*

        /// Names and arguments of all rows.
        #[cfg(test)]
        pub(super) const TEXTS: &[(&str, &str)] =
            &[$($(describe!(@text $name $variant $arguments),)? describe!(@text $name $arguments),)*];

        /// Names of all rows, why what they make cannot be made again, and what is done after them or in their place.
        #[cfg(test)]
        pub(super) const FATES: &[(&str, Option<&str>, &str)] = &[$((
            stringify!($name),
            describe!(@reason $($reason)?),
            concat!($(stringify!($note),)? $(stringify!($logic),)?),
        ),)*];
    };
    (
        @checks
        $(
            $(#[$doc:meta])*
            fn $name:ident $arguments:tt $(/ $variant:ident)? $(: $effect:ident)?
            $(made $reason:ident($out:ident $(, $bytes:ident)?))? $(gone($key:ident))?
            $(then $note:expr)? $(=> $logic:path)?;
        )*
    ) => {
        $(const _: describe!(@declared $arguments) = $name;)*
    };
    (@signature ($($argument:ident: $type:ty),* $(,)?)) => { unsafe extern "C" fn($($type),*) -> CUresult };
    (@declared ($($argument:ident: $type:ty),* $(,)?)) => { unsafe fn($($type),*) -> CUresult };
    (@variant $name:ident $variant:ident) => { &$name::per_thread::FUNCTION };
    (@effect $usual:ident) => { Effect::$usual };
    (@effect $usual:ident $effect:ident) => { Effect::$effect };
    (@reason) => { None };
    (@reason $reason:ident) => { Some(stringify!($reason)) };
    (@text $name:ident $arguments:tt) => { (stringify!($name), stringify!($arguments)) };
    (@text $name:ident $variant:ident $arguments:tt) => {
        (concat!(stringify!($name), stringify!($variant)), stringify!($arguments))
    };
}

macro_rules! classes {
    ($(#[doc = $subject:literal] $class:ident $file:ident,)+) => {
        $(#[macro_use] pub(crate) mod $file;)+

        /// What a function deals with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Class {
            $(#[doc = $subject] $class,)+
        }

        /// Every function, class by class.
        static CLASSES: &[&[&Function]] = &[$($file::ROWS),+];

        /// Names and argument types of all functions.
        #[cfg(test)]
        const TEXTS: &[&[(&str, &str)]] = &[$($file::TEXTS),+];

        /// What each class deals with, and what becomes of its functions.
        #[cfg(test)]
        pub(crate) const FATES: &[(&str, &[(&str, Option<&str>, &str)])] = &[$(($subject, $file::FATES)),+];
    };
}

classes! {
    /// The start, and the lookup of functions.
    Lookup lookup,
    /// Questions.
    Query query,
    /// Contexts.
    Context context,
    /// Device memory.
    Memory memory,
    /// Virtual memory management.
    Mapping mapping,
    /// Copies and sets.
    Copy copy,
    /// Stream-ordered memory.
    Pool pool,
    /// Host memory.
    Host host,
    /// Handles for other processes.
    Ipc ipc,
    /// Streams.
    Stream stream,
    /// Events.
    Event event,
    /// Modules and the linker.
    Module module,
    /// Libraries.
    Library library,
    /// Functions, kernels, launches.
    Kernel kernel,
    /// Graphs.
    Graph graph,
    /// Arrays, textures, surfaces.
    Array array,
    /// Memory and semaphores of others.
    External external,
    /// The rest.
    Other other,
}

impl Class {
    /// Whether the driver may compile in a function of this class, however long that takes: a launch loads what was not
    /// needed before.
    pub(crate) const fn compiles(self) -> bool {
        matches!(self, Self::Module | Self::Library | Self::Kernel)
    }

    /// Whether functions of this class are replaced by ours under the settings of this process.
    pub(crate) fn is_active(self) -> bool {
        self == Self::Lookup || settings::is_keeping()
    }

    /// Whether functions of this class are those by which a program hears that its context is dead.
    pub(crate) fn tells_of_errors(self) -> bool {
        match self {
            Self::Context | Self::Memory | Self::Copy | Self::Stream | Self::Event | Self::Kernel | Self::Graph => true,
            Self::Lookup
            | Self::Query
            | Self::Mapping
            | Self::Pool
            | Self::Host
            | Self::Ipc
            | Self::Module
            | Self::Library
            | Self::Array
            | Self::External
            | Self::Other => false,
        }
    }
}

/// Every function.
pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    CLASSES.iter().copied().flatten().copied()
}

/// Names and argument types of all functions.
#[cfg(test)]
pub(crate) fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    TEXTS.iter().copied().flatten().copied()
}
