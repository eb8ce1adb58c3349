//! Streams with their captures, events, and what is set on streams, contexts and addresses: passed on and noted, so that
//! all of it can be made again.
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

pub(crate) mod callbacks;
pub(crate) mod ids;
mod last;

use std::ffi::{c_int, c_uint};

use super::{
    account::{self, Reason},
    code::stacks,
    graphs, memory,
    objects::{
        begin_capture,
        current::{context, of_streams},
        end_captures, ends, has_capture, keep, objects, recipes,
        recipes::{Recipe, Setting},
    },
    shared,
    work::progress,
};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        errors,
        functions::{
            Function,
            stream::{cuStreamDestroy_v2, cuStreamEndCapture, cuThreadExchangeStreamCaptureMode},
        },
        names,
        result::CUresult,
        threads,
        types::{
            CUdeviceptr, CUevent, CUfunc_cache, CUgraph, CUlimit, CUpointer_attribute, CUstream, CUstreamAttrID,
            CUstreamAttrValue, CUstreamCaptureMode, Key as _, c_void,
        },
    },
    process::settings,
};

pub(crate) use last::last_of;

/// A stream was made.
pub(crate) fn stream(stream: CUstream, flags: c_uint, priority: Option<c_int>) -> Result<(), Bypass> {
    progress::made_stream(names::name_of(stream.0));
    memory(|memory| memory.slabs.pending.order_ends(names::name_of(stream.0)))?;
    keep("cuStreamCreate", stream.0, Recipe::Stream { context: of_streams()?, flags, priority })
}

/// After a call that gives a stream a function of the host. In a capture, of this stream or of one that it has joined, it
/// is a node of a graph.
pub(crate) fn gave_function(stream: CUstream) -> Result<(), Bypass> {
    let mut status = 0;
    let is_captured =
        has_capture() && !(driver!(stream::cuStreamIsCapturing(stream, &raw mut status)).is_success() && status == 0);
    if !is_captured {
        progress::gives_function(names::name_of(stream.0));
    }
    Ok(())
}

/// After `cuEventCreate`.
pub(crate) fn event(event: CUevent, flags: c_uint) -> Result<(), Bypass> {
    progress::made_event(names::name_of(event.0));
    shared::made(event.0, flags);
    keep("cuEventCreate", event.0, Recipe::Event { context: context()?, flags })
}

/// After `cuCtxSetLimit`.
pub(crate) fn limit(limit: CUlimit, value: usize) -> Result<(), Bypass> {
    stacks::is_set(limit);
    let context = context()?;
    recipes(|recipes| recipes.set(context, Setting::Limit(limit), value.key()))
}

/// Words of what a stream's attribute can be.
const ATTRIBUTE_WORDS: u8 = 8;

/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// What a stream's attributes are noted by: its handle, and that of the context for its default stream. One that a
/// thread has for itself can be set by that thread alone, so it is counted as not recoverable.
fn object_of(function: &Function, stream: CUstream) -> Result<Option<usize>, Bypass> {
    match stream.0 {
        PER_THREAD => {}
        0 if function.is_per_thread() => {}
        0 | LEGACY => return context().map(Some),
        handle => return Ok(Some(handle)),
    }
    account::counted(function.text(), Reason::StreamOfAThread, PER_THREAD.key());
    Ok(None)
}

/// After `cuStreamCopyAttributes`.
pub(crate) fn copied_attributes(function: &Function, to: CUstream, from: CUstream) -> Result<(), Bypass> {
    if let (Some(to), Some(from)) = (object_of(function, to)?, object_of(function, from)?) {
        recipes(|recipes| recipes.copy_attributes(to, from))?;
    }
    Ok(())
}

/// After `cuStreamSetAttribute`.
pub(crate) fn stream_attribute(
    function: &Function,
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *const CUstreamAttrValue,
) -> Result<(), Bypass> {
    if let Some(object) = object_of(function, stream)?
        && !value.is_null()
    {
        for word in 0..ATTRIBUTE_WORDS {
            // SAFETY: a value has so many words, in whichever way they are used.
            let read = unsafe { value.cast::<u64>().wrapping_add(usize::from(word)).read_unaligned() };
            recipes(|recipes| recipes.set(object, Setting::StreamAttribute(attribute, word), read))?;
        }
    }
    Ok(())
}

