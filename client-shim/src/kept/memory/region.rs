//! One piece of device memory of ours: allocated so that it can be exported, mapped at an address of our choice, and
//! held by a descriptor.
//!
//! The allocation's handle is released as soon as the memory is mapped and exported: the mapping and the descriptor
//! hold it, and what is unmapped and closed is gone.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::arena;
use crate::process::descriptors::{Held, NotHeld};
use crate::{
    cuda::{
        result::CUresult,
        types::{CUdevice, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation},
    },
    process::{failpoint::reached, log, maps},
};

/// Granularity of exportable memory, in bytes. `cuMemGetAllocationGranularity` says so for every GPU so far; another
/// one would make `cuMemCreate` fail, and the program's call go to the driver.
pub(crate) const PAGE: u64 = 2 << 20;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(super) const PINNED: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(crate) const DEVICE: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const DESCRIPTOR: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(super) const READ_WRITE: u32 = 3;
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
const RDMA_SUPPORTED: u32 = 110;

/// Why there is no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The driver has no memory left.
    OutOfMemory,
    /// The driver refused.
    Driver(CUresult),
    /// The memory is there, but no descriptor of it could be held.
    Descriptor(NotHeld),
}

impl From<CUresult> for Failure {
    fn from(answer: CUresult) -> Self {
        if answer == CUresult::CUDA_ERROR_OUT_OF_MEMORY { Self::OutOfMemory } else { Self::Driver(answer) }
    }
}

/// A mapped piece of memory. It must be given back by [`Region::destroy`].
#[derive(Debug)]
pub(crate) struct Region {
    /// Its address.
    pub(crate) base: u64,
    /// Bytes, a multiple of [`PAGE`].
    pub(crate) size: u64,
    /// Whose memory it is.
    pub(crate) device: CUdevice,
    /// What keeps it alive.
    pub(crate) descriptor: Held,
}

pub(super) fn checked(answer: CUresult) -> Result<(), CUresult> {
    if answer == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(answer) }
}

fn length(size: u64) -> usize {
    usize::try_from(size).expect("addresses have 64 bits here")
}

impl Region {
    /// Allocates `size` bytes, a multiple of [`PAGE`], on `device`, if possible at the address `wanted`, for use by that
    /// device and `peers`. With 0, or where that is not possible, the driver chooses the address.
    pub(crate) fn create(device: CUdevice, size: u64, wanted: u64, peers: &[CUdevice]) -> Result<Self, Failure> {
        let mut properties = CUmemAllocationProp {
            kind: PINNED,
            handle_types: DESCRIPTOR,
            location: CUmemLocation { kind: DEVICE, id: device },
            windows: ptr::null_mut(),
            compression: 0,
            is_rdma_capable: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let mut is_rdma_capable = 0;
        // Memory of `cuMemAlloc` can be reached by network cards wherever the machine allows it, so ours must be.
        if driver!(query::cuDeviceGetAttribute(&raw mut is_rdma_capable, RDMA_SUPPORTED, device)).is_success() {
            properties.is_rdma_capable = u8::from(is_rdma_capable == 1);
        }
        let mut handle = CUmemGenericAllocationHandle(0);
        checked(driver!(mapping::cuMemCreate(&raw mut handle, length(size), &raw const properties, 0)))?;
        reached("memory-created");
        let region = Self::map(handle, device, size, wanted, peers);
        // What is mapped and exported stays; what is not is freed.
        let _nothing_to_do = driver!(mapping::cuMemRelease(handle));
        region
    }

    fn map(
        handle: CUmemGenericAllocationHandle,
        device: CUdevice,
        size: u64,
        wanted: u64,
        peers: &[CUdevice],
    ) -> Result<Self, Failure> {
        let mut descriptor = -1;
        let into = (&raw mut descriptor).cast();
        checked(driver!(mapping::cuMemExportToShareableHandle(into, handle, DESCRIPTOR, 0)))?;
        let descriptor = Held::take(descriptor).map_err(Failure::Descriptor)?;
        reached("memory-exported");
        let is_mapped = |base| checked(driver!(mapping::cuMemMap(base, length(size), 0, handle, 0)));
        let mut base = wanted;
        if !arena::prepare(wanted, size) || is_mapped(wanted).is_err() {
            let wish = if arena::holds(wanted, size) { 0 } else { wanted };
            checked(driver!(mapping::cuMemAddressReserve(&raw mut base, length(size), length(PAGE), wish, 0)))?;
            if let Err(answer) = is_mapped(base) {
                free_addresses(base, size);
                return Err(answer.into());
            }
        }
        let region = Self { base, size, device, descriptor };
        reached("memory-mapped");
        let users: Vec<CUdevice> = [device].iter().chain(peers).copied().collect();
        if let Err(answer) = region.allow(&users) {
            region.destroy();
            return Err(answer.into());
        }
        reached("memory-allowed");
        Ok(region)
    }

    /// Lets these devices read and write it.
    pub(crate) fn allow(&self, devices: &[CUdevice]) -> Result<(), CUresult> {
        allow(self.base, self.size, devices)
    }

    /// Unmaps it and closes its descriptor: the memory is free.
    pub(crate) fn destroy(self) {
        // A device that is lost refuses even this; the descriptor is closed all the same, and the kernel frees.
        if driver!(mapping::cuMemUnmap(self.base, length(self.size))).is_success() {
            free_addresses(self.base, self.size);
        }
    }
}

/// Gives the addresses of something that is not mapped any longer back to the driver, unless they are an arena's.
pub(crate) fn free_addresses(base: u64, size: u64) {
    if !arena::holds(base, size) {
        let _nothing_to_do = driver!(mapping::cuMemAddressFree(base, length(size)));
    }
}

/// Why a range of addresses can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReserved {
    /// The driver refuses.
    Driver(CUresult),
    /// The driver gives another one; standard error has both.
    Elsewhere,
}

/// Reserves this range of addresses and no other.
pub(crate) fn reserve_at(wanted: u64, size: u64) -> Result<(), NotReserved> {
    let mut base = 0;
    checked(driver!(mapping::cuMemAddressReserve(&raw mut base, length(size), length(PAGE), wanted, 0)))
        .map_err(NotReserved::Driver)?;
    if base == wanted {
        return Ok(());
    }
    let _nothing_to_do = driver!(mapping::cuMemAddressFree(base, length(size)));
    let lies_there = maps::read().unwrap_or_default().into_iter().find(|range| range.meets(wanted, size));
    let found = match &lies_there {
        Some(range) => format!("{:#x}-{:#x} {} {}", range.start, range.end, range.access, range.rest.trim()),
        None => "nothing".to_owned(),
    };
    log::complain(format_args!("{size:#x} bytes at {wanted:#x}: the driver gives {base:#x}; {found} lies there"));
    Err(NotReserved::Elsewhere)
}

/// Lets these devices read and write a mapped range.
pub(crate) fn allow(base: u64, size: u64, devices: &[CUdevice]) -> Result<(), CUresult> {
    let accesses: Vec<CUmemAccessDesc> = devices
        .iter()
        .map(|&device| CUmemAccessDesc { location: CUmemLocation { kind: DEVICE, id: device }, flags: READ_WRITE })
        .collect();
    checked(driver!(mapping::cuMemSetAccess(base, length(size), accesses.as_ptr(), accesses.len())))
}
