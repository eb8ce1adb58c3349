//! How much memory an array takes: the driver says so of a twin to which memory is to be given later.
//!
//! To destroy an array waits for the GPU, and whoever makes one does not expect that. So the twin, which has no memory, stays,
//! and what the driver has said of it is remembered, also where that is of no use: a program that makes the same again and again
//! asks once, and one twin stays for each description. The twin of which the driver says nothing is destroyed, since it may say
//! something the next time, and so are later ones of many different descriptions.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{
    collections::{BTreeMap, btree_map::Entry},
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

/// Layout, whether it is plain, and device.
type Key = (Layout, bool, CUdevice);

/// Bytes of such arrays, `None` where blocks of ours are of no use for them.
static KNOWN: Mutex<BTreeMap<Key, Option<usize>>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<Key, Option<usize>>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it was not known yet, and is now.
fn is_new(key: Key, size: Option<usize>) -> bool {
    let mut known = known();
    let is_room = known.len() < MOST;
    match known.entry(key) {
        Entry::Vacant(place) if is_room => {
            place.insert(size);
            true
        }
        Entry::Vacant(_) | Entry::Occupied(_) => false,
    }
}

/// Bytes of such an array on the current device, `None` if the driver does not say, or wants it to begin at another place
/// than blocks of ours can.
pub(super) fn of(layout: &Layout, device: CUdevice, is_plain: bool) -> Option<usize> {
    let key = (*layout, is_plain, device);
    if let Some(size) = known().get(&key) {
        return *size;
    }
    let mut asked = CUDA_ARRAY3D_DESCRIPTOR(layout.words);
    asked.0[4] |= DEFERRED;
    let twin = Twin::new(&asked, layout.levels, is_plain)?;
    let said = twin.needs(device).map(|[size, alignment, ..]| {
        let size = usize::try_from(size).ok().filter(|size| (1..ABSURD).contains(size))?;
        (alignment > 0 && ALIGNMENT.is_multiple_of(alignment)).then_some(size)
    });
    let stays = said.is_some_and(|size| is_new(key, size));
    if !stays {
        twin.end();
    }
    said.flatten()
}

/// An array without memory.
#[derive(Clone, Copy, Debug)]
enum Twin {
    Plain(CUarray),
    Mipmapped(CUmipmappedArray),
}

impl Twin {
    fn new(asked: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32, is_plain: bool) -> Option<Self> {
        let (mut array, mut mipmapped) = (CUarray(0), CUmipmappedArray(0));
        if is_plain {
            let made = driver!(array::cuArray3DCreate_v2(&raw mut array, &raw const *asked));
            made.is_success().then_some(Self::Plain(array))
        } else {
            let made = driver!(array::cuMipmappedArrayCreate(&raw mut mipmapped, &raw const *asked, levels));
            made.is_success().then_some(Self::Mipmapped(mipmapped))
        }
    }

    /// What the driver says of its memory: bytes, and what it begins at multiples of.
    fn needs(self, device: CUdevice) -> Option<[u64; 4]> {
        let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS([0; 4]);
        let into = &raw mut needs;
        let answer: CUresult = match self {
            Self::Plain(array) => driver!(array::cuArrayGetMemoryRequirements(into, array, device)),
            Self::Mipmapped(array) => driver!(array::cuMipmappedArrayGetMemoryRequirements(into, array, device)),
        };
        answer.is_success().then_some(needs.0)
    }

    fn end(self) {
        let _gone = match self {
            Self::Plain(array) => driver!(array::cuArrayDestroy(array)),
            Self::Mipmapped(array) => driver!(array::cuMipmappedArrayDestroy(array)),
        };
    }
}
