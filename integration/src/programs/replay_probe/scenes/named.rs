//! A program that has contexts by the driver's private tables: handles of primary ones without having retained them, as
//! cudart has of every GPU, and a thread's current one, as cuBLAS has it.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and one of a private table")]

use super::beside::fault;
use super::{Actor, GpuError, Stage, check, code, count_of, current, enter, second_context};
use crate::programs::memory_probe::allocate;
use crate::programs::replay_probe::failed;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::thread;
use std::time::Duration;

/// The table that cudart gets its contexts by, and the place of the function there.
const CUDART: [u8; 16] = *b"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9";
const PRIMARY: usize = 2;
const BYTES: usize = 4096;
/// Between two looks whether a test wants the program to go on.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

type Primary = unsafe extern "C" fn(*mut sys::CUcontext, c_int) -> u32;

/// The table that cuBLAS asks for a thread's current context, and the functions' places there.
const CURRENT: [u8; 16] = *b"\x42\xd8\x5a\x81\x23\xf6\xcb\x47\x82\x98\xf6\xe7\x8a\x3a\xec\xdc";
const SET: usize = 1;
const GET: usize = 2;

type Set = unsafe extern "C" fn(sys::CUcontext) -> u32;
type Get = unsafe extern "C" fn(*mut sys::CUcontext) -> u32;

/// A function of a private table.
fn private(table: &[u8; 16], place: usize) -> Result<*const c_void, GpuError> {
    let mut start = null();
    // SAFETY: the result is a variable of ours, the name has sixteen bytes.
    check("cuGetExportTable", unsafe { sys::cuGetExportTable(&raw mut start, table.as_ptr().cast()) })?;
    // SAFETY: the driver has just given the table of this name, which has the function there.
    let function = unsafe { start.cast::<*const c_void>().wrapping_add(place).read() };
    if function.is_null() { Err(failed("cuGetExportTable", "a table without the function")) } else { Ok(function) }
}

/// What [`private_current`] has of a thread: both of the table's functions.
#[derive(Clone, Copy)]
struct Own {
    set: Set,
    get: Get,
}

impl Own {
    fn new() -> Result<Self, GpuError> {
        let (set, get) = (private(&CURRENT, SET)?, private(&CURRENT, GET)?);
        // SAFETY: the functions' types.
        let set = unsafe { std::mem::transmute::<*const c_void, Set>(set) };
        // SAFETY: as above.
        let get = unsafe { std::mem::transmute::<*const c_void, Get>(get) };
        Ok(Self { set, get })
    }

    /// What is current by the table, and by the public function: whether these are the contexts that were there.
    fn now(self, contexts: &[usize; 2]) -> Value {
        let mut private = null_mut();
        // SAFETY: the result is a variable of ours.
        let answer = unsafe { (self.get)(&raw mut private) };
        let named = |context: sys::CUcontext| match context.addr() {
            0 => json!("none"),
            context => json!(contexts.iter().position(|of| *of == context)),
        };
        json!([answer, named(private), current().map_or_else(|error| json!(error.to_string()), named)])
    }

    /// Makes another one current by the table.
    fn enter(self, context: usize) -> u32 {
        // SAFETY: it is retained until the process ends.
        unsafe { (self.set)(std::ptr::with_exposed_provenance_mut(context)) }
    }
}

/// Threads that ask the table for their current context, and set it there: one that was there before the fault, and one
/// that begins afterwards.
pub(super) fn private_current(stage: &Stage) -> Result<Value, GpuError> {
    let own = Own::new()?;
    let contexts = [current()?.expose_provenance(), second_context()?.expose_provenance()];
    let actor = Actor::new();
    let begun = actor.perform(move || own.now(&contexts))?;
    let set = actor.perform(move || json!([own.enter(contexts[1]), own.now(&contexts)]))?;
    let found = fault(stage)?;
    let here = own.now(&contexts);
    let there = actor.perform(move || own.now(&contexts))?;
    let later = Actor::new();
    let fresh = later.perform(move || own.now(&contexts))?;
    let by_the_table = later.perform(move || json!([own.enter(contexts[0]), own.now(&contexts)]))?;
    let by_the_function = later.perform(move || {
        let entered = enter(std::ptr::with_exposed_provenance_mut(contexts[1]));
        json!([entered.is_ok(), own.now(&contexts)])
    })?;
    let left = later.perform(move || json!([own.enter(0), own.now(&contexts)]))?;
    Ok(json!({
        "begun": begun, "set": set, "found": found, "here": here, "there": there, "fresh": fresh,
        "by_the_table": by_the_table, "by_the_function": by_the_function, "left": left,
    }))
}

/// The handle of a device's primary context, by cudart's way.
fn handle(device: c_int) -> Result<sys::CUcontext, GpuError> {
    let function = private(&CUDART, PRIMARY)?;
    // SAFETY: the function's type.
    let function = unsafe { std::mem::transmute::<*const c_void, Primary>(function) };
    let mut context = null_mut();
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { function(&raw mut context, device) };
    if answer == 0 { Ok(context) } else { Err(failed("a primary context's handle", answer)) }
}

/// Whether a device has a primary context.
fn is_active(device: c_int) -> Result<bool, GpuError> {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    // SAFETY: the results are variables of ours.
    let answer = unsafe { sys::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) };
    check("cuDevicePrimaryCtxGetState", answer)?;
    Ok(active != 0)
}

/// Waits for the file that a test names, if it names one.
fn wait_to_go() {
    if let Some(go) = std::env::var_os("MPS_PROBE_GO") {
        while !Path::new(&go).exists() {
            thread::park_timeout(BETWEEN_LOOKS);
        }
    }
}

/// A fault on the one GPU that it uses, and then it uses the other one by the handle that it has had all the while.
pub(super) fn named_contexts(stage: &Stage) -> Result<Value, GpuError> {
    wait_to_go();
    let (first, named) = (current()?, [handle(0)?, handle(1)?]);
    enter(named[1])?;
    // SAFETY: a context is current, which is not there.
    let absent = code(unsafe { sys::cuCtxSynchronize() });
    enter(first)?;
    let (before, early) = (is_active(1)?, count_of());
    let found = fault(stage)?;
    let after = is_active(1)?;
    let again = [handle(0)? == named[0], handle(1)? == named[1]];
    let retained = second_context()?;
    enter(named[1])?;
    let words = allocate(BYTES)?;
    stage.gpu.clear(words, BYTES)?;
    let is_used = stage.gpu.read(words, BYTES / 4)?.iter().all(|word| *word == 0);
    enter(first)?;
    // SAFETY: it was retained once.
    check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(1) })?;
    let is_left = is_active(1)?;
    let is_the_same = [first == named[0], retained == named[1]];
    Ok(json!({
        "absent": absent, "early": early, "found": found, "active": [before, after, is_left],
        "the_same": is_the_same, "again": again, "used": is_used,
    }))
}
