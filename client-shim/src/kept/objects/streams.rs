//! Streams and events, and what is set on streams and contexts: passed on and noted, so that all of it can be made again.
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::ffi::{c_int, c_uint};

use super::{
    current::context,
    destroyed, keep,
    recipes::{Recipe, Setting},
};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::{
            context::{cuCtxSetCacheConfig, cuCtxSetLimit},
            event::{cuEventCreate, cuEventDestroy_v2},
            stream::{cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamSetAttribute},
        },
        result::CUresult,
        types::{CUevent, CUfunc_cache, CUlimit, CUstream, CUstreamAttrID, CUstreamAttrValue, Key as _},
    },
    kept::recipes,
};

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
        recipes(|recipes| recipes.set(context, Setting::Limit(limit), value.key()))?;
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
            recipes(|recipes| recipes.set(stream.0, Setting::StreamAttribute(attribute, word), read))?;
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
        recipes(|recipes| recipes.set(context, Setting::Cache(None), preference.into()))?;
    }
    Ok(answer)
}
