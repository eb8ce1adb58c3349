//! Graphs: nodes with what they do, edges, captures, and executable forms.
//!
//! As documented of the real driver: a graph's nodes may be changed without harm to what was made of it, an executable
//! graph is changed by the nodes of the graph that it was made of, an embedded graph is a copy, and streams are captured
//! across events. What order nodes are named in is assumed: that in which they were added. A launch does an executable
//! graph's work one node after the other, in an order that its edges allow.

use crate::codes::{Code, Outcome};
use crate::driver::{Driver, Tables};
use crate::entry::capture::Begun;
use crate::tables::Table;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A launch of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Handle of the function.
    pub(crate) function: usize,
    /// Grid, block, shared memory.
    pub(crate) shape: [u32; 7],
    /// Each argument's bytes.
    pub(crate) values: Arc<Vec<Vec<u8>>>,
    /// Where they are: what the driver shows of them.
    pub(crate) places: Arc<Vec<usize>>,
}

impl Launch {
    /// A launch with these arguments.
    pub(crate) fn new(function: usize, shape: [u32; 7], values: Vec<Vec<u8>>) -> Self {
        let places = values.iter().map(|value| value.as_ptr().expose_provenance()).collect();
        Self { function, shape, values: Arc::new(values), places: Arc::new(places) }
    }
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    /// A kernel.
    Launch(Launch),
    /// `CUDA_MEMCPY3D` in words.
    Copy([u64; 25]),
    /// `CUDA_MEMSET_NODE_PARAMS` in words.
    Fill([u64; 5]),
    /// A function of the program's and its argument.
    Host([usize; 2]),
    /// An embedded graph.
    Child(usize),
    /// Nothing.
    Empty,
    /// A wait for an event.
    Wait(usize),
    /// The record of an event.
    Record(usize),
    /// A signal to an external semaphore, which nobody hears.
    Signal,
}

impl Task {
    /// `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Self::Launch(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Signal => 8,
        }
    }
}

/// An edge: from, to, data.
pub(crate) type Edge = (usize, usize, [u8; 8]);

/// A graph.
#[derive(Debug, Default, Clone)]
pub(crate) struct Graph {
    /// Handles in the order in which they were added.
    pub(crate) nodes: Vec<usize>,
    pub(crate) edges: Vec<Edge>,
    /// By node of what it was cloned from, the node in it.
    pub(crate) origins: Table<usize, usize>,
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Handle of its graph.
    pub(crate) graph: usize,
    pub(crate) task: Task,
    /// Attributes that were set.
    pub(crate) attributes: BTreeMap<u32, [u64; 8]>,
}

/// A node of an executable graph.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The node that names it.
    pub(crate) node: usize,
    pub(crate) task: Task,
    pub(crate) is_enabled: bool,
}

/// What a stream under capture comes after.
#[derive(Debug, Clone)]
pub(crate) struct Capture {
    pub(crate) graph: usize,
    /// The stream's.
    pub(crate) context: usize,
    pub(crate) last: Vec<usize>,
    /// By whom it was begun, if it was on this stream.
    pub(crate) begun: Option<Begun>,
    /// A call has broken it that was forbidden meanwhile.
    pub(crate) is_broken: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pub(crate) graphs: Table<usize, Graph>,
    pub(crate) nodes: Table<usize, Node>,
    /// Handles of destroyed nodes: a new one gets the latest, as from an allocator of objects.
    pub(crate) spare: Vec<usize>,
    pub(crate) executables: Table<usize, Vec<Step>>,
    /// By stream.
    pub(crate) captures: Table<usize, Capture>,
    /// Events that were recorded in a capture: its graph, and after which nodes.
    pub(crate) events: Table<usize, (usize, Vec<usize>)>,
}

impl Graphs {
    /// A graph.
    pub(crate) fn graph(&mut self, handle: usize) -> Outcome<&mut Graph> {
        self.graphs.get_mut(&handle).ok_or(Code::INVALID_VALUE)
    }

    /// A node.
    pub(crate) fn node(&mut self, handle: usize) -> Outcome<&mut Node> {
        self.nodes.get_mut(&handle).ok_or(Code::INVALID_VALUE)
    }

    /// Adds a node under this handle, after others.
    pub(crate) fn add(&mut self, handle: usize, graph: usize, before: &[usize], task: Task) -> Outcome {
        let edges = before.iter().map(|from| (*from, handle, [0; 8]));
        let of = self.graph(graph)?;
        if before.iter().any(|node| !of.nodes.contains(node)) {
            return Err(Code::INVALID_VALUE);
        }
        of.nodes.push(handle);
        of.edges.extend(edges);
        self.nodes.insert(handle, Node { graph, task, attributes: BTreeMap::new() });
        Ok(())
    }

