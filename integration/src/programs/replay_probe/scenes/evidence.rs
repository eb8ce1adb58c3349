//! What says nothing about work that is on its way, and must not count as if it did.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{
    Actor, BETWEEN_LOOKS, Given, GpuError, Of, Own, PATIENCE, Stage, check, code, current, enter, event, function,
    last, second_context, stream,
};
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

/// Streams that a program has one after the other, and at once: more than the library has places for.
const MANY: usize = 1_500;

/// One thread waits for its own default stream, and another one's has work.
pub(super) fn threads(stage: &Stage) -> Result<Value, GpuError> {
    type Copy = unsafe extern "C" fn(*mut c_void, u64, usize) -> sys::CUresult;
    type Record = unsafe extern "C" fn(sys::CUevent, sys::CUstream) -> sys::CUresult;
    // SAFETY: the functions of these names have these types.
    let copy = unsafe { std::mem::transmute::<*mut c_void, Copy>(function(c"cuMemcpyDtoH_v2_ptds")?) };
    // SAFETY: as above.
    let record = unsafe { std::mem::transmute::<*mut c_void, Record>(function(c"cuEventRecord_ptsz")?) };
    // SAFETY: as above.
    let wait = unsafe { std::mem::transmute::<*mut c_void, Of<sys::CUstream>>(function(c"cuStreamSynchronize_ptsz")?) };
    let (other, own, context) = (Actor::new(), Given(Own::new(stage)?), Given(current()?));
    let left = other.perform(move || {
        let entered = enter(context.get()).is_ok();
        json!([entered, own.get().leave()])
    })?;
    let (mut word, event) = (0_u32, event()?);
    // SAFETY: the destination is as long as the copy.
    let copied = code(unsafe { copy((&raw mut word).cast(), stage.others, 4) });
    // SAFETY: the event is ours, and the default stream this thread's.
    let recorded = code(unsafe { record(event, null_mut()) });
    // SAFETY: the event is ours.
    let come = code(unsafe { sys::cuEventSynchronize(event) });
    // SAFETY: this thread's default stream.
    let waited = code(unsafe { wait(null_mut()) });
    stage.wait()?;
    // SAFETY: as above.
    let heard = other.perform(move || json!([code(unsafe { wait(null_mut()) }), code(unsafe { wait(null_mut()) })]))?;
    Ok(json!({ "left": left, "before": [copied, recorded, come, waited], "other": heard, "told": stage.told() }))
}

/// An event is destroyed, and another one gets its handle.
pub(super) fn event_again(stage: &Stage) -> Result<Value, GpuError> {
    let (stream, first) = (stream(1)?, event()?);
    stage.leave(stream)?;
    // SAFETY: both are ours.
    check("cuEventRecord", unsafe { sys::cuEventRecord(first, stream) })?;
    // SAFETY: it is ours, and not used again.
    check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(first) })?;
    let again = event()?;
    // SAFETY: it is ours. It was never recorded.
    let come = code(unsafe { sys::cuEventQuery(again) });
    stage.wait()?;
    Ok(json!({ "is_same": first == again, "before": come, "told": stage.told() }))
}

/// An event is recorded again, behind nothing.
pub(super) fn event_elsewhere(stage: &Stage) -> Result<Value, GpuError> {
    let (busy, idle, event) = (stream(1)?, stream(1)?, event()?);
    stage.leave(busy)?;
    for stream in [busy, idle] {
        // SAFETY: all are ours.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event, stream) })?;
    }
    // SAFETY: it is ours.
    let come = code(unsafe { sys::cuEventSynchronize(event) });
    stage.wait()?;
    Ok(json!({ "before": come, "told": stage.told() }))
}

