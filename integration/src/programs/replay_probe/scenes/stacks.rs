//! Stacks after a recovery: what the program is told of their limit, and a kernel of which nobody knows how much it needs.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{Argument, GpuError, Kernel, Stage, Stream, WORDS, check};
use cudarc::driver::sys::{self, CUlimit_enum::CU_LIMIT_STACK_SIZE};
use serde_json::{Value, json};
use std::ptr::null_mut;

const DEEP: &str = concat!(include_str!("deep.ptx"), "\0");

fn limit() -> Result<usize, GpuError> {
    let mut bytes = 0;
    // SAFETY: the result is a variable of ours.
    check("cuCtxGetLimit", unsafe { sys::cuCtxGetLimit(&raw mut bytes, CU_LIMIT_STACK_SIZE) })?;
    Ok(bytes)
}

fn deep() -> Result<Kernel, GpuError> {
    let (mut module, mut kernel) = (null_mut(), null_mut());
    // SAFETY: the result is a variable of ours, and the text ends with a NUL.
    check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, DEEP.as_ptr().cast()) })?;
    // SAFETY: as above.
    let found = unsafe { sys::cuModuleGetFunction(&raw mut kernel, module, c"deep".as_ptr()) };
    check("cuModuleGetFunction", found)?;
    Ok(Kernel(kernel))
}

/// It adds 28 to each word.
fn add(stage: &Stage, kernel: Kernel) -> Result<u32, GpuError> {
    let arguments = [Argument::U64(stage.others), Argument::U32(WORDS)];
    stage.gpu.launch_in(Stream(null_mut()), kernel, WORDS, &arguments)?;
    stage.gpu.synchronize()?;
    Ok(stage.gpu.read(stage.others, WORDS as usize)?[0])
}

/// The program gets such a kernel after the recovery.
pub(super) fn later(stage: &Stage) -> Result<Value, GpuError> {
    let before = limit()?;
    stage.wait()?;
    let after = limit()?;
    let told = stage.told();
    let word = add(stage, deep()?)?;
    Ok(json!({ "limits": [before, after, limit()?], "told": told, "word": word }))
}

/// It has one before.
pub(super) fn before(stage: &Stage) -> Result<Value, GpuError> {
    let kernel = deep()?;
    let (before, first) = (limit()?, add(stage, kernel)?);
    stage.wait()?;
    let (after, told) = (limit()?, stage.told());
    let word = add(stage, kernel)?;
    Ok(json!({ "limits": [before, after, limit()?], "told": told, "word": word - first }))
}

/// The program sets the limit itself after the recovery, and before.
pub(super) fn set(stage: &Stage) -> Result<Value, GpuError> {
    // SAFETY: sets a limit of the current context.
    let set = |bytes| check("cuCtxSetLimit", unsafe { sys::cuCtxSetLimit(CU_LIMIT_STACK_SIZE, bytes) });
    set(2048)?;
    let before = limit()?;
    stage.wait()?;
    let after = limit()?;
    let told = stage.told();
    set(4096)?;
    let word = add(stage, deep()?)?;
    Ok(json!({ "limits": [before, after, limit()?], "told": told, "word": word }))
}
