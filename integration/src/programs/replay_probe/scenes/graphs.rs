//! Graphs whose nodes work in another context than the one that is current when they change, and nodes that the driver
//! names: those for which something cannot be done, and a capture's last ones.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, Stage, beside, check, code, current, enter, function, second_context, stream};
use crate::programs::replay_probe::graphs::{copy_params, instantiate, set_params};
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ptr::{null, null_mut};

/// What the graphs write.
pub(super) const VALUE: u32 = 7;

pub(super) fn graph() -> Result<sys::CUgraph, GpuError> {
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

pub(super) fn set(graph: sys::CUgraph, word: u64, context: sys::CUcontext) -> Result<sys::CUgraphNode, GpuError> {
    let mut node = null_mut();
    let params = set_params(word, 1, VALUE);
    // SAFETY: as above, and the driver copies the parameters in the call.
    let answer = unsafe { sys::cuGraphAddMemsetNode(&raw mut node, graph, null(), 0, &raw const params, context) };
    check("cuGraphAddMemsetNode", answer)?;
    Ok(node)
}

pub(super) fn copy(
    graph: sys::CUgraph,
    to: u64,
    from: u64,
    context: sys::CUcontext,
) -> Result<sys::CUgraphNode, GpuError> {
    let mut node = null_mut();
    let params = copy_params(to, from, 1);
    // SAFETY: as above.
    let answer = unsafe { sys::cuGraphAddMemcpyNode(&raw mut node, graph, null(), 0, &raw const params, context) };
    check("cuGraphAddMemcpyNode", answer)?;
    Ok(node)
}

pub(super) fn behind(graph: sys::CUgraph, from: sys::CUgraphNode, to: sys::CUgraphNode) -> Result<(), GpuError> {
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

/// The executable form of a graph copies and sets in the second device's context, where the graph itself does so in the first
/// one's: what its launch after a fault answers, and what is there.
pub(super) fn places_of_executables(stage: &Stage) -> Result<Value, GpuError> {
    let (first, other) = (current()?, second_context()?);
    let graph = graph()?;
    let word = |at: u64| stage.others + at * 4;
    let sets = set(graph, word(0), first)?;
    let copies = copy(graph, word(1), word(0), first)?;
    behind(graph, sets, copies)?;
    let executable = instantiate(graph)?;
    let (to_set, to_copy) = (set_params(word(2), 1, VALUE), copy_params(word(3), word(2), 1));
    // SAFETY: the driver copies the parameters in the call.
    let set = unsafe { sys::cuGraphExecMemsetNodeSetParams(executable, sets, &raw const to_set, other) };
    check("cuGraphExecMemsetNodeSetParams", set)?;
    // SAFETY: as above.
    let copied = unsafe { sys::cuGraphExecMemcpyNodeSetParams(executable, copies, &raw const to_copy, other) };
    check("cuGraphExecMemcpyNodeSetParams", copied)?;
    let found = beside::fault(stage)?;
    // SAFETY: it is ours.
    let launched = code(unsafe { sys::cuGraphLaunch(executable, null_mut()) });
    stage.gpu.synchronize()?;
    Ok(json!({ "found": found, "launched": launched, "words": stage.gpu.read(stage.others, 4)? }))
}

/// `cuGraphInstantiate` and `cuGraphExecUpdate` of CUDA 11.
type Instantiate =
    unsafe extern "C" fn(*mut sys::CUgraphExec, sys::CUgraph, *mut sys::CUgraphNode, *mut i8, usize) -> sys::CUresult;
type Update = unsafe extern "C" fn(
    sys::CUgraphExec,
    sys::CUgraph,
    *mut sys::CUgraphNode,
    *mut sys::CUgraphExecUpdateResult,
) -> sys::CUresult;

/// Of each call after a fault what it answers, and whether it names the node that it cannot have by the name that the program
/// knows.
pub(super) fn wrong_nodes(stage: &Stage) -> Result<Value, GpuError> {
    let (circle, other, one) = (graph()?, graph()?, graph()?);
    let nodes = [empty(circle)?, empty(circle)?];
    let of_other = set(other, stage.others, current()?)?;
    empty(one)?;
    let executable = instantiate(one)?;
    let found = beside::fault(stage)?;
    behind(circle, nodes[0], nodes[1])?;
    behind(circle, nodes[1], nodes[0])?;
    // SAFETY: the functions of these names have these types.
    let instantiate: Instantiate = unsafe { std::mem::transmute(function(c"cuGraphInstantiate_v2")?) };
    // SAFETY: as above.
    let update: Update = unsafe { std::mem::transmute(function(c"cuGraphExecUpdate")?) };
    let (mut made, mut node) = (null_mut(), null_mut());
    // SAFETY: the results are variables of ours, here and below.
    let plainly = unsafe { instantiate(&raw mut made, circle, &raw mut node, null_mut(), 0) };
    let plainly = json!([code(plainly), node == nodes[0]]);
    // SAFETY: zeros are no flags and no stream.
    let mut params: sys::CUDA_GRAPH_INSTANTIATE_PARAMS = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let with = unsafe { sys::cuGraphInstantiateWithParams(&raw mut made, circle, &raw mut params) };
    let with = json!([code(with), params.hErrNode_out == nodes[0]]);
    let mut result = sys::CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS;
    // SAFETY: as above.
    let updated = unsafe { update(executable, other, &raw mut node, &raw mut result) };
    let updated = json!([code(updated), node == of_other]);
    // SAFETY: zeros are a success and no nodes.
    let mut info: sys::CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let told = unsafe { sys::cuGraphExecUpdate_v2(executable, other, &raw mut info) };
    let told = json!([code(told), info.errorNode == of_other, info.errorFromNode.is_null()]);
    Ok(json!({ "found": found, "instantiated": [plainly, with], "updated": [updated, told] }))
}

/// A capture goes on after a fault behind a node from before it: what the driver says of it.
pub(super) fn last_nodes(stage: &Stage) -> Result<Value, GpuError> {
    let (graph, captured) = (graph()?, stream(1)?);
    let node = empty(graph)?;
    let found = beside::fault(stage)?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: all are ours, and the results are variables of ours, here and below.
    let begun = unsafe { sys::cuStreamBeginCaptureToGraph(captured, graph, &raw const node, null(), 1, mode) };
    check("cuStreamBeginCaptureToGraph", begun)?;
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut of, mut last, mut count, none) = (null_mut(), null(), 0, null_mut());
    // SAFETY: as above.
    let told = unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            captured,
            &raw mut status,
            none,
            &raw mut of,
            &raw mut last,
            null_mut(),
            &raw mut count,
        )
    };
    check("cuStreamGetCaptureInfo", told)?;
    // SAFETY: there are so many.
    let last: Vec<_> = (0..count).map(|at| unsafe { last.wrapping_add(at).read() }).collect();
    // SAFETY: as above.
    check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(captured, &raw mut of) })?;
    Ok(json!({ "found": found, "is_graph": of == graph, "is_node": last == [node] }))
}

