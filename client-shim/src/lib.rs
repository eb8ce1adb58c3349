//! The preloaded library for CUDA programs under ReMPS.
//!
//! It stands between a program and the driver's library and lets everything pass, except that it can refuse to start
//! CUDA without the MPS control daemon. The `hooks!` list below is the table of contents.
//!
//! ```text
//!  program, cudart, ctypes        this library                                        libcuda.so.1
//!  linked call of cuInit ───────► entry::cuInit ─ guard ─ init ─────────────────────► cuInit
//!  dlsym(.., "cuInit") ─────────► resolve: real lookup, then our entry in its place ─ found there
//!  cuGetProcAddress("cuInit") ──► proc_address: driver's lookup, then our entry ───── found there
//! ```
//!
//! Rules of the house:
//! - Nothing happens before a CUDA function is asked for: no constructor, no thread, no descriptor, no environment.
//! - A lookup is done for real first, and only a success is replaced, so the library never invents a function.
//! - If anything of ours fails, the call goes to the driver as if the library were not there.
//! - No lock is held anywhere: all state is atomics and one page that a forked child finds empty.

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")))]
compile_error!("the library is written for glibc on x86-64: its dlsym and its symbol versions are in assembler");

mod daemon;
mod fork;
mod glibc;
mod guard;
mod init;
mod log;
#[macro_use]
mod macros;
mod proc_address;
mod resolve;
mod settings;
mod sys;
mod table;

#[cfg(test)]
pub(crate) use driver_calls::hook;
pub(crate) use driver_calls::{HOOKS, signature};

/// The hooked functions.
mod driver_calls {
    #![expect(unsafe_code, reason = "C functions that are exported and that call the driver")]

    use std::ffi::{c_char, c_int, c_uint, c_void};

    use crate::{
        init, proc_address,
        sys::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t},
    };

    hooks! {
        /// Starts the driver: here it decides whether it runs under MPS.
        fn cuInit(flags: c_uint) => init::start;
        /// The lookup of CUDA 11.3 to 11.8.
        fn cuGetProcAddress(
            symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t,
        ) => proc_address::v1;
        /// The lookup since CUDA 12.
        fn cuGetProcAddress_v2(
            symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t,
            status: *mut CUdriverProcAddressQueryResult,
        ) => proc_address::v2;
    }
}
