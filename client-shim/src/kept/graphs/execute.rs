//! Executable graphs: made, changed, updated, switched and destroyed, each passed on and noted.
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::{
    ffi::{c_uint, c_ulonglong},
    ptr,
    sync::Arc,
};

use super::{
    describe,
    plan::{Launch, Work},
};
use crate::{
    cuda::{
        arguments::nodes::{Held, Kernel, Params},
        call::{Bypass, Driver},
        functions::graph as of,
        names::current_of,
        result::CUresult,
        types::{
            CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D,
            CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams,
            Key as _,
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
        let told = Instantiation { stream, error_node: crate::cuda::names::name_of(held.error_node), ..held };
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

/// Notes an executable graph that does what another graph does.
pub(crate) fn updated(executable: CUgraphExec, by: CUgraph) -> Result<(), Bypass> {
    let was_kept = graphs(|graphs| graphs.is_executable(executable.0))?;
    if was_kept && !graphs(|graphs| graphs.update(executable.0, by.0))? {
        lose("cuGraphExecUpdate", Reason::Graph, executable)?;
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
fn told(
    function: &'static str,
    answer: CUresult,
    executable: CUgraphExec,
    node: CUgraphNode,
    work: impl FnOnce() -> Result<Work, Reason>,
) -> Result<CUresult, Bypass> {
    if answer.is_success() && graphs(|graphs| graphs.is_executable(executable.0))? {
        match work() {
            Ok(work) => {
                let work = graphs(|graphs| graphs.as_before(executable.0, node.0, work))?;
                if !graphs(|graphs| graphs.change_executable(executable.0, node.0, Arc::new(work)))? {
                    lose(function, Reason::Graph, executable)?;
                }
            }
            Err(reason) => lose(function, reason, executable)?,
        }
    }
    Ok(answer)
}

fn pointer<T, U>(held: Option<&T>) -> *const U {
    held.map_or(ptr::null(), |held| ptr::from_ref(held).cast())
}

/// Words of the program's.
///
/// # Safety
/// There are so many.
unsafe fn words<T, const N: usize>(params: *const T) -> Result<[u64; N], Reason> {
    if params.is_null() {
        return Err(Reason::Graph);
    }
    // SAFETY: by the contract.
    Ok(unsafe { params.cast::<[u64; N]>().read_unaligned() })
}

fn launch(held: Option<Held<Kernel>>) -> Result<Work, Reason> {
    let launch: Launch = describe::launch(held.as_deref().ok_or(Reason::Graph)?)?;
    Ok(Work::Launch(launch))
}

/// From each line `logic(function: further arguments) pass(..) => work;` makes the logic of a function that changes a
/// node of an executable graph.
macro_rules! told {
    ($(
        $logic:ident($function:ident: $($argument:ident: $type:ty),*)
        $(let $held:ident = $value:expr;)? pass($($passed:expr),*) => $work:expr;
    )+) => {
        $(
            #[doc = concat!("Logic of `", stringify!($function), "`.")]
            pub(crate) fn $logic(
                driver: &mut Driver<of::$function::Signature>,
                executable: CUgraphExec,
                node: CUgraphNode,
                $($argument: $type),*
            ) -> Result<CUresult, Bypass> {
                $(
                    // SAFETY: the program's argument.
                    let $held = unsafe { $value };
                )?
                // SAFETY: the program's call, with copies of its arguments that live as long.
                let answer = driver.call(|function| unsafe { function(executable, node, $($passed),*) });
                told(stringify!($function), answer, executable, node, || $work)
            }
        )+
    };
}

told! {
    execute_kernel(cuGraphExecKernelNodeSetParams_v2: params: *const CUDA_KERNEL_NODE_PARAMS)
        let held = Kernel::read(params, false); pass(pointer(held.as_ref())) => launch(held);
    execute_old_kernel(cuGraphExecKernelNodeSetParams: params: *const CUDA_KERNEL_NODE_PARAMS)
        let held = Kernel::read(params, true); pass(pointer(held.as_ref())) => launch(held);
    execute_copy(cuGraphExecMemcpyNodeSetParams: params: *const CUDA_MEMCPY3D, context: CUcontext)
        let held = words(params); pass(params, context) => describe::copy(held?, context.0);
    execute_set(cuGraphExecMemsetNodeSetParams: params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext)
        let held = words(params); pass(params, context) => Ok(Work::Set { words: held?, context: context.0 });
    execute_host(cuGraphExecHostNodeSetParams: params: *const CUDA_HOST_NODE_PARAMS)
        let held = words::<_, 2>(params); pass(params) => {
            let [function, data] = held?.map(|word| usize::try_from(word).expect("addresses have 64 bits here"));
            Ok(Work::Host { function, data })
        };
    execute_child(cuGraphExecChildGraphNodeSetParams: child: CUgraph)
        pass(child) => plan_of(child.0).map(|plan| Work::Child { graph: 0, plan }).ok_or(Reason::Graph);
    execute_record(cuGraphExecEventRecordNodeSetEvent: event: CUevent)
        pass(event) => Ok(Work::Record { event: event.0 });
    execute_wait(cuGraphExecEventWaitNodeSetEvent: event: CUevent) pass(event) => Ok(Work::Wait { event: event.0 });
}

fn plan_of(graph: usize) -> Option<super::plan::Plan> {
    graphs(|graphs| graphs.plan(graph).cloned()).ok().flatten()
}

/// Logic of `cuGraphExecNodeSetParams`.
pub(crate) fn execute(
    driver: &mut Driver<of::cuGraphExecNodeSetParams::Signature>,
    executable: CUgraphExec,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's argument.
    let mut held = unsafe { Params::read(params) };
    let answer = driver.call(|function| {
        let params = held.as_mut().map_or(ptr::null_mut(), |held| ptr::from_mut(held).cast());
        // SAFETY: the program's call, with a copy of its argument that lives as long.
        unsafe { function(executable, node, params) }
    });
    told("cuGraphExecNodeSetParams", answer, executable, node, || {
        describe::given(held.as_deref().ok_or(Reason::Graph)?, plan_of)
    })
}
