//! The preloaded library for CUDA programs under ReMPS.
//!
//! It stands between a program and the driver's library and lets everything pass, except that it can refuse to start
//! CUDA without the MPS control daemon (`MPS_SHIM_REQUIRE`), that it can keep what a program has on the GPU
//! (`MPS_SHIM_KEEP`), and that it can give a program whose driver is dead a fresh one (`MPS_SHIM_REPLAY`).
//!
//! [`cuda::functions`] describes every function of the driver in one row, and what stands there behind `then` and the
//! arrow is the table of contents. [`hooks`] is what the program reaches.
//!
//! Rules of the house:
//! - Nothing happens before a CUDA function is asked for: no constructor, no thread, no descriptor, no environment.
//!   There is one later for the daemon, only where the program has a name for its successors ([`hooks::state`]), may be
//!   recovered ([`recovery`]) or tells of its faults, and while there is work beside the program's calls another one.
//! - A lookup is done for real first, and only a success is replaced, so the library never invents a function.
//! - If anything of ours fails, the call goes to the driver as if the library were not there.
//! - All state is atomics and one page that a forked child finds empty, except for what is kept of a program: that is
//!   behind locks under which the driver is not called, and which a forked child never takes.

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")))]
compile_error!("the library is written for glibc on x86-64: its dlsym and its symbol versions are in assembler");

#[macro_use]
mod cuda;
mod daemon;
mod hooks;
mod kept;
mod process;
mod recovery;
