//! A private table where it stands in the driver's library, and how its entries are replaced there.
//!
//! The entries are replaced in place and no copy is given out: cudart and the driver each compute a check value from the
//! addresses of the tables themselves (the algorithm is public in ZLUDA, `dark_api/src/lib.rs`), and a copy would fail it.
//! Most tables lie in the part of the library that the dynamic linker has made read-only after relocation, so a page is
//! made writable for the moment; it is private to the process. Two of 580.159.04 lie among the library's own variables,
//! on a page with what the dynamic linker writes when a function is called for the first time. Such a page has to stay
//! writable, so each gets back the access that it had.
#![expect(unsafe_code, reason = "writes into the driver's library")]

use std::{
    ffi::c_void,
    io, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::process::maps;

/// Bytes of an entry.
const ENTRY: usize = size_of::<*mut c_void>();
/// Most entries of a table that is believed: the longest known has 93 in 580.159.04.
pub(super) const MOST_ENTRIES: usize = 128;
/// A first word below this is the table's length in bytes and not an address: Linux maps nothing down there.
const LOWEST_ADDRESS: usize = 1 << 16;

/// A table that the driver has given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    start: *mut *mut c_void,
    /// With the length itself, where the table begins with it.
    entries: usize,
    /// Of the first entry that is a function.
    first: usize,
}

// SAFETY: addresses in a library that is never unloaded.
unsafe impl Send for Table {}

impl Table {
    /// Reads how long a table is: its length in bytes comes first, or it ends with null or all ones.
    ///
    /// `None` if it is longer than any whose entries are replaced.
    ///
    /// # Safety
    /// The driver has given it out as a private table.
    pub(super) unsafe fn at(start: *const c_void) -> Option<Self> {
        let start = start.cast_mut().cast::<*mut c_void>();
        let word = |index| {
            // SAFETY: by the contract there are words up to the length or the end mark, and no further one is read.
            unsafe { start.wrapping_add(index).read() }.addr()
        };
        let bytes = word(0);
        if (1..LOWEST_ADDRESS).contains(&bytes) {
            let entries = bytes / ENTRY;
            let is_one = bytes % ENTRY == 0 && entries <= MOST_ENTRIES;
            return is_one.then_some(Self { start, entries, first: 1 });
        }
        // Another table may follow at once, which begins with its length.
        let is_end = |index: &usize| matches!(word(*index), 0..LOWEST_ADDRESS | usize::MAX);
        let entries = (0..=MOST_ENTRIES).find(is_end)?;
        Some(Self { start, entries, first: 0 })
    }

    /// How many entries there are, with the length in front.
    pub(super) const fn entries(self) -> usize {
        self.entries
    }

    /// The numbers of its entries that are functions.
    pub(super) const fn functions(self) -> std::ops::Range<usize> {
        self.first..self.entries
    }

    /// What stands in an entry.
    pub(super) fn get(self, index: usize) -> *mut c_void {
        assert!(index < self.entries, "entries are taken from the table itself");
        // SAFETY: the entry is in the table, which stays for good.
        unsafe { AtomicPtr::from_ptr(self.start.wrapping_add(index)) }.load(Ordering::Relaxed)
    }

    /// Puts functions in the place of entries. Other threads read either the one or the other.
    ///
    /// # Errors
    /// When a page cannot be made writable; then no entry has changed.
    pub(super) fn replace(self, functions: &[(usize, *mut c_void)]) -> io::Result<()> {
        let page = page_size();
        let from = self.start.addr() & !(page - 1);
        let to = (self.start.addr() + self.entries * ENTRY).next_multiple_of(page);
        let closed = self.closed_pages(from, to)?;
        for &(start, length, how) in &closed {
            protect(start, length, how | libc::PROT_WRITE)?;
        }
        for &(index, function) in functions {
            assert!(index < self.entries, "entries are taken from the table itself");
            // SAFETY: the entry is in the table, and its page has just been made writable.
            unsafe { AtomicPtr::from_ptr(self.start.wrapping_add(index)) }.store(function, Ordering::Relaxed);
        }
        for (start, length, how) in closed {
            // Left writable, the table would still work.
            let _stays_writable = protect(start, length, how);
        }
        Ok(())
    }

