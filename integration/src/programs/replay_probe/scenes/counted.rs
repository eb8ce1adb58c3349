//! What a recovery cannot make again, whether it is there at a fault or no longer.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, Stage, beside, check};
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ptr::{null_mut, without_provenance_mut};

/// Resources of graphics as the simulated driver takes them: any numbers.
const RESOURCES: [usize; 2] = [0x7700, 0x7800];

/// Two resources of graphics that are mapped by one call, of which the second one is given up if `ends`.
fn resources(ends: bool) -> Result<(), GpuError> {
    let mut list = RESOURCES.map(without_provenance_mut);
    let count = u32::try_from(list.len()).unwrap_or(0);
    // SAFETY: there are so many.
    check("cuGraphicsMapResources", unsafe { sys::cuGraphicsMapResources(count, list.as_mut_ptr(), null_mut()) })?;
    for resource in list.into_iter().take(if ends { list.len() } else { 1 }) {
        // SAFETY: the simulated driver does nothing with it.
        check("cuGraphicsUnregisterResource", unsafe { sys::cuGraphicsUnregisterResource(resource) })?;
    }
    Ok(())
}

fn there(stage: &Stage, make: fn(bool) -> Result<(), GpuError>, ends: bool) -> Result<Value, GpuError> {
    make(ends)?;
    Ok(json!({ "found": beside::fault(stage)? }))
}

pub(super) fn with_resources(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, resources, false)
}

pub(super) fn after_resources(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, resources, true)
}
