//! Maps what a predecessor left where it was: all of it, or nothing.
//!
//! What is [offered](Ahead) while the predecessor still ends is mapped before it is this program's, so that nothing of it is
//! left to be done when it is. Nobody is given an address of it before; it is noted as kept only then.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{mem::MaybeUninit, ptr};

use remps_proto::shim::{Range, Region as Described};

use crate::{
    cuda::{
        gpu_name, library,
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
    process::{
        descriptors::Held,
        failpoint::{fails, reached},
        log,
    },
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

/// What was offered, mapped and not this program's. Given up it is unmapped and its descriptors are closed.
#[derive(Debug)]
pub(super) struct Ahead {
    offer: u64,
    /// The copy of the driver in which it is mapped.
    copy: u64,
    regions: Vec<(Described, Region)>,
}

impl Ahead {
    /// Maps what is mapped anywhere.
    pub(super) fn map(offer: u64, found: Vec<(Described, Held)>) -> Result<Self, Trouble> {
        let copy = library::generation();
        let Ok((_, current)) = kept::objects::current::current() else { return Err(Trouble::NoContext) };
        if fails("map-ahead") {
            return Err(Trouble::Driver(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        let mapped = found.into_iter().filter(|(described, _)| described.address != 0).collect();
        let ahead = Self { offer, copy, regions: map_each(mapped, current)? };
        reached("offer-mapped");
        Ok(ahead)
    }

    /// With which number it is asked for.
    pub(super) const fn offer(&self) -> u64 {
        self.offer
    }

    /// This region, if it is there as it is described, in the copy of the driver that lives.
    fn take(&mut self, described: &Described) -> Option<Region> {
        let is_it = |(known, _): &(Described, Region)| {
            (known.key, known.address, known.bytes, &known.gpu)
                == (described.key, described.address, described.bytes, &described.gpu)
        };
        let at = self.regions.iter().position(is_it).filter(|_| self.copy == library::generation())?;
        Some(self.regions.swap_remove(at).1)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // A copy that is dead has no mappings any more that could be taken back.
        let is_alive = self.copy == library::generation();
        self.regions.drain(..).filter(|_| is_alive).for_each(|(_, region)| region.destroy());
    }
}

/// Maps these, as far as they are not mapped ahead, and notes them as this program's memory with the labelled ranges as what is
/// used of it. What was mapped nowhere is given back to the caller, by its key.
pub(super) fn map_all(
    link: &Link,
    found: Vec<(Described, Held)>,
    ahead: Option<Ahead>,
    ranges: &[Range],
) -> Result<Vec<u64>, Trouble> {
    let Ok((context, current)) = kept::objects::current::current() else { return Err(Trouble::NoContext) };
    let (mapped, unmapped): (Vec<_>, Vec<_>) = found.into_iter().partition(|(described, _)| described.address != 0);
    let (mut regions, mut others) = (Vec::new(), Vec::new());
    if let Some(mut ahead) = ahead {
        for (described, descriptor) in mapped {
            match ahead.take(&described) {
                Some(region) => regions.push((described, region)),
                None => others.push((described, descriptor)),
            }
        }
    } else {
        others = mapped;
    }
    match map_each(others, current) {
        Ok(mapped) => regions.extend(mapped),
        Err(trouble) => {
            regions.into_iter().for_each(|(_, region): (Described, Region)| region.destroy());
            return Err(trouble);
        }
    }
    note_all(link, regions, ranges, context);
    Ok(unmapped.into_iter().map(|(described, _)| described.key).collect())
}

/// Maps all of these or none.
fn map_each(found: Vec<(Described, Held)>, current: CUdevice) -> Result<Vec<(Described, Region)>, Trouble> {
    let mut regions: Vec<(Described, Region)> = Vec::new();
    for (described, descriptor) in found {
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
    Ok(regions)
}

fn note_all(link: &Link, regions: Vec<(Described, Region)>, ranges: &[Range], context: usize) {
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
