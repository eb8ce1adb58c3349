//! A simulated NVIDIA management library, for machines without a GPU, and for GPUs whose modes are not to be changed.
//!
//! It is a `libnvidia-ml.so.1` with the few functions that the daemon's children call, and those of NVIDIA's device plugin
//! (`traits`). All that it knows lies in files of the folder that it was loaded from, so that programs without an
//! environment, such as the holder's child, meet the same GPUs:
//!
//! | file | lines |
//! |---|---|
//! | `gpus` | UUIDs, in the order of the indices |
//! | `UUID.mode` | the number of the GPU's compute mode; written by `nvmlDeviceSetComputeMode` |
//! | `UUID.processes` | `PID C` or `PID M+C` and, on an instance, its two numbers, as `nvidia-smi` lists them |
//! | `UUID.memory` | what the GPU has and what of it is in use, in bytes; without it the library can't tell |
//! | `UUID.name` | the product's name |
//! | `UUID.instances` | `MIG-UUID GPU-INSTANCE COMPUTE-INSTANCE` |
//! | `fail` | `FUNCTION NUMBER`: the function answers with that error |
//! | `hang` | names of functions that never return |
//! | `sets` | written here: `UUID MODE` for each mode that was set |
#![expect(unsafe_code, reason = "is a C library")]

mod traits;

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NO_PERMISSION: c_int = 4;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
/// GPU memory of every process.
const MEMORY: c_ulonglong = 541_065_216;
/// What the library says of instances where there are none.
const NO_INSTANCE: c_uint = c_uint::MAX;
/// Handles of instances begin here; GPUs' are their index and 1.
const FIRST_INSTANCE: usize = 0x1000;
/// Handles of one GPU's instances.
const INSTANCES: usize = 0x100;

/// A GPU or an instance of one, by number.
type Handle = *mut c_void;

/// `nvmlProcessInfo_v2_t`.
#[repr(C)]
#[derive(Debug)]
struct ProcessInfo {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Debug)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

fn folder() -> PathBuf {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let own = nvmlInit_v2 as *const c_void;
    // SAFETY: an address of this library is looked up, and the pointer is to a local of the right type.
    if unsafe { libc::dladdr(own, found.as_mut_ptr()) } == 0 {
        return PathBuf::new();
    }
    // SAFETY: the call has filled it.
    let name = unsafe { found.assume_init() }.dli_fname;
    // SAFETY: the loader's own text.
    let name = unsafe { CStr::from_ptr(name) };
    PathBuf::from(OsStr::from_bytes(name.to_bytes())).parent().map(PathBuf::from).unwrap_or_default()
}

fn lines(file: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(folder().join(file)).unwrap_or_default();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    text.lines().map(words).filter(|words| !words.is_empty()).collect()
}

/// Whether a function is to fail, or to hang.
fn begin(function: &str) -> Result<(), c_int> {
    if lines("hang").iter().any(|words| words[0] == function) {
        loop {
            std::thread::park();
        }
    }
    let failure = lines("fail").into_iter().find(|words| words[0] == function);
    failure.and_then(|words| words.get(1)?.parse().ok()).map_or(Ok(()), Err)
}

/// A pointer to the program's, which may be null.
fn put<T>(place: *mut T, value: T) -> Result<(), c_int> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the program gives a place for one value of the documented type.
    unsafe { place.write(value) };
    Ok(())
}

/// Text and a final zero, for which the program has room for `length` bytes, if that is enough; a null pointer is no room.
fn put_text(place: *mut c_char, length: c_uint, text: &str) -> Result<(), c_int> {
    if place.is_null() || length as usize <= text.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the program has room for `length` bytes, and this is fewer.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len()) };
    // SAFETY: the program has room for the final zero behind them.
    put(unsafe { place.add(text.len()) }, 0)
}

fn status(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(SUCCESS)
}

fn gpus() -> Vec<String> {
    lines("gpus").into_iter().map(|words| words[0].clone()).collect()
}

