//! What was set on a spare copy's objects, and its graphs: put there beside the program's way, so that a program that goes
//! on with the copy has them at once.
//!
//! A setting is made again where it has another value, or its object is another one. A graph is built again where it
//! does something else, or something that it works with is another one. What can't be undone makes its object anew.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    graphs::{self, Graphs},
    memory::{Failed, Renamed, checked},
    objects::Objects,
    set_again,
};
use crate::{
    cuda::{
        result::CUresult,
        types::{CUgraph, CUgraphExec},
    },
    kept::{
        code::stacks::STACK_SIZE,
        graphs::plan::{Executable, Plan},
        objects::recipes::Setting,
    },
};

/// Numbers of objects by the program's handles. What has none is a context.
pub(super) type Numbers = BTreeMap<usize, u64>;

/// What a graph works with: handles, and the numbers of these.
type With = Vec<(usize, Option<u64>)>;

fn with(names: BTreeSet<usize>, numbers: &Numbers) -> With {
    names.into_iter().map(|name| (name, numbers.get(&name).copied())).collect()
}

/// What was set, with the number of its object.
#[derive(Debug, Default)]
pub(super) struct Settings(BTreeMap<(usize, Setting), (Option<u64>, u64)>);

impl Settings {
    /// Streams that have attributes which the program's have no longer.
    ///
    /// # Errors
    /// A context has, or its default stream: the program has reset it, and nothing takes them back.
    pub(super) fn lost(&self, wanted: &Objects) -> Result<BTreeSet<usize>, Failed> {
        let there: BTreeSet<(usize, Setting)> =
            wanted.settings.iter().map(|(of, setting, _)| (*of, *setting)).collect();
        let lost = self.0.iter().filter(|(key, _)| !there.contains(*key));
        let streams = lost.filter_map(|((of, setting), (number, _))| match (setting, number) {
            (Setting::StreamAttribute(..), Some(_)) => Some(Ok(*of)),
            (Setting::StreamAttribute(..) | Setting::Limit(_) | Setting::Cache(None), None) => {
                let call = "a look at the same settings of a context";
                Some(Err(Failed { call, answer: CUresult::CUDA_ERROR_NOT_SUPPORTED }))
            }
            // They went with an object, or with memory.
            _ => None,
        });
        streams.collect()
    }

    /// What was set on addresses is gone where something else is mapped there.
    pub(super) fn memory_has_changed(&mut self) {
        self.0.retain(|(_, setting), _| !matches!(setting, Setting::PointerAttribute(..)));
    }

    /// Sets what is not as it is wanted, but the limit of stacks as long as these are `small`; how many things.
    pub(super) fn follow(
        &mut self,
        wanted: &Objects,
        numbers: &Numbers,
        renamed: &Renamed,
        are_stacks_small: bool,
    ) -> Result<u64, Failed> {
        let is_now = |setting: &Setting| !are_stacks_small || *setting != Setting::Limit(STACK_SIZE);
        let all = || wanted.settings.iter().filter(|(of, setting, _)| is_now(setting) && renamed.contains_key(of));
        let is_so = |(of, setting, value): &&(usize, Setting, u64)| {
            self.0.get(&(*of, *setting)) == Some(&(numbers.get(of).copied(), *value))
        };
        let other: BTreeSet<(usize, Setting)> =
            all().filter(|of| !is_so(of)).map(|(of, set, _)| (*of, first(*set))).collect();
        let due: Vec<_> = all().filter(|(of, setting, _)| other.contains(&(*of, first(*setting)))).copied().collect();
        set_again::apply(&due, &wanted.recipes, renamed, &wanted.moves(renamed, |address| address))?;
        self.0 = all().map(|(of, set, value)| ((*of, *set), (numbers.get(of).copied(), *value))).collect();
        Ok(u64::try_from(due.len()).unwrap_or(u64::MAX))
    }
}

/// The words of an attribute are set together.
fn first(setting: Setting) -> Setting {
    if let Setting::StreamAttribute(attribute, _) = setting { Setting::StreamAttribute(attribute, 0) } else { setting }
}

