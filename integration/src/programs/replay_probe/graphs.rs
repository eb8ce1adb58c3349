//! Graphs, made once: one captured across two streams and destroyed once it is executable, one built by hand that lives
//! on, with two executable forms, one of them changed. Rounds launch all of them, change nodes by their names, and make an
//! executable form anew.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

mod parameters;

pub(super) use parameters::{Increment, copy_params, set_params};

use super::failed;
use super::workload::words_are;
use crate::programs::gpu::{Argument, Gpu, GpuError, Kernel, Stream};
use crate::programs::memory_probe::{allocate, check};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// Words of each block.
const WORDS: u32 = 2048;
const BYTES: usize = WORDS as usize * 4;
/// Blocks: counted up by the capture's two streams, by the graph, by the changed form and by the embedded graph; set, and
/// copied to.
const FIRST: usize = 0;
const SECOND: usize = 1;
const BUILT: usize = 2;
const CHANGED: usize = 3;
const EMBEDDED: usize = 4;
const SET: usize = 5;
const COPIED: usize = 6;
const BLOCKS: usize = 7;

/// How often the graphs' host function was called.
static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn call(_data: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
}

/// The graphs.
pub(super) struct Graphs {
    blocks: [u64; BLOCKS],
    host: Vec<u32>,
    context: sys::CUcontext,
    increment: Kernel,
    captured: sys::CUgraphExec,
    graph: sys::CUgraph,
    kernel_node: sys::CUgraphNode,
    set_node: sys::CUgraphNode,
    event: sys::CUevent,
    built: sys::CUgraphExec,
    changed: sys::CUgraphExec,
    count: u32,
    rounds: u32,
}

/// An executable form of a graph.
pub(super) fn instantiate(graph: sys::CUgraph) -> Result<sys::CUgraphExec, GpuError> {
    let mut executable = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) })?;
    Ok(executable)
}

fn event() -> Result<sys::CUevent, GpuError> {
    let mut event = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 2) })?;
    Ok(event)
}

/// A graph of one kernel.
fn single(increment: Kernel, address: u64) -> Result<sys::CUgraph, GpuError> {
    let (mut graph, mut node) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the result is a variable of ours.
    check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
    let mut arguments = Increment::of(address, WORDS);
    let params = arguments.params(increment);
    // SAFETY: the driver copies the arguments in the call.
    let answer = unsafe { sys::cuGraphAddKernelNode_v2(&raw mut node, graph, std::ptr::null(), 0, &raw const params) };
    check("cuGraphAddKernelNode", answer)?;
    Ok(graph)
}

impl Graphs {
    pub(super) fn new(gpu: &Gpu, increment: Kernel, streams: [Stream; 2]) -> Result<Self, GpuError> {
        let mut blocks = [0; BLOCKS];
        for block in &mut blocks {
            *block = allocate(BYTES)?;
        }
        let null = std::ptr::null_mut;
        let mut context = std::ptr::null_mut();
        // SAFETY: the result is a variable of ours.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) })?;
        let mut graphs = Self {
            blocks,
            host: vec![0; WORDS as usize],
            context,
            increment,
            captured: null(),
            graph: std::ptr::null_mut(),
            kernel_node: std::ptr::null_mut(),
            set_node: std::ptr::null_mut(),
            event: event()?,
            built: null(),
            changed: null(),
            count: 0,
            rounds: 0,
        };
        graphs.capture(gpu, streams)?;
        graphs.build()?;
        graphs.begin_anew(gpu)?;
        Ok(graphs)
    }

