//! Structures with addresses of the GPU in them, or with arrays: those of moved variables, and the handles of arrays, are
//! translated in a copy, and back where the driver has written them.

use super::{Launched, Pointee, Untranslatable};
use crate::cuda::{
    moved, names,
    types::{
        CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMSET_NODE_PARAMS, CUDA_RESOURCE_DESC,
        CUdeviceptr_listed, CUkernelNodeAttrValue, CUstreamAttrValue, CUstreamBatchMemOpParams, Key as _, c_uint,
    },
};

/// Which words of a structure are addresses, of the host's memory where that is meant.
pub(crate) trait Addresses {
    /// The words.
    const PLACES: &[usize];
    /// Words that are handles of arrays, each where the word before it has this value in its lower half; else it is
    /// nobody's, or an address.
    const ARRAYS: &[(usize, usize, &[u64])] = &[];
}

// Source and destination, each once for the host or wherever the address says, and once for the device.
impl Addresses for CUDA_MEMCPY2D {
    const PLACES: &[usize] = &[3, 4, 10, 11];
    const ARRAYS: &[(usize, usize, &[u64])] = &[(2, 5, &[OF_ARRAY]), (9, 12, &[OF_ARRAY])];
}

impl Addresses for CUDA_MEMCPY3D {
    const PLACES: &[usize] = &[5, 6, 16, 17];
    const ARRAYS: &[(usize, usize, &[u64])] = &[(4, 7, &[OF_ARRAY]), (15, 18, &[OF_ARRAY])];
}

// Source and destination, where they are no arrays.
impl Addresses for CUDA_MEMCPY3D_BATCH_OP {
    const PLACES: &[usize] = &[1, 6];
    const ARRAYS: &[(usize, usize, &[u64])] = &[(0, 1, &[OPERAND_IS_ARRAY]), (5, 6, &[OPERAND_IS_ARRAY])];
}

// An array, a mipmapped one, or linear memory.
impl Addresses for CUDA_RESOURCE_DESC {
    const PLACES: &[usize] = &[1];
    const ARRAYS: &[(usize, usize, &[u64])] = &[(0, 1, &[RESOURCE_IS_ARRAY, RESOURCE_IS_MIPMAPPED])];
}

// The destination.
impl Addresses for CUDA_MEMSET_NODE_PARAMS {
    const PLACES: &[usize] = &[0];
}

/// `CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW`, whose value begins with an address.
pub(crate) const WINDOW: c_uint = 1;

// Where a window of access begins. What else these values begin with is a small number, or two of 32 bits, and no address of a
// variable's.
impl Addresses for CUkernelNodeAttrValue {
    const PLACES: &[usize] = &[0];
}

impl Addresses for CUstreamAttrValue {
    const PLACES: &[usize] = &[0];
}

/// `CU_STREAM_MEM_OP_WAIT_VALUE_32`, `…_WRITE_VALUE_32`, `…_WAIT_VALUE_64`, `…_WRITE_VALUE_64`, and the word of such an operation
/// with the address.
const OF_VALUES: [u64; 4] = [1, 2, 4, 5];
const ADDRESS_OF_VALUE: usize = 1;
/// `CU_STREAM_MEM_OP_ATOMIC_REDUCTION`, and that word of it.
const REDUCTION: u64 = 8;
const ADDRESS_OF_REDUCTION: usize = 2;

/// Translates the address of an operation of a stream.
fn translate_operation(words: &mut [u64; 6], to: impl Fn(u64) -> u64) {
    let place = match words[0] & u64::from(u32::MAX) {
        kind if OF_VALUES.contains(&kind) => ADDRESS_OF_VALUE,
        REDUCTION => ADDRESS_OF_REDUCTION,
        _ => return,
    };
    words[place] = to(words[place]);
}

/// A copy in several dimensions, as far as it says where it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// Where, if that may be a device's memory: an address of either kind stands in the device's place, by NVIDIA's reference
    /// of `cuMemcpy2D`.
    pub(crate) address: Option<u64>,
    /// Bytes from there on, at most.
    pub(crate) length: usize,
}

