//! Where the driver's own functions are found: in which loaded library, and by whose `dlsym`.
//!
//! The library is kept loaded for good once one of its functions is known, and it is the one in which all others are
//! looked for, until another copy of it takes its place.
#![expect(unsafe_code, reason = "asks the dynamic linker")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
};

use super::{call::Bypass, functions::Function};
use crate::process::glibc;

/// The type of `dlsym`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The driver's library under the name that everyone opens it by.
const DRIVER: &CStr = c"libcuda.so.1";

/// Finds a library that is already loaded, and keeps it so for good.
const KEEP: c_int = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;

/// How the driver's file is named, whatever version follows.
const DRIVER_FILE: &[u8] = b"libcuda.so";

/// Versions under which glibc has `dlsym`: since 2.34 in libc itself, before in libdl.
const DLSYM_VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.2.5"];

/// Whether a lookup through `handle` that found `address` was one for the driver: either of them belongs to a file of
/// the driver's name. Where only the handle does, another preloaded library has put its own function in the place, and
/// ours stands before it. Where neither does, some library has a function of the same name, which asks the driver in
/// its turn or never does.
pub(crate) fn is_driver(handle: *mut c_void, address: NonNull<c_void>) -> bool {
    /// The public beginning of the linker's record of a library.
    #[repr(C)]
    struct LinkMap {
        base: usize,
        path: *const c_char,
    }
    let mut library = ptr::null::<LinkMap>();
    // SAFETY: the handle has just served a lookup, and the request writes one pointer.
    let failed = unsafe { glibc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut library).cast()) } != 0;
    let by_handle = if failed || library.is_null() {
        ptr::null()
    } else {
        // SAFETY: the record lives as long as the handle is open.
        unsafe { (*library).path }
    };
    [by_handle, file_of(address)].into_iter().filter(|path| !path.is_null()).any(|path| {
        // SAFETY: paths in the linker's records are C strings that live as long as the library is loaded.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        path.rsplit(|byte| *byte == b'/').next().is_some_and(|file| file.starts_with(DRIVER_FILE))
    })
}

/// The driver's own function for `function`, if a driver is loaded.
///
/// It is looked for in the library that another function was found in, then behind this library in the program's
/// search order, then in a `libcuda.so.1` that was opened out of that order's sight.
pub(crate) fn in_loaded_driver(function: &Function) -> Option<NonNull<c_void>> {
    let known = KEPT.load(Ordering::Acquire);
    let in_known = if known.is_null() { None } else { find(known, function.name) };
    let theirs = |address: &NonNull<c_void>| !is_ours(*address);
    in_known
        .filter(theirs)
        .or_else(|| find(libc::RTLD_NEXT, function.name).filter(theirs))
        .or_else(|| in_driver_opened_with(KEEP, function))
}

/// The driver's own function for `function`, for a program that calls it with no driver loaded.
///
/// Such a program has a function of that name itself, in a library that loads the driver when it is called, and the
/// linker has put our entry in its place. So the driver is loaded here.
pub(crate) fn in_driver_loaded_now(function: &Function) -> Option<NonNull<c_void>> {
    in_driver_opened_with(libc::RTLD_LAZY | libc::RTLD_NODELETE, function)
}

fn in_driver_opened_with(flags: c_int, function: &Function) -> Option<NonNull<c_void>> {
    // SAFETY: the name is a C string. Loading the driver runs its constructors, as the program's own `dlopen` would.
    let handle = unsafe { glibc::dlopen(DRIVER.as_ptr(), flags) };
    if handle.is_null() { None } else { find(handle, function.name).filter(|address| !is_ours(*address)) }
}

/// Where this library begins.
fn own_base() -> Option<usize> {
    static OWN: AtomicUsize = AtomicUsize::new(0);
    match OWN.load(Ordering::Relaxed) {
        0 => {
            let base = base_of(NonNull::from(&OWN).cast())?;
            OWN.store(base, Ordering::Relaxed);
            Some(base)
        }
        known => Some(known),
    }
}

/// Whether an address lies in this library, as that of each of its own functions does.
fn is_ours(address: NonNull<c_void>) -> bool {
    own_base().is_some_and(|own| base_of(address) == Some(own))
}

/// Where the library begins that the program has loaded itself; 0 as long as nobody asks for it to be remembered.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// How often another copy of the driver has taken the place of the one before.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Remembers the copy that has a function as the one that the program has loaded itself.
pub(crate) fn remember_first(address: Option<NonNull<c_void>>) {
    FIRST.store(address.and_then(base_of).unwrap_or(0), Ordering::Release);
}

