//! Everything that the program has, and a round that uses it.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

mod asked;
mod calls;
mod on_its_way;

use super::arrays::Arrays;
use super::enumerated::Enumerated;
use super::failed;
use super::graphs::Graphs;
use super::pinned::Pinned;
use super::pools::Pools;
use super::private::Private;
use super::settings::Settings;
use super::stored::Stored;
use super::variables::Variables;
use crate::programs::gpu::{Argument, Gpu, GpuError, Kernel, Stream};
use crate::programs::memory_probe::mapped::map_new;
use crate::programs::memory_probe::{allocate, check};
use calls::{current, event, library_kernel, record, stream, synchronize, unsafe_copy};
use cudarc::driver::sys;
use std::alloc::{Layout, alloc_zeroed};

/// Bytes of what is allocated and never changed.
const SIZES: [usize; 6] = [1_000, 70_000, 1 << 20, 3 << 20, 33 << 20, (64 << 20) + 4];
/// How many of them a light program has.
const LIGHT: usize = 4;
/// Bytes of what it maps itself.
const MAPPED: usize = 4 << 20;
/// Length of the pattern: a prime, which keeps pages apart.
const PERIOD: usize = 251;
/// Words that a round counts up.
const WORDS: u32 = 1 << 18;
const WORDS_BYTES: usize = WORDS as usize * 4;

/// Whether every word has this value.
pub(super) fn words_are(words: &[u32], value: u32) -> bool {
    words.iter().all(|word| *word == value)
}

pub(in crate::programs::replay_probe) fn pattern(size: usize, seed: u8) -> Vec<u8> {
    let period: Vec<u8> = (0..PERIOD).map(|at| at.to_le_bytes()[0].wrapping_add(seed)).collect();
    let mut bytes = period.repeat(size.div_ceil(PERIOD));
    bytes.truncate(size);
    bytes
}

/// A block that never changes.
struct Block {
    address: u64,
    size: usize,
    seed: u8,
}

/// All of it.
pub(super) struct Workload {
    gpu: Gpu,
    blocks: Vec<Block>,
    counter: u64,
    /// As long as the counter.
    copy: u64,
    /// What a faulting kernel may write to: an H200 stores what is misaligned at the aligned address before it says so.
    scratch: u64,
    count: u32,
    rounds: u64,
    streams: [Stream; 2],
    events: [sys::CUevent; 2],
    increment: Kernel,
    spin: Kernel,
    /// Page-aligned memory of this process that the GPU writes to.
    host: *mut u32,
    /// A kernel of a library, if there is one.
    of_library: Option<sys::CUkernel>,
    stored: Stored,
    pinned: Option<Pinned>,
    pools: Option<Pools>,
    arrays: Option<Arrays>,
    settings: Option<Settings>,
    enumerated: Option<Enumerated>,
    variables: Vec<Variables>,
    graphs: Option<Graphs>,
    private: Option<Private>,
}

