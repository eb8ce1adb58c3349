//! Graphs that a program builds, and what it asks of them.

use super::launch::{read_arguments, shape_of};
use crate::abi::{In, Out, entry_points};
use crate::codes::{Code, Outcome};
use crate::contexts::current;
use crate::driver::{Tables, driver};
use crate::graphs::{Edge, Graph, Launch, Task};
use std::ffi::{c_int, c_uint};

/// Attributes of kernels' nodes that this driver knows: cooperation, priority, domains of memory order, and those of CUDA 13.
const ATTRIBUTES: [c_uint; 6] = [2, 8, DOMAIN_MAP, 16, 17, 18];
/// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`, and what is said of it where it was not set (measured with 580.159.04).
const DOMAIN_MAP: c_uint = 9;
const USUAL_MAP: [u64; 8] = [0x100, 0, 0, 0, 0, 0, 0, 0];

/// `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelParams {
    function: usize,
    shape: [c_uint; 7],
    arguments: usize,
    extra: usize,
    kernel: usize,
    context: usize,
}

impl KernelParams {
    /// What a node does that is given so.
    pub(super) fn task(&self) -> Outcome<Task> {
        if self.extra != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let function = if self.function == 0 { self.kernel } else { self.function };
        let values = read_arguments(function, &In::placed(self.arguments))?;
        Ok(Task::Launch(Launch::new(shape_of(function, self.shape)?, self.shape, values)))
    }
}

fn list(nodes: &In<usize>, count: usize) -> Outcome<Vec<usize>> {
    (0..count).map(|index| nodes.at(index)).collect()
}

fn add(place: &Out<usize>, graph: usize, before: &In<usize>, count: usize, task: Task) -> Outcome {
    let driver = driver()?;
    let (before, mut tables) = (list(before, count)?, driver.tables());
    let handle = tables.graphs.spare.pop().unwrap_or_else(|| driver.new_handle());
    tables.graphs.add(handle, graph, &before, task)?;
    place.put(handle)
}

/// Writes as many as there is room for, and how many there are.
fn answer<T: Copy>(found: &[T], place: usize, count: &Out<usize>, room: &In<usize>) -> Outcome {
    if place != 0 {
        for (index, value) in found.iter().take(room.get()?).enumerate() {
            Out::at(place + index * size_of::<T>()).put(*value)?;
        }
    }
    count.put(found.len())
}

fn with_task<T>(node: usize, work: impl FnOnce(&mut Task) -> Outcome<T>) -> Outcome<T> {
    work(&mut driver()?.tables().graphs.node(node)?.task)
}

/// What a node has to do, if it is of the kind that is asked for.
fn part<T>(node: usize, of: impl FnOnce(&Task) -> Option<T>) -> Outcome<T> {
    with_task(node, |task| of(task).ok_or(Code::INVALID_VALUE))
}

/// Has a node do something else of the same kind.
fn set(node: usize, task: Task) -> Outcome {
    with_task(node, |known| {
        if known.kind() != task.kind() {
            return Err(Code::INVALID_VALUE);
        }
        *known = task;
        Ok(())
    })
}

fn edges_of(tables: &mut Tables, graph: usize) -> Outcome<Vec<Edge>> {
    Ok(tables.graphs.graph(graph)?.edges.clone())
}

