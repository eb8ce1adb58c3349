//! Machine code that a private table's entries point to, so that they can lead to another copy of the driver later.
//!
//! A stub of a function whose arguments are known to hold nothing that another copy would not understand jumps on, with
//! stack and registers as they were. Where to is in a slot of its own, which the entries of [`watched`](super::watched)
//! use as well.
#![expect(unsafe_code, reason = "machine code, and functions found by their place in a table")]

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

/// As many as there are entries in all tables that are followed, with room for newer drivers' longer ones.
pub(super) const STUBS: usize = 2048;

/// Bytes from one stub to the next.
const STRIDE: usize = 32;

/// Where each stub leads. Null until its table was given out, and nobody has its address before.
static SLOTS: [AtomicPtr<c_void>; STUBS] = [const { AtomicPtr::new(ptr::null_mut()) }; STUBS];

/// Where each stub has led first.
static FIRST: [AtomicPtr<c_void>; STUBS] = [const { AtomicPtr::new(ptr::null_mut()) }; STUBS];

std::arch::global_asm!(
    ".pushsection .text.mps_shim_private_stubs, \"ax\", @progbits",
    ".balign {stride}",
    ".hidden mps_shim_private_stubs",
    ".globl mps_shim_private_stubs",
    "mps_shim_private_stubs:",
    ".set mps_shim_stub, 0",
    ".rept {stubs}",
    "endbr64",
    "jmp qword ptr [rip + {slots} + 8 * mps_shim_stub]",
    ".balign {stride}",
    ".set mps_shim_stub, mps_shim_stub + 1",
    ".endr",
    ".popsection",
    stride = const STRIDE,
    stubs = const STUBS,
    slots = sym SLOTS,
);

unsafe extern "C" {
    /// The first stub's first byte.
    static mps_shim_private_stubs: [u8; STUBS * STRIDE];
}

/// The address of a stub.
pub(super) fn address(stub: usize) -> *mut c_void {
    assert!(stub < STUBS, "the tables that are followed have fewer entries");
    (&raw const mps_shim_private_stubs).cast::<u8>().wrapping_add(stub * STRIDE).cast_mut().cast()
}

/// Where a stub leads.
#[inline(always)]
pub(super) fn target(stub: usize) -> *mut c_void {
    SLOTS[stub].load(Ordering::Acquire)
}

/// Leads a stub to another function. A call that is under way is not turned back.
pub(super) fn lead(stub: usize, target: *mut c_void) {
    // Whoever was first stays.
    let _earlier = FIRST[stub].compare_exchange(ptr::null_mut(), target, Ordering::AcqRel, Ordering::Acquire);
    SLOTS[stub].store(target, Ordering::Release);
}

/// Where a stub has led first.
pub(super) fn first(stub: usize) -> *mut c_void {
    FIRST[stub].load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use std::{ffi::c_void, mem};

    use super::{STUBS, address, first, lead, target};

    type Six = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, f64) -> f64;

    extern "C" fn weighed(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: f64) -> f64 {
        let digits = [a, b, c, d, e, f, g].into_iter().fold(0, |sum, digit| sum * 10 + digit);
        h + f64::from(u32::try_from(digits).expect("seven digits"))
    }

    extern "C" fn negated(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: f64) -> f64 {
        -weighed(a, b, c, d, e, f, g, h)
    }

    #[test]
    fn a_stub_passes_every_argument_on_and_can_be_led_elsewhere() {
        for stub in [STUBS - 1, STUBS - 2] {
            lead(stub, weighed as *mut c_void);
            assert_eq!(target(stub), weighed as *mut c_void);
            // SAFETY: the stub leads to a function of this type, in registers and on the stack.
            let function = unsafe { mem::transmute::<*mut c_void, Six>(address(stub)) };
            assert!((function(1, 2, 3, 4, 5, 6, 7, 0.5) - 1_234_567.5).abs() < 0.1);
            lead(stub, negated as *mut c_void);
            assert!((function(1, 2, 3, 4, 5, 6, 7, 0.5) + 1_234_567.5).abs() < 0.1);
            assert_eq!((first(stub), first(STUBS - 3)), (weighed as *mut c_void, std::ptr::null_mut()));
        }
    }
}
