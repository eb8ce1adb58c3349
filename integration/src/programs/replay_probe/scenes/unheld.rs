//! Calls about memory that return although a stream does not go on before the program says so.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::ordered::{allocate, free, free_bytes, wait};
use super::{GpuError, Stage, check, stream};
use crate::programs::memory_probe::pools;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Bytes of a piece: as much as the pool of its own may have.
const SIZE: usize = 64 << 20;
/// How long a stream is held at most, when whoever is to let it go waits for it.
const HELD: Duration = Duration::from_secs(10);

/// Holds streams by a host function in them.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// Waits until the gate is opened, and opens it after [`HELD`].
extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: the gate outlives the streams that it holds, each of which is waited for.
    let gate = unsafe { &*gate.cast::<Gate>() };
    let is_open = gate.is_open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    drop(gate.opened.wait_timeout_while(is_open, HELD, |is_open| !*is_open));
    gate.open();
}

impl Gate {
    /// Holds a stream from here on.
    fn hold(&self, of: sys::CUstream) -> Result<(), GpuError> {
        let gate = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: see `pass`.
        check("cuLaunchHostFunc", unsafe { sys::cuLaunchHostFunc(of, Some(pass), gate) })
    }

    /// Lets all go; whether they were held until now.
    fn open(&self) -> bool {
        let mut is_open = self.is_open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let was_held = !std::mem::replace(&mut *is_open, true);
        self.opened.notify_all();
        was_held
    }
}

/// A piece of a pool that may have no other one is freed in a stream that is held, and asked for in another one.
fn behind_another() -> Result<bool, GpuError> {
    let (gate, own, other, pool) = (Gate::default(), stream(1)?, stream(1)?, pools::own_pool()?);
    let from_pool = |of| {
        let mut address = 0;
        // SAFETY: the result is a variable of ours.
        let answer = unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, SIZE, pool, of) };
        check("cuMemAllocFromPoolAsync", answer).map(|()| address)
    };
    let first = from_pool(own)?;
    gate.hold(own)?;
    free(own, first)?;
    let second = from_pool(other)?;
    let was_held = gate.open();
    free(other, second)?;
    wait(own)?;
    wait(other)?;
    // SAFETY: nothing of it is used any more.
    check("cuMemPoolDestroy", unsafe { sys::cuMemPoolDestroy(pool) })?;
    Ok(was_held)
}

/// Memory is freed while a stream is captured, and the program asks how much is free while another stream is held.
fn asked() -> Result<bool, GpuError> {
    let (gate, own, captured) = (Gate::default(), stream(1)?, stream(1)?);
    let mut address = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, SIZE) })?;
    let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: it is ours.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(captured, relaxed) })?;
    // SAFETY: it is ours and not used again.
    check("cuMemFree", unsafe { sys::cuMemFree_v2(address) })?;
    let mut graph = null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(captured, &raw mut graph) })?;
    // SAFETY: nobody else has it.
    check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })?;
    gate.hold(own)?;
    free_bytes()?;
    let piece = allocate(captured, SIZE)?;
    let was_held = gate.open();
    free(captured, piece)?;
    wait(captured)?;
    wait(own)?;
    Ok(was_held)
}

/// Memory of one context is freed in a stream of another one, which ends: whether it is free afterwards.
fn freed_in_an_ended_context() -> Result<bool, GpuError> {
    let mut address = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, SIZE) })?;
    let with_it = free_bytes()?;
    let mut context = null_mut();
    // SAFETY: the result is a variable of ours; no parameters.
    check("cuCtxCreate", unsafe { sys::cuCtxCreate_v4(&raw mut context, null_mut(), 0, 0) })?;
    free(stream(1)?, address)?;
    // SAFETY: it is ours, and current; the one before is current then.
    check("cuCtxDestroy", unsafe { sys::cuCtxDestroy_v2(context) })?;
    Ok(free_bytes()? > with_it + SIZE / 2)
}

/// All of them.
pub(super) fn by_a_stream(_stage: &Stage) -> Result<Value, GpuError> {
    Ok(json!({ "behind_another": behind_another()?, "asked": asked()?, "freed": freed_in_an_ended_context()? }))
}
