//! Functions of the host that streams were given, and what becomes of them when the work before them is lost.
#![expect(unsafe_code, reason = "calls the driver")]

use super::super::failed;
use super::telling::twice;
use super::{Actor, BETWEEN_LOOKS, Given, PATIENCE, Stage, code, current, stream};
use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::check;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

extern "C" fn nothing(_: *mut c_void) {}

fn gives(stream: sys::CUstream) -> Result<(), GpuError> {
    // SAFETY: the function takes anything.
    check("cuLaunchHostFunc", unsafe { sys::cuLaunchHostFunc(stream, Some(nothing), null_mut()) })
}

/// What this thread hears of two questions for a stream's state.
fn asks(stream: sys::CUstream) -> Value {
    // SAFETY: it is ours.
    json!([0; 2].map(|_: i32| code(unsafe { sys::cuStreamQuery(stream) })))
}

fn finish(stream: sys::CUstream) -> Result<(), GpuError> {
    // SAFETY: it is ours.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })
}

/// Streams with functions of the host behind lost work, one without, and one whose function has run: what each answers twice to
/// questions of this thread, which was told before. It waits for the third one, and so does one that was there for the second.
pub(super) fn lost(stage: &Stage) -> Result<Value, GpuError> {
    let [first, second, third] = [stream(1)?, stream(1)?, stream(1)?];
    let [without, done] = [stream(1)?, stream(1)?];
    gives(done)?;
    finish(done)?;
    [first, second, third, without, done].into_iter().try_for_each(|lost| stage.leave(lost))?;
    [first, second, third].into_iter().try_for_each(gives)?;
    let (context, early) = (Given(current()?), Actor::new());
    stage.wait()?;
    let told = stage.told();
    let [first, without, done] = [first, without, done].map(asks);
    // SAFETY: as above.
    let third = json!([0; 2].map(|_: i32| code(unsafe { sys::cuStreamSynchronize(third) })));
    let second = Given(second);
    // SAFETY: as above.
    let second = early.perform(move || twice(context, || unsafe { sys::cuStreamSynchronize(second.get()) }))?;
    Ok(json!({ "told": told, "first": first, "second": second, "third": third, "without": without, "done": done }))
}

/// A function behind lost work in one stream while another one is captured, with a third that has joined it: who asks for the
/// first one's state is told once more, of the others' functions nobody is, which are nodes of a graph.
pub(super) fn lost_beside_a_capture(stage: &Stage) -> Result<Value, GpuError> {
    let [lost, captured, joined] = [stream(1)?, stream(1)?, stream(1)?];
    let (mut graph, fork, join) = (null_mut(), super::event()?, super::event()?);
    stage.leave(lost)?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: all are ours.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(captured, mode) })?;
    // SAFETY: as above.
    check("cuEventRecord", unsafe { sys::cuEventRecord(fork, captured) })?;
    // SAFETY: as above.
    check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(joined, fork, 0) })?;
    [lost, captured, joined].into_iter().try_for_each(gives)?;
    // SAFETY: as above.
    check("cuEventRecord", unsafe { sys::cuEventRecord(join, joined) })?;
    // SAFETY: as above.
    check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(captured, join, 0) })?;
    // SAFETY: as above.
    check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(captured, &raw mut graph) })?;
    [captured, joined].into_iter().try_for_each(|lost| stage.leave(lost))?;
    stage.wait()?;
    let told = stage.told();
    let [lost, captured, joined] = [lost, captured, joined].map(asks);
    Ok(json!({ "told": told, "lost": lost, "captured": captured, "joined": joined }))
}

/// What a callback is to find.
struct Expected {
    name: &'static str,
    stream: Given<sys::CUstream>,
    by: ThreadId,
}

/// The callbacks that were called, in their order: the name, the code, whether it was for the right stream, and by
/// another thread than this one.
static CALLED: Mutex<Vec<Value>> = Mutex::new(Vec::new());

fn called() -> Vec<Value> {
    CALLED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

unsafe extern "C" fn is_called(stream: sys::CUstream, status: sys::CUresult, expected: *mut c_void) {
    // SAFETY: made of a box for this, which is never freed.
    let Expected { name, stream: of, by } = unsafe { &*expected.cast::<Expected>() };
    let line = json!([name, code(status), stream == of.get(), thread::current().id() != *by]);
    CALLED.lock().unwrap_or_else(PoisonError::into_inner).push(line);
}

fn calls_back(name: &'static str, stream: sys::CUstream) -> Result<(), GpuError> {
    let expected = Box::leak(Box::new(Expected { name, stream: Given(stream), by: thread::current().id() }));
    let place = std::ptr::from_mut(expected).cast();
    // SAFETY: the function takes this.
    check("cuStreamAddCallback", unsafe { sys::cuStreamAddCallback(stream, Some(is_called), place, 0) })
}

/// Callbacks of a stream that is done, of two that lose their work, and of one of these afterwards: which are called, once the
/// last one was, and what of the driver's is said to this thread.
pub(super) fn callbacks(stage: &Stage) -> Result<Value, GpuError> {
    let [done, first, second] = [stream(1)?, stream(1)?, stream(1)?];
    calls_back("done", done)?;
    finish(done)?;
    [first, second].into_iter().try_for_each(|lost| stage.leave(lost))?;
    for (name, stream) in [("first", first), ("second", second), ("first again", first)] {
        calls_back(name, stream)?;
    }
    stage.wait()?;
    // Nobody makes a call meanwhile.
    let deadline = Instant::now() + PATIENCE;
    while called().len() < 4 {
        if Instant::now() > deadline {
            return Err(failed("--scene", format!("called: {:?}", called())));
        }
        thread::park_timeout(BETWEEN_LOOKS);
    }
    let told = stage.told();
    let first_told = asks(first);
    calls_back("later", first)?;
    [first, second].into_iter().try_for_each(finish)?;
    Ok(json!({ "told": told, "first": first_told, "called": called() }))
}
