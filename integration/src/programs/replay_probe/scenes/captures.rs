//! Captures that nobody ends by `cuStreamEndCapture`, or that it does not end, and how threads are set that work beside
//! captures of others.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{Actor, Given, GpuError, Stage, beside, check, code, count_of, current, enter, event, function, stream};
use crate::programs::gpu::Gpu;
use crate::programs::replay_probe::failed;
use cudarc::driver::sys::{self, CUstreamCaptureMode, CUstreamCaptureStatus};
use serde_json::{Value, json};
use std::ptr::null_mut;

/// How often memory is taken, and which part of the GPU's each time.
const TIMES: usize = 8;
const PART: usize = 3;

fn begin(stream: sys::CUstream) -> Result<(), GpuError> {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: it is ours.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })
}

/// Takes more memory in sum than the GPU has, and gives each piece back: what the calls answer that are not answered with 0.
fn refused() -> Result<Vec<[u32; 2]>, GpuError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the results are variables of ours.
    check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    let come_and_go = || {
        let mut address = 0;
        // SAFETY: the result is a variable of ours.
        let made = unsafe { sys::cuMemAlloc_v2(&raw mut address, total / PART) };
        // SAFETY: made above, or nothing.
        let freed = unsafe { sys::cuMemFree_v2(address) };
        [code(made), code(freed)]
    };
    Ok(std::iter::repeat_with(come_and_go).take(TIMES).filter(|answers| *answers != [0, 0]).collect())
}

fn heard(refused: &[[u32; 2]], found: [u32; 2]) -> Value {
    json!({ "refused": refused, "found": found, "recoveries": count_of() })
}

/// The context is reset while a stream of it is captured.
pub(super) fn reset(_stage: &Stage) -> Result<Value, GpuError> {
    begin(stream(1)?)?;
    let mut gpu = Gpu::reset(0)?;
    let (refused, trap) = (refused()?, gpu.kernel("trap")?);
    gpu.launch(trap, 1, &[])?;
    Ok(heard(&refused, beside::found()))
}

/// Another context is destroyed while a stream of it is captured.
pub(super) fn context(stage: &Stage) -> Result<Value, GpuError> {
    let mut other = null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuCtxCreate", unsafe { sys::cuCtxCreate_v4(&raw mut other, null_mut(), 0, 0) })?;
    begin(stream(1)?)?;
    // SAFETY: made above, and not used again.
    check("cuCtxDestroy", unsafe { sys::cuCtxDestroy_v2(other) })?;
    Ok(heard(&refused()?, beside::fault(stage)?))
}

/// A thread ends while its own default stream is captured, in the way that forbids nobody anything.
pub(super) fn thread(stage: &Stage) -> Result<Value, GpuError> {
    type Begin = unsafe extern "C" fn(sys::CUstream, CUstreamCaptureMode) -> sys::CUresult;
    // SAFETY: the function of this name has this type.
    let begin: Begin = unsafe { std::mem::transmute(function(c"cuStreamBeginCapture_v2_ptsz")?) };
    let context = Given(current()?);
    let begun = std::thread::spawn(move || {
        enter(context.get())?;
        // SAFETY: the thread's own.
        let answer = unsafe { begin(null_mut(), CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED) };
        check("cuStreamBeginCapture", answer)
    });
    begun.join().map_err(|_| failed("thread", "it has panicked"))??;
    Ok(heard(&refused()?, beside::fault(stage)?))
}

fn end(stream: sys::CUstream, graph: *mut sys::CUgraph) -> u32 {
    // SAFETY: it is ours, and the result is a variable of ours, or nowhere.
    code(unsafe { sys::cuStreamEndCapture(stream, graph) })
}

/// A capture that another thread has tried to end, and that was to be ended without a place for the graph, is under way when
/// the program's server dies.
pub(super) fn goes_on(stage: &Stage) -> Result<Value, GpuError> {
    let (captured, other) = (Given(stream(1)?), stream(1)?);
    let (context, actor) = (Given(current()?), Actor::new());
    begin(captured.get())?;
    let by_another = actor.perform(move || match enter(context.get()) {
        Ok(()) => json!(end(captured.get(), &mut null_mut())),
        Err(error) => json!(error.to_string()),
    })?;
    let without_place = end(captured.get(), null_mut());
    stage.report.say("pending", json!({}));
    // SAFETY: it is ours.
    let ask = || code(unsafe { sys::cuStreamQuery(other) });
    let found = std::iter::repeat_with(ask).find(|answer| *answer != 0 || count_of() > 0);
    Ok(json!({ "by_another": by_another, "without_place": without_place, "found": found, "again": ask() }))
}

