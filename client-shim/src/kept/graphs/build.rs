//! Graphs that a program makes, and the nodes that it adds: passed on in the living copy's handles, and noted.
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::ptr;

use super::{added, around, rearranged, refuse};
use crate::{
    cuda::{
        arguments::nodes::{Held, Kernel, Params, nodes},
        call::{Bypass, Driver},
        functions::graph as of,
        result::CUresult,
        types::{
            CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
            CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D,
            CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphEdgeData, CUgraphNode,
            CUgraphNodeParams, Key as _,
        },
    },
    kept::{
        account::{self, Reason},
        graphs,
    },
};

/// Logic of `cuGraphDestroy`. It is forgotten first, since another one may get its handle at once.
pub(crate) fn destroy(driver: &mut Driver<of::cuGraphDestroy::Signature>, graph: CUgraph) -> Result<CUresult, Bypass> {
    let taken = graphs(|graphs| graphs.forget(graph.0))?;
    let answer = driver.pass();
    if answer.is_success() {
        account::gone(graph.key());
    } else if let Some(taken) = taken {
        graphs(|graphs| graphs.restore(graph.0, taken))?;
    }
    Ok(answer)
}

/// After `cuStreamBeginRecaptureToGraph`: what it leaves of the graph is told by nobody.
pub(crate) fn recapture(graph: CUgraph) -> Result<(), Bypass> {
    refuse("cuStreamBeginRecaptureToGraph", Reason::Graph, graph.0)
}

/// Translated nodes as the driver takes them: none stay none.
fn list(translated: &[CUgraphNode], given: *const CUgraphNode) -> *const CUgraphNode {
    if given.is_null() { given } else { translated.as_ptr() }
}

fn pointer<T, U>(held: Option<&T>) -> *const U {
    held.map_or(ptr::null(), |held| ptr::from_ref(held).cast())
}

/// Notes a node after a call that adds one.
fn noted(
    function: &'static str,
    answer: CUresult,
    graph: CUgraph,
    place: *mut CUgraphNode,
    told: Option<usize>,
) -> Result<CUresult, Bypass> {
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        added(function, graph, unsafe { *place }, told)?;
    }
    Ok(answer)
}

/// From each line `logic(function: further arguments) pass(..) told(context);` makes the logic of a function that adds a
/// node.
macro_rules! added {
    ($(
        $logic:ident($function:ident: $($argument:ident: $type:ty),*)
        $(let $held:ident = $value:expr;)? pass($($passed:expr),*) told($told:expr);
    )+) => {
        $(
            #[doc = concat!("Logic of `", stringify!($function), "`.")]
            pub(crate) fn $logic(
                driver: &mut Driver<of::$function::Signature>,
                place: *mut CUgraphNode,
                graph: CUgraph,
                before: *const CUgraphNode,
                count: usize,
                $($argument: $type),*
            ) -> Result<CUresult, Bypass> {
                // SAFETY: the program says that there are so many.
                let listed = unsafe { nodes(before, count) };
                $(
                    // SAFETY: the program's argument.
                    let $held = unsafe { $value };
                )?
                let answer = driver.call(|function| {
                    // SAFETY: the program's call, with copies of its arguments that live as long.
                    unsafe { function(place, graph, list(&listed, before), count, $($passed),*) }
                });
                noted(stringify!($function), answer, graph, place, $told)
            }
        )+
    };
}

added! {
    add_kernel(cuGraphAddKernelNode_v2: params: *const CUDA_KERNEL_NODE_PARAMS)
        let held = Kernel::read(params, false); pass(pointer(held.as_ref())) told(None);
    add_old_kernel(cuGraphAddKernelNode: params: *const CUDA_KERNEL_NODE_PARAMS)
        let held = Kernel::read(params, true); pass(pointer(held.as_ref())) told(None);
    add_copy(cuGraphAddMemcpyNode: params: *const CUDA_MEMCPY3D, context: CUcontext)
        pass(params, context) told(Some(context.0));
    add_set(cuGraphAddMemsetNode: params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext)
        pass(params, context) told(Some(context.0));
    add_host(cuGraphAddHostNode: params: *const CUDA_HOST_NODE_PARAMS) pass(params) told(None);
    add_child(cuGraphAddChildGraphNode: child: CUgraph) pass(child) told(None);
    add_empty(cuGraphAddEmptyNode:) pass() told(None);
    add_record(cuGraphAddEventRecordNode: event: CUevent) pass(event) told(None);
    add_wait(cuGraphAddEventWaitNode: event: CUevent) pass(event) told(None);
    add_signal(cuGraphAddExternalSemaphoresSignalNode: params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS)
        pass(params) told(None);
    add_external_wait(cuGraphAddExternalSemaphoresWaitNode: params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS)
        pass(params) told(None);
    add_batch(cuGraphAddBatchMemOpNode: params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) pass(params) told(None);
    add_allocation(cuGraphAddMemAllocNode: params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) pass(params) told(None);
    add_free(cuGraphAddMemFreeNode: address: CUdeviceptr) pass(address) told(None);
}

