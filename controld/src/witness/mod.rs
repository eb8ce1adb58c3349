//! The daemon's witnesses: what tells of faults, of ends, and of who a process is.
//!
//! Each module watches one source and turns what it says into values of [`crate::core`]; none decides anything.

pub mod cgroup;
pub mod end;
pub mod gpus;
pub mod identity;
pub mod kmsg;
pub mod notice;
pub mod peer;
pub mod place;
mod proc_dir;
pub mod uvm;
