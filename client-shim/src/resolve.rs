//! `dlsym`, and how the driver's own functions are found.
//!
//! cudart, PyTorch, ctypes and cudarc open the driver's library by hand and ask `dlsym` for its functions, so `dlsym`
//! must be ours. It cannot be an ordinary function: the real one looks at its caller's address, and called from here
//! "the next library" would mean the one after this one, so that a program's own wrapper around some function would
//! find itself. Ours therefore saves its arguments, asks [`route`], and ends in a jump to the real `dlsym` with stack
//! and registers as they were: the real one sees the program. Only for a name in the hook table, and a handle other
//! than `RTLD_NEXT`, is there an answer of our own, and it begins with the real lookup.
#![expect(unsafe_code, reason = "replaces a function of the dynamic linker and calls it")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    guard::{self, Bypass},
    notes::{self, Event},
    process::glibc,
    table::{self, Hook},
};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The driver's library under the name that everyone opens it by.
const DRIVER: &CStr = c"libcuda.so.1";

/// Finds a library that is already loaded, and keeps it so for good.
const KEEP: c_int = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;

/// How the driver's file is named, whatever version follows.
const DRIVER_FILE: &[u8] = b"libcuda.so";

/// Versions under which glibc has `dlsym`: since 2.34 in libc itself, before in libdl.
const DLSYM_VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.2.5"];

/// What the naked `dlsym` does next, in the two registers in which C returns such a pair.
#[repr(C)]
struct Route {
    /// Where to jump with the program's arguments, or null to return `answer`.
    jump: Option<Dlsym>,
    answer: *mut c_void,
}

/// The `dlsym` that programs reach.
///
/// # Safety
/// As `dlsym(3)`.
#[cfg(not(test))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        // The compiler adds no unwind information to a naked function.
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        // The stack is aligned to 16 bytes where a function is called.
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {route}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rdx",
        "ret",
        ".cfi_endproc",
        route = sym route,
    )
}

/// Decides what becomes of a lookup.
///
/// # Safety
/// As `dlsym(3)`.
#[cfg_attr(test, expect(dead_code, reason = "the test binary keeps its own dlsym"))]
unsafe extern "C" fn route(handle: *mut c_void, name: *const c_char) -> Route {
    let jump = real_dlsym();
    let to_the_real_one = Route { jump, answer: ptr::null_mut() };
    if name.is_null() || handle == libc::RTLD_NEXT {
        return to_the_real_one;
    }
    // SAFETY: the caller passes a C string, as `dlsym` demands.
    let name = unsafe { CStr::from_ptr(name) };
    #[cfg(not(test))]
    if name == c"dlsym" {
        // Whoever asks libc's handle for `dlsym` would step around us without meaning to.
        return match find(handle, name) {
            Some(_) => Route { jump: None, answer: dlsym as *mut c_void },
            None => to_the_real_one,
        };
    }
    let Some(hook) = table::by_name(name) else {
        return to_the_real_one;
    };
    match guard::unpanicked(|| look_up(handle, hook)) {
        Some(answer) => Route { jump: None, answer },
        None => to_the_real_one,
    }
}

/// The answer to a lookup of a hooked function: null where the real `dlsym` finds nothing, our entry where it finds the
/// driver, and else what it found.
fn look_up(handle: *mut c_void, hook: &'static Hook) -> *mut c_void {
    let found = if handle == libc::RTLD_DEFAULT { None } else { find(handle, hook.name) };
    let ours = |address: NonNull<c_void>| address.as_ptr() == hook.entry();
    match found {
        // Through `RTLD_DEFAULT` or the program's own handle our entry is found first. It only counts with a driver
        // behind it.
        _ if handle == libc::RTLD_DEFAULT || found.is_some_and(ours) => match hook.driver() {
            // The last failed lookup is the one whose text `dlerror` gives to the program.
            None => return find(libc::RTLD_NEXT, hook.name).map_or(ptr::null_mut(), NonNull::as_ptr),
            Some(theirs) if !hook.is_handed_out() => return theirs.as_ptr(),
            Some(_) => {}
        },
        None => return ptr::null_mut(),
        Some(address) if !hook.is_handed_out() => return address.as_ptr(),
        Some(address) => {
            let taken = if is_driver(handle, address) { hook.learn(address) } else { Err(Bypass::NotDriver) };
            if let Err(reason) = taken {
                notes::note(hook, Event::Bypassed(reason));
                return address.as_ptr();
            }
        }
    }
    notes::note(hook, Event::FoundByDlsym);
    hook.entry()
}

