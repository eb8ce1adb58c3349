//! Nodes and edges of a graph, each found at once, so that an edit costs as much as what is edited. Pure bookkeeping.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Values},
    sync::Arc,
};

use super::Work;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its handle.
    pub(crate) handle: usize,
    /// What it does; shared between a graph and its executable forms as long as it is the same.
    pub(crate) work: Arc<Work>,
}

/// That one node comes after another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    /// The one before.
    pub(crate) from: usize,
    /// The one after.
    pub(crate) to: usize,
    /// `CUgraphEdgeData`.
    pub(crate) data: [u8; 8],
}

/// Nodes in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    /// By how many were added before.
    all: BTreeMap<u64, Node>,
    /// These numbers, by handle.
    numbers: BTreeMap<usize, u64>,
    next: u64,
}

/// Edges, of which there is one alone of the same nodes and data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edges {
    /// In the order of the nodes that they come from.
    by_from: BTreeSet<Edge>,
    /// The same the other way round: to, from and data.
    by_to: BTreeSet<(usize, usize, [u8; 8])>,
}

/// A node that was taken out, with its edges.
#[derive(Debug)]
pub(crate) struct Taken {
    number: u64,
    pub(crate) node: Node,
    pub(crate) edges: Vec<Edge>,
}

impl Nodes {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> Values<'_, u64, Node> {
        self.all.values()
    }

    /// The node of a handle.
    pub(crate) fn get(&self, handle: usize) -> Option<&Node> {
        self.all.get(self.numbers.get(&handle)?)
    }

    pub(super) fn get_mut(&mut self, handle: usize) -> Option<&mut Node> {
        self.all.get_mut(self.numbers.get(&handle)?)
    }

    /// Adds one behind all others. One of this handle that is there has ended in a way that nobody saw.
    fn push(&mut self, node: Node) {
        self.put(self.next, node);
        self.next += 1;
    }

    fn put(&mut self, number: u64, node: Node) {
        if let Some(before) = self.numbers.insert(node.handle, number) {
            self.all.remove(&before);
        }
        self.all.insert(number, node);
    }

    fn take(&mut self, handle: usize) -> Option<(u64, Node)> {
        let number = self.numbers.remove(&handle)?;
        Some((number, self.all.remove(&number)?))
    }
}

impl PartialEq for Nodes {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other)
    }
}

impl Eq for Nodes {}

impl FromIterator<Node> for Nodes {
    fn from_iter<T: IntoIterator<Item = Node>>(nodes: T) -> Self {
        let mut all = Self::default();
        nodes.into_iter().for_each(|node| all.push(node));
        all
    }
}

impl<'nodes> IntoIterator for &'nodes Nodes {
    type Item = &'nodes Node;
    type IntoIter = Values<'nodes, u64, Node>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Edges {
    pub(crate) fn len(&self) -> usize {
        self.by_from.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Edge> {
        self.by_from.iter().copied()
    }

    /// Adds one; whether it was not there.
    pub(super) fn add(&mut self, edge: Edge) -> bool {
        self.by_to.insert((edge.to, edge.from, edge.data));
        self.by_from.insert(edge)
    }

    /// Takes one away; whether it was there.
    pub(super) fn remove(&mut self, edge: &Edge) -> bool {
        self.by_to.remove(&(edge.to, edge.from, edge.data));
        self.by_from.remove(edge)
    }

    /// Those from a node and to it.
    fn of(&self, node: usize) -> Vec<Edge> {
        let (least, most) = ([u8::MIN; 8], [u8::MAX; 8]);
        let first = Edge { from: node, to: usize::MIN, data: least };
        let from = self.by_from.range(first..=Edge { from: node, to: usize::MAX, data: most }).copied();
        let to = self.by_to.range((node, usize::MIN, least)..=(node, usize::MAX, most));
        from.chain(to.map(|(to, from, data)| Edge { from: *from, to: *to, data: *data })).collect()
    }
}

impl FromIterator<Edge> for Edges {
    fn from_iter<T: IntoIterator<Item = Edge>>(edges: T) -> Self {
        let mut all = Self::default();
        for edge in edges {
            all.add(edge);
        }
        all
    }
}

impl Taken {
    pub(in super::super) fn cost(&self) -> usize {
        self.node.work.cost() + self.edges.len() * super::COST_OF_AN_EDGE
    }
}

impl super::Plan {
    /// Adds a node behind all others.
    pub(in super::super) fn add(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// Takes a node out with its edges, as the driver does when it is destroyed.
    pub(in super::super) fn take(&mut self, handle: usize) -> Option<Taken> {
        let (number, node) = self.nodes.take(handle)?;
        let edges = self.edges.of(handle);
        for edge in &edges {
            self.edges.remove(edge);
        }
        Some(Taken { number, node, edges })
    }

    /// Puts a node back to where it was.
    pub(in super::super) fn put_back(&mut self, Taken { number, node, edges }: Taken) {
        self.nodes.put(number, node);
        for edge in edges {
            self.edges.add(edge);
        }
    }

    /// What a node does, to be changed.
    pub(in super::super) fn work_of(&mut self, node: usize) -> Option<&mut Arc<Work>> {
        self.nodes.get_mut(node).map(|node| &mut node.work)
    }

    /// An edge has come; whether it was not there.
    pub(in super::super) fn connect(&mut self, edge: Edge) -> bool {
        self.edges.add(edge)
    }

    /// An edge has gone; whether it was there.
    pub(in super::super) fn disconnect(&mut self, edge: &Edge) -> bool {
        self.edges.remove(edge)
    }
}
