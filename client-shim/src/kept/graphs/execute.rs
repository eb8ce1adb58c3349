//! Executable graphs: made, changed, updated, switched and destroyed, each passed on and noted.
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::{
    ffi::{c_char, c_uint, c_ulonglong},
    mem::offset_of,
    ptr,
    sync::Arc,
};

use super::{
    describe,
    plan::{Plan, Work},
    queries::named_whatever,
};
use crate::{
    cuda::{
        arguments::nodes::{OldKernel, read},
        call::{Bypass, Driver},
        functions::graph as of,
        names::{current_of, name_of},
        result::CUresult,
        types::{
            CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
            CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
            CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, Key as _,
        },
    },
    kept::{
        account::{self, Reason},
        graphs,
        objects::current::context,
    },
};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`: done at once, and no part of what is made.
const UPLOAD: c_ulonglong = 2;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`: a device has its handle.
const DEVICE_LAUNCH: c_ulonglong = 4;

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instantiation {
    flags: c_ulonglong,
    stream: usize,
    error_node: usize,
    result: c_uint,
}

/// Notes an executable graph.
pub(crate) fn instantiated(
    function: &'static str,
    executable: CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Result<(), Bypass> {
    let context = context()?;
    let is_kept = flags & DEVICE_LAUNCH == 0
        && graphs(|graphs| graphs.instantiate(executable.0, graph.0, context, flags & !UPLOAD))?;
    if !is_kept {
        account::made(function, Reason::Graph, executable.key());
    }
    Ok(())
}

/// Logic of `cuGraphInstantiateWithParams`.
pub(crate) fn instantiate_with(
    driver: &mut Driver<of::cuGraphInstantiateWithParams::Signature>,
    place: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's argument.
    let mut held = (!params.is_null()).then(|| unsafe { params.cast::<Instantiation>().read_unaligned() });
    let stream = held.map_or(0, |held| held.stream);
    let answer = driver.call(|function| {
        let held = held.as_mut().map_or(ptr::null_mut(), |held| {
            held.stream = current_of(held.stream);
            ptr::from_mut(held).cast()
        });
        // SAFETY: the program's call, with a copy of its argument that lives as long.
        unsafe { function(place, graph, held) }
    });
    if let Some(held) = held {
        let told = Instantiation { stream, error_node: name_of(held.error_node), ..held };
        // SAFETY: the driver writes its results there.
        unsafe { params.cast::<Instantiation>().write_unaligned(told) };
    }
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let executable = unsafe { *place };
        instantiated("cuGraphInstantiateWithParams", executable, graph, held.map_or(0, |held| held.flags))?;
    }
    Ok(answer)
}

/// Logic of `cuGraphInstantiate`.
pub(crate) fn instantiate_plainly(
    driver: &mut Driver<of::cuGraphInstantiate_v2::Signature>,
    place: *mut CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    _log: *mut c_char,
    _length: usize,
) -> Result<CUresult, Bypass> {
    let answer = named_whatever(error_node, || driver.pass());
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        instantiated("cuGraphInstantiate", unsafe { place.read_unaligned() }, graph, 0)?;
    }
    Ok(answer)
}