fn nodes_of(graph: sys::CUgraph) -> Result<Vec<sys::CUgraphNode>, GpuError> {
    let mut count = 0;
    // SAFETY: the results are variables of ours, here and below.
    check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(graph, null_mut(), &raw mut count) })?;
    let mut nodes = vec![null_mut(); count];
    if count > 0 {
        // SAFETY: as above.
        check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) })?;
    }
    Ok(nodes)
}

/// Nodes that are added after a fault, in each way, where others have ended whose handles they get: whether the driver names
/// them as it did when they were added.
pub(super) fn nodes_again(stage: &Stage) -> Result<Value, GpuError> {
    let (graph, context) = (graph()?, current()?);
    let nodes = [empty(graph)?, empty(graph)?, empty(graph)?];
    let found = beside::fault(stage)?;
    for node in &nodes[1..] {
        // SAFETY: it is not used again.
        check("cuGraphDestroyNode", unsafe { sys::cuGraphDestroyNode(*node) })?;
    }
    let added = [empty(graph)?, set(graph, stage.others, context)?];
    let (mut clone, mut of_clone) = (null_mut(), null_mut());
    // SAFETY: the results are variables of ours.
    check("cuGraphClone", unsafe { sys::cuGraphClone(&raw mut clone, graph) })?;
    // SAFETY: as above.
    check("cuGraphNodeFindInClone", unsafe { sys::cuGraphNodeFindInClone(&raw mut of_clone, added[1], clone) })?;
    let is_same = nodes_of(graph)? == [nodes[0], added[0], added[1]];
    Ok(json!({ "found": found, "is_same": is_same, "is_in_clone": nodes_of(clone)?.contains(&of_clone) }))
}
