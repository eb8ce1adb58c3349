//! The time between two events of a party's own, of which one is behind what it waits for.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{Outcome, Party, none};
use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::check;
use cudarc::driver::sys;
use std::ptr;
use std::time::{Duration, Instant};

/// How long there may be no time yet.
const LIMIT: Duration = Duration::from_mins(1);

pub(super) fn new_events() -> Result<[sys::CUevent; 2], GpuError> {
    let mut events = [ptr::null_mut(); 2];
    for event in &mut events {
        // SAFETY: the result is a variable of ours.
        check("cuEventCreate", unsafe { sys::cuEventCreate(event, 0) })?;
    }
    Ok(events)
}

impl Party {
    /// Puts the event of this number behind what the stream has.
    pub(super) fn marks(&self, number: usize) -> Outcome {
        // SAFETY: both are ours.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.timed[number], self.streams[0]) })?;
        none()
    }

    /// The first answer that is not that some of the work is not done.
    pub(super) fn time(&self) -> Outcome {
        let [first, second] = self.timed;
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut milliseconds = 0_f32;
            // SAFETY: the events are ours, and the result a variable of ours.
            let answer = unsafe { sys::cuEventElapsedTime_v2(&raw mut milliseconds, first, second) };
            let is_over = answer != sys::cudaError_enum::CUDA_ERROR_NOT_READY || Instant::now() > deadline;
            if is_over {
                check("cuEventElapsedTime", answer)?;
                return none();
            }
            std::thread::yield_now();
        }
    }
}
