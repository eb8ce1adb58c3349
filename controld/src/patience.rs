//! Deadlines that no healthy peer meets, made longer for tests: a machine that stands still must not look like a peer
//! that is stuck.
//!
//! `MPS_TEST_PATIENCE=n` multiplies by `n` those deadlines of the daemon that have no setting, that a test does not want
//! to pass, and that a busy machine has been seen to let pass. `MPS_TEST_PATIENCE=n,m` multiplies by `m` those, too,
//! that most tests do want to pass: how long a verdict waits for a better witness, and for how long a server that may
//! have a fault may say nothing. A test of what happens when one has passed leaves the variable out. It is read once.
//!
//! As in [`crate::failpoint`] the code exists only where `debug_assertions` are on: what is shipped has no branch here.

use std::time::Duration;

/// The deadline as it is, or longer for a test.
#[cfg(not(debug_assertions))]
#[must_use]
pub const fn patient(deadline: Duration) -> Duration {
    deadline
}

/// The deadline as it is, or longer for a test that asks for more than most.
#[cfg(not(debug_assertions))]
pub(crate) const fn very_patient(deadline: Duration) -> Duration {
    deadline
}

/// The deadline as it is, or longer for a test.
///
/// # Panics
/// When the variable is neither a number nor two.
#[cfg(debug_assertions)]
#[must_use]
pub fn patient(deadline: Duration) -> Duration {
    deadline.saturating_mul(times().0)
}

/// The deadline as it is, or longer for a test that asks for more than most.
///
/// # Panics
/// As [`patient`].
#[cfg(debug_assertions)]
pub(crate) fn very_patient(deadline: Duration) -> Duration {
    deadline.saturating_mul(times().1)
}

#[cfg(debug_assertions)]
fn times() -> (u32, u32) {
    static TIMES: std::sync::OnceLock<(u32, u32)> = std::sync::OnceLock::new();
    let number = |text: &str| text.parse().expect("MPS_TEST_PATIENCE is a number or two");
    *TIMES.get_or_init(|| match std::env::var("MPS_TEST_PATIENCE") {
        Ok(times) => times.split_once(',').map_or_else(|| (number(&times), 1), |(n, m)| (number(n), number(m))),
        Err(_) => (1, 1),
    })
}