/// An event is recorded by a graph, behind nothing.
pub(super) fn event_of_a_graph(stage: &Stage) -> Result<Value, GpuError> {
    let (busy, idle, event) = (stream(1)?, stream(1)?, event()?);
    let (mut graph, mut node, mut executable) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the results are variables of ours.
    check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
    // SAFETY: as above.
    let added = unsafe { sys::cuGraphAddEventRecordNode(&raw mut node, graph, std::ptr::null(), 0, event) };
    check("cuGraphAddEventRecordNode", added)?;
    // SAFETY: as above.
    check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) })?;
    stage.leave(busy)?;
    // SAFETY: all are ours.
    check("cuEventRecord", unsafe { sys::cuEventRecord(event, busy) })?;
    // SAFETY: as above.
    check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(executable, idle) })?;
    // SAFETY: as above.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(idle) })?;
    // SAFETY: as above.
    let come = code(unsafe { sys::cuEventSynchronize(event) });
    stage.wait()?;
    Ok(json!({ "before": come, "told": stage.told() }))
}

/// Another context than the current one is waited for.
pub(super) fn other_context(stage: &Stage) -> Result<Value, GpuError> {
    type Wait = Of<sys::CUcontext>;
    // SAFETY: the function of this name has this type.
    let wait = unsafe { std::mem::transmute::<*mut c_void, Wait>(function(c"cuCtxSynchronize_v2")?) };
    let other = second_context()?;
    stage.leave(stream(1)?)?;
    // SAFETY: the context is retained.
    let waited = code(unsafe { wait(other) });
    stage.wait()?;
    Ok(json!({ "before": waited, "told": stage.told() }))
}

/// A stream of another context is destroyed, and one of this context gets its handle.
pub(super) fn stream_again(stage: &Stage) -> Result<Value, GpuError> {
    let (first, other) = (current()?, second_context()?);
    enter(other)?;
    let theirs = stream(1)?;
    let (mut address, size) = (0, 4096);
    // SAFETY: the result is a variable of ours.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, size) })?;
    // SAFETY: the range is as long.
    check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, 1, size, theirs) })?;
    // SAFETY: it is ours.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(theirs) })?;
    // SAFETY: it is ours, and not used again.
    check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(theirs) })?;
    enter(first)?;
    let ours = stream(1)?;
    stage.leave(ours)?;
    enter(other)?;
    // SAFETY: the context is retained.
    let waited = code(unsafe { sys::cuCtxSynchronize() });
    enter(first)?;
    stage.wait()?;
    Ok(json!({ "is_same": theirs == ours, "before": waited, "told": stage.told() }))
}

/// A context of the program's own is waited for, and ended.
pub(super) fn pushed_context(stage: &Stage) -> Result<Value, GpuError> {
    stage.leave(stream(1)?)?;
    let mut context = null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuCtxCreate", unsafe { sys::cuCtxCreate_v4(&raw mut context, null_mut(), 0, 0) })?;
    // SAFETY: it is current.
    let waited = code(unsafe { sys::cuCtxSynchronize() });
    // SAFETY: it is ours, and not used again.
    check("cuCtxDestroy", unsafe { sys::cuCtxDestroy_v2(context) })?;
    stage.wait()?;
    Ok(json!({ "before": waited, "told": stage.told() }))
}

/// Contexts of the program's own have been current in place of the one that is, and have ended; what is on the thread's stack after
/// a recovery: for each whether it is that one.
pub(super) fn ended_contexts(stage: &Stage) -> Result<Value, GpuError> {
    let (first, mut ended) = (current()?, [null_mut(); 2]);
    for context in &mut ended {
        // SAFETY: the result is a variable of ours.
        check("cuCtxCreate", unsafe { sys::cuCtxCreate_v4(&raw mut *context, null_mut(), 0, 0) })?;
        // SAFETY: it may be null.
        check("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(null_mut()) })?;
    }
    for context in ended.into_iter().chain([first]) {
        enter(context)?;
    }
    for context in ended {
        // SAFETY: it is ours, and not used again.
        check("cuCtxDestroy", unsafe { sys::cuCtxDestroy_v2(context) })?;
    }
    stage.leave(stream(1)?)?;
    stage.wait()?;
    let told = stage.told();
    let (mut stack, mut popped) = (Vec::new(), null_mut());
    // SAFETY: the result is a variable of ours.
    while code(unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) }) == 0 {
        stack.push(popped == first);
    }
    enter(first)?;
    Ok(json!({ "stack": stack, "told": told }))
}

