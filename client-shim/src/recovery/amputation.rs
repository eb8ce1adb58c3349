//! A dead copy of the driver is cut off from the GPU and from its server.
//!
//! Its descriptors become one that is never ready, and what it has mapped of files becomes plain memory: its threads
//! still write there, so nothing can just be unmapped (`recovery-findings` 4). With its files closed the kernel frees
//! what it had on the GPU, and its server hears that it has gone. What others have of the GPU, EGL or Vulkan, stays.
#![expect(unsafe_code, reason = "descriptors and mappings of the dead copy are exchanged by number and address")]

use std::{ffi::c_int, ptr};

use crate::cuda::{
    belongings::Belongings,
    resources::{self, Owner},
    socket_name::Exchanged,
};
use crate::process::{
    descriptors::identity_of,
    maps::{self, Range},
    silent::Silent,
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

/// What the copy that lives has mapped.
#[derive(Debug)]
pub(super) enum Mapped {
    /// It has taken note of it here.
    Noted(Owner),
    /// Nobody has: all that is mapped of the GPU's files before there is another copy.
    Seen(Vec<Range>),
    /// It stays.
    Kept,
}

impl Mapped {
    pub(super) fn now() -> Self {
        resources::noting().map_or_else(|| Self::Seen(seen()), Self::Noted)
    }

    /// Where it still is: where each range begins, and its bytes.
    fn ranges(&self) -> Vec<(usize, usize)> {
        let bounds = |range: Range| Some((usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?));
        let all = match self {
            Self::Noted(owner) => owner.mapped_files(),
            Self::Seen(before) => seen().into_iter().filter(|of| before.contains(of)).filter_map(bounds).collect(),
            Self::Kept => Vec::new(),
        };
        all.into_iter().map(|(start, end)| (start, end - start)).collect()
    }
}

fn seen() -> Vec<Range> {
    maps::read().unwrap_or_default().into_iter().filter(|range| range.path().starts_with(DEVICES)).collect()
}

/// Cuts a dead copy off. What lies in one of the ranges `kept`, address and size, is the other copy's by now.
pub(super) fn perform(dead: &Belongings, listeners: Vec<Exchanged>, mapped: &Mapped, kept: &[(u64, u64)]) -> Cut {
    let mut cut = Cut::default();
    if let Some(silent) = Silent::new() {
        let own = dead.descriptors.iter().filter(|(number, identity)| identity_of(**number) == Some(**identity));
        let own = own.map(|(number, _)| *number).chain(listeners.iter().map(|exchanged| exchanged.listener));
        for number in own.collect::<Vec<_>>() {
            cut.descriptors.extend(silent.takes_the_place(number).then_some(number));
        }
    }
    // Only now: until then a pipe without its other end would keep a thread of the dead copy busy.
    drop(listeners);
    for (start, size) in mapped.ranges() {
        if !kept.iter().any(|(base, length)| meets((start, size), (*base, *length))) {
            cut.mappings += u32::from(is_overlaid(start, size));
        }
    }
    cut
}

/// Whether two ranges have an address in common: each by where it begins, and its bytes.
fn meets((start, size): (usize, usize), (base, length): (u64, u64)) -> bool {
    let ends = |start: u64, size: u64| start.saturating_add(size);
    let (start, size) = (u64::try_from(start).unwrap_or(u64::MAX), u64::try_from(size).unwrap_or(u64::MAX));
    start < ends(base, length) && base < ends(start, size)
}

fn is_overlaid(start: usize, size: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let place = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is the dead copy's alone, which may read and write there as before.
    let is_overlaid = unsafe { libc::mmap(place, size, access, flags, -1, 0) != libc::MAP_FAILED };
    if is_overlaid {
        resources::is_plain(start);
    }
    is_overlaid
}
