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
    /// Where its functions are found, if not where the linker finds them.
    table: Option<Table>,
}

/// What a library's file has, whoever else stands in its functions' place.
#[derive(Debug, Clone, Copy)]
struct Table {
    /// The library's first address.
    base: usize,
    file: &'static [u8],
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
        NonNull::new(handle).map(|handle| Self { handle, table: None }).ok_or_else(|| missing("dlopen", name))
    }

    /// The same, whose functions are found in its file's own table and not by the linker, so that no preloaded library's
    /// are.
    ///
    /// # Errors
    /// When it is not there, or its file cannot be read.
    pub(super) fn own(name: &str) -> Result<Self, GpuError> {
        let library = Self::open(name)?;
        let mut map = std::ptr::null::<LinkMap>();
        // SAFETY: the handle stays open, and the request writes one pointer.
        let failed =
            unsafe { libc::dlinfo(library.handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0;
        // SAFETY: null, or the linker's record, which stays.
        let map = unsafe { map.as_ref() }.filter(|_| !failed).ok_or_else(|| missing("dlinfo", name))?;
        // SAFETY: the linker's own C string.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(map.name) }.to_bytes());
        // Once for all functions: NVIDIA's is 96 MB.
        let file = std::fs::read(path).map_err(|_| missing("read", name))?.leak();
        Ok(Self { table: Some(Table { base: map.base, file }), ..library })
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
        let found = match self.table {
            Some(table) => table.find(name),
            // SAFETY: the library stays loaded.
            None => unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) },
        };
        let found = NonNull::new(found).ok_or_else(|| missing("dlsym", &name.to_string_lossy()))?;
        // SAFETY: by the contract.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found.as_ptr()) })
    }
}

impl Table {
    /// Where there is a function of this name; null if nowhere.
    fn find(self, name: &CStr) -> *mut c_void {
        let find = || {
            let file = ElfFile64::<object::Endianness>::parse(self.file).ok()?;
            let symbol = file.dynamic_symbols().find(|symbol| symbol.name_bytes() == Ok(name.to_bytes()))?;
            symbol.is_definition().then(|| usize::try_from(symbol.address()).ok())?
        };
        find().map_or(std::ptr::null_mut(), |offset| std::ptr::with_exposed_provenance_mut(self.base + offset))
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
