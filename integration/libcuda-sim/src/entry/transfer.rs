//! Copies and fills.

use crate::abi::entry_points;
use crate::allocations;
use crate::codes::{Code, Outcome};
use crate::context::{Context, Ticket};
use crate::contexts::current;
use crate::driver::Tables;
use crate::stream::NULL_STREAM;
use std::ffi::{c_uchar, c_uint};
use std::sync::Arc;

/// Which sides of a copy are device memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
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

/// A copy that is done when the call returns, after all that is queued before it.
fn copy_now(direction: Direction, destination: usize, source: usize, size: usize) -> Outcome {
    let (context, ticket) = copy_later(direction, destination, source, size, NULL_STREAM)?;
    context.wait_until(|state| state.has_reached(ticket))
}

/// A copy in a stream's order.
fn copy_later(
    direction: Direction,
    destination: usize,
    source: usize,
    size: usize,
    stream: usize,
) -> Outcome<(Arc<Context>, Ticket)> {
    let (driver, context) = current()?;
    check(&driver.tables(), direction, destination, source, size)?;
    let stream = super::stream::find(&context, stream)?;
    let operation = move |_: &Context| {
        // Memory that was freed in the meantime is not touched.
        let tables = driver.tables();
        check(&tables, direction, destination, source, size)?;
        allocations::copy(destination, source, size);
        Ok(())
    };
    let ticket = stream.enqueue(&context, Box::new(operation))?;
    Ok((context, ticket))
}

fn fill(destination: usize, pattern: Vec<u8>, count: usize, stream: usize, is_waiting: bool) -> Outcome {
    let (driver, context) = current()?;
    let size = pattern.len().checked_mul(count).ok_or(Code::INVALID_VALUE)?;
    if !driver.tables().ranges.is_accessible(destination, size) {
        return Err(Code::INVALID_VALUE);
    }
    let stream = super::stream::find(&context, stream)?;
    let operation = move |_: &Context| {
        let tables = driver.tables();
        if !tables.ranges.is_accessible(destination, size) {
            return Err(Code::ILLEGAL_ADDRESS);
        }
        allocations::fill(destination, &pattern, count);
        Ok(())
    };
    let ticket = stream.enqueue(&context, Box::new(operation))?;
    if is_waiting { context.wait_until(|state| state.has_reached(ticket)) } else { Ok(()) }
}

entry_points! {
    fn cuMemcpy(destination: usize, source: usize, size: usize) {
        copy_now(Direction::Any, destination, source, size)
    }

    fn cuMemcpyAsync(destination: usize, source: usize, size: usize, stream: usize) {
        copy_later(Direction::Any, destination, source, size, stream).map(drop)
    }

    fn cuMemcpyHtoD_v2(destination: usize, source: usize, size: usize) {
        copy_now(Direction::ToDevice, destination, source, size)
    }

    fn cuMemcpyDtoH_v2(destination: usize, source: usize, size: usize) {
        copy_now(Direction::ToHost, destination, source, size)
    }

    fn cuMemcpyDtoD_v2(destination: usize, source: usize, size: usize) {
        copy_now(Direction::OnDevice, destination, source, size)
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
