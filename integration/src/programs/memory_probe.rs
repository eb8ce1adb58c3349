//! `mps-memory-probe`: what a program can find out about its memory and objects, and whether its bytes stay.
//!
//! One line `facts`, the same with and without the preloaded library that keeps memory, on a real GPU and on the
//! simulated one; then `end` or `error`. What differs from run to run (addresses, amounts that are free) is not in it.
//! `--fork` lets a child that only looks at its descriptors live between two allocations; `--few-descriptors` leaves the
//! process next to none.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and so is a fork")]

pub(super) mod belongs;
mod host;
pub(super) mod mapped;
mod objects;
mod ordered;
pub(super) mod pools;
pub(super) mod tables;

use super::gpu::{Argument, Gpu, GpuError, initialise};
use super::report::Report;
use cudarc::driver::sys;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::ffi::c_void;
use std::fs::File;
use std::process::ExitCode;

/// Bytes of the allocations, small and large, odd and even.
const SIZES: [usize; 9] = [1, 255, 512, 4_096, 100_000, 1 << 20, 3 << 20, 40 << 20, (33 << 20) + 4];
/// Length of the pattern that memory is filled with: a prime, which keeps pages apart.
const PERIOD: usize = 251;
/// The driver's promise.
const ALIGNMENT: u64 = 256;
/// Descriptors left by `--few-descriptors`: enough for one allocation and not for all.
const FEW: usize = 4;
/// Descriptors that `--few-descriptors` begins with at most.
const MANY: u64 = 256;
/// Rows of the pitched allocation.
const ROWS: usize = 10;
/// Threads that allocate and free at the same time, and how often each does.
const THREADS: usize = 4;
const ROUNDS: usize = 200;
/// Freed memory is back when all but so many bytes are.
const SLACK: usize = 8 << 20;

/// The program.
#[must_use]
pub fn run(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let (is_forking, has_few) = match arguments.next().as_deref() {
        None => (false, false),
        Some("--fork") => (true, false),
        Some("--few-descriptors") => (false, true),
        Some(_) => {
            report.say("usage", json!({ "text": "mps-memory-probe [--fork|--few-descriptors]" }));
            return ExitCode::from(2);
        }
    };
    let result = initialise().and_then(|()| Gpu::open(0)).and_then(|gpu| {
        if has_few {
            leave_few_descriptors();
        }
        work(report, gpu, is_forking)
    });
    report.end(result, json!({}))
}

/// Opens files until there are only a few descriptors left.
fn leave_few_descriptors() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((MANY, MANY));
    // Where it is refused more files are opened.
    let _unchanged = setrlimit(Resource::RLIMIT_NOFILE, MANY.min(soft), hard);
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len().saturating_sub(FEW));
    // They stay open until the process ends.
    std::mem::forget(files);
}

pub(super) fn check(call: &'static str, code: sys::CUresult) -> Result<(), GpuError> {
    match code.result() {
        Ok(()) => Ok(()),
        Err(error) => Err(GpuError { call, code: error.0 as u32, name: format!("{error:?}") }),
    }
}

pub(super) fn allocate(size: usize) -> Result<u64, GpuError> {
    let mut address = 0;
    // SAFETY: the result is a variable of ours.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, size) })?;
    Ok(address)
}

fn free(address: u64) -> sys::CUresult {
    // SAFETY: what is freed twice here is a number to the driver, which says so.
    unsafe { sys::cuMemFree_v2(address) }
}

pub(super) fn fill(address: u64, size: usize, seed: u8) -> Result<(), GpuError> {
    let bytes = filled(size, seed);
    // SAFETY: the source is as long as the copy; the driver checks the destination.
    check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), size) })
}

pub(super) fn is_filled(address: u64, size: usize, seed: u8) -> Result<bool, GpuError> {
    let mut bytes = vec![0_u8; size];
    // SAFETY: the destination is as long as the copy; the driver checks the source.
    check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, size) })?;
    Ok(bytes == filled(size, seed))
}

/// So many bytes of the pattern.
fn filled(size: usize, seed: u8) -> Vec<u8> {
    let period: Vec<u8> = (0..PERIOD).map(|at| pattern(at, seed)).collect();
    let mut bytes = period.repeat(size.div_ceil(PERIOD));
    bytes.truncate(size);
    bytes
}

