//! When a copy reads page-locked host memory: in its stream's order, or during the call.
//!
//! NVIDIA's driver (580.159.04, on an H100: `OBSERVED.md`) reads the source of a small copy to the device during the call
//! where the copy's stream has nothing to do itself, although that stream is ordered with a default stream that has. So such
//! a copy behind a kernel that writes its source, with nothing between them but the order of the default stream, races
//! with it, in any program; [`plan`](super::plan) leaves it out. The simulated driver does the same, and this table is what
//! both are asked for.

use super::api::{Answer, Api};
use super::base::Base;
use super::machine::memory::{FOR_KERNELS, pages};
use super::machine::{read_word, write_word};
use crate::programs::report::Report;
use serde_json::json;
use std::ffi::c_void;

/// The most bytes of a copy that reads at once, and the fewest of one that does not.
const SMALL: usize = 24 << 10;
const LARGE: usize = SMALL + 4;
/// Bytes of memory of each kind.
const BLOCK: usize = 64 << 10;
/// What the source has before.
const BEFORE: u32 = 7;
/// An even key: the kernel is done at once.
const KEY: u64 = 2;
/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY: usize = 1;
const OWN: usize = 2;
/// `CU_EVENT_DISABLE_TIMING`, `CU_STREAM_CAPTURE_MODE_RELAXED`.
const TIMELESS: u32 = 2;
const RELAXED: i32 = 2;
/// Indices of holds: on what writes the source, and elsewhere.
const OF_SOURCE: usize = 0;
const ELSEWHERE: usize = 1;

/// When a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    AtOnce,
    InOrder,
}

impl Read {
    fn text(self) -> &'static str {
        match self {
            Self::AtOnce => "at once",
            Self::InOrder => "in order",
        }
    }
}

/// What all situations share: memory, streams, an event.
struct Scene<'a> {
    base: &'a Base,
    api: &'static Api,
    /// Page-locked, of the driver's and the program's own.
    allocated: usize,
    registered: usize,
    target: usize,
    /// What the kernel reads.
    other: usize,
    /// Two blocking streams, and one that does not wait for the default one.
    streams: [usize; 2],
    apart: usize,
    event: usize,
    /// Copies of [`SMALL`] bytes to the target.
    graph: usize,
}