/// Copies what the driver has written into a copy of `CUgraphNodeParams` back to the program's: an allocation's address.
fn given_back(held: Option<&Held<Params>>, params: *mut CUgraphNodeParams, answer: CUresult) {
    if let Some(held) = held.filter(|held| answer.is_success() && !held.has_handles()) {
        // SAFETY: the program's argument, which the driver may write.
        unsafe { params.cast::<Params>().write_unaligned(**held) };
    }
}

/// Logic of `cuGraphAddNode_v2` and `cuGraphAddNode_v3`.
pub(crate) fn add(
    driver: &mut Driver<of::cuGraphAddNode_v2::Signature>,
    place: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program says that there are so many.
    let listed = unsafe { nodes(before, count) };
    // SAFETY: the program's argument.
    let mut held = unsafe { Params::read(params) };
    let answer = driver.call(|function| {
        let params = held.as_mut().map_or(ptr::null_mut(), |held| ptr::from_mut(held).cast());
        // SAFETY: the program's call, with copies of its arguments that live as long.
        unsafe { function(place, graph, list(&listed, before), edges, count, params) }
    });
    given_back(held.as_ref(), params, answer);
    noted("cuGraphAddNode", answer, graph, place, held.and_then(|held| held.context()))
}

/// Logic of `cuGraphAddNode`.
pub(crate) fn add_plainly(
    driver: &mut Driver<of::cuGraphAddNode::Signature>,
    place: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program says that there are so many.
    let listed = unsafe { nodes(before, count) };
    // SAFETY: the program's argument.
    let mut held = unsafe { Params::read(params) };
    let answer = driver.call(|function| {
        let params = held.as_mut().map_or(ptr::null_mut(), |held| ptr::from_mut(held).cast());
        // SAFETY: the program's call, with copies of its arguments that live as long.
        unsafe { function(place, graph, list(&listed, before), count, params) }
    });
    given_back(held.as_ref(), params, answer);
    noted("cuGraphAddNode", answer, graph, place, held.and_then(|held| held.context()))
}

/// Logic of `cuGraphAddDependencies_v2` and `cuGraphRemoveDependencies_v2`.
pub(crate) fn connect(
    driver: &mut Driver<of::cuGraphAddDependencies_v2::Signature>,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program says that there are so many of each.
    let [before, after] = [from, to].map(|given| unsafe { nodes(given, count) });
    let answer = driver.call(|function| {
        // SAFETY: the program's call, with copies of its arguments that live as long.
        unsafe { function(graph, list(&before, from), list(&after, to), edges, count) }
    });
    rearranged("cuGraphAddDependencies", answer, around(graph.0))
}

/// Logic of `cuGraphAddDependencies` and `cuGraphRemoveDependencies`.
pub(crate) fn connect_plainly(
    driver: &mut Driver<of::cuGraphAddDependencies::Signature>,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program says that there are so many of each.
    let [before, after] = [from, to].map(|given| unsafe { nodes(given, count) });
    let answer = driver.call(|function| {
        // SAFETY: the program's call, with copies of its arguments that live as long.
        unsafe { function(graph, list(&before, from), list(&after, to), count) }
    });
    rearranged("cuGraphAddDependencies", answer, around(graph.0))
}

/// Logic of `cuGraphDestroyNode`.
pub(crate) fn destroy_node(
    driver: &mut Driver<of::cuGraphDestroyNode::Signature>,
    node: CUgraphNode,
) -> Result<CUresult, Bypass> {
    let root = around(node.0);
    let answer = driver.pass();
    rearranged("cuGraphDestroyNode", answer, root)
}
