//! The C library's functions that a program's calls to the UVM module go through. Everything that is not about it goes
//! on to the real one.

use crate::device;
use crate::real;
use crate::release::{Argument, ENABLE_EVENTS, INIT, Release, SET_THRESHOLD, TABLE};
use crate::stand_in::{self, TOOLS};
use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_ulong, c_void};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the program reads in `/proc/devices`.
const DEVICES: &str = "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  7 loop\n";

fn fail(error: c_int) -> c_int {
    // SAFETY: the C library's place for this thread's error number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is valid as long as the thread runs.
    unsafe { *place = error };
    -1
}

#[expect(clippy::disallowed_methods, reason = "a library of the lab, which is not released")]
fn devices() -> c_int {
    // SAFETY: the name ends with NUL.
    let fd = unsafe { libc::memfd_create(c"devices".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return fd;
    }
    // SAFETY: the descriptor is new.
    let mut file = unsafe { File::from_raw_fd(fd) };
    let devices = if device::is_loaded() { DEVICES.to_owned() } else { DEVICES.replace("511 nvidia-uvm\n", "") };
    match file.write_all(devices.as_bytes()).and_then(|()| file.seek(SeekFrom::Start(0))) {
        Ok(_) => file.into_raw_fd(),
        Err(_) => fail(libc::EIO),
    }
}

/// In front of `open64`, which all of Rust's standard library opens files with.
///
/// # Safety
/// As `open64`: `path` is a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    if device::directory().is_some() && !path.is_null() {
        // SAFETY: by the contract of this function.
        match unsafe { CStr::from_ptr(path) }.to_bytes() {
            b"/dev/nvidia-uvm-tools" => return device::open().unwrap_or_else(fail),
            b"/proc/devices" => return devices(),
            _ => {}
        }
    }
    real::open64(path, flags, mode)
}

/// In front of `close`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn close(fd: c_int) -> c_int {
    device::forget(fd);
    real::close(fd)
}

/// Answers a request if it is one for the module: the result, or the error number.
///
/// # Safety
/// `pointer` is what the request takes.
unsafe fn serve(fd: c_int, request: c_ulong, pointer: *mut c_void) -> Option<Result<(), c_int>> {
    let is_tools = device::is_open(fd);
    let is_table = TABLE.contains(&request) && stand_in::header(fd).is_some();
    if !is_tools && !is_table {
        return None;
    }
    let release = Release::load();
    let Some((length, status_at)) = release.shape(request).filter(|_| is_table || !TABLE.contains(&request)) else {
        return Some(Err(libc::EINVAL));
    };
    let bytes = pointer.cast::<u8>();
    // SAFETY: by the contract of this function the argument is as long as the release's structure.
    let given = unsafe { std::slice::from_raw_parts(bytes, length) }.to_vec();
    let mut argument = Argument { bytes: given, status_at };
    let status = match request {
        request if INIT.contains(&request) => device::init(fd, release, request, &mut argument),
        SET_THRESHOLD => device::set_threshold(fd, argument.number(0)),
        ENABLE_EVENTS => device::enable_events(fd, argument.wide(0)),
        _ => match device::processors(fd, release, request, &mut argument) {
            Ok(table) => {
                let place = usize::try_from(argument.wide(0)).unwrap_or(0);
                let place = std::ptr::with_exposed_provenance_mut::<[u8; 16]>(place);
                // SAFETY: the caller has a table there that is as long as the release's.
                unsafe { std::ptr::copy_nonoverlapping(table.as_ptr(), place, table.len()) };
                0
            }
            Err(status) => status,
        },
    };
    argument.put(argument.status_at, status);
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(argument.bytes.as_ptr(), bytes, length) };
    Some(Ok(()))
}

/// In front of `ioctl`.
///
/// # Safety
/// As `ioctl`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: by the contract of this function.
    match unsafe { serve(fd, request, argument) } {
        None => real::ioctl(fd, request, argument),
        Some(Ok(())) => 0,
        Some(Err(error)) => fail(error),
    }
}

/// Gives the file that `statx` was asked for the device number that it pretends to have.
///
/// # Safety
/// `path` is a C string and `status` filled by `statx`.
unsafe fn disguise(dir: c_int, path: *const c_char, status: *mut libc::statx) {
    // SAFETY: by the contract of this function.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let device = if path.is_empty() {
        if device::is_open(dir) { Some(TOOLS) } else { stand_in::device_behind(&stand_in::path_of(dir)) }
    } else {
        stand_in::device_behind(Path::new(OsStr::from_bytes(path)))
    };
    if let Some((major, minor)) = device {
        // SAFETY: by the contract of this function.
        let status = unsafe { &mut *status };
        status.stx_mode = u16::try_from(libc::S_IFCHR).expect("a file type has 16 bits") | 0o666;
        (status.stx_rdev_major, status.stx_rdev_minor) = (major, minor);
    }
}

/// In front of `syscall`, for the one call that has no wrapper in old C libraries.
///
/// # Safety
/// As `syscall`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let result = real::syscall(number, a, b, c, d, e, f);
    if number == libc::SYS_statx && result == 0 && device::directory().is_some() {
        let pointer = |argument: c_long| usize::try_from(argument).unwrap_or(0);
        let path = std::ptr::with_exposed_provenance::<c_char>(pointer(b));
        let status = std::ptr::with_exposed_provenance_mut::<libc::statx>(pointer(e));
        // SAFETY: the call has succeeded, so path and status are what it takes.
        unsafe { disguise(c_int::try_from(a).unwrap_or(-1), path, status) };
    }
    result
}