/// A graph that was built.
#[derive(Debug)]
struct Built {
    plan: Plan,
    with: With,
    handle: usize,
    /// Its nodes, and graphs that it embeds.
    parts: Renamed,
    /// No other one has it, or had.
    number: u64,
}

/// An executable graph that was made.
#[derive(Debug)]
struct Made {
    executable: Executable,
    with: With,
    /// The number of its graph.
    of: Option<u64>,
    handle: usize,
}

/// The copy's graphs and executable graphs, by the program's handles.
#[derive(Debug, Default)]
pub(super) struct Settled {
    graphs: BTreeMap<usize, Built>,
    executables: BTreeMap<usize, Made>,
    number: u64,
}

impl Settled {
    /// Makes those that are wanted, with variables at the copy's addresses, and ends the others; how many things were
    /// otherwise. It leaves new ones, graphs that are changing, and what is executed of these, and the rest where `is_enough` says so.
    pub(super) fn follow(
        &mut self,
        wanted: &Graphs,
        numbers: &Numbers,
        renamed: &Renamed,
        (changing, is_enough): (&BTreeSet<usize>, fn() -> bool),
    ) -> Result<u64, Failed> {
        let mut count = 0;
        let plans: BTreeMap<usize, &Plan> = wanted.graphs.iter().map(|(handle, plan)| (*handle, plan)).collect();
        let wanted_executables: BTreeMap<usize, &Executable> =
            wanted.executables.iter().map(|(handle, of)| (*handle, of)).collect();
        let is_other = |handle: &usize, of: &Built| {
            plans.get(handle).is_none_or(|plan| **plan != of.plan || with(plan.names(), numbers) != of.with)
        };
        let gone: Vec<Built> =
            self.graphs.extract_if(.., |handle, of| is_other(handle, of)).map(|(_, of)| of).collect();
        count += self.alter(&wanted_executables, &plans, numbers, renamed)?;
        let number_of = |graphs: &BTreeMap<usize, Built>, of: &Executable| graphs.get(&of.of).map(|of| of.number);
        let is_other = |handle: &usize, of: &Made| {
            let is_same = |wanted: &&Executable| {
                **wanted == of.executable
                    && number_of(&self.graphs, wanted) == of.of
                    && with(names_of(wanted), numbers) == of.with
            };
            !wanted_executables.get(handle).is_some_and(is_same)
        };
        let ended: Vec<Made> =
            self.executables.extract_if(.., |handle, of| is_other(handle, of)).map(|(_, of)| of).collect();
        for of in ended {
            checked("cuGraphExecDestroy", driver!(graph::cuGraphExecDestroy(CUgraphExec(of.handle))))?;
            count += 1;
        }
        for of in gone {
            checked("cuGraphDestroy", driver!(graph::cuGraphDestroy(CUgraph(of.handle))))?;
            count += 1;
        }
        let missing = |(handle, _): &&(usize, Plan)| !self.graphs.contains_key(handle) && !changing.contains(handle);
        for (handle, plan) in wanted.graphs.iter().filter(missing).collect::<Vec<_>>() {
            if is_enough() {
                return Ok(count);
            }
            let mut with_parts = renamed.clone();
            let built = graphs::build(plan, &mut with_parts)?;
            with_parts.retain(|name, now| renamed.get(name) != Some(now));
            let (plan, with) = (plan.clone(), with(plan.names(), numbers));
            self.graphs.insert(*handle, Built { plan, with, handle: built.0, parts: with_parts, number: self.number });
            self.number += 1;
            count += 1;
        }
        let is_changing = |handle: &usize, of: &Executable| changing.contains(handle) || changing.contains(&of.of);
        let missing =
            |(handle, of): &&(usize, Executable)| !self.executables.contains_key(handle) && !is_changing(handle, of);
        let due: Vec<_> = wanted.executables.iter().filter(missing).collect();
        if due.is_empty() {
            return Ok(count);
        }
        let mut all = renamed.clone();
        self.name(&mut all);
        for (handle, executable) in due {
            if is_enough() {
                break;
            }
            let made = graphs::execute(executable, plans.get(&executable.of).copied(), &all)?;
            let (of, with) = (number_of(&self.graphs, executable), with(names_of(executable), numbers));
            self.executables.insert(*handle, Made { executable: executable.clone(), with, of, handle: made.0 });
            count += 1;
        }
        Ok(count)
    }

