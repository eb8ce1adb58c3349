//! Graphs and executable graphs: what they are made of is noted as the program makes and changes them, so that a fresh
//! copy of the driver can be given the same.
//!
//! A graph is described by the driver's own answers ([`describe`]): whole when a capture has ended or it was cloned, and
//! node by node while a program builds it. An executable graph does what its graph did when it was made, and what it was
//! told since ([`plan`]). What cannot be described is counted as not recoverable, with the reason, until it is destroyed.
//!
//! Not told by the driver is in which context a copy or a set of a capture is done; it is taken to be the one that is
//! current when the capture ends.

mod build;
mod change;
pub(crate) mod describe;
mod execute;
pub(crate) mod known;
mod look;
pub(crate) mod plan;

use std::sync::Arc;

pub(crate) use build::*;
pub(crate) use change::*;
pub(crate) use execute::*;
pub(crate) use look::*;

use super::{
    account::{self, Reason},
    graphs,
    objects::current::context,
};
use crate::cuda::{
    call::Bypass,
    result::CUresult,
    types::{CUgraph, CUgraphNode, Key as _},
};
use plan::Node;

/// A graph is there, or is another one: it is described as a whole.
pub(crate) fn made(function: &'static str, graph: CUgraph) -> Result<(), Bypass> {
    // Nothing is asked where nothing is noted.
    graphs(|_| ())?;
    let kept = match describe::graph(graph, context().unwrap_or(0)) {
        Ok(plan) => graphs(|graphs| graphs.keep(graph.0, plan))?.then_some(()).ok_or(Reason::GraphTooLarge),
        Err(reason) => Err(reason),
    };
    kept.or_else(|reason| refuse(function, reason, graph.0))
}

/// A graph cannot be made again.
fn refuse(function: &'static str, reason: Reason, graph: usize) -> Result<(), Bypass> {
    graphs(|graphs| graphs.forget(graph))?;
    account::made(function, reason, graph.key());
    Ok(())
}

/// A node has come to a graph. `context` is where it works, if that was told.
fn added(function: &'static str, graph: CUgraph, node: CUgraphNode, told: Option<usize>) -> Result<(), Bypass> {
    let Some(root) = graphs(|graphs| graphs.around(graph.0))? else { return Ok(()) };
    if root != graph.0 {
        return made(function, CUgraph(root));
    }
    let context = told.or_else(|| context().ok()).unwrap_or(0);
    let described = describe::work(node, context).and_then(|work| Ok((work, describe::edges_to(node)?)));
    match described {
        Ok((work, edges)) => {
            let node = Node { handle: node.0, work: Arc::new(work) };
            if graphs(|graphs| graphs.add(root, node, edges))? {
                Ok(())
            } else {
                refuse(function, Reason::GraphTooLarge, root)
            }
        }
        Err(reason) => refuse(function, reason, root),
    }
}

/// A node of a graph does something else now.
pub(crate) fn changed(function: &'static str, node: CUgraphNode, told: Option<usize>) -> Result<(), Bypass> {
    let Some(root) = graphs(|graphs| graphs.around(node.0))? else { return Ok(()) };
    let context = told.or_else(|| context().ok()).unwrap_or(0);
    match describe::work(node, context) {
        Ok(work) => {
            let is_its_own = graphs(|graphs| graphs.change(root, node.0, Arc::new(work)))?;
            // Otherwise it is of an embedded graph.
            if is_its_own { Ok(()) } else { made(function, CUgraph(root)) }
        }
        Err(reason) => refuse(function, reason, root),
    }
}

/// The nodes of a graph, or the edges between them, are others now.
fn rearranged(function: &'static str, answer: CUresult, root: Option<usize>) -> Result<CUresult, Bypass> {
    if answer.is_success()
        && let Some(root) = root
    {
        made(function, CUgraph(root))?;
    }
    Ok(answer)
}

/// The kept graph that a graph or node is part of.
fn around(handle: usize) -> Option<usize> {
    graphs(|graphs| graphs.around(handle)).ok().flatten()
}
