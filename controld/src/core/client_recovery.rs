//! What a recovery of a client took, as the client itself says: which way it took and how long each step was; or why it was
//! refused.
//!
//! Nothing is decided by it. It is shown to whoever may see the client, under the name of the process that the kernel says
//! has sent it.

use super::milliseconds::{in_milliseconds, milliseconds};
use core::time::Duration;
use remps_proto::shim::{RECOVERY_STEPS, Recovered, SWITCH_STEPS, Unrecovered, Way};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The step of a later release of the library.
const OTHER: &str = "other";

/// In which way a client has recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RecoveryWay {
    /// With a copy of the driver that was made then, as it had asked for no spare copy.
    Cold,
    /// With its spare copy.
    Spare,
    /// As the first, since no spare copy was ready.
    NoSpare,
    /// As the first, since the spare copy failed.
    SpareFailed,
    /// One of a later release of the library.
    Other,
}

impl RecoveryWay {
    fn of(way: Way) -> Self {
        match way {
            Way::COLD => Self::Cold,
            Way::SPARE => Self::Spare,
            Way::NO_SPARE => Self::NoSpare,
            Way::SPARE_FAILED => Self::SpareFailed,
            _ => Self::Other,
        }
    }

    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Spare => "spare",
            Self::NoSpare => "no-spare",
            Self::SpareFailed => "spare-failed",
            Self::Other => OTHER,
        }
    }
}

/// Times of steps by their names, in order; a step that took less than a microsecond is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepTimes(Vec<(&'static str, Duration)>);

impl StepTimes {
    fn of(names: &[&'static str], times_us: &[u64]) -> Self {
        let time = |us: &u64| Duration::from_micros(*us);
        let mut steps: Vec<_> = names.iter().copied().zip(times_us.iter().map(time)).collect();
        // They are within the whole's bounds, which the protocol checks.
        steps.push((OTHER, times_us.iter().skip(names.len()).map(time).sum()));
        steps.retain(|(_, time)| !time.is_zero());
        Self(steps)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.0.iter().copied()
    }
}

impl Serialize for StepTimes {
    /// An object with milliseconds to the microsecond.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, time) in self.iter() {
            map.serialize_entry(name, &in_milliseconds(time))?;
        }
        map.end()
    }
}

/// How a client has gone on after a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ClientRecovery {
    /// The how manieth of its process it was, from 1.
    pub number: u64,
    pub way: RecoveryWay,
    /// The `CUresult` that began it.
    pub error: u32,
    /// Until its program's calls were let in again.
    #[serde(serialize_with = "milliseconds", rename = "total_ms")]
    pub total: Duration,
    #[serde(rename = "steps_ms")]
    pub steps: StepTimes,
    /// What was done with the spare copy meanwhile.
    #[serde(rename = "switch_ms")]
    pub switch: StepTimes,
}

impl ClientRecovery {
    pub(crate) fn of(said: &Recovered) -> Self {
        Self {
            number: said.number,
            way: RecoveryWay::of(said.way),
            error: said.error,
            total: Duration::from_micros(said.total_us),
            steps: StepTimes::of(&RECOVERY_STEPS, &said.steps_us),
            switch: StepTimes::of(&SWITCH_STEPS, &said.switch_us),
        }
    }
}

/// Why a client does not go on after a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ClientRefusal {
    /// The how manieth of its process it was, from 1.
    pub number: u64,
    /// The `CUresult` that its program has for an answer.
    pub error: u32,
    /// In its words, which the protocol bounds: printable ASCII.
    pub reason: String,
    /// Nothing is tried again.
    #[serde(rename = "final")]
    pub is_final: bool,
}

impl ClientRefusal {
    pub(crate) fn of(said: Unrecovered) -> Self {
        let Unrecovered { number, error, reason, is_final } = said;
        Self { number, error, reason, is_final }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_names_and_those_of_a_later_library_are_told_together() {
        let mut steps_us = vec![0; RECOVERY_STEPS.len()];
        (steps_us[0], steps_us[8]) = (1_500, 20);
        steps_us.extend([3, 4]);
        let said = Recovered { number: 2, way: Way(9), error: 700, total_us: 1_600, steps_us, switch_us: vec![7] };
        let json = serde_json::to_string(&ClientRecovery::of(&said)).unwrap();
        let wanted = r#"{"number":2,"way":"other","error":700,"total_ms":1.6,"steps_ms":{"wait":1.5,"objects":0.02,"other":0.007},"switch_ms":{"held":0.007}}"#;
        assert_eq!(json, wanted);
    }
}
