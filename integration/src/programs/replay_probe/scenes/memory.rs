//! Memory of other kinds: constants, and what the host has.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, Stage, WORDS, check, code, module, stream};
use crate::programs::replay_probe::last;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ptr::null_mut;

/// A module with constants and nothing else.
const IMAGE: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .const .align 4 .u32 scale[256] = {1, 2, 3, 4};
\0";

/// A kernel writes constants, whose address the program has asked for, and is waited for.
pub(super) fn constants(stage: &Stage) -> Result<Value, GpuError> {
    let (module, mut address, mut size) = (module(IMAGE)?, 0, 0);
    // SAFETY: the results are variables of ours.
    let found = unsafe { sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut size, module, c"scale".as_ptr()) };
    check("cuModuleGetGlobal", found)?;
    stage.count(null_mut(), address)?;
    stage.gpu.synchronize()?;
    stage.wait()?;
    let told = stage.told();
    let words = stage.gpu.read(address, WORDS as usize)?;
    Ok(json!({ "told": told, "first": words[0] }))
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
