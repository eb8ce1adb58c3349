//! Which memory lost work may have written, and `mps_shim_in_doubt`, which tells.
//!
//! It stays in doubt over later recoveries until the program has read all of it: whatever a recovery loses is added to
//! what the program does not know of yet. What a lost function of the host's would have written, and memory of the
//! host's that no device reaches by itself, is not among it: nobody here knows where that is.
#![expect(unsafe_code, reason = "a C function that is exported and writes where its caller says")]

use crate::{
    kept::{is_on, work::WORK},
    process::panics::unpanicked,
};

/// `struct mps_shim_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    address: u64,
    bytes: u64,
}

/// What is in doubt.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// Address and size.
    ranges: Vec<(u64, u64)>,
    /// The program has read all of it.
    is_read: bool,
}

impl Doubt {
    /// A recovery has left this in doubt, or nothing.
    fn add(&mut self, ranges: &[(u64, u64)]) {
        let before = if self.is_read { Vec::new() } else { without(&self.ranges, ranges) };
        self.ranges = [ranges, &before].concat();
        self.is_read = false;
    }
}

/// A recovery has left this in doubt, address and size.
pub(crate) fn add(ranges: &[(u64, u64)]) {
    WORK.with(|work| work.in_doubt.add(ranges));
}

/// Ranges without holes, both address and size.
pub(crate) fn without(ranges: &[(u64, u64)], holes: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = ranges.to_vec();
    for (hole, size) in holes {
        let end = hole + size;
        left = left
            .into_iter()
            .flat_map(|(base, size)| {
                let below = (base, (*hole).clamp(base, base + size) - base);
                let above = end.clamp(base, base + size);
                if end <= base || *hole >= base + size {
                    [(base, size), (base, 0)]
                } else {
                    [below, (above, base + size - above)]
                }
            })
            .filter(|(_, size)| *size > 0)
            .collect();
    }
    left
}

/// Writes what is in doubt, and returns how many ranges that are. Where there is room for all the program knows of
/// them.
///
/// # Safety
/// There is room for so many, or none.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "called from outside"))]
unsafe extern "C" fn mps_shim_in_doubt(ranges: *mut Range, room: usize) -> usize {
    let found = if is_on() {
        let read = || {
            WORK.with(|work| {
                work.in_doubt.is_read |= !ranges.is_null() && room >= work.in_doubt.ranges.len();
                work.in_doubt.ranges.clone()
            })
        };
        unpanicked(read).unwrap_or_default()
    } else {
        // In a forked child another thread may have held the lock.
        Vec::new()
    };
    if !ranges.is_null() {
        for (at, &(address, bytes)) in found.iter().enumerate().take(room) {
            // SAFETY: by the contract there is room for as many.
            unsafe { ranges.wrapping_add(at).write(Range { address, bytes }) };
        }
    }
    found.len()
}

#[cfg(test)]
mod tests {
    use super::{Doubt, without};

    #[test]
    fn holes_are_cut_out_wherever_they_lie() {
        let ranges = [(100, 50), (200, 50)];
        assert_eq!(without(&ranges, &[]), ranges);
        assert_eq!(without(&ranges, &[(0, 100), (150, 50), (250, 9)]), ranges);
        assert_eq!(without(&ranges, &[(110, 10)]), [(100, 10), (120, 30), (200, 50)]);
        assert_eq!(without(&ranges, &[(90, 20), (240, 20)]), [(110, 40), (200, 40)]);
        assert_eq!(without(&ranges, &[(140, 70)]), [(100, 40), (210, 40)]);
        assert_eq!(without(&ranges, &[(0, 1000)]), []);
    }

    #[test]
    fn what_is_in_doubt_stays_so_until_it_is_read() {
        let mut doubt = Doubt::default();
        doubt.add(&[(100, 50)]);
        doubt.add(&[]);
        assert_eq!(doubt.ranges, [(100, 50)], "a recovery that loses nothing takes nothing away");
        doubt.add(&[(120, 100)]);
        assert_eq!(doubt.ranges, [(120, 100), (100, 20)]);
        doubt.is_read = true;
        doubt.add(&[(300, 1)]);
        assert_eq!(doubt.ranges, [(300, 1)]);
        doubt.is_read = true;
        doubt.add(&[]);
        assert_eq!(doubt.ranges, []);
    }
}
