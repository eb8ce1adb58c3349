//! Stream-ordered allocation from the default pool of a device.

use super::memory::{account, discount};
use crate::abi::{Out, entry_points};
use crate::allocations::Owner;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::contexts::current;
use crate::driver::driver;
use std::ffi::c_int;

/// Below all other handles; one pool for each device.
const FIRST_POOL: usize = 0x5e70_0000;

fn pool(out: &Out<usize>, device: c_int) -> Outcome {
    let ordinal = driver()?.device(device)?.ordinal;
    out.put(FIRST_POOL + usize::try_from(ordinal).map_err(|_| Code::UNKNOWN)? * 0x1000)
}

entry_points! {
    fn cuDeviceGetDefaultMemPool(out: Out<usize>, device: c_int) {
        pool(&out, device)
    }

    fn cuDeviceGetMemPool(out: Out<usize>, device: c_int) {
        pool(&out, device)
    }

    fn cuMemAllocAsync(address: Out<usize>, size: usize, stream: usize) {
        let (driver, context) = current()?;
        super::stream::find(&context, stream)?;
        let mut tables = driver.tables();
        account(&mut tables, context.device, size)?;
        let memory = tables.ranges.allocate(size, Owner::Context(context.handle), context.device);
        if memory.is_err() {
            discount(&mut tables, context.device, size);
        }
        address.put(memory?)
    }

    fn cuMemFreeAsync(address: usize, stream: usize) {
        let (driver, context) = current()?;
        match driver.tables().ranges.find(address) {
            Some((start, range)) if start == address && matches!(range.owner, Owner::Context(_)) => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        let stream = super::stream::find(&context, stream)?;
        let operation = move |_: &Context| {
            let mut tables = driver.tables();
            let range = tables.ranges.free(address)?;
            discount(&mut tables, range.device, range.size);
            Ok(())
        };
        stream.enqueue(&context, Box::new(operation)).map(drop)
    }
}