impl Destination {
    fn new(kind: u64, device: u64, row: u64, rows: u64) -> Self {
        let length = usize::try_from(row.saturating_mul(rows)).unwrap_or(usize::MAX);
        // The other half of the word is nobody's.
        let is_devices = [OF_DEVICE, UNIFIED].contains(&(kind & u64::from(u32::MAX)));
        Self { address: is_devices.then_some(device), length }
    }
}

/// What says where it writes.
pub(crate) trait WithDestination: Copy {
    /// Where.
    fn destination(self) -> Destination;
}

impl WithDestination for CUDA_MEMCPY2D {
    fn destination(self) -> Destination {
        let [.., first_row, kind, _host, device, _array, pitch, width, height] = self.0;
        Destination::new(kind, device, pitch.max(width), first_row.saturating_add(height))
    }
}

impl WithDestination for CUDA_MEMCPY3D {
    fn destination(self) -> Destination {
        let [.., first_layer, _level, kind, _host, device, _array, _reserved, pitch, rows, width, height, depth] =
            self.0;
        let layers = first_layer.saturating_add(depth);
        Destination::new(kind, device, pitch.max(width), rows.max(height).saturating_mul(layers))
    }
}

// An operand is a kind, then an address with the lengths of its rows and layers, then a hint.
impl WithDestination for CUDA_MEMCPY3D_BATCH_OP {
    fn destination(self) -> Destination {
        let [_, _, _, _, _, kind, address, row, rows, _hint, width, height, depth, _order] = self.0;
        // An array, which is no variable, has another kind.
        let kind = if kind & u64::from(u32::MAX) == OPERAND_IS_POINTER { UNIFIED } else { OF_ARRAY };
        Destination::new(kind, address, row.max(width), rows.max(height).saturating_mul(depth))
    }
}

/// `CU_MEMCPY_OPERAND_TYPE_POINTER`.
const OPERAND_IS_POINTER: u64 = 1;
/// `CU_MEMCPY_OPERAND_TYPE_ARRAY`.
const OPERAND_IS_ARRAY: u64 = 2;
/// `CU_RESOURCE_TYPE_ARRAY`, `CU_RESOURCE_TYPE_MIPMAPPED_ARRAY`.
pub(crate) const RESOURCE_IS_ARRAY: u64 = 0;
pub(crate) const RESOURCE_IS_MIPMAPPED: u64 = 1;
/// `CU_MEMORYTYPE_DEVICE`, `CU_MEMORYTYPE_ARRAY`, `CU_MEMORYTYPE_UNIFIED`.
const OF_DEVICE: u64 = 2;
const OF_ARRAY: u64 = 3;
const UNIFIED: u64 = 4;

/// Translates the addresses among the words of a structure of this type.
pub(crate) fn translate<T: Addresses>(words: &mut [u64], to: impl Fn(u64) -> u64) {
    for &place in T::PLACES {
        words[place] = to(words[place]);
    }
}

/// Translates the arrays among them.
pub(crate) fn translate_arrays<T: Addresses>(words: &mut [u64], to: impl Fn(usize) -> usize) {
    for &(kind, place, of) in T::ARRAYS {
        if of.contains(&(words[kind] & u64::from(u32::MAX)))
            && let Ok(handle) = usize::try_from(words[place])
        {
            words[place] = to(handle).key();
        }
    }
}

/// Whether anything of a structure may have to be translated.
fn is_any<T: Addresses>() -> bool {
    !T::ARRAYS.is_empty() || moved::is_any()
}

fn to_current<T: Addresses>(words: &mut [u64]) {
    translate::<T>(words, moved::current_of);
    translate_arrays::<T>(words, names::current_of);
}

