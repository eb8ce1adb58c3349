//! What graphs are made of, in the living copy's handles. Pure bookkeeping.

mod parts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub(crate) use parts::{Edge, Edges, Node, Nodes, Taken};

use crate::cuda::{
    arguments::structures::{WINDOW, translate},
    moved::Moves,
    types::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS},
};

/// What a node takes at least, about, in bytes.
const COST_OF_A_NODE: usize = 256;
/// What an edge takes, which is found by either end, about, in bytes.
pub(super) const COST_OF_AN_EDGE: usize = 2 * size_of::<Edge>();

/// A kernel's launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The function, or 0.
    pub(crate) function: usize,
    /// The kernel of a library in its place, or 0.
    pub(crate) kernel: usize,
    /// The context, or 0 for the current one.
    pub(crate) context: usize,
    /// Grid, block, bytes of dynamic shared memory.
    pub(crate) shape: [u32; 7],
    /// The value of each parameter.
    pub(crate) arguments: Arguments,
    /// Attributes that are not as they are by default: number and value.
    pub(crate) attributes: Vec<(u32, [u64; 8])>,
}

/// How a kernel's arguments were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// One by one.
    Single(Vec<Vec<u8>>),
    /// In a buffer.
    Buffer(Vec<u8>),
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A kernel.
    Launch(Launch),
    /// `CUDA_MEMCPY3D` in words, and the context.
    Copy { words: [u64; 25], context: usize },
    /// `CUDA_MEMSET_NODE_PARAMS` in words, and the context.
    Set { words: [u64; 5], context: usize },
    /// A function of the program's and its argument.
    Host { function: usize, data: usize },
    /// Another graph, embedded by this handle.
    Child { graph: usize, plan: Plan },
    /// Nothing.
    Empty,
    /// A wait for an event.
    Wait { event: usize },
    /// The record of an event.
    Record { event: usize },
}

/// All of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// In the order in which the driver names them.
    pub(crate) nodes: Nodes,
    /// In no order that means anything.
    pub(crate) edges: Edges,
}

/// An executable graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Executable {
    /// The context that it was made in.
    pub(crate) context: usize,
    /// As given.
    pub(crate) flags: u64,
    /// The graph that it was made of, whose nodes name its own.
    pub(crate) of: usize,
    /// What it does now.
    pub(crate) plan: Plan,
    /// Nodes that are switched off.
    pub(crate) disabled: BTreeSet<usize>,
}

impl Work {
    pub(super) fn cost(&self) -> usize {
        let own = match self {
            Self::Launch(Launch { arguments: Arguments::Single(all), .. }) => {
                all.iter().map(|one| one.len() + 32).sum()
            }
            Self::Launch(Launch { arguments: Arguments::Buffer(bytes), .. }) => bytes.len(),
            Self::Child { plan, .. } => plan.cost(),
            Self::Copy { .. }
            | Self::Set { .. }
            | Self::Host { .. }
            | Self::Empty
            | Self::Wait { .. }
            | Self::Record { .. } => 0,
        };
        own + COST_OF_A_NODE
    }

    pub(super) fn renamed(&self, current: &impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Launch(launch) => Self::Launch(Launch {
                function: current(launch.function),
                kernel: current(launch.kernel),
                context: current(launch.context),
                ..launch.clone()
            }),
            Self::Copy { words, context } => Self::Copy { words: *words, context: current(*context) },
            Self::Set { words, context } => Self::Set { words: *words, context: current(*context) },
            Self::Host { function, data } => Self::Host { function: *function, data: *data },
            Self::Child { graph, plan } => Self::Child { graph: current(*graph), plan: plan.renamed(current) },
            Self::Empty => Self::Empty,
            Self::Wait { event } => Self::Wait { event: current(*event) },
            Self::Record { event } => Self::Record { event: current(*event) },
        }
    }
}

impl Work {
    /// The context of a copy or a set.
    pub(crate) fn place(&self) -> Option<usize> {
        if let Self::Copy { context, .. } | Self::Set { context, .. } = self { Some(*context) } else { None }
    }

