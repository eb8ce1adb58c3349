//! What a program makes besides memory, passed on and noted, so that it can be made again.
//!
//! Under `MPS_SHIM_KEEP=state` alone. Streams, events and what concerns contexts are here, code is in
//! [`code`](super::super::code).
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::{
    ffi::{c_int, c_uint, c_void},
    sync::{Mutex, PoisonError},
};

use super::recipes::{KINDS, Recipe, Recipes, Setting};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::{
            context::{cuCtxSetCacheConfig, cuCtxSetLimit},
            event::{cuEventCreate, cuEventDestroy_v2},
            host::{cuMemHostRegister_v2, cuMemHostUnregister},
            stream::{cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamSetAttribute},
        },
        result::CUresult,
        types::{CUevent, CUfunc_cache, CUlimit, CUstream, CUstreamAttrID, CUstreamAttrValue, Key as _},
    },
    kept::{
        account::{self, Reason},
        is_on,
        memory::{allocation::current, pinned::Pages},
    },
    process::settings,
};

static RECIPES: Mutex<Option<Recipes>> = Mutex::new(None);

/// Works on the recipes, if they are kept in this process.
pub(crate) fn with<T>(work: impl FnOnce(&mut Recipes) -> T) -> Result<T, Bypass> {
    if !settings::is_recording() || !is_on() {
        return Err(Bypass::NotKeeping);
    }
    // A panic while it was held has been answered by the driver; at worst a recipe is missing.
    let mut recipes = RECIPES.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(work(recipes.get_or_insert_default()))
}

/// Keeps the recipe of an object that `function` has made.
pub(crate) fn keep(function: &'static str, handle: usize, recipe: Recipe) -> Result<(), Bypass> {
    if !with(|recipes| recipes.keep(handle, recipe))? {
        account::made(function, Reason::Image, handle.key());
    }
    Ok(())
}

/// How many recipes there are of each kind, and bytes of images; none where they are not kept.
pub(crate) fn totals() -> ([u64; KINDS.len()], u64) {
    with(|recipes| recipes.totals()).unwrap_or_default()
}

/// The context that a stream was made in, if that is known.
pub(crate) fn stream_context(stream: usize) -> Option<usize> {
    with(|recipes| recipes.stream_context(stream)).ok()?
}

/// A context has ended, and everything in it.
pub(crate) fn forget_context(context: usize) {
    // Where no recipes are kept there is nothing to forget. Host memory ends with its context, as the driver's own does.
    for memory in with(|recipes| recipes.forget_context(context)).unwrap_or_default() {
        Pages::new(memory.start, memory.size).unmap();
    }
}

/// The current context: what is made now is made in it.
pub(crate) fn context() -> Result<usize, Bypass> {
    current().map(|(context, _)| context)
}

/// Logic of `cuStreamCreate`.
pub(crate) fn stream(
    driver: &mut Driver<cuStreamCreate::Signature>,
    stream: *mut CUstream,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(stream, flags) });
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *stream }.0;
        keep("cuStreamCreate", handle, Recipe::Stream { context: context()?, flags, priority: None })?;
    }
    Ok(answer)
}

/// Logic of `cuStreamCreateWithPriority`.
pub(crate) fn stream_with_priority(
    driver: &mut Driver<cuStreamCreateWithPriority::Signature>,
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(stream, flags, priority) });
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *stream }.0;
        let recipe = Recipe::Stream { context: context()?, flags, priority: Some(priority) };
        keep("cuStreamCreateWithPriority", handle, recipe)?;
    }
    Ok(answer)
}

/// Logic of `cuStreamDestroy`.
pub(crate) fn stream_ends(
    driver: &mut Driver<cuStreamDestroy_v2::Signature>,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's argument.
    destroyed(stream.0, || driver.call(|function| unsafe { function(stream) }))
}

