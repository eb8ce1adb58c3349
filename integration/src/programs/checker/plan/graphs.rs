//! Graphs: what they are made of, and whether that is still there.

use super::super::program::{Memory, Node, Place, Queue};
use super::ops::{Effect, Step};
use super::{Planner, slot};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub(super) struct Graph {
    pub(super) device: u8,
    pub(super) nodes: Vec<Node>,
    /// First cells of the blocks that it was made with.
    pub(super) blocks: BTreeMap<u8, u16>,
}

impl Planner {
    /// A graph of these nodes is made on a stream's device.
    pub(super) fn make_graph(
        &mut self,
        thread: u8,
        graph: u8,
        stream: u8,
        is_captured: bool,
        nodes: &[Node],
    ) -> Option<Step> {
        let (_, device) = self.stream(thread, Queue::Stream(stream))?;
        let free = self.graphs.get(usize::from(graph)).is_some_and(Option::is_none);
        let is_right = |node: &Node| {
            let is_pageable =
                |place: Place| slot(&self.blocks, place.block).is_none_or(|block| block.memory == Memory::Pageable);
            // A graph with an array is in a recovery's way.
            let is_array =
                |place: &Place| slot(&self.blocks, place.block).is_some_and(|block| block.memory == Memory::Array);
            let is_allowed = match node {
                // A capture of pageable memory reads and writes when it is launched, and no two agree when.
                Node::Copy { to, from, .. } => is_captured && !is_pageable(*to) && !is_pageable(*from),
                Node::Mix { .. } | Node::Set { .. } | Node::Call { .. } => true,
            };
            is_allowed && !places_of(node).iter().any(is_array) && self.effect(node, device).is_some()
        };
        if !free || nodes.is_empty() || !nodes.iter().all(is_right) {
            return None;
        }
        let used = nodes.iter().flat_map(places_of).map(|place| place.block);
        let blocks = used.filter_map(|block| Some((block, slot(&self.blocks, block)?.first))).collect();
        self.graphs[usize::from(graph)] = Some(Graph { device, nodes: nodes.to_vec(), blocks });
        Some(Step { device, ..Step::default() })
    }

    /// A graph is launched.
    pub(super) fn launch_graph(&mut self, at: usize, thread: u8, graph: u8, on: Queue) -> Option<Step> {
        let found = slot(&self.graphs, graph).filter(|graph| self.is_whole(graph))?;
        let (_, device) = self.stream(thread, on)?;
        if device != found.device {
            return None;
        }
        let effects: Vec<Effect> = found.nodes.iter().map(|node| self.effect(node, device)).collect::<Option<_>>()?;
        self.give(at, thread, on, &effects)?;
        Some(Step { effects, is_work: true, is_many: true, device, ..Step::default() })
    }

    /// Whether a graph's memory is still what it was made with.
    pub(super) fn is_whole(&self, graph: &Graph) -> bool {
        let is_same = |(block, first): (&u8, &u16)| slot(&self.blocks, *block).is_some_and(|now| now.first == *first);
        graph.blocks.iter().all(is_same)
    }
}

/// The places that a node uses.
fn places_of(node: &Node) -> Vec<Place> {
    match *node {
        Node::Mix { to, from, .. } | Node::Copy { to, from, .. } => vec![to, from],
        Node::Set { to, .. } | Node::Call { to, .. } => vec![to],
    }
}
