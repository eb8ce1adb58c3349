//! Nodes of graphs that are changed with parameters that name others: passed on in the living copy's handles, and
//! described again.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::changed;
use crate::cuda::{
    arguments::nodes::{Kernel, Params},
    call::{Bypass, Driver},
    functions::graph as of,
    result::CUresult,
    types::{CUDA_KERNEL_NODE_PARAMS, CUgraphNode, CUgraphNodeParams},
};

/// Logic of `cuGraphKernelNodeSetParams_v2`.
pub(crate) fn change_kernel(
    driver: &mut Driver<of::cuGraphKernelNodeSetParams_v2::Signature>,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<CUresult, Bypass> {
    of_kernel("cuGraphKernelNodeSetParams_v2", driver, node, params, false)
}

/// Logic of `cuGraphKernelNodeSetParams`.
pub(crate) fn change_old_kernel(
    driver: &mut Driver<of::cuGraphKernelNodeSetParams::Signature>,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<CUresult, Bypass> {
    of_kernel("cuGraphKernelNodeSetParams", driver, node, params, true)
}

fn of_kernel(
    function: &'static str,
    driver: &mut Driver<of::cuGraphKernelNodeSetParams_v2::Signature>,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS,
    is_old: bool,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's argument.
    let held = unsafe { Kernel::read(params, is_old) };
    let passed = held.as_ref().map_or(ptr::null(), |held| ptr::from_ref(held).cast());
    // SAFETY: the program's call, with a copy of its argument that lives as long.
    let answer = driver.call(|function| unsafe { function(node, passed) });
    if answer.is_success() {
        changed(function, node, None)?;
    }
    Ok(answer)
}

/// Logic of `cuGraphNodeSetParams` and `cuGraphNodeSetParams_v2`.
pub(crate) fn change(
    driver: &mut Driver<of::cuGraphNodeSetParams::Signature>,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's argument.
    let mut held = unsafe { Params::read(params) };
    let answer = driver.call(|function| {
        let params = held.as_mut().map_or(ptr::null_mut(), |held| ptr::from_mut(held).cast());
        // SAFETY: the program's call, with a copy of its argument that lives as long.
        unsafe { function(node, params) }
    });
    if answer.is_success() {
        changed("cuGraphNodeSetParams", node, held.and_then(|held| held.context()))?;
    }
    Ok(answer)
}
