//! Which stream a call means, by name, and of which context that is.

use crate::{
    cuda::{
        names,
        types::{CUcontext, CUstream},
    },
    kept::{
        objects::recipes,
        work::{
            places::{self, LEGACY},
            thread_streams,
        },
    },
};

/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const LEGACY_STREAM: usize = 1;
pub(super) const PER_THREAD_STREAM: usize = 2;

/// The name of the stream that a call means.
pub(super) fn key(stream: usize, is_per_thread: bool, context: usize) -> usize {
    match stream {
        0 if is_per_thread => thread_streams::name(context),
        0 | LEGACY_STREAM => context | LEGACY,
        PER_THREAD_STREAM => thread_streams::name(context),
        name => name,
    }
}

/// The context that a stream is of, by name; 0 if that is not known.
pub(super) fn context_of(name: usize, current: usize) -> usize {
    if name & (LEGACY | places::PER_THREAD) != 0 {
        return current;
    }
    let known = recipes(|recipes| recipes.stream_context(names::current_of(name)));
    known.ok().flatten().map_or(0, names::name_of)
}

/// The current context by name, of a thread of which we have not noted any.
#[cold]
#[expect(unsafe_code, reason = "calls the driver")]
pub(super) fn asked() -> usize {
    let mut context = CUcontext(0);
    let answer = driver!(context::cuCtxGetCurrent(&raw mut context));
    if answer.is_success() { names::name_of(context.0) } else { 0 }
}

/// The name of a stream, and that of its context, as far as it is known: where it is not, the current one's, `current`.
pub(crate) fn named(stream: CUstream, is_per_thread: bool, current: usize) -> (usize, usize) {
    let name = key(names::name_of(stream.0), is_per_thread, current);
    let context = context_of(name, current);
    (name, if context == 0 { current } else { context })
}

/// What a capture of this stream is called: a thread's default stream has no handle.
pub(crate) fn captured(stream: CUstream) -> usize {
    if matches!(stream.0, 0 | PER_THREAD_STREAM) { thread_streams::name(0) } else { stream.0 }
}
