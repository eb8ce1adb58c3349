//! Nodes of graphs that are changed: passed on in the living copy's handles, and described again.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::{
    changed,
    params::{Kernel, Params},
};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::graph as of,
    result::CUresult,
    types::{
        CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUevent, CUgraphNode,
        CUgraphNodeParams, CUkernelNodeAttrID, CUkernelNodeAttrValue,
    },
};

/// From each line `logic(function: further arguments) pass(..);` makes the logic of a function that changes a node.
macro_rules! changed {
    ($(
        $logic:ident($function:ident: $($argument:ident: $type:ty),*)
        $(let $held:ident = $value:expr;)? pass($($passed:expr),*);
    )+) => {
        $(
            #[doc = concat!("Logic of `", stringify!($function), "`.")]
            pub(crate) fn $logic(
                driver: &mut Driver<of::$function::Signature>,
                node: CUgraphNode,
                $($argument: $type),*
            ) -> Result<CUresult, Bypass> {
                $(
                    // SAFETY: the program's argument.
                    let $held = unsafe { $value };
                )?
                // SAFETY: the program's call, with copies of its arguments that live as long.
                let answer = driver.call(|function| unsafe { function(node, $($passed),*) });
                changed(stringify!($function), answer, node, None)
            }
        )+
    };
}

fn pointer<T, U>(held: Option<&T>) -> *const U {
    held.map_or(ptr::null(), |held| ptr::from_ref(held).cast())
}

changed! {
    change_kernel(cuGraphKernelNodeSetParams_v2: params: *const CUDA_KERNEL_NODE_PARAMS)
        let held = Kernel::read(params, false); pass(pointer(held.as_ref()));
    change_old_kernel(cuGraphKernelNodeSetParams: params: *const CUDA_KERNEL_NODE_PARAMS)
        let held = Kernel::read(params, true); pass(pointer(held.as_ref()));
    change_copy(cuGraphMemcpyNodeSetParams: params: *const CUDA_MEMCPY3D) pass(params);
    change_set(cuGraphMemsetNodeSetParams: params: *const CUDA_MEMSET_NODE_PARAMS) pass(params);
    change_host(cuGraphHostNodeSetParams: params: *const CUDA_HOST_NODE_PARAMS) pass(params);
    change_record(cuGraphEventRecordNodeSetEvent: event: CUevent) pass(event);
    change_wait(cuGraphEventWaitNodeSetEvent: event: CUevent) pass(event);
    change_attribute(
        cuGraphKernelNodeSetAttribute: attribute: CUkernelNodeAttrID, value: *const CUkernelNodeAttrValue
    ) pass(attribute, value);
    change_attributes(cuGraphKernelNodeCopyAttributes: source: CUgraphNode) pass(source);
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
    changed("cuGraphNodeSetParams", answer, node, held.and_then(|held| held.context()))
}
