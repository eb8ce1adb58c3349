//! Calls of private functions of which nobody knows what they take: looked at as they are passed, and passed on with all
//! that they have.
//!
//! An entry of this kind leads to machine code that saves every register that can carry an argument, and gives them to
//! [`watched`]. From there the driver's function is called with the same registers and with as much of the caller's stack
//! as arguments may lie in, as often as needed. Numbers and addresses come back in the registers of results.
//!
//! Copied are [`STACK_WORDS`] words of the stack. A function with more arguments than that, or with a larger structure by
//! value, would miss some; the longest that was seen in 580.159.04 takes nine arguments.
#![expect(unsafe_code, reason = "machine code, and functions found by their place in a table")]

use std::ffi::c_void;

use super::stubs::STUBS;

/// Words of the caller's stack that may be arguments.
pub(super) const STACK_WORDS: usize = 32;
/// Arguments in registers.
pub(super) const REGISTERS: usize = 6;
/// Bytes from one entry to the next.
const STRIDE: usize = 16;

/// What a call has come with, and what it has given.
#[repr(C)]
pub(super) struct Frame {
    /// The stub's number.
    pub(super) stub: u64,
    /// How many vector registers are used, where the function takes any number of arguments.
    vectors_used: u64,
    /// A nested function's own.
    chain: u64,
    /// Where the return address is; arguments on the stack follow.
    above: *const u64,
    /// rdi, rsi, rdx, rcx, r8, r9.
    pub(super) registers: [u64; REGISTERS],
    vectors: [[u64; 2]; 8],
    /// rax and rdx after the call, and xmm0 and xmm1.
    pub(super) result: [u64; 2],
    vector_results: [[u64; 2]; 2],
    /// What the function finds on its stack.
    pub(super) stack: [u64; STACK_WORDS],
}

const _: () = assert!(size_of::<Frame>() == 512 && std::mem::offset_of!(Frame, stack) == 256);

std::arch::global_asm!(
    ".pushsection .text.mps_shim_private_watched, \"ax\", @progbits",
    ".balign {stride}",
    ".hidden mps_shim_private_watched",
    ".globl mps_shim_private_watched",
    "mps_shim_private_watched:",
    ".set mps_shim_stub, 0",
    ".rept {stubs}",
    "endbr64",
    // mov r11d, number
    ".byte 0x41, 0xbb",
    ".long mps_shim_stub",
    "jmp 2f",
    ".balign {stride}",
    ".set mps_shim_stub, mps_shim_stub + 1",
    ".endr",
    "2:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 512",
    "mov [rsp], r11",
    "mov [rsp + 8], rax",
    "mov [rsp + 16], r10",
    "lea r11, [rbp + 8]",
    "mov [rsp + 24], r11",
    "mov [rsp + 32], rdi",
    "mov [rsp + 40], rsi",
    "mov [rsp + 48], rdx",
    "mov [rsp + 56], rcx",
    "mov [rsp + 64], r8",
    "mov [rsp + 72], r9",
    "movups [rsp + 80], xmm0",
    "movups [rsp + 96], xmm1",
    "movups [rsp + 112], xmm2",
    "movups [rsp + 128], xmm3",
    "movups [rsp + 144], xmm4",
    "movups [rsp + 160], xmm5",
    "movups [rsp + 176], xmm6",
    "movups [rsp + 192], xmm7",
    "mov rdi, rsp",
    "call {watched}",
    "mov rax, [rsp + 208]",
    "mov rdx, [rsp + 216]",
    "movups xmm0, [rsp + 224]",
    "movups xmm1, [rsp + 240]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    // The call itself: frame, function.
    ".hidden mps_shim_private_invoke",
    ".globl mps_shim_private_invoke",
    "mps_shim_private_invoke:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    ".cfi_offset rbx, -24",
    // With the word below, the stack is aligned to 16 bytes where the function is called.
    "sub rsp, 8 * {words} + 8",
    "mov rbx, rdi",
    "mov r11, rsi",
    "lea rsi, [rbx + 256]",
    "mov rdi, rsp",
    "mov ecx, {words}",
    "rep movsq",
    "mov rax, [rbx + 8]",
    "mov r10, [rbx + 16]",
    "mov rdi, [rbx + 32]",
    "mov rsi, [rbx + 40]",
    "mov rdx, [rbx + 48]",
    "mov rcx, [rbx + 56]",
    "mov r8, [rbx + 64]",
    "mov r9, [rbx + 72]",
    "movups xmm0, [rbx + 80]",
    "movups xmm1, [rbx + 96]",
    "movups xmm2, [rbx + 112]",
    "movups xmm3, [rbx + 128]",
    "movups xmm4, [rbx + 144]",
    "movups xmm5, [rbx + 160]",
    "movups xmm6, [rbx + 176]",
    "movups xmm7, [rbx + 192]",
    "call r11",
    "mov [rbx + 208], rax",
    "mov [rbx + 216], rdx",
    "movups [rbx + 224], xmm0",
    "movups [rbx + 240], xmm1",
    "mov rbx, [rbp - 8]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".popsection",
    stride = const STRIDE,
    stubs = const STUBS,
    words = const STACK_WORDS,
    watched = sym watched,
);

