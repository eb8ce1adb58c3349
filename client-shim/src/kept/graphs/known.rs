//! Which graphs and executable graphs there are. Pure bookkeeping, in the living copy's handles.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::plan::{Edge, Executable, Launch, Node, Plan, Work};
use crate::cuda::moved::Moves;

/// Bytes that descriptions of graphs may take together; a graph beyond is not recoverable.
const MOST_BYTES: usize = 256 << 20;

/// Graphs and executable graphs, each with its handle.
pub(crate) type All = (Vec<(usize, Plan)>, Vec<(usize, Executable)>);

/// All graphs and executable graphs that can be made again.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    /// By handle, with how many were kept before.
    graphs: BTreeMap<usize, (u64, Plan)>,
    executables: BTreeMap<usize, (u64, Executable)>,
    number: u64,
    bytes: usize,
    /// How often anything may have changed.
    changes: u64,
}

impl Graphs {
    /// How often any graph was made, changed or ended.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        let is_room = self.bytes.saturating_add(bytes) <= MOST_BYTES;
        self.bytes += if is_room { bytes } else { 0 };
        is_room
    }

    /// Keeps a graph; whether there was room.
    pub(crate) fn keep(&mut self, graph: usize, plan: Plan) -> bool {
        self.changes += 1;
        let number = self.graphs.get(&graph).map_or(self.number, |(number, _)| *number);
        self.forget(graph);
        let is_kept = self.has_room(plan.cost());
        if is_kept {
            self.number += 1;
            self.graphs.insert(graph, (number, plan));
        }
        is_kept
    }

    /// The graph that this is, or that this graph or node is part of.
    pub(crate) fn around(&self, handle: usize) -> Option<usize> {
        if self.graphs.contains_key(&handle) {
            return Some(handle);
        }
        self.graphs.iter().find(|(_, (_, plan))| plan.contains(handle)).map(|(graph, _)| *graph)
    }

    /// Whether this is a graph, an executable one, or a node of one.
    pub(crate) fn has(&self, handle: usize) -> bool {
        self.executables.contains_key(&handle) || self.around(handle).is_some()
    }

    /// What a graph is made of.
    pub(crate) fn plan(&self, graph: usize) -> Option<&Plan> {
        self.graphs.get(&graph).map(|(_, plan)| plan)
    }

    /// A node has come, with these edges to it; whether there was room. Nothing if the graph is not kept.
    pub(crate) fn add(&mut self, graph: usize, node: Node, edges: Vec<Edge>) -> bool {
        self.changes += 1;
        if !self.graphs.contains_key(&graph) {
            return true;
        }
        let is_room = self.has_room(node.work.cost() + edges.len() * size_of::<Edge>());
        if let Some((_, plan)) = self.graphs.get_mut(&graph).filter(|_| is_room) {
            plan.nodes.push(node);
            plan.edges.extend(edges);
        }
        is_room
    }

    /// What a node of a kept graph does now; whether it is one.
    pub(crate) fn change(&mut self, graph: usize, node: usize, work: Arc<Work>) -> bool {
        self.changes += 1;
        let plan = self.graphs.get_mut(&graph).map(|(_, plan)| plan);
        plan.is_some_and(|plan| change(plan, node, work, &mut self.bytes))
    }

    /// What a node of an executable graph does now; whether it is one.
    pub(crate) fn change_executable(&mut self, executable: usize, node: usize, work: Arc<Work>) -> bool {
        self.changes += 1;
        let plan = self.executables.get_mut(&executable).map(|(_, of)| &mut of.plan);
        plan.is_some_and(|plan| change(plan, node, work, &mut self.bytes))
    }

    /// A graph is no more, or can't be kept; what it was, if it was kept.
    pub(crate) fn forget(&mut self, graph: usize) -> Option<(u64, Plan)> {
        self.changes += 1;
        let gone = self.graphs.remove(&graph)?;
        self.bytes -= gone.1.cost();
        Some(gone)
    }

    /// The driver has not destroyed it.
    pub(crate) fn restore(&mut self, graph: usize, kept: (u64, Plan)) {
        self.changes += 1;
        self.bytes += kept.1.cost();
        self.graphs.insert(graph, kept);
    }

    /// Keeps an executable graph; whether its graph is kept and there was room.
    pub(crate) fn instantiate(&mut self, executable: usize, of: usize, context: usize, flags: u64) -> bool {
        self.changes += 1;
        self.forget_executable(executable);
        let Some(plan) = self.plan(of).cloned() else { return false };
        let is_room = self.has_room(plan.cost());
        if is_room {
            let made = Executable { context, flags, of, plan, disabled: BTreeSet::new() };
            self.executables.insert(executable, (self.number, made));
            self.number += 1;
        }
        is_room
    }

    /// An executable graph was made to do what another graph does; whether that is kept.
    pub(crate) fn update(&mut self, executable: usize, by: usize) -> bool {
        self.changes += 1;
        let (Some(plan), Some((_, known))) = (self.plan(by).cloned(), self.executables.get(&executable)) else {
            return false;
        };
        let is_alike = known.plan.nodes.len() == plan.nodes.len() && known.plan.shape() == plan.shape();
        let (before, of) = (known.plan.cost(), if is_alike { known.of } else { by });
        // Where they are alike its nodes are still called as those of the graph that it was made of.
        let names: Vec<usize> = known.plan.nodes.iter().map(|node| node.handle).collect();
        let renamed = if is_alike {
            let pairs: BTreeMap<usize, usize> = plan.nodes.iter().map(|node| node.handle).zip(names).collect();
            let name = |handle: usize| pairs.get(&handle).copied().unwrap_or(handle);
            let node = |node: &Node| Node { handle: name(node.handle), work: Arc::clone(&node.work) };
            let edge = |edge: &Edge| Edge { from: name(edge.from), to: name(edge.to), data: edge.data };
            Plan { nodes: plan.nodes.iter().map(node).collect(), edges: plan.edges.iter().map(edge).collect() }
        } else {
            plan
        };
        self.bytes -= before;
        let is_room = self.has_room(renamed.cost());
        if is_room && let Some((_, known)) = self.executables.get_mut(&executable) {
            (known.plan, known.of) = (renamed, of);
        } else {
            self.executables.remove(&executable);
        }
        is_room
    }

    /// A node of an executable graph was switched off or on.
    pub(crate) fn enable(&mut self, executable: usize, node: usize, is_enabled: bool) {
        self.changes += 1;
        if let Some((_, known)) = self.executables.get_mut(&executable) {
            if is_enabled {
                known.disabled.remove(&node);
            } else {
                known.disabled.insert(node);
            }
        }
    }

    /// Whether an executable graph is kept.
    pub(crate) fn is_executable(&self, executable: usize) -> bool {
        self.executables.contains_key(&executable)
    }

    /// What was told of a node of an executable graph, with what is as it was before: a kernel's attributes, and by what
    /// handle a graph is embedded.
    pub(crate) fn as_before(&self, executable: usize, node: usize, work: Work) -> Work {
        let known = self.executables.get(&executable).map(|(_, of)| &of.plan.nodes);
        let known = known.and_then(|nodes| nodes.iter().find(|known| known.handle == node)).map(|node| &*node.work);
        match (work, known) {
            (Work::Launch(launch), Some(Work::Launch(before))) => {
                Work::Launch(Launch { attributes: before.attributes.clone(), ..launch })
            }
            (Work::Child { plan, .. }, Some(Work::Child { graph, .. })) => Work::Child { graph: *graph, plan },
            (work, _) => work,
        }
    }

    /// An executable graph is no more, or can't be kept; what it was, if it was kept.
    pub(crate) fn forget_executable(&mut self, executable: usize) -> Option<(u64, Executable)> {
        self.changes += 1;
        let gone = self.executables.remove(&executable)?;
        self.bytes -= gone.1.plan.cost();
        Some(gone)
    }

    /// The driver has not destroyed it.
    pub(crate) fn restore_executable(&mut self, executable: usize, kept: (u64, Executable)) {
        self.changes += 1;
        self.bytes += kept.1.plan.cost();
        self.executables.insert(executable, kept);
    }

    /// A context has ended, and what is executed in it.
    pub(crate) fn forget_context(&mut self, context: usize) {
        let ended = self.executables.iter().filter(|(_, (_, of))| of.context == context).map(|(handle, _)| *handle);
        for handle in ended.collect::<Vec<_>>() {
            self.forget_executable(handle);
        }
    }

    /// How many graphs and executable graphs there are.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.graphs.len(), self.executables.len()].map(|count| u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// All of them, in the order in which they were made.
    pub(crate) fn all(&self) -> All {
        let mut graphs: Vec<_> = self.graphs.iter().collect();
        graphs.sort_by_key(|(_, (number, _))| *number);
        let mut executables: Vec<_> = self.executables.iter().collect();
        executables.sort_by_key(|(_, (number, _))| *number);
        (
            graphs.into_iter().map(|(handle, (_, plan))| (*handle, plan.clone())).collect(),
            executables.into_iter().map(|(handle, (_, of))| (*handle, of.clone())).collect(),
        )
    }

    /// Everything has another handle now, and variables have other addresses.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize, moves: &Moves) {
        self.changes += 1;
        let graphs = std::mem::take(&mut self.graphs).into_iter();
        self.graphs = graphs
            .map(|(graph, (number, plan))| (current(graph), (number, plan.renamed(&current).moved(moves))))
            .collect();
        let executables = std::mem::take(&mut self.executables).into_iter();
        self.executables = executables
            .map(|(executable, (number, of))| {
                let renamed = Executable {
                    context: current(of.context),
                    flags: of.flags,
                    of: current(of.of),
                    plan: of.plan.renamed(&current).moved(moves),
                    disabled: of.disabled.iter().map(|node| current(*node)).collect(),
                };
                (current(executable), (number, renamed))
            })
            .collect();
    }
}