    /// Two streams count up, the second one after the first; then the first one's words are copied to the host.
    fn capture(&mut self, gpu: &Gpu, [first, second]: [Stream; 2]) -> Result<(), GpuError> {
        let (fork, join) = (event()?, event()?);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as the process.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(first.0, mode) })?;
        let words = |block: usize| [Argument::U64(self.blocks[block]), Argument::U32(WORDS)];
        gpu.launch_in(first, self.increment, WORDS, &words(FIRST))?;
        // SAFETY: all of them live as long as the process.
        check("cuEventRecord", unsafe { sys::cuEventRecord(fork, first.0) })?;
        // SAFETY: as above.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(second.0, fork, 0) })?;
        gpu.launch_in(second, self.increment, WORDS, &words(SECOND))?;
        // SAFETY: the destination is as long as the copy and stays where it is.
        let answer =
            unsafe { sys::cuMemcpyDtoHAsync_v2(self.host.as_mut_ptr().cast(), self.blocks[FIRST], BYTES, first.0) };
        check("cuMemcpyDtoHAsync", answer)?;
        // SAFETY: as above.
        check("cuEventRecord", unsafe { sys::cuEventRecord(join, second.0) })?;
        // SAFETY: as above.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(first.0, join, 0) })?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the result is a variable of ours.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(first.0, &raw mut graph) })?;
        self.captured = instantiate(graph)?;
        // SAFETY: it is not used again.
        check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })
    }

    /// Sets a block, copies it, counts up, counts up in an embedded graph, calls the host, records an event.
    fn build(&mut self) -> Result<(), GpuError> {
        let null = std::ptr::null_mut;
        // SAFETY: the result is a variable of ours.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut self.graph, 0) })?;
        let graph = self.graph;
        let set = set_params(self.blocks[SET], WORDS, 0);
        let (into, none) = (&raw mut self.set_node, std::ptr::null());
        // SAFETY: the driver copies the parameters in the call, here and below.
        let answer = unsafe { sys::cuGraphAddMemsetNode(into, graph, none, 0, &raw const set, self.context) };
        check("cuGraphAddMemsetNode", answer)?;
        let copy = copy_params(self.blocks[COPIED], self.blocks[SET], WORDS);
        let mut copy_node = null();
        let (into, before) = (&raw mut copy_node, &raw const self.set_node);
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphAddMemcpyNode(into, graph, before, 1, &raw const copy, self.context) };
        check("cuGraphAddMemcpyNode", answer)?;
        let mut arguments = Increment::of(self.blocks[BUILT], WORDS);
        let params = arguments.params(self.increment);
        // SAFETY: as above.
        let answer =
            unsafe { sys::cuGraphAddKernelNode_v2(&raw mut self.kernel_node, graph, none, 0, &raw const params) };
        check("cuGraphAddKernelNode", answer)?;
        let child = single(self.increment, self.blocks[EMBEDDED])?;
        let mut child_node = null();
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphAddChildGraphNode(&raw mut child_node, graph, none, 0, child) };
        check("cuGraphAddChildGraphNode", answer)?;
        // SAFETY: the driver has a copy of it.
        check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(child) })?;
        let (mut empty, mut host_node, mut record) = (null(), null(), null());
        let before = [copy_node, self.kernel_node];
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphAddEmptyNode(&raw mut empty, graph, before.as_ptr(), 2) };
        check("cuGraphAddEmptyNode", answer)?;
        let host = sys::CUDA_HOST_NODE_PARAMS { fn_: Some(call), userData: std::ptr::null_mut() };
        // SAFETY: as above.
        let answer =
            unsafe { sys::cuGraphAddHostNode(&raw mut host_node, graph, &raw const empty, 1, &raw const host) };
        check("cuGraphAddHostNode", answer)?;
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphAddEventRecordNode(&raw mut record, graph, none, 0, self.event) };
        check("cuGraphAddEventRecordNode", answer)?;
        let (from, to) = ([host_node, child_node], [record, record]);
        // SAFETY: both lists have two nodes.
        let answer =
            unsafe { sys::cuGraphAddDependencies_v2(graph, from.as_ptr(), to.as_ptr(), std::ptr::null(), from.len()) };
        check("cuGraphAddDependencies", answer)?;
        self.built = instantiate(graph)?;
        // The other form counts another block up, and calls nobody.
        self.changed = instantiate(graph)?;
        let mut arguments = Increment::of(self.blocks[CHANGED], WORDS);
        let params = arguments.params(self.increment);
        // SAFETY: as above.
        let answer =
            unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.changed, self.kernel_node, &raw const params) };
        check("cuGraphExecKernelNodeSetParams", answer)?;
        Ok(())
    }

    fn launch(executable: sys::CUgraphExec, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: both live as long as the process.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(executable, stream.0) })
    }

    /// Launches everything on a stream, waits, and compares.
    pub(super) fn round(&mut self, gpu: &Gpu, stream: Stream) -> Result<(), GpuError> {
        self.rounds += 1;
        // A node of the graph names one of its executable form.
        let set = set_params(self.blocks[SET], WORDS, self.rounds);
        // SAFETY: the driver copies the parameters in the call.
        let answer =
            unsafe { sys::cuGraphExecMemsetNodeSetParams(self.built, self.set_node, &raw const set, self.context) };
        check("cuGraphExecMemsetNodeSetParams", answer)?;
        Self::launch(self.captured, stream)?;
        Self::launch(self.changed, stream)?;
        Self::launch(self.built, stream)?;
        let made = instantiate(self.graph)?;
        let mut enabled = 0;
        // SAFETY: the result is a variable of ours.
        let answer = unsafe { sys::cuGraphNodeGetEnabled(made, self.kernel_node, &raw mut enabled) };
        check("cuGraphNodeGetEnabled", answer)?;
        // SAFETY: it is not used again.
        check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(made) })?;
        // SAFETY: they live as long as the process.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0) })?;
        // SAFETY: as above. A graph has recorded it.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })?;
        self.count += 1;
        let embedded = 2 * self.count;
        let expected = [
            (FIRST, self.count),
            (SECOND, self.count),
            (BUILT, self.count),
            (CHANGED, self.count),
            (EMBEDDED, embedded),
            (SET, self.rounds),
            (COPIED, self.rounds),
        ];
        for (block, value) in expected {
            let words = gpu.read(self.blocks[block], WORDS as usize)?;
            if !words_are(&words, value) {
                return Err(failed("cuGraphLaunch", format_args!("block {block}: {} in place of {value}", words[0])));
            }
        }
        if !words_are(&self.host, self.count) || CALLS.load(Ordering::SeqCst) != embedded || enabled != 1 {
            return Err(failed("cuGraphLaunch", "something else was done on the host"));
        }
        Ok(())
    }

    /// After lost work, or at first.
    pub(super) fn begin_anew(&mut self, gpu: &Gpu) -> Result<(), GpuError> {
        gpu.synchronize()?;
        for block in self.blocks {
            gpu.clear(block, BYTES)?;
        }
        gpu.synchronize()?;
        self.count = 0;
        CALLS.store(0, Ordering::SeqCst);
        Ok(())
    }
}

/// Leaves a graph with a node that is not made again.
pub(super) fn leave_a_graph_that_is_not_made_again() -> Result<(), GpuError> {
    let (mut graph, mut object) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the result is a variable of ours.
    check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
    let signals = sys::CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
        extSemArray: std::ptr::null_mut(),
        paramsArray: std::ptr::null(),
        numExtSems: 0,
    };
    // SAFETY: there are no semaphores.
    let answer = unsafe {
        sys::cuGraphAddExternalSemaphoresSignalNode(&raw mut object, graph, std::ptr::null(), 0, &raw const signals)
    };
    check("cuGraphAddExternalSemaphoresSignalNode", answer)
}
