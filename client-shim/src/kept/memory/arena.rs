//! Addresses of our choice, at which memory can be had again in another process or copy of the driver.
//!
//! A wish of `cuMemAddressReserve` cannot be relied on: with 580.159.04 on an H200 a small range, of 2 MiB or even 8, comes
//! from what the driver has left of a block that it has begun, elsewhere in each copy of it, wish or not; a larger
//! one occupies whole multiples of 32 MiB, and a wish between such is moved up to the next. A range of a tebibyte is given
//! where it is wished, in 3 µs, and memory is mapped anywhere in it in steps of 2 MiB. So one such *arena* is reserved for
//! each device and lane when the first memory comes there, and is never given back.
//!
//! The places are far from everything else: on x86-64 programs and their heap begin at 0x5555_5555_4000 or above, libraries
//! and stacks at 0x6fff_0000_0000 or above, and drivers and sanitizers have their own below 0x1100_0000_0000.

use std::{collections::BTreeMap, ops::Range};

use super::region;
use crate::{cuda::types::CUdevice, kept::keeping::Room, process::settings::succession::LANES};

/// Where the arenas begin.
pub(super) const FIRST: u64 = 0x1100_0000_0000;
/// Bytes of an arena: several times the memory of the largest device.
pub(super) const LENGTH: u64 = 1 << 40;
/// Devices that have arenas; the driver chooses for others.
const DEVICES: u64 = 14;
/// Behind the last arena.
const END: u64 = FIRST + DEVICES * LANES * LENGTH;

/// Behind the places of the program's own reservations.
const PROGRAMS_END: u64 = 0x5100_0000_0000;
/// What the driver reserves is a multiple of this many bytes, if it begins a block for it. [`region::PAGE`] is what is mapped.
pub(super) const GRANULE: u64 = 32 << 20;

/// The arenas that were wanted, by where they begin, and whether the driver has given them.
type Arenas = BTreeMap<u64, bool>;

/// Apart from the memory that lies in them, because the lock is held over a call of the driver.
static ARENAS: Room<Arenas> = Room::new();

/// Where the arena of a device and lane begins.
pub(super) fn of(device: CUdevice, lane: u64) -> Option<u64> {
    let index = u64::try_from(device).ok().filter(|index| *index < DEVICES)?;
    Some(FIRST + (index * LANES + lane) * LENGTH)
}

/// Where the program's own reservations are put in this lane if it has no wish. A successor makes arenas of what its
/// predecessor has had there.
pub(super) fn of_program(lane: u64) -> Range<u64> {
    let length = (PROGRAMS_END - END) / LANES;
    END + lane * length..END + (lane + 1) * length
}

/// The arena in which all of a range lies, one of ours or one that is made of a predecessor's own reservations.
fn around(address: u64, size: u64) -> Option<u64> {
    let inside = address.checked_sub(FIRST).filter(|_| address < PROGRAMS_END)?;
    let start = address - inside % LENGTH;
    (size <= start + LENGTH - address).then_some(start)
}

/// Whether a range lies where nobody but this library and what it has reserved for the program puts anything.
pub(crate) fn is_apart(address: u64, size: u64) -> bool {
    (FIRST..PROGRAMS_END).contains(&address) && size <= PROGRAMS_END - address
}

/// Whether a range lies in an arena that is reserved.
pub(crate) fn holds(address: u64, size: u64) -> bool {
    around(address, size).is_some_and(|start| ARENAS.with(|arenas| arenas.get(&start) == Some(&true)))
}

/// Reserves the arena in which a range lies, unless it is; whether the range can be mapped now.
pub(crate) fn prepare(address: u64, size: u64) -> bool {
    let Some(start) = around(address, size) else { return false };
    // What was once refused stays so: the program's memory lies elsewhere since.
    ARENAS.with(|arenas| *arenas.entry(start).or_insert_with(|| region::reserve_at(start, LENGTH).is_ok()))
}

/// All that are reserved: address and size.
pub(crate) fn all() -> Vec<(u64, u64)> {
    let reserved =
        |arenas: &mut Arenas| arenas.iter().filter(|(_, given)| **given).map(|(start, _)| (*start, LENGTH)).collect();
    ARENAS.with(reserved)
}

#[cfg(test)]
mod tests {
    use super::{DEVICES, END, FIRST, LENGTH, PROGRAMS_END, around, of, of_program};
    use crate::process::settings::succession::LANES;

    #[test]
    fn arenas_follow_each_other_and_a_range_lies_in_one_or_in_none() {
        assert_eq!((of(0, 0), of(0, 1), of(1, 0)), (Some(FIRST), Some(FIRST + LENGTH), Some(FIRST + LANES * LENGTH)));
        assert_eq!((of(-1, 0), of(14, 0)), (None, None));
        let last = of(i32::try_from(DEVICES).unwrap() - 1, LANES - 1).unwrap();
        assert_eq!(last + LENGTH, END);
        for start in [FIRST, last] {
            assert_eq!(around(start, LENGTH), Some(start));
            assert_eq!(around(start + LENGTH - 5, 5), Some(start));
            assert_eq!(around(start + LENGTH - 5, 6), None, "it would end in the next");
        }
        assert_eq!((around(FIRST - 1, 1), around(PROGRAMS_END, 1), around(0, 1)), (None, None, None));
        assert_eq!(around(of_program(0).start + 5, 5), Some(END));
        assert_eq!((of_program(0).start, of_program(0).end), (END, of_program(1).start));
        assert_eq!(of_program(LANES - 1).end, PROGRAMS_END);
        const { assert!((PROGRAMS_END - END).is_multiple_of(LANES * LENGTH)) };
    }
}
