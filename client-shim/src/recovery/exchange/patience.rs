//! How long a fresh copy of the driver waits for a server that is not ready, and for memory that the dead still have.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::super::memory::{Failed, MAKES_CONTEXT, checked};
use crate::{
    cuda::{
        result::CUresult,
        types::{CUcontext, CUdevice},
    },
    daemon::stage,
};

/// Between two questions to a server that is not ready.
const BETWEEN_TRIES: Duration = Duration::from_millis(5);
/// How long one is asked that has ended, where another copy may be tried: one that had a connection to it has no other.
const ENDED: u32 = 806;
const ENDED_PATIENCE: Duration = Duration::from_millis(500);
/// How long memory for a context is waited for, once the daemon lets go of what it keeps of the dead, and the time between
/// two questions.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// Answers of a server that is not ready yet.
pub(in crate::recovery) const NOT_READY: [u32; 3] = [805, 806, 807];

/// Until when a server is asked again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    usual: Instant,
    /// For one that has ended.
    ended: Instant,
}

impl Deadline {
    pub(super) fn new(usual: Instant, is_another_tried: bool, now: Instant) -> Self {
        Self { usual, ended: if is_another_tried { usual.min(now + ENDED_PATIENCE) } else { usual } }
    }

    fn has_passed(self, answer: CUresult) -> bool {
        Instant::now() > if answer.0 == ENDED { self.ended } else { self.usual }
    }
}

/// A device's context; counts how often its server was not ready.
pub(super) fn retained(device: CUdevice, deadline: Deadline, tries: &mut u32) -> Result<CUcontext, Failed> {
    let mut context = CUcontext(0);
    let mut retain = || driver!(context::cuDevicePrimaryCtxRetain(&raw mut context, device));
    roomily(&mut || patiently(deadline, tries, MAKES_CONTEXT, &mut retain), stage::is_short)?;
    Ok(context)
}

/// Asks again as long as a server is not ready, and counts that.
pub(super) fn patiently(
    deadline: Deadline,
    tries: &mut u32,
    call: &'static str,
    mut ask: impl FnMut() -> CUresult,
) -> Result<(), Failed> {
    loop {
        let answer = ask();
        if !NOT_READY.contains(&answer.0) || deadline.has_passed(answer) {
            return checked(call, answer);
        }
        *tries += 1;
        thread::park_timeout(BETWEEN_TRIES);
    }
}

/// Has something made that needs memory. Where there is none, and who keeps what the dead have lets go of it then, it is
/// tried again.
fn roomily(make: &mut dyn FnMut() -> Result<(), Failed>, is_told: impl FnOnce() -> bool) -> Result<(), Failed> {
    let is_short = |made: &Result<(), Failed>| {
        made.as_ref().is_err_and(|failed| failed.answer == CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    };
    let mut made = make();
    if !is_short(&made) || !is_told() {
        return made;
    }
    let deadline = Instant::now() + ROOM_PATIENCE;
    while is_short(&made) && Instant::now() < deadline {
        thread::park_timeout(BETWEEN_LOOKS);
        made = make();
    }
    made
}

#[cfg(test)]
mod tests {
    use super::{CUresult, MAKES_CONTEXT, checked, roomily};

    /// What comes of it where so many tries find no memory, how often it is tried, and whether anybody was told.
    fn tried(answers: &[CUresult], is_heard: bool) -> (CUresult, usize, bool) {
        let (mut count, mut is_told) = (0, false);
        let mut make = || {
            let answer = answers.get(count).copied().unwrap_or(CUresult::CUDA_SUCCESS);
            count += 1;
            checked(MAKES_CONTEXT, answer)
        };
        let tell = || {
            is_told = true;
            is_heard
        };
        let made = roomily(&mut make, tell).map_or_else(|failed| failed.answer, |()| CUresult::CUDA_SUCCESS);
        (made, count, is_told)
    }

    #[test]
    fn memory_that_the_dead_have_is_waited_for_where_somebody_lets_go_of_it() {
        const SHORT: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        assert_eq!(tried(&[], true), (CUresult::CUDA_SUCCESS, 1, false));
        assert_eq!(tried(&[SHORT; 3], true), (CUresult::CUDA_SUCCESS, 4, true));
        assert_eq!(tried(&[SHORT; 3], false), (SHORT, 1, true), "nobody lets go of anything");
        let other = CUresult::CUDA_ERROR_UNKNOWN;
        assert_eq!(tried(&[other], true), (other, 1, false));
        assert_eq!(tried(&[SHORT, other], true), (other, 2, true));
        let (answer, count, _) = tried(&[SHORT; 1000], true);
        assert!(answer == SHORT && count > 1, "not for ever");
    }
}
