//! The exported functions, by subject. Each takes what C gives, asks the rest of the library, and gives a `CUresult`.

mod array;
pub(crate) mod capture;
mod configured;
mod context;
mod device;
mod event;
mod execute;
pub(crate) mod foreign;
mod graph;
mod green;
mod ipc;
mod launch;
mod library;
mod memory;
mod peer;
mod per_thread;
mod pointer;
mod pool;
pub(crate) mod private;
mod query;
mod rows;
mod strange;
mod stream;
mod transfer;
mod values;
mod virtual_memory;

use crate::tables::Table;
use std::ffi::c_void;
use std::sync::OnceLock;

/// Addresses by exported name.
struct Functions(Table<&'static str, *const c_void>);

#[expect(unsafe_code, reason = "the addresses are of functions, which all threads may call")]
// SAFETY: a function's address is a number that never changes.
unsafe impl Send for Functions {}
#[expect(unsafe_code, reason = "the addresses are of functions, which all threads may call")]
// SAFETY: as above.
unsafe impl Sync for Functions {}

/// The address of an exported function.
fn address(name: &str) -> Option<*const c_void> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    let functions = FUNCTIONS.get_or_init(|| {
        let tables = [
            array::table(),
            capture::table(),
            configured::table(),
            context::table(),
            device::table(),
            event::table(),
            execute::table(),
            foreign::table(),
            graph::table(),
            green::table(),
            ipc::table(),
            launch::table(),
            library::table(),
            memory::table(),
            peer::table(),
            per_thread::table(),
            pointer::table(),
            pool::table(),
            query::table(),
            rows::table(),
            stream::table(),
            transfer::table(),
            values::table(),
            virtual_memory::table(),
        ];
        Functions(tables.into_iter().flatten().collect())
    });
    functions.0.get(name).copied()
}
