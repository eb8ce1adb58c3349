//! Handles by which another process opens memory: `cuIpcGetMemHandle` and `cuIpcOpenMemHandle`.
//!
//! The driver makes such handles for its own memory alone. One of ours says where this process can be asked for the
//! descriptor of the slab that a block lies in ([`passing`](crate::process::passing)), and which part of it the block is.
//! Who opens it under this library maps the slab as it would map what it has imported by a descriptor, so that both sides
//! are recovered like any other memory; what it is told of is the block alone. To the driver of a process without the library such a handle says nothing.
#![expect(unsafe_code, reason = "calls the driver, and writes its result parameters")]

mod opened;
mod said;

pub(crate) use opened::Ipc;
pub(super) use opened::OpenBlock;

use std::{io, ptr};

use opened::Closed;
use said::Said;

use super::{
    mapping::{self, own},
    own::Reservation,
    region::{DESCRIPTOR, DEVICE, PAGE, READ_WRITE, checked},
};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::ipc::{cuIpcCloseMemHandle, cuIpcGetMemHandle, cuIpcOpenMemHandle_v2},
        result::CUresult,
        types::{
            CUdevice, CUdeviceptr, CUipcMemHandle, CUmemAccessDesc, CUmemGenericAllocationHandle, CUmemLocation,
            Key as _, c_uint,
        },
    },
    kept::{
        account::{self, Reason},
        memory,
        objects::current::current,
    },
    process::{
        descriptors::Held,
        log,
        passing::{self, Kind},
    },
};

/// For who listens: the descriptor of a block's slab by the block's number.
fn find(block: u64) -> Option<Held> {
    memory(|memory| memory.slabs.held(block)?.copy_for_the_vault()).ok().flatten()
}