    /// Has executable graphs of graphs that have stayed do what they are to do by now, where the driver does that in place, which
    /// takes microseconds and not milliseconds; how many.
    fn alter(
        &mut self,
        wanted: &BTreeMap<usize, &Executable>,
        plans: &BTreeMap<usize, &Plan>,
        numbers: &Numbers,
        renamed: &Renamed,
    ) -> Result<u64, Failed> {
        let mut all = None;
        let mut count = 0;
        for (handle, executable) in wanted {
            let known = self.executables.get(handle).filter(|known| known.executable != **executable);
            let graph = self.graphs.get(&executable.of);
            let (Some(known), Some(graph), Some(plan)) = (known, graph, plans.get(&executable.of)) else { continue };
            let are_there = known.with.iter().all(|(name, number)| numbers.get(name) == number.as_ref());
            if known.of != Some(graph.number) || !are_there {
                continue;
            }
            let made = CUgraphExec(known.handle);
            let names = all.get_or_insert_with(|| {
                let mut all = renamed.clone();
                self.name(&mut all);
                all
            });
            if graphs::alter(made, &known.executable, executable, plan, names)?
                && let Some(known) = self.executables.get_mut(handle)
            {
                (known.executable, known.with) = ((*executable).clone(), with(names_of(executable), numbers));
                count += 1;
            }
        }
        Ok(count)
    }

    /// What they and their parts are called in the copy.
    pub(super) fn name(&self, renamed: &mut Renamed) {
        for (handle, of) in &self.graphs {
            renamed.extend(of.parts.iter().map(|(name, now)| (*name, *now)));
            renamed.insert(*handle, of.handle);
        }
        renamed.extend(self.executables.iter().map(|(handle, of)| (*handle, of.handle)));
    }
}

/// What an executable graph works with.
fn names_of(executable: &Executable) -> BTreeSet<usize> {
    let mut names = executable.plan.names();
    names.insert(executable.context);
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Objects, Setting, Settings};
    use crate::recovery::graphs::Graphs;

    const CONTEXT: usize = 0xc0;
    const STREAM: usize = 0xe0;

    fn wanted(settings: Vec<(usize, Setting, u64)>) -> Objects {
        let (recipes, numbers, written) = (Vec::new(), Vec::new(), Vec::new());
        Objects { recipes, numbers, settings, written, still: None, still_number: 0, graphs: Graphs::default() }
    }

    /// What of these the program has no longer, if the copy can be without.
    fn lost(settings: &[(usize, Setting)]) -> Option<BTreeSet<usize>> {
        let number = |of: usize| (of != CONTEXT).then_some(7);
        let known = settings.iter().map(|(of, setting)| ((*of, *setting), (number(*of), 1))).collect();
        Settings(known).lost(&wanted(Vec::new())).ok()
    }

    #[test]
    fn a_context_that_was_reset_has_none_of_its_settings_and_the_copy_that_has_them_is_of_no_use() {
        for setting in [Setting::Limit(1), Setting::Cache(None), Setting::StreamAttribute(1, 0)] {
            assert_eq!(lost(&[(CONTEXT, setting)]), None, "{setting:?}");
        }
        let elsewhere = [Setting::Cache(None), Setting::PoolAttribute(4), Setting::Attribute(8, None)];
        assert_eq!(lost(&elsewhere.map(|of| (STREAM, of))), Some(BTreeSet::new()), "it went with its object");
        assert_eq!(lost(&[(CONTEXT, Setting::PointerAttribute(6, 1))]), Some(BTreeSet::new()), "it went with memory");
        assert_eq!(lost(&[(STREAM, Setting::StreamAttribute(1, 0))]), Some(BTreeSet::from([STREAM])));
        let known = Settings([((CONTEXT, Setting::Limit(1)), (None, 1))].into());
        assert!(known.lost(&wanted(vec![(CONTEXT, Setting::Limit(1), 2)])).is_ok_and(|lost| lost.is_empty()));
    }
}
