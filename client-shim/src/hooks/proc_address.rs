//! `cuGetProcAddress` and `cuGetProcAddress_v2`: the driver's own lookup, by which cudart finds nearly everything.
//!
//! The driver answers first. Which of our functions belongs in the place of its answer is told by the address and not
//! by the name asked for: the name `cuGetProcAddress` stands for two functions with different arguments, by the CUDA
//! version that is passed along. In drivers 535.309.01 and 580.159.04 these addresses are the ones that `dlsym` gives
//! for the same functions.
#![expect(unsafe_code, reason = "calls the driver and writes its result parameter")]

use std::{
    ffi::{c_char, c_int, c_void},
    ptr::NonNull,
};

use super::{
    by_driver_address,
    notes::{self, Event},
};
use crate::cuda::{
    call::{Bypass, Driver},
    copies,
    functions::lookup::{cuGetProcAddress, cuGetProcAddress_v2},
    result::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t},
};

/// Logic of `cuGetProcAddress`.
pub(crate) fn v1(
    driver: &mut Driver<cuGetProcAddress::Signature>,
    _symbol: *const c_char,
    pfn: *mut *mut c_void,
    _cuda_version: c_int,
    _flags: cuuint64_t,
) -> Result<CUresult, Bypass> {
    let answer = driver.pass();
    put_ours_in_place(answer, pfn)
}

/// Logic of `cuGetProcAddress_v2`.
pub(crate) fn v2(
    driver: &mut Driver<cuGetProcAddress_v2::Signature>,
    _symbol: *const c_char,
    pfn: *mut *mut c_void,
    _cuda_version: c_int,
    _flags: cuuint64_t,
    _status: *mut CUdriverProcAddressQueryResult,
) -> Result<CUresult, Bypass> {
    let answer = driver.pass();
    put_ours_in_place(answer, pfn)
}

/// Replaces what the driver has written to `pfn` if it is a hooked function.
fn put_ours_in_place(answer: CUresult, pfn: *mut *mut c_void) -> Result<CUresult, Bypass> {
    if answer != CUresult::CUDA_SUCCESS || pfn.is_null() {
        return Err(Bypass::NotFound);
    }
    // SAFETY: the driver has just written there with success.
    let found = NonNull::new(unsafe { *pfn }).ok_or(Bypass::NotFound)?;
    let hook = by_driver_address(found).ok_or_else(|| {
        copies::is_shown("the address of a function that is not led");
        Bypass::NotHooked
    })?;
    // SAFETY: as above.
    unsafe { *pfn = hook.entry() };
    notes::note(hook.function, Event::FoundByProcAddress);
    Ok(answer)
}
