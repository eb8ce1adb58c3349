//! Who hears of lost work, and by which calls.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{Actor, Given, GpuError, Stage, check, code, current, enter, event, failed, module, stream};
use crate::programs::gpu::KERNELS;
use crate::programs::memory_probe::allocate;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::mpsc::channel;

/// What a thread hears that has entered the context and then asks twice.
pub(super) fn twice(context: Given<sys::CUcontext>, ask: impl Fn() -> sys::CUresult) -> Value {
    match enter(context.get()) {
        Ok(()) => json!([code(ask()), code(ask())]),
        Err(error) => json!(error.to_string()),
    }
}

/// Threads that wait for what another one has given: one that was there and had made no call, and several that began
/// after the recovery.
pub(super) fn consumers(stage: &Stage) -> Result<Value, GpuError> {
    let (lost, sound) = (stream(1)?, stream(1)?);
    let (of_lost, of_sound) = (event()?, event()?);
    stage.count(sound, stage.others)?;
    // SAFETY: all are ours.
    check("cuEventRecord", unsafe { sys::cuEventRecord(of_sound, sound) })?;
    // SAFETY: as above.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(sound) })?;
    stage.leave(lost)?;
    // SAFETY: as above.
    check("cuEventRecord", unsafe { sys::cuEventRecord(of_lost, lost) })?;
    let context = Given(current()?);
    let (lost, sound, of_lost, of_sound) = (Given(lost), Given(sound), Given(of_lost), Given(of_sound));
    let early = Actor::new();
    stage.wait()?;
    // Twice in each thread, all of which have made no call before.
    // SAFETY: all are ours.
    let query = move |event: Given<sys::CUevent>| move || unsafe { sys::cuEventQuery(event.get()) };
    // SAFETY: as above.
    let synchronize = move |event: Given<sys::CUevent>| move || unsafe { sys::cuEventSynchronize(event.get()) };
    // SAFETY: as above.
    let wait = move |stream: Given<sys::CUstream>| move || unsafe { sys::cuStreamSynchronize(stream.get()) };
    // SAFETY: as above.
    let behind = move || unsafe { sys::cuStreamWaitEvent(sound.get(), of_lost.get(), 0) };
    let early = early.perform(move || twice(context, behind))?;
    stage.wait_for_another_tick();
    let late = |step: Box<dyn FnOnce() -> Value + Send>| Actor::new().perform(step);
    let late_event = late(Box::new(move || twice(context, query(of_lost))))?;
    let late_wait = late(Box::new(move || twice(context, synchronize(of_lost))))?;
    let sound_event = late(Box::new(move || twice(context, query(of_sound))))?;
    let late_stream = late(Box::new(move || twice(context, wait(lost))))?;
    // The early one has had the sound stream wait for what was lost.
    let behind_it = late(Box::new(move || twice(context, wait(sound))))?;
    // This thread hears of it, has another stream wait for it all the same, and records an event there.
    let third = Given(stream(1)?);
    // SAFETY: as above.
    let own = [0; 2].map(|_: i32| code(unsafe { sys::cuStreamWaitEvent(third.get(), of_lost.get(), 0) }));
    let next = Given(event()?);
    // SAFETY: as above.
    check("cuEventRecord", unsafe { sys::cuEventRecord(next.get(), third.get()) })?;
    let late_chain = late(Box::new(move || twice(context, synchronize(next))))?;
    // It is recorded again, behind nothing that was lost. A question might come before the record is done.
    let fresh = stream(1)?;
    // SAFETY: as above.
    check("cuEventRecord", unsafe { sys::cuEventRecord(of_lost.get(), fresh) })?;
    let recorded_again = late(Box::new(move || twice(context, synchronize(of_lost))))?;
    Ok(json!({
        "early": early, "late_event": late_event, "late_wait": late_wait, "sound_event": sound_event,
        "late_stream": late_stream, "behind_it": behind_it, "own": own, "late_chain": late_chain,
        "recorded_again": recorded_again,
    }))
}

/// What a thread does that is begun behind the library's back.
type Step = Box<dyn FnOnce() + Send>;

