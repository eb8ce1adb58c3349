//! To which context and which pool memory belongs, by its attributes, and the number that tells it from all other memory.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{allocate, check, free, pools};
use crate::programs::gpu::GpuError;
use cudarc::driver::sys::{self, CUpointer_attribute as Attribute};
use serde_json::{Value, json};
use std::ffi::c_void;

/// Bytes of each piece.
const SIZE: usize = 4096;

/// What the driver says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::programs) struct Belongs {
    /// The context's handle.
    pub(in crate::programs) context: u64,
    /// The pool's handle, 0 for none.
    pub(in crate::programs) pool: u64,
    /// A number of the memory's own.
    pub(in crate::programs) buffer: u64,
    /// Whether `cuIpcGetMemHandle` can be asked for it.
    pub(in crate::programs) is_legacy: bool,
}

const ATTRIBUTES: [Attribute; 4] = [
    Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
    Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
    Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
];

/// What is said of an address, one by one and at once, which must be the same.
pub(in crate::programs) fn of(address: u64) -> Result<Belongs, GpuError> {
    let (mut alone, mut together) = ([0_u64; 4], [0_u64; 4]);
    for (value, attribute) in alone.iter_mut().zip(ATTRIBUTES) {
        // SAFETY: the variable has room for these attributes, which have 64 bits at most.
        let answer = unsafe { sys::cuPointerGetAttribute((&raw mut *value).cast(), attribute, address) };
        check("cuPointerGetAttribute", answer)?;
    }
    let mut wanted = ATTRIBUTES;
    let mut places = together.each_mut().map(|value| (&raw mut *value).cast::<c_void>());
    // SAFETY: both lists have four entries, and each place has room for its attribute.
    let answer = unsafe { sys::cuPointerGetAttributes(4, wanted.as_mut_ptr(), places.as_mut_ptr(), address) };
    check("cuPointerGetAttributes", answer)?;
    if alone != together {
        let name = format!("one by one {alone:?}, at once {together:?}");
        return Err(GpuError { call: "cuPointerGetAttributes", code: 0, name });
    }
    let [context, pool, buffer, is_legacy] = alone;
    Ok(Belongs { context, pool, buffer, is_legacy: is_legacy & 0xff != 0 })
}

/// What the driver answers about memory that is gone beside memory that is there, and about a handle of memory that has none:
/// each attribute, all of them at once with what they say then, the range, and the handle.
fn of_none(there: u64, gone: u64) -> Value {
    let mut alone = [0_u64; 4];
    let codes: Vec<u32> = alone
        .iter_mut()
        .zip(ATTRIBUTES)
        // SAFETY: the variable has room for these attributes.
        .map(|(value, of)| unsafe { sys::cuPointerGetAttribute((&raw mut *value).cast(), of, gone) } as u32)
        .collect();
    let (mut together, mut wanted) = ([0xff_u64; 4], ATTRIBUTES);
    let mut places = together.each_mut().map(|value| (&raw mut *value).cast::<c_void>());
    // SAFETY: both lists have four entries, and each place has room for its attribute.
    let answer = unsafe { sys::cuPointerGetAttributes(4, wanted.as_mut_ptr(), places.as_mut_ptr(), gone) };
    let (mut base, mut size, mut handle) = (0, 0, 0);
    // SAFETY: the results are variables of ours.
    let range = unsafe { sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, gone) };
    let place = usize::try_from(there).unwrap_or_default();
    // SAFETY: as above; the address is not looked at by anybody else.
    let retained =
        unsafe { sys::cuMemRetainAllocationHandle(&raw mut handle, std::ptr::with_exposed_provenance_mut(place)) };
    json!({
        "alone": codes, "together": [answer as u32, together[0], together[1], together[2]], "range": range as u32,
        "handle": retained as u32,
    })
}

/// How many of the lowest bits of addresses are zero, up to those of 2 MiB, by size; not the same on every driver.
pub(super) fn alignments() -> Result<Value, GpuError> {
    let mut found = serde_json::Map::new();
    // Something small before it, so that a piece which can begin anywhere does.
    let mut all = vec![allocate(SIZE)?];
    for size in [SIZE, 64 << 10, 1 << 20, (1 << 20) + SIZE, 2 << 20, 3 << 20, 20 << 20] {
        let address = allocate(size)?;
        found.insert(size.to_string(), json!(address.trailing_zeros().min(21)));
        all.extend([address, allocate(SIZE)?]);
    }
    all.into_iter().try_for_each(|address| check("cuMemFree", free(address)))?;
    Ok(Value::Object(found))
}

/// Memory of the host's, of the current context.
pub(in crate::programs) fn pinned() -> Result<*mut c_void, GpuError> {
    let mut address = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut address, SIZE, 0) })?;
    Ok(address)
}

/// Memory of three kinds: whether each is the current context's, of which pool it is, whether its handle can be had, and
/// whether no two have one number.
pub(super) fn work() -> Result<Value, GpuError> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) })?;
    let (pool, host) = (pools::default_pool()?, pinned()?);
    let addresses = [allocate(SIZE)?, pools::allocate_from(pool, SIZE)?, host.addr() as u64];
    let mut said = Vec::new();
    for address in addresses {
        said.push(of(address)?);
    }
    let told: Vec<Value> = said
        .iter()
        .map(|of| {
            let of_pool = if of.pool == 0 { json!(null) } else { json!(of.pool == pool.addr() as u64) };
            let of_context = if of.context == 0 { json!(null) } else { json!(of.context == context.addr() as u64) };
            json!([of_context, of_pool, of.is_legacy])
        })
        .collect();
    let buffers: std::collections::BTreeSet<u64> = said.iter().map(|of| of.buffer).collect();
    let beside = allocate(SIZE)?;
    check("cuMemFree", free(addresses[0]))?;
    let of_none = of_none(beside, addresses[0]);
    check("cuMemFree", free(beside))?;
    pools::free_and_wait(addresses[1])?;
    // SAFETY: allocated above, and not used again.
    check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(host) })?;
    Ok(json!({ "told": told, "numbers": buffers.len(), "of_none": of_none }))
}
