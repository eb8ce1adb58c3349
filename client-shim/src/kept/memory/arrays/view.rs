//! The steps to a view of a block as an array, in whichever copy of the driver calls go to.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_uint;

use crate::{
    cuda::{
        result::CUresult,
        types::{
            CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUarray, CUexternalMemory,
            CUmipmappedArray,
        },
    },
    kept::{memory, objects::recipes::Layout},
};

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const DESCRIPTOR: u64 = 1;

/// A step that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Of the driver.
    pub(crate) call: &'static str,
    /// Its answer.
    pub(crate) answer: CUresult,
}

fn checked(call: &'static str, answer: CUresult) -> Result<(), Refused> {
    if answer.is_success() { Ok(()) } else { Err(Refused { call, answer }) }
}

/// The slab that the block at an address lies in, as external memory of the current context.
pub(crate) fn import(address: u64) -> Result<CUexternalMemory, Refused> {
    const CALL: &str = "cuImportExternalMemory";
    let missing = Refused { call: CALL, answer: CUresult::CUDA_ERROR_INVALID_VALUE };
    let found = memory(|memory| memory.slabs.copy_around(address)).ok().flatten();
    let (copy, _, size) = found.ok_or(missing)?;
    let number = copy.number().and_then(|number| u64::try_from(number).ok()).ok_or(missing)?;
    let mut asked = CUDA_EXTERNAL_MEMORY_HANDLE_DESC([0; 13]);
    [asked.0[0], asked.0[1], asked.0[3]] = [DESCRIPTOR, number, size];
    let mut external = CUexternalMemory(0);
    checked(CALL, driver!(external::cuImportExternalMemory(&raw mut external, &raw const asked)))?;
    copy.give_to_the_driver();
    Ok(external)
}

/// The block as an array with levels.
pub(crate) fn map(external: CUexternalMemory, address: u64, layout: &Layout) -> Result<CUmipmappedArray, Refused> {
    const CALL: &str = "cuExternalMemoryGetMappedMipmappedArray";
    let missing = Refused { call: CALL, answer: CUresult::CUDA_ERROR_INVALID_VALUE };
    let piece = memory(|memory| memory.slabs.piece_around(address)).ok().flatten();
    let piece = piece.ok_or(missing)?;
    let mut asked = CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC([0; 15]);
    asked.0[0] = piece.start - piece.base;
    asked.0[1..6].copy_from_slice(&layout.words);
    asked.0[6] = u64::from(layout.levels);
    let mut mipmapped = CUmipmappedArray(0);
    let answer =
        driver!(external::cuExternalMemoryGetMappedMipmappedArray(&raw mut mipmapped, external, &raw const asked));
    checked(CALL, answer)?;
    Ok(mipmapped)
}

/// A level of it.
pub(crate) fn level(mipmapped: CUmipmappedArray, level: c_uint) -> Result<CUarray, Refused> {
    let mut array = CUarray(0);
    let answer = driver!(array::cuMipmappedArrayGetLevel(&raw mut array, mipmapped, level));
    checked("cuMipmappedArrayGetLevel", answer)?;
    Ok(array)
}
