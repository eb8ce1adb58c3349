//! What a program asks of graphs, with the names that it knows.
#![expect(unsafe_code, reason = "calls the driver and names what it has written")]

use std::ffi::c_uint;

use super::params::{Kernel, Params, name_nodes, nodes};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::{graph as of, stream as of_stream},
    result::CUresult,
    types::{CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeParams, CUstream},
};

/// Names the nodes of a list that the driver has filled.
fn listed(answer: CUresult, list: *mut CUgraphNode, count: *const usize) {
    if answer.is_success() && !count.is_null() {
        // SAFETY: the driver has written there how many there are.
        let count = unsafe { count.read_unaligned() };
        // SAFETY: as it has answered.
        unsafe { name_nodes(list, count) };
    }
}

/// Logic of `cuGraphGetNodes` and `cuGraphGetRootNodes`.
pub(crate) fn look_at_nodes(
    driver: &mut Driver<of::cuGraphGetNodes::Signature>,
    graph: CUgraph,
    list: *mut CUgraphNode,
    count: *mut usize,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(graph, list, count) });
    listed(answer, list, count);
    Ok(answer)
}

/// Logic of `cuGraphGetEdges_v2`.
pub(crate) fn look_at_edges(
    driver: &mut Driver<of::cuGraphGetEdges_v2::Signature>,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(graph, from, to, data, count) });
    listed(answer, from, count);
    listed(answer, to, count);
    Ok(answer)
}

/// Logic of `cuGraphGetEdges`.
pub(crate) fn look_at_plain_edges(
    driver: &mut Driver<of::cuGraphGetEdges::Signature>,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(graph, from, to, count) });
    listed(answer, from, count);
    listed(answer, to, count);
    Ok(answer)
}

/// Logic of `cuGraphNodeGetDependencies_v2` and `cuGraphNodeGetDependentNodes_v2`.
pub(crate) fn look_around(
    driver: &mut Driver<of::cuGraphNodeGetDependencies_v2::Signature>,
    node: CUgraphNode,
    list: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(node, list, data, count) });
    listed(answer, list, count);
    Ok(answer)
}

/// Logic of `cuGraphNodeGetDependencies` and `cuGraphNodeGetDependentNodes`.
pub(crate) fn look_around_plainly(
    driver: &mut Driver<of::cuGraphNodeGetDependencies::Signature>,
    node: CUgraphNode,
    list: *mut CUgraphNode,
    count: *mut usize,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(node, list, count) });
    listed(answer, list, count);
    Ok(answer)
}

/// Logic of `cuGraphNodeFindInClone`.
pub(crate) fn look_in_clone(
    driver: &mut Driver<of::cuGraphNodeFindInClone::Signature>,
    place: *mut CUgraphNode,
    original: CUgraphNode,
    copy: CUgraph,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(place, original, copy) });
    listed(answer, place, &raw const ONE);
    Ok(answer)
}

/// A list of one.
static ONE: usize = 1;

/// Logic of `cuGraphKernelNodeGetParams_v2`.
pub(crate) fn look_at_kernel(
    driver: &mut Driver<of::cuGraphKernelNodeGetParams_v2::Signature>,
    node: CUgraphNode,
    params: *mut CUDA_KERNEL_NODE_PARAMS,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(node, params) });
    if answer.is_success() {
        // SAFETY: the driver has just filled it.
        unsafe { Kernel::name(params, false) };
    }
    Ok(answer)
}

/// Logic of `cuGraphKernelNodeGetParams`.
pub(crate) fn look_at_old_kernel(
    driver: &mut Driver<of::cuGraphKernelNodeGetParams::Signature>,
    node: CUgraphNode,
    params: *mut CUDA_KERNEL_NODE_PARAMS,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(node, params) });
    if answer.is_success() {
        // SAFETY: the driver has just filled it.
        unsafe { Kernel::name(params, true) };
    }
    Ok(answer)
}

/// Logic of `cuGraphNodeGetParams`.
pub(crate) fn look_at_params(
    driver: &mut Driver<of::cuGraphNodeGetParams::Signature>,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(node, params) });
    if answer.is_success() {
        // SAFETY: the driver has just filled it.
        unsafe { Params::name(params) };
    }
    Ok(answer)
}

/// Logic of `cuStreamUpdateCaptureDependencies_v2`.
pub(crate) fn depend(
    driver: &mut Driver<of_stream::cuStreamUpdateCaptureDependencies_v2::Signature>,
    stream: CUstream,
    list: *mut CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program says that there are so many.
    let mut held = unsafe { nodes(list, count) };
    let passed = if list.is_null() { list } else { held.as_mut_ptr() };
    // SAFETY: the program's call, with a copy of its list that lives as long.
    Ok(driver.call(|function| unsafe { function(stream, passed, data, count, flags) }))
}

/// Logic of `cuStreamUpdateCaptureDependencies`.
pub(crate) fn depend_plainly(
    driver: &mut Driver<of_stream::cuStreamUpdateCaptureDependencies::Signature>,
    stream: CUstream,
    list: *mut CUgraphNode,
    count: usize,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program says that there are so many.
    let mut held = unsafe { nodes(list, count) };
    let passed = if list.is_null() { list } else { held.as_mut_ptr() };
    // SAFETY: the program's call, with a copy of its list that lives as long.
    Ok(driver.call(|function| unsafe { function(stream, passed, count, flags) }))
}