type Step = fn(&Scene<'_>) -> Answer;
type Row = (&'static str, Step, Step, Read);

/// In which situation, what is given before, the copy, and when that reads.
const TABLE: &[Row] = &[
    ("the default stream is at work", |s| s.write(LEGACY), |s| s.copy(SMALL, s.streams[0]), Read::AtOnce),
    ("the same, more than 24 KiB", |s| s.write(LEGACY), |s| s.copy(LARGE, s.streams[0]), Read::InOrder),
    ("the same, by address", |s| s.write(LEGACY), |s| s.copy_by_address(), Read::AtOnce),
    ("the same, by a graph", |s| s.write(LEGACY), |s| s.api.cuGraphLaunch(s.graph, s.streams[0]), Read::InOrder),
    (
        "the same, of memory of the program's own",
        |s| s.write_to(s.registered, LEGACY),
        |s| s.copy_registered(),
        Read::AtOnce,
    ),
    ("the same, in the thread's own stream", |s| s.write(LEGACY), |s| s.copy(SMALL, OWN), Read::AtOnce),
    (
        "a blocking stream is at work, the copy in the default one",
        |s| s.write(s.streams[1]),
        |s| s.copy(SMALL, LEGACY),
        Read::AtOnce,
    ),
    (
        "the thread's own stream is, the copy in the default one",
        |s| s.write(OWN),
        |s| s.copy(SMALL, LEGACY),
        Read::AtOnce,
    ),
    ("the copy's stream is at work, too", |s| s.write_beside_work(), |s| s.copy(SMALL, s.streams[0]), Read::InOrder),
    ("the copy's stream waits for an event", |s| s.write_and_wait(), |s| s.copy(SMALL, s.streams[0]), Read::InOrder),
    (
        "the copy's own stream is at work alone",
        |s| s.write(s.streams[0]),
        |s| s.copy(SMALL, s.streams[0]),
        Read::InOrder,
    ),
];

impl Scene<'_> {
    fn launch(&self, function: usize, stream: usize, arguments: &[u64]) -> Answer {
        let mut places: Vec<*mut c_void> =
            arguments.iter().map(|argument| std::ptr::from_ref(argument).cast_mut().cast()).collect();
        self.api.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, places.as_mut_ptr(), 0)
    }

    fn hold(&self, which: usize, stream: usize) -> Answer {
        self.launch(self.base.kernels(0).hold, stream, &[self.base.hold(0, which) as u64])
    }

    /// A kernel that writes the source, held.
    fn write_to(&self, source: usize, stream: usize) -> Answer {
        self.hold(OF_SOURCE, stream)?;
        self.launch(self.base.kernels(0).mix, stream, &[source as u64, self.other as u64, 1, KEY])
    }

    fn write(&self, stream: usize) -> Answer {
        self.write_to(self.allocated, stream)
    }

    fn copy(&self, size: usize, stream: usize) -> Answer {
        self.api.cuMemcpyHtoDAsync_v2(self.target, self.allocated, size, stream)
    }

    fn copy_registered(&self) -> Answer {
        self.api.cuMemcpyHtoDAsync_v2(self.target, self.registered, SMALL, self.streams[0])
    }

    fn copy_by_address(&self) -> Answer {
        self.api.cuMemcpyAsync(self.target, self.allocated, SMALL, self.streams[0])
    }

    fn write_beside_work(&self) -> Answer {
        self.hold(ELSEWHERE, self.streams[0])?;
        self.write(LEGACY)
    }

    fn write_and_wait(&self) -> Answer {
        self.write(self.apart)?;
        self.api.cuEventRecord(self.event, self.apart)?;
        self.api.cuStreamWaitEvent(self.streams[0], self.event, 0)
    }

    fn new(base: &Base) -> Answer<Scene<'_>> {
        let api = base.api;
        api.cuCtxSetCurrent(base.context(0))?;
        let mut scene = Scene {
            base,
            api,
            allocated: 0,
            registered: pages(BLOCK),
            target: 0,
            other: 0,
            streams: [0; 2],
            apart: 0,
            event: 0,
            graph: 0,
        };
        api.cuMemHostAlloc(&raw mut scene.allocated, BLOCK, FOR_KERNELS)?;
        api.cuMemHostRegister_v2(scene.registered, BLOCK, FOR_KERNELS)?;
        api.cuMemAlloc_v2(&raw mut scene.target, BLOCK)?;
        api.cuMemAlloc_v2(&raw mut scene.other, BLOCK)?;
        scene.streams.iter_mut().try_for_each(|stream| api.cuStreamCreate(stream, 0))?;
        api.cuStreamCreate(&raw mut scene.apart, 1)?;
        api.cuEventCreate(&raw mut scene.event, TIMELESS)?;
        let mut graph = 0;
        api.cuStreamBeginCapture_v2(scene.streams[0], RELAXED)?;
        scene.copy(SMALL, scene.streams[0])?;
        api.cuStreamEndCapture(scene.streams[0], &raw mut graph)?;
        api.cuGraphInstantiateWithFlags(&raw mut scene.graph, graph, 0)?;
        Ok(scene)
    }

    /// When the copy of a situation reads: `None` if its target has neither of both in the end.
    fn plays(&self, before: Step, copy: Step) -> Answer<Option<Read>> {
        self.base.begin();
        [self.allocated, self.registered].into_iter().for_each(|source| write_word(source, BEFORE));
        self.api.cuMemsetD32_v2(self.target, 0, BLOCK / 4)?;
        self.api.cuMemsetD32_v2(self.other, 1, BLOCK / 4)?;
        self.api.cuCtxSynchronize()?;
        let given = before(self).and_then(|()| copy(self));
        [OF_SOURCE, ELSEWHERE].into_iter().for_each(|hold| self.base.release(hold));
        given?;
        self.api.cuCtxSynchronize()?;
        let mut found = 0_u32;
        self.api.cuMemcpyDtoH_v2((&raw mut found).expose_provenance(), self.target, 4)?;
        let after = [self.allocated, self.registered].map(read_word).into_iter().find(|word| *word != BEFORE);
        Ok(match found {
            BEFORE => Some(Read::AtOnce),
            found if Some(found) == after => Some(Read::InOrder),
            _ => None,
        })
    }
}

/// Plays all situations, with a line for each: whether each copy reads when this driver is known to.
pub(super) fn play(report: Report, base: &Base) -> Answer<bool> {
    let scene = Scene::new(base)?;
    let mut are_all = true;
    for (situation, before, copy, expected) in TABLE {
        let read = scene.plays(*before, *copy)?;
        are_all &= read == Some(*expected);
        let read = read.map_or("neither", Read::text);
        report.say("waits", json!({ "situation": situation, "reads": read, "expected": expected.text() }));
    }
    Ok(are_all)
}
