//! How many instructions a call runs on its thread, counted by the processor's trap flag: it stops after each of them,
//! and the handler counts.
//!
//! That is exact and the same on every machine, needs no right, and works where a kernel or a virtual machine has no
//! counters of the processor's for `perf_event_open`. What the kernel runs for a call is not among it.
#![expect(unsafe_code, reason = "sets the trap flag and handles its signal")]

use super::Call;
use std::arch::asm;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_signal: c_int) {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// The instructions of a call that does nothing, counted in the same way; or why they cannot be counted.
fn of_nothing() -> &'static Result<u64, String> {
    static NOTHING: OnceLock<Result<u64, String>> = OnceLock::new();
    NOTHING.get_or_init(|| {
        // SAFETY: all of its fields may be zero.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = count as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler does nothing that a handler may not.
        if unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err("SIGTRAP cannot be handled".to_owned());
        }
        let nothing: Call = Box::new(|| 0);
        match raw(&nothing) {
            (_, 0) => Err("the processor does not stop after each instruction here".to_owned()),
            (_, least) => Ok(least),
        }
    })
}

#[inline(never)]
fn raw(call: &Call) -> (u32, u64) {
    COUNT.store(0, Ordering::Relaxed);
    // SAFETY: what is pushed is taken off again, and SIGTRAP is handled.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    let answer = call();
    // SAFETY: as above.
    unsafe { asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
    (answer, COUNT.load(Ordering::Relaxed))
}

/// Makes a call: its answer, and the instructions that it has run, or why they cannot be counted.
pub(super) fn counted(call: &Call) -> (u32, Result<u64, String>) {
    match of_nothing() {
        Ok(nothing) => {
            let (answer, count) = raw(call);
            (answer, Ok(count.saturating_sub(*nothing)))
        }
        Err(reason) => (call(), Err(reason.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, counted};
    use std::arch::asm;

    #[test]
    fn each_instruction_is_counted() {
        let few: Call = Box::new(|| {
            // SAFETY: they do nothing.
            unsafe { asm!("nop", "nop") };
            0
        });
        let more: Call = Box::new(|| {
            // SAFETY: as above.
            unsafe { asm!("nop", "nop", "nop", "nop", "nop") };
            0
        });
        match (counted(&few), counted(&more)) {
            ((0, Ok(few)), (0, Ok(more))) => assert_eq!(more - few, 3),
            (_, (answer, reason)) => {
                assert_eq!(answer, 0);
                let reason = reason.expect_err("both are counted or none");
                crate::under_test::Skipped(reason).report();
            }
        }
    }
}