fn handle(number: usize) -> Handle {
    std::ptr::without_provenance_mut(number)
}

/// The GPU of a handle, and the line of its instance.
fn named(device: Handle) -> Result<(String, Option<Vec<String>>), c_int> {
    let number = device.addr();
    if number < FIRST_INSTANCE {
        let uuid = gpus().get(number.wrapping_sub(1)).cloned();
        return uuid.map(|uuid| (uuid, None)).ok_or(INVALID_ARGUMENT);
    }
    let (gpu, index) = ((number - FIRST_INSTANCE) / INSTANCES, (number - FIRST_INSTANCE) % INSTANCES);
    let uuid = gpus().get(gpu).cloned().ok_or(INVALID_ARGUMENT)?;
    let line = lines(&format!("{uuid}.instances")).get(index).cloned().ok_or(INVALID_ARGUMENT)?;
    Ok((uuid, Some(line)))
}

/// `nvmlInit_v2`.
#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_int {
    status(begin("nvmlInit_v2"))
}

/// `nvmlDeviceGetCount_v2`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    let number = c_uint::try_from(gpus().len()).unwrap_or(c_uint::MAX);
    status(begin("nvmlDeviceGetCount_v2").and_then(|()| put(count, number)))
}

/// `nvmlDeviceGetHandleByIndex_v2`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) -> c_int {
    let is_there = (index as usize) < gpus().len();
    let result = begin("nvmlDeviceGetHandleByIndex_v2").and_then(|()| match is_there {
        true => put(device, handle(index as usize + 1)),
        false => Err(INVALID_ARGUMENT),
    });
    status(result)
}

/// `nvmlDeviceGetHandleByUUID`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Handle) -> c_int {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: a C string, as documented.
    let wanted = unsafe { CStr::from_ptr(uuid) }.to_string_lossy().into_owned();
    let result = begin("nvmlDeviceGetHandleByUUID").and_then(|()| {
        for (gpu, uuid) in gpus().into_iter().enumerate() {
            if uuid == wanted {
                return put(device, handle(gpu + 1));
            }
            let instances = lines(&format!("{uuid}.instances"));
            if let Some(index) = instances.iter().position(|words| words[0] == wanted) {
                return put(device, handle(FIRST_INSTANCE + gpu * INSTANCES + index));
            }
        }
        Err(NOT_FOUND)
    });
    status(result)
}

/// `nvmlDeviceGetUUID`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: Handle, text: *mut c_char, length: c_uint) -> c_int {
    let result = begin("nvmlDeviceGetUUID").and_then(|()| named(device)).and_then(|(uuid, instance)| {
        let uuid = instance.map_or(uuid, |words| words[0].clone());
        put_text(text, length, &uuid)
    });
    status(result)
}

/// `nvmlDeviceGetComputeMode`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeMode(device: Handle, mode: *mut c_uint) -> c_int {
    let result = begin("nvmlDeviceGetComputeMode").and_then(|()| named(device)).and_then(|(uuid, _)| {
        let lines = lines(&format!("{uuid}.mode"));
        put(mode, lines.first().and_then(|words| words[0].parse().ok()).unwrap_or(0))
    });
    status(result)
}

/// `nvmlDeviceGetMemoryInfo`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: Handle, memory: *mut Memory) -> c_int {
    let result = begin("nvmlDeviceGetMemoryInfo").and_then(|()| named(device)).and_then(|(uuid, _)| {
        let lines = lines(&format!("{uuid}.memory"));
        let number = |word: usize| lines.first().and_then(|words| words.get(word)?.parse::<c_ulonglong>().ok());
        let (total, used) = number(0).zip(number(1)).ok_or(NOT_SUPPORTED)?;
        put(memory, Memory { total, free: total.saturating_sub(used), used })
    });
    status(result)
}

