//! Graphs of a run: captured on a stream, or built node by node.

use super::api::{Answer, Failed};
use super::machine::{Machine, call_data, mix_on_host};
use super::program::{CELL, Node, Place};

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: i32 = 1;

/// A graph with its executable form.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) graph: usize,
    pub(super) executable: usize,
    pub(super) device: u8,
    stream: u8,
    is_captured: bool,
    nodes: Vec<Node>,
}

/// `CUDA_KERNEL_NODE_PARAMS` of CUDA 12 and later.
#[repr(C)]
struct KernelNode {
    function: usize,
    shape: [u32; 7],
    arguments: *mut *const u64,
    extra: usize,
    kernel: usize,
    context: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
struct SetNode {
    address: usize,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

fn words(cells: u8) -> usize {
    usize::from(cells) * CELL / 4
}

fn with_key(node: &Node, other: u32) -> Node {
    let mut node = *node;
    if let Node::Mix { key, .. } | Node::Set { key, .. } | Node::Call { key, .. } = &mut node {
        *key = other;
    }
    node
}

impl Machine<'_> {
    pub(super) fn make_graph(&self, stream: u8, is_captured: bool, nodes: &[Node], device: u8) -> Answer<Made> {
        let graph = self.describe(stream, is_captured, nodes, device)?;
        let mut executable = 0;
        if let Err(failed) = self.api.cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) {
            let _ended = self.api.cuGraphDestroy(graph);
            return Err(failed);
        }
        Ok(Made { graph, executable, device, stream, is_captured, nodes: nodes.to_vec() })
    }

    pub(super) fn update_graph(&mut self, graph: u8, key: u32, device: u8) -> Answer {
        let none = Failed { call: "a graph that could not be made", code: 0 };
        let made = self.graphs[usize::from(graph)].clone().ok_or(none)?;
        let nodes: Vec<Node> = made.nodes.iter().map(|node| with_key(node, key)).collect();
        // A stream that has ended captures nothing any more, nor does another device's in its place.
        if made.is_captured && !self.has_stream(made.stream, device) {
            return Ok(());
        }
        let other = self.describe(made.stream, made.is_captured, &nodes, device)?;
        // Room for `CUgraphExecUpdateResultInfo`.
        let mut result = [0_u64; 4];
        let updated = self.api.cuGraphExecUpdate_v2(made.executable, other, result.as_mut_ptr().expose_provenance());
        let _ended = self.api.cuGraphDestroy(other);
        updated
    }

    pub(super) fn end_graph(&self, made: &Made) -> Answer {
        self.api.cuGraphExecDestroy(made.executable)?;
        self.api.cuGraphDestroy(made.graph)
    }

    fn describe(&self, stream: u8, is_captured: bool, nodes: &[Node], device: u8) -> Answer<usize> {
        let mut graph = 0;
        if is_captured {
            let stream = self.stream(stream)?;
            self.api.cuStreamBeginCapture_v2(stream, THREAD_LOCAL)?;
            let captured = nodes.iter().try_for_each(|node| self.capture(node, stream, device));
            let ended = self.api.cuStreamEndCapture(stream, &raw mut graph);
            captured.and(ended)?;
            return Ok(graph);
        }
        self.api.cuGraphCreate(&raw mut graph, 0)?;
        let mut last = None;
        for node in nodes {
            match self.add(graph, last, node, device) {
                Ok(added) => last = Some(added),
                Err(failed) => {
                    let _ended = self.api.cuGraphDestroy(graph);
                    return Err(failed);
                }
            }
        }
        Ok(graph)
    }

    fn capture(&self, node: &Node, stream: usize, device: u8) -> Answer {
        match *node {
            Node::Mix { to, from, cells, key } => {
                let arguments = self.arguments(to, from, cells, key)?;
                self.launch_in(self.base.kernels(device).mix, false, stream, &arguments)
            }
            Node::Set { to, cells, key } => self.api.cuMemsetD32Async(self.at(to)?, key, words(cells), stream),
            Node::Copy { to, from, cells } => {
                self.api.cuMemcpyAsync(self.at(to)?, self.at(from)?, usize::from(cells) * CELL, stream)
            }
            Node::Call { to, cells, key } => {
                self.api.cuLaunchHostFunc(stream, mix_on_host, call_data(self.at(to)?, words(cells), key))
            }
        }
    }

    fn arguments(&self, to: Place, from: Place, cells: u8, key: u32) -> Answer<[u64; 4]> {
        Ok([self.at(to)? as u64, self.at(from)? as u64, words(cells) as u64, u64::from(key)])
    }

    fn add(&self, graph: usize, last: Option<usize>, node: &Node, device: u8) -> Answer<usize> {
        let mut added = 0;
        let (place, count) = (&raw mut added, usize::from(last.is_some()));
        let before = last.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        match *node {
            Node::Mix { to, from, cells, key } => {
                let values = self.arguments(to, from, cells, key)?;
                let mut arguments = [0, 1, 2, 3].map(|index: usize| std::ptr::from_ref(&values[index]));
                let params = KernelNode {
                    function: self.base.kernels(device).mix,
                    shape: [1, 1, 1, 32, 1, 1, 0],
                    arguments: arguments.as_mut_ptr(),
                    extra: 0,
                    kernel: 0,
                    context: 0,
                };
                let params = std::ptr::from_ref(&params).expose_provenance();
                self.api.cuGraphAddKernelNode_v2(place, graph, before, count, params)?;
            }
            Node::Set { to, cells, key } => {
                let params =
                    SetNode { address: self.at(to)?, pitch: 0, value: key, element: 4, width: words(cells), height: 1 };
                let params = std::ptr::from_ref(&params).expose_provenance();
                self.api.cuGraphAddMemsetNode(place, graph, before, count, params, self.base.context(device))?;
            }
            Node::Call { to, cells, key } => {
                let function = mix_on_host as *const () as usize;
                let params = [function, call_data(self.at(to)?, words(cells), key)];
                let params = params.as_ptr().expose_provenance();
                self.api.cuGraphAddHostNode(place, graph, before, count, params)?;
            }
            // The plan has them in captures alone.
            Node::Copy { .. } => return Err(Failed { call: "a copy in a graph that is built", code: 0 }),
        }
        Ok(added)
    }
}
