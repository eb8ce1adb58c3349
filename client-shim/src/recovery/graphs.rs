//! Graphs and executable graphs in a fresh copy of the driver, by what is known of them.
//!
//! An executable graph is made of its graph while that does what the executable one does, so that the graph's nodes name
//! its own as before. If its graph is gone, or has other nodes or attributes by now, it is made of one that is built for
//! that alone; no node can name its own then, as with a graph that is gone.
#![expect(unsafe_code, reason = "calls the driver")]

mod nodes;

use std::collections::BTreeMap;

use super::{
    memory::{Failed, Renamed, checked},
    objects::enter,
};
use crate::cuda::moved::Moves;
use crate::{
    cuda::{
        result::CUresult,
        types::{CUgraph, CUgraphExec, CUgraphNode},
    },
    kept::{
        self,
        graphs::plan::{Edges, Executable, Plan, Work},
    },
};
use nodes::{add, set, set_executable};

/// All that there are.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    pub(super) graphs: Vec<(usize, Plan)>,
    pub(super) executables: Vec<(usize, Executable)>,
}

impl Graphs {
    pub(super) fn survey() -> Self {
        let (graphs, executables) = kept::graphs(|graphs| graphs.all()).unwrap_or_default();
        Self { graphs, executables }
    }

    pub(super) fn count(&self) -> usize {
        self.graphs.len() + self.executables.len()
    }

    /// The same with variables at their addresses of today.
    pub(super) fn moved(&self, moves: &Moves) -> Self {
        let moved = |of: &Executable| Executable { plan: of.plan.moved(moves), ..of.clone() };
        Self {
            graphs: self.graphs.iter().map(|(handle, plan)| (*handle, plan.moved(moves))).collect(),
            executables: self.executables.iter().map(|(handle, of)| (*handle, moved(of))).collect(),
        }
    }

    /// Makes them all. `renamed` has everything that they name, and gets them and their nodes.
    pub(super) fn make(&self, renamed: &mut Renamed, moves: &Moves) -> Result<(), Failed> {
        let Self { graphs, executables } = self.moved(moves);
        for (handle, plan) in &graphs {
            let graph = build(plan, renamed)?;
            renamed.insert(*handle, graph.0);
        }
        let plans: BTreeMap<usize, &Plan> = graphs.iter().map(|(handle, plan)| (*handle, plan)).collect();
        for (handle, executable) in &executables {
            let made = execute(executable, plans.get(&executable.of).copied(), renamed)?;
            renamed.insert(*handle, made.0);
        }
        Ok(())
    }
}

/// An executable graph, of its graph if that does what is wanted. `renamed` has its graph and nodes.
pub(super) fn execute(executable: &Executable, of: Option<&Plan>, renamed: &Renamed) -> Result<CUgraphExec, Failed> {
    enter(translated(executable.context, renamed)?)?;
    match of {
        Some(plan) if plan.has_nodes_of(&executable.plan) && have_same_attributes(plan, &executable.plan) => {
            of_its_graph(plan, executable, renamed)
        }
        _ => of_another(executable, renamed),
    }
}

/// Whether kernels have the same attributes in both, which have the same nodes. What a node was given stays with it when it
/// is given others.
fn have_same_attributes(one: &Plan, other: &Plan) -> bool {
    one.nodes.iter().zip(&other.nodes).all(|(one, other)| match (&*one.work, &*other.work) {
        (Work::Launch(one), Work::Launch(other)) => one.attributes == other.attributes,
        _ => true,
    })
}

/// A handle of today.
fn translated(handle: usize, renamed: &Renamed) -> Result<usize, Failed> {
    let missing = Failed { call: "cuGraphInstantiate", answer: CUresult(400) };
    if handle == 0 { Ok(0) } else { renamed.get(&handle).copied().ok_or(missing) }
}

/// An executable form of its own graph, which does for that time what the executable one does.
fn of_its_graph(plan: &Plan, executable: &Executable, renamed: &Renamed) -> Result<CUgraphExec, Failed> {
    let different = || plan.nodes.iter().zip(&executable.plan.nodes).filter(|(own, other)| own.work != other.work);
    for (_, other) in different() {
        set(CUgraphNode(translated(other.handle, renamed)?), &other.work, renamed)?;
    }
    let graph = CUgraph(translated(executable.of, renamed)?);
    let made = instantiate(graph, executable, |node| translated(node, renamed))?;
    for (own, _) in different() {
        set(CUgraphNode(translated(own.handle, renamed)?), &own.work, renamed)?;
    }
    for (_, other) in different().filter(|(own, other)| own.work.place() != other.work.place()) {
        // Where a graph's node works it was told when it was added, and nothing tells it another context.
        let node = CUgraphNode(translated(other.handle, renamed)?);
        if !set_executable(made, node, &other.work, renamed)? {
            return Err(Failed { call: "cuGraphExecNodeSetParams", answer: CUresult::CUDA_ERROR_INVALID_VALUE });
        }
    }
    Ok(made)
}

