//! What this process has done already, forgotten by a forked child.
//!
//! A child of a CUDA program starts without the driver's state, so it must start without ours too, and hooking `fork`
//! would not see `clone` or `vfork`. The facts are therefore bits on one page that the kernel hands to a child full of
//! zeros (`MADV_WIPEONFORK`). Where the kernel cannot (before 4.14), nothing is remembered: every call is treated as
//! the first one, which costs time and repeated lines and is never wrong.
#![expect(unsafe_code, reason = "maps the page")]

use std::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

/// Bytes of the page; a whole one on every x86-64 machine.
const PAGE: usize = 4096;

/// Words on the page.
pub(crate) const WORDS: usize = PAGE / size_of::<AtomicU32>();

static MAPPED: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Sets `bits` in word `index`. Returns the bits that the word had before, or none of them where nothing can be
/// remembered.
pub(crate) fn remember(index: usize, bits: u32) -> u32 {
    word(index).map_or(0, |word| word.fetch_or(bits, Ordering::Relaxed))
}

/// The bits that this process, and not its parent, has set in word `index`.
pub(crate) fn recall(index: usize) -> u32 {
    word(index).map_or(0, |word| word.load(Ordering::Relaxed))
}

fn word(index: usize) -> Option<&'static AtomicU32> {
    assert!(index < WORDS, "the table of hooks fits the page");
    let page = NonNull::new(MAPPED.load(Ordering::Acquire)).or_else(map)?;
    // SAFETY: the index was checked against the page's length.
    let word = unsafe { page.add(index) };
    // SAFETY: the page is never unmapped once published, is aligned, and zero is a valid word.
    Some(unsafe { word.as_ref() })
}

/// Maps the page and publishes it, or takes the one that another thread has published meanwhile.
fn map() -> Option<NonNull<AtomicU32>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh anonymous mapping, wherever the kernel puts it.
    let address =
        unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping just made, in its full length.
    let wiped_in_a_child = unsafe { libc::madvise(address, PAGE, libc::MADV_WIPEONFORK) } == 0;
    let published = if wiped_in_a_child {
        MAPPED.compare_exchange(ptr::null_mut(), address.cast(), Ordering::AcqRel, Ordering::Acquire)
    } else {
        Err(ptr::null_mut())
    };
    match published {
        Ok(_) => NonNull::new(address.cast()),
        Err(already_there) => {
            // SAFETY: nobody else has seen this mapping.
            unsafe { libc::munmap(address, PAGE) };
            NonNull::new(already_there)
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::{
        sys::wait::{WaitStatus, waitpid},
        unistd::{ForkResult, fork},
    };

    use super::{WORDS, recall, remember};

    const SPARE: usize = WORDS - 1;

    #[test]
    fn a_forked_child_remembers_nothing_of_its_parent() {
        assert_eq!(remember(SPARE, 0b01), 0);
        assert_eq!(remember(SPARE, 0b10), 0b01);
        // SAFETY: the child only reads and writes one page and leaves without running anything else.
        match unsafe { fork() }.expect("a test may fork") {
            ForkResult::Child => {
                let forgotten = recall(SPARE) == 0 && remember(SPARE, 0b100) == 0 && recall(SPARE) == 0b100;
                // SAFETY: leaves the child at once, without the test harness's handlers.
                unsafe { libc::_exit(i32::from(!forgotten)) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).expect("the child is ours"), WaitStatus::Exited(child, 0));
                assert_eq!(recall(SPARE), 0b11);
            }
        }
    }
}
