//! Executable graphs, and streams under capture.

use super::capture::Begun;
use super::graph::KernelParams;
use super::launch::run;
use super::transfer::{copy_of_words, fill_of_words};
use crate::abi::{In, Out, entry_points};
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::contexts::current;
use crate::driver::driver;
use crate::graphs::{Capture, Graph, Step, Task};
use crate::stream::Stream;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

/// Gives a task to a stream.
fn submit(context: &Arc<Context>, stream: &Arc<Stream>, task: &Task) -> Outcome {
    let operation: crate::stream::Operation = match task {
        Task::Launch(launch) => return run(context, stream, launch),
        Task::Record(event) => return super::event::record_in(stream, *event),
        Task::Wait(event) => return super::stream::wait_in(context, stream, *event),
        Task::Copy(words) => copy_of_words(words)?,
        Task::Fill(words) => fill_of_words(words)?,
        &Task::Host([function, data]) => host(function, data)?,
        Task::Empty | Task::Child(_) => return Ok(()),
        Task::Signal => return Err(Code::NOT_SUPPORTED),
    };
    stream.enqueue(context, operation).map(drop)
}

#[expect(unsafe_code, reason = "the program's function comes as a number")]
fn host(function: usize, data: usize) -> Outcome<crate::stream::Operation> {
    if function == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let address = std::ptr::with_exposed_provenance::<c_void>(function);
    // SAFETY: by the contract of a host node it is a function that takes a pointer.
    let function = unsafe { std::mem::transmute::<*const c_void, extern "C" fn(*mut c_void)>(address) };
    Ok(Box::new(move |_: &Context| {
        function(std::ptr::with_exposed_provenance_mut(data));
        Ok(())
    }))
}

fn launch(executable: usize, stream: usize) -> Outcome {
    let (driver, context) = current()?;
    let stream = super::stream::find(&context, stream)?;
    let steps = driver.tables().graphs.executables.get(&executable).cloned().ok_or(Code::INVALID_VALUE)?;
    let is_torn = crate::copies::is_torn("cuGraphLaunch");
    steps.iter().filter(|step| step.is_enabled).try_for_each(|step| {
        submit(&context, &stream, &step.task)?;
        if is_torn {
            context.drain()?;
            context.fail(Code::LAUNCH_FAILED);
        }
        Ok(())
    })
}

fn instantiate(place: &Out<usize>, graph: usize) -> Outcome {
    let (driver, _) = current()?;
    let handle = driver.new_handle();
    let mut tables = driver.tables();
    let steps = tables.graphs.steps(graph)?;
    tables.graphs.executables.insert(handle, steps);
    tables.users.hold_as(handle, graph);
    place.put(handle)
}

