//! Which graphs and executable graphs there are. Pure bookkeeping, in the living copy's handles.

mod edits;
mod homes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::plan::{Edge, Executable, Launch, Node, Plan, Work};
use crate::cuda::moved::Moves;
use homes::Homes;

/// Bytes that descriptions of graphs may take together; a graph beyond is not recoverable.
const MOST_BYTES: usize = 256 << 20;

/// Graphs and executable graphs, each with its handle.
pub(crate) type All = (Vec<(usize, Plan)>, Vec<(usize, Executable)>);

/// A graph, or an executable one.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    /// How many were kept before.
    number: u64,
    /// Which of all changes was the first one of it, and which the last one.
    made: u64,
    changed: u64,
    of: T,
}

/// All graphs and executable graphs that can be made again.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    /// By handle.
    graphs: BTreeMap<usize, Kept<Plan>>,
    executables: BTreeMap<usize, Kept<Executable>>,
    /// Of all nodes and embedded graphs.
    homes: Homes,
    number: u64,
    bytes: usize,
    /// How often anything may have changed.
    changes: u64,
    /// Which of these was the last end of one.
    ended: u64,
}

impl Graphs {
    /// How often any graph was made, changed or ended.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Which was the last change but for those behind this one, and but for what has changed again since: another number once
    /// something has changed, and then stays as it is. An end counts as long as no later one is behind it.
    pub(crate) fn last_until(&self, change: u64) -> u64 {
        let (graphs, executables) = (self.graphs.values(), self.executables.values());
        let all = graphs.map(|kept| kept.changed).chain(executables.map(|kept| kept.changed)).chain([self.ended]);
        all.filter(|changed| *changed <= change).max().unwrap_or(0)
    }

    /// Graphs that have changed behind this change, and executable ones that were made behind it: these are changed in place.
    pub(crate) fn changed_since(&self, change: u64) -> BTreeSet<usize> {
        let graphs = self.graphs.iter().filter(|(_, kept)| kept.changed > change).map(|(handle, _)| *handle);
        let executables = self.executables.iter().filter(|(_, kept)| kept.made > change).map(|(handle, _)| *handle);
        graphs.chain(executables).collect()
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        let is_room = self.bytes.saturating_add(bytes) <= MOST_BYTES;
        self.bytes += if is_room { bytes } else { 0 };
        is_room
    }

    /// Keeps a graph; whether there was room.
    pub(crate) fn keep(&mut self, graph: usize, plan: Plan) -> bool {
        self.changes += 1;
        let number = self.graphs.get(&graph).map_or(self.number, |kept| kept.number);
        self.forget(graph);
        let is_kept = self.has_room(plan.cost());
        if is_kept {
            self.number += 1;
            self.homes.enter(graph, &plan);
            self.graphs.insert(graph, Kept { number, made: self.changes, changed: self.changes, of: plan });
        }
        is_kept
    }

    /// Whether this is a graph, an executable one, or a node of one.
    pub(crate) fn has(&self, handle: usize) -> bool {
        self.executables.contains_key(&handle) || self.around(handle).is_some()
    }

    /// What a graph is made of.
    pub(crate) fn plan(&self, graph: usize) -> Option<&Plan> {
        self.graphs.get(&graph).map(|kept| &kept.of)
    }

    /// What a node of an executable graph does now; whether it is one.
    pub(crate) fn change_executable(&mut self, executable: usize, node: usize, work: Arc<Work>) -> bool {
        self.changes += 1;
        let Some(kept) = self.executables.get_mut(&executable) else { return false };
        kept.changed = self.changes;
        let Some(known) = kept.of.plan.work_of(node) else { return false };
        self.bytes = self.bytes - known.cost() + work.cost();
        *known = work;
        true
    }

    /// A graph is no more, or can't be kept; what it was, if it was kept.
    pub(crate) fn forget(&mut self, graph: usize) -> Option<Kept<Plan>> {
        self.changes += 1;
        let gone = self.graphs.remove(&graph)?;
        self.ended = self.changes;
        self.bytes -= gone.of.cost();
        self.homes.leave(graph, &gone.of);
        Some(gone)
    }

    /// The driver has not destroyed it.
    pub(crate) fn restore(&mut self, graph: usize, kept: Kept<Plan>) {
        self.changes += 1;
        self.homes.enter(graph, &kept.of);
        self.bytes += kept.of.cost();
        self.graphs.insert(graph, Kept { changed: self.changes, ..kept });
    }

    /// Keeps an executable graph; whether its graph is kept and there was room.
    pub(crate) fn instantiate(&mut self, executable: usize, of: usize, context: usize, flags: u64) -> bool {
        self.changes += 1;
        self.forget_executable(executable);
        let Some(plan) = self.plan(of).cloned() else { return false };
        let is_room = self.has_room(plan.cost());
        if is_room {
            let made = Executable { context, flags, of, plan, disabled: BTreeSet::new() };
            self.executables
                .insert(executable, Kept { number: self.number, made: self.changes, changed: self.changes, of: made });
            self.number += 1;
        }
        is_room
    }

