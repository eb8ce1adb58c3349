//! A thread that has to be told of lost work records an event first, as programs do where they free memory.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::telling::twice;
use super::{Actor, Given, GpuError, Stage, WORDS, c_void, check, code, current, event, function, stream};
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// How long there may be no time between two events yet.
const PATIENCE: Duration = Duration::from_mins(1);

/// An executable graph that waits for an event, or does nothing.
fn graph(awaited: Option<sys::CUevent>) -> Result<sys::CUgraphExec, GpuError> {
    let (mut graph, mut executable, mut node) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the results are variables of ours, here and below.
    check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
    let added = match awaited {
        // SAFETY: all are ours.
        Some(event) => unsafe { sys::cuGraphAddEventWaitNode(&raw mut node, graph, null(), 0, event) },
        // SAFETY: as above.
        None => unsafe { sys::cuGraphAddEmptyNode(&raw mut node, graph, null(), 0) },
    };
    check("cuGraphAddNode", added)?;
    // SAFETY: as above.
    let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) };
    check("cuGraphInstantiate", made)?;
    Ok(executable)
}

/// `cuCtxRecordEvent`, which older releases lack.
type RecordContext = unsafe extern "C" fn(sys::CUcontext, sys::CUevent) -> sys::CUresult;

/// An event that has a time.
fn timed() -> Result<Given<sys::CUevent>, GpuError> {
    let mut event = null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
    Ok(Given(event))
}

/// A thread that has to be told records one event in a stream and another one for its whole context. Threads that were told
/// before it, and one that begins later, take the one by the time until an event of their own, and wait for the other.
pub(super) fn seldom(stage: &Stage) -> Result<Value, GpuError> {
    let (lost, sound) = (Given(stream(1)?), Given(stream(1)?));
    let (first, of_context) = (timed()?, timed()?);
    stage.leave(lost.get())?;
    let context = Given(current()?);
    let found = function(c"cuCtxRecordEvent")?;
    // SAFETY: the function of this name has this type.
    let record_context = unsafe { std::mem::transmute::<*mut c_void, RecordContext>(found) };
    let [asking, waiting] = [(); 2].map(|()| Actor::new());
    stage.wait()?;
    // SAFETY: all are ours, here and below.
    let synchronize = move || unsafe { sys::cuStreamSynchronize(sound.get()) };
    let mut told = Vec::new();
    for actor in [&asking, &waiting] {
        told.push(actor.perform(move || twice(context, synchronize))?);
    }
    // SAFETY: as above.
    let recorded = unsafe { sys::cuEventRecord(first.get(), lost.get()) };
    // SAFETY: as above.
    let recorded = [recorded, unsafe { record_context(context.get(), of_context.get()) }];
    let until = move || {
        let (mut second, mut milliseconds) = (null_mut(), 0_f32);
        // SAFETY: the results are variables of ours.
        let made = unsafe { sys::cuEventCreate(&raw mut second, 0) };
        // SAFETY: as above.
        let recorded = unsafe { sys::cuEventRecord(second, sound.get()) };
        // SAFETY: as above.
        let waited = unsafe { sys::cuEventSynchronize(second) };
        assert_eq!([code(made), code(recorded), code(waited)], [0; 3], "nothing of it was lost");
        let deadline = Instant::now() + PATIENCE;
        loop {
            // SAFETY: as above.
            let answer = unsafe { sys::cuEventElapsedTime_v2(&raw mut milliseconds, first.get(), second) };
            // The first one is in another stream, and may come later.
            if answer != sys::cudaError_enum::CUDA_ERROR_NOT_READY || Instant::now() > deadline {
                return answer;
            }
            std::thread::yield_now();
        }
    };
    // SAFETY: as above.
    let wait_for = move || unsafe { sys::cuEventSynchronize(of_context.get()) };
    let asked = asking.perform(move || twice(context, until))?;
    let waited = waiting.perform(move || twice(context, wait_for))?;
    Ok(json!({ "told": told, "recorded": recorded.map(code), "asked": asked, "waited": waited }))
}

