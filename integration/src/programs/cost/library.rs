//! A library by its file's name, and its functions by theirs.
#![expect(unsafe_code, reason = "loads a library, and takes addresses for functions")]

use crate::programs::gpu::GpuError;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol as _};
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::NonNull;

/// The public beginning of the dynamic linker's record of a library (`struct link_map`, link.h).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

/// A library that stays loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Library {
    handle: NonNull<c_void>,
    /// Its functions are those of its own table, whoever else stands in their place.
    is_own: bool,
}

fn missing(call: &'static str, name: &str) -> GpuError {
    GpuError { call, code: 0, name: format!("there is no {name}") }
}

impl Library {
    /// Loads it.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn open(name: &str) -> Result<Self, GpuError> {
        let file = CString::new(name).map_err(|_| missing("dlopen", name))?;
        // SAFETY: the name is a C string; what its constructors do is what this program is for.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        NonNull::new(handle).map(|handle| Self { handle, is_own: false }).ok_or_else(|| missing("dlopen", name))
    }

    /// The same, whose functions are found in its file's own table and not by the linker, so that no preloaded library's
    /// are.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn own(name: &str) -> Result<Self, GpuError> {
        Ok(Self { is_own: true, ..Self::open(name)? })
    }

    /// A function of it, looked up as programs do or in its own table.
    ///
    /// # Safety
    /// `F` is the type of a pointer to this function.
    ///
    /// # Errors
    /// When it has none of that name.
    pub(super) unsafe fn function<F: Copy>(self, name: &CStr) -> Result<F, GpuError> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = if self.is_own {
            self.in_its_table(name)
        } else {
            // SAFETY: the library stays loaded.
            unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) }
        };
        let found = NonNull::new(found).ok_or_else(|| missing("dlsym", &name.to_string_lossy()))?;
        // SAFETY: by the contract.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found.as_ptr()) })
    }

    /// Where its file has a function of this name; null if nowhere.
    fn in_its_table(self, name: &CStr) -> *mut c_void {
        let mut map = std::ptr::null::<LinkMap>();
        // SAFETY: the handle stays open, and the request writes one pointer.
        let failed = unsafe { libc::dlinfo(self.handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0;
        // SAFETY: null, or the linker's record, which stays.
        let Some(map) = (unsafe { map.as_ref() }).filter(|_| !failed) else { return std::ptr::null_mut() };
        // SAFETY: the linker's own C string.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(map.name) }.to_bytes());
        let found = std::fs::read(path).ok().and_then(|file| {
            let file = ElfFile64::<object::Endianness>::parse(&*file).ok()?;
            let symbol = file.dynamic_symbols().find(|symbol| symbol.name_bytes() == Ok(name.to_bytes()))?;
            symbol.is_definition().then(|| symbol.address())
        });
        let offset = found.and_then(|address| usize::try_from(address).ok());
        offset.map_or(std::ptr::null_mut(), |offset| std::ptr::with_exposed_provenance_mut(map.base + offset))
    }
}

/// `function!(library, name(types))` is the function of that name, which returns a code.
macro_rules! function {
    ($library:expr, $name:ident($($argument:ty),* $(,)?)) => {{
        type Signature = extern "C" fn($($argument),*) -> u32;
        let name = const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name ends in NUL"),
            }
        };
        // SAFETY: the types are those of the vendor's header, and what is passed are this program's own handles, and
        // addresses of what lives longer than the call.
        unsafe { $library.function::<Signature>(name) }
    }};
}
pub(super) use function;
