//! Arrays and mipmapped arrays: views of kept memory in the place of the driver's own.
//!
//! The layout of an array is the driver's secret, and the memory of its own cannot be exported. But a view by external
//! memory of an exportable block shows the same as another such view of the same memory, in another copy of the driver
//! too (measured with 580.159.04 on an H100: `OBSERVED.md`). So an array is
//!
//! ```text
//!  a block of a slab ◄─ cuImportExternalMemory of the slab's descriptor ◄─ cuExternalMemoryGetMappedMipmappedArray
//!                                                                             ▲ level 0: a plain array
//! ```
//! What can't be had so the program gets from the driver as ever, and it is counted as not recoverable.
#![expect(unsafe_code, reason = "calls the driver and reads and writes through the program's pointers")]

mod size;
pub(crate) mod view;

use std::ffi::c_uint;

use super::{allocation, freeing, slabs::Freed};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::array::{
            cuArray3DCreate_v2, cuArrayCreate_v2, cuArrayDestroy, cuMipmappedArrayCreate, cuMipmappedArrayDestroy,
        },
        result::CUresult,
        types::{
            CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUexternalMemory, CUmipmappedArray, Key as _,
        },
    },
    kept::{
        account::{self, Reason},
        is_capturing, memory,
        objects::{
            current::current,
            recipes,
            recipes::{Layout, OfArray, Recipe},
        },
    },
    process::{failpoint::reached, settings},
};

/// What blocks of arrays begin at multiples of, in bytes: the driver asks for that of every array.
const ALIGNMENT: u64 = 64 << 10;
/// `CUDA_ERROR_INVALID_HANDLE`.
const INVALID_HANDLE: CUresult = CUresult(400);

/// Logic of `cuArray3DCreate`.
pub(crate) fn solid(
    driver: &mut Driver<cuArray3DCreate_v2::Signature>,
    handle: *mut CUarray,
    asked: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program gives what it wants, or null.
    let layout = (!asked.is_null()).then(|| Layout::solid(unsafe { asked.read_unaligned() }.0, 1));
    plain("cuArray3DCreate", handle, layout, || driver.pass())
}

/// Logic of `cuArrayCreate`.
pub(crate) fn flat(
    driver: &mut Driver<cuArrayCreate_v2::Signature>,
    handle: *mut CUarray,
    asked: *const CUDA_ARRAY_DESCRIPTOR,
) -> Result<CUresult, Bypass> {
    // SAFETY: as above.
    let layout = (!asked.is_null()).then(|| Layout::flat(unsafe { asked.read_unaligned() }.0));
    plain("cuArrayCreate", handle, layout, || driver.pass())
}

fn plain(
    function: &'static str,
    handle: *mut CUarray,
    layout: Option<Layout>,
    pass: impl FnOnce() -> CUresult,
) -> Result<CUresult, Bypass> {
    let layout = layout.filter(|_| !handle.is_null()).ok_or(Bypass::ForTheDriver)?;
    match make(layout, true)? {
        Ok(Handles { array, .. }) => {
            // SAFETY: the program wants its result there.
            unsafe { handle.write_unaligned(CUarray(array)) };
            Ok(CUresult::CUDA_SUCCESS)
        }
        Err(reason) => {
            let answer = pass();
            if answer.is_success() {
                // SAFETY: the driver has just written there.
                account::counted(function, reason, unsafe { handle.read_unaligned() }.key());
            }
            Ok(answer)
        }
    }
}

