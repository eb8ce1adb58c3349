//! What it takes to bring exported memory back: so many GiB in slabs of one size, by descriptor, in one range.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{checked, failed, number};
use crate::programs::gpu::{Gpu, GpuError, initialise};
use crate::programs::memory_probe::mapped::allow;
use crate::programs::report::milliseconds;
use cudarc::driver::sys;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

const KIND: sys::CUmemAllocationHandleType = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn properties() -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: KIND,
        location: sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// New memory, known by its descriptor alone.
fn exported(size: usize) -> Result<OwnedFd, GpuError> {
    let (mut handle, asked, mut descriptor) = (0, properties(), -1);
    // SAFETY: the result and what is asked for are variables of ours.
    checked("cuMemCreate", unsafe { sys::cuMemCreate(&raw mut handle, size, &raw const asked, 0) })?;
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { sys::cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, KIND, 0) };
    checked("cuMemExportToShareableHandle", answer)?;
    // SAFETY: the descriptor holds the memory now.
    checked("cuMemRelease", unsafe { sys::cuMemRelease(handle) })?;
    // SAFETY: the driver has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Measures it.
pub(super) fn run(gib: &str, slab_mib: &str) -> Result<Value, GpuError> {
    let (gib, slab_mib): (usize, usize) = (number(gib)?, number(slab_mib)?);
    let (total, slab) = (gib << 30, slab_mib << 20);
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| failed("getrlimit", error))?;
    setrlimit(Resource::RLIMIT_NOFILE, limit.1, limit.1).map_err(|error| failed("setrlimit", error))?;
    initialise()?;
    let _gpu = Gpu::open(0)?;
    let made = Instant::now();
    let descriptors: Vec<OwnedFd> = (0..total / slab).map(|_| exported(slab)).collect::<Result<_, _>>()?;
    let made = made.elapsed();
    let (mut base, begin) = (0, Instant::now());
    // SAFETY: the result is a variable of ours.
    checked("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&raw mut base, total, 0, 0, 0) })?;
    let reserve = begin.elapsed();
    let (mut import, mut map) = (Duration::ZERO, Duration::ZERO);
    for (index, descriptor) in descriptors.iter().enumerate() {
        let (mut handle, number, begin) = (0, descriptor.as_raw_fd(), Instant::now());
        let number = std::ptr::without_provenance_mut(usize::try_from(number).expect("an open descriptor"));
        // SAFETY: the driver takes the number of a descriptor in a pointer's place.
        let answer = unsafe { sys::cuMemImportFromShareableHandle(&raw mut handle, number, KIND) };
        checked("cuMemImportFromShareableHandle", answer)?;
        let imported = begin.elapsed();
        // SAFETY: the range was reserved above.
        checked("cuMemMap", unsafe { sys::cuMemMap(base + (index * slab) as u64, slab, 0, handle, 0) })?;
        import += imported;
        map += begin.elapsed() - imported;
        // SAFETY: the mapping holds the memory.
        checked("cuMemRelease", unsafe { sys::cuMemRelease(handle) })?;
    }
    let access = Instant::now();
    allow(base, total)?;
    let (access, all) = (access.elapsed(), begin.elapsed());
    let mut byte = [0];
    super::api::read(base + total as u64 - 1, &mut byte)?;
    Ok(json!({
        "gib": gib, "slab_mib": slab_mib, "slabs": descriptors.len(), "make_ms": milliseconds(made),
        "reserve_ms": milliseconds(reserve), "import_ms": milliseconds(import), "map_ms": milliseconds(map),
        "access_ms": milliseconds(access), "total_ms": milliseconds(all),
    }))
}
