//! The daemon's witnesses: what tells of faults, of ends, and of who a process is.
//!
//! Each module watches one source and turns what it says into values of [`crate::core`]; none decides anything.
//!
//! A witness costs only itself: one that is missing on a machine costs what it knows, is said once, and by `doctor` at any
//! time. Clients are hostile: nothing is opened by a name of theirs, no file system of theirs is asked, their memory is
//! read by threads of which few may hang ([`identity`]), and what may take the kernel long to close is closed elsewhere
//! ([`uvm`]).

pub(crate) mod cgroup;
pub(crate) mod end;
pub(crate) mod gpus;
pub(crate) mod identity;
pub(crate) mod kmsg;
pub mod notice;
pub(crate) mod peer;
pub(crate) mod place;
mod pod_names;
pub(crate) mod uvm;
