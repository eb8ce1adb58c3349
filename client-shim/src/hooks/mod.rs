//! What the program reaches: every function of the driver under its own name, and the three ways to look one up.
//!
//! ```text
//!  program, cudart, ctypes        this library                                     libcuda.so.1
//!  linked call of cuInit ───────► export: cuInit ─ around ─ start ───────────────► cuInit
//!  dlsym(.., "cuInit") ─────────► dlsym: real lookup, then our entry instead ───── found there
//!  cuGetProcAddress("cuInit") ──► proc_address: driver's lookup, then our entry ── found there
//! ```
//!
//! There is nothing to be written here for a function: its row in [`functions`](crate::cuda::functions) says what
//! becomes of a call, and [`mod@export`] makes the entry of it. The library's own functions, `mps_state_…`, are in
//! [`state`]; it calls the driver through the entries, as the program does. Of libc's functions it has `dlsym`, and
//! `pthread_create` ([`threads`]).
//!
//! A function of which nothing is noted or counted has to be ours only where programs are recovered, since then every call
//! passes the gate; else lookups give out the driver's own.

mod around;
#[cfg(test)]
mod coverage;
mod dlsym;
mod export;
mod notes;
mod proc_address;
mod start;
mod state;
mod threads;

pub(crate) use export::entries;

use std::{
    ffi::{CStr, c_void},
    ptr::NonNull,
};

use crate::cuda::functions::Function;

/// A function of the driver, and ours in its place.
pub(crate) struct Hook {
    /// The driver's.
    function: &'static Function,
    /// Ours: the address of an exported function.
    entry: *const (),
}

// SAFETY: the addresses of functions and of their descriptions, which every thread may have.
#[expect(unsafe_code, reason = "raw pointers are not shared by default")]
unsafe impl Sync for Hook {}

impl Hook {
    /// Our function in the driver's place.
    fn entry(&self) -> *mut c_void {
        self.entry.cast_mut().cast()
    }
}

/// The hook for a symbol of that name.
fn by_name(name: &CStr) -> Option<&'static Hook> {
    // Nearly every lookup in nearly every program ends at this comparison.
    if !name.to_bytes().starts_with(b"cu") {
        return None;
    }
    export::hooks().find(|hook| hook.function.name == name)
}

/// The hook that is handed out and whose driver's function stands at `address`. One name can stand for several functions, by version;
/// the address says which it is.
fn by_driver_address(address: NonNull<c_void>) -> Option<&'static Hook> {
    export::hooks().find(|hook| hook.function.is_handed_out() && hook.function.driver() == Some(address))
}

#[cfg(test)]
mod tests {
    use super::{by_name, export};
    use crate::cuda::functions;

    #[test]
    fn every_function_is_hooked_and_found_by_its_name_and_by_no_other() {
        assert_eq!(export::hooks().count(), functions::all().count());
        for hook in export::hooks() {
            let name = hook.function.name;
            assert!(by_name(name).is_some_and(|found| std::ptr::eq(found, hook)), "{name:?} twice");
        }
        assert!(by_name(c"cuInit_v2").is_none());
        assert!(by_name(c"cu").is_none());
        assert!(by_name(c"malloc").is_none());
    }
}
