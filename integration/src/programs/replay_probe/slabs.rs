//! Memory as a model has it: many large blocks, each with contents of its own, compared byte for byte after each recovery.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::workload::pattern;
use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::{allocate, check};
use cudarc::driver::sys;
use std::str::FromStr;

/// Bytes that are compared at a time; a block is made of repetitions of so many.
const TILE: usize = 1 << 20;

/// How many there are, and how many MiB each has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    count: usize,
    mib: usize,
}

impl FromStr for Shape {
    type Err = ();

    /// Two numbers with a comma between them, neither of them 0.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (count, mib) = text.split_once(',').ok_or(())?;
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0).ok_or(());
        Ok(Self { count: number(count)?, mib: number(mib)? })
    }
}

/// The blocks.
pub(super) struct Slabs {
    addresses: Vec<u64>,
    bytes: usize,
}

impl Slabs {
    /// Asks the driver for all of it, and fills it.
    pub(super) fn new(shape: Shape) -> Result<Self, GpuError> {
        let bytes = shape.mib << 20;
        let addresses = (0..shape.count).map(|_| allocate(bytes)).collect::<Result<Vec<_>, _>>()?;
        for (number, address) in addresses.iter().enumerate() {
            fill(*address, bytes, &tile(number))?;
        }
        Ok(Self { addresses, bytes })
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> usize {
        self.addresses.len() * self.bytes
    }

    /// Blocks that are not as they were.
    pub(super) fn wrong(&self) -> Result<Vec<String>, GpuError> {
        let mut wrong = Vec::new();
        let mut found = vec![0_u8; TILE];
        for (number, address) in self.addresses.iter().enumerate() {
            let expected = tile(number);
            for at in (0..self.bytes).step_by(TILE) {
                // SAFETY: the destination is as long as the copy; the driver checks the source.
                let answer = unsafe { sys::cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), *address + as_u64(at), TILE) };
                check("cuMemcpyDtoH", answer)?;
                if found != expected {
                    wrong.push(format!("slab {number} at {address:#x}, in the MiB behind byte {at}"));
                    break;
                }
            }
        }
        Ok(wrong)
    }
}

/// Contents that no other block has: the pattern begins elsewhere, and says which one it is.
fn tile(number: usize) -> Vec<u8> {
    let mut bytes = pattern(TILE, number.to_le_bytes()[0]);
    bytes[..size_of::<usize>()].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Writes one repetition, and copies what there is until all of it is there.
fn fill(address: u64, bytes: usize, tile: &[u8]) -> Result<(), GpuError> {
    // SAFETY: the source is as long as the copy; the driver checks the destination.
    check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(address, tile.as_ptr().cast(), TILE) })?;
    let mut done = TILE;
    while done < bytes {
        let length = done.min(bytes - done);
        // SAFETY: the driver checks both ranges, of which none reaches into the other one.
        check("cuMemcpyDtoD", unsafe { sys::cuMemcpyDtoD_v2(address + as_u64(done), address, length) })?;
        done += length;
    }
    Ok(())
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_two_numbers_above_zero() {
        let shape = Shape::from_str("64,128").expect("a shape");
        assert_eq!((shape.count, shape.mib), (64, 128));
        for text in ["", "64", "64,", ",128", "0,1", "1,0", "-1,1", "1,2,3"] {
            assert!(Shape::from_str(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_two_blocks_are_alike() {
        assert_ne!(tile(1), tile(257), "the pattern's beginning repeats");
        assert_ne!(tile(1)[16..], tile(2)[16..]);
    }
}
