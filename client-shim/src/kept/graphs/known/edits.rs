//! Edits of graphs, each of which changes what it says and nothing else, at any depth of graphs that are embedded: it costs as
//! much as what is edited, however large the graph is. What a graph's executable forms share with an embedded graph is
//! copied once when that is edited.

use std::sync::Arc;

use super::{
    super::plan::{COST_OF_AN_EDGE, Edge, Node, Plan, Taken, Work},
    Graphs,
};

impl Graphs {
    /// The graph that this is, or that this graph or node is part of.
    pub(crate) fn around(&self, handle: usize) -> Option<usize> {
        let root = |graph| Some(self.homes.way_to(graph).root).filter(|root| self.graphs.contains_key(root));
        root(handle).or_else(|| root(self.homes.of_node(handle)?))
    }

    /// What a graph does, which may be embedded in another one.
    pub(crate) fn described(&self, graph: usize) -> Option<&Plan> {
        let way = self.homes.way_to(graph);
        let mut plan = self.plan(way.root)?;
        for node in way.nodes {
            (_, plan) = plan.nodes.get(node)?.work.embedded()?;
        }
        Some(plan)
    }

    /// A node of a graph, at any depth.
    pub(crate) fn node(&self, node: usize) -> Option<&Node> {
        self.described(self.homes.of_node(node)?)?.nodes.get(node)
    }

    /// What a graph does, to be edited.
    fn edited(&mut self, graph: usize) -> Option<&mut Plan> {
        self.changes += 1;
        let way = self.homes.way_to(graph);
        let kept = self.graphs.get_mut(&way.root)?;
        kept.changed = self.changes;
        let mut plan = &mut kept.of;
        for node in way.nodes {
            let Work::Child { plan: embedded, .. } = Arc::make_mut(plan.work_of(node)?) else { return None };
            plan = embedded;
        }
        Some(plan)
    }

    /// A node has come, with these edges to it; whether there was room. Nothing if the graph is not kept.
    pub(crate) fn add(&mut self, graph: usize, node: Node, edges: Vec<Edge>) -> bool {
        let cost = node.work.cost() + edges.len() * COST_OF_AN_EDGE;
        if self.edited(graph).is_none() {
            return true;
        }
        let is_room = self.has_room(cost);
        if is_room {
            self.homes.enter_node(graph, &node);
            if let Some(plan) = self.edited(graph) {
                plan.add(node);
                let new = edges.iter().filter(|edge| plan.connect(**edge)).count();
                self.bytes -= (edges.len() - new) * COST_OF_AN_EDGE;
            }
        }
        is_room
    }

    /// What a node does now; whether there was room. Nothing if its graph is not kept.
    pub(crate) fn change(&mut self, node: usize, work: Work) -> bool {
        let Some(graph) = self.homes.of_node(node) else { return true };
        let Some(before) = self.edited(graph).and_then(|plan| plan.work_of(node).map(|work| Arc::clone(work))) else {
            return true;
        };
        let is_room = self.has_room(work.cost());
        if is_room {
            self.bytes -= before.cost();
            self.homes.leave_node(graph, &Node { handle: node, work: before });
            let work = Arc::new(work);
            self.homes.enter_node(graph, &Node { handle: node, work: Arc::clone(&work) });
            if let Some(known) = self.edited(graph).and_then(|plan| plan.work_of(node)) {
                *known = work;
            }
        }
        is_room
    }

    /// Edges have come; whether there was room.
    pub(crate) fn connect(&mut self, graph: usize, edges: &[Edge]) -> bool {
        if self.edited(graph).is_none() {
            return true;
        }
        let is_room = self.has_room(edges.len() * COST_OF_AN_EDGE);
        if let Some(plan) = self.edited(graph).filter(|_| is_room) {
            let new = edges.iter().filter(|edge| plan.connect(**edge)).count();
            self.bytes -= (edges.len() - new) * COST_OF_AN_EDGE;
        }
        is_room
    }

    /// Edges have gone.
    pub(crate) fn disconnect(&mut self, graph: usize, edges: &[Edge]) {
        let Some(plan) = self.edited(graph) else { return };
        let gone = edges.iter().filter(|edge| plan.disconnect(edge)).count();
        self.bytes -= gone * COST_OF_AN_EDGE;
    }

    /// A node ends, with its edges; what it was, if it is known. Done before the driver is asked, so that its handle is not yet
    /// anyone else's.
    pub(crate) fn take_node(&mut self, node: usize) -> Option<(usize, Taken)> {
        let graph = self.homes.of_node(node)?;
        let taken = self.edited(graph)?.take(node)?;
        self.bytes -= taken.cost();
        self.homes.leave_node(graph, &taken.node);
        Some((graph, taken))
    }

    /// The driver has not destroyed it.
    pub(crate) fn put_node_back(&mut self, graph: usize, taken: Taken) {
        self.homes.enter_node(graph, &taken.node);
        self.bytes += taken.cost();
        if let Some(plan) = self.edited(graph) {
            plan.put_back(taken);
        }
    }
}