/// The number of the copy of the driver that lives: 0 is the one that the program has loaded.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// The copy of this number lives from now on.
pub(crate) fn lives(generation: u64) {
    GENERATION.store(generation, Ordering::Release);
}

/// Whether an address is one of the copy that the program has loaded itself, and another copy lives now.
pub(crate) fn is_former(address: NonNull<c_void>) -> bool {
    generation() > 0 && base_of(address) == Some(FIRST.load(Ordering::Acquire))
}

/// Whether two addresses lie in one library.
pub(crate) fn is_of_the_same_library(address: NonNull<c_void>, other: NonNull<c_void>) -> bool {
    base_of(address).is_some_and(|base| base_of(other) == Some(base))
}

/// Whether a library of the driver was found, so that what is not in it is missing.
pub(crate) fn is_driver_known() -> bool {
    !KEPT.load(Ordering::Acquire).is_null()
}

/// A handle of the library that functions are looked up in, if one was found.
pub(crate) fn known() -> Option<*mut c_void> {
    Some(KEPT.load(Ordering::Acquire)).filter(|handle| !handle.is_null())
}

/// A handle of the library that the first hooked function was found in.
static KEPT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Keeps the library around `address` loaded for as long as the process lives, whatever the program closes: its
/// function will be called through our entry, which the program may keep.
pub(crate) fn keep_loaded(address: NonNull<c_void>) -> Result<(), Bypass> {
    if is_in_the_living_copy(address) {
        return Ok(());
    }
    let path = file_of(address);
    if path.is_null() {
        return Err(Bypass::NotKept);
    }
    // SAFETY: the path belongs to the library's entry in the linker's list; with these flags nothing is loaded.
    let handle = unsafe { glibc::dlopen(path, KEEP) };
    if handle.is_null() {
        return Err(Bypass::NotKept);
    }
    // The first one stays; which of two racing threads sets it makes no difference.
    let _first = KEPT.compare_exchange(ptr::null_mut(), handle, Ordering::AcqRel, Ordering::Acquire);
    Ok(())
}

/// Whether an address is in the copy of ours that lives now. That stays as long as it lives, and what is found in it is
/// found anew in the next: kept for good, it would take its place below 1 TiB for good.
fn is_in_the_living_copy(address: NonNull<c_void>) -> bool {
    let living = known().filter(|_| generation() > 0).and_then(|living| find(living, c"cuInit"));
    living.is_some_and(|of| is_of_the_same_library(of, address))
}

/// The path of the library around `address`.
pub(crate) fn library_of(address: NonNull<c_void>) -> Option<&'static CStr> {
    let path = file_of(address);
    // SAFETY: paths in the linker's records are C strings that live as long as the library is loaded, and the driver's is
    // never unloaded.
    if path.is_null() { None } else { Some(unsafe { CStr::from_ptr(path) }) }
}

/// Puts another library in the place of the one that functions are looked up in; the one before.
pub(crate) fn exchange_library(handle: *mut c_void) -> *mut c_void {
    KEPT.swap(handle, Ordering::AcqRel)
}

/// What the linker knows of the library around `address`.
fn around(address: NonNull<c_void>) -> Option<libc::Dl_info> {
    let mut library = mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` looks the address up and never reads there.
    let found = unsafe { glibc::dladdr(address.as_ptr(), library.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is a valid value, filled in by `dladdr` or not.
    let library = unsafe { library.assume_init() };
    found.then_some(library)
}

/// The path of the library around `address`, null if there is none.
fn file_of(address: NonNull<c_void>) -> *const c_char {
    around(address).map_or(ptr::null(), |library| library.dli_fname)
}

/// Where the library around `address` begins.
fn base_of(address: NonNull<c_void>) -> Option<usize> {
    around(address).map(|library| library.dli_fbase.addr())
}

/// A lookup by the real `dlsym`, with this library as its caller.
pub(crate) fn find(handle: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    let real = real_dlsym()?;
    // SAFETY: the handle is the program's or our own, the name a C string.
    NonNull::new(unsafe { real(handle, name.as_ptr()) })
}

/// The next `dlsym` after ours: glibc's, or that of another preloaded library.
pub(crate) fn real_dlsym() -> Option<Dlsym> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        real = DLSYM_VERSIONS
            .into_iter()
            // SAFETY: the strings are C strings, and `RTLD_NEXT` means the libraries after this one.
            .map(|version| unsafe { glibc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) })
            .find(|found| !found.is_null())?;
        REAL.store(real, Ordering::Relaxed);
    }
    // SAFETY: the address was found under the name of a function of this type.
    Some(unsafe { mem::transmute::<*mut c_void, Dlsym>(real) })
}
