//! Pids as the core and as the kernel have them, and what is known of a process at once.

use crate::core::{Identity, Pid};
use crate::witness::identity::at_once;
use std::sync::Arc;

/// A pid as system calls take it.
pub(super) fn kernel_pid(pid: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.cast_signed())
}

pub(super) fn core_pid(pid: nix::unistd::Pid) -> Pid {
    pid.as_raw().cast_unsigned()
}

/// What is known of a process before it is read.
pub(super) fn known_at_once(pid: Pid) -> Arc<Identity> {
    Arc::new(at_once(pid))
}
