//! Objects of the driver's besides memory: contexts, streams, events, and how everything is made again.

pub(crate) mod contexts;
pub(crate) mod current;
pub(crate) mod primary;
pub(crate) mod recipes;
pub(crate) mod streams;

use std::collections::BTreeSet;

use super::{
    account::{self, Reason},
    graphs,
    memory::pinned::Pages,
    recipes,
};
use crate::cuda::{
    call::{Bypass, Driver},
    result::CUresult,
    types::Key,
};
use primary::Contexts;
use recipes::{KINDS, Recipe, Recipes};

/// What is known of objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The contexts that something was made in.
    pub(crate) contexts: Contexts,
    /// Streams on which a capture has begun, by handle or by name of a thread's default stream.
    pub(crate) captures: BTreeSet<usize>,
    /// How to make all else again.
    pub(crate) recipes: Recipes,
}

/// Keeps the recipe of an object that `function` has made.
pub(crate) fn keep(function: &'static str, handle: usize, recipe: Recipe) -> Result<(), Bypass> {
    if !recipes(|recipes| recipes.keep(handle, recipe))? {
        account::made(function, Reason::Image, handle.key());
    }
    Ok(())
}

/// How many recipes there are of each kind, and bytes of images; none where they are not kept.
pub(super) fn totals() -> ([u64; KINDS.len()], u64) {
    let (mut counts, bytes) = recipes(|recipes| recipes.totals()).unwrap_or_default();
    let [.., of_graphs, of_executables] = &mut counts;
    [*of_graphs, *of_executables] = graphs(|graphs| graphs.counts()).unwrap_or_default();
    (counts, bytes)
}

/// A context has ended, and everything in it.
fn forget_context(context: usize) {
    // Where no recipes are kept there is nothing to forget. Host memory ends with its context, as the driver's own does.
    for memory in recipes(|recipes| recipes.forget_context(context)).unwrap_or_default() {
        Pages::new(memory.start, memory.size).unmap();
    }
    let _nothing = graphs(|graphs| graphs.forget_context(context));
}

/// Logic of what destroys an object by its handle.
pub(crate) fn ends<F: Copy>(driver: &mut Driver<F>, object: impl Key) -> Result<CUresult, Bypass> {
    let handle = usize::try_from(object.key()).map_err(|_| Bypass::ForTheDriver)?;
    destroyed(handle, || driver.pass())
}

/// Forgets an object that the driver is asked to destroy, if it does.
///
/// Forgotten afterwards, a handle that another thread has been given meanwhile would be forgotten with it; so that is
/// done first, and undone if the driver refuses.
pub(crate) fn destroyed(handle: usize, destroy: impl FnOnce() -> CUresult) -> Result<CUresult, Bypass> {
    let taken = recipes(|recipes| recipes.take(handle))?;
    let answer = destroy();
    if answer.is_success() {
        account::gone(handle.key());
    } else {
        recipes(|recipes| recipes.put_back(taken))?;
    }
    Ok(answer)
}
