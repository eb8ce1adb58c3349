//! What a recovery of a program took, as the program says it: how it was done, and how long each step was.
//!
//! Lengths and times are bounded, and no step may take longer than the whole, so that who adds them up gets no nonsense.
//! Whether it is true nobody but the program knows.

use super::codec::{DecodeError, limited};
use super::wire;

/// The steps of a recovery in their order. A later release may have more behind them.
pub const RECOVERY_STEPS: [&str; 10] =
    ["wait", "unmap", "name", "file", "load", "init", "context", "map", "objects", "amputate"];
/// What is done when a program goes on with its spare copy, in order: parts of the steps "map" and "objects". The first is
/// the wait for the copy's own thread, which may be in a call of it.
pub const SWITCH_STEPS: [&str; 10] =
    ["held", "alive", "memory", "objects", "stack", "settings", "variables", "graphs", "names", "lead"];
/// Most steps of either kind that a message may have.
pub const MOST_STEPS: usize = 32;
/// The longest recovery that is believed, in microseconds: ten minutes. The library gives up long before.
const LONGEST_US: u64 = 600_000_000;

crate::open_enum! {
    /// In which way a program has recovered.
    pub struct Way: u32 {
        /// With a copy of the driver that was made then, as no spare copy was asked for.
        COLD = 0,
        /// With its spare copy.
        SPARE = 1,
        /// As the first, since no spare copy was ready.
        NO_SPARE = 2,
        /// As the first, since the spare copy failed.
        SPARE_FAILED = 3,
    }
}

/// How a process has gone on after a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The how manieth recovery of the process it was, from 1.
    pub number: u64,
    /// How it was done.
    pub way: Way,
    /// The `CUresult` that began it.
    pub error: u32,
    /// Microseconds until the program's calls were let in again.
    pub total_us: u64,
    /// Those of each step, in the order of [`RECOVERY_STEPS`].
    pub steps_us: Vec<u64>,
    /// Those of what was done with a spare copy meanwhile, in the order of [`SWITCH_STEPS`].
    pub switch_us: Vec<u64>,
}

impl Recovered {
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        limited("steps", self.steps_us.len(), MOST_STEPS)?;
        limited("steps of a switch", self.switch_us.len(), MOST_STEPS)?;
        if self.number == 0 {
            return Err(DecodeError::Value("a recovery has no number"));
        }
        if self.total_us > LONGEST_US {
            return Err(DecodeError::Value("a recovery takes longer than any does"));
        }
        let is_within = |steps: &[u64]| {
            let sum = steps.iter().try_fold(0_u64, |sum, step| sum.checked_add(*step));
            sum.is_some_and(|sum| sum <= self.total_us)
        };
        if is_within(&self.steps_us) && is_within(&self.switch_us) {
            Ok(())
        } else {
            Err(DecodeError::Value("the steps of a recovery take longer than all of it"))
        }
    }

    pub(super) fn read(recovered: wire::Recovered) -> Self {
        let wire::Recovered { number, way, error, total_us, step_us, switch_us } = recovered;
        Self { number, way: Way(way), error, total_us, steps_us: step_us, switch_us }
    }

    pub(super) fn write(self) -> wire::Recovered {
        let Self { number, way, error, total_us, steps_us, switch_us } = self;
        wire::Recovered { number, way: way.0, error, total_us, step_us: steps_us, switch_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::{Ask, FromShim};
    use prost::Message as _;

    fn plain() -> Recovered {
        let (steps_us, switch_us) = (vec![100, 200], vec![50]);
        Recovered { number: 1, way: Way::SPARE, error: 700, total_us: 400, steps_us, switch_us }
    }

    /// As a peer may send it that keeps no rules.
    fn sent(recovered: Recovered) -> Result<FromShim, DecodeError> {
        let content = Some(wire::from_shim::Content::Recovered(recovered.write()));
        FromShim::decode(&wire::FromShim { request: 1, content }.encode_to_vec())
    }

    #[test]
    fn what_no_recovery_can_have_taken_is_no_message() {
        assert_eq!(sent(plain()).map(|message| message.ask), Ok(Ask::Recovered(plain())));
        let too_many = vec![0; MOST_STEPS + 1];
        for odd in [
            Recovered { number: 0, ..plain() },
            Recovered { total_us: LONGEST_US + 1, ..plain() },
            Recovered { total_us: u64::MAX, ..plain() },
            Recovered { steps_us: vec![401], ..plain() },
            Recovered { steps_us: vec![u64::MAX, 2], ..plain() },
            Recovered { switch_us: vec![200, 201], ..plain() },
            Recovered { steps_us: too_many.clone(), ..plain() },
            Recovered { switch_us: too_many, ..plain() },
        ] {
            assert!(FromShim { request: 1, ask: Ask::Recovered(odd.clone()) }.encode().is_err(), "{odd:?}");
            assert!(sent(odd.clone()).is_err(), "{odd:?}");
        }
    }
}