/// Logic of `cuMipmappedArrayCreate`.
pub(crate) fn mipmapped(
    driver: &mut Driver<cuMipmappedArrayCreate::Signature>,
    handle: *mut CUmipmappedArray,
    asked: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> Result<CUresult, Bypass> {
    if handle.is_null() || asked.is_null() {
        return Err(Bypass::ForTheDriver);
    }
    // SAFETY: the program gives what it wants.
    let layout = Layout::solid(unsafe { asked.read_unaligned() }.0, levels);
    match make(layout, false)? {
        Ok(Handles { mipmapped, .. }) => {
            // SAFETY: the program wants its result there.
            unsafe { handle.write_unaligned(CUmipmappedArray(mipmapped)) };
            Ok(CUresult::CUDA_SUCCESS)
        }
        Err(reason) => {
            let answer = driver.pass();
            if answer.is_success() {
                // SAFETY: the driver has just written there.
                let made = unsafe { handle.read_unaligned() };
                account::counted("cuMipmappedArrayCreate", reason, made.key());
            }
            Ok(answer)
        }
    }
}

/// What was made.
struct Handles {
    mipmapped: usize,
    /// 0 for one of several levels.
    array: usize,
}

/// An array of ours, or why it is to be the driver's.
fn make(layout: Layout, is_plain: bool) -> Result<Result<Handles, Reason>, Bypass> {
    if !settings::is_replaying() || !settings::is_recording() || !layout.is_usual() {
        return Ok(Err(Reason::Array));
    }
    let (context, device) = current()?;
    let Some(size) = freeing::apart(|| size::of(&layout, device, is_plain)) else { return Ok(Err(Reason::Array)) };
    let address = match allocation::obtain_aligned(size, ALIGNMENT)? {
        Ok(address) => address,
        Err(failure) => return Ok(Err(allocation::reason(failure))),
    };
    let made = freeing::apart(|| view_of(address, &layout, is_plain));
    let Ok((external, Handles { mipmapped, array })) = made else {
        if let Some(block) = memory(|memory| memory.slabs.mark_freed(address))? {
            free(Freed { address, number: block.number })?;
        }
        return Ok(Err(Reason::Array));
    };
    recipes(|recipes| {
        recipes.keep(external, Recipe::ArrayMemory { context, address });
        recipes.keep(mipmapped, Recipe::MipmappedArray { context, memory: external, address, layout, is_plain });
        if is_plain {
            recipes.keep(array, Recipe::Array { of: mipmapped, level: 0 });
        }
    })?;
    Ok(Ok(Handles { mipmapped, array }))
}

/// The view, and the external memory that it is of; nothing is left of one that is refused.
fn view_of(address: u64, layout: &Layout, is_plain: bool) -> Result<(usize, Handles), view::Refused> {
    let external = view::import(address)?;
    let end = |mipmapped: Option<CUmipmappedArray>| {
        if let Some(mipmapped) = mipmapped {
            let _gone_anyway = driver!(array::cuMipmappedArrayDestroy(mipmapped));
        }
        let _gone_anyway = driver!(external::cuDestroyExternalMemory(external));
    };
    let mipmapped = view::map(external, address, layout).inspect_err(|_| end(None))?;
    let array = if is_plain { view::level(mipmapped, 0).inspect_err(|_| end(Some(mipmapped)))? } else { CUarray(0) };
    Ok((external.0, Handles { mipmapped: mipmapped.0, array: array.0 }))
}

/// Logic of `cuArrayDestroy`.
pub(crate) fn ends(driver: &mut Driver<cuArrayDestroy::Signature>, array: CUarray) -> Result<CUresult, Bypass> {
    match recipes(|recipes| recipes.of_plain(array.0))? {
        Some(of) => undone(of, &[array.0]),
        None => Ok(passed(array.0, || driver.pass())),
    }
}

/// Logic of `cuMipmappedArrayDestroy`.
pub(crate) fn mipmapped_ends(
    driver: &mut Driver<cuMipmappedArrayDestroy::Signature>,
    mipmapped: CUmipmappedArray,
) -> Result<CUresult, Bypass> {
    match recipes(|recipes| recipes.of_mipmapped(mipmapped.0))? {
        Some(of) => undone(of, &[]),
        None => Ok(passed(mipmapped.0, || driver.pass())),
    }
}

/// The driver's own is destroyed by it.
fn passed(handle: usize, destroy: impl FnOnce() -> CUresult) -> CUresult {
    let answer = destroy();
    if answer.is_success() {
        account::gone(handle.key());
    }
    answer
}

/// Destroys an array of ours. As the driver's own this waits for what may still use it.
fn undone(of: OfArray, names: &[usize]) -> Result<CUresult, Bypass> {
    let is_waited_for = !is_capturing()?;
    if is_waited_for {
        let answer = freeing::wait_for(of.context);
        if !answer.is_success() {
            return Ok(answer);
        }
    }
    // Before the driver gives the handles to something else, and before the block is no more: a spare copy makes what is noted.
    let taken = recipes(|recipes| recipes.take(of.memory))?;
    let gone: Vec<usize> = taken.handles().chain(names.iter().copied()).collect();
    if !gone.contains(&of.memory) {
        // Another thread does so.
        return Ok(INVALID_HANDLE);
    }
    reached("array-taken");
    let Some(block) = memory(|memory| memory.slabs.mark_freed(of.address))? else {
        recipes(|recipes| recipes.put_back(taken))?;
        return Ok(INVALID_HANDLE);
    };
    let freed = Freed { address: of.address, number: block.number };
    let answer = freeing::inside(of.context, || {
        let answer = driver!(array::cuMipmappedArrayDestroy(CUmipmappedArray(of.mipmapped)));
        if answer.is_success() {
            let _gone_anyway = driver!(external::cuDestroyExternalMemory(CUexternalMemory(of.memory)));
        }
        answer
    });
    if !answer.is_success() {
        memory(|memory| memory.slabs.unmark_freed(of.address))?;
        recipes(|recipes| recipes.put_back(taken))?;
        return Ok(answer);
    }
    recipes(|recipes| recipes.dangle(&gone))?;
    if is_waited_for {
        free(freed)?;
    } else {
        memory(|memory| memory.slabs.deferred.push(freed))?;
    }
    Ok(answer)
}

fn free(freed: Freed) -> Result<(), Bypass> {
    freeing::finish(freed)?;
    freeing::reclaim_deferred()?;
    freeing::reclaim()
}

/// After `cuMipmappedArrayGetLevel`.
pub(crate) fn level(array: CUarray, mipmapped: CUmipmappedArray, level: c_uint) -> Result<(), Bypass> {
    if settings::is_recording() {
        recipes(|recipes| {
            if recipes.of_mipmapped(mipmapped.0).is_some() {
                recipes.keep_first(array.0, || Recipe::Array { of: mipmapped.0, level });
            }
        })?;
    }
    Ok(())
}

/// What the program has asked for by `cuArrayCreate` or `cuArray3DCreate`.
fn asked_for(array: CUarray) -> Option<[u64; 5]> {
    recipes(|recipes| recipes.of_plain(array.0)).ok().flatten().map(|of| of.layout.words)
}

/// After `cuArray3DGetDescriptor`: what the program has asked for, whatever the view is.
pub(crate) fn told_solid(into: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) {
    if let Some(words) = asked_for(array) {
        // SAFETY: the driver has just written there.
        unsafe { into.write_unaligned(CUDA_ARRAY3D_DESCRIPTOR(words)) };
    }
}

/// After `cuArrayGetDescriptor`: the same.
pub(crate) fn told_flat(into: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) {
    if let Some([width, height, _, format, _]) = asked_for(array) {
        // SAFETY: as above.
        unsafe { into.write_unaligned(CUDA_ARRAY_DESCRIPTOR([width, height, format])) };
    }
}
