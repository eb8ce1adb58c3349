//! Memory at rest, before anything is made again.
//!
//! Nothing of the past may write any more when the program is told, neither on the device nor to pinned memory of the
//! host. A context whose own channel has reported the fault has nothing left that runs. One whose server has died may
//! have ([`errors::is_at_rest`](crate::cuda::errors::is_at_rest)), until the server is reaped: the daemon, which is
//! its parent, says so, and is waited for ([`news`](crate::daemon::news)). A program with work on its way of which
//! neither is known is not recovered; one without has nothing that could write.
//!
//! Then the dead copy is asked to unmap all of it, which frees the addresses.
#![expect(unsafe_code, reason = "calls the driver and frees ranges of addresses")]

use std::ptr;

use super::memory::{Memory, length};
use crate::{cuda::resources, process::maps};

/// What the dead copy said when it was asked to give memory back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenBack {
    /// Ranges that it has unmapped.
    pub(super) unmapped: u32,
    /// Ranges that it has not.
    pub(super) refused: u32,
}

/// Asks the copy that the hooks point at, the dead one, to unmap all ranges and to free their addresses.
pub(super) fn give_back(memory: &Memory) -> GivenBack {
    let mut given = GivenBack::default();
    for (base, size) in memory.ranges() {
        let answer = driver!(mapping::cuMemUnmap(base, length(size)));
        if answer.is_success() {
            given.unmapped += 1;
        } else {
            given.refused += 1;
        }
    }
    for (base, size) in memory.reserved() {
        let _seen_below = driver!(mapping::cuMemAddressFree(base, length(size)));
    }
    // Nothing may be there from now on, not even something to keep others out: a copy of the driver notes at its start
    // what is taken, and never gives such an address, even when it is free by then (measured with 580.159.04).
    let left: Vec<_> = maps::read().unwrap_or_default().into_iter().filter(is_the_drivers).collect();
    for (base, size) in memory.reserved() {
        if left.iter().any(|range| range.meets(base, size)) {
            free(base, size);
        }
    }
    given
}

/// Whether a range is of a kind that the driver reserves addresses with: memory that nobody may read, or its own files.
fn is_the_drivers(range: &maps::Range) -> bool {
    (range.path().is_empty() && range.access.starts_with("---")) || range.path().starts_with("/dev/nvidia")
}

/// Takes what keeps others out of these ranges, address and size, out of the maps: memory that nobody may read. The copy
/// that has put it there goes on with the addresses all the same (measured with 580.159.04).
pub(super) fn clear(ranges: &[(u64, u64)]) {
    let all = maps::read().unwrap_or_default();
    for range in all.iter().filter(|range| range.path().is_empty() && range.access.starts_with("---")) {
        for (base, size) in ranges {
            let (start, end) = (range.start.max(*base), range.end.min(base.saturating_add(*size)));
            if start < end {
                free(start, end - start);
            }
        }
    }
}

/// Frees a range of addresses that the dead copy has not given back.
fn free(base: u64, size: u64) {
    let place = ptr::with_exposed_provenance_mut(length(base));
    // SAFETY: the range was device memory of the program's, which the dead copy has reserved and in which no code reads.
    unsafe { libc::munmap(place, length(size)) };
    resources::is_unmapped(length(base), length(size));
}
