//! Maps what a predecessor left where it was: all of it, or nothing.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{mem::MaybeUninit, ptr};

use remps_proto::shim::{Range, Region as Described};

use crate::{
    cuda::{
        gpu_name,
        result::CUresult,
        types::{CUdevice, CUmemGenericAllocationHandle},
    },
    daemon::link::Link,
    kept::{
        self, Adopted,
        memory::{
            arena,
            region::{self, DESCRIPTOR, NotReserved, Region},
        },
    },
    process::{descriptors::Held, failpoint::reached, log},
};

/// Why it is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No context is current.
    NoContext,
    /// An address is in use in this process.
    Address,
    /// The GPU is not one of this process's.
    Device,
    /// The driver refuses.
    Driver(CUresult),
    /// There is no room for the descriptor.
    Descriptor,
}

fn length(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Maps these, and notes them as this program's memory with the labelled ranges as what is used of it. What was mapped
/// nowhere is given back to the caller, by its key.
pub(super) fn map_all(link: &Link, found: Vec<(Described, Held)>, ranges: &[Range]) -> Result<Vec<u64>, Trouble> {
    let Ok((context, current)) = kept::objects::current::current() else { return Err(Trouble::NoContext) };
    let (mapped, unmapped): (Vec<_>, Vec<_>) = found.into_iter().partition(|(described, _)| described.address != 0);
    let mut regions: Vec<(Described, Region)> = Vec::new();
    for (described, descriptor) in mapped {
        let device = if described.gpu.is_empty() { Some(current) } else { gpu_name::ordinal(&described.gpu) };
        let region = device.ok_or(Trouble::Device).and_then(|device| map(&described, descriptor, device));
        match region {
            Ok(region) => regions.push((described, region)),
            Err(trouble) => {
                log::complain(format_args!(
                    "memory of a predecessor at {:#x} is not adopted: {trouble:?}",
                    described.address
                ));
                regions.into_iter().for_each(|(_, region)| region.destroy());
                return Err(trouble);
            }
        }
    }
    for (described, region) in regions {
        let (serial, end) = (region.descriptor.serial(), region.base + region.size);
        let inside = |range: &&Range| range.address >= region.base && range.address + range.bytes <= end;
        let blocks = ranges.iter().filter(inside).map(|range| (range.address, range.bytes)).collect();
        // The link must neither give it away anew nor release it before it is in the store.
        link.adopt(serial, described);
        let _kept_on = kept::add_adopted(Adopted { region, blocks }, context);
        reached("adoption-noted");
        link.arrived(serial);
    }
    Ok(unmapped.into_iter().map(|(described, _)| described.key).collect())
}

fn map(described: &Described, descriptor: Held, device: CUdevice) -> Result<Region, Trouble> {
    let (wanted, size) = (described.address, described.bytes);
    let held = descriptor.of_memory();
    let number = held.number().ok_or(Trouble::Descriptor)?;
    let mut handle = MaybeUninit::<CUmemGenericAllocationHandle>::zeroed();
    let from = ptr::without_provenance_mut(usize::try_from(number).map_err(|_| Trouble::Descriptor)?);
    checked(driver!(mapping::cuMemImportFromShareableHandle(handle.as_mut_ptr(), from, DESCRIPTOR)))?;
    reached("adoption-imported");
    // SAFETY: zeroes are a handle, and the driver has written one.
    let handle = unsafe { handle.assume_init() };
    let mapped = map_handle(handle, wanted, size);
    // The mapping and the descriptor hold it.
    let _nothing_to_do = driver!(mapping::cuMemRelease(handle));
    mapped?;
    reached("adoption-mapped");
    let region = Region { base: wanted, size, device, descriptor: held };
    match region::allow(wanted, size, &[device]) {
        Ok(()) => {
            reached("adoption-allowed");
            Ok(region)
        }
        Err(answer) => {
            region.destroy();
            Err(Trouble::Driver(answer))
        }
    }
}

fn map_handle(handle: CUmemGenericAllocationHandle, wanted: u64, size: u64) -> Result<(), Trouble> {
    if !arena::prepare(wanted, size) {
        region::reserve_at(wanted, size).map_err(|why| match why {
            NotReserved::Driver(answer) => Trouble::Driver(answer),
            NotReserved::Elsewhere => Trouble::Address,
        })?;
    }
    let answer = checked(driver!(mapping::cuMemMap(wanted, length(size), 0, handle, 0)));
    if answer.is_err() {
        region::free_addresses(wanted, size);
    }
    answer
}

fn checked(answer: CUresult) -> Result<(), Trouble> {
    if answer.is_success() { Ok(()) } else { Err(Trouble::Driver(answer)) }
}