/// A capture that a forbidden call has broken ends with an error.
pub(super) fn broken(stage: &Stage) -> Result<Value, GpuError> {
    let (captured, event) = (stream(1)?, event()?);
    begin(captured)?;
    // SAFETY: it is ours.
    let forbidden = code(unsafe { sys::cuEventQuery(event) });
    let ended = end(captured, &mut null_mut());
    Ok(json!({ "forbidden": forbidden, "ended": ended, "found": beside::fault(stage)? }))
}

/// Asks by both versions of the function what a stream captures, with words in the places for the answers that the driver has
/// not written: each answer, and what it says of the capture.
fn captures(stream: sys::CUstream) -> Result<Value, GpuError> {
    type Info = unsafe extern "C" fn(
        sys::CUstream,
        *mut CUstreamCaptureStatus,
        *mut u64,
        *mut sys::CUgraph,
        *mut *const sys::CUgraphNode,
        *mut usize,
    ) -> sys::CUresult;
    // SAFETY: the function of this name has this type.
    let info: Info = unsafe { std::mem::transmute(function(c"cuStreamGetCaptureInfo_v2")?) };
    let mut status = [CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE; 2];
    let nowhere = std::ptr::without_provenance::<sys::CUgraphNode>(0x10);
    let (mut last, mut count, null) = ([nowhere; 2], [1 << 24; 2], null_mut());
    // SAFETY: the results are variables of ours, here and below.
    let second =
        unsafe { info(stream, &raw mut status[0], null_mut(), null_mut(), &raw mut last[0], &raw mut count[0]) };
    let (status_of, last_of, count_of) = (&raw mut status[1], &raw mut last[1], &raw mut count[1]);
    // SAFETY: as above.
    let third =
        unsafe { sys::cuStreamGetCaptureInfo_v3(stream, status_of, null_mut(), null_mut(), last_of, null, count_of) };
    Ok(json!([[code(second), status[0] as u32], [code(third), status[1] as u32]]))
}

/// Streams that are asked what they capture: none, one that was broken, and one that goes on.
pub(super) fn none(_stage: &Stage) -> Result<Value, GpuError> {
    let (captured, event) = (stream(1)?, event()?);
    let none = captures(captured)?;
    begin(captured)?;
    let active = captures(captured)?;
    // SAFETY: it is ours.
    let forbidden = code(unsafe { sys::cuEventQuery(event) });
    let broken = captures(captured)?;
    let ended = end(captured, &mut null_mut());
    let ended = json!([forbidden, ended]);
    Ok(json!({ "none": none, "active": active, "broken": broken, "ended": ended, "again": captures(captured)? }))
}

/// Exchanges the thread's mode: the answer, and what it was.
fn exchange(mode: CUstreamCaptureMode) -> [u32; 2] {
    let mut mode = mode;
    // SAFETY: a variable of ours.
    let answer = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    [code(answer), mode as u32]
}

/// Two threads have said, in two ways, that they forbid themselves nothing beside a capture of another thread, before a fault.
pub(super) fn modes(stage: &Stage) -> Result<Value, GpuError> {
    use CUstreamCaptureMode::{
        CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL,
    };
    let (captured, event, context) = (stream(1)?, Given(event()?), Given(current()?));
    // SAFETY: it is there until the process ends.
    let ask = move || json!(code(unsafe { sys::cuEventQuery(event.get()) }));
    let actors = [(Actor::new(), RELAXED), (Actor::new(), THREAD_LOCAL)];
    for (actor, mode) in &actors {
        let mode = *mode;
        actor.perform(move || match enter(context.get()) {
            Ok(()) => json!([exchange(mode), ask()]),
            Err(error) => json!(error.to_string()),
        })?;
    }
    let found = beside::fault(stage)?;
    let each = || actors.iter().map(|(actor, _)| actor.perform(ask)).collect::<Result<Vec<Value>, _>>();
    let told = each()?;
    begin(captured)?;
    let beside = each()?;
    let mut graph = null_mut();
    // SAFETY: it is ours, and the result is a variable of ours.
    let ended = code(unsafe { sys::cuStreamEndCapture(captured, &raw mut graph) });
    let back = actors.iter().map(|(actor, _)| actor.perform(|| json!(exchange(GLOBAL))));
    let back: Vec<Value> = back.collect::<Result<_, _>>()?;
    Ok(json!({ "found": found, "told": told, "beside": beside, "ended": ended, "back": back }))
}
