//! Memory pools by handles that are asked for once: the default one, and an own one that is the device's current one.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::workload::pattern;
use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::check;
use crate::programs::memory_probe::pools::{
    allocate_from, attribute, current_pool, default_pool, free_and_wait, own_pool, set,
};
use cudarc::driver::sys::{self, CUmemPool_attribute_enum as Attribute};

/// Bytes of what lasts, and of what a round allocates and frees.
const SIZE: usize = 3 << 20;
const PIECE: usize = 100_000;
/// What is set: of the default pool, of the own one.
const THRESHOLDS: [u64; 2] = [16 << 20, 48 << 20];

/// Both pools, with a block of each.
pub(super) struct Pools {
    pools: [sys::CUmemoryPool; 2],
    blocks: [u64; 2],
}

fn copy_to(address: u64, bytes: &[u8]) -> Result<(), GpuError> {
    // SAFETY: the source is as long as the copy; the driver checks the destination.
    check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) })
}

fn is(address: u64, bytes: &[u8]) -> Result<bool, GpuError> {
    let mut found = vec![0_u8; bytes.len()];
    // SAFETY: the destination is as long as the copy; the driver checks the source.
    check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), address, bytes.len()) })?;
    Ok(found == bytes)
}

impl Pools {
    pub(super) fn new() -> Result<Self, GpuError> {
        let pools = [default_pool()?, own_pool()?];
        for (pool, threshold) in pools.into_iter().zip(THRESHOLDS) {
            set(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold)?;
            set(pool, Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0)?;
        }
        // SAFETY: it is a pool of the device.
        check("cuDeviceSetMemPool", unsafe { sys::cuDeviceSetMemPool(0, pools[1]) })?;
        let blocks = [allocate_from(pools[0], SIZE)?, allocate_from(pools[1], SIZE)?];
        for (block, seed) in blocks.into_iter().zip(90..) {
            copy_to(block, &pattern(SIZE, seed))?;
        }
        Ok(Self { pools, blocks })
    }

    /// What is wrong with them.
    pub(super) fn wrong(&self) -> Result<Vec<String>, GpuError> {
        let mut wrong = Vec::new();
        for (index, (pool, block)) in self.pools.into_iter().zip(self.blocks).enumerate() {
            let seed = u8::try_from(index).unwrap_or_default();
            if !is(block, &pattern(SIZE, 90 + seed))? {
                wrong.push(format!("a block of pool {index}"));
            }
            let piece = allocate_from(pool, PIECE)?;
            copy_to(piece, &pattern(PIECE, seed))?;
            if !is(piece, &pattern(PIECE, seed))? {
                wrong.push(format!("a new block of pool {index}"));
            }
            let used = attribute(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
            if used < u64::try_from(SIZE + PIECE).unwrap_or_default() {
                wrong.push(format!("pool {index} says that it uses {used} bytes"));
            }
            free_and_wait(piece)?;
            let set = [
                Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
            ];
            let found = set.map(|of| attribute(pool, of));
            if found != [Ok(THRESHOLDS[index]), Ok(0), Ok(1)] {
                wrong.push(format!("attributes of pool {index} are {found:?}"));
            }
        }
        if [default_pool()?, current_pool()?] != self.pools {
            wrong.push("pools have other handles".to_owned());
        }
        Ok(wrong)
    }
}
