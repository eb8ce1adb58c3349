//! A wait for a record of another process, and what has become of it.

use super::{EXTERNAL, LOW, RELEASED, SETTLED, Slot};
use crate::{cuda::result::CUresult, process::passing::Secret};

/// A wait for a record of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Wait {
    pub(in super::super) slot: Slot,
    pub(in super::super) owner: Secret,
    pub(in super::super) number: u64,
    /// How often records were lost before.
    pub(in super::super) losses: u64,
}

/// What has become of what a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum State {
    /// It has come.
    Come,
    /// It has come, and is not to be believed yet.
    Unsettled,
    /// Not yet.
    Open,
    /// It will never have been, by this error.
    Lost(CUresult),
}

impl Slot {
    /// A wait for the last record.
    pub(in super::super) fn wait(self, owner: Secret) -> Wait {
        // Before the number: what is lost in between is seen.
        let losses = self.losses();
        Wait { slot: self, owner, number: self.recorded(), losses }
    }
}

impl Wait {
    /// What has become of it, by an owner that has ended or not.
    pub(in super::super) fn state(&self, has_ended: bool) -> State {
        if self.number >= RELEASED {
            // No record has that: it is a lie, and what is written to release it would not.
            return State::Lost(EXTERNAL);
        }
        // The number comes before what is said of losses, since it is written after that.
        let come = self.slot.get(Slot::of_number(self.number));
        let settled = self.slot.get(SETTLED);
        let losses = self.slot.losses();
        // Records are lost together with all that come later, and one loss alone is known.
        let is_earlier = losses == self.losses.wrapping_add(1) && self.number < self.slot.get(LOW);
        if losses != self.losses && !is_earlier {
            return State::Lost(self.slot.error());
        }
        match come {
            RELEASED.. => State::Lost(EXTERNAL),
            come if come >= self.number && settled >= self.number => State::Come,
            _ if has_ended => State::Lost(EXTERNAL),
            come if come >= self.number => State::Unsettled,
            _ => State::Open,
        }
    }

    /// No stream waits any longer for what an owner that has ended was to write. A stream compares as the GPU does, by the
    /// sign of the difference, and what stands there may be anything.
    pub(in super::super) fn release_for_good(&self) {
        let at = Slot::of_number(self.number);
        let has_come = self.slot.get(at).wrapping_sub(self.number).cast_signed() >= 0;
        if !has_come {
            self.slot.put(at, RELEASED);
        }
    }
}
