//! System calls that have no safe wrapper elsewhere; the only modules of the daemon with unsafe code.
//!
//! Nothing here decides anything: each function is one call, or the least sequence of calls that can be made safe, and
//! returns what the kernel said.

pub(crate) mod allocator;
pub(crate) mod child;
pub(crate) mod clock;
pub mod fork;
pub(crate) mod ioctl;
pub(crate) mod other_proc;
pub(crate) mod passed;
pub mod pidfd;
pub mod polled;
pub(crate) mod proc;
pub(crate) mod uvm;
pub(crate) mod uvm_abi;