/// Logic of `cuEventCreate`.
pub(crate) fn event(
    driver: &mut Driver<cuEventCreate::Signature>,
    event: *mut CUevent,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(event, flags) });
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *event }.0;
        keep("cuEventCreate", handle, Recipe::Event { context: context()?, flags })?;
    }
    Ok(answer)
}

/// Logic of `cuEventDestroy`.
pub(crate) fn event_ends(
    driver: &mut Driver<cuEventDestroy_v2::Signature>,
    event: CUevent,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's argument.
    destroyed(event.0, || driver.call(|function| unsafe { function(event) }))
}

/// Logic of `cuMemHostRegister`. The memory itself is the program's and stays; its address is its handle.
pub(crate) fn host_range(
    driver: &mut Driver<cuMemHostRegister_v2::Signature>,
    start: *mut c_void,
    size: usize,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(start, size, flags) });
    if answer.is_success() {
        keep("cuMemHostRegister", start.addr(), Recipe::HostRange { context: context()?, size, flags })?;
    }
    Ok(answer)
}

/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
const NOT_REGISTERED: CUresult = CUresult(713);

/// Logic of `cuMemHostUnregister`. What a program has allocated it has not registered.
pub(crate) fn host_range_ends(
    driver: &mut Driver<cuMemHostUnregister::Signature>,
    start: *mut c_void,
) -> Result<CUresult, Bypass> {
    if with(|recipes| recipes.host_memory(start.addr()))?.is_some() {
        return Ok(NOT_REGISTERED);
    }
    // SAFETY: the program's call with the program's argument.
    destroyed(start.addr(), || driver.call(|function| unsafe { function(start) }))
}

/// Forgets an object that the driver is asked to destroy, if it does.
///
/// Forgotten afterwards, a handle that another thread has been given meanwhile would be forgotten with it; so that is
/// done first, and undone if the driver refuses.
pub(crate) fn destroyed(handle: usize, destroy: impl FnOnce() -> CUresult) -> Result<CUresult, Bypass> {
    let taken = with(|recipes| recipes.take(handle))?;
    let answer = destroy();
    if answer.is_success() {
        account::gone(handle.key());
    } else {
        with(|recipes| recipes.put_back(taken))?;
    }
    Ok(answer)
}

/// Logic of `cuCtxSetLimit`.
pub(crate) fn limit(
    driver: &mut Driver<cuCtxSetLimit::Signature>,
    limit: CUlimit,
    value: usize,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(limit, value) });
    if answer.is_success() {
        let context = context()?;
        with(|recipes| recipes.set(context, Setting::Limit(limit), value.key()))?;
    }
    Ok(answer)
}

/// Words of what a stream's attribute can be.
const ATTRIBUTE_WORDS: u8 = 8;

/// Logic of `cuStreamSetAttribute`.
pub(crate) fn stream_attribute(
    driver: &mut Driver<cuStreamSetAttribute::Signature>,
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *const CUstreamAttrValue,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's arguments.
    let answer = driver.call(|function| unsafe { function(stream, attribute, value) });
    if answer.is_success() && !value.is_null() {
        for word in 0..ATTRIBUTE_WORDS {
            // SAFETY: a value has so many words, in whichever way they are used.
            let read = unsafe { value.cast::<u64>().wrapping_add(usize::from(word)).read_unaligned() };
            with(|recipes| recipes.set(stream.0, Setting::StreamAttribute(attribute, word), read))?;
        }
    }
    Ok(answer)
}

/// Logic of `cuCtxSetCacheConfig`.
pub(crate) fn context_cache(
    driver: &mut Driver<cuCtxSetCacheConfig::Signature>,
    preference: CUfunc_cache,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program's call with the program's argument.
    let answer = driver.call(|function| unsafe { function(preference) });
    if answer.is_success() {
        let context = context()?;
        with(|recipes| recipes.set(context, Setting::Cache(None), preference.into()))?;
    }
    Ok(answer)
}
