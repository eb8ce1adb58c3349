//! What the vault should have of the kept memory, and what comes back from it.

use super::region::Region;
use crate::{
    cuda::{call::Bypass, piece::Piece},
    kept::memory,
};

/// Memory of a predecessor, mapped where it was.
#[derive(Debug)]
pub(crate) struct Adopted {
    /// The memory.
    pub(crate) region: Region,
    /// The parts of it that the program knows, as address and bytes; all else is free for others.
    pub(crate) blocks: Vec<(u64, u64)>,
}

/// All memory that could be given to the vault, with copies of the descriptors of at most `most` that are wanted. They
/// are copied under the lock, so that none of them is another file by then.
pub(crate) fn outside(is_wanted: impl Fn(u64) -> bool, most: usize) -> Result<Vec<Piece>, Bypass> {
    memory(|memory| {
        let mut left = most;
        let mut found = Vec::new();
        memory.each_outside(&mut |held, device, size, address| {
            let copy = if left > 0 && is_wanted(held.serial()) { held.copy_for_the_vault() } else { None };
            left -= usize::from(copy.is_some());
            // One that the program has closed keeps nothing.
            if copy.is_some() || held.number().is_some() {
                found.push(Piece { serial: held.serial(), device, size, address, copy });
            }
        });
        found
    })
}

/// Notes memory of a predecessor as this program's.
pub(crate) fn add_adopted(adopted: Adopted, context: usize) -> Result<(), Bypass> {
    memory(|memory| memory.slabs.adopt(adopted.region, context, &adopted.blocks))
}

/// Whether all of a range is in one piece of memory that is kept.
pub(crate) fn is_kept(address: u64, bytes: u64) -> bool {
    let Some(end) = address.checked_add(bytes) else { return false };
    let found = memory(|memory| {
        let mut is_inside = false;
        memory.each_outside(&mut |_, _, size, base| is_inside |= base != 0 && address >= base && end <= base + size);
        is_inside
    });
    found.unwrap_or(false)
}