/// Has an executable graph that does what `before` did do what is wanted now, node by node, as the program has its own; whether
/// it does. One whose nodes are not named by its own graph's is made anew.
pub(super) fn alter(
    made: CUgraphExec,
    before: &Executable,
    wanted: &Executable,
    of: &Plan,
    renamed: &Renamed,
) -> Result<bool, Failed> {
    let is_alike = (before.context, before.flags, before.of, &before.disabled)
        == (wanted.context, wanted.flags, wanted.of, &wanted.disabled)
        && before.plan.has_nodes_of(&wanted.plan)
        && of.has_nodes_of(&wanted.plan)
        && have_same_attributes(of, &wanted.plan);
    if !is_alike {
        return Ok(false);
    }
    enter(translated(wanted.context, renamed)?)?;
    let nodes = before.plan.nodes.iter().zip(&wanted.plan.nodes);
    for (before, wanted) in nodes.filter(|(before, wanted)| before.work != wanted.work) {
        if let (Work::Launch(before), Work::Launch(wanted)) = (&*before.work, &*wanted.work)
            && before.attributes != wanted.attributes
        {
            // What is set in place has the attributes that were there.
            return Ok(false);
        }
        let node = CUgraphNode(translated(wanted.handle, renamed)?);
        if !set_executable(made, node, &wanted.work, renamed)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An executable form of a graph that is built for it.
fn of_another(executable: &Executable, renamed: &Renamed) -> Result<CUgraphExec, Failed> {
    let mut with_nodes = renamed.clone();
    let graph = build(&executable.plan, &mut with_nodes)?;
    let made = instantiate(graph, executable, |node| translated(node, &with_nodes))?;
    checked("cuGraphDestroy", driver!(graph::cuGraphDestroy(graph)))?;
    Ok(made)
}

fn instantiate(
    graph: CUgraph,
    executable: &Executable,
    node_of: impl Fn(usize) -> Result<usize, Failed>,
) -> Result<CUgraphExec, Failed> {
    let mut made = CUgraphExec(0);
    let answer = driver!(graph::cuGraphInstantiateWithFlags(&raw mut made, graph, executable.flags));
    checked("cuGraphInstantiate", answer)?;
    for node in &executable.disabled {
        let answer = driver!(graph::cuGraphNodeSetEnabled(made, CUgraphNode(node_of(*node)?), 0));
        checked("cuGraphNodeSetEnabled", answer)?;
    }
    Ok(made)
}

/// A graph by its plan. `renamed` gets its nodes, and the graphs that it embeds.
pub(super) fn build(plan: &Plan, renamed: &mut Renamed) -> Result<CUgraph, Failed> {
    let mut graph = CUgraph(0);
    checked("cuGraphCreate", driver!(graph::cuGraphCreate(&raw mut graph, 0)))?;
    for node in &plan.nodes {
        let added = add(graph, &node.work, renamed)?;
        renamed.insert(node.handle, added.0);
    }
    connect(graph, &plan.edges, renamed)?;
    Ok(graph)
}

fn connect(graph: CUgraph, edges: &Edges, renamed: &Renamed) -> Result<(), Failed> {
    if edges.len() == 0 {
        return Ok(());
    }
    let node = |handle| translated(handle, renamed).map(CUgraphNode);
    let from = edges.iter().map(|edge| node(edge.from)).collect::<Result<Vec<_>, _>>()?;
    let to = edges.iter().map(|edge| node(edge.to)).collect::<Result<Vec<_>, _>>()?;
    let data: Vec<[u8; 8]> = edges.iter().map(|edge| edge.data).collect();
    let (from, to, data) = (from.as_ptr(), to.as_ptr(), data.as_ptr().cast());
    let answer = driver!(graph::cuGraphAddDependencies_v2(graph, from, to, data, edges.len()));
    checked("cuGraphAddDependencies", answer)
}
