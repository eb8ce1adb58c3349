//! What a program is told of its objects after faults, and what it has set between them: the same as before.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::beside::fault;
use super::{GpuError, Stage, check, code, current, enter, event, module, second_context, stream};
use crate::programs::memory_probe::{allocate, belongs, pools};
use cudarc::driver::sys::{self, CUmemPool_attribute_enum as Attribute};
use serde_json::{Value, json};
use std::ffi::c_ulonglong;
use std::ptr::null_mut;

/// Faults that are recovered from, one after the other.
const FAULTS: usize = 2;
const SIZE: usize = 4096;
/// A piece of memory that has pages for itself.
const PIECE: usize = 40 << 20;
/// Where no driver has memory.
const NOWHERE: u64 = 0x1234_5600_0000;
/// A module with a variable and nothing else.
const VARIABLE: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 scale[4];
\0";

fn host() -> Result<u64, GpuError> {
    belongs::pinned().map(|address| address.addr() as u64)
}

fn variable() -> Result<u64, GpuError> {
    let (module, mut address, mut size) = (module(VARIABLE)?, 0, 0);
    // SAFETY: the results are variables of ours.
    let found = unsafe { sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut size, module, c"scale".as_ptr()) };
    check("cuModuleGetGlobal", found)?;
    Ok(address)
}

/// What a stream writes to a variable by one operation after each of two faults, and whether its window of access is said to begin
/// there, which was set before them.
pub(super) fn operations(stage: &Stage) -> Result<Value, GpuError> {
    const VALUE: u64 = 7;
    const WINDOW: sys::CUlaunchAttributeID = sys::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    let (address, stream) = (variable()?, stream(1)?);
    // SAFETY: zeros are a window of nothing, and an operation of no kind.
    let (mut value, mut operation): (sys::CUlaunchAttributeValue, sys::CUstreamBatchMemOpParams) =
        unsafe { std::mem::zeroed() };
    value.accessPolicyWindow.base_ptr = std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
    // SAFETY: all are ours, and the results variables of ours, here and below.
    check("cuStreamSetAttribute", unsafe { sys::cuStreamSetAttribute(stream, WINDOW, &raw const value) })?;
    let mut heard = Vec::new();
    for fault_number in 0..FAULTS as u64 {
        let found = fault(stage)?;
        operation.writeValue.operation = sys::CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_64;
        operation.writeValue.address = address;
        operation.writeValue.__bindgen_anon_1.value64 = VALUE + fault_number;
        // SAFETY: as above.
        let written = code(unsafe { sys::cuStreamBatchMemOp_v2(stream, 1, &raw mut operation, 0) });
        // SAFETY: as above.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })?;
        // SAFETY: as above.
        check("cuStreamGetAttribute", unsafe { sys::cuStreamGetAttribute(stream, WINDOW, &raw mut value) })?;
        // SAFETY: it is of that attribute.
        let is_there = unsafe { value.accessPolicyWindow.base_ptr }.addr() as u64 == address;
        heard.push(json!([found, written, stage.gpu.read(address, 1)?[0], is_there]));
    }
    Ok(json!(heard))
}

/// Memory of four kinds, each with what it is told of before any fault and after each: which context's and pool's it is is
/// the same, and no number is that of other memory.
pub(super) fn pointers(stage: &Stage) -> Result<Value, GpuError> {
    let (context, pool) = (current()?.addr() as u64, pools::default_pool()?);
    let addresses = [allocate(SIZE)?, pools::allocate_from(pool, SIZE)?, host()?, variable()?];
    let mut numbers = Vec::new();
    let mut all = Vec::new();
    for round in 0..=FAULTS {
        if round > 0 {
            fault(stage)?;
        }
        let later = host()?;
        let mut told = Vec::new();
        for address in addresses.into_iter().chain([later]) {
            let of = belongs::of(address)?;
            let of_pool = if of.pool == 0 { json!(null) } else { json!(of.pool == pool.addr() as u64) };
            let of_context = if of.context == 0 { json!(null) } else { json!(of.context == context) };
            told.push(json!([of_context, of_pool, of.is_legacy]));
            numbers.push((of.buffer, address));
        }
        all.push(told);
    }
    let is_of_two = |(buffer, address): &(u64, u64)| numbers.iter().any(|(of, at)| of == buffer && at != address);
    Ok(json!({ "told": all, "shared": numbers.iter().filter(|number| is_of_two(number)).count() }))
}

/// Addresses where there is no memory: their number before a fault and after it.
pub(super) fn nowhere(stage: &Stage) -> Result<Value, GpuError> {
    let number = || {
        let mut attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID;
        let mut number: c_ulonglong = u64::MAX;
        let mut place = (&raw mut number).cast();
        // SAFETY: the result is a variable of ours, as large as the attribute.
        let told = unsafe { sys::cuPointerGetAttributes(1, &raw mut attribute, &raw mut place, NOWHERE) };
        json!([code(told), number])
    };
    let before = number();
    let found = fault(stage)?;
    Ok(json!({ "found": found, "numbers": [before, number()] }))
}