    /// A context has ended, and the captures that its streams have a part in.
    pub(crate) fn end_captures(&mut self, context: usize) {
        let of_context = self.captures.values().filter(|capture| capture.context == context);
        let ended: Vec<usize> = of_context.map(|capture| capture.graph).collect();
        self.captures.retain(|_, capture| !ended.contains(&capture.graph));
        self.events.retain(|_, (graph, _)| !ended.contains(graph));
    }

    /// Adds what a stream under capture is given; whether it is under capture.
    fn capture(&mut self, stream: usize, handle: usize, task: &Task) -> Outcome<bool> {
        let Some(capture) = self.captures.get(&stream).cloned() else { return Ok(false) };
        self.add(handle, capture.graph, &capture.last, task.clone())?;
        self.captures.insert(stream, Capture { last: vec![handle], ..capture });
        Ok(true)
    }

    /// Nodes of a graph in an order that its edges allow; else one of those that come after themselves.
    fn ordered(&self, graph: usize) -> Outcome<Result<Vec<usize>, usize>> {
        let graph = self.graphs.get(&graph).ok_or(Code::INVALID_VALUE)?;
        let (mut left, mut done) = (graph.nodes.clone(), Vec::new());
        while !left.is_empty() {
            let is_free = |node: &usize| graph.edges.iter().all(|(from, to, _)| to != node || done.contains(from));
            let Some(at) = left.iter().position(is_free) else { return Ok(Err(left[0])) };
            done.push(left.remove(at));
        }
        Ok(Ok(done))
    }

    fn in_order(&self, graph: usize) -> Outcome<Vec<usize>> {
        self.ordered(graph)?.map_err(|_in_a_circle| Code::INVALID_VALUE)
    }

    /// The node for which a graph cannot be made executable.
    pub(crate) fn wrong_node(&self, graph: usize) -> Option<usize> {
        self.ordered(graph).ok()?.err()
    }

    /// What an executable form of a graph does.
    pub(crate) fn steps(&self, graph: usize) -> Outcome<Vec<Step>> {
        let mut steps = Vec::new();
        for node in self.in_order(graph)? {
            let task = self.nodes[&node].task.clone();
            if let Task::Child(child) = task {
                steps.extend(self.steps(child)?.into_iter().map(|step| Step { node, ..step }));
            } else {
                steps.push(Step { node, task, is_enabled: true });
            }
        }
        Ok(steps)
    }

    /// Forgets a graph, what it embeds, and all their nodes.
    pub(crate) fn destroy(&mut self, graph: usize) -> Outcome {
        let gone = self.graphs.remove(&graph).ok_or(Code::INVALID_VALUE)?;
        for node in gone.nodes {
            if let Some(Node { task: Task::Child(child), .. }) = self.nodes.remove(&node) {
                self.destroy(child)?;
            }
        }
        Ok(())
    }
}

impl Driver {
    /// Copies a graph with all that it embeds; the copy's handle.
    pub(crate) fn clone_graph(&self, tables: &mut Tables, original: usize) -> Outcome<usize> {
        let Graph { nodes, edges, .. } = tables.graphs.graph(original)?.clone();
        let copy = self.new_handle();
        tables.graphs.graphs.insert(copy, Graph::default());
        let mut origins = Table::default();
        for node in nodes {
            let Node { task, attributes, .. } = tables.graphs.node(node)?.clone();
            let task = if let Task::Child(child) = task { Task::Child(self.clone_graph(tables, child)?) } else { task };
            let handle = self.new_handle();
            tables.graphs.add(handle, copy, &[], task)?;
            tables.graphs.node(handle)?.attributes = attributes;
            origins.insert(node, handle);
        }
        let graph = tables.graphs.graph(copy)?;
        graph.edges = edges.into_iter().map(|(from, to, data)| (origins[&from], origins[&to], data)).collect();
        graph.origins = origins;
        Ok(copy)
    }

    /// Whether a stream is under capture; then the task is added to its graph.
    pub(crate) fn is_captured(&self, stream: usize, task: &Task) -> Outcome<bool> {
        let handle = self.new_handle();
        self.tables().graphs.capture(stream, handle, task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_run_after_those_before_them_and_circles_are_refused() {
        let mut graphs = Graphs::default();
        graphs.graphs.insert(1, Graph::default());
        for (handle, before) in [(10, vec![]), (11, vec![]), (12, vec![11])] {
            graphs.add(handle, 1, &before, Task::Empty).expect("its nodes are there");
        }
        graphs.graph(1).expect("it is there").edges.push((12, 10, [0; 8]));
        let order: Vec<usize> = graphs.steps(1).expect("no circle").iter().map(|step| step.node).collect();
        assert_eq!(order, [11, 12, 10]);
        graphs.graph(1).expect("it is there").edges.push((10, 11, [0; 8]));
        assert_eq!(graphs.steps(1).err(), Some(Code::INVALID_VALUE));
        assert_eq!(graphs.add(13, 1, &[99], Task::Empty), Err(Code::INVALID_VALUE));
        graphs.destroy(1).expect("it is there");
        assert!(graphs.nodes.is_empty());
    }
}
