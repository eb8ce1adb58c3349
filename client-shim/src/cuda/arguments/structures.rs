//! Structures with addresses of the GPU in them: those of moved variables are translated in a copy, and back where the
//! driver has written them.

use super::{Launched, Pointee, Untranslatable};
use crate::cuda::{
    moved,
    types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS},
};

/// Which words of a structure are addresses, of the host's memory where that is meant.
pub(crate) trait Addresses {
    /// The words.
    const PLACES: &[usize];
}

// Source and destination, each once for the host or wherever the address says, and once for the device.
impl Addresses for CUDA_MEMCPY2D {
    const PLACES: &[usize] = &[3, 4, 10, 11];
}

impl Addresses for CUDA_MEMCPY3D {
    const PLACES: &[usize] = &[5, 6, 16, 17];
}

// The destination.
impl Addresses for CUDA_MEMSET_NODE_PARAMS {
    const PLACES: &[usize] = &[0];
}

/// Translates the addresses among the words of a structure of this type.
pub(crate) fn translate<T: Addresses>(words: &mut [u64], to: impl Fn(u64) -> u64) {
    for &place in T::PLACES {
        words[place] = to(words[place]);
    }
}

macro_rules! translated_inside {
    ($($name:ident),+ $(,)?) => {$(
        impl Pointee for $name {
            type Copy = Box<Self>;
            const IS_WRITTEN: bool = true;

            unsafe fn copy(pointer: *const Self, _launched: &Launched) -> Result<Option<Box<Self>>, Untranslatable> {
                if pointer.is_null() || !moved::is_any() {
                    return Ok(None);
                }
                // SAFETY: by the contract.
                let mut copy = Box::new(unsafe { pointer.read_unaligned() });
                translate::<Self>(&mut copy.0, moved::current_of);
                Ok(Some(copy))
            }

            fn original(copy: &Box<Self>) -> *const Self {
                &raw const **copy
            }

            unsafe fn name_result(pointer: *mut Self) {
                if !pointer.is_null() && moved::is_any() {
                    // SAFETY: by the contract the driver has written there.
                    let mut written = unsafe { pointer.read_unaligned() };
                    translate::<Self>(&mut written.0, moved::name_of);
                    // SAFETY: as above.
                    unsafe { pointer.write_unaligned(written) };
                }
            }
        }
    )+};
}

translated_inside!(CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS);

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys;

    use super::Addresses;
    use crate::cuda::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};

    #[test]
    fn the_words_are_the_addresses_of_the_header() {
        use sys::{CUDA_MEMCPY2D_st as Flat, CUDA_MEMCPY3D_st as Solid, CUDA_MEMSET_NODE_PARAMS_st as Set};
        let flat = [
            offset_of!(Flat, srcHost),
            offset_of!(Flat, srcDevice),
            offset_of!(Flat, dstHost),
            offset_of!(Flat, dstDevice),
        ];
        assert_eq!(flat.map(|offset| offset / 8), CUDA_MEMCPY2D::PLACES);
        let solid = [
            offset_of!(Solid, srcHost),
            offset_of!(Solid, srcDevice),
            offset_of!(Solid, dstHost),
            offset_of!(Solid, dstDevice),
        ];
        assert_eq!(solid.map(|offset| offset / 8), CUDA_MEMCPY3D::PLACES);
        assert_eq!([offset_of!(Set, dst) / 8], CUDA_MEMSET_NODE_PARAMS::PLACES);
    }
}
