//! Graphs that a program makes, and the nodes that it adds and changes: described again, or given up with a reason.
#![expect(unsafe_code, reason = "reads what the program says of a node")]

use std::sync::Arc;

use super::{describe, plan::Node};
use crate::{
    cuda::{
        arguments::nodes::{Params, read},
        call::{Bypass, Driver},
        functions::graph as of,
        result::CUresult,
        types::{CUcontext, CUgraph, CUgraphNode, CUgraphNodeParams, Key as _},
    },
    kept::{
        account::{self, Reason},
        graphs,
        objects::current::context,
    },
};

/// A graph is there, or is another one: it is described as a whole.
pub(crate) fn made(function: &'static str, graph: CUgraph) -> Result<(), Bypass> {
    // Nothing is asked where nothing is noted.
    graphs(|_| ())?;
    let kept = match describe::graph(graph, context().unwrap_or(0)) {
        Ok(plan) => graphs(|graphs| graphs.keep(graph.0, plan))?.then_some(()).ok_or(Reason::GraphTooLarge),
        Err(reason) => Err(reason),
    };
    kept.or_else(|reason| lose(function, reason, graph.0))
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

/// The context to describe a node in.
fn in_context(told: Option<CUcontext>) -> usize {
    told.map(|context| context.0).or_else(|| context().ok()).unwrap_or(0)
}

/// A node has come to a graph, whose context may have been told.
pub(crate) fn added(
    function: &'static str,
    graph: CUgraph,
    node: CUgraphNode,
    told: Option<CUcontext>,
) -> Result<(), Bypass> {
    let Some(root) = graphs(|graphs| graphs.around(graph.0))? else { return Ok(()) };
    if root != graph.0 {
        return made(function, CUgraph(root));
    }
    let described = describe::work(node, in_context(told)).and_then(|work| Ok((work, describe::edges_to(node)?)));
    match described {
        Ok((work, edges)) => {
            let node = Node { handle: node.0, work: Arc::new(work) };
            if graphs(|graphs| graphs.add(root, node, edges))? {
                Ok(())
            } else {
                lose(function, Reason::GraphTooLarge, root)
            }
        }
        Err(reason) => lose(function, reason, root),
    }
}

/// A node of a graph does something else now.
pub(crate) fn changed(function: &'static str, node: CUgraphNode, told: Option<CUcontext>) -> Result<(), Bypass> {
    let Some(root) = graphs(|graphs| graphs.around(node.0))? else { return Ok(()) };
    match describe::work(node, in_context(told)) {
        Ok(work) => {
            let is_its_own = graphs(|graphs| graphs.change(root, node.0, Arc::new(work)))?;
            // Otherwise it is of an embedded graph.
            if is_its_own { Ok(()) } else { made(function, CUgraph(root)) }
        }
        Err(reason) => lose(function, reason, root),
    }
}

/// The edges of a graph are others now.
pub(crate) fn rearranged(function: &'static str, graph: CUgraph) -> Result<(), Bypass> {
    graphs(|graphs| graphs.around(graph.0))?.map_or(Ok(()), |root| made(function, CUgraph(root)))
}

/// Logic of `cuGraphDestroyNode`.
pub(crate) fn destroy_node(
    driver: &mut Driver<of::cuGraphDestroyNode::Signature>,
    node: CUgraphNode,
) -> Result<CUresult, Bypass> {
    let root = graphs(|graphs| graphs.around(node.0))?;
    let answer = driver.pass();
    if let Some(root) = root.filter(|_| answer.is_success()) {
        made("cuGraphDestroyNode", CUgraph(root))?;
    }
    Ok(answer)
}
