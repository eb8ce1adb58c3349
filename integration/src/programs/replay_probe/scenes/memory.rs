//! Memory of other kinds: constants, what the host has, and code that came from a file.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::beside::fault;
use super::{GpuError, Stage, WORDS, check, code, module, stream};
use crate::programs::gpu::{Argument, KERNELS, Kernel, Stream};
use crate::programs::replay_probe::{failed, last};
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, process, thread};

/// A module with constants and nothing else.
const IMAGE: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .const .align 4 .u32 scale[256] = {1, 2, 3, 4};
\0";

/// A module with a variable and nothing else, and one with a variable in a function, where no address is to be had.
const VARIABLE: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 scale[256] = {1, 2, 3, 4};
\0";
const INNER: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 scale[256] = {1, 2, 3, 4};
.visible .entry trap() { .global .align 4 .u32 inner; trap; ret; }
\0";

/// Address of what an image has, and a kernel has counted up, which was waited for.
fn counted(stage: &Stage, image: &str) -> Result<u64, GpuError> {
    let (module, mut address, mut size) = (module(image)?, 0, 0);
    // SAFETY: the results are variables of ours.
    let found = unsafe { sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut size, module, c"scale".as_ptr()) };
    check("cuModuleGetGlobal", found)?;
    stage.count(null_mut(), address)?;
    stage.gpu.synchronize()?;
    Ok(address)
}

/// What a program is told, and finds at an address.
fn found(stage: &Stage, address: u64) -> Result<Value, GpuError> {
    let told = stage.told();
    let words = stage.gpu.read(address, WORDS as usize)?;
    Ok(json!({ "told": told, "first": words[0] }))
}

/// The same of a program that says that it is at rest before the fault.
fn at_rest(stage: &Stage, image: &str) -> Result<Value, GpuError> {
    let address = counted(stage, image)?;
    let is_at_rest = last::rest();
    stage.wait()?;
    let mut heard = found(stage, address)?;
    heard["rest"] = json!(is_at_rest);
    Ok(heard)
}

/// A kernel writes constants, whose address the program has asked for.
pub(super) fn constants(stage: &Stage) -> Result<Value, GpuError> {
    at_rest(stage, IMAGE)
}

/// A kernel writes a variable.
pub(super) fn variables(stage: &Stage) -> Result<Value, GpuError> {
    at_rest(stage, VARIABLE)
}

/// It writes one beside another one that nobody can look for.
pub(super) fn variables_unread(stage: &Stage) -> Result<Value, GpuError> {
    at_rest(stage, INNER)
}

/// The program says nothing. What it loads last tells when the library has looked after all that it has done.
pub(super) fn variables_watched(stage: &Stage) -> Result<Value, GpuError> {
    let address = counted(stage, VARIABLE)?;
    module(VARIABLE)?;
    stage.wait()?;
    found(stage, address)
}

/// A function of a module of its own, and both.
fn function_of(name: &CStr) -> Result<(sys::CUmodule, Kernel), GpuError> {
    let (module, mut function) = (module(KERNELS)?, null_mut());
    // SAFETY: the result is a variable of ours.
    let found = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
    check("cuModuleGetFunction", found)?;
    Ok((module, Kernel(function)))
}

/// After a fault a function that takes nothing is launched and unloaded, and the next one has its handle: what a launch with
/// nothing to run answers, whether it has, and what that one has made of the address of a variable.
pub(super) fn handle_again(stage: &Stage) -> Result<Value, GpuError> {
    let address = counted(stage, VARIABLE)?;
    let heard = fault(stage)?;
    let (module, idle) = function_of(c"trap")?;
    let (mut places, none) = ([null_mut()], null_mut());
    // SAFETY: it takes no arguments, and there is nothing to run.
    let launched = unsafe { sys::cuLaunchKernel(idle.0, 0, 0, 0, 0, 0, 0, 0, null_mut(), places.as_mut_ptr(), none) };
    // SAFETY: nobody else has it.
    check("cuModuleUnload", unsafe { sys::cuModuleUnload(module) })?;
    let (_, counts) = function_of(c"increment")?;
    let arguments = [Argument::U64(address), Argument::U32(WORDS)];
    stage.gpu.launch_in(Stream(null_mut()), counts, WORDS, &arguments)?;
    // SAFETY: a context is current.
    let waited = code(unsafe { sys::cuCtxSynchronize() });
    let first = if waited == 0 { stage.gpu.read(address, WORDS as usize)?[0] } else { 0 };
    Ok(
        json!({ "heard": heard, "launched": code(launched), "again": counts.0 == idle.0, "waited": waited, "first": first }),
    )
}

