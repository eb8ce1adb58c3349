//! Copies of the driver's library in one process: a private copy of its file is loaded beside the dead one, and every
//! function is looked up in it.
//!
//! The linker knows a library by its file and by the name it was opened under, so each copy is a file of its own without
//! a name in any folder, opened by a path that no other copy had. `RTLD_DEEPBIND` makes it use its own functions and the
//! C library's, and not the ones that this library exports. Making the file takes longer than anything else here, so one
//! is made in advance, by a thread that ends when it has.
//!
//! What becomes of a dead one is in [`dead`](super::dead).
#![expect(unsafe_code, reason = "loads a library")]

use std::{
    ffi::{CStr, CString, OsStr, c_int, c_void},
    fmt,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    ptr::{self, NonNull},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    cuda::{
        functions::{self, lookup::cuInit},
        library,
        resources::{self, Owner},
        second,
    },
    process::{glibc, log, settings},
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

/// Makes a file for the next copy, if there is none.
pub(super) fn make_next() {
    let is_there = next().is_some();
    if !is_there && let Ok(file) = make() {
        *next() = Some(file);
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
pub(crate) struct Copy {
    pub(super) handle: *mut c_void,
    /// From 1.
    pub(super) number: u64,
    /// What it has, if that is known.
    pub(super) owner: Option<Owner>,
}

// SAFETY: the linker's handle, which any thread may use.
unsafe impl Send for Copy {}

/// The copy that lives, but for the one that the program has loaded itself.
static LIVING: Mutex<Option<Copy>> = Mutex::new(None);
/// The program has an address in it.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// The program is given an address in the copy that lives, which is never unloaded then: by this.
pub(crate) fn is_shown(by: impl fmt::Display) {
    if !IS_SHOWN.swap(true, Ordering::AcqRel) && settings::lines_wanted() {
        let number = LIVING.lock().unwrap_or_else(PoisonError::into_inner).map_or(0, |copy| copy.number);
        log::complain(format_args!("copy {number} of the driver stays loaded for good: the program has {by}"));
    }
}

/// The copy that has lived until now, and whether the program has an address in it; `None` if it is the program's own.
pub(super) fn take_leave() -> Option<(Copy, bool)> {
    let copy = LIVING.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    Some((copy, IS_SHOWN.load(Ordering::Acquire)))
}

/// A file for a copy, and whether it was made in advance.
pub(crate) fn file() -> io::Result<(File, bool)> {
    let made = next().take();
    match made {
        Some(file) => Ok((file, true)),
        None => Ok((make()?, false)),
    }
}

/// Loads another copy.
pub(crate) fn load(file: &File) -> Result<Copy, String> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let steps = "./".repeat(usize::try_from(number).unwrap_or_default());
    let path = CString::new(format!("/proc/self/{steps}fd/{}", file.as_raw_fd())).map_err(|error| error.to_string())?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
    // SAFETY: the file is a copy of the library that the program has loaded, whose constructors have run before.
    let handle = unsafe { glibc::dlopen(path.as_ptr(), flags) };
    if !handle.is_null() {
        // SAFETY: it was just loaded, so no thread is in it.
        return Ok(Copy { handle, number, owner: unsafe { Owner::of(handle) } });
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
    noted: Option<Owner>,
}

impl Copy {
    /// Has every function found in this copy. The gate is closed and nobody is inside.
    pub(crate) fn take_over(self) -> Before {
        let (library, noted) = (library::exchange_library(self.handle), resources::note(self.owner));
        let addresses =
            functions::all().map(|function| function.exchange(|| library::find(self.handle, function.name))).collect();
        Before { addresses, library, noted }
    }

    /// Has the spare copy's functions found by threads that choose them, and what it opens noted as its own.
    pub(crate) fn is_spare(self) {
        resources::note_spare(self.owner);
        let find = |name| library::find(self.handle, name).map_or(ptr::null_mut(), NonNull::as_ptr);
        functions::all().for_each(|function| function.set_spare(find(function.name)));
    }

    /// Has every function found in this copy, which was spare until now. The gate is closed and nobody is inside.
    pub(crate) fn takes_the_place(self) -> Before {
        let (library, noted) = (library::exchange_library(self.handle), resources::note(self.owner));
        let addresses = functions::all().map(|function| function.exchange(|| function.spare())).collect();
        Before { addresses, library, noted }
    }

    /// It is spare no more.
    pub(crate) fn is_spare_no_more(self) {
        resources::note_spare(None);
        second::forget();
    }

    /// Where it lies and whose it is, for what it takes of the process ([`Owner::takes`]); `None` if nobody knows.
    pub(crate) fn place(self) -> Option<(Owner, usize)> {
        let code = library::find(self.handle, cuInit::FUNCTION.name)?;
        Some((self.owner?, code.as_ptr().addr()))
    }

    /// What it has, if that is known.
    pub(crate) fn owner(self) -> Option<Owner> {
        self.owner
    }

    /// It has everything that the one before had.
    pub(crate) fn lives(self) {
        IS_SHOWN.store(false, Ordering::Release);
        *LIVING.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
    }
}

impl Before {
    /// Has every function found in the copy of before. The gate is closed and nobody is inside.
    pub(crate) fn restore(self) {
        library::exchange_library(self.library);
        resources::note(self.noted);
        for (function, address) in functions::all().zip(self.addresses) {
            function.restore(address);
        }
    }
}
