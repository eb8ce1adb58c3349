//! Handles of memory for other processes, which this driver does not make of memory of its own: as where the real one
//! says that a device is not capable of it. Of mapped memory the real one makes none anywhere.

use crate::abi::{Out, entry_points};
use crate::allocations::Owner;
use crate::codes::Code;
use crate::contexts::current;
use std::ffi::c_uint;

/// `CUipcMemHandle`: by value in a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Handle([u64; 8]);

entry_points! {
    fn cuIpcGetMemHandle(_handle: Out<Handle>, address: usize) {
        let (driver, _) = current()?;
        match driver.tables().ranges.find(address) {
            Some((_, range)) if matches!(range.owner, Owner::Context(_)) => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuIpcGetEventHandle(handle: Out<Handle>, event: usize) {
        let (driver, _) = current()?;
        super::event::find(driver, event)?;
        // Nobody opens it: what another process would be given is not simulated.
        handle.put(Handle([u64::try_from(event).unwrap_or_default(); 8]))
    }

    fn cuIpcOpenEventHandle(_event: Out<usize>, _handle: Handle) {
        current()?;
        Err(Code::INVALID_VALUE)
    }

    fn cuIpcOpenMemHandle_v2(_address: Out<usize>, _handle: Handle, _flags: c_uint) {
        current()?;
        Err(Code::INVALID_VALUE)
    }

    fn cuIpcCloseMemHandle(_address: usize) {
        current()?;
        Err(Code::INVALID_VALUE)
    }
}