macro_rules! translated_inside {
    ($($name:ident),+ $(,)?) => {$(
        impl Pointee for $name {
            type Copy = Box<Self>;
            const IS_WRITTEN: bool = true;

            unsafe fn copy(pointer: *const Self, _launched: &Launched) -> Result<Option<Box<Self>>, Untranslatable> {
                if pointer.is_null() || !is_any::<Self>() {
                    return Ok(None);
                }
                // SAFETY: by the contract.
                let mut copy = Box::new(unsafe { pointer.read_unaligned() });
                to_current::<Self>(&mut copy.0);
                Ok(Some(copy))
            }

            fn original(copy: &Box<Self>) -> *const Self {
                &raw const **copy
            }

            unsafe fn name_result(pointer: *mut Self) {
                if !pointer.is_null() && is_any::<Self>() {
                    // SAFETY: by the contract the driver has written there.
                    let mut written = unsafe { pointer.read_unaligned() };
                    translate::<Self>(&mut written.0, moved::name_of);
                    translate_arrays::<Self>(&mut written.0, names::name_of);
                    // SAFETY: as above.
                    unsafe { pointer.write_unaligned(written) };
                }
            }
        }
    )+};
}

translated_inside!(
    CUDA_MEMCPY2D,
    CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS,
    CUDA_RESOURCE_DESC,
    CUkernelNodeAttrValue,
    CUstreamAttrValue,
);

// A list of as many operations as the call says.
impl Pointee for CUstreamBatchMemOpParams {
    type Copy = Vec<Self>;

    unsafe fn copy(pointer: *const Self, launched: &Launched) -> Result<Option<Vec<Self>>, Untranslatable> {
        if pointer.is_null() || !moved::is_any() {
            return Ok(None);
        }
        let count = usize::try_from(launched.number.unwrap_or(0)).unwrap_or_default();
        // SAFETY: by the contract, and the call says that there are so many.
        let read = |at| unsafe { pointer.wrapping_add(at).read_unaligned() };
        let translated = |mut of: Self| {
            translate_operation(&mut of.0, moved::current_of);
            of
        };
        Ok(Some((0..count).map(read).map(translated).collect()))
    }

    fn original(copy: &Vec<Self>) -> *const Self {
        copy.as_ptr()
    }
}

// A list of addresses that the driver reads during the call.
impl Pointee for CUdeviceptr_listed {
    type Copy = Vec<Self>;

    unsafe fn copy(pointer: *const Self, launched: &Launched) -> Result<Option<Vec<Self>>, Untranslatable> {
        // SAFETY: by the contract, and the call says that there are so many.
        let list = unsafe { listed(pointer, launched, moved::is_any()) };
        Ok(list.map(|list| list.into_iter().map(|of| Self(moved::current_of(of.0))).collect()))
    }

    fn original(copy: &Vec<Self>) -> *const Self {
        copy.as_ptr()
    }
}

// One, or a list of so many as the call says.
impl Pointee for CUDA_MEMCPY3D_BATCH_OP {
    type Copy = Vec<Self>;

    unsafe fn copy(pointer: *const Self, launched: &Launched) -> Result<Option<Vec<Self>>, Untranslatable> {
        // SAFETY: as above.
        let list = unsafe { listed(pointer, launched, true) };
        Ok(list.map(|mut list| {
            list.iter_mut().for_each(|of| to_current::<Self>(&mut of.0));
            list
        }))
    }

    fn original(copy: &Vec<Self>) -> *const Self {
        copy.as_ptr()
    }
}

/// A copy of a list, where anything is to be translated.
///
/// # Safety
/// There are so many as the call says, or one if it does not.
unsafe fn listed<T: Copy>(pointer: *const T, launched: &Launched, is_any: bool) -> Option<Vec<T>> {
    if pointer.is_null() || !is_any {
        return None;
    }
    let count = launched.first.unwrap_or(1);
    // SAFETY: by the contract.
    Some((0..count).map(|at| unsafe { pointer.wrapping_add(at).read_unaligned() }).collect())
}

#[cfg(test)]
mod tests;
