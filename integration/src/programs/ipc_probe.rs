//! `mps-ipc-probe`: two programs share memory by handles of `cuIpcGetMemHandle`.
//!
//! ```text
//! mps-ipc-probe [--trap] [--alone] [--freed]
//! mps-ipc-probe --events [SCENE…]
//! ```
//! It allocates blocks of several sizes, fills them, gives a second program, which it starts, a handle of each, and says
//! what that has found (`peer`): whether every byte was right, whether what is opened twice is the same, and whether
//! what it wrote is there in the first one, and what the driver says of the memory that is opened. With `--trap` each of the two makes a fault of its own first, and goes on.
//! With `--freed` the first one frees its first block and has another one there, and gives handles of the second block and
//! of the one that it has freed: that one cannot be had, though what it lay in is mapped.
//! With `--alone` the second program starts when the first one has freed everything: it cannot have the memory.
//!
//! With `--events` programs share memory and an event, and do wrong, or are killed, at all times ([`scenes`]); what is
//! wrong in each scene is said, and the exit status is 0 if nothing is.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

mod opened;
mod party;
mod scenes;

use super::gpu::{Gpu, GpuError, initialise};
use super::memory_probe::{allocate, check, fill, is_filled};
use super::report::Report;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::process::{Command, ExitCode, Stdio};

/// Bytes of the blocks: two in one slab, one for itself.
const SIZES: [usize; 3] = [1_000, 70_000, (33 << 20) + 4];
/// What the first program has filled its blocks with, and what the second one fills them with.
const FIRST: u8 = 31;
const SECOND: u8 = 62;

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let arguments: Vec<String> = arguments.collect();
    match arguments.split_first() {
        Some((first, wanted)) if first == "--events" => return scenes::run(report, wanted),
        Some((first, _)) if first == "--party" => return party::run(),
        Some(_) | None => {}
    }
    let is_trapping = arguments.iter().any(|argument| argument == "--trap");
    let handles = arguments.iter().position(|argument| argument == "--open").map(|at| &arguments[at + 1..]);
    let begun = initialise().and_then(|()| Gpu::open(0));
    let result = begun.and_then(|gpu| match handles {
        Some(handles) => open(gpu, handles, is_trapping),
        None => {
            let has = |option: &str| arguments.iter().any(|argument| argument == option);
            share(gpu, is_trapping, has("--alone"), has("--freed"))
        }
    });
    report.end(result, json!({}))
}

fn failed(name: impl std::fmt::Display) -> GpuError {
    GpuError { call: "mps-ipc-probe", code: 0, name: name.to_string() }
}

/// Does wrong, and hears of it; the code.
fn trap(gpu: &mut Gpu) -> Result<u32, GpuError> {
    let kernel = gpu.kernel("trap")?;
    gpu.launch(kernel, 1, &[])?;
    Ok(gpu.synchronize().err().map_or(0, |error| error.code))
}

fn handle_of(address: u64) -> Result<sys::CUipcMemHandle, GpuError> {
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the result is a variable of ours.
    check("cuIpcGetMemHandle", unsafe { sys::cuIpcGetMemHandle(&raw mut handle, address) })?;
    Ok(handle)
}

fn opened(handle: sys::CUipcMemHandle) -> Result<u64, GpuError> {
    let mut address = 0;
    // SAFETY: the result is a variable of ours. The flag lets peers have access, which there are none of.
    check("cuIpcOpenMemHandle", unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut address, handle, 1) })?;
    Ok(address)
}

fn closed(address: u64) -> u32 {
    // SAFETY: the driver says if it was not opened.
    unsafe { sys::cuIpcCloseMemHandle(address) as u32 }
}

fn text_of(handle: sys::CUipcMemHandle) -> String {
    handle.reserved.iter().map(|byte| format!("{:02x}", byte.cast_unsigned())).collect()
}

fn parsed(text: &str) -> Result<sys::CUipcMemHandle, GpuError> {
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    for (place, digits) in handle.reserved.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(failed)?;
        *place = u8::from_str_radix(digits, 16).map_err(failed)?.cast_signed();
    }
    Ok(handle)
}

/// The first program.
fn share(mut gpu: Gpu, is_trapping: bool, is_alone: bool, has_freed: bool) -> Result<Value, GpuError> {
    let blocks = SIZES.map(allocate);
    let mut handles = Vec::new();
    for (block, size) in blocks.iter().cloned().zip(SIZES) {
        fill(block.clone()?, size, FIRST)?;
        handles.push(handle_of(block?)?);
    }
    let of_its_own = opened(handles[0]).map_or_else(|error| error.code, |_| 0);
    let trapped = if is_trapping { trap(&mut gpu)? } else { 0 };
    if is_alone {
        for block in blocks.iter().cloned() {
            // SAFETY: it is ours and not used again.
            check("cuMemFree", unsafe { sys::cuMemFree_v2(block?) })?;
        }
    }
    let mut in_its_place = None;
    if has_freed {
        // SAFETY: it is ours and not used again.
        check("cuMemFree", unsafe { sys::cuMemFree_v2(blocks[0].clone()?) })?;
        in_its_place = Some(allocate(SIZES[0])? == blocks[0].clone()?);
        handles = vec![handles[1], handles[0]];
    }
    let mut peer = Command::new(std::env::current_exe().map_err(failed)?);
    peer.args(is_trapping.then_some("--trap")).arg("--open").args(handles.into_iter().map(text_of));
    let output = peer.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).next_back();
    let mut is_written = true;
    if !is_alone && !has_freed {
        for (block, size) in blocks.into_iter().zip(SIZES) {
            is_written &= is_filled(block?, size, SECOND)?;
        }
    }
    Ok(
        json!({ "of_its_own": of_its_own, "trapped": trapped, "peer": found, "is_written": is_written, "in_its_place": in_its_place }),
    )
}

/// The second one.
fn open(mut gpu: Gpu, handles: &[String], is_trapping: bool) -> Result<Value, GpuError> {
    let handles = handles.iter().map(|text| parsed(text)).collect::<Result<Vec<_>, _>>()?;
    let mut blocks = Vec::new();
    for handle in &handles {
        blocks.push(opened(*handle)?);
    }
    let is_same = opened(handles[0])? == blocks[0];
    let told = opened::told(&blocks)?;
    let trapped = if is_trapping { trap(&mut gpu)? } else { 0 };
    let mut are_intact = true;
    for (block, size) in blocks.iter().zip(SIZES) {
        are_intact &= is_filled(*block, size, FIRST)?;
        fill(*block, size, SECOND)?;
    }
    let mut closings: Vec<u32> = blocks.iter().map(|block| closed(*block)).collect();
    let is_still_there = is_filled(blocks[0], SIZES[0], SECOND)?;
    let told_of_closed = opened::range(blocks[1]).0;
    closings.push(closed(blocks[0]));
    let once_more = closed(blocks[0]) != 0;
    Ok(json!({
        "are_intact": are_intact, "is_same": is_same, "told": told, "trapped": trapped, "closings": closings,
        "is_still_there": is_still_there, "told_of_closed": told_of_closed, "once_more_is_refused": once_more,
    }))
}
