//! Contexts.

use crate::abi::{Out, entry_points};
use crate::codes::{Code, Outcome};
use crate::contexts::{current, current_handle, current_or_failed, pop, push, set_current};
use crate::device::DRIVER_VERSION;
use crate::driver::{Driver, driver};
use std::ffi::{c_int, c_uint, c_void};

/// Defaults of `CU_LIMIT_STACK_SIZE`, `CU_LIMIT_PRINTF_FIFO_SIZE` and `CU_LIMIT_MALLOC_HEAP_SIZE`, in bytes.
const LIMITS: [usize; 3] = [1024, 1 << 20, 8 << 20];

pub(super) fn ordinal(driver: &Driver, device: c_int) -> Outcome<u32> {
    driver.device(device).map(|device| device.ordinal)
}

fn create(context: &Out<usize>, device: c_int) -> Outcome {
    let driver = driver()?;
    let device = ordinal(driver, device)?;
    let handle = driver.create_context(driver.new_handle(), device)?.handle;
    push(handle);
    context.put(handle)
}

fn retain(context: &Out<usize>, device: c_int) -> Outcome {
    let driver = driver()?;
    context.put(driver.retain_primary(ordinal(driver, device)?)?)
}

fn is_primary(driver: &Driver, handle: usize) -> bool {
    driver.devices.iter().any(|device| Driver::primary_handle(device.ordinal) == handle)
}

entry_points! {
    fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: c_int) {
        retain(&context, device)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let driver = driver()?;
        driver.release_primary(ordinal(driver, device)?)
    }

    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        let driver = driver()?;
        driver.reset_primary(ordinal(driver, device)?);
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) {
        let driver = driver()?;
        let device = ordinal(driver, device)?;
        driver.tables().primaries.entry(device).or_default().flags = flags;
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, is_active: Out<c_int>) {
        let driver = driver()?;
        let device = ordinal(driver, device)?;
        let tables = driver.tables();
        flags.put(tables.primaries.get(&device).map_or(0, |primary| primary.flags))?;
        is_active.put(c_int::from(tables.contexts.contains_key(&Driver::primary_handle(device))))
    }

    fn cuCtxCreate_v2(context: Out<usize>, _flags: c_uint, device: c_int) {
        create(&context, device)
    }

    fn cuCtxCreate_v3(context: Out<usize>, _affinity: *mut c_void, _count: c_int, _flags: c_uint, device: c_int) {
        create(&context, device)
    }

    fn cuCtxCreate_v4(context: Out<usize>, _parameters: *mut c_void, _flags: c_uint, device: c_int) {
        create(&context, device)
    }

    fn cuCtxDestroy_v2(context: usize) {
        let driver = driver()?;
        if is_primary(driver, context) {
            return Err(Code::INVALID_CONTEXT);
        }
        if current_handle() == Some(context) {
            pop();
        }
        if driver.destroy_context(context) { Ok(()) } else { Err(Code::INVALID_CONTEXT) }
    }

    fn cuCtxAttach(context: Out<usize>, flags: c_uint) {
        let (driver, current) = current_or_failed()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        *driver.tables().attached.entry(current.handle).or_default() += 1;
        context.put(current.handle)
    }

    fn cuCtxDetach(context: usize) {
        let driver = driver()?;
        if current_handle() != Some(context) || !driver.tables().contexts.contains_key(&context) {
            return Err(Code::INVALID_CONTEXT);
        }
        // Measured with 580.159.04: this does nothing to a primary one.
        if is_primary(driver, context) {
            return Ok(());
        }
        if let Some(count @ 1..) = driver.tables().attached.get_mut(&context) {
            *count -= 1;
            return Ok(());
        }
        pop();
        driver.destroy_context(context);
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: usize) {
        if !driver()?.tables().contexts.contains_key(&context) {
            return Err(Code::INVALID_CONTEXT);
        }
        push(context);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<usize>) {
        driver()?;
        context.put_if_wanted(pop().ok_or(Code::INVALID_CONTEXT)?);
        Ok(())
    }

    fn cuCtxSetCurrent(context: usize) {
        let driver = driver()?;
        // A primary one may be set before there is one, and what needs it fails then (709, measured with 580.159.04).
        if context != 0 && !is_primary(driver, context) && !driver.tables().contexts.contains_key(&context) {
            return Err(Code::INVALID_CONTEXT);
        }
        set_current((context != 0).then_some(context));
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<usize>) {
        driver()?;
        context.put(current_handle().unwrap_or(0))
    }

    fn cuCtxGetDevice(device: Out<c_int>) {
        let (_, context) = current_or_failed()?;
        device.put(c_int::try_from(context.device).map_err(|_| Code::UNKNOWN)?)
    }

    fn cuCtxSynchronize() {
        super::capture::unsafe_call()?;
        let (_, context) = current()?;
        context.drain()
    }

    fn cuCtxSynchronize_v2(context: usize) {
        let driver = driver()?;
        let found = driver.tables().contexts.get(&context).cloned().ok_or(Code::INVALID_CONTEXT)?;
        found.check()?;
        found.drain()
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        let (driver, context) = current_or_failed()?;
        let tables = driver.tables();
        flags.put(tables.primaries.get(&context.device).map_or(0, |primary| primary.flags))
    }

    fn cuCtxSetFlags(flags: c_uint) {
        let (driver, context) = current()?;
        driver.tables().primaries.entry(context.device).or_default().flags = flags;
        Ok(())
    }

    fn cuCtxGetLimit(bytes: Out<usize>, limit: c_int) {
        let (driver, context) = current()?;
        let index = usize::try_from(limit).map_err(|_| Code::INVALID_VALUE)?;
        let usual = *LIMITS.get(index).ok_or(Code::INVALID_VALUE)?;
        bytes.put(driver.tables().context_limits.get(&(context.handle, index)).copied().unwrap_or(usual))
    }

    fn cuCtxSetLimit(limit: c_int, bytes: usize) {
        let (driver, context) = current()?;
        let index = usize::try_from(limit).map_err(|_| Code::INVALID_VALUE)?;
        LIMITS.get(index).ok_or(Code::INVALID_VALUE)?;
        driver.tables().context_limits.insert((context.handle, index), bytes);
        Ok(())
    }

    fn cuCtxGetId(handle: usize, id: Out<u64>) {
        let context = if handle == 0 { current()?.1 } else {
            driver()?.tables().contexts.get(&handle).cloned().ok_or(Code::INVALID_CONTEXT)?
        };
        id.put(context.id)
    }

    fn cuCtxGetApiVersion(context: usize, version: Out<c_uint>) {
        let driver = driver()?;
        let wanted = if context == 0 { current_handle() } else { Some(context) };
        if !wanted.is_some_and(|handle| driver.tables().contexts.contains_key(&handle)) {
            return Err(Code::INVALID_CONTEXT);
        }
        version.put(DRIVER_VERSION.unsigned_abs())
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        current()?;
        least.put_if_wanted(0);
        greatest.put_if_wanted(-5);
        Ok(())
    }
}
