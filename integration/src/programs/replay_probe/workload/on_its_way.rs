//! Work that is on its way when a fault comes, and work that shows that there is none.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::calls::synchronize;
use super::{WORDS, WORDS_BYTES, Workload, words_are};
use crate::programs::gpu::{Argument, GpuError};
use crate::programs::memory_probe::check;
use cudarc::driver::sys;

/// How long the kernel before a tail takes, in nanoseconds: the fault comes meanwhile. And what the tail sets.
const A_WHILE: u64 = 1_500_000_000;
const TAIL: u32 = 0x7a11;
/// How long the kernels of a busy program take, in nanoseconds, and how many are on their way.
const BUSY: u64 = 200_000;
const ON_THEIR_WAY: usize = 8;
/// Nanoseconds of a kernel that shows that kernels run.
const TICK: u64 = 1_000;

impl Workload {
    /// Has work on its way all the time; finds out what has become of it one by one.
    pub(in crate::programs::replay_probe) fn keep_busy(&mut self) -> Result<(), GpuError> {
        for _ in 0..ON_THEIR_WAY {
            self.gpu.launch_in(self.streams[1], self.spin, 1, &[Argument::U64(BUSY)])?;
        }
        self.count_up(self.streams[0])?;
        synchronize(self.streams[0])
    }

    /// One short kernel, which is done when this returns.
    pub(in crate::programs::replay_probe) fn tick(&self) -> Result<(), GpuError> {
        self.gpu.launch_in(self.streams[0], self.spin, 1, &[Argument::U64(TICK)])?;
        synchronize(self.streams[0])
    }

    /// Leaves work on its way that is not waited for: a kernel that takes a while, a set, a copy of it, another kernel.
    pub(in crate::programs::replay_probe) fn leave_a_tail(&mut self) -> Result<(), GpuError> {
        let stream = self.streams[0];
        self.gpu.launch_in(stream, self.spin, 1, &[Argument::U64(A_WHILE)])?;
        // SAFETY: the words are as many.
        let set = unsafe { sys::cuMemsetD32Async(self.counter, TAIL, WORDS as usize, stream.0) };
        check("cuMemsetD32Async", set)?;
        // SAFETY: both ranges are as long, and the driver checks them.
        let copied = unsafe { sys::cuMemcpyDtoDAsync_v2(self.copy, self.counter, WORDS_BYTES, stream.0) };
        check("cuMemcpyDtoDAsync", copied)?;
        self.count_up(stream)
    }

    /// Waits for it, and compares.
    pub(in crate::programs::replay_probe) fn is_tail_done(&self) -> Result<bool, GpuError> {
        synchronize(self.streams[0])?;
        let is = |address, value| Ok(words_are(&self.gpu.read(address, WORDS as usize)?, value));
        Ok(is(self.counter, TAIL + 1)? && is(self.copy, TAIL)?)
    }
}
