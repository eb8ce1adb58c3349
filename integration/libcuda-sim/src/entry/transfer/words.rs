//! Copies and fills as the structures that calls and nodes of graphs have of them, in words.

use super::{Direction, copy_now, sides};
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::driver::driver;
use crate::stream::{NULL_STREAM, Operation};

/// `CU_MEMORYTYPE_UNIFIED`: the address says what it is of. It stands in the device's place, as the header of the driver's
/// interface says, and NVIDIA's driver answers 1 where it stands in the host's (580.159.04).
const UNIFIED: u64 = 4;
/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`.
const HOST: u64 = 1;
const DEVICE: u64 = 2;

/// A copy of so many bytes as `CUDA_MEMCPY3D`.
pub(in crate::entry) fn words_of_copy(destination: usize, source: usize, size: usize) -> [u64; 25] {
    let mut words = [0; 25];
    (words[4], words[6]) = (UNIFIED, source as u64);
    (words[15], words[17]) = (UNIFIED, destination as u64);
    (words[22], words[23], words[24]) = (size as u64, 1, 1);
    words
}

/// What a node's copy does: one row from an address to another one.
pub(in crate::entry) fn copy_of_words(words: &[u64; 25]) -> Outcome<Operation> {
    let address = |kind: u64, host: u64, device: u64, first: u64| {
        let base = match kind & 0xffff_ffff {
            HOST => host,
            DEVICE | UNIFIED => device,
            _ => return Err(Code::NOT_SUPPORTED),
        };
        usize::try_from(base + first).map_err(|_| Code::INVALID_VALUE)
    };
    let source = address(words[4], words[5], words[6], words[0])?;
    let destination = address(words[15], words[16], words[17], words[11])?;
    let size = usize::try_from(words[22]).map_err(|_| Code::INVALID_VALUE)?;
    if words[23] > 1 || words[24] > 1 {
        return Err(Code::NOT_SUPPORTED);
    }
    let driver = driver()?;
    if destination == 0 || source == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let sides = sides(&driver.tables(), destination, source, size);
    Ok(Box::new(move |context: &Context| {
        let tables = context.at_work(driver)?;
        if !sides.iter().all(|side| side.is_there(&tables.ranges)) {
            return Err(Code::INVALID_VALUE);
        }
        tables.ranges.copy(destination, source, size);
        Ok(())
    }))
}

/// `CUDA_MEMCPY2D` in words: row by row, done when the call returns.
pub(super) fn copy_rows(words: &[u64; 16]) -> Outcome {
    let number = |word: u64| usize::try_from(word).map_err(|_| Code::INVALID_VALUE);
    let (width, height) = (number(words[14])?, words[15]);
    // Where one side's first row is, and how far the next one.
    let side = |words: &[u64]| {
        let base = match words[2] & 0xffff_ffff {
            HOST => words[3],
            DEVICE | UNIFIED => words[4],
            _ => return Err(Code::NOT_SUPPORTED),
        };
        let pitch = if words[6] == 0 { width as u64 } else { words[6] };
        if pitch < words[0] + width as u64 {
            return Err(Code::INVALID_VALUE);
        }
        Ok((base + words[1] * pitch + words[0], pitch))
    };
    let ((source, from_pitch), (destination, to_pitch)) = (side(&words[..7])?, side(&words[7..14])?);
    let direction = match [words[2], words[9]].map(|kind| kind & 0xffff_ffff) {
        [HOST, DEVICE] => Direction::ToDevice,
        [DEVICE, HOST] => Direction::ToHost,
        [DEVICE, DEVICE] => Direction::OnDevice,
        _ => Direction::Any,
    };
    (0..height).try_for_each(|row| {
        copy_now(
            direction,
            number(destination + row * to_pitch)?,
            number(source + row * from_pitch)?,
            width,
            NULL_STREAM,
        )
    })
}

/// A pattern of at most four bytes as a number.
pub(super) fn value_of(pattern: &[u8]) -> u64 {
    let mut value = [0; 8];
    value[..pattern.len()].copy_from_slice(pattern);
    u64::from_le_bytes(value)
}

/// What a node's set does: one row.
pub(in crate::entry) fn fill_of_words(words: &[u64; 5]) -> Outcome<Operation> {
    let [destination, _, pattern, width, height] = *words;
    let (value, element) = (pattern & 0xffff_ffff, pattern >> 32);
    let length =
        usize::try_from(element).ok().filter(|length| matches!(length, 1 | 2 | 4)).ok_or(Code::INVALID_VALUE)?;
    let number = |word: u64| usize::try_from(word).map_err(|_| Code::INVALID_VALUE);
    let (destination, count) = (number(destination)?, number(width)?);
    if height > 1 {
        return Err(Code::NOT_SUPPORTED);
    }
    let pattern = value.to_le_bytes()[..length].to_vec();
    let driver = driver()?;
    Ok(Box::new(move |context: &Context| {
        let tables = context.at_work(driver)?;
        if !tables.ranges.is_accessible(destination, count * pattern.len()) {
            return Err(Code::ILLEGAL_ADDRESS);
        }
        tables.ranges.fill(destination, &pattern, count);
        Ok(())
    }))
}
