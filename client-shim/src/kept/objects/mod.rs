//! Objects of the driver's besides memory, and how everything is made again: by recipes. Which context is current, and
//! which streams are being captured, is known here too, since everything that is made is made in a context.

pub(crate) mod contents;
pub(crate) mod current;
pub(crate) mod ids;
pub(crate) mod primary;
pub(crate) mod recipes;
pub(crate) mod still;
pub(crate) mod textures;
mod written;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{
    account::{self, Reason},
    keeping::{Room, is_on},
};
use crate::cuda::{
    call::{Bypass, Driver},
    result::CUresult,
    types::Key,
};
use crate::process::settings;
use primary::Contexts;
use recipes::{Recipe, Recipes};

/// What is known of objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The contexts that something was made in.
    pub(crate) contexts: Contexts,
    /// Streams on which a capture has begun, by handle or by name of a thread's default stream, with their contexts: 0 where
    /// none is known.
    pub(crate) captures: BTreeMap<usize, usize>,
    /// What the program was told of the numbers of contexts and streams.
    pub(crate) ids: ids::Ids,
    /// How to make all else again.
    pub(crate) recipes: Recipes,
}

static OBJECTS: Room<Objects> = Room::new();
/// Streams that are being captured.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// Works on what is known of contexts and captures.
pub(crate) fn objects<T>(work: impl FnOnce(&mut Objects) -> T) -> Result<T, Bypass> {
    if is_on() { Ok(OBJECTS.with(work)) } else { Err(Bypass::NotKeeping) }
}

/// Works on the recipes, if more is kept than memory.
pub(crate) fn recipes<T>(work: impl FnOnce(&mut Recipes) -> T) -> Result<T, Bypass> {
    if settings::is_recording() { objects(|objects| work(&mut objects.recipes)) } else { Err(Bypass::NotKeeping) }
}

/// A capture of a stream of this context has begun.
pub(super) fn begin_capture(stream: usize, context: usize) -> Result<(), Bypass> {
    change_captures(|captures| {
        captures.insert(stream, context);
    })
}

/// The captures have ended of which this is said, by stream and context.
pub(super) fn end_captures(have_ended: impl Fn(usize, usize) -> bool) -> Result<(), Bypass> {
    if !has_capture() {
        return Ok(());
    }
    change_captures(|captures| captures.retain(|stream, context| !have_ended(*stream, *context)))
}

fn change_captures(change: impl FnOnce(&mut BTreeMap<usize, usize>)) -> Result<(), Bypass> {
    objects(|objects| {
        change(&mut objects.captures);
        CAPTURES.store(objects.captures.len(), Ordering::Release);
    })
}

/// Whether a stream is being captured, without a lock.
pub(super) fn has_capture() -> bool {
    CAPTURES.load(Ordering::Acquire) > 0
}

/// Whether a stream is being captured.
pub(crate) fn is_capturing() -> Result<bool, Bypass> {
    objects(|objects| !objects.captures.is_empty())
}

/// Keeps the recipe of an object that `function` has made.
pub(crate) fn keep(function: &'static str, handle: usize, recipe: Recipe) -> Result<(), Bypass> {
    if !recipes(|recipes| recipes.keep(handle, recipe))? {
        account::made(function, Reason::Image, handle.key());
    }
    Ok(())
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
