//! Streams and events, and what is set on streams and contexts: passed on and noted, so that all of it can be made again.
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::ffi::{c_int, c_uint};

use super::{
    current::context,
    keep,
    recipes::{Recipe, Setting},
};
use crate::{
    cuda::{
        call::Bypass,
        names,
        types::{CUevent, CUfunc_cache, CUlimit, CUstream, CUstreamAttrID, CUstreamAttrValue, Key as _},
    },
    kept::{recipes, work::progress},
};

/// A stream was made.
pub(crate) fn stream(stream: CUstream, flags: c_uint, priority: Option<c_int>) -> Result<(), Bypass> {
    progress::made_stream(names::name_of(stream.0));
    keep("cuStreamCreate", stream.0, Recipe::Stream { context: context()?, flags, priority })
}

/// After `cuEventCreate`.
pub(crate) fn event(event: CUevent, flags: c_uint) -> Result<(), Bypass> {
    progress::made_event(names::name_of(event.0));
    keep("cuEventCreate", event.0, Recipe::Event { context: context()?, flags })
}

/// After `cuCtxSetLimit`.
pub(crate) fn limit(limit: CUlimit, value: usize) -> Result<(), Bypass> {
    let context = context()?;
    recipes(|recipes| recipes.set(context, Setting::Limit(limit), value.key()))
}

/// Words of what a stream's attribute can be.
const ATTRIBUTE_WORDS: u8 = 8;

/// After `cuStreamSetAttribute`.
pub(crate) fn stream_attribute(
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *const CUstreamAttrValue,
) -> Result<(), Bypass> {
    if !value.is_null() {
        for word in 0..ATTRIBUTE_WORDS {
            // SAFETY: a value has so many words, in whichever way they are used.
            let read = unsafe { value.cast::<u64>().wrapping_add(usize::from(word)).read_unaligned() };
            recipes(|recipes| recipes.set(stream.0, Setting::StreamAttribute(attribute, word), read))?;
        }
    }
    Ok(())
}

/// After `cuCtxSetCacheConfig`.
pub(crate) fn context_cache(preference: CUfunc_cache) -> Result<(), Bypass> {
    let context = context()?;
    recipes(|recipes| recipes.set(context, Setting::Cache(None), preference.into()))
}