/// Logic of `cuGraphExecDestroy`.
pub(crate) fn destroy_executable(
    driver: &mut Driver<of::cuGraphExecDestroy::Signature>,
    executable: CUgraphExec,
) -> Result<CUresult, Bypass> {
    let taken = graphs(|graphs| graphs.forget_executable(executable.0))?;
    let answer = driver.pass();
    if answer.is_success() {
        account::gone(executable.key());
    } else if let Some(taken) = taken {
        graphs(|graphs| graphs.restore_executable(executable.0, taken))?;
    }
    Ok(answer)
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
struct Updated {
    result: c_uint,
    nodes: [CUgraphNode; 2],
}

/// Logic of `cuGraphExecUpdate_v2`.
pub(crate) fn update(
    driver: &mut Driver<of::cuGraphExecUpdate_v2::Signature>,
    executable: CUgraphExec,
    graph: CUgraph,
    info: *mut CUgraphExecUpdateResultInfo,
) -> Result<CUresult, Bypass> {
    let at = |index| match info.is_null() {
        true => ptr::null_mut(),
        false => info.wrapping_byte_add(offset_of!(Updated, nodes)).cast::<CUgraphNode>().wrapping_add(index),
    };
    let answer = named_whatever(at(0), || named_whatever(at(1), || driver.pass()));
    if answer.is_success() {
        updated("cuGraphExecUpdate", executable, graph)?;
    }
    Ok(answer)
}

/// Logic of `cuGraphExecUpdate`.
pub(crate) fn update_plainly(
    driver: &mut Driver<of::cuGraphExecUpdate::Signature>,
    executable: CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    _result: *mut CUgraphExecUpdateResult,
) -> Result<CUresult, Bypass> {
    let answer = named_whatever(error_node, || driver.pass());
    if answer.is_success() {
        updated("cuGraphExecUpdate", executable, graph)?;
    }
    Ok(answer)
}

/// Notes an executable graph that does what another graph does.
fn updated(function: &'static str, executable: CUgraphExec, by: CUgraph) -> Result<(), Bypass> {
    let was_kept = graphs(|graphs| graphs.is_executable(executable.0))?;
    if was_kept && !graphs(|graphs| graphs.update(executable.0, by.0))? {
        lose(function, Reason::Graph, executable)?;
    }
    Ok(())
}

/// An executable graph cannot be made again any longer.
fn lose(function: &'static str, reason: Reason, executable: CUgraphExec) -> Result<(), Bypass> {
    if graphs(|graphs| graphs.forget_executable(executable.0))?.is_some() {
        account::made(function, reason, executable.key());
    }
    Ok(())
}

/// After `cuGraphNodeSetEnabled`.
pub(crate) fn enable(executable: CUgraphExec, node: CUgraphNode, is_enabled: c_uint) -> Result<(), Bypass> {
    graphs(|graphs| graphs.enable(executable.0, node.0, is_enabled != 0))?;
    Ok(())
}

/// Notes what a node of an executable graph does now.
pub(crate) fn told(
    function: &'static str,
    executable: CUgraphExec,
    node: CUgraphNode,
    work: impl FnOnce() -> Result<Work, Reason>,
) -> Result<(), Bypass> {
    if !graphs(|graphs| graphs.is_executable(executable.0))? {
        return Ok(());
    }
    match work() {
        Ok(work) => {
            let work = graphs(|graphs| graphs.as_before(executable.0, node.0, work))?;
            if graphs(|graphs| graphs.change_executable(executable.0, node.0, Arc::new(work)))? {
                Ok(())
            } else {
                lose(function, Reason::Graph, executable)
            }
        }
        Err(reason) => lose(function, reason, executable),
    }
}

/// What the program has given the driver.
fn given<T: Copy>(params: *const impl Sized) -> Result<T, Reason> {
    // SAFETY: the driver has just read it.
    unsafe { read(params.cast()) }.ok_or(Reason::Graph)
}

pub(crate) fn launch(params: *const CUDA_KERNEL_NODE_PARAMS) -> Result<Work, Reason> {
    describe::launch(&given(params)?).map(Work::Launch)
}

pub(crate) fn old_launch(params: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Result<Work, Reason> {
    describe::launch(&given::<OldKernel>(params)?.into()).map(Work::Launch)
}

pub(crate) fn copy(params: *const CUDA_MEMCPY3D, context: CUcontext) -> Result<Work, Reason> {
    describe::copy(given(params)?, context.0)
}

pub(crate) fn set(params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Result<Work, Reason> {
    Ok(Work::Set { words: given(params)?, context: context.0 })
}

pub(crate) fn host(params: *const CUDA_HOST_NODE_PARAMS) -> Result<Work, Reason> {
    let [function, data] = given(params)?;
    Ok(Work::Host { function, data })
}

pub(crate) fn child(graph: CUgraph) -> Result<Work, Reason> {
    plan_of(graph.0).map(|plan| Work::Child { graph: 0, plan }).ok_or(Reason::Graph)
}

pub(crate) fn record(event: CUevent) -> Result<Work, Reason> {
    Ok(Work::Record { event: event.0 })
}

pub(crate) fn wait(event: CUevent) -> Result<Work, Reason> {
    Ok(Work::Wait { event: event.0 })
}

pub(crate) fn any(params: *const CUgraphNodeParams) -> Result<Work, Reason> {
    describe::given(&given(params)?, plan_of)
}

fn plan_of(graph: usize) -> Option<Plan> {
    graphs(|graphs| graphs.plan(graph).cloned()).ok().flatten()
}
