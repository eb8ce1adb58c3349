//! Copies of the driver's library in one process: a private copy of its file is loaded beside the dead one, and every
//! function is looked up in it.
//!
//! The linker knows a library by its file and by the name it was opened under, so each copy is a file of its own without
//! a name in any folder, opened by a path that no other copy had. `RTLD_DEEPBIND` makes it use its own functions and the
//! C library's, and not the ones that this library exports. Making the file takes longer than anything else here, so one
//! is made in advance, by a thread that ends when it has.
#![expect(unsafe_code, reason = "loads a library and blocks a thread's signals")]

use std::{
    ffi::{CStr, CString, OsStr, c_int, c_void},
    fs::{File, OpenOptions},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    ptr,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
};

use crate::{
    cuda::{
        functions::{self, lookup::cuInit},
        library,
    },
    process::glibc,
};

/// The file of the copy that the program has loaded.
static ORIGINAL: OnceLock<PathBuf> = OnceLock::new();
/// A file for the next copy.
static NEXT: Mutex<Option<File>> = Mutex::new(None);

fn next() -> MutexGuard<'static, Option<File>> {
    NEXT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the file of the driver that is loaded; whether there is one.
pub(crate) fn learn() -> bool {
    let Some(address) = cuInit::FUNCTION.driver() else { return false };
    let Some(path) = library::library_of(address) else { return false };
    // The first one stays.
    let _known = ORIGINAL.set(Path::new(OsStr::from_bytes(path.to_bytes())).to_owned());
    true
}

/// Has a file for the next copy made.
pub(crate) fn prepare() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // The program's signals are for the program's threads.
    // SAFETY: the set was filled, and there is room for the other.
    let is_blocked = unsafe { libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let made = thread::Builder::new().name("mps-shim-copy".into()).spawn(|| {
        if let Ok(file) = make() {
            *next() = Some(file);
        }
    });
    // Without it the file is made when it is needed.
    drop(made);
    if is_blocked {
        // SAFETY: what was there before.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
}

/// A private copy of the driver's file: in a folder for temporary files, where its pages can be written out when memory
/// is short, or in memory where programs may not be run from there.
fn make() -> io::Result<File> {
    let original = ORIGINAL.get().ok_or(io::ErrorKind::NotFound)?;
    let folder = std::env::temp_dir();
    let on_disk = OpenOptions::new().read(true).write(true).mode(0o700).custom_flags(libc::O_TMPFILE).open(folder);
    let mut copy = match on_disk {
        Ok(file) if can_be_run(&file) => file,
        _ => in_memory()?,
    };
    io::copy(&mut File::open(original)?, &mut copy)?;
    Ok(copy)
}

fn in_memory() -> io::Result<File> {
    // SAFETY: the name is a C string. By number, since glibc has the function since 2.27 only.
    let number = unsafe { libc::syscall(libc::SYS_memfd_create, c"libcuda".as_ptr(), libc::MFD_CLOEXEC) };
    match c_int::try_from(number) {
        // SAFETY: the kernel has just made it for us.
        Ok(number) if number >= 0 => Ok(unsafe { File::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether code can be mapped from a file.
fn can_be_run(file: &File) -> bool {
    const PAGE: usize = 4096;
    if file.set_len(4096).is_err() {
        return false;
    }
    let access = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping of our own file, wherever the kernel puts it.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping just made.
    unsafe { libc::munmap(page, PAGE) };
    true
}

/// A loaded copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy(*mut c_void);

/// A file for a copy, and whether it was made in advance.
pub(crate) fn file() -> io::Result<(File, bool)> {
    let made = next().take();
    match made {
        Some(file) => Ok((file, true)),
        None => Ok((make()?, false)),
    }
}

/// Loads copy number `number`.
pub(crate) fn load(file: &File, number: u64) -> Result<Copy, String> {
    let steps = "./".repeat(usize::try_from(number).unwrap_or_default());
    let path = CString::new(format!("/proc/self/{steps}fd/{}", file.as_raw_fd())).map_err(|error| error.to_string())?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND | libc::RTLD_NODELETE;
    // SAFETY: the file is a copy of the library that the program has loaded, whose constructors have run before.
    let handle = unsafe { glibc::dlopen(path.as_ptr(), flags) };
    if !handle.is_null() {
        return Ok(Copy(handle));
    }
    // SAFETY: the last call of the linker on this thread has failed.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err("the copy cannot be loaded".to_owned());
    }
    // SAFETY: the linker gives a C string.
    Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Where the functions were found.
#[derive(Debug)]
pub(crate) struct Before {
    addresses: Vec<*mut c_void>,
    library: *mut c_void,
}

impl Copy {
    /// Has every function found in this copy. The gate is closed and nobody is inside.
    pub(crate) fn take_over(self) -> Before {
        let library = library::exchange_library(self.0);
        let addresses =
            functions::all().map(|function| function.exchange(|| library::find(self.0, function.name))).collect();
        Before { addresses, library }
    }
}

impl Before {
    /// Has every function found in the copy of before. The gate is closed and nobody is inside.
    pub(crate) fn restore(self) {
        library::exchange_library(self.library);
        for (function, address) in functions::all().zip(self.addresses) {
            function.restore(address);
        }
    }
}
