//! The child: it has memory, says where it is, and comes to harm.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and the library's function is found by name")]

use super::{ALLOCATED, MAPPED, failed, pattern};
use crate::programs::gpu::{Argument, Gpu, GpuError, initialise};
use crate::programs::memory_probe::mapped::map_new;
use crate::programs::memory_probe::{allocate, check};
use crate::programs::report::Report;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

/// An address that nothing is ever mapped at.
const WILD: u64 = 0x10;
/// Ranges that are asked for at most.
const ROOM: usize = 64;
/// Between two looks whether a fault of another client has come.
const EVERY: Duration = Duration::from_millis(1);

/// `struct mps_shim_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    base: u64,
    size: u64,
    offset: u64,
    device: i32,
    descriptor: i32,
}

/// What the preloaded library keeps.
fn regions() -> Result<Vec<Region>, GpuError> {
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mps_shim_regions".as_ptr()) };
    if found.is_null() {
        return Err(failed("mps_shim_regions", "the library is not preloaded"));
    }
    // SAFETY: the function of this name has this type, by the library's header.
    let ask =
        unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(*mut Region, usize) -> usize>(found) };
    let mut regions = vec![Region::default(); ROOM];
    // SAFETY: there is as much room as is said.
    let count = unsafe { ask(regions.as_mut_ptr(), ROOM) };
    regions.truncate(count);
    Ok(regions)
}

fn fill(address: u64, size: usize, seed: u8) -> Result<Value, GpuError> {
    let bytes = pattern(size, seed);
    // SAFETY: the source is as long as the copy; the driver checks the destination.
    check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), size) })?;
    Ok(json!({ "address": address, "size": size, "seed": seed }))
}

fn work(report: Report, kind: &str) -> Result<Value, GpuError> {
    initialise()?;
    let mut gpu = Gpu::open(0)?;
    let mut blocks = Vec::new();
    for (size, seed) in ALLOCATED.into_iter().zip(1..) {
        blocks.push(fill(allocate(size)?, size, seed)?);
    }
    blocks.push(fill(map_new(MAPPED)?, MAPPED, 77)?);
    gpu.synchronize()?;
    let kernel = match kind {
        "own-trap" => Some((gpu.kernel("trap")?, Vec::new())),
        "own-oob" => Some((gpu.kernel("oob")?, vec![Argument::U64(WILD)])),
        _ => None,
    };
    let regions: Vec<Value> = regions()?
        .into_iter()
        .map(|Region { base, size, offset, device, descriptor }| {
            json!({ "base": base, "size": size, "offset": offset, "device": device, "descriptor": descriptor })
        })
        .collect();
    report.say("kept", json!({ "regions": regions, "blocks": blocks }));
    let answer = match kernel {
        Some((kernel, arguments)) => gpu.launch(kernel, 1, &arguments).and_then(|()| gpu.synchronize()),
        None if kind == "other" => loop {
            // An idle client hears of a fault when it asks.
            match gpu.synchronize() {
                Ok(()) => std::thread::park_timeout(EVERY),
                error => break error,
            }
        },
        None => Ok(()),
    };
    if let Err(error) = &answer {
        report.say("lost", json!({ "call": error.call, "code": error.code }));
    }
    // The descriptors are here until the parent has its copies.
    let _nothing = std::io::stdin().read_to_end(&mut Vec::new());
    answer.map(|()| json!({}))
}

/// The program.
pub(super) fn run(report: Report, kind: &str) -> ExitCode {
    report.end(work(report, kind), json!({}))
}