fn pattern(at: usize, seed: u8) -> u8 {
    (at % PERIOD).to_le_bytes()[0].wrapping_add(seed)
}

fn free_bytes() -> Result<usize, GpuError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are variables of ours.
    check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    Ok(free)
}

/// What the driver says of the block around an address: offset from `start`, and size.
fn range(start: u64, address: u64) -> Value {
    let (mut base, mut size) = (0, 0);
    // SAFETY: both are variables of ours.
    let code = unsafe { sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address) };
    json!({ "code": code as u32, "is_start": base == start, "size": size })
}

fn attribute(attribute: sys::CUpointer_attribute, address: u64) -> u64 {
    let mut value = 0_u64;
    // SAFETY: the variable has room for the attributes asked for, which have 32 or 64 bits.
    let code = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast::<c_void>(), attribute, address) };
    if code == sys::CUresult::CUDA_SUCCESS { value } else { u64::MAX }
}

/// Start and size of the block around an address, asked for at once; whether they are so.
fn are_attributes(start: u64, size: usize) -> bool {
    use sys::CUpointer_attribute::{CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    let mut wanted = [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE];
    let (mut found_start, mut found_size) = (0_u64, 0_usize);
    let mut places = [(&raw mut found_start).cast::<c_void>(), (&raw mut found_size).cast()];
    // SAFETY: both lists have two entries, and the places have the types of these attributes.
    let code =
        unsafe { sys::cuPointerGetAttributes(2, wanted.as_mut_ptr(), places.as_mut_ptr(), start + size as u64 / 2) };
    code == sys::CUresult::CUDA_SUCCESS && (found_start, found_size) == (start, size)
}

fn work(report: Report, mut gpu: Gpu, is_forking: bool) -> Result<Value, GpuError> {
    let before = free_bytes()?;
    let seeds = 1_u8..;
    let mut blocks = Vec::new();
    for (size, seed) in SIZES.into_iter().zip(seeds) {
        let address = allocate(size)?;
        fill(address, size, seed)?;
        blocks.push((address, size, seed));
        if is_forking {
            blocks_of_a_child();
        }
    }
    let is_aligned = blocks.iter().all(|(address, ..)| address.is_multiple_of(ALIGNMENT));
    let mut sorted: Vec<_> = blocks.iter().map(|&(address, size, _)| (address, size as u64)).collect();
    sorted.sort_unstable();
    let is_apart = sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
    let ranges: Vec<Value> = blocks.iter().map(|&(start, size, _)| range(start, start + size as u64 / 2)).collect();
    let kinds: Vec<[u64; 2]> = blocks
        .iter()
        .map(|&(start, ..)| {
            use sys::CUpointer_attribute::{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
            [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL].map(|of| attribute(of, start))
        })
        .collect();
    let are_known = blocks.iter().all(|&(start, size, _)| are_attributes(start, size));

    // A kernel changes words of one block and of no other.
    let (address, size, seed) = blocks[4];
    let words = 1024;
    fill(address, size, seed)?;
    let increment = gpu.kernel("increment")?;
    gpu.launch(increment, words, &[Argument::U64(address), Argument::U32(words)])?;
    gpu.synchronize()?;
    let counted = gpu.read(address, 1)?[0].wrapping_sub(u32::from_le_bytes([0, 1, 2, 3].map(|at| pattern(at, seed))));
    fill(address, size, seed)?;

    // Every second one goes, in an order of its own, and comes again; the others keep their bytes.
    for index in [6, 0, 2, 8, 4] {
        check("cuMemFree", free(blocks[index].0))?;
    }
    let twice = free(blocks[2].0) as u32;
    let inside = free(blocks[5].0 + ALIGNMENT) as u32;
    for index in [0, 2, 4, 6, 8] {
        let (_, size, seed) = blocks[index];
        let address = allocate(size)?;
        fill(address, size, seed)?;
        blocks[index].0 = address;
    }
    let mut are_intact = true;
    for &(address, size, seed) in &blocks {
        are_intact &= is_filled(address, size, seed)?;
    }
    let nothing = allocate(0).map_or_else(|error| error.code, |_| 0);
    let too_much = allocate(free_bytes()? + (1 << 30)).map_or_else(|error| error.code, |_| 0);
    let (mut pitched, mut pitch) = (0, 0);
    // SAFETY: both are variables of ours.
    check("cuMemAllocPitch", unsafe { sys::cuMemAllocPitch_v2(&raw mut pitched, &raw mut pitch, 1000, ROWS, 4) })?;
    let is_pitched = pitch >= 1000 && pitch.is_multiple_of(4) && is_filled_rows(pitched, pitch)?;
    check("cuMemFree", free(pitched))?;
    let ordered = ordered::work(&mut gpu)?;
    let pools = pools::work()?;
    let belongs = belongs::work()?;
    report.say("alignments", belongs::alignments()?);
    let threads_failed = threads();
    for (address, ..) in blocks {
        check("cuMemFree", free(address))?;
    }
    let is_all_back = before.abs_diff(free_bytes()?) <= SLACK;
    let mapped = mapped::work()?;
    let objects = objects::work()?;
    let tables = tables::work()?;
    report.say(
        "facts",
        json!({
            "is_aligned": is_aligned, "is_apart": is_apart, "ranges": ranges, "kinds": kinds, "are_known": are_known, "counted": counted,
            "twice": twice, "inside": inside, "are_intact": are_intact, "nothing": nothing, "too_much": too_much,
            "is_pitched": is_pitched, "threads_failed": threads_failed, "is_all_back": is_all_back, "mapped": mapped, "ordered": ordered, "objects": objects, "pools": pools, "belongs": belongs,
            "tables": tables,
        }),
    );
    Ok(json!({}))
}

/// Fills rows that are so far apart and reads them back.
fn is_filled_rows(address: u64, pitch: usize) -> Result<bool, GpuError> {
    let starts: Vec<u64> = (0..ROWS as u64).map(|row| address + row * pitch as u64).collect();
    for (&start, seed) in starts.iter().zip(1..) {
        fill(start, pitch, seed)?;
    }
    let mut is_filled_all = true;
    for (&start, seed) in starts.iter().zip(1..) {
        is_filled_all &= is_filled(start, pitch, seed)?;
    }
    Ok(is_filled_all)
}

/// Threads allocate, write, read back and free at the same time; how many saw something wrong.
fn threads() -> usize {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    let _checked_by_the_threads = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
    let context = context.expose_provenance();
    let round = move |thread: usize, round: usize| -> Result<bool, GpuError> {
        let size = 1_000 * (thread + 1) + 37 * round;
        let seed = (thread * 61 + round).to_le_bytes()[0];
        let address = allocate(size)?;
        fill(address, size, seed)?;
        let is_right = is_filled(address, size, seed)?;
        check("cuMemFree", free(address))?;
        Ok(is_right)
    };
    let workers: Vec<_> = (0..THREADS)
        .map(|thread| {
            std::thread::spawn(move || {
                let context = std::ptr::with_exposed_provenance_mut(context);
                // SAFETY: the primary context is retained until the process ends.
                check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) }).is_ok()
                    && (0..ROUNDS).all(|number| round(thread, number).unwrap_or(false))
            })
        })
        .collect();
    workers.into_iter().map(std::thread::JoinHandle::join).filter(|worked| !matches!(worked, Ok(true))).count()
}

/// Forks a child that ends when it has seen whether it holds descriptors of GPU memory; ends this process if it does.
fn blocks_of_a_child() {
    // SAFETY: the child reads a folder and leaves without running anything of its parent's.
    match unsafe { nix::unistd::fork() } {
        Ok(nix::unistd::ForkResult::Child) => {
            let half = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |of| of.0 / 2);
            let numbers = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
            let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
            // The upper half of the numbers is where descriptors of kept memory are, and nothing else here.
            let held = numbers.filter(|number| *number >= half).count();
            // SAFETY: leaves the child at once.
            unsafe { libc::_exit(i32::try_from(held).unwrap_or(i32::MAX).min(1)) }
        }
        Ok(nix::unistd::ForkResult::Parent { child }) => {
            let ended = nix::sys::wait::waitpid(child, None);
            if ended != Ok(nix::sys::wait::WaitStatus::Exited(child, 0)) {
                std::process::exit(1);
            }
        }
        Err(_) => std::process::exit(1),
    }
}