/// The same, with the node for which it cannot be done.
fn instantiate_or_name(place: &Out<usize>, graph: usize, node: &Out<usize>) -> Outcome {
    node.put_if_wanted(0);
    instantiate(place, graph).inspect_err(|_| {
        let wrong = driver().ok().and_then(|driver| driver.tables().graphs.wrong_node(graph));
        node.put_if_wanted(wrong.unwrap_or(0));
    })
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Instantiation {
    flags: c_ulonglong,
    stream: usize,
    node: usize,
    result: c_uint,
}

/// `CU_GRAPH_EXEC_UPDATE_SUCCESS`, `CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED`.
const UPDATED: c_uint = 0;
const OF_ANOTHER_KIND: c_uint = 3;

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UpdateInfo {
    result: c_uint,
    node: usize,
    from: usize,
}

fn update(executable: usize, graph: usize) -> Outcome<UpdateInfo> {
    let driver = driver()?;
    let mut tables = driver.tables();
    let steps = tables.graphs.steps(graph)?;
    let known = tables.graphs.executables.get_mut(&executable).ok_or(Code::INVALID_VALUE)?;
    let is_other = |(known, step): (&Step, &Step)| known.task.kind() != step.task.kind();
    let other = known.iter().zip(&steps).position(is_other);
    if let Some(at) = other.or((known.len() != steps.len()).then_some(0)) {
        return Ok(UpdateInfo { result: OF_ANOTHER_KIND, node: steps.get(at).map_or(0, |step| step.node), from: 0 });
    }
    known.iter_mut().zip(steps).for_each(|(known, step)| known.task = step.task);
    Ok(UpdateInfo { result: UPDATED, node: 0, from: 0 })
}

fn with_steps<T>(executable: usize, node: usize, work: impl FnOnce(&mut Step) -> Outcome<T>) -> Outcome<T> {
    let driver = driver()?;
    let mut tables = driver.tables();
    let steps = tables.graphs.executables.get_mut(&executable).ok_or(Code::INVALID_VALUE)?;
    work(steps.iter_mut().find(|step| step.node == node).ok_or(Code::INVALID_VALUE)?)
}

fn set(executable: usize, node: usize, task: Task) -> Outcome {
    with_steps(executable, node, |step| {
        if step.task.kind() != task.kind() {
            return Err(Code::INVALID_VALUE);
        }
        step.task = task;
        Ok(())
    })
}

/// As documented: where no capture goes on only the status is written, `CU_STREAM_CAPTURE_STATUS_NONE` or `…_INVALIDATED`.
fn capture_info(
    stream: usize,
    status: &Out<c_int>,
    number: &Out<u64>,
    graph: &Out<usize>,
    last: &Out<*const usize>,
    count: &Out<usize>,
) -> Outcome {
    let (driver, _) = current()?;
    let tables = driver.tables();
    let Some(capture) = tables.graphs.captures.get(&stream) else { return status.put(0) };
    if capture.is_broken {
        return status.put(2);
    }
    number.put_if_wanted(capture.graph as u64);
    graph.put_if_wanted(capture.graph);
    last.put_if_wanted(capture.last.as_ptr());
    count.put_if_wanted(capture.last.len());
    status.put(1)
}

entry_points! {
    fn cuGraphInstantiateWithFlags(place: Out<usize>, graph: usize, _flags: c_ulonglong) {
        instantiate(&place, graph)
    }

    fn cuGraphInstantiate_v2(
        place: Out<usize>, graph: usize, node: Out<usize>, _log: *mut c_void, _length: usize,
    ) {
        instantiate_or_name(&place, graph, &node)
    }

    fn cuGraphInstantiateWithParams(place: Out<usize>, graph: usize, params: usize) {
        let asked = In::<Instantiation>::placed(params).get()?;
        let mut node = 0;
        let answer = instantiate_or_name(&place, graph, &Out::at((&raw mut node).expose_provenance()));
        Out::at(params).put(Instantiation { node, result: c_uint::from(answer.is_err()), ..asked })?;
        answer
    }

    fn cuGraphExecDestroy(executable: usize) {
        let mut tables = driver()?.tables();
        tables.graphs.executables.remove(&executable).ok_or(Code::INVALID_VALUE)?;
        tables.users.let_go(executable);
        Ok(())
    }

    fn cuGraphLaunch(executable: usize, stream: usize) {
        launch(executable, stream)
    }

    fn cuGraphUpload(executable: usize, _stream: usize) {
        current()?;
        let is_known = driver()?.tables().graphs.executables.contains_key(&executable);
        if is_known { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuGraphExecKernelNodeSetParams_v2(executable: usize, node: usize, params: In<KernelParams>) {
        set(executable, node, params.get()?.task()?)
    }

    fn cuGraphExecMemsetNodeSetParams(executable: usize, node: usize, params: In<[u64; 5]>, _context: usize) {
        set(executable, node, Task::Fill(params.get()?))
    }

    fn cuGraphExecMemcpyNodeSetParams(executable: usize, node: usize, params: In<[u64; 25]>, _context: usize) {
        set(executable, node, Task::Copy(params.get()?))
    }

    fn cuGraphExecUpdate_v2(executable: usize, graph: usize, place: Out<UpdateInfo>) {
        let info = update(executable, graph)?;
        place.put_if_wanted(info);
        if info.result == UPDATED { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphExecUpdate(executable: usize, graph: usize, node: Out<usize>, result: Out<c_uint>) {
        let info = update(executable, graph)?;
        node.put_if_wanted(info.node);
        result.put_if_wanted(info.result);
        if info.result == UPDATED { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphNodeSetEnabled(executable: usize, node: usize, is_enabled: c_uint) {
        with_steps(executable, node, |step| {
            step.is_enabled = is_enabled != 0;
            Ok(())
        })
    }

    fn cuGraphNodeGetEnabled(executable: usize, node: usize, is_enabled: Out<c_uint>) {
        with_steps(executable, node, |step| is_enabled.put(c_uint::from(step.is_enabled)))
    }

    fn cuStreamBeginCapture_v2(stream: usize, mode: c_int) {
        let (driver, context) = current()?;
        super::stream::find(&context, stream)?;
        let graph = driver.new_handle();
        let mut tables = driver.tables();
        if stream == 0 || tables.graphs.captures.contains_key(&stream) {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        tables.graphs.graphs.insert(graph, Graph::default());
        let begun = Some(Begun::new(mode));
        let capture = Capture { graph, context: context.handle, last: Vec::new(), begun, is_broken: false };
        tables.graphs.captures.insert(stream, capture);
        Ok(())
    }

    fn cuStreamBeginCaptureToGraph(
        stream: usize, graph: usize, last: In<usize>, _data: *mut c_void, count: usize, mode: c_int,
    ) {
        let (driver, context) = current()?;
        super::stream::find(&context, stream)?;
        let mut tables = driver.tables();
        let last = (0..count).map(|at| last.at(at)).collect::<Outcome<Vec<usize>>>()?;
        let is_whole = last.iter().all(|node| tables.graphs.node(*node).is_ok_and(|node| node.graph == graph));
        if stream == 0 || tables.graphs.captures.contains_key(&stream) || !is_whole {
            return Err(Code::INVALID_VALUE);
        }
        tables.graphs.graph(graph)?;
        let begun = Some(Begun::new(mode));
        let capture = Capture { graph, context: context.handle, last, begun, is_broken: false };
        tables.graphs.captures.insert(stream, capture);
        Ok(())
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: usize, status: Out<c_int>, number: Out<u64>, graph: Out<usize>, last: Out<*const usize>,
        count: Out<usize>,
    ) {
        capture_info(stream, &status, &number, &graph, &last, &count)
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: usize, status: Out<c_int>, number: Out<u64>, graph: Out<usize>, last: Out<*const usize>,
        _data: *mut c_void, count: Out<usize>,
    ) {
        capture_info(stream, &status, &number, &graph, &last, &count)
    }

    fn cuStreamEndCapture(stream: usize, place: Out<usize>) {
        let (driver, _) = current()?;
        let mut tables = driver.tables();
        let capture = tables.graphs.captures.get(&stream).filter(|capture| capture.begun.is_some()).cloned();
        let Capture { graph, is_broken, begun, .. } = capture.ok_or(Code::ILLEGAL_STATE)?;
        if begun.is_some_and(Begun::is_anothers) {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        if place.is_absent() {
            return Err(Code::INVALID_VALUE);
        }
        tables.graphs.captures.retain(|_, capture| capture.graph != graph);
        tables.graphs.events.retain(|_, (of, _)| *of != graph);
        if is_broken {
            place.put_if_wanted(0);
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        place.put(graph)
    }
}
