//! A graph that is edited before a fault, node by node and edge by edge, as is the one that it embeds.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::graphs::{VALUE, behind, copy, graph, set};
use super::{GpuError, Stage, beside, check, code, current};
use crate::programs::replay_probe::graphs::{instantiate, set_params};
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ptr::{null, null_mut};

/// The graph copies what it sets only after it has set it, and so does the one that it embeds: both orders come of edges that
/// were added later, one of them in the place of its contrary. Launched are the executable form from before the fault, and one
/// of the graph as it is afterwards.
pub(super) fn of_graphs(stage: &Stage) -> Result<Value, GpuError> {
    let context = current()?;
    let word = |at: u64| stage.others + at * 4;
    let (parent, child) = (graph()?, graph()?);
    let copies = copy(parent, word(1), word(0), context)?;
    let sets = set(parent, word(0), context)?;
    behind(parent, copies, sets)?;
    let ended = set(parent, word(4), context)?;
    behind(parent, ended, sets)?;
    let inner_copies = copy(child, word(3), word(2), context)?;
    let (mut node, mut embedded, mut found) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the results are variables of ours, here and below.
    check("cuGraphAddChildGraphNode", unsafe {
        sys::cuGraphAddChildGraphNode(&raw mut node, parent, null(), 0, child)
    })?;
    // SAFETY: as above.
    check("cuGraphChildGraphNodeGetGraph", unsafe { sys::cuGraphChildGraphNodeGetGraph(node, &raw mut embedded) })?;
    // SAFETY: as above.
    check("cuGraphNodeFindInClone", unsafe { sys::cuGraphNodeFindInClone(&raw mut found, inner_copies, embedded) })?;
    // From here on each call is an edit.
    // SAFETY: both are nodes of it.
    let answer = unsafe { sys::cuGraphRemoveDependencies_v2(parent, &raw const copies, &raw const sets, null(), 1) };
    check("cuGraphRemoveDependencies", answer)?;
    behind(parent, sets, copies)?;
    // SAFETY: it is not used again.
    check("cuGraphDestroyNode", unsafe { sys::cuGraphDestroyNode(ended) })?;
    let inner_sets = set(embedded, word(4), context)?;
    behind(embedded, inner_sets, found)?;
    let params = set_params(word(2), 1, VALUE);
    // SAFETY: the driver copies the parameters in the call.
    check("cuGraphMemsetNodeSetParams", unsafe { sys::cuGraphMemsetNodeSetParams(inner_sets, &raw const params) })?;
    let before = instantiate(parent)?;
    let told = beside::fault(stage)?;
    let mut words = Vec::new();
    for executable in [before, instantiate(parent)?] {
        stage.gpu.clear(stage.others, 5 * 4)?;
        // SAFETY: it is ours.
        let launched = code(unsafe { sys::cuGraphLaunch(executable, null_mut()) });
        stage.gpu.synchronize()?;
        words.push(json!([launched, stage.gpu.read(stage.others, 5)?]));
    }
    Ok(json!({ "found": told, "words": words }))
}