impl Workload {
    /// A light one has no large blocks: for tests of many runs in which they change nothing.
    pub(super) fn new(has_library: bool, is_light: bool) -> Result<Self, GpuError> {
        let mut gpu = Gpu::open(0)?;
        let mut blocks = Vec::new();
        for (size, seed) in SIZES.into_iter().take(if is_light { LIGHT } else { SIZES.len() }).zip(1..) {
            blocks.push(Block { address: allocate(size)?, size, seed });
        }
        blocks.push(Block { address: map_new(MAPPED)?, size: MAPPED, seed: 77 });
        for Block { address, size, seed } in &blocks {
            let bytes = pattern(*size, *seed);
            // SAFETY: the source is as long as the copy; the driver checks the destination.
            check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(*address, bytes.as_ptr().cast(), *size) })?;
        }
        let counter = allocate(WORDS_BYTES)?;
        gpu.clear(counter, WORDS_BYTES)?;
        let copy = allocate(WORDS_BYTES)?;
        let scratch = allocate(WORDS_BYTES)?;
        let streams = [stream(0, None)?, stream(1, Some(-1))?];
        let events = [event()?, event()?];
        let (increment, spin) = (gpu.kernel("increment")?, gpu.kernel("spin")?);
        let layout = Layout::from_size_align(WORDS_BYTES, 4096).map_err(|error| failed("alloc", error))?;
        // SAFETY: the layout has a size.
        let host = unsafe { alloc_zeroed(layout) }.cast::<u32>();
        if host.is_null() {
            return Err(failed("alloc", "no memory"));
        }
        // SAFETY: the range is this process's until it ends.
        check("cuMemHostRegister", unsafe { sys::cuMemHostRegister_v2(host.cast(), WORDS_BYTES, 0) })?;
        let of_library = has_library.then(library_kernel).transpose()?;
        gpu.synchronize()?;
        let stored = Stored::put(current())?;
        Ok(Self {
            gpu,
            blocks,
            counter,
            copy,
            scratch,
            count: 0,
            rounds: 0,
            streams,
            events,
            increment,
            spin,
            host,
            of_library,
            stored,
            pinned: None,
            pools: None,
            arrays: None,
            settings: None,
            enumerated: None,
            variables: Vec::new(),
            graphs: None,
            private: None,
        })
    }

    /// The current context's handle.
    #[expect(clippy::unused_self, reason = "there is one once there is a workload")]
    pub(super) fn context(&self) -> usize {
        current()
    }

    /// Rounds so far.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Bytes of device memory whose contents a round and its check compare.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.size).sum::<usize>() + WORDS_BYTES
    }

    /// An address in memory that may be written to.
    pub(super) fn scratch(&self) -> u64 {
        self.scratch
    }

    /// After a recovery: modules have begun anew, and what kernels have written to variables is in doubt.
    pub(super) fn begin_variables_anew(&mut self) -> Result<(), GpuError> {
        self.enumerated.iter_mut().try_for_each(Enumerated::begin_anew)?;
        self.variables.iter_mut().try_for_each(Variables::begin_anew)
    }

    /// Launches a kernel on the first stream.
    pub(super) fn launch(&mut self, kind: &str, arguments: &[Argument]) -> Result<(), GpuError> {
        let kernel = self.gpu.kernel(kind)?;
        self.gpu.launch_in(self.streams[0], kernel, 1, arguments)
    }

    /// Waits for the first stream.
    pub(super) fn synchronize(&self) -> Result<(), GpuError> {
        synchronize(self.streams[0])
    }

    fn count_up(&mut self, stream: Stream) -> Result<(), GpuError> {
        let arguments = [Argument::U64(self.counter), Argument::U32(WORDS)];
        match self.of_library {
            Some(kernel) => self.count_by_library(kernel, stream)?,
            None => self.gpu.launch_in(stream, self.increment, WORDS, &arguments)?,
        }
        Ok(())
    }

    fn count_by_library(&self, kernel: sys::CUkernel, stream: Stream) -> Result<(), GpuError> {
        let (address, words) = (self.counter, WORDS);
        let mut places =
            [(&raw const address).cast_mut().cast::<std::ffi::c_void>(), (&raw const words).cast_mut().cast()];
        // SAFETY: the kernel takes these arguments; a kernel stands for its function, by the documentation.
        let answer = unsafe {
            sys::cuLaunchKernel(
                kernel.cast(),
                WORDS / 256,
                1,
                1,
                256,
                1,
                1,
                0,
                stream.0,
                places.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", answer)
    }

    /// Counts up on one stream, then on the other one, reads the words into host memory, and compares. A call that
    /// fails leaves the words in doubt.
    pub(super) fn round(&mut self) -> Result<(), GpuError> {
        let [first, second] = self.streams;
        self.count_up(first)?;
        record(self.events[0], first)?;
        // SAFETY: both live as long as the process.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(second.0, self.events[0], 0) })?;
        self.count_up(second)?;
        let copied = unsafe_copy(self.host, self.counter, second);
        check("cuMemcpyDtoHAsync", copied)?;
        record(self.events[1], second)?;
        // SAFETY: it lives as long as the process.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.events[1]) })?;
        synchronize(first)?;
        if let Some(pinned) = &mut self.pinned {
            pinned.round(&self.gpu, self.increment, first)?;
        }
        for variables in &mut self.variables {
            variables.round(&self.gpu, self.increment, first)?;
        }
        if let Some(graphs) = &mut self.graphs {
            graphs.round(&self.gpu, first)?;
        }
        if let Some(private) = &mut self.private {
            private.round()?;
        }
        if let Some(arrays) = &mut self.arrays {
            arrays.round(&self.gpu, first)?;
        }
        if let Some(enumerated) = &mut self.enumerated {
            enumerated.round(&self.gpu)?;
        }
        self.count += 2;
        self.rounds += 1;
        // SAFETY: the range has so many words, and the copy has ended.
        let words = unsafe { std::slice::from_raw_parts(self.host, WORDS as usize) };
        if words_are(words, self.count) {
            Ok(())
        } else {
            let found = words.iter().find(|word| **word != self.count).copied().unwrap_or(0);
            Err(failed("increment", format_args!("a word is {found} in place of {}", self.count)))
        }
    }

    /// After lost work: the words begin anew.
    pub(super) fn begin_anew(&mut self) -> Result<(), GpuError> {
        synchronize(self.streams[0])?;
        synchronize(self.streams[1])?;
        self.gpu.clear(self.counter, WORDS_BYTES)?;
        self.gpu.synchronize()?;
        self.count = 0;
        if let Some(pinned) = &mut self.pinned {
            pinned.begin_anew();
        }
        if let Some(graphs) = &mut self.graphs {
            graphs.begin_anew(&self.gpu)?;
        }
        self.begin_variables_anew()
    }

    /// Blocks that are not as they were.
    pub(super) fn wrong(&self) -> Result<Vec<String>, GpuError> {
        let mut wrong = Vec::new();
        for Block { address, size, seed } in &self.blocks {
            let mut bytes = vec![0_u8; *size];
            // SAFETY: the destination is as long as the copy; the driver checks the source.
            check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), *address, *size) })?;
            let expected = pattern(*size, *seed);
            if bytes != expected {
                let at = bytes.iter().zip(&expected).position(|(found, expected)| found != expected);
                wrong.push(format!("block of {size} bytes at {address:#x}, from byte {at:?} on"));
            }
        }
        wrong.extend(self.stored.wrong());
        if let Some(pinned) = &self.pinned {
            wrong.extend(pinned.wrong()?);
        }
        if let Some(settings) = &self.settings {
            wrong.extend(settings.wrong()?);
        }
        if let Some(pools) = &self.pools {
            wrong.extend(pools.wrong()?);
        }
        if let Some(arrays) = &self.arrays {
            wrong.extend(arrays.wrong()?);
            // What copies from arrays is no evidence that the default stream is done.
            self.gpu.synchronize()?;
        }
        for variables in &self.variables {
            wrong.extend(variables.wrong()?);
        }
        Ok(wrong)
    }
}
