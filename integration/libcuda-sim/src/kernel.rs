//! Kernels: host functions with the names and arguments of those in `integration/src/programs/kernels.ptx`.
//!
//! | name | arguments | does |
//! |---|---|---|
//! | `spin`, `long` | `u64` nanoseconds | keeps the GPU busy for that long |
//! | `endless` | | never ends |
//! | `increment` | `u64` address, `u32` count | adds one to each of so many words |
//! | `oob` | `u64` address | writes a word there: a memory fault (700) unless it is mapped |
//! | `misaligned` | `u64` address | writes a word one byte further: 716 |
//! | `assert` | | fails an assertion: 710 |
//! | `trap` | | traps: 719 |

use crate::allocations;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::driver::Driver;
use crate::uvm::WildAccess;
use sim_wire::fault::FaultKind;
use std::time::Duration;

/// Bytes of the words that the kernels work on.
const WORD: usize = 4;

/// A kernel with its arguments, ready to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Busy for a time; `None` is for ever.
    Busy(Option<Duration>),
    /// Adds one to each of so many words.
    Increment(usize, usize),
    /// Writes one word.
    Write(usize),
    /// Does wrong whatever its arguments are.
    Fault(FaultKind),
}

impl Kernel {
    /// The host function of this name.
    ///
    /// # Errors
    /// `NO_BINARY_FOR_GPU` when there is none: the simulation runs no PTX.
    pub(crate) fn new(name: &str, arguments: &[u64]) -> Outcome<Self> {
        let address = |value: u64| usize::try_from(value).map_err(|_| Code::INVALID_VALUE);
        Ok(match (name, arguments) {
            ("spin" | "long", &[nanoseconds]) => Self::Busy(Some(Duration::from_nanos(nanoseconds))),
            ("endless", []) => Self::Busy(None),
            ("increment", &[start, count]) => Self::Increment(address(start)?, address(count)?),
            ("oob", &[place]) => Self::Write(address(place)?),
            ("misaligned", &[place]) => match place.checked_add(1) {
                Some(place) if place % WORD as u64 == 0 => Self::Write(address(place)?),
                _ => Self::Fault(FaultKind::MISALIGNED),
            },
            ("trap", []) => Self::Fault(FaultKind::TRAP),
            ("assert", []) => Self::Fault(FaultKind::ASSERT),
            _ => return Err(Code::NO_BINARY_FOR_GPU),
        })
    }

    /// Whether there is a host function of this name.
    pub(crate) fn exists(name: &str) -> bool {
        ["spin", "long", "endless", "increment", "oob", "misaligned", "trap", "assert"].contains(&name)
    }

    /// Runs on a stream's thread until it ends or the context fails.
    pub(crate) fn run(self, driver: &Driver, context: &Context) -> Outcome {
        let time = match self {
            Self::Busy(time) => time,
            Self::Increment(..) | Self::Write(_) | Self::Fault(_) => Some(Duration::ZERO),
        };
        let running = driver.start_kernel(time);
        let wrote = match self {
            Self::Busy(time) => return context.pass_time(time),
            Self::Fault(kind) => Err((kind, None)),
            Self::Increment(address, count) => {
                let tables = driver.tables();
                if tables.ranges.is_accessible(address, count.saturating_mul(WORD)) {
                    allocations::increment(address, count);
                    Ok(())
                } else {
                    Err((FaultKind::OUT_OF_BOUNDS, Some(WildAccess { address, is_write: false })))
                }
            }
            Self::Write(address) => {
                let tables = driver.tables();
                if tables.ranges.is_accessible(address, WORD) {
                    allocations::fill(address, &[0; WORD], 1);
                    Ok(())
                } else {
                    Err((FaultKind::OUT_OF_BOUNDS, Some(WildAccess { address, is_write: true })))
                }
            }
        };
        drop(running);
        wrote.or_else(|(kind, access)| context.fault(driver, kind, access))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name_and_arguments() {
        assert_eq!(Kernel::new("spin", &[1000]), Ok(Kernel::Busy(Some(Duration::from_micros(1)))));
        assert_eq!(Kernel::new("misaligned", &[4]), Ok(Kernel::Fault(FaultKind::MISALIGNED)));
        assert_eq!(Kernel::new("spin", &[]), Err(Code::NO_BINARY_FOR_GPU));
        assert_eq!(Kernel::new("gemm", &[1]), Err(Code::NO_BINARY_FOR_GPU));
    }
}
