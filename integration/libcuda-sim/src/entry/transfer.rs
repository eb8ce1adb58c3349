//! Copies and fills.

mod words;

pub(super) use words::{copy_of_words, fill_of_words, words_of_copy};

use crate::abi::{In, entry_points};
use crate::allocations::{self, Owner, Ranges};
use crate::codes::{Code, Outcome};
use crate::context::{Context, Ticket};
use crate::contexts::current;
use crate::driver::Tables;
use crate::graphs::Task;
use crate::stream::{NULL_STREAM, Stream};
use std::ffi::{c_uchar, c_uint};
use std::sync::{Arc, Mutex, PoisonError};
use words::{copy_rows, value_of};

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
    let (context, ticket) = copying(direction, destination, source, size, (stream, false))?;
    context.wait_until(|state| state.has_reached(ticket))
}

/// A copy in a stream's order. As documented of the driver, pageable memory is read before the call returns, and one
/// that writes there has ended by then. And as it is with the real one, so is memory that the driver knows where its stream
/// has nothing to do ([`is_read_at_once`]).
pub(super) fn copy_later(
    direction: Direction,
    destination: usize,
    source: usize,
    size: usize,
    stream: usize,
) -> Outcome<(Arc<Context>, Ticket)> {
    copying(direction, destination, source, size, (stream, true))
}

/// Of so many bytes at most the source may be read during the call (measured with 580.159.04 on an H100: `mps-checker --waits`).
const SMALL: usize = 24 << 10;

/// Whether a copy from page-locked host memory to the device reads that during the call: a small one does in a stream that
/// has nothing to do, whatever the stream comes after by the default stream's order.
fn is_read_at_once(tables: &Tables, context: &Context, stream: &Stream, [to, from]: [Side; 2]) -> bool {
    let is_host = |side: Side| {
        let owner = tables.ranges.find(side.address).map(|(_, range)| range.owner);
        owner.map(|owner| matches!(owner, Owner::Host { .. } | Owner::Registered { .. }))
    };
    from.size <= SMALL && is_host(from) == Some(true) && is_host(to) == Some(false) && stream.is_idle(context)
}

fn copying(
    direction: Direction,
    destination: usize,
    source: usize,
    size: usize,
    (stream, is_async): (usize, bool),
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
        let is_early = is_async && is_read_at_once(&tables, &context, &found, sides);
        let staged = (is_early || !sides[1].is_device).then(|| {
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
            let (to, from, size) = (destinations.at(index)?, sources.at(index)?, sizes.at(index)?);
            // Whether such a one reads earlier was not measured.
            copying(Direction::Any, to, from, size, (stream, false))?;
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
    use super::{Owner, Ranges, Side};

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
