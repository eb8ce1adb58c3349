//! A dead copy of the driver is cut off from the GPU and from its server.
//!
//! Its descriptors become one that is never ready, and what it has mapped of the GPU becomes plain memory: its threads
//! still write there, so nothing can just be unmapped (`recovery-findings` 4). With its files closed the kernel frees
//! what it had on the GPU, and its server hears that it has gone.
#![expect(unsafe_code, reason = "descriptors and mappings of the dead copy are exchanged by number and address")]

use std::{
    ffi::c_int,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
};

use crate::cuda::{belongings::Belongings, socket_name::Exchanged};
use crate::process::{
    descriptors::identity_of,
    maps::{self, Range},
};

/// What the driver's files are called.
const DEVICES: &str = "/dev/nvidia";

/// What was cut off.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// Descriptors, which are there still.
    pub(super) descriptors: Vec<c_int>,
    /// Mappings.
    pub(super) mappings: u32,
}

/// What is mapped of the GPU's files.
pub(super) fn mappings() -> Vec<Range> {
    maps::read().unwrap_or_default().into_iter().filter(|range| range.path().starts_with(DEVICES)).collect()
}

/// Cuts a dead copy off. `mappings` is what was mapped before there was another copy; what lies in one of the ranges
/// `kept`, address and size, is the other copy's by now.
pub(super) fn perform(dead: &Belongings, listeners: Vec<Exchanged>, mapped: &[Range], kept: &[(u64, u64)]) -> Cut {
    let mut cut = Cut::default();
    // SAFETY: makes a descriptor.
    let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if number >= 0 {
        // SAFETY: the kernel has just made it for us.
        let silent = unsafe { OwnedFd::from_raw_fd(number) };
        let own = dead.descriptors.iter().filter(|(number, identity)| identity_of(**number) == Some(**identity));
        let own = own.map(|(number, _)| *number).chain(listeners.iter().map(|exchanged| exchanged.listener));
        for number in own.collect::<Vec<_>>() {
            cut.descriptors.extend(is_exchanged(&silent, number).then_some(number));
        }
    }
    // Only now: until then a pipe without its other end would keep a thread of the dead copy busy.
    drop(listeners);
    let now = mappings();
    for range in mapped.iter().filter(|range| now.contains(range)) {
        if !kept.iter().any(|(base, size)| range.meets(*base, *size)) {
            cut.mappings += u32::from(is_overlaid(range));
        }
    }
    cut
}

fn is_exchanged(silent: &OwnedFd, number: c_int) -> bool {
    // SAFETY: the number is the dead copy's.
    unsafe { libc::dup3(silent.as_raw_fd(), number, libc::O_CLOEXEC) == number }
}

fn is_overlaid(range: &Range) -> bool {
    let (Ok(start), Ok(length)) = (usize::try_from(range.start), usize::try_from(range.end - range.start)) else {
        return false;
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let place = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is the dead copy's alone, which may read and write there as before.
    unsafe { libc::mmap(place, length, access, flags, -1, 0) != libc::MAP_FAILED }
}