    /// The graph that it embeds, by its handle and by what it does.
    pub(super) fn embedded(&self) -> Option<(usize, &Plan)> {
        if let Self::Child { graph, plan } = self { Some((*graph, plan)) } else { None }
    }

    /// The same with variables at their addresses of today.
    fn moved(&self, moves: &Moves) -> Self {
        let mut work = self.clone();
        if let Self::Launch(launch) = &mut work {
            for (_, window) in launch.attributes.iter_mut().filter(|(attribute, _)| *attribute == WINDOW) {
                window[0] = moves.of(window[0]);
            }
        }
        match &mut work {
            Self::Launch(Launch { arguments: Arguments::Single(all), .. }) => {
                for bytes in all {
                    moves.apply(bytes);
                }
            }
            Self::Launch(Launch { arguments: Arguments::Buffer(bytes), .. }) => moves.apply(bytes),
            Self::Copy { words, .. } => translate::<CUDA_MEMCPY3D>(words, |address| moves.of(address)),
            Self::Set { words, .. } => translate::<CUDA_MEMSET_NODE_PARAMS>(words, |address| moves.of(address)),
            Self::Child { plan, .. } => *plan = plan.moved(moves),
            Self::Host { .. } | Self::Empty | Self::Wait { .. } | Self::Record { .. } => {}
        }
        work
    }
}

impl Plan {
    /// The same with variables at their addresses of today. What is shared stays so where nothing changes.
    pub(crate) fn moved(&self, moves: &Moves) -> Self {
        let node = |node: &Node| {
            let work = node.work.moved(moves);
            Node { handle: node.handle, work: if work == *node.work { node.work.clone() } else { Arc::new(work) } }
        };
        Self { nodes: self.nodes.iter().map(node).collect(), edges: self.edges.clone() }
    }

    pub(super) fn cost(&self) -> usize {
        self.nodes.iter().map(|node| node.work.cost()).sum::<usize>() + self.edges.len() * COST_OF_AN_EDGE
    }

    pub(super) fn renamed(&self, current: &impl Fn(usize) -> usize) -> Self {
        let node = |node: &Node| Node { handle: current(node.handle), work: Arc::new(node.work.renamed(current)) };
        let edge = |edge: Edge| Edge { from: current(edge.from), to: current(edge.to), data: edge.data };
        Self { nodes: self.nodes.iter().map(node).collect(), edges: self.edges.iter().map(edge).collect() }
    }

    /// What its nodes work with, at any depth: functions, kernels, contexts and events.
    pub(crate) fn names(&self) -> BTreeSet<usize> {
        let mut names = BTreeSet::new();
        for node in &self.nodes {
            match &*node.work {
                Work::Launch(Launch { function, kernel, context, .. }) => names.extend([*function, *kernel, *context]),
                Work::Copy { context, .. } | Work::Set { context, .. } => drop(names.insert(*context)),
                Work::Wait { event } | Work::Record { event } => drop(names.insert(*event)),
                Work::Child { plan, .. } => names.extend(plan.names()),
                Work::Host { .. } | Work::Empty => {}
            }
        }
        names.remove(&0);
        names
    }

    /// Whether the other one has the same nodes in the same order, and embeds the same.
    pub(crate) fn has_nodes_of(&self, other: &Self) -> bool {
        let is_same = |(own, other): (&Node, &Node)| {
            own.handle == other.handle && (own.work == other.work || !matches!(&*own.work, Work::Child { .. }))
        };
        self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(is_same)
            && self.edges == other.edges
    }

    /// Edges by the places of their nodes.
    pub(super) fn shape(&self) -> BTreeSet<(Option<usize>, Option<usize>, [u8; 8])> {
        let places: BTreeMap<usize, usize> =
            self.nodes.iter().enumerate().map(|(at, node)| (node.handle, at)).collect();
        let place = |handle: usize| places.get(&handle).copied();
        self.edges.iter().map(|edge| (place(edge.from), place(edge.to), edge.data)).collect()
    }
}