entry_points! {
    fn cuGraphCreate(place: Out<usize>, _flags: c_uint) {
        let driver = driver()?;
        let handle = driver.new_handle();
        driver.tables().graphs.graphs.insert(handle, Graph::default());
        place.put(handle)
    }

    fn cuGraphClone(place: Out<usize>, original: usize) {
        let driver = driver()?;
        let mut tables = driver.tables();
        let clone = driver.clone_graph(&mut tables, original)?;
        tables.users.hold_as(clone, original);
        place.put(clone)
    }

    fn cuGraphDestroy(graph: usize) {
        let mut tables = driver()?.tables();
        tables.graphs.destroy(graph)?;
        tables.users.let_go(graph);
        Ok(())
    }

    fn cuGraphDestroyNode(node: usize) {
        let driver = driver()?;
        let mut tables = driver.tables();
        let graph = tables.graphs.node(node)?.graph;
        let graph = tables.graphs.graph(graph)?;
        graph.nodes.retain(|of| *of != node);
        graph.edges.retain(|(from, to, _)| ![*from, *to].contains(&node));
        tables.graphs.nodes.remove(&node);
        tables.graphs.spare.push(node);
        Ok(())
    }

    fn cuGraphAddKernelNode_v2(
        place: Out<usize>, graph: usize, before: In<usize>, count: usize, params: In<KernelParams>,
    ) {
        add(&place, graph, &before, count, params.get()?.task()?)
    }

    fn cuGraphAddMemcpyNode(
        place: Out<usize>, graph: usize, before: In<usize>, count: usize, params: In<[u64; 25]>, _context: usize,
    ) {
        add(&place, graph, &before, count, Task::Copy(params.get()?))
    }

    fn cuGraphAddMemsetNode(
        place: Out<usize>, graph: usize, before: In<usize>, count: usize, params: In<[u64; 5]>, _context: usize,
    ) {
        add(&place, graph, &before, count, Task::Fill(params.get()?))
    }

    fn cuGraphAddHostNode(place: Out<usize>, graph: usize, before: In<usize>, count: usize, params: In<[usize; 2]>) {
        add(&place, graph, &before, count, Task::Host(params.get()?))
    }

    fn cuGraphAddChildGraphNode(place: Out<usize>, graph: usize, before: In<usize>, count: usize, child: usize) {
        let driver = driver()?;
        let copy = driver.clone_graph(&mut driver.tables(), child)?;
        add(&place, graph, &before, count, Task::Child(copy))
    }

    fn cuGraphAddEmptyNode(place: Out<usize>, graph: usize, before: In<usize>, count: usize) {
        add(&place, graph, &before, count, Task::Empty)
    }

    fn cuGraphAddEventRecordNode(place: Out<usize>, graph: usize, before: In<usize>, count: usize, event: usize) {
        super::event::find(driver()?, event)?;
        add(&place, graph, &before, count, Task::Record(event))
    }

    fn cuGraphAddEventWaitNode(place: Out<usize>, graph: usize, before: In<usize>, count: usize, event: usize) {
        super::event::find(driver()?, event)?;
        add(&place, graph, &before, count, Task::Wait(event))
    }

    fn cuGraphAddExternalSemaphoresSignalNode(
        place: Out<usize>, graph: usize, before: In<usize>, count: usize, _params: usize,
    ) {
        add(&place, graph, &before, count, Task::Signal)
    }

    fn cuGraphAddDependencies_v2(graph: usize, from: In<usize>, to: In<usize>, data: In<[u8; 8]>, count: usize) {
        let driver = driver()?;
        let mut tables = driver.tables();
        let graph = tables.graphs.graph(graph)?;
        for index in 0..count {
            let data = if data.is_absent() { [0; 8] } else { data.at(index)? };
            let edge = (from.at(index)?, to.at(index)?, data);
            if [edge.0, edge.1].iter().any(|node| !graph.nodes.contains(node)) || graph.edges.contains(&edge) {
                return Err(Code::INVALID_VALUE);
            }
            graph.edges.push(edge);
        }
        Ok(())
    }

    fn cuGraphRemoveDependencies_v2(graph: usize, from: In<usize>, to: In<usize>, data: In<[u8; 8]>, count: usize) {
        let driver = driver()?;
        let mut tables = driver.tables();
        let graph = tables.graphs.graph(graph)?;
        for index in 0..count {
            let data = if data.is_absent() { [0; 8] } else { data.at(index)? };
            let gone = (from.at(index)?, to.at(index)?, data);
            let known = graph.edges.iter().position(|edge| *edge == gone);
            graph.edges.remove(known.ok_or(Code::INVALID_VALUE)?);
        }
        Ok(())
    }

    fn cuGraphGetNodes(graph: usize, place: usize, count: usize) {
        let nodes = driver()?.tables().graphs.graph(graph)?.nodes.clone();
        answer(&nodes, place, &Out::at(count), &In::placed(count))
    }

    fn cuGraphGetEdges_v2(graph: usize, from: usize, to: usize, data: usize, count: usize) {
        let edges = edges_of(&mut driver()?.tables(), graph)?;
        let (out, room) = (Out::at(count), In::placed(count));
        answer(&edges.iter().map(|edge| edge.2).collect::<Vec<_>>(), data, &Out::at(count), &room)?;
        answer(&edges.iter().map(|edge| edge.0).collect::<Vec<_>>(), from, &Out::at(count), &room)?;
        answer(&edges.iter().map(|edge| edge.1).collect::<Vec<_>>(), to, &out, &room)
    }

    fn cuGraphNodeGetDependencies_v2(node: usize, from: usize, data: usize, count: usize) {
        let edges = {
            let driver = driver()?;
            let mut tables = driver.tables();
            let graph = tables.graphs.node(node)?.graph;
            edges_of(&mut tables, graph)?
        };
        let to: Vec<Edge> = edges.into_iter().filter(|edge| edge.1 == node).collect();
        let room = In::placed(count);
        answer(&to.iter().map(|edge| edge.2).collect::<Vec<_>>(), data, &Out::at(count), &room)?;
        answer(&to.iter().map(|edge| edge.0).collect::<Vec<_>>(), from, &Out::at(count), &room)
    }

    fn cuGraphNodeGetType(node: usize, kind: Out<c_uint>) {
        kind.put(with_task(node, |task| Ok(task.kind()))?)
    }

    fn cuGraphNodeFindInClone(place: Out<usize>, original: usize, clone: usize) {
        let found = driver()?.tables().graphs.graph(clone)?.origins.get(&original).copied();
        place.put(found.ok_or(Code::INVALID_VALUE)?)
    }

    fn cuGraphChildGraphNodeGetGraph(node: usize, place: Out<usize>) {
        part(node, |task| if let Task::Child(child) = task { Some(*child) } else { None }).and_then(|child| place.put(child))
    }

    fn cuGraphKernelNodeGetParams_v2(node: usize, params: Out<KernelParams>) {
        let context = current().map_or(0, |(_, context)| context.handle);
        let launch = part(node, |task| if let Task::Launch(launch) = task { Some(launch.clone()) } else { None })?;
        // The node keeps the list as long as it is as it is.
        let arguments = launch.places.as_ptr().expose_provenance();
        let (function, shape) = (launch.function, launch.shape);
        params.put(KernelParams { function, shape, arguments, extra: 0, kernel: 0, context })
    }

    fn cuGraphKernelNodeSetParams_v2(node: usize, params: In<KernelParams>) {
        set(node, params.get()?.task()?)
    }

    fn cuGraphMemcpyNodeGetParams(node: usize, params: Out<[u64; 25]>) {
        part(node, |task| if let Task::Copy(words) = task { Some(*words) } else { None }).and_then(|words| params.put(words))
    }

    fn cuGraphMemcpyNodeSetParams(node: usize, params: In<[u64; 25]>) {
        set(node, Task::Copy(params.get()?))
    }

    fn cuGraphMemsetNodeGetParams(node: usize, params: Out<[u64; 5]>) {
        part(node, |task| if let Task::Fill(words) = task { Some(*words) } else { None }).and_then(|words| params.put(words))
    }

    fn cuGraphMemsetNodeSetParams(node: usize, params: In<[u64; 5]>) {
        set(node, Task::Fill(params.get()?))
    }

    fn cuGraphHostNodeGetParams(node: usize, params: Out<[usize; 2]>) {
        part(node, |task| if let Task::Host(words) = task { Some(*words) } else { None }).and_then(|words| params.put(words))
    }

    fn cuGraphHostNodeSetParams(node: usize, params: In<[usize; 2]>) {
        set(node, Task::Host(params.get()?))
    }

    fn cuGraphEventRecordNodeGetEvent(node: usize, place: Out<usize>) {
        part(node, |task| if let Task::Record(event) = task { Some(*event) } else { None }).and_then(|event| place.put(event))
    }

    fn cuGraphEventRecordNodeSetEvent(node: usize, event: usize) {
        super::event::find(driver()?, event)?;
        set(node, Task::Record(event))
    }

    fn cuGraphEventWaitNodeGetEvent(node: usize, place: Out<usize>) {
        part(node, |task| if let Task::Wait(event) = task { Some(*event) } else { None }).and_then(|event| place.put(event))
    }

    fn cuGraphEventWaitNodeSetEvent(node: usize, event: usize) {
        super::event::find(driver()?, event)?;
        set(node, Task::Wait(event))
    }

    fn cuGraphKernelNodeGetAttribute(node: usize, attribute: c_uint, value: Out<[u64; 8]>) {
        let driver = driver()?;
        let mut tables = driver.tables();
        let node = tables.graphs.node(node)?;
        if !ATTRIBUTES.contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        let usual = if attribute == DOMAIN_MAP { USUAL_MAP } else { [0; 8] };
        value.put(node.attributes.get(&attribute).copied().unwrap_or(usual))
    }

    fn cuGraphKernelNodeSetAttribute(node: usize, attribute: c_uint, value: In<[u64; 8]>) {
        if !ATTRIBUTES.contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        driver()?.tables().graphs.node(node)?.attributes.insert(attribute, value.get()?);
        Ok(())
    }

    fn cuStreamIsCapturing(stream: usize, status: Out<c_int>) {
        let (driver, context) = current()?;
        super::stream::find(&context, stream)?;
        status.put(c_int::from(driver.tables().graphs.captures.contains_key(&stream)))
    }
}