/// Changes what a node of a plan does; whether it has the node.
fn change(plan: &mut Plan, node: usize, work: Arc<Work>, bytes: &mut usize) -> bool {
    let Some(known) = plan.nodes.iter_mut().find(|known| known.handle == node) else { return false };
    *bytes = *bytes - known.work.cost() + work.cost();
    known.work = work;
    true
}

#[cfg(test)]
mod tests {
    use crate::cuda::moved::Moves;

    use std::sync::Arc;

    use super::{
        super::plan::{Edge, Node, Plan, Work},
        Graphs,
    };

    fn node(handle: usize, work: Work) -> Node {
        Node { handle, work: Arc::new(work) }
    }

    fn edge(from: usize, to: usize) -> Edge {
        Edge { from, to, data: [0; 8] }
    }

    /// Two nodes, one after the other.
    fn plan(first: usize) -> Plan {
        let nodes = vec![node(first, Work::Record { event: 0xe0 }), node(first + 1, Work::Empty)];
        Plan { nodes, edges: vec![edge(first, first + 1)] }
    }

    #[test]
    fn an_executable_graph_does_what_its_graph_did_when_it_was_made() {
        let mut graphs = Graphs::default();
        assert!(graphs.keep(1, plan(10)));
        assert!(graphs.instantiate(100, 1, 0xc0, 0));
        assert!(graphs.change(1, 10, Arc::new(Work::Wait { event: 0xe1 })));
        assert!(graphs.add(1, node(12, Work::Empty), vec![edge(11, 12)]));
        let (all, executables) = graphs.all();
        assert_eq!((all[0].1.nodes.len(), executables[0].1.plan.clone()), (3, plan(10)));
        assert!(!executables[0].1.plan.has_nodes_of(&all[0].1));
        assert!(graphs.forget(1).is_some());
        assert_eq!(graphs.counts(), [0, 1]);
        graphs.forget_context(0xc0);
        assert_eq!((graphs.counts(), graphs.bytes), ([0, 0], 0));
    }

