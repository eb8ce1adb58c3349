//! Copies and fills.

use crate::abi::{In, entry_points};
use crate::allocations::{self, Ranges};
use crate::codes::{Code, Outcome};
use crate::context::{Context, Ticket};
use crate::contexts::current;
use crate::driver::{Tables, driver};
use crate::graphs::Task;
use crate::stream::{NULL_STREAM, Operation};
use std::ffi::{c_uchar, c_uint};
use std::sync::{Arc, Mutex, PoisonError};

/// Which sides of a copy are device memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToDevice,
    ToHost,
    OnDevice,
    /// By address: what is not device memory is the host's.
    Any,
}

fn check(tables: &Tables, direction: Direction, destination: usize, source: usize, size: usize) -> Outcome {
    let is_device = |address| tables.ranges.is_accessible(address, size);
    let (to, from) = match direction {
        Direction::ToDevice => (is_device(destination), source != 0),
        Direction::ToHost => (destination != 0, is_device(source)),
        Direction::OnDevice => (is_device(destination), is_device(source)),
        Direction::Any => (destination != 0, source != 0),
    };
    if to && from { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// The side of a copy that is device memory must still be when its turn comes.
#[derive(Clone, Copy)]
struct Side {
    address: usize,
    size: usize,
    is_device: bool,
}

impl Side {
    /// As the tables have it when the copy is asked for.
    fn of(ranges: &Ranges, address: usize, size: usize) -> Self {
        Self { address, size, is_device: ranges.find(address).is_some() }
    }

    fn is_there(self, ranges: &Ranges) -> bool {
        !self.is_device || ranges.is_accessible(self.address, self.size)
    }
}

fn sides(tables: &Tables, destination: usize, source: usize, size: usize) -> [Side; 2] {
    [destination, source].map(|address| Side::of(&tables.ranges, address, size))
}

/// A copy that is done when the call returns, after all that its stream has before it.
pub(super) fn copy_now(direction: Direction, destination: usize, source: usize, size: usize, stream: usize) -> Outcome {
    if size == 0 {
        // Nothing is to be done, and nobody is waited for (assumed of the real driver).
        return current().map(drop);
    }
    let (context, ticket) = copy_later(direction, destination, source, size, stream)?;
    context.wait_until(|state| state.has_reached(ticket))
}

/// A copy in a stream's order. As documented of the driver, pageable memory is read before the call returns, and one
/// that writes there has ended by then.
pub(super) fn copy_later(
    direction: Direction,
    destination: usize,
    source: usize,
    size: usize,
    stream: usize,
) -> Outcome<(Arc<Context>, Ticket)> {
    let (driver, context) = current()?;
    {
        let tables = driver.tables();
        // A context that dies takes memory with it, all at once, and says so.
        context.check()?;
        check(&tables, direction, destination, source, size)?;
    }
    let found = super::stream::find(&context, stream)?;
    if driver.is_captured(stream, &Task::Copy(words_of_copy(destination, source, size)))? {
        // Nobody waits for what is captured.
        return Ok((context, Ticket { stream: NULL_STREAM, number: 0 }));
    }
    let (sides, staged) = {
        let tables = driver.tables();
        context.check()?;
        check(&tables, direction, destination, source, size)?;
        let sides = sides(&tables, destination, source, size);
        let staged = (!sides[1].is_device).then(|| {
            let mut bytes = vec![0_u8; size];
            allocations::copy(bytes.as_mut_ptr().expose_provenance(), source, size);
            bytes
        });
        (sides, staged)
    };
    let is_waiting = !sides[0].is_device;
    // The program's own memory is written only while its call lasts, however that ends.
    let is_wanted = Arc::new(Mutex::new(true));
    let wanted = Arc::clone(&is_wanted);
    let operation = move |context: &Context| {
        context.pass_time(Some(driver.copy_time))?;
        // Memory that was freed in the meantime is not touched.
        let tables = context.at_work(driver)?;
        let wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !*wanted {
            return Ok(());
        }
        if !sides.iter().all(|side| side.is_there(&tables.ranges)) {
            return Err(Code::INVALID_VALUE);
        }
        let from = staged.as_ref().map_or(source, |bytes| bytes.as_ptr().expose_provenance());
        tables.ranges.copy(destination, from, size);
        Ok(())
    };
    let ticket = found.enqueue(&context, Box::new(operation))?;
    if is_waiting && let Err(error) = context.wait_until(|state| state.has_reached(ticket)) {
        *is_wanted.lock().unwrap_or_else(PoisonError::into_inner) = false;
        return Err(error);
    }
    Ok((context, ticket))
}

pub(super) fn fill(destination: usize, pattern: Vec<u8>, count: usize, stream: usize, is_waiting: bool) -> Outcome {
    let (driver, context) = current()?;
    let size = pattern.len().checked_mul(count).ok_or(Code::INVALID_VALUE)?;
    {
        let tables = driver.tables();
        context.check()?;
        if !tables.ranges.is_accessible(destination, size) {
            return Err(Code::INVALID_VALUE);
        }
    }
    let found = super::stream::find(&context, stream)?;
    let words = [destination as u64, 0, value_of(&pattern) | (pattern.len() as u64) << 32, count as u64, 1];
    if driver.is_captured(stream, &Task::Fill(words))? {
        return Ok(());
    }
    let operation = move |context: &Context| {
        let tables = context.at_work(driver)?;
        if !tables.ranges.is_accessible(destination, size) {
            return Err(Code::ILLEGAL_ADDRESS);
        }
        tables.ranges.fill(destination, &pattern, count);
        Ok(())
    };
    let ticket = found.enqueue(&context, Box::new(operation))?;
    if is_waiting { context.wait_until(|state| state.has_reached(ticket)) } else { Ok(()) }
}

/// `CU_MEMORYTYPE_UNIFIED`: the address says what it is of. It stands in the host's place.
const UNIFIED: u64 = 4;
/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`.
const HOST: u64 = 1;
const DEVICE: u64 = 2;

/// A copy of so many bytes as `CUDA_MEMCPY3D`.
fn words_of_copy(destination: usize, source: usize, size: usize) -> [u64; 25] {
    let mut words = [0; 25];
    (words[4], words[5]) = (UNIFIED, source as u64);
    (words[15], words[16]) = (UNIFIED, destination as u64);
    (words[22], words[23], words[24]) = (size as u64, 1, 1);
    words
}

/// What a node's copy does: one row from an address to another one.
pub(super) fn copy_of_words(words: &[u64; 25]) -> Outcome<Operation> {
    let address = |kind: u64, host: u64, device: u64, first: u64| {
        let base = match kind & 0xffff_ffff {
            HOST | UNIFIED => host,
            DEVICE => device,
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
fn copy_rows(words: &[u64; 16]) -> Outcome {
    let number = |word: u64| usize::try_from(word).map_err(|_| Code::INVALID_VALUE);
    let (width, height) = (number(words[14])?, words[15]);
    // Where one side's first row is, and how far the next one.
    let side = |words: &[u64]| {
        let base = match words[2] & 0xffff_ffff {
            HOST | UNIFIED => words[3],
            DEVICE => words[4],
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
fn value_of(pattern: &[u8]) -> u64 {
    let mut value = [0; 8];
    value[..pattern.len()].copy_from_slice(pattern);
    u64::from_le_bytes(value)
}

/// What a node's set does: one row.
pub(super) fn fill_of_words(words: &[u64; 5]) -> Outcome<Operation> {
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

entry_points! {
    fn cuMemcpy(destination: usize, source: usize, size: usize) {
        copy_now(Direction::Any, destination, source, size, NULL_STREAM)
    }

    fn cuMemcpyAsync(destination: usize, source: usize, size: usize, stream: usize) {
        copy_later(Direction::Any, destination, source, size, stream).map(drop)
    }

    fn cuMemcpy2DUnaligned_v2(copy: In<[u64; 16]>) {
        copy_rows(&copy.get()?)
    }

    fn cuMemcpyHtoD_v2(destination: usize, source: usize, size: usize) {
        copy_now(Direction::ToDevice, destination, source, size, NULL_STREAM)
    }

    fn cuMemcpyDtoH_v2(destination: usize, source: usize, size: usize) {
        copy_now(Direction::ToHost, destination, source, size, NULL_STREAM)
    }

    fn cuMemcpyDtoD_v2(destination: usize, source: usize, size: usize) {
        copy_now(Direction::OnDevice, destination, source, size, NULL_STREAM)
    }

    fn cuMemcpyHtoDAsync_v2(destination: usize, source: usize, size: usize, stream: usize) {
        copy_later(Direction::ToDevice, destination, source, size, stream).map(drop)
    }

    fn cuMemcpyDtoHAsync_v2(destination: usize, source: usize, size: usize, stream: usize) {
        copy_later(Direction::ToHost, destination, source, size, stream).map(drop)
    }

    fn cuMemcpyDtoDAsync_v2(destination: usize, source: usize, size: usize, stream: usize) {
        copy_later(Direction::OnDevice, destination, source, size, stream).map(drop)
    }

    fn cuMemcpyBatchAsync_v2(
        destinations: In<usize>, sources: In<usize>, sizes: In<usize>, count: usize, _attributes: In<u8>,
        _of_copies: In<usize>, _attribute_count: usize, stream: usize,
    ) {
        // As documented: the default stream is not taken.
        if stream == NULL_STREAM || count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        for index in 0..count {
            copy_later(Direction::Any, destinations.at(index)?, sources.at(index)?, sizes.at(index)?, stream)?;
        }
        Ok(())
    }

    fn cuMemsetD8_v2(destination: usize, value: c_uchar, count: usize) {
        fill(destination, vec![value], count, NULL_STREAM, true)
    }

    fn cuMemsetD32_v2(destination: usize, value: c_uint, count: usize) {
        fill(destination, value.to_le_bytes().to_vec(), count, NULL_STREAM, true)
    }

    fn cuMemsetD8Async(destination: usize, value: c_uchar, count: usize, stream: usize) {
        fill(destination, vec![value], count, stream, false)
    }

    fn cuMemsetD32Async(destination: usize, value: c_uint, count: usize, stream: usize) {
        fill(destination, value.to_le_bytes().to_vec(), count, stream, false)
    }
}

#[cfg(test)]
mod tests {
    use super::Side;
    use crate::allocations::{Owner, Ranges};

    #[test]
    fn a_side_that_was_device_memory_when_the_copy_was_asked_for_must_still_be() {
        let mut ranges = Ranges::default();
        let address = ranges.allocate(64, Owner::Context(1), 0).expect("memory");
        let (device, host) = (Side::of(&ranges, address, 64), Side::of(&ranges, address - 4096, 64));
        assert!(device.is_there(&ranges) && host.is_there(&ranges));
        assert!(!Side::of(&ranges, address, 65).is_there(&ranges), "one byte too many");
        ranges.free(address).expect("it is there");
        assert!(!device.is_there(&ranges));
        assert!(host.is_there(&ranges), "the tables know nothing of it");
    }
}