/// Nothing is copied.
pub(super) fn empty_copy(stage: &Stage) -> Result<Value, GpuError> {
    stage.leave(null_mut())?;
    let mut word = 0_u32;
    // SAFETY: nothing is written.
    let copied = code(unsafe { sys::cuMemcpyDtoH_v2((&raw mut word).cast(), stage.others, 0) });
    stage.wait()?;
    Ok(json!({ "before": copied, "told": stage.told() }))
}

/// Streams one after the other, all waited for.
pub(super) fn many_streams(stage: &Stage) -> Result<Value, GpuError> {
    let kept: Vec<_> = (0..8).map(|_| stream(1)).collect::<Result<_, _>>()?;
    for at in 0..MANY {
        let stream = stream(1)?;
        // One in two is still at work when it ends.
        stage.count(stream, stage.others)?;
        if at % 2 == 0 {
            // SAFETY: it is ours.
            check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })?;
        }
        // SAFETY: it is ours, and not used again. The handle of the next one is another one for a while.
        check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(stream) })?;
        if at % 50 == 0 {
            stage.gpu.synchronize()?;
            let _kept = super::stream(1)?;
        }
    }
    for stream in kept {
        stage.count(stream, stage.others)?;
    }
    stage.gpu.synchronize()?;
    stage.wait()?;
    Ok(json!({ "told": stage.told() }))
}

/// Streams at once, more than there are places for, waited for with their context.
pub(super) fn too_many_streams(stage: &Stage) -> Result<Value, GpuError> {
    for _ in 0..MANY {
        stage.count(stream(1)?, stage.others)?;
    }
    stage.gpu.synchronize()?;
    stage.wait()?;
    Ok(json!({ "told": stage.told() }))
}

/// A capture is under way, and the end of another one that is none fails.
pub(super) fn capture(stage: &Stage) -> Result<Value, GpuError> {
    let (captured, other) = (stream(1)?, stream(1)?);
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: it is ours.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(captured, mode) })?;
    let mut graph = null_mut();
    // SAFETY: the result is a variable of ours.
    let ended = code(unsafe { sys::cuStreamEndCapture(other, &raw mut graph) });
    stage.report.say("pending", json!({}));
    // SAFETY: it is ours.
    let ask = || code(unsafe { sys::cuStreamQuery(other) });
    let found = std::iter::repeat_with(ask).find(|answer| *answer != 0);
    Ok(json!({ "before": ended, "found": found, "again": ask() }))
}

/// Nobody has waited for what is done, so the library asks, with the gate closed. There is no fault.
pub(super) fn asked_at_rest(stage: &Stage) -> Result<Value, GpuError> {
    stage.count(stream(1)?, stage.others)?;
    let deadline = Instant::now() + PATIENCE;
    let mut is_at_rest = last::rest();
    while !is_at_rest && Instant::now() < deadline {
        std::thread::park_timeout(BETWEEN_LOOKS);
        is_at_rest = last::rest();
    }
    Ok(json!({ "rest": is_at_rest }))
}

/// A stream that has done what it was given, which is waited for.
fn waited_for(stage: &Stage) -> Result<sys::CUstream, GpuError> {
    let (stream, event) = (stream(1)?, event()?);
    stage.count(stream, stage.others)?;
    // SAFETY: both are ours.
    check("cuEventRecord", unsafe { sys::cuEventRecord(event, stream) })?;
    // SAFETY: it is ours.
    check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event) })?;
    Ok(stream)
}

/// Everything is waited for.
pub(super) fn finished(stage: &Stage) -> Result<Value, GpuError> {
    waited_for(stage)?;
    stage.wait()?;
    Ok(json!({ "told": stage.told() }))
}

/// The same by a program that asks again and again, as nobody else tells it of a fault.
pub(super) fn finished_and_asking(stage: &Stage) -> Result<Value, GpuError> {
    let stream = waited_for(stage)?;
    stage.ask_until_recovered(stream)?;
    Ok(json!({ "told": stage.told() }))
}
