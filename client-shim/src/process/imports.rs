//! The functions that a loaded library has from others, led elsewhere.
//!
//! A library calls what it imports through words that the dynamic linker has filled in. Where these are, its own tables
//! say (System V ABI, AMD64 supplement: `DT_RELA`, `DT_JMPREL`); glibc has put their addresses in place of the offsets.
#![expect(unsafe_code, reason = "reads a library's tables and writes its words")]

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use super::{glibc, maps};

/// The public beginning of the linker's record of a library.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Entry,
}

/// `Elf64_Dyn`.
#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    kind: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

// Tags of entries.
const END: i64 = 0;
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const RELOCATIONS: i64 = 7;
const RELOCATIONS_SIZE: i64 = 8;
const CALLS_SIZE: i64 = 2;
const CALLS: i64 = 23;
const FINISHERS: i64 = 26;
const FINISHERS_SIZE: i64 = 28;
/// `R_X86_64_64`, `R_X86_64_GLOB_DAT`, `R_X86_64_JUMP_SLOT`.
const ADDRESSES: [u64; 3] = [1, 6, 7];

const PAGE: usize = 4096;

/// A loaded library's tables.
#[derive(Debug)]
pub(crate) struct Library {
    base: usize,
    dynamic: *const Entry,
}

impl Library {
    /// By a handle of the linker's.
    ///
    /// # Safety
    /// The handle is open, and stays so as long as this is used.
    pub(crate) unsafe fn of(handle: *mut c_void) -> Option<Self> {
        let mut map = ptr::null::<LinkMap>();
        // SAFETY: by the contract, and the request writes one pointer.
        let failed = unsafe { glibc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0;
        // SAFETY: null, or the record, which lives as long as the handle is open.
        let map = unsafe { map.as_ref() }.filter(|_| !failed)?;
        Some(Self { base: map.base, dynamic: map.dynamic })
    }

    fn entry(&self, tag: i64) -> Option<usize> {
        let mut at = self.dynamic;
        loop {
            // SAFETY: the list ends with a tag of its own.
            let entry = unsafe { at.as_ref() }?;
            match entry.tag {
                END => return None,
                found if found == tag => return Some(entry.value),
                _ => at = at.wrapping_add(1),
            }
        }
    }

    /// A list in the library: where an entry says, in bytes that another one says.
    fn list<T>(&self, start: i64, size: i64) -> &[T] {
        match (self.entry(start), self.entry(size)) {
            (Some(at), Some(size)) if at != 0 => {
                // SAFETY: the linker has read the same list.
                unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(at), size / size_of::<T>()) }
            }
            _ => &[],
        }
    }

    /// Has each of these functions, where the library imports it, called at the address beside its name; how many words
    /// were changed.
    ///
    /// # Safety
    /// What is there takes the same arguments, and no thread is in the library.
    pub(crate) unsafe fn lead(&self, functions: &[(&CStr, *const c_void)]) -> usize {
        let (Some(symbols), Some(strings)) = (self.entry(SYMBOLS), self.entry(STRINGS)) else { return 0 };
        let name = |relocation: &Relocation| {
            let number = usize::try_from(relocation.info >> 32).unwrap_or(0);
            let symbol = ptr::with_exposed_provenance::<Symbol>(symbols).wrapping_add(number);
            // SAFETY: the linker has read the same symbol.
            let offset = usize::try_from(unsafe { (*symbol).name }).unwrap_or(0);
            // SAFETY: names are strings in the library's table.
            (number != 0).then(|| unsafe { CStr::from_ptr(ptr::with_exposed_provenance(strings + offset)) })
        };
        let (calls, others) = (self.list::<Relocation>(CALLS, CALLS_SIZE), self.list(RELOCATIONS, RELOCATIONS_SIZE));
        let addresses = calls.iter().chain(others).filter(|of| ADDRESSES.contains(&(of.info & u64::from(u32::MAX))));
        let words: Vec<_> = addresses
            .filter_map(|of| {
                let name = name(of)?;
                let (_, to) = functions.iter().find(|(function, _)| *function == name)?;
                Some((self.base + of.offset, to.cast_mut()))
            })
            .collect();
        Self::write(&words)
    }

    /// Has the library do nothing when it is unloaded.
    ///
    /// # Safety
    /// Nobody needs what it would have done.
    pub(crate) unsafe fn end_in_silence(&self) {
        extern "C" fn nothing() {}
        let finishers = self.list::<usize>(FINISHERS, FINISHERS_SIZE);
        let nothing = (nothing as extern "C" fn() as *const c_void).cast_mut();
        let words: Vec<_> = finishers.iter().map(|place| (ptr::from_ref(place).addr(), nothing)).collect();
        Self::write(&words);
    }

    /// Writes words of the library, also those that the linker has made read-only; how many.
    fn write(words: &[(usize, *mut c_void)]) -> usize {
        let mapped = maps::read().unwrap_or_default();
        let is_writable = |address: usize| {
            let address = u64::try_from(address).unwrap_or(0);
            mapped.iter().any(|range| range.meets(address, 1) && range.access.starts_with("rw"))
        };
        let protect = |address: usize, access| {
            let page = ptr::with_exposed_provenance_mut(address & !(PAGE - 1));
            // SAFETY: a page of the library's data, which stays readable.
            unsafe { libc::mprotect(page, PAGE, access) == 0 }
        };
        let written = words.iter().filter(|(address, to)| {
            let was_writable = is_writable(*address);
            if !was_writable && !protect(*address, libc::PROT_READ | libc::PROT_WRITE) {
                return false;
            }
            let word = ptr::with_exposed_provenance::<AtomicPtr<c_void>>(*address);
            // SAFETY: an aligned word of the library's.
            unsafe { &*word }.store(*to, Ordering::Release);
            if !was_writable {
                protect(*address, libc::PROT_READ);
            }
            true
        });
        written.count()
    }
}
