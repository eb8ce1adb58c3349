//! In which context copies and sets of graphs are done. The driver takes that when such a node is added and tells it nobody
//! afterwards, so it is known here alone, by node: a graph that is described anew keeps what was said of its nodes, and so
//! does a clone of it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::BTreeMap;

use super::plan::{Node, Plan};
use crate::{
    cuda::types::{CUgraph, CUgraphNode},
    kept::objects::current::context,
};

/// Contexts by node.
#[derive(Debug, Default)]
pub(crate) struct Places {
    known: BTreeMap<usize, usize>,
    /// That of all others.
    otherwise: usize,
}

impl Places {
    /// These, and for all others the current one.
    pub(super) fn new(known: BTreeMap<usize, usize>) -> Self {
        Self { known, otherwise: context().unwrap_or(0) }
    }

    /// The one of a node.
    pub(super) fn of(&self, node: usize) -> usize {
        self.known.get(&node).copied().unwrap_or(self.otherwise)
    }
}

/// Those of a graph's nodes, at any depth.
pub(super) fn of_plan(plan: &Plan) -> BTreeMap<usize, usize> {
    let mut places = BTreeMap::new();
    for node in &plan.nodes {
        places.extend(of_node(node));
    }
    places
}

/// That of a node, or those of the nodes of what it embeds.
pub(super) fn of_node(node: &Node) -> BTreeMap<usize, usize> {
    match node.work.embedded() {
        Some((_, plan)) => of_plan(plan),
        None => node.work.place().map(|context| (node.handle, context)).into_iter().collect(),
    }
}

/// Those of a clone's nodes, as far as the driver finds them in it, by what it was cloned from.
pub(super) fn of_clone(original: &Plan, clone: CUgraph) -> BTreeMap<usize, usize> {
    let mut places = BTreeMap::new();
    let with_places = |node: &&Node| node.work.place().is_some() || node.work.embedded().is_some();
    for node in original.nodes.iter().filter(with_places) {
        let mut found = CUgraphNode(0);
        if !driver!(graph::cuGraphNodeFindInClone((&raw mut found).cast(), CUgraphNode(node.handle), clone))
            .is_success()
        {
            continue;
        }
        places.extend(node.work.place().map(|context| (found.0, context)));
        let mut inner = CUgraph(0);
        if let Some((_, plan)) = node.work.embedded()
            && driver!(graph::cuGraphChildGraphNodeGetGraph(found, &raw mut inner)).is_success()
        {
            places.extend(of_clone(plan, inner));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::of_plan;
    use crate::kept::graphs::plan::{Node, Plan, Work};

    #[test]
    fn places_are_known_at_any_depth_of_copies_and_sets_alone() {
        let node = |handle, work| Node { handle, work: Arc::new(work) };
        let inner = [node(3, Work::Copy { words: [0; 25], context: 30 })];
        let inner = Plan { nodes: inner.into_iter().collect(), ..Plan::default() };
        let nodes = [
            node(1, Work::Set { words: [0; 5], context: 10 }),
            node(2, Work::Empty),
            node(4, Work::Child { graph: 5, plan: inner }),
        ];
        let plan = Plan { nodes: nodes.into_iter().collect(), ..Plan::default() };
        assert_eq!(of_plan(&plan).into_iter().collect::<Vec<_>>(), [(1, 10), (3, 30)]);
    }
}