/// A pool is destroyed while some of its memory is there, and another one has its handle: of which pool that memory is said to
/// be, and what the other one uses before and after it is freed.
pub(super) fn pools_with_one_handle(_stage: &Stage) -> Result<Value, GpuError> {
    let used = |pool| pools::attribute(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    let first = pools::own_pool()?;
    let old = pools::allocate_from(first, SIZE)?;
    // SAFETY: it is ours; what was allocated from it stays.
    check("cuMemPoolDestroy", unsafe { sys::cuMemPoolDestroy(first) })?;
    let second = pools::own_pool()?;
    let of = belongs::of(old)?.pool;
    let before = used(second)?;
    pools::free_and_wait(old)?;
    let after = used(second)?;
    let taken = pools::allocate_from(second, SIZE).map_or_else(|error| error.code, |_| 0);
    Ok(json!({ "is_same": first == second, "pool": of, "used": [before, after], "taken": taken }))
}

/// A pool of the program's own that is told to keep what it has: what it has in sum and at most, by pieces of memory, with one
/// that is used, with none, when what was most begins anew, and when it is trimmed.
pub(super) fn reserved(_stage: &Stage) -> Result<Value, GpuError> {
    let pool = pools::own_pool()?;
    let told = || {
        let of = |attribute| pools::attribute(pool, attribute).map(|bytes| bytes.div_ceil(PIECE as u64));
        let reserved = of(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let most = of(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?;
        Ok::<_, GpuError>(json!([reserved, most, of(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?]))
    };
    pools::set(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
    let address = pools::allocate_from(pool, PIECE)?;
    let used = told()?;
    pools::free_and_wait(address)?;
    let kept = told()?;
    pools::set(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
    let anew = told()?;
    // SAFETY: it is ours.
    check("cuMemPoolTrimTo", unsafe { sys::cuMemPoolTrimTo(pool, 0) })?;
    let trimmed = told()?;
    pools::set(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)?;
    Ok(json!({ "used": used, "kept": kept, "anew": anew, "trimmed": trimmed, "all_anew": told()? }))
}

fn context_id(of: sys::CUcontext) -> Result<u64, GpuError> {
    let mut id: c_ulonglong = 0;
    // SAFETY: the result is a variable of ours.
    check("cuCtxGetId", unsafe { sys::cuCtxGetId(of, &raw mut id) })?;
    Ok(id)
}

fn stream_id(of: sys::CUstream) -> Result<u64, GpuError> {
    let mut id: c_ulonglong = 0;
    // SAFETY: the result is a variable of ours.
    check("cuStreamGetId", unsafe { sys::cuStreamGetId(of, &raw mut id) })?;
    Ok(id)
}

/// Numbers of the context and of streams: the same after each fault, and never one that another stream had.
pub(super) fn ids(stage: &Stage) -> Result<Value, GpuError> {
    let context = current()?;
    let kept = [null_mut(), std::ptr::without_provenance_mut(2), stream(1)?, stream(1)?];
    let told = || kept.iter().map(|of| stream_id(*of)).collect::<Result<Vec<_>, _>>();
    let of_context = || Ok::<_, GpuError>([context_id(context)?, context_id(null_mut())?]);
    let (before, context_before) = (told()?, of_context()?);
    let mut others = Vec::new();
    let (mut are_same, mut is_same) = (true, true);
    for round in 0..=FAULTS {
        if round > 0 {
            fault(stage)?;
        }
        let other = stream(1)?;
        others.push(stream_id(other)?);
        are_same &= told()? == before && stream_id(other)? == others[round];
        is_same &= of_context()? == context_before;
        // SAFETY: made above, and not used again.
        check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(other) })?;
    }
    let mut all = [before, others].concat();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    let is_context = context_before[0] == context_before[1];
    Ok(json!({ "streams": are_same, "context": [is_same, is_context], "twice": count - all.len() }))
}

/// The current context enables access to another one's memory, or disables it.
fn enable(owner: sys::CUcontext) -> u32 {
    // SAFETY: it is retained until the process ends.
    code(unsafe { sys::cuCtxEnablePeerAccess(owner, 0) })
}

fn disable(owner: sys::CUcontext) -> u32 {
    // SAFETY: as above.
    code(unsafe { sys::cuCtxDisablePeerAccess(owner) })
}

/// Two GPUs. The first one's context may reach the other one's memory; the other one's may not any longer, but has been
/// given the first one's pool. After each fault both are as they were.
pub(super) fn peers(stage: &Stage) -> Result<Value, GpuError> {
    let (first, other) = (current()?, second_context()?);
    let enabled = enable(other);
    enter(other)?;
    let changed = [enable(first), disable(first)];
    let access = sys::CUmemAccessDesc_st {
        location: sys::CUmemLocation_st { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 1 },
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: one description.
    let given = code(unsafe { sys::cuMemPoolSetAccess(pools::default_pool()?, &raw const access, 1) });
    enter(first)?;
    let mut after = Vec::new();
    for _ in 0..FAULTS {
        let found = fault(stage)?;
        let again = enable(other);
        enter(other)?;
        after.push(json!([found, again, disable(first), enable(first), disable(first)]));
        enter(first)?;
    }
    Ok(json!({ "enabled": enabled, "changed": changed, "given": given, "after": after }))
}

/// Memory is freed in the order of a stream of another context than the current one: it is let go of when its time has
/// come, and nothing is said to be wrong.
pub(super) fn freed_elsewhere(stage: &Stage) -> Result<Value, GpuError> {
    let (first, other) = (current()?, second_context()?);
    enter(other)?;
    let (theirs, address, mark) = (stream(1)?, allocate(SIZE)?, event()?);
    // SAFETY: both are ours.
    check("cuEventRecord", unsafe { sys::cuEventRecord(mark, theirs) })?;
    enter(first)?;
    // SAFETY: it is ours and is not used again.
    let freed = code(unsafe { sys::cuMemFreeAsync(address, theirs) });
    // SAFETY: it is ours.
    let waited = code(unsafe { sys::cuStreamSynchronize(theirs) });
    // SAFETY: the driver says if it is freed already.
    let again = code(unsafe { sys::cuMemFreeAsync(address, theirs) });
    Ok(json!({ "freed": freed, "waited": waited, "again": again, "found": fault(stage)? }))
}