    /// An executable graph was made to do what another graph does; whether that is kept.
    pub(crate) fn update(&mut self, executable: usize, by: usize) -> bool {
        self.changes += 1;
        let known = self.executables.get(&executable).map(|kept| &kept.of);
        let (Some(plan), Some(known)) = (self.plan(by).cloned(), known) else {
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
            let edge = |edge: Edge| Edge { from: name(edge.from), to: name(edge.to), data: edge.data };
            Plan { nodes: plan.nodes.iter().map(node).collect(), edges: plan.edges.iter().map(edge).collect() }
        } else {
            plan
        };
        self.bytes -= before;
        let is_room = self.has_room(renamed.cost());
        if is_room && let Some(kept) = self.executables.get_mut(&executable) {
            kept.changed = self.changes;
            (kept.of.plan, kept.of.of) = (renamed, of);
        } else {
            self.ended = self.changes;
            self.executables.remove(&executable);
        }
        is_room
    }

    /// A node of an executable graph was switched off or on.
    pub(crate) fn enable(&mut self, executable: usize, node: usize, is_enabled: bool) {
        self.changes += 1;
        if let Some(kept) = self.executables.get_mut(&executable) {
            kept.changed = self.changes;
            if is_enabled {
                kept.of.disabled.remove(&node);
            } else {
                kept.of.disabled.insert(node);
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
        let known = self.executables.get(&executable).and_then(|kept| kept.of.plan.nodes.get(node));
        let known = known.map(|node| &*node.work);
        match (work, known) {
            (Work::Launch(launch), Some(Work::Launch(before))) => {
                Work::Launch(Launch { attributes: before.attributes.clone(), ..launch })
            }
            (Work::Child { plan, .. }, Some(Work::Child { graph, .. })) => Work::Child { graph: *graph, plan },
            (work, _) => work,
        }
    }

    /// An executable graph is no more, or can't be kept; what it was, if it was kept.
    pub(crate) fn forget_executable(&mut self, executable: usize) -> Option<Kept<Executable>> {
        self.changes += 1;
        let gone = self.executables.remove(&executable)?;
        self.ended = self.changes;
        self.bytes -= gone.of.plan.cost();
        Some(gone)
    }

    /// The driver has not destroyed it.
    pub(crate) fn restore_executable(&mut self, executable: usize, kept: Kept<Executable>) {
        self.changes += 1;
        self.bytes += kept.of.plan.cost();
        self.executables.insert(executable, Kept { changed: self.changes, ..kept });
    }

    /// What all of them work with.
    pub(crate) fn names(&self) -> BTreeSet<usize> {
        let executables = self.executables.values().map(|kept| &kept.of.plan);
        self.graphs.values().map(|kept| &kept.of).chain(executables).flat_map(Plan::names).collect()
    }

    /// A context has ended with all of these. So has what is executed in it, or with them. A graph that works with any is
    /// nobody's: the program may still destroy it, so it stays, as one without nodes.
    pub(crate) fn forget_context(&mut self, context: usize, ended: &BTreeSet<usize>) {
        let is_over = |plan: &Plan| {
            let names = plan.names();
            names.contains(&context) || !names.is_disjoint(ended)
        };
        let executables = self.executables.iter();
        let over = executables.filter(|(_, kept)| kept.of.context == context || is_over(&kept.of.plan));
        for handle in over.map(|(handle, _)| *handle).collect::<Vec<_>>() {
            self.forget_executable(handle);
        }
        self.changes += 1;
        for (graph, kept) in self.graphs.iter_mut().filter(|(_, kept)| is_over(&kept.of)) {
            self.bytes -= kept.of.cost();
            self.homes.leave(*graph, &kept.of);
            (kept.of, kept.changed) = (Plan::default(), self.changes);
        }
    }

    /// How many graphs and executable graphs there are.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.graphs.len(), self.executables.len()].map(|count| u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Whether an executable graph has to do with any of these, by handle.
    pub(crate) fn do_any_name(&self, handles: &BTreeSet<usize>) -> bool {
        self.executables.values().any(|kept| !kept.of.plan.names().is_disjoint(handles))
    }

    /// All of them, in the order in which they were made.
    pub(crate) fn all(&self) -> All {
        let mut graphs: Vec<_> = self.graphs.iter().collect();
        graphs.sort_by_key(|(_, kept)| kept.number);
        let mut executables: Vec<_> = self.executables.iter().collect();
        executables.sort_by_key(|(_, kept)| kept.number);
        (
            graphs.into_iter().map(|(handle, kept)| (*handle, kept.of.clone())).collect(),
            executables.into_iter().map(|(handle, kept)| (*handle, kept.of.clone())).collect(),
        )
    }

    /// Everything has another handle now, and variables have other addresses.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize, moves: &Moves) {
        self.changes += 1;
        let changed = self.changes;
        let graphs = std::mem::take(&mut self.graphs).into_iter();
        self.graphs = graphs
            .map(|(graph, Kept { number, of, .. })| {
                (current(graph), Kept { number, made: changed, changed, of: of.renamed(&current).moved(moves) })
            })
            .collect();
        let executables = std::mem::take(&mut self.executables).into_iter();
        self.executables = executables
            .map(|(executable, Kept { number, of, .. })| {
                let renamed = Executable {
                    context: current(of.context),
                    flags: of.flags,
                    of: current(of.of),
                    plan: of.plan.renamed(&current).moved(moves),
                    disabled: of.disabled.iter().map(|node| current(*node)).collect(),
                };
                (current(executable), Kept { number, made: changed, changed, of: renamed })
            })
            .collect();
        self.homes = Homes::default();
        for (graph, kept) in &self.graphs {
            self.homes.enter(*graph, &kept.of);
        }
    }
}

#[cfg(test)]
mod tests;