/// How often a module is unloaded, and how much later each time, while another thread has its variables read.
const UNLOADED: u32 = 40;
const LATER: Duration = Duration::from_micros(500);

/// Modules end while the library reads their variables for another thread: what each end and a wait behind it answered, and
/// how many of them came before the other thread was through. There is no fault.
pub(super) fn unloaded_while_read(stage: &Stage) -> Result<Value, GpuError> {
    let (mut answers, mut met) = (Vec::new(), 0);
    for attempt in 0..UNLOADED {
        let (module, mut address, mut size) = (module(VARIABLE)?, 0, 0);
        // SAFETY: the results are variables of ours.
        let found = unsafe { sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut size, module, c"scale".as_ptr()) };
        check("cuModuleGetGlobal", found)?;
        stage.count(null_mut(), address)?;
        stage.gpu.synchronize()?;
        let [has_begun, is_over] = [const { AtomicBool::new(false) }; 2];
        thread::scope(|scope| {
            scope.spawn(|| {
                has_begun.store(true, Ordering::SeqCst);
                last::rest();
                is_over.store(true, Ordering::SeqCst);
            });
            while !has_begun.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            thread::park_timeout(attempt * LATER);
            met += u32::from(!is_over.load(Ordering::SeqCst));
            // SAFETY: nobody uses it any more.
            answers.push(code(unsafe { sys::cuModuleUnload(module) }));
            // SAFETY: waits.
            answers.push(code(unsafe { sys::cuCtxSynchronize() }));
        });
    }
    answers.sort_unstable();
    answers.dedup();
    Ok(json!({ "answers": answers, "met": met }))
}

/// Nobody has asked where the constants are.
pub(super) fn untouched_constants(stage: &Stage) -> Result<Value, GpuError> {
    module(IMAGE)?;
    stage.wait()?;
    Ok(json!({ "told": stage.told() }))
}

/// Work that writes to the host's memory is lost; then nothing is.
pub(super) fn host_memory(stage: &Stage) -> Result<Value, GpuError> {
    let mut pinned = null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuMemAllocHost", unsafe { sys::cuMemAllocHost_v2(&raw mut pinned, 1 << 16) })?;
    let stream = stream(1)?;
    stage.leave(stream)?;
    // SAFETY: the memory is longer than the copy.
    let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(pinned, stage.words, WORDS as usize * 4, stream) };
    check("cuMemcpyDtoHAsync", copied)?;
    stage.wait()?;
    let address = pinned.addr() as u64;
    let has = |ranges: &[[u64; 2]]| ranges.iter().any(|[base, size]| (*base..base + size).contains(&address));
    let told = stage.told();
    stage.wait()?;
    let after_another = last::in_doubt();
    let again = last::in_doubt();
    stage.wait()?;
    // SAFETY: it is ours.
    let sound = code(unsafe { sys::cuStreamSynchronize(stream) });
    Ok(json!({
        "told": told, "has_host": has(&after_another), "has_device": after_another.iter().any(|[base, size]| {
            (*base..base + size).contains(&stage.words)
        }),
        "is_same": after_another == again, "after_it_was_read": last::in_doubt().len(), "sound": sound,
    }))
}

/// The code came from a file, which is another one by the time of the fault.
pub(super) fn module_of_a_file(stage: &Stage) -> Result<Value, GpuError> {
    let path = env::temp_dir().join(format!("mps-replay-probe-{}.ptx", process::id()));
    let write = |text: &str| fs::write(&path, text.trim_end_matches('\0')).map_err(|error| failed("--scene", error));
    write(KERNELS)?;
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| failed("--scene", error))?;
    let (mut module, mut increment) = (null_mut(), null_mut());
    // SAFETY: the result is a variable of ours.
    check("cuModuleLoad", unsafe { sys::cuModuleLoad(&raw mut module, name.as_ptr()) })?;
    // SAFETY: as above.
    let found = unsafe { sys::cuModuleGetFunction(&raw mut increment, module, c"increment".as_ptr()) };
    check("cuModuleGetFunction", found)?;
    let count = || {
        let arguments = [Argument::U64(stage.others), Argument::U32(WORDS)];
        stage.gpu.launch_in(Stream(null_mut()), Kernel(increment), WORDS, &arguments)
    };
    count()?;
    stage.gpu.synchronize()?;
    write(IMAGE)?;
    stage.wait()?;
    let removed = fs::remove_file(&path).map_err(|error| failed("--scene", error));
    let told = stage.told();
    count()?;
    stage.gpu.synchronize()?;
    removed?;
    let words = stage.gpu.read(stage.others, WORDS as usize)?;
    Ok(json!({ "told": told, "first": words[0] }))
}