/// `nvmlDeviceSetComputeMode`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetComputeMode(device: Handle, mode: c_uint) -> c_int {
    let result = begin("nvmlDeviceSetComputeMode").and_then(|()| named(device)).and_then(|(uuid, _)| {
        let folder = folder();
        let new = folder.join(format!("{uuid}.mode.{}", std::process::id()));
        let sets = fs::OpenOptions::new().append(true).create(true).open(folder.join("sets"));
        sets.and_then(|mut file| writeln!(file, "{uuid} {mode}"))
            .and_then(|()| fs::write(&new, format!("{mode}\n")))
            .and_then(|()| fs::rename(&new, folder.join(format!("{uuid}.mode"))))
            .map_err(|_| NO_PERMISSION)
    });
    status(result)
}

/// `nvmlDeviceGetDeviceHandleFromMigDeviceHandle`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance: Handle, device: *mut Handle) -> c_int {
    let result = begin("nvmlDeviceGetDeviceHandleFromMigDeviceHandle").and_then(|()| match named(instance)? {
        (uuid, Some(_)) => {
            let gpu = gpus().iter().position(|known| *known == uuid).ok_or(INVALID_ARGUMENT)?;
            put(device, handle(gpu + 1))
        }
        (_, None) => Err(INVALID_ARGUMENT),
    });
    status(result)
}

/// A number of an instance's line.
fn number(instance: Handle, word: usize, place: *mut c_uint) -> Result<(), c_int> {
    let (_, line) = named(instance)?;
    let number = line.and_then(|line| line.get(word)?.parse().ok()).ok_or(INVALID_ARGUMENT)?;
    put(place, number)
}

/// `nvmlDeviceGetGpuInstanceId`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(instance: Handle, id: *mut c_uint) -> c_int {
    status(begin("nvmlDeviceGetGpuInstanceId").and_then(|()| number(instance, 1, id)))
}

/// `nvmlDeviceGetComputeInstanceId`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(instance: Handle, id: *mut c_uint) -> c_int {
    status(begin("nvmlDeviceGetComputeInstanceId").and_then(|()| number(instance, 2, id)))
}

/// The processes of a GPU whose kind fits.
fn processes(
    device: Handle,
    count: *mut c_uint,
    rows: *mut ProcessInfo,
    fits: impl Fn(&str) -> bool,
) -> Result<(), c_int> {
    let (uuid, _) = named(device)?;
    let known = lines(&format!("{uuid}.processes"));
    let known: Vec<&Vec<String>> = known.iter().filter(|words| words.get(1).is_some_and(|kind| fits(kind))).collect();
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the program says there how many rows it has room for.
    let room = unsafe { count.read() } as usize;
    put(count, c_uint::try_from(known.len()).unwrap_or(c_uint::MAX))?;
    if known.len() > room {
        return Err(INSUFFICIENT_SIZE);
    }
    for (index, words) in known.iter().enumerate() {
        let number = |word: usize| words.get(word).and_then(|word| word.parse().ok()).unwrap_or(NO_INSTANCE);
        let (gpu_instance, compute_instance) = (number(2), number(3));
        let row = ProcessInfo { pid: number(0), used_memory: MEMORY, gpu_instance, compute_instance };
        // SAFETY: the index is below the number of rows that the program has room for.
        put(unsafe { rows.add(index) }, row)?;
    }
    Ok(())
}

/// `nvmlDeviceGetComputeRunningProcesses_v3`: clients and servers of MPS and everybody else.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    rows: *mut ProcessInfo,
) -> c_int {
    let all = begin("nvmlDeviceGetComputeRunningProcesses_v3");
    status(all.and_then(|()| processes(device, count, rows, |_| true)))
}

/// `nvmlDeviceGetMPSComputeRunningProcesses_v3`: clients of MPS alone, also those of a dead server.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    rows: *mut ProcessInfo,
) -> c_int {
    let clients = begin("nvmlDeviceGetMPSComputeRunningProcesses_v3");
    status(clients.and_then(|()| processes(device, count, rows, |kind| kind == "M+C")))
}
