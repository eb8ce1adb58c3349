//! Stream-ordered allocation from pools, and the pools.

use super::memory::{account, discount};
use crate::abi::{In, Out, entry_points};
use crate::allocations::Owner;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::contexts::current;
use crate::driver::{Driver, driver};
use crate::pools::{Pool, Pools};
use std::ffi::{c_int, c_uint};

/// Words of `CUmemPoolProps` that count: kind and handle types, location, the most bytes.
const PROPERTIES: usize = 4;
/// `CU_MEM_ALLOCATION_TYPE_PINNED` and no handle types; `CU_MEM_LOCATION_TYPE_DEVICE` in the lower half.
const PINNED: u64 = 1;
const ON_A_DEVICE: u64 = 1;

fn ordinal(driver: &Driver, device: c_int) -> Outcome<u32> {
    driver.device(device).map(|device| device.ordinal)
}

/// Works on a pool.
fn with<T>(handle: usize, work: impl FnOnce(&mut Pool) -> Outcome<T>) -> Outcome<T> {
    let driver = driver()?;
    work(driver.tables().pools.get(handle, driver.devices.len())?)
}

fn allocate(address: &Out<usize>, size: usize, pool: Option<usize>, stream: usize) -> Outcome {
    let (driver, context) = current()?;
    super::stream::find(&context, stream)?;
    if size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut tables = driver.tables();
    let pool = pool.unwrap_or_else(|| tables.pools.current(context.device));
    tables.pools.check(pool, size, driver.devices.len())?;
    account(&mut tables, context.device, size)?;
    match tables.ranges.allocate(size, Owner::Context(context.home), context.device) {
        Ok(found) => {
            tables.pools.took(pool, found, size);
            address.put(found)
        }
        Err(error) => {
            discount(&mut tables, context.device, size);
            Err(error)
        }
    }
}

entry_points! {
    fn cuDeviceGetDefaultMemPool(pool: Out<usize>, device: c_int) {
        pool.put(Pools::default_of(ordinal(driver()?, device)?))
    }

    fn cuDeviceGetMemPool(pool: Out<usize>, device: c_int) {
        let driver = driver()?;
        let device = ordinal(driver, device)?;
        pool.put(driver.tables().pools.current(device))
    }

    fn cuDeviceSetMemPool(device: c_int, pool: usize) {
        let driver = driver()?;
        let device = ordinal(driver, device)?;
        driver.tables().pools.set_current(device, pool, driver.devices.len())
    }

    fn cuMemPoolCreate(pool: Out<usize>, properties: In<u64>) {
        let driver = driver()?;
        let mut words = [0; PROPERTIES];
        for (index, word) in words.iter_mut().enumerate() {
            *word = properties.at(index)?;
        }
        let [kind, location, _security, most] = words;
        if kind != PINNED || location & u64::from(u32::MAX) != ON_A_DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        let device = ordinal(driver, c_int::try_from(location >> 32).map_err(|_| Code::INVALID_VALUE)?)?;
        let most = usize::try_from(most).map_err(|_| Code::INVALID_VALUE)?;
        pool.put(driver.tables().pools.create(driver.new_handle(), device, most))
    }

    fn cuMemPoolDestroy(pool: usize) {
        let driver = driver()?;
        driver.tables().pools.destroy(pool, driver.devices.len())
    }

    fn cuMemPoolTrimTo(pool: usize, _keep: usize) {
        with(pool, |_| Ok(()))
    }

    fn cuMemPoolGetAttribute(pool: usize, attribute: c_uint, value: usize) {
        let found = with(pool, |pool| pool.attribute(attribute))?;
        if Pool::is_short(attribute) {
            return Out::<u32>::at(value).put(u32::try_from(found).map_err(|_| Code::UNKNOWN)?);
        }
        Out::<u64>::at(value).put(found)
    }

    fn cuMemPoolSetAttribute(pool: usize, attribute: c_uint, value: usize) {
        let wanted = if Pool::is_short(attribute) {
            In::<u32>::placed(value).get()?.into()
        } else {
            In::<u64>::placed(value).get()?
        };
        with(pool, |pool| pool.set_attribute(attribute, wanted))
    }

    fn cuMemPoolSetAccess(pool: usize, accesses: In<[u32; 3]>, count: usize) {
        let driver = driver()?;
        for index in 0..count {
            let [_device, id, flags] = accesses.at(index)?;
            let device = ordinal(driver, id.cast_signed())?;
            with(pool, |pool| pool.allow(device, flags))?;
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: Out<c_uint>, pool: usize, location: In<[u32; 2]>) {
        let [_device, id] = location.get()?;
        let device = ordinal(driver()?, id.cast_signed())?;
        flags.put(with(pool, |pool| Ok(pool.access(device)))?)
    }

    fn cuMemAllocAsync(address: Out<usize>, size: usize, stream: usize) {
        allocate(&address, size, None, stream)
    }

    fn cuMemAllocFromPoolAsync(address: Out<usize>, size: usize, pool: usize, stream: usize) {
        allocate(&address, size, Some(pool), stream)
    }

    fn cuMemFreeAsync(address: usize, stream: usize) {
        let (driver, context) = current()?;
        match driver.tables().ranges.find(address) {
            Some((start, range)) if start == address && matches!(range.owner, Owner::Context(_)) => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        let stream = super::stream::find(&context, stream)?;
        let operation = move |context: &Context| {
            let mut tables = context.at_work(driver)?;
            let range = tables.ranges.free(address)?;
            discount(&mut tables, range.device, range.size);
            tables.pools.gave(address);
            Ok(())
        };
        stream.enqueue(&context, Box::new(operation)).map(drop)
    }
}