/// Logic of `cuIpcGetMemHandle`.
pub(crate) fn export(
    _driver: &mut Driver<cuIpcGetMemHandle::Signature>,
    handle: *mut CUipcMemHandle,
    address: CUdeviceptr,
) -> Result<CUresult, Bypass> {
    if handle.is_null() {
        return Err(Bypass::ForTheDriver);
    }
    let piece = memory(|memory| memory.slabs.piece_around(address))?.ok_or(Bypass::NotOurs)?;
    match passing::listening(Kind::Memory, find) {
        Ok(secret) => {
            let (block, offset) = (piece.block, piece.start - piece.base);
            let said = Said { secret, block, piece: piece.slab, size: piece.size, offset, length: piece.length };
            // SAFETY: the program wants it there.
            unsafe { handle.write_unaligned(said.write()) };
            Ok(CUresult::CUDA_SUCCESS)
        }
        Err(error) => {
            log::complain(format_args!(
                "memory that is kept has no IPC handle, since nobody can be asked for it: {error}; cuIpcGetMemHandle \
                 fails with CUDA_ERROR_NOT_SUPPORTED (801)"
            ));
            Ok(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        }
    }
}

/// Logic of `cuIpcOpenMemHandle`.
pub(crate) fn open(
    driver: &mut Driver<cuIpcOpenMemHandle_v2::Signature>,
    place: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    _flags: c_uint,
) -> Result<CUresult, Bypass> {
    let Some(said) = Said::read(&handle) else {
        let answer = driver.pass();
        if answer.is_success() && !place.is_null() {
            // SAFETY: the driver has just written there.
            account::counted("cuIpcOpenMemHandle", Reason::Ipc, unsafe { *place });
        }
        return Ok(answer);
    };
    if place.is_null() {
        return Ok(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (_, device) = current()?;
    // What the driver says to a process about memory of its own.
    if passing::is_own(said.secret) {
        return Ok(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let base = match opened(&said, device)? {
        Ok(base) => base,
        Err(why) => {
            log::complain(format_args!(
                "another process's memory cannot be had: {why}; cuIpcOpenMemHandle fails with \
                 CUDA_ERROR_MAP_FAILED (205)"
            ));
            return Ok(CUresult::CUDA_ERROR_MAP_FAILED);
        }
    };
    // SAFETY: the program wants its result there.
    unsafe { *place = base + said.offset };
    Ok(CUresult::CUDA_SUCCESS)
}

/// Why there is no memory.
#[derive(Debug, thiserror::Error)]
enum Refused {
    /// It has ended, is another user's, or is in another network namespace.
    #[error("the process that has it does not give it: {0}")]
    Owner(#[from] io::Error),
    /// The driver's answer.
    #[error("{0} answers {1}")]
    Driver(&'static str, u32),
}

/// Opens a block for this device; where its piece of memory is.
fn opened(said: &Said, device: CUdevice) -> Result<Result<u64, Refused>, Bypass> {
    let mut descriptor = None;
    if !memory(|memory| memory.ipc.knows(said))? {
        // Whether the block is still there only its owner knows, also where its piece is mapped here for another one.
        descriptor = match passing::ask(said.secret, said.block) {
            Ok(descriptor) => Some(descriptor),
            Err(error) => return Ok(Err(error.into())),
        };
    }
    let Some((base, is_allowed)) = memory(|memory| memory.ipc.again(said, device))? else {
        return match descriptor {
            Some(descriptor) => get(said, device, &descriptor),
            // Another thread has closed it since.
            None => opened(said, device),
        };
    };
    if !is_allowed {
        let answer = allow(base, said.size, device)?;
        if !answer.is_success() {
            if let Closed::Last(base, size) = memory(|memory| memory.ipc.unopen(said))? {
                unmap(base, size)?;
            }
            return Ok(Err(Refused::Driver("cuMemSetAccess", answer.0)));
        }
        memory(|memory| memory.ipc.is_allowed(said, device))?;
    }
    Ok(Ok(base))
}

/// Maps a piece for this device; where it is.
fn get(said: &Said, device: CUdevice, descriptor: &Held) -> Result<Result<u64, Refused>, Bypass> {
    let mut handle = CUmemGenericAllocationHandle(0);
    let number = descriptor.number().and_then(|number| usize::try_from(number).ok());
    let from = ptr::without_provenance_mut(number.unwrap_or(usize::MAX));
    let refused = |call, CUresult(answer): CUresult| Ok(Err(Refused::Driver(call, answer)));
    if let Err(answer) = checked(driver!(mapping::cuMemImportFromShareableHandle(&raw mut handle, from, DESCRIPTOR))) {
        return refused("cuMemImportFromShareableHandle", answer);
    }
    mapping::import(&raw mut handle, from, DESCRIPTOR)?;
    let mapped = map(handle, said.size, device)?;
    // The mapping and the descriptor hold it.
    let released = own(|own| own.release(handle.key()))?;
    let _nothing_to_do = driver!(mapping::cuMemRelease(handle));
    drop(released);
    match mapped {
        Ok(base) => {
            // Another thread may have opened it meanwhile.
            if memory(|memory| memory.ipc.note(said, base, device))? {
                return Ok(Ok(base));
            }
            unmap(base, said.size)?;
            opened(said, device)
        }
        Err((call, answer)) => refused(call, answer),
    }
}

type Mapped = Result<u64, (&'static str, CUresult)>;

fn map(handle: CUmemGenericAllocationHandle, size: u64, device: CUdevice) -> Result<Mapped, Bypass> {
    let length = usize::try_from(size).map_err(|_| Bypass::ForTheDriver)?;
    let alignment = usize::try_from(PAGE).map_err(|_| Bypass::ForTheDriver)?;
    let (asked, wish) = mapping::place(length, alignment, 0)?;
    let mut base = 0;
    let answer = driver!(mapping::cuMemAddressReserve(&raw mut base, asked, alignment, wish, 0));
    if !answer.is_success() {
        return Ok(Err(("cuMemAddressReserve", answer)));
    }
    own(|own| own.reserve(base, Reservation { size, reserved: asked.key() }))?;
    let answer = driver!(mapping::cuMemMap(base, length, 0, handle, 0));
    if !answer.is_success() {
        unreserve(base, asked)?;
        return Ok(Err(("cuMemMap", answer)));
    }
    mapping::map(base, length, 0, handle)?;
    let answer = allow(base, size, device)?;
    if !answer.is_success() {
        unmap(base, size)?;
        return Ok(Err(("cuMemSetAccess", answer)));
    }
    Ok(Ok(base))
}

/// Lets a device use what is mapped here.
fn allow(base: u64, size: u64, device: CUdevice) -> Result<CUresult, Bypass> {
    let length = usize::try_from(size).map_err(|_| Bypass::ForTheDriver)?;
    let access = CUmemAccessDesc { location: CUmemLocation { kind: DEVICE, id: device }, flags: READ_WRITE };
    let answer = driver!(mapping::cuMemSetAccess(base, length, &raw const access, 1));
    if answer.is_success() {
        mapping::allow(base, length, &raw const access, 1)?;
    }
    Ok(answer)
}

fn unmap(base: u64, size: u64) -> Result<CUresult, Bypass> {
    let length = usize::try_from(size).map_err(|_| Bypass::ForTheDriver)?;
    let unmapped = own(|own| own.unmap(base, size))?;
    let answer = driver!(mapping::cuMemUnmap(base, length));
    if !answer.is_success() {
        own(|own| own.remap(unmapped))?;
        return Ok(answer);
    }
    let reserved = own(|own| own.reservation(base))?.map_or(size, |found| found.reserved);
    unreserve(base, usize::try_from(reserved).unwrap_or(length))?;
    Ok(answer)
}

fn unreserve(base: u64, reserved: usize) -> Result<(), Bypass> {
    own(|own| own.unreserve(base))?;
    // Addresses that are not given back are only that.
    let _nothing_to_do = driver!(mapping::cuMemAddressFree(base, reserved));
    Ok(())
}

/// Logic of `cuIpcCloseMemHandle`.
pub(crate) fn close(
    driver: &mut Driver<cuIpcCloseMemHandle::Signature>,
    address: CUdeviceptr,
) -> Result<CUresult, Bypass> {
    match memory(|memory| memory.ipc.close(address))? {
        Closed::Unknown => Ok(account::after_free(address, driver.pass())),
        Closed::StillOpen => Ok(CUresult::CUDA_SUCCESS),
        Closed::Last(base, size) => unmap(base, size),
    }
}

#[cfg(test)]
mod tests;
