//! How much memory an array takes: the driver says so of a twin to which memory is to be given later.
//!
//! To destroy an array waits for the GPU, and whoever makes one does not expect that. So the twin, which has no memory, stays,
//! and what the driver has said of it is remembered: a program that makes the same again and again asks once. Of many
//! different ones the later twins are destroyed.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{super::allocation::ABSURD, ALIGNMENT};
use crate::{
    cuda::{
        result::CUresult,
        types::{CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUdevice, CUmipmappedArray},
    },
    kept::objects::recipes::Layout,
};

/// `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const DEFERRED: u64 = 0x80;
/// Answers that are remembered, and twins that stay, at most.
const MOST: usize = 1024;

/// By layout, whether it is plain, and device.
static KNOWN: Mutex<BTreeMap<(Layout, bool, CUdevice), usize>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<(Layout, bool, CUdevice), usize>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_room() -> bool {
    known().len() < MOST
}

/// Bytes of such an array on the current device, `None` if the driver does not say, or wants it to begin at another place
/// than blocks of ours can.
pub(super) fn of(layout: &Layout, device: CUdevice, is_plain: bool) -> Option<usize> {
    let key = (*layout, is_plain, device);
    if let Some(size) = known().get(&key) {
        return Some(*size);
    }
    let mut asked = CUDA_ARRAY3D_DESCRIPTOR(layout.words);
    asked.0[4] |= DEFERRED;
    let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS([0; 4]);
    let answer =
        if is_plain { plain(&asked, device, &mut needs) } else { mipmapped(&asked, layout.levels, device, &mut needs) };
    let [size, alignment, ..] = needs.0;
    let size = usize::try_from(size).ok().filter(|size| (1..ABSURD).contains(size))?;
    if !answer.is_success() || alignment == 0 || !ALIGNMENT.is_multiple_of(alignment) {
        return None;
    }
    let mut known = known();
    if known.len() < MOST {
        known.insert(key, size);
    }
    Some(size)
}

fn plain(asked: &CUDA_ARRAY3D_DESCRIPTOR, device: CUdevice, needs: &mut CUDA_ARRAY_MEMORY_REQUIREMENTS) -> CUresult {
    let mut twin = CUarray(0);
    let made = driver!(array::cuArray3DCreate_v2(&raw mut twin, &raw const *asked));
    if !made.is_success() {
        return made;
    }
    let answer = driver!(array::cuArrayGetMemoryRequirements(&raw mut *needs, twin, device));
    if !is_room() {
        let _gone = driver!(array::cuArrayDestroy(twin));
    }
    answer
}

fn mipmapped(
    asked: &CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
    device: CUdevice,
    needs: &mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
) -> CUresult {
    let mut twin = CUmipmappedArray(0);
    let made = driver!(array::cuMipmappedArrayCreate(&raw mut twin, &raw const *asked, levels));
    if !made.is_success() {
        return made;
    }
    let answer = driver!(array::cuMipmappedArrayGetMemoryRequirements(&raw mut *needs, twin, device));
    if !is_room() {
        let _gone = driver!(array::cuMipmappedArrayDestroy(twin));
    }
    answer
}