    #[test]
    fn an_update_by_a_graph_that_is_alike_keeps_the_names_of_nodes() {
        let mut graphs = Graphs::default();
        graphs.keep(1, plan(10));
        graphs.instantiate(100, 1, 0xc0, 0);
        graphs.enable(100, 11, false);
        let mut other = plan(20);
        other.nodes[0].work = Arc::new(Work::Wait { event: 0xe1 });
        graphs.keep(2, other);
        assert!(graphs.update(100, 2));
        let (_, executables) = graphs.all();
        let (_, updated) = &executables[0];
        assert_eq!((updated.of, updated.plan.nodes[0].clone()), (1, node(10, Work::Wait { event: 0xe1 })));
        assert_eq!((updated.plan.edges[0], updated.disabled.len()), (edge(10, 11), 1));
        let mut reversed = plan(30);
        reversed.edges = vec![edge(31, 30)];
        graphs.keep(3, reversed.clone());
        assert!(graphs.update(100, 3));
        assert_eq!((graphs.all().1[0].1.of, graphs.all().1[0].1.plan.clone()), (3, reversed));
        assert!(!graphs.update(100, 99), "nobody knows that graph");
    }

    #[test]
    fn parts_are_found_at_any_depth_and_everything_is_renamed() {
        let mut graphs = Graphs::default();
        let child = Work::Child { graph: 5, plan: plan(50) };
        graphs.keep(1, Plan { nodes: vec![node(10, child)], edges: Vec::new() });
        assert_eq!([1, 10, 5, 51, 99].map(|handle| graphs.around(handle)), [Some(1), Some(1), Some(1), Some(1), None]);
        graphs.instantiate(100, 1, 0xc0, 7);
        graphs.rename(|handle| handle + 0x1000, &Moves::default());
        assert_eq!(graphs.around(0x1000 + 51), Some(0x1001));
        let (_, executables) = graphs.all();
        assert_eq!((executables[0].0, executables[0].1.of, executables[0].1.context), (0x1064, 0x1001, 0x10c0));
        let bytes = graphs.bytes;
        assert!(bytes > 0);
        graphs.keep(0x1001, Plan::default());
        graphs.forget(0x1001);
        graphs.forget_executable(0x1064);
        assert_eq!(graphs.bytes, 0);
    }
}