    /// The parts of these pages that cannot be written: where each begins, its length, and what may be done there.
    fn closed_pages(self, from: usize, to: usize) -> io::Result<Vec<(usize, usize, libc::c_int)>> {
        let number = |address: u64| usize::try_from(address).unwrap_or(usize::MAX);
        let parts = maps::read()?.into_iter().filter_map(|range| {
            let (start, end) = (number(range.start).max(from), number(range.end).min(to));
            let how = range.protection();
            (start < end && how & libc::PROT_WRITE == 0).then_some((start, end.saturating_sub(start), how))
        });
        Ok(parts.collect())
    }
}

/// Says what may be done with pages of the driver's library.
fn protect(start: usize, length: usize, how: libc::c_int) -> io::Result<()> {
    let pages = ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: the pages hold a private table of the driver's, and what could be done there before still can.
    if unsafe { libc::mprotect(pages, length, how) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn page_size() -> usize {
    // SAFETY: asks for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use std::{ffi::c_void, ptr};

    use super::{MOST_ENTRIES, Table, page_size};
    use crate::process::maps;

    /// A page of words that cannot be written, as most of the driver's tables are.
    fn page(words: &[usize]) -> *const c_void {
        open_page(words, libc::PROT_READ)
    }

    /// A page of words of which this may be done.
    fn open_page(words: &[usize], how: libc::c_int) -> *const c_void {
        let size = page_size();
        assert!(words.len() * 8 < size);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which is left to the process's end.
        let start = unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping is long enough and nobody else has it.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), start.cast::<usize>(), words.len()) };
        // SAFETY: our own page.
        assert_eq!(unsafe { libc::mprotect(start, size, how) }, 0);
        start
    }

    fn table(words: &[usize]) -> Option<Table> {
        // SAFETY: the page holds a table and zeros.
        unsafe { Table::at(page(words)) }
    }

    #[test]
    fn a_table_with_its_length_in_front() {
        let table = table(&[24, 0x1000, 0x2000, 0x3000]).unwrap();
        assert_eq!((table.entries(), table.functions()), (3, 1..3));
        assert_eq!([1, 2].map(|index| table.get(index).addr()), [0x1000, 0x2000]);
    }

    #[test]
    fn a_table_with_an_end_mark() {
        assert_eq!(table(&[0x10_0000, 0x20_0000, 0x30_0000, 0, 0x40_0000]).unwrap().functions(), 0..3);
        assert_eq!(table(&[0x10_0000, usize::MAX, 0x40_0000]).unwrap().functions(), 0..1);
    }

    #[test]
    fn a_table_that_the_next_one_follows_at_once() {
        assert_eq!(table(&[0x10_0000, 0x20_0000, 0x18, 0x30_0000, 0x40_0000, 0]).unwrap().functions(), 0..2);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        assert_eq!(table(&[23, 0x1000, 0x2000]), None, "half an entry");
        assert_eq!(table(&[0x10_0000; MOST_ENTRIES + 1]), None, "no end");
        assert_eq!(table(&[0x1938, 0x10_0000, 0]), None, "the longest of 580.159.04");
    }

    #[test]
    fn a_page_that_could_be_written_still_can() {
        let how = libc::PROT_READ | libc::PROT_WRITE;
        let start = open_page(&[24, 0x1000, 0x2000, 7], how);
        // SAFETY: the page holds a table.
        let table = unsafe { Table::at(start) }.unwrap();
        table.replace(&[(1, ptr::without_provenance_mut(0x10))]).unwrap();
        let beside = start.cast_mut().cast::<usize>().wrapping_add(3);
        let range = maps::read().unwrap().into_iter().find(|range| range.meets(beside.addr() as u64, 1)).unwrap();
        assert_eq!(range.protection(), how, "{range:?}");
        // SAFETY: the page is the test's own.
        unsafe { beside.write(8) };
        assert_eq!(table.get(1).addr(), 0x10);
    }

    #[test]
    fn entries_are_replaced_and_the_page_is_read_only_again() {
        let table = table(&[32, 0x1000, 0x2000, 0x3000]).unwrap();
        table.replace(&[(1, ptr::without_provenance_mut(0x10)), (3, ptr::without_provenance_mut(0x30))]).unwrap();
        assert_eq!([0, 1, 2, 3].map(|index| table.get(index).addr()), [32, 0x10, 0x2000, 0x30]);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{:x}-", table.start.addr()))).unwrap();
        assert!(line.split(' ').nth(1).unwrap().starts_with("r--"), "{line}");
    }
}
