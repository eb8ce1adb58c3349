//! Graphs whose nodes work in another context than the one that is current when they change.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, Stage, beside, check, code, current, enter, second_context};
use crate::programs::replay_probe::graphs::{copy_params, instantiate, set_params};
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ptr::{null, null_mut};

/// What the graphs write.
const VALUE: u32 = 7;

fn graph() -> Result<sys::CUgraph, GpuError> {
    let mut graph = null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
    Ok(graph)
}

fn empty(graph: sys::CUgraph) -> Result<sys::CUgraphNode, GpuError> {
    let mut node = null_mut();
    // SAFETY: as above.
    check("cuGraphAddEmptyNode", unsafe { sys::cuGraphAddEmptyNode(&raw mut node, graph, null(), 0) })?;
    Ok(node)
}

fn set(graph: sys::CUgraph, word: u64, context: sys::CUcontext) -> Result<sys::CUgraphNode, GpuError> {
    let mut node = null_mut();
    let params = set_params(word, 1, VALUE);
    // SAFETY: as above, and the driver copies the parameters in the call.
    let answer = unsafe { sys::cuGraphAddMemsetNode(&raw mut node, graph, null(), 0, &raw const params, context) };
    check("cuGraphAddMemsetNode", answer)?;
    Ok(node)
}

fn copy(graph: sys::CUgraph, to: u64, from: u64, context: sys::CUcontext) -> Result<sys::CUgraphNode, GpuError> {
    let mut node = null_mut();
    let params = copy_params(to, from, 1);
    // SAFETY: as above.
    let answer = unsafe { sys::cuGraphAddMemcpyNode(&raw mut node, graph, null(), 0, &raw const params, context) };
    check("cuGraphAddMemcpyNode", answer)?;
    Ok(node)
}

fn behind(graph: sys::CUgraph, from: sys::CUgraphNode, to: sys::CUgraphNode) -> Result<(), GpuError> {
    // SAFETY: both are nodes of it.
    let answer = unsafe { sys::cuGraphAddDependencies_v2(graph, &raw const from, &raw const to, null(), 1) };
    check("cuGraphAddDependencies", answer)
}

/// What is done to a graph with a node that works on the first device while the second one's context is current; the graph
/// that is then made executable.
type Way = fn(sys::CUgraph, sys::CUgraphNode, u64) -> Result<sys::CUgraph, GpuError>;

const WAYS: [Way; 5] = [
    |graph, node, _| {
        behind(graph, node, empty(graph)?)?;
        Ok(graph)
    },
    |graph, _, _| {
        // SAFETY: it was just added.
        check("cuGraphDestroyNode", unsafe { sys::cuGraphDestroyNode(empty(graph)?) })?;
        Ok(graph)
    },
    |graph, node, word| {
        let params = set_params(word, 1, VALUE);
        // SAFETY: the driver copies the parameters in the call.
        check("cuGraphMemsetNodeSetParams", unsafe { sys::cuGraphMemsetNodeSetParams(node, &raw const params) })?;
        Ok(graph)
    },
    |graph, _, _| {
        let mut clone = null_mut();
        // SAFETY: the result is a variable of ours.
        check("cuGraphClone", unsafe { sys::cuGraphClone(&raw mut clone, graph) })?;
        Ok(clone)
    },
    |child, _, _| {
        let (graph, mut node) = (graph()?, null_mut());
        // SAFETY: as above.
        let answer = unsafe { sys::cuGraphAddChildGraphNode(&raw mut node, graph, null(), 0, child) };
        check("cuGraphAddChildGraphNode", answer)?;
        Ok(graph)
    },
];

/// The second device's context ends then, and the first one has a fault. Each graph writes a word of its own; the last one
/// copies the first one's.
pub(super) fn places(stage: &Stage) -> Result<Value, GpuError> {
    let (first, other) = (current()?, second_context()?);
    let words: Vec<u64> = (0..=WAYS.len() as u64).map(|at| stage.others + at * 4).collect();
    let mut executables = Vec::new();
    for (way, word) in WAYS.iter().zip(&words) {
        let graph = graph()?;
        let node = set(graph, *word, first)?;
        enter(other)?;
        let graph = way(graph, node, *word)?;
        enter(first)?;
        executables.push(instantiate(graph)?);
    }
    let graph = graph()?;
    let node = copy(graph, words[WAYS.len()], words[0], first)?;
    enter(other)?;
    behind(graph, node, empty(graph)?)?;
    enter(first)?;
    executables.push(instantiate(graph)?);
    // SAFETY: nothing of it is used again.
    check("cuDevicePrimaryCtxReset", unsafe { sys::cuDevicePrimaryCtxReset_v2(1) })?;
    let found = beside::fault(stage)?;
    // SAFETY: they are ours.
    let launch = |executable: &sys::CUgraphExec| code(unsafe { sys::cuGraphLaunch(*executable, null_mut()) });
    let launched: Vec<u32> = executables.iter().map(launch).collect();
    stage.gpu.synchronize()?;
    Ok(json!({ "found": found, "launched": launched, "words": stage.gpu.read(stage.others, words.len())? }))
}