/// After `cuCtxSetCacheConfig`.
pub(crate) fn context_cache(preference: CUfunc_cache) -> Result<(), Bypass> {
    let context = context()?;
    recipes(|recipes| recipes.set(context, Setting::Cache(None), preference.into()))
}

/// After `cuPointerSetAttribute`: set again where the memory is still there.
pub(crate) fn pointer_attribute(
    value: *const c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result<(), Bypass> {
    let context = context()?;
    // SAFETY: the one attribute that can be set is a truth value of 32 bits, which the driver has just read.
    let word = unsafe { value.cast::<u32>().read_unaligned() };
    recipes(|recipes| recipes.set(context, Setting::PointerAttribute(attribute, address), word.into()))
}

/// A stream is being captured.
pub(crate) fn begun(stream: CUstream) -> Result<(), Bypass> {
    begin_capture(progress::captured(stream), context_of(stream))
}

/// The context that a stream is of, as far as that is known here: a thread's default stream is of the current one, and so
/// nearly always is another one. The driver is not asked about a stream that is being captured.
fn context_of(stream: CUstream) -> usize {
    let known = recipes(|recipes| recipes.stream_context(stream.0)).ok().flatten();
    known.or_else(|| context().ok()).unwrap_or(0)
}

/// Logic of `cuThreadExchangeStreamCaptureMode`: what the program has exchanged is the thread's in each later copy, too.
pub(crate) fn exchange_mode(
    driver: &mut Driver<cuThreadExchangeStreamCaptureMode::Signature>,
    mode: *mut CUstreamCaptureMode,
) -> Result<CUresult, Bypass> {
    if mode.is_null() {
        return Err(Bypass::ForTheDriver);
    }
    // SAFETY: the driver reads it there, too, before it writes what the mode was.
    let wanted = unsafe { mode.read_unaligned() };
    let answer = driver.pass();
    if answer.is_success() {
        threads::set_capture_mode(wanted);
    }
    Ok(answer)
}

/// Logic of `cuStreamDestroy`, which ends a capture too.
pub(crate) fn end_stream(
    driver: &mut Driver<cuStreamDestroy_v2::Signature>,
    stream: CUstream,
) -> Result<CUresult, Bypass> {
    // Before another one can have its handle.
    memory(|memory| memory.slabs.pending.order_ends(names::name_of(stream.0)))?;
    let answer = ends(driver, stream)?;
    if answer.is_success() {
        objects(|objects| objects.ids.forget_stream(names::name_of(stream.0)))?;
        end_capture_of(stream)?;
    }
    Ok(answer)
}

fn end_capture_of(stream: CUstream) -> Result<(), Bypass> {
    if !has_capture() {
        return Ok(());
    }
    let ended = progress::captured(stream);
    last::is_over(ended);
    end_captures(|stream, _| stream == ended)
}

/// Whether a capture goes on though its end was asked for and has had this answer: it was another thread that asked, or
/// there is no place for the graph. One that was broken, or not joined, ends with an error. The driver is asked which it
/// is, as it may be about a stream that is being captured; the context's own death ends the capture, too.
fn goes_on(stream: CUstream, answer: CUresult) -> bool {
    if answer.is_success() || errors::meaning(answer).is_some() {
        return false;
    }
    // The other default stream cannot be captured.
    let stream = if stream.0 == 0 { CUstream(PER_THREAD) } else { stream };
    let mut status = 0;
    match driver!(stream::cuStreamIsCapturing(stream, &raw mut status)) {
        CUresult::CUDA_SUCCESS => status != 0,
        _ => matches!(answer, CUresult::CUDA_ERROR_INVALID_VALUE | CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
    }
}

/// Logic of `cuStreamEndCapture`.
pub(crate) fn end_capture(
    driver: &mut Driver<cuStreamEndCapture::Signature>,
    stream: CUstream,
    graph: *mut CUgraph,
) -> Result<CUresult, Bypass> {
    let answer = driver.pass();
    if has_capture() && !goes_on(stream, answer) {
        end_capture_of(stream)?;
    }
    if answer.is_success() && !graph.is_null() && settings::is_recording() {
        // SAFETY: the driver has just written there.
        graphs::made("cuStreamEndCapture", unsafe { *graph })?;
    }
    Ok(answer)
}
