//! Green contexts: as measured with 580.159.04 each retains its device's primary context, whose is what is made while its own
//! context is current, streams excepted, and it may end while that is current. All of a device is one resource here, of which
//! every green context has all.

use super::context::ordinal;
use crate::abi::{In, Out, entry_points};
use crate::codes::Code;
use crate::driver::driver;
use std::ffi::{c_int, c_uint};

/// `CU_DEV_RESOURCE_TYPE_SM`, `CU_GREEN_CTX_DEFAULT_STREAM`.
const PROCESSORS: c_uint = 1;
const DEFAULT_STREAM: c_uint = 1;

entry_points! {
    fn cuDeviceGetDevResource(device: c_int, resource: Out<c_uint>, kind: c_uint) {
        ordinal(driver()?, device)?;
        if kind == PROCESSORS { resource.put(kind) } else { Err(Code::NOT_SUPPORTED) }
    }

    fn cuDevResourceGenerateDesc(description: Out<usize>, resources: In<c_uint>, count: c_uint) {
        let driver = driver()?;
        if count == 0 || resources.get()? != PROCESSORS {
            return Err(Code::INVALID_VALUE);
        }
        description.put(driver.new_handle())
    }

    fn cuGreenCtxCreate(green: Out<usize>, description: usize, device: c_int, flags: c_uint) {
        let driver = driver()?;
        let device = ordinal(driver, device)?;
        if description == 0 || flags != DEFAULT_STREAM {
            return Err(Code::INVALID_VALUE);
        }
        let (handle, context) = (driver.new_handle(), driver.make_green(device)?);
        driver.tables().green.insert(handle, (device, context));
        green.put(handle)
    }

    fn cuCtxFromGreenCtx(context: Out<usize>, green: usize) {
        let (_, of) = driver()?.tables().green.get(&green).copied().ok_or(Code::INVALID_CONTEXT)?;
        context.put(of)
    }

    fn cuGreenCtxDestroy(green: usize) {
        let driver = driver()?;
        let (device, context) = driver.tables().green.remove(&green).ok_or(Code::INVALID_CONTEXT)?;
        driver.destroy_context(context);
        driver.release_primary(device)
    }
}
