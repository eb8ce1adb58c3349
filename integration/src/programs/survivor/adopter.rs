//! Descriptors out of one child into another: memory at the same addresses, every byte compared.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and pidfd_getfd has no safe wrapper")]

use super::{failed, pattern};
use crate::programs::gpu::{Gpu, GpuError, initialise};
use crate::programs::memory_probe::check;
use crate::programs::memory_probe::mapped::allow;
use crate::programs::report::{Report, milliseconds};
use cudarc::driver::sys;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::{Value, json};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What each step took, for all ranges together.
#[derive(Default)]
struct Steps {
    import: Duration,
    reserve: Duration,
    map: Duration,
    access: Duration,
}

fn owned(number: libc::c_long) -> Result<OwnedFd, GpuError> {
    match i32::try_from(number) {
        // SAFETY: the kernel has just made it for this process.
        Ok(number) if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(failed("pidfd", std::io::Error::last_os_error())),
    }
}

fn number(of: &Value, name: &str) -> Result<u64, GpuError> {
    of[name].as_u64().ok_or_else(|| failed("victim", format_args!("no {name} in {of}")))
}

fn size(of: &Value, name: &str) -> Result<usize, GpuError> {
    usize::try_from(number(of, name)?).map_err(|error| failed("victim", error))
}

/// Copies of the descriptors that the child has told of, for the next child to inherit; its list then has their numbers.
pub(super) fn copies(child: u32, kept: &mut Value) -> Result<Vec<OwnedFd>, GpuError> {
    // SAFETY: takes numbers and gives one.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) })?;
    let regions = kept["regions"].as_array_mut().ok_or_else(|| failed("victim", "no list of regions"))?;
    let mut copies = Vec::new();
    for region in regions {
        let there = number(region, "descriptor")?;
        // SAFETY: as above.
        let copy = owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), there, 0) })?;
        fcntl(&copy, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|error| failed("fcntl", error))?;
        region["descriptor"] = copy.as_raw_fd().into();
        copies.push(copy);
    }
    Ok(copies)
}

/// The program: takes the memory that standard input tells of.
pub(super) fn run(report: Report) -> ExitCode {
    report.end(adopt(report), json!({}))
}

fn adopt(report: Report) -> Result<Value, GpuError> {
    let kept: Value = serde_json::from_reader(std::io::stdin()).map_err(|error| failed("kept", error))?;
    let regions = kept["regions"].as_array().ok_or_else(|| failed("victim", "no list of regions"))?;
    let begin = Instant::now();
    initialise()?;
    let initialised = begin.elapsed();
    let _gpu = Gpu::open(0)?;
    let opened = begin.elapsed();
    let mut steps = Steps::default();
    reserve_around(regions, &mut steps)?;
    for region in regions {
        map(region, &mut steps)?;
    }
    let (bytes, is_intact) = compare(&kept)?;
    report.say(
        "mapped",
        json!({
            "regions": regions.len(), "bytes": bytes, "is_intact": is_intact,
            "init_ms": milliseconds(initialised), "context_ms": milliseconds(opened - initialised),
            "import_ms": milliseconds(steps.import), "reserve_ms": milliseconds(steps.reserve),
            "map_ms": milliseconds(steps.map), "access_ms": milliseconds(steps.access),
        }),
    );
    Ok(json!({}))
}

/// Reserves the addresses of all ranges, in whole granules: the driver gives a smaller or an unaligned range elsewhere,
/// whatever is wished (measured with 580.159.04).
fn reserve_around(regions: &[Value], steps: &mut Steps) -> Result<(), GpuError> {
    const GRANULE: u64 = 32 << 20;
    let begin = Instant::now();
    let mut granules: Vec<(u64, u64)> = Vec::new();
    let mut ranges = regions
        .iter()
        .map(|region| Ok((number(region, "base")?, number(region, "size")?)))
        .collect::<Result<Vec<_>, GpuError>>()?;
    ranges.sort_unstable();
    for (base, length) in ranges {
        let (start, end) = (base - base % GRANULE, (base + length).next_multiple_of(GRANULE));
        match granules.last_mut() {
            Some((_, known)) if start <= *known => *known = end.max(*known),
            _ => granules.push((start, end)),
        }
    }
    for (wanted, end) in granules {
        let length = usize::try_from(end - wanted).map_err(|error| failed("cuMemAddressReserve", error))?;
        let mut base = 0;
        // SAFETY: the result is a variable of ours.
        let answer = unsafe { sys::cuMemAddressReserve(&raw mut base, length, 0, wanted, 0) };
        check("cuMemAddressReserve", answer)?;
        if base != wanted {
            return Err(failed("cuMemAddressReserve", format_args!("{base:#x} in place of {wanted:#x}")));
        }
    }
    steps.reserve += begin.elapsed();
    Ok(())
}

/// Maps a range where it was before, in what is reserved.
fn map(region: &Value, steps: &mut Steps) -> Result<(), GpuError> {
    let kind = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let descriptor = size(region, "descriptor")?;
    let (base, length, offset) = (number(region, "base")?, size(region, "size")?, size(region, "offset")?);
    let mut handle = 0;
    let begin = Instant::now();
    // SAFETY: the driver takes the number of a descriptor in a pointer's place.
    let answer = unsafe {
        sys::cuMemImportFromShareableHandle(&raw mut handle, std::ptr::without_provenance_mut(descriptor), kind)
    };
    check("cuMemImportFromShareableHandle", answer)?;
    let imported = begin.elapsed();
    // SAFETY: the range was reserved before.
    check("cuMemMap", unsafe { sys::cuMemMap(base, length, offset, handle, 0) })?;
    let mapped = begin.elapsed();
    allow(base, length)?;
    let allowed = begin.elapsed();
    // SAFETY: the mapping holds the memory now.
    check("cuMemRelease", unsafe { sys::cuMemRelease(handle) })?;
    steps.import += imported;
    steps.map += mapped - imported;
    steps.access += allowed - mapped;
    Ok(())
}

/// Reads what the child has written; how many bytes, and whether they are the same.
fn compare(kept: &Value) -> Result<(usize, bool), GpuError> {
    let blocks = kept["blocks"].as_array().ok_or_else(|| failed("victim", "no list of blocks"))?;
    let (mut total, mut is_intact) = (0, true);
    for block in blocks {
        let (address, size) = (number(block, "address")?, size(block, "size")?);
        let seed = u8::try_from(number(block, "seed")?).map_err(|error| failed("victim", error))?;
        let mut bytes = vec![0_u8; size];
        // SAFETY: the destination is as long as the copy; the driver checks the source.
        check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, size) })?;
        is_intact &= bytes == pattern(size, seed);
        total += size;
    }
    Ok((total, is_intact))
}
