//! Host memory, which is the program's and the driver's at once, and the host function that works on it.
#![expect(unsafe_code, reason = "host memory is the program's and the driver's at once")]

use super::super::program::CELL;
use super::super::wrong::Bytes;
use std::ffi::c_void;

/// Words of a host function: address, count, key.
#[repr(C)]
struct Call {
    address: usize,
    words: usize,
    key: u32,
}

/// Data of a host function. It stays: a graph may be launched late.
pub(in super::super) fn call_data(address: usize, words: usize, key: u32) -> usize {
    Box::leak(Box::new(Call { address, words, key })) as *const Call as usize
}

/// The host function.
pub(in super::super) extern "C" fn mix_on_host(data: *mut c_void) {
    // SAFETY: it is what `call_data` has made, which is never freed.
    let call = unsafe { &*data.cast::<Call>() };
    for index in 0..call.words {
        let word = std::ptr::with_exposed_provenance_mut::<u32>(call.address + index * 4);
        // SAFETY: the block lives as long as work on it, by the plan.
        let value = unsafe { word.read_volatile() };
        // SAFETY: as above.
        unsafe { word.write_volatile(value.wrapping_mul(5).wrapping_add(call.key)) };
    }
}

/// Writes a word of host memory that others see.
pub(in super::super) fn write_word(address: usize, value: u32) {
    // SAFETY: the address is of a page of the process's that is never freed, or of a block that is not freed yet.
    unsafe { std::ptr::with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

/// Reads a word of host memory that others write.
pub(in super::super) fn read_word(address: usize) -> u32 {
    // SAFETY: the address is of a block that is not freed.
    unsafe { std::ptr::with_exposed_provenance::<u32>(address).read_volatile() }
}

/// Reads bytes of host memory.
pub(super) fn read_bytes(address: usize) -> Bytes {
    let mut bytes = [0; CELL];
    for (index, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: the block is not freed yet.
        *byte = unsafe { std::ptr::with_exposed_provenance::<u8>(address + index).read_volatile() };
    }
    bytes
}
