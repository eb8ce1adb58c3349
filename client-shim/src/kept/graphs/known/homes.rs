//! In which graph each node is, and in which node each embedded graph: nobody looks through all graphs for one of them.

use std::collections::BTreeMap;

use super::super::plan::{Node, Plan};

/// All of them, by handle.
#[derive(Debug, Default)]
pub(super) struct Homes {
    /// The graph that a node is in.
    of_nodes: BTreeMap<usize, usize>,
    /// The node that embeds a graph.
    of_graphs: BTreeMap<usize, usize>,
}

/// Where a graph is: itself, or in which one and behind which nodes, the outermost first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) root: usize,
    pub(super) nodes: Vec<usize>,
}

impl Homes {
    /// A graph has come with all of this.
    pub(super) fn enter(&mut self, graph: usize, plan: &Plan) {
        plan.nodes.iter().for_each(|node| self.enter_node(graph, node));
    }

    /// A node has come to a graph, with what it embeds.
    pub(super) fn enter_node(&mut self, graph: usize, node: &Node) {
        self.of_nodes.insert(node.handle, graph);
        if let Some((embedded, plan)) = node.work.embedded() {
            self.of_graphs.insert(embedded, node.handle);
            self.enter(embedded, plan);
        }
    }

    /// A graph has gone with all of this.
    pub(super) fn leave(&mut self, graph: usize, plan: &Plan) {
        plan.nodes.iter().for_each(|node| self.leave_node(graph, node));
    }

    /// A node has gone from a graph. What has its handle elsewhere by now stays.
    pub(super) fn leave_node(&mut self, graph: usize, node: &Node) {
        if self.of_nodes.get(&node.handle) == Some(&graph) {
            self.of_nodes.remove(&node.handle);
        }
        if let Some((embedded, plan)) = node.work.embedded() {
            if self.of_graphs.get(&embedded) == Some(&node.handle) {
                self.of_graphs.remove(&embedded);
            }
            self.leave(embedded, plan);
        }
    }

    /// The graph that a node is in.
    pub(super) fn of_node(&self, node: usize) -> Option<usize> {
        self.of_nodes.get(&node).copied()
    }

    /// The way to a graph.
    pub(super) fn way_to(&self, graph: usize) -> Way {
        let (mut root, mut nodes) = (graph, Vec::new());
        while let Some(node) = self.of_graphs.get(&root).filter(|_| nodes.len() < self.of_graphs.len()) {
            let Some(around) = self.of_node(*node) else { break };
            nodes.push(*node);
            root = around;
        }
        nodes.reverse();
        Way { root, nodes }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Homes, Way};
    use crate::kept::graphs::plan::{Node, Plan, Work};

    fn of(nodes: [Node; 1]) -> Plan {
        Plan { nodes: nodes.into_iter().collect(), ..Plan::default() }
    }

    fn node(handle: usize, work: Work) -> Node {
        Node { handle, work: Arc::new(work) }
    }

    #[test]
    fn a_handle_that_something_else_has_by_now_stays_where_it_is_when_the_one_before_goes() {
        let mut homes = Homes::default();
        let before = of([node(10, Work::Child { graph: 5, plan: of([node(50, Work::Empty)]) })]);
        homes.enter(1, &before);
        assert_eq!(homes.way_to(5), Way { root: 1, nodes: vec![10] });
        homes.enter(2, &of([node(50, Work::Empty)]));
        homes.leave(1, &before);
        assert_eq!([10, 50].map(|node| homes.of_node(node)), [None, Some(2)]);
        assert_eq!(homes.way_to(5), Way { root: 5, nodes: Vec::new() });
    }
}
