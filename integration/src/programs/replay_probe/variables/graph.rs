//! A graph that works on variables, and whose nodes are told anew of their addresses before each launch.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::super::failed;
use super::super::graphs::{Increment, copy_params, instantiate, set_params};
use super::super::workload::words_are;
use crate::programs::gpu::{Gpu, GpuError, Kernel, Stream};
use crate::programs::memory_probe::{allocate, check};
use cudarc::driver::sys;

/// Where the graph works.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// A variable that the graph sets.
    pub(super) mark: u64,
    /// A variable that it counts up and copies.
    pub(super) tally: u64,
    /// Words of each.
    pub(super) words: u32,
}

/// The graph.
pub(super) struct Changing {
    places: Places,
    /// What the tally is copied to.
    block: u64,
    context: sys::CUcontext,
    increment: Kernel,
    /// A set, a launch, and a copy after it.
    nodes: [sys::CUgraphNode; 3],
    executable: sys::CUgraphExec,
    rounds: u32,
}

impl Changing {
    pub(super) fn new(increment: Kernel, places: Places) -> Result<Self, GpuError> {
        let block = allocate(places.words as usize * 4)?;
        let (mut context, mut graph) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the result is a variable of ours, here and below.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) })?;
        // SAFETY: as above.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
        let [mut set_node, mut launch_node, mut copy_node] = [std::ptr::null_mut(); 3];
        let none = std::ptr::null();
        let set = set_params(places.mark, places.words, 0);
        // SAFETY: the driver copies the parameters in the call, here and below.
        let answer = unsafe { sys::cuGraphAddMemsetNode(&raw mut set_node, graph, none, 0, &raw const set, context) };
        check("cuGraphAddMemsetNode", answer)?;
        let mut arguments = Increment::of(places.tally, places.words);
        let launch = arguments.params(increment);
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphAddKernelNode_v2(&raw mut launch_node, graph, none, 0, &raw const launch) };
        check("cuGraphAddKernelNode", answer)?;
        let copy = copy_params(block, places.tally, places.words);
        let (into, before) = (&raw mut copy_node, &raw const launch_node);
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphAddMemcpyNode(into, graph, before, 1, &raw const copy, context) };
        check("cuGraphAddMemcpyNode", answer)?;
        let nodes = [set_node, launch_node, copy_node];
        Ok(Self { places, block, context, increment, nodes, executable: instantiate(graph)?, rounds: 0 })
    }

    /// Tells all nodes where to work, launches the graph, waits, and compares: the tally is now this.
    pub(super) fn round(&mut self, gpu: &Gpu, stream: Stream, tally: u32) -> Result<(), GpuError> {
        self.rounds += 1;
        let Self { places: Places { mark, tally: counted, words }, executable, context, .. } = *self;
        let [set_node, launch_node, copy_node] = self.nodes;
        let set = set_params(mark, words, self.rounds);
        // SAFETY: the driver copies the parameters in the call, here and below.
        let answer = unsafe { sys::cuGraphExecMemsetNodeSetParams(executable, set_node, &raw const set, context) };
        check("cuGraphExecMemsetNodeSetParams", answer)?;
        let mut arguments = Increment::of(counted, words);
        let launch = arguments.params(self.increment);
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphExecKernelNodeSetParams_v2(executable, launch_node, &raw const launch) };
        check("cuGraphExecKernelNodeSetParams", answer)?;
        let copy = copy_params(self.block, counted, words);
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphExecMemcpyNodeSetParams(executable, copy_node, &raw const copy, context) };
        check("cuGraphExecMemcpyNodeSetParams", answer)?;
        // SAFETY: both live as long as the process.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(executable, stream.0) })?;
        // SAFETY: as above.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0) })?;
        for (what, address, expected) in [("mark", mark, self.rounds), ("block", self.block, tally)] {
            if !words_are(&gpu.read(address, words as usize)?, expected) {
                return Err(failed("cuGraphLaunch", format_args!("a word of the {what} is not {expected}")));
            }
        }
        Ok(())
    }
}
