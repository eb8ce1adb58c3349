//! Graphs that a program makes, and the nodes that it adds and changes: described again, or given up with a reason.
#![expect(unsafe_code, reason = "reads what the program says of a node")]

use std::{collections::BTreeMap, sync::Arc};

use super::{
    describe,
    places::{self, Places},
    plan::{Edge, Node},
};
use crate::{
    cuda::{
        arguments::nodes::{Params, read},
        call::{Bypass, Driver},
        functions::graph as of,
        result::CUresult,
        types::{CUcontext, CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeParams, Key as _},
    },
    kept::{
        account::{self, Reason},
        graphs,
    },
};

/// A graph is there, or is another one: it is described as a whole.
pub(crate) fn made(function: &'static str, graph: CUgraph) -> Result<(), Bypass> {
    made_with(function, graph, BTreeMap::new())
}

/// The same of a clone.
pub(crate) fn cloned(function: &'static str, clone: CUgraph, original: CUgraph) -> Result<(), Bypass> {
    made_with(function, clone, in_clone(original, clone)?)
}

/// A graph is described as a whole, of which more is known than before.
fn made_with(function: &'static str, graph: CUgraph, more: BTreeMap<usize, usize>) -> Result<(), Bypass> {
    let mut known = graphs(|graphs| graphs.plan(graph.0).map(places::of_plan))?.unwrap_or_default();
    known.extend(more);
    let kept = match describe::graph(graph, &Places::new(known)) {
        Ok(plan) => graphs(|graphs| graphs.keep(graph.0, plan))?.then_some(()).ok_or(Reason::GraphTooLarge),
        Err(reason) => Err(reason),
    };
    kept.or_else(|reason| lose(function, reason, graph.0))
}

/// Where the nodes of a clone work, by what is known of the original, which may be embedded.
fn in_clone(original: CUgraph, clone: CUgraph) -> Result<BTreeMap<usize, usize>, Bypass> {
    let plan = graphs(|graphs| graphs.described(original.0).cloned())?;
    Ok(plan.map(|plan| places::of_clone(&plan, clone)).unwrap_or_default())
}

/// A graph, or the one that it is part of, cannot be made again from now on.
pub(crate) fn refuse(function: &'static str, reason: Reason, graph: CUgraph) -> Result<(), Bypass> {
    graphs(|graphs| graphs.around(graph.0))?.map_or(Ok(()), |root| lose(function, reason, root))
}

fn lose(function: &'static str, reason: Reason, graph: usize) -> Result<(), Bypass> {
    graphs(|graphs| graphs.forget(graph))?;
    account::made(function, reason, graph.key());
    Ok(())
}

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

/// Where a node of these parameters works, if that is said.
pub(crate) fn place_of(params: *const CUgraphNodeParams) -> Option<CUcontext> {
    // SAFETY: the program's argument, which the driver has just read.
    unsafe { read::<Params>(params.cast()) }.and_then(|params| params.context()).map(CUcontext)
}

/// What is said of a node alone.
fn said(node: CUgraphNode, told: Option<CUcontext>) -> BTreeMap<usize, usize> {
    told.map(|context| (node.0, context.0)).into_iter().collect()
}

/// A node has come to a graph, whose context may have been told.
pub(crate) fn added(
    function: &'static str,
    graph: CUgraph,
    node: CUgraphNode,
    told: Option<CUcontext>,
) -> Result<(), Bypass> {
    added_with(function, graph, node, said(node, told))
}

/// A node has come that embeds a copy of a graph.
pub(crate) fn embedded(
    function: &'static str,
    graph: CUgraph,
    node: CUgraphNode,
    original: CUgraph,
) -> Result<(), Bypass> {
    let mut copy = CUgraph(0);
    let is_told = driver!(graph::cuGraphChildGraphNodeGetGraph(node, &raw mut copy)).is_success();
    let known = match graphs(|graphs| graphs.described(original.0).map(places::of_plan))? {
        // It was moved here: its nodes are the same, and it is no graph of its own any longer.
        Some(known) if copy == original => {
            graphs(|graphs| graphs.forget(original.0))?;
            known
        }
        Some(_) if is_told => in_clone(original, copy)?,
        _ => BTreeMap::new(),
    };
    added_with(function, graph, node, known)
}