unsafe extern "C" {
    /// The first entry's first byte.
    static mps_shim_private_watched: [u8; STUBS * STRIDE];
    /// Calls a function with what a frame has, and puts the results there.
    fn mps_shim_private_invoke(frame: *mut Frame, function: *mut c_void);
}

/// The address of the entry that looks at calls and then leads where a stub leads.
pub(super) fn address(stub: usize) -> *mut c_void {
    assert!(stub < STUBS, "the tables that are followed have fewer entries");
    (&raw const mps_shim_private_watched).cast::<u8>().wrapping_add(stub * STRIDE).cast_mut().cast()
}

impl Frame {
    /// Calls a function with what there is now.
    ///
    /// # Safety
    /// It is the one that the caller wants.
    pub(super) unsafe fn invoke(&mut self, function: *mut c_void) {
        // SAFETY: by the contract.
        unsafe { mps_shim_private_invoke(std::ptr::from_mut(self), function) };
    }

    /// Where the call comes from.
    pub(super) fn caller(&self) -> *mut c_void {
        // SAFETY: the return address is there as long as the call lasts.
        unsafe { self.above.cast::<*mut c_void>().read() }
    }

    /// Where the caller's stack begins.
    pub(super) fn above(&self) -> u64 {
        self.above.addr() as u64
    }
}

unsafe extern "C" fn watched(frame: *mut Frame) {
    // SAFETY: the entry has made it and has it alone.
    let frame = unsafe { &mut *frame };
    for (index, word) in frame.stack.iter_mut().enumerate() {
        // SAFETY: above a call's return address there are at least the frames that a thread begins with, and those are larger
        // than this.
        *word = unsafe { frame.above.wrapping_add(1 + index).read() };
    }
    super::call::make(frame);
}

#[cfg(test)]
mod tests {
    use std::{ffi::c_void, mem};

    use super::{super::stubs, STUBS, address};

    type Ten = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, f64, f32, u64) -> f64;
    type Twice = extern "C" fn(u64) -> Pair;

    #[repr(C)]
    struct Pair(u64, u64);

    extern "C" fn weighed(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: f64, i: f32, j: u64) -> f64 {
        let digits = [a, b, c, d, e, f, g, j].into_iter().fold(0, |sum, digit| sum * 10 + digit);
        h + f64::from(i) + f64::from(u32::try_from(digits).expect("eight digits"))
    }

    extern "C" fn both(number: u64) -> Pair {
        Pair(number + 1, number + 2)
    }

    #[test]
    fn a_watched_call_has_every_argument_and_gives_every_result() {
        let (stub, other) = (STUBS - 5, STUBS - 6);
        stubs::lead(stub, weighed as *mut c_void);
        // SAFETY: the entry leads to a function of this type, in registers and on the stack.
        let function = unsafe { mem::transmute::<*mut c_void, Ten>(address(stub)) };
        assert!((function(1, 2, 3, 4, 5, 6, 7, 0.5, 0.25, 8) - 12_345_678.75).abs() < 0.1);
        stubs::lead(other, both as *mut c_void);
        // SAFETY: as above.
        let function = unsafe { mem::transmute::<*mut c_void, Twice>(address(other)) };
        let Pair(first, second) = function(7);
        assert_eq!((first, second), (8, 9));
    }
}
