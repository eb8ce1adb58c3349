//! The process's address space, as `/proc/self/maps` shows it.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
};

const PAGE: u64 = 4096;

/// A mapped range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    /// First address.
    pub(crate) start: u64,
    /// Behind the last one.
    pub(crate) end: u64,
    /// Such as `rw-p`.
    pub(crate) access: String,
    /// The rest of the line, from the offset on: offset, device, inode, path.
    pub(crate) rest: String,
}

impl Range {
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (access, rest) = rest.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { start: number(start)?, end: number(end)?, access: access.to_owned(), rest: rest.to_owned() })
    }

    /// The path, empty for anonymous memory.
    pub(crate) fn path(&self) -> &str {
        self.rest.splitn(4, ' ').nth(3).unwrap_or_default().trim_start()
    }

    /// Its access as `mprotect` takes it.
    pub(crate) fn protection(&self) -> libc::c_int {
        let bits = [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)];
        let given = bits.into_iter().filter(|(letter, _)| self.access.contains(*letter));
        given.fold(libc::PROT_NONE, |all, (_, bit)| all | bit)
    }

    /// Whether it shares an address with another range.
    pub(crate) fn meets(&self, base: u64, size: u64) -> bool {
        self.start < base.saturating_add(size) && base < self.end
    }
}

/// All of it.
///
/// # Errors
/// The system's.
pub(crate) fn read() -> io::Result<Vec<Range>> {
    Ok(fs::read_to_string("/proc/self/maps")?.lines().filter_map(Range::parse).collect())
}

/// What of an extent, from its first address to the one behind its last, is mapped by these ranges, which are in order as the
/// system shows them.
pub(crate) fn within(ranges: &[Range], (start, end): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let first = ranges.partition_point(|range| range.end <= start);
    let there = ranges[first..].iter().take_while(move |range| range.start < end);
    there.map(move |range| (range.start.max(start), range.end.min(end)))
}

/// Bytes of these ranges, each by its first address and the one behind its last, that are in memory or were written out, as
/// `/proc/self/pagemap` says.
///
/// # Errors
/// The system's.
pub(crate) fn resident(ranges: impl IntoIterator<Item = (u64, u64)>) -> io::Result<u64> {
    const ENTRY: usize = size_of::<u64>();
    const IN_MEMORY: u64 = 1 << 63;
    const WRITTEN_OUT: u64 = 1 << 62;
    let pages = File::open("/proc/self/pagemap")?;
    let mut entries = vec![0; 4096 * ENTRY];
    let mut found = 0;
    for (start, end) in ranges {
        let (mut at, last) = (start / PAGE, end.div_ceil(PAGE));
        while at < last {
            let wanted = usize::try_from(last - at).unwrap_or(usize::MAX).saturating_mul(ENTRY).min(entries.len());
            let read = pages.read_at(&mut entries[..wanted], at * ENTRY as u64)?;
            if read < ENTRY {
                break;
            }
            let (whole, _) = entries[..read].as_chunks::<ENTRY>();
            let is_there = |entry: &&[u8; ENTRY]| u64::from_ne_bytes(**entry) & (IN_MEMORY | WRITTEN_OUT) != 0;
            found += whole.iter().filter(is_there).count() as u64;
            at += whole.len() as u64;
        }
    }
    Ok(found * PAGE)
}

/// Those of the addresses that lie in code; `None` if nobody knows.
pub(crate) fn functions_of(addresses: impl Iterator<Item = usize>) -> Option<BTreeSet<usize>> {
    let code: Vec<_> = read().ok()?.into_iter().filter(|range| range.access.contains('x')).collect();
    let is_code = |address: &usize| code.iter().any(|range| range.meets(u64::try_from(*address).unwrap_or(0), 1));
    Some(addresses.filter(is_code).collect())
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "maps memory of its own")]

    use super::{PAGE, Range, resident, within};

    #[test]
    fn lines_are_read() {
        let line = "7f12000-7f14000 rw-s 00001000 00:05 1042                       /dev/nvidia-uvm";
        let range = Range::parse(line).unwrap();
        assert_eq!((range.start, range.end, range.path()), (0x7f1_2000, 0x7f1_4000, "/dev/nvidia-uvm"));
        assert!(range.meets(0x7f1_3000, 1) && !range.meets(0x7f1_4000, 1));
        let anonymous = Range::parse("700000000000-700000200000 ---p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.path(), anonymous.access.as_str()), ("", "---p"));
        assert_eq!((range.protection(), anonymous.protection()), (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_NONE));
        assert!(!super::read().unwrap().is_empty());
    }

    #[test]
    fn of_an_extent_what_is_mapped_is_found() {
        let range = |start, end| Range { start, end, access: String::new(), rest: String::new() };
        let ranges = [range(10, 20), range(20, 30), range(40, 50), range(60, 70)];
        let found = |start, end| within(&ranges, (start, end)).collect::<Vec<_>>();
        assert_eq!(found(15, 45), [(15, 20), (20, 30), (40, 45)]);
        assert_eq!(found(30, 40), []);
        assert_eq!(found(0, 10), []);
        assert_eq!(found(20, 21), [(20, 21)]);
        assert_eq!(found(0, 100), [(10, 20), (20, 30), (40, 50), (60, 70)]);
        assert_eq!(found(70, 90), []);
    }

    #[test]
    fn pages_that_were_written_are_in_memory_and_those_that_were_not_are_not() {
        let size = 16 * usize::try_from(PAGE).unwrap();
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
        assert_ne!(place, libc::MAP_FAILED);
        // One huge page would be all of it.
        // SAFETY: of this mapping alone.
        unsafe { libc::madvise(place, size, libc::MADV_NOHUGEPAGE) };
        for page in [0, 5, 15] {
            // SAFETY: within the mapping, which nobody else has.
            unsafe { place.cast::<u8>().wrapping_add(page * 4096).write(1) };
        }
        let (start, page) = (place.addr() as u64, PAGE);
        assert_eq!(resident([(start, start + size as u64)]).unwrap(), 3 * page);
        assert_eq!(resident([(start, start + page), (start + 5 * page, start + 7 * page)]).unwrap(), 2 * page);
        assert_eq!(resident([]).unwrap(), 0);
        // SAFETY: this test's own.
        unsafe { libc::munmap(place, size) };
    }
}