/// Has a thread do something that is begun by libc's own function, whatever is preloaded, and waits.
fn by_stranger(step: impl FnOnce() -> Value + Send + 'static) -> Result<Value, GpuError> {
    extern "C" fn begin(step: *mut c_void) -> *mut c_void {
        // SAFETY: it was made of a box, for this thread alone.
        let step = unsafe { Box::from_raw(step.cast::<Step>()) };
        step();
        null_mut()
    }
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    let (name, version) = (c"pthread_create", c"GLIBC_2.2.5");
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr()) };
    // SAFETY: the function of this name has this type.
    let create = unsafe { std::mem::transmute::<*mut c_void, Option<Create>>(found) };
    let create = create.ok_or_else(|| failed("dlvsym", "there is no pthread_create"))?;
    let (say, heard) = channel();
    let step: Step = Box::new(move || drop(say.send(step())));
    let mut thread = 0;
    // SAFETY: the argument is what the function takes, and is given to the thread.
    let code = unsafe { create(&raw mut thread, null(), begin, Box::into_raw(Box::new(step)).cast()) };
    if code != 0 {
        return Err(failed("pthread_create", code));
    }
    let heard = heard.recv().map_err(|error| failed("thread", error));
    // SAFETY: it has begun, and nobody else joins it.
    unsafe { libc::pthread_join(thread, null_mut()) };
    heard
}

/// Threads that begin after the recovery and use what is not in doubt, by who has begun them: one that was told, and this
/// one, which was not.
pub(super) fn children(stage: &Stage) -> Result<Value, GpuError> {
    let (lost, sound) = (stream(1)?, Given(stream(1)?));
    stage.leave(lost)?;
    let context = Given(current()?);
    let told = Actor::new();
    stage.wait()?;
    // SAFETY: it is ours.
    let wait = move || unsafe { sys::cuStreamSynchronize(sound.get()) };
    let was_there = told.perform(move || twice(context, wait))?;
    stage.wait_for_another_tick();
    let of_told = told.perform(move || {
        let child = std::thread::spawn(move || twice(context, wait));
        child.join().unwrap_or_default()
    })?;
    // All begin before one of them is told. The last one makes no call but begins another one, behind that.
    let [first, second, silent] = [(); 3].map(|()| Actor::new());
    let of_untold = [first.perform(move || twice(context, wait))?, second.perform(move || twice(context, wait))?];
    let of_silent = silent.perform(move || {
        let child = std::thread::spawn(move || twice(context, wait));
        child.join().unwrap_or_default()
    })?;
    let later = Actor::new().perform(move || twice(context, wait))?;
    // Nobody knows who has begun these.
    let strangers = [by_stranger(move || twice(context, wait))?, by_stranger(move || twice(context, wait))?];
    // SAFETY: it is ours.
    let own = [0; 2].map(|_: i32| code(unsafe { sys::cuStreamSynchronize(sound.get()) }));
    Ok(json!({
        "was_there": was_there, "of_told": of_told, "of_untold": of_untold, "of_silent": of_silent, "later": later,
        "strangers": strangers, "own": own,
    }))
}

/// Calls whose errors programs ignore come first.
pub(super) fn ignored(stage: &Stage) -> Result<Value, GpuError> {
    let (lost, other, event) = (stream(1)?, stream(1)?, event()?);
    let (spare, module, mut kind) = (allocate(4096)?, module(KERNELS)?, 0_u32);
    let mut pinned = null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuMemAllocHost", unsafe { sys::cuMemAllocHost_v2(&raw mut pinned, 4096) })?;
    stage.leave(lost)?;
    stage.wait()?;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let calls = [
        // SAFETY: all are ours, and not used again.
        code(unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, spare) }),
        // SAFETY: as above.
        code(unsafe { sys::cuMemFree_v2(spare) }),
        // SAFETY: as above.
        code(unsafe { sys::cuEventDestroy_v2(event) }),
        // SAFETY: as above.
        code(unsafe { sys::cuStreamDestroy_v2(other) }),
        // SAFETY: as above.
        code(unsafe { sys::cuModuleUnload(module) }),
        // SAFETY: as above.
        code(unsafe { sys::cuMemFreeHost(pinned) }),
    ];
    Ok(json!({ "calls": calls, "told": stage.told() }))
}