/// A thread that was told records two events by a launch behind lost work. Threads that begin later wait for one each.
pub(super) fn launches(stage: &Stage) -> Result<Value, GpuError> {
    use sys::CUlaunchAttributeID_enum::{
        CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT as COMPLETION,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT as PROGRAMMATIC,
    };
    let (lost, sound, recorded) = (stream(1)?, Given(stream(1)?), [Given(event()?), Given(event()?)]);
    stage.leave(lost)?;
    let context = Given(current()?);
    stage.wait()?;
    // SAFETY: all are ours, here and below.
    let synchronize = move || unsafe { sys::cuStreamSynchronize(sound.get()) };
    let own = twice(context, synchronize);
    // SAFETY: zeros are values of all of it.
    let mut attributes: [sys::CUlaunchAttribute; 2] = unsafe { std::mem::zeroed() };
    (attributes[0].id, attributes[1].id) = (PROGRAMMATIC, COMPLETION);
    attributes[0].value.programmaticEvent.event = recorded[0].get();
    attributes[1].value.launchCompletionEvent.event = recorded[1].get();
    // SAFETY: as above.
    let mut config: sys::CUlaunchConfig = unsafe { std::mem::zeroed() };
    (config.gridDimX, config.gridDimY, config.gridDimZ) = (1, 1, 1);
    (config.blockDimX, config.blockDimY, config.blockDimZ) = (WORDS, 1, 1);
    (config.hStream, config.attrs, config.numAttrs) = (lost, attributes.as_mut_ptr(), 2);
    let (mut address, mut count) = (stage.others, WORDS);
    let mut arguments = [(&raw mut address).cast::<c_void>(), (&raw mut count).cast()];
    // SAFETY: the kernel takes these arguments.
    let launched =
        unsafe { sys::cuLaunchKernelEx(&raw const config, stage.increment.0, arguments.as_mut_ptr(), null_mut()) };
    check("cuLaunchKernelEx", launched)?;
    stage.wait_for_another_tick();
    let mut late = Vec::new();
    for event in recorded {
        // SAFETY: as above.
        let wait_for = move || unsafe { sys::cuEventSynchronize(event.get()) };
        late.push(Actor::new().perform(move || twice(context, wait_for))?);
    }
    let beside = Actor::new().perform(move || twice(context, synchronize))?;
    Ok(json!({ "own": own, "late": late, "beside": beside }))
}

/// Threads that were told before it waits for that event, each in another way; then the thread itself; then it records the
/// event once more. Another thread like it records one, ends it, and says no more.
pub(super) fn records(stage: &Stage) -> Result<Value, GpuError> {
    let (lost, sound, freed) = (stream(1)?, Given(stream(1)?), Given(event()?));
    let [of_destroyer, elsewhere] = [Given(event()?), Given(event()?)];
    let other = Given(graph(None)?);
    // SAFETY: all are ours.
    check("cuEventRecord", unsafe { sys::cuEventRecord(elsewhere.get(), sound.get()) })?;
    stage.leave(lost)?;
    let context = Given(current()?);
    let ([synchronize_event, wait, launch, launch_other, ask_other, again], destroyer) =
        ([(); 6].map(|()| Actor::new()), Actor::new());
    stage.wait()?;
    // SAFETY: as above.
    let synchronize = move || unsafe { sys::cuStreamSynchronize(sound.get()) };
    let mut told = Vec::new();
    for actor in [&synchronize_event, &wait, &launch, &launch_other, &ask_other, &again] {
        told.push(actor.perform(move || twice(context, synchronize))?);
    }
    let lost = Given(lost);
    let end = move || {
        // SAFETY: as above, and not used again.
        let recorded = unsafe { sys::cuEventRecord(of_destroyer.get(), lost.get()) };
        // SAFETY: as above.
        [recorded, unsafe { sys::cuEventDestroy_v2(of_destroyer.get()) }]
    };
    let destroyed = destroyer.perform(move || match super::enter(context.get()) {
        Ok(()) => json!(end().map(code)),
        Err(error) => json!(error.to_string()),
    })?;
    // SAFETY: as above.
    let record = move || code(unsafe { sys::cuEventRecord(freed.get(), lost.get()) });
    let recorded = [record(), record()];
    // SAFETY: as above.
    let ask = move || unsafe { sys::cuEventQuery(freed.get()) };
    // SAFETY: as above.
    let wait_for = move || unsafe { sys::cuEventSynchronize(freed.get()) };
    // SAFETY: as above.
    let query_of = move |event: Given<sys::CUevent>| move || unsafe { sys::cuEventQuery(event.get()) };
    // SAFETY: as above.
    let behind = move || unsafe { sys::cuStreamWaitEvent(sound.get(), freed.get(), 0) };
    // SAFETY: as above.
    let run = move |graph: Given<sys::CUgraphExec>| move || unsafe { sys::cuGraphLaunch(graph.get(), sound.get()) };
    // A question might come before the record is done.
    let synchronized = synchronize_event.perform(move || twice(context, wait_for))?;
    let wait = wait.perform(move || twice(context, behind))?;
    let launch_other = launch_other.perform(move || twice(context, run(other)))?;
    let waiting = Given(graph(Some(freed.get()))?);
    let launch = launch.perform(move || twice(context, run(waiting)))?;
    let ask_other = ask_other.perform(move || twice(context, query_of(elsewhere)))?;
    let own = [0; 2].map(|_: i32| code(ask()));
    // This thread has heard of it now.
    let recorded_again = record();
    check("cuEventSynchronize", wait_for())?;
    let again = again.perform(move || twice(context, ask))?;
    Ok(json!({
        "told": told, "destroyed": destroyed, "recorded": recorded, "synchronize": synchronized, "wait": wait, "launch": launch,
        "launch_other": launch_other, "ask_other": ask_other, "own": own, "recorded_again": recorded_again, "again": again,
    }))
}
