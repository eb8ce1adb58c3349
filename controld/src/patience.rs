//! Deadlines that no healthy peer meets, made longer for tests: a machine that stands still must not look like a peer
//! that is stuck.
//!
//! `MPS_TEST_PATIENCE=n` multiplies by `n` those deadlines of the daemon that have no setting, that a test does not want
//! to pass, and that a busy machine has been seen to let pass. A test of what happens when one has passed leaves the
//! variable out. It is read once.
//!
//! As in [`crate::failpoint`] the code exists only where `debug_assertions` are on: what is shipped has no branch here.

use std::time::Duration;

/// The deadline as it is, or longer for a test.
#[cfg(not(debug_assertions))]
#[must_use]
pub const fn patient(deadline: Duration) -> Duration {
    deadline
}

/// The deadline as it is, or longer for a test.
///
/// # Panics
/// When the variable is no number.
#[cfg(debug_assertions)]
#[must_use]
pub fn patient(deadline: Duration) -> Duration {
    static TIMES: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let read = || match std::env::var("MPS_TEST_PATIENCE") {
        Ok(times) => times.parse().expect("MPS_TEST_PATIENCE is a number"),
        Err(_) => 1,
    };
    deadline.saturating_mul(*TIMES.get_or_init(read))
}
