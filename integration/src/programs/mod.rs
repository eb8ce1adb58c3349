//! CUDA programs for tests and measurements, the same on a real GPU and on the simulated one.
//!
//! They use the driver that the loader finds as `libcuda.so` or `libcuda.so.1`, take their kernels from
//! `kernels.ptx`, and say what happens in lines of JSON on standard output. On an error of the driver they end with
//! the low eight bits of its number as exit status (700 gives 188, 719 gives 207, 805 gives 37, 806 gives 38, 807 gives
//! 39, 810 gives 42). [`notices`] alone needs no CUDA.

pub mod aggressor;
pub mod bystander;
pub mod checker;
pub mod cost;
mod crash;
pub mod first_alloc;
pub mod gpu;
pub mod heir;
pub mod ipc_probe;
pub mod memory_probe;
pub mod notices;
pub mod replay_probe;
pub mod report;
pub mod survivor;
pub mod witness;