/// A node has come of these parameters.
pub(crate) fn added_by(
    function: &'static str,
    graph: CUgraph,
    node: CUgraphNode,
    params: *const CUgraphNodeParams,
) -> Result<(), Bypass> {
    // SAFETY: the program's argument, which the driver has just read.
    match unsafe { read::<Params>(params.cast()) }.and_then(|params| params.embedded()) {
        Some(original) => embedded(function, graph, node, CUgraph(original)),
        None => added(function, graph, node, place_of(params)),
    }
}

fn added_with(
    function: &'static str,
    graph: CUgraph,
    node: CUgraphNode,
    known: BTreeMap<usize, usize>,
) -> Result<(), Bypass> {
    let Some(root) = graphs(|graphs| graphs.around(graph.0))? else { return Ok(()) };
    let described = describe::work(node, &Places::new(known)).and_then(|work| Ok((work, describe::edges_to(node)?)));
    let kept = described.map(|(work, edges)| {
        let node = Node { handle: node.0, work: Arc::new(work) };
        graphs(|graphs| graphs.add(graph.0, node, edges))
    });
    in_room(function, root, kept)
}

/// Loses a graph that was to be edited where that is not known, or where there was no room for it.
fn in_room(function: &'static str, root: usize, kept: Result<Result<bool, Bypass>, Reason>) -> Result<(), Bypass> {
    let reason = match kept {
        Ok(is_room) => (!is_room?).then_some(Reason::GraphTooLarge),
        Err(reason) => Some(reason),
    };
    reason.map_or(Ok(()), |reason| lose(function, reason, root))
}

/// A node of a graph does something else now, where it did before unless it is told where.
pub(crate) fn changed(function: &'static str, node: CUgraphNode, told: Option<CUcontext>) -> Result<(), Bypass> {
    let Some(root) = graphs(|graphs| graphs.around(node.0))? else { return Ok(()) };
    let mut known = graphs(|graphs| graphs.node(node.0).map(places::of_node))?.unwrap_or_default();
    known.extend(said(node, told));
    let kept = describe::work(node, &Places::new(known)).map(|work| graphs(|graphs| graphs.change(node.0, work)));
    in_room(function, root, kept)
}

/// Edges that a program names.
fn edges(from: *const CUgraphNode, to: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize) -> Vec<Edge> {
    if from.is_null() || to.is_null() {
        return Vec::new();
    }
    let of = |at| Edge {
        // SAFETY: the driver has just read so many.
        from: unsafe { from.wrapping_add(at).read_unaligned() }.0,
        // SAFETY: as above.
        to: unsafe { to.wrapping_add(at).read_unaligned() }.0,
        // None is eight zeros.
        data: match data.is_null() {
            true => [0; 8],
            // SAFETY: as above, and it is eight bytes long.
            false => unsafe { data.cast::<[u8; 8]>().wrapping_add(at).read_unaligned() },
        },
    };
    (0..count).map(of).collect()
}

/// Edges of a graph have come.
pub(crate) fn connected(
    function: &'static str,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<(), Bypass> {
    let Some(root) = graphs(|graphs| graphs.around(graph.0))? else { return Ok(()) };
    let edges = edges(from, to, data, count);
    in_room(function, root, Ok(graphs(|graphs| graphs.connect(graph.0, &edges))))
}

/// Edges of a graph have gone.
pub(crate) fn disconnected(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<(), Bypass> {
    let edges = edges(from, to, data, count);
    graphs(|graphs| graphs.disconnect(graph.0, &edges))
}

/// Logic of `cuGraphDestroyNode`. It is forgotten first, since another one may get its handle at once.
pub(crate) fn destroy_node(
    driver: &mut Driver<of::cuGraphDestroyNode::Signature>,
    node: CUgraphNode,
) -> Result<CUresult, Bypass> {
    let taken = graphs(|graphs| graphs.take_node(node.0))?;
    let answer = driver.pass();
    if let Some((graph, taken)) = taken.filter(|_| !answer.is_success()) {
        graphs(|graphs| graphs.put_node_back(graph, taken))?;
    }
    Ok(answer)
}
