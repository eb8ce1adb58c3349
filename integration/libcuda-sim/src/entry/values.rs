//! Writes to words of host memory by a stream, and its waits for them. Other processes may write and wait there too.

use super::stream::{PER_THREAD, find};
use crate::abi::{In, entry_points};
use crate::allocations::word;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::contexts::current;
use crate::copies::time_to_write;
use crate::driver::Driver;
use crate::stream::NULL_STREAM;
use std::ffi::c_uint;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of such a word.
const BYTES: usize = 8;
/// `CU_STREAM_WAIT_VALUE_GEQ`, the one kind of wait that is simulated.
const GREATER_OR_EQUAL: c_uint = 0;
/// How long a stream that waits lets others run before it looks again.
const BETWEEN_LOOKS: Duration = Duration::from_micros(30);
const LONGEST_BETWEEN_LOOKS: Duration = Duration::from_micros(500);

/// Gives a stream something to do with a word that this copy reaches.
fn submit(
    stream: usize,
    address: usize,
    work: impl FnOnce(&'static Driver, &Context) -> Outcome + Send + 'static,
) -> Outcome {
    let (driver, context) = current()?;
    let found = find(&context, stream)?;
    if driver.tables().graphs.captures.contains_key(&stream) {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    if !address.is_multiple_of(BYTES) || !context.at_work(driver)?.ranges.is_accessible(address, BYTES) {
        return Err(Code::INVALID_VALUE);
    }
    found.enqueue(&context, Box::new(move |context| work(driver, context))).map(drop)
}

fn write(stream: usize, address: usize, value: u64) -> Outcome {
    submit(stream, address, move |driver, context| {
        if let Some(time) = time_to_write(value) {
            context.pass_time(Some(time))?;
        }
        let tables = context.at_work(driver)?;
        if tables.ranges.is_accessible(address, BYTES) {
            word(address).store(value, Ordering::Release);
        }
        Ok(())
    })
}

fn wait(stream: usize, address: usize, value: u64, flags: c_uint) -> Outcome {
    if flags != GREATER_OR_EQUAL {
        return Err(Code::NOT_SUPPORTED);
    }
    submit(stream, address, move |driver, context| {
        let mut pause = BETWEEN_LOOKS;
        loop {
            {
                let tables = context.at_work(driver)?;
                // As documented: by the sign of the difference.
                let has_come = || word(address).load(Ordering::Acquire).wrapping_sub(value) < 1 << 63;
                if !tables.ranges.is_accessible(address, BYTES) || has_come() {
                    return Ok(());
                }
            }
            context.pass_time(Some(pause))?;
            pause = (pause * 2).min(LONGEST_BETWEEN_LOOKS);
        }
    })
}

fn own(stream: usize) -> usize {
    if stream == NULL_STREAM { PER_THREAD } else { stream }
}

/// `CUstreamBatchMemOpParams` in words: of a wait and of a write they are the kind, the address, the value and flags.
type Operation = [u64; 6];
/// `CU_STREAM_MEM_OP_WAIT_VALUE_64`, `…_WRITE_VALUE_64`: all that there is here.
const WAIT: u64 = 4;
const WRITE: u64 = 5;

/// One after the other, as documented.
fn batch(stream: usize, count: c_uint, operations: &In<Operation>) -> Outcome {
    for index in 0..count as usize {
        let [kind, address, value, flags, ..] = operations.at(index)?;
        let address = usize::try_from(address).map_err(|_| Code::INVALID_VALUE)?;
        match kind & u64::from(u32::MAX) {
            WAIT => wait(stream, address, value, c_uint::try_from(flags & u64::from(u32::MAX)).unwrap_or(0))?,
            WRITE => write(stream, address, value)?,
            _ => return Err(Code::NOT_SUPPORTED),
        }
    }
    Ok(())
}

entry_points! {
    fn cuStreamBatchMemOp_v2(stream: usize, count: c_uint, operations: In<Operation>, _flags: c_uint) {
        batch(stream, count, &operations)
    }

    fn cuStreamWriteValue64_v2(stream: usize, address: usize, value: u64, _flags: c_uint) {
        write(stream, address, value)
    }

    fn cuStreamWaitValue64_v2(stream: usize, address: usize, value: u64, flags: c_uint) {
        wait(stream, address, value, flags)
    }

    fn cuStreamWriteValue64_v2_ptsz(stream: usize, address: usize, value: u64, _flags: c_uint) {
        write(own(stream), address, value)
    }

    fn cuStreamWaitValue64_v2_ptsz(stream: usize, address: usize, value: u64, flags: c_uint) {
        wait(own(stream), address, value, flags)
    }
}