/// Whether a lookup through `handle` that found `address` was one for the driver: either of them belongs to a file of
/// the driver's name. Where only the handle does, another preloaded library has put its own function in the place, and
/// ours stands before it. Where neither does, some library has a function of the same name, which asks the driver in
/// its turn or never does.
fn is_driver(handle: *mut c_void, address: NonNull<c_void>) -> bool {
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

/// The driver's own function for `hook`, if a driver is loaded.
///
/// It is looked for in the library that another function was found in, then behind this library in the program's
/// search order, then in a `libcuda.so.1` that was opened out of that order's sight.
pub(crate) fn in_loaded_driver(hook: &Hook) -> Option<NonNull<c_void>> {
    let known = KEPT.load(Ordering::Acquire);
    let in_known = if known.is_null() { None } else { find(known, hook.name) };
    let theirs = |address: &NonNull<c_void>| address.as_ptr() != hook.entry();
    in_known
        .filter(theirs)
        .or_else(|| find(libc::RTLD_NEXT, hook.name).filter(theirs))
        .or_else(|| in_driver_opened_with(KEEP, hook))
}

/// The driver's own function for `hook`, for a program that calls it with no driver loaded.
///
/// Such a program has a function of that name itself, in a library that loads the driver when it is called, and the
/// linker has put our entry in its place. So the driver is loaded here.
pub(crate) fn in_driver_loaded_now(hook: &Hook) -> Option<NonNull<c_void>> {
    in_driver_opened_with(libc::RTLD_LAZY | libc::RTLD_NODELETE, hook)
}

fn in_driver_opened_with(flags: c_int, hook: &Hook) -> Option<NonNull<c_void>> {
    // SAFETY: the name is a C string. Loading the driver runs its constructors, as the program's own `dlopen` would.
    let handle = unsafe { glibc::dlopen(DRIVER.as_ptr(), flags) };
    if handle.is_null() { None } else { find(handle, hook.name).filter(|address| address.as_ptr() != hook.entry()) }
}

/// Whether a library of the driver was found, so that what is not in it is missing.
pub(crate) fn is_driver_known() -> bool {
    !KEPT.load(Ordering::Acquire).is_null()
}

/// A handle of the library that the first hooked function was found in.
static KEPT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Keeps the library around `address` loaded for as long as the process lives, whatever the program closes: its
/// function will be called through our entry, which the program may keep.
pub(crate) fn keep_loaded(address: NonNull<c_void>) -> Result<(), Bypass> {
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

/// The path of the library around `address`, null if there is none.
fn file_of(address: NonNull<c_void>) -> *const c_char {
    let mut library = mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` looks the address up and never reads there.
    let found = unsafe { glibc::dladdr(address.as_ptr(), library.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is a valid value, filled in by `dladdr` or not.
    let path = unsafe { library.assume_init() }.dli_fname;
    if found { path } else { ptr::null() }
}

/// A lookup by the real `dlsym`, with this library as its caller.
pub(crate) fn find(handle: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    let real = real_dlsym()?;
    // SAFETY: the handle is the program's or our own, the name a C string.
    NonNull::new(unsafe { real(handle, name.as_ptr()) })
}

/// The next `dlsym` after ours: glibc's, or that of another preloaded library.
fn real_dlsym() -> Option<Dlsym> {
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
