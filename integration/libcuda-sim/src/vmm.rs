//! Virtual memory management: allocations are memory files, so they live as long as any descriptor of theirs is open.
//!
//! A reserved range is a place that cannot be read and stays so; what is mapped there has its bytes elsewhere. So a place
//! may be taken out of the process's addresses under a copy of the driver that goes on using it, and another copy that
//! starts then can have the same (measured with 580.159.04: `OBSERVED.md`).
#![expect(unsafe_code, reason = "address ranges are reserved and mapped by address")]

use crate::codes::{Code, Outcome};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use sim_wire::memory_file::{MEMORY_FILE_NAME, memory_file};
use sim_wire::script::Script;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Granularity of sizes and addresses, in bytes, as on the H200.
pub(crate) const GRANULARITY: usize = 2 << 20;

/// Device memory that can be mapped and exported.
#[derive(Debug, Clone)]
pub(crate) struct Allocation {
    file: Arc<File>,
    /// Bytes.
    pub(crate) size: usize,
    /// Device ordinal.
    pub(crate) device: u32,
    /// In which ways it may be exported: `CUmemAllocationHandleType` as bits.
    pub(crate) handle_types: i32,
    /// References that the program holds; mappings hold it too.
    pub(crate) references: usize,
}

fn length(size: usize) -> Outcome<NonZeroUsize> {
    NonZeroUsize::new(size).filter(|_| size.is_multiple_of(GRANULARITY)).ok_or(Code::INVALID_VALUE)
}

fn pointer(address: usize) -> Outcome<NonNull<c_void>> {
    NonNull::new(std::ptr::with_exposed_provenance_mut(address)).ok_or(Code::INVALID_VALUE)
}

impl Allocation {
    /// New memory, zeroed.
    pub(crate) fn create(size: usize, device: u32) -> Outcome<Self> {
        let size = length(size)?.get();
        let file = memory_file(MEMORY_FILE_NAME).map_err(|_| Code::OUT_OF_MEMORY)?;
        file.set_len(size as u64).map_err(|_| Code::OUT_OF_MEMORY)?;
        Ok(Self { file: Arc::new(file), size, device, handle_types: 1, references: 1 })
    }

    /// A descriptor for the program to keep or to send.
    pub(crate) fn export(&self) -> Outcome<i32> {
        self.file.try_clone().map(IntoRawFd::into_raw_fd).map_err(|_| Code::OPERATING_SYSTEM)
    }

    /// Memory by its descriptor, which stays the program's.
    pub(crate) fn import(descriptor: i32, device: u32) -> Outcome<Self> {
        if descriptor < 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the program says that it is an open descriptor; if it is not, cloning it is an error and no more.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let file = File::from(borrowed.try_clone_to_owned().map_err(|_| Code::INVALID_VALUE)?);
        let size = file.metadata().ok().and_then(|metadata| usize::try_from(metadata.len()).ok());
        let size = length(size.ok_or(Code::INVALID_VALUE)?)?.get();
        Ok(Self { file: Arc::new(file), size, device, handle_types: 1, references: 1 })
    }

    /// Maps all of it where the kernel has room; where its bytes are.
    pub(crate) fn map(&self, size: usize) -> Outcome<usize> {
        if size != self.size {
            return Err(Code::INVALID_VALUE);
        }
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let result = unsafe { mmap(None, length(size)?, access, MapFlags::MAP_SHARED, self.file.as_fd(), 0) };
        result.map(|bytes| bytes.as_ptr().expose_provenance()).map_err(|_| Code::OUT_OF_MEMORY)
    }
}

/// Where addresses are taken from when the program has no wish (measured with 580.159.04).
const AREA: usize = 0x3_0200_0000;
/// What is not from the pool occupies multiples of this many bytes, and begins at one, wish or not (measured, as the rest).
const GRANULE: usize = 32 << 20;
/// Places that are looked at there.
const PLACES: usize = 1 << 16;
/// From this size on a range without a wish is not from the pool.
const LARGE: usize = 16 << 20;
/// From this size on one with a wish is not.
const WISHED: usize = 4 << 20;
/// Bytes of the pool that small ranges are from, at a place that differs from copy to copy. The driver's own small ranges fill
/// what is left of blocks of 32 MiB, and follow wishes when a block is begun; here no small one ever does, the harder case.
const POOL: usize = 512 << 20;

/// The pool: where it begins, and which of its granules are reserved.
#[derive(Debug)]
struct Pool {
    start: usize,
    taken: Vec<bool>,
}

fn pool() -> MutexGuard<'static, Pool> {
    static KNOWN: OnceLock<Mutex<Pool>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let room = NonZeroUsize::new(POOL + GRANULE).expect("it is not 0");
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: new memory wherever the kernel has room.
        let got = unsafe { mmap_anonymous(None, room, ProtFlags::PROT_NONE, flags) };
        let taken = vec![got.is_err(); POOL / GRANULARITY];
        let start = got.map_or(0, |got| got.as_ptr().expose_provenance().next_multiple_of(GRANULE));
        Mutex::new(Pool { start, taken })
    });
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn reserve(&mut self, size: usize, alignment: usize) -> Option<usize> {
        let count = size / GRANULARITY;
        let is_aligned = |first: &usize| (self.start + first * GRANULARITY).is_multiple_of(alignment);
        let is_free = |first: &usize| self.taken[*first..first + count].iter().all(|taken| !taken);
        let first = (0..=self.taken.len().checked_sub(count)?).filter(is_aligned).find(is_free)?;
        self.taken[first..first + count].fill(true);
        Some(self.start + first * GRANULARITY)
    }

    /// Gives a range back, if it is the pool's.
    fn release(&mut self, address: usize, size: usize) -> bool {
        let Some(first) = address.checked_sub(self.start).filter(|offset| *offset < POOL) else { return false };
        let first = first / GRANULARITY;
        self.taken[first..first + size / GRANULARITY].fill(false);
        true
    }
}

/// What was mapped when the driver started: start and end of each range.
static TAKEN: OnceLock<Vec<(usize, usize)>> = OnceLock::new();

/// Notes what is mapped: as the real driver (measured with 580.159.04), this one never gives an address that was taken
/// when it started, even if it is free by then.
pub(crate) fn note_taken() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some((number(start)?, number(end)?))
    };
    TAKEN.get_or_init(|| maps.lines().filter_map(range).collect());
}

fn is_taken(start: usize, size: NonZeroUsize) -> bool {
    TAKEN.get().is_some_and(|taken| taken.iter().any(|(from, to)| start < *to && *from < start + size.get()))
}

/// From which size on a wish is followed: 32 MiB were once not put where they were wished, on an H100 with NCCL.
fn wished() -> usize {
    static WANTED: OnceLock<Option<usize>> = OnceLock::new();
    let mebibytes = WANTED.get_or_init(|| Script::load().text("MPS_SIM_WISHED_MIB")?.parse().ok());
    mebibytes.map_or(WISHED, |mebibytes: usize| mebibytes << 20)
}

/// Ranges that this copy has reserved beside the pool, and how long they are. It goes on with them when somebody else has taken what
/// keeps others out of them out of the maps, as NVIDIA's driver does, and does not give them out again.
static RESERVED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn reserved() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reserves a range. One that is not from the pool is at `wanted` if that is free and was when the driver started, or at
/// the next granule.
pub(crate) fn reserve(size: usize, alignment: usize, wanted: usize) -> Outcome<usize> {
    let size = length(size)?;
    let alignment = alignment.max(GRANULARITY);
    if !alignment.is_power_of_two() {
        return Err(Code::INVALID_VALUE);
    }
    if size.get() < if wanted == 0 { LARGE } else { wished() }
        && let Some(place) = pool().reserve(size.get(), alignment)
    {
        return Ok(place);
    }
    let alignment = alignment.max(GRANULE);
    let span = size.get().checked_next_multiple_of(GRANULE).and_then(NonZeroUsize::new).ok_or(Code::OUT_OF_MEMORY)?;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED_NOREPLACE;
    let first = AREA.next_multiple_of(alignment);
    let wish = Some(wanted).filter(|place| *place != 0).and_then(|place| place.checked_next_multiple_of(alignment));
    let places = wish.into_iter().chain((0..PLACES).map(|step| first + step * alignment));
    let mut reserved = reserved();
    let is_free = |reserved: &BTreeMap<usize, usize>, place: usize| {
        let before = reserved.range(..place + span.get()).next_back();
        before.is_none_or(|(start, size)| start + size <= place)
    };
    for place in places.filter(|place| !is_taken(*place, span)) {
        if !is_free(&reserved, place) {
            continue;
        }
        // SAFETY: the flag keeps it from touching anything that is mapped.
        let got = unsafe { mmap_anonymous(NonZeroUsize::new(place), span, ProtFlags::PROT_NONE, flags) };
        if let Ok(got) = got {
            reserved.insert(place, span.get());
            return Ok(got.as_ptr().expose_provenance());
        }
    }
    Err(Code::OUT_OF_MEMORY)
}

/// Gives a reserved range back.
pub(crate) fn release(address: usize, size: usize) -> Outcome {
    if pool().release(address, size) {
        // A pool's range stays taken from the process.
        return empty(address, size);
    }
    reserved().remove(&address);
    // SAFETY: the caller has found the range reserved by `reserve` and nothing mapped in it.
    unsafe { munmap(pointer(address)?, size.next_multiple_of(GRANULE)) }.map_err(|_| Code::INVALID_VALUE)
}

/// Puts memory that nobody else has, zeroed, over a reserved range.
pub(crate) fn back(address: usize, size: usize) -> Outcome {
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the caller has found the range reserved by `reserve` and nothing mapped in it.
    let result = unsafe { mmap_anonymous(NonZeroUsize::new(address), length(size)?, access, flags) };
    result.map(drop).map_err(|_| Code::OUT_OF_MEMORY)
}

/// Takes the memory out of a range, which stays reserved.
pub(crate) fn empty(address: usize, size: usize) -> Outcome {
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED;
    // SAFETY: the caller has found the range reserved by `reserve`, with nothing in it that anybody uses.
    let result = unsafe { mmap_anonymous(NonZeroUsize::new(address), length(size)?, ProtFlags::PROT_NONE, flags) };
    result.map(drop).map_err(|_| Code::INVALID_VALUE)
}

/// Takes away what [`Allocation::map`] has mapped.
pub(crate) fn unmap(bytes: usize, size: usize) -> Outcome {
    // SAFETY: the caller has taken the mapping out of its tables, without which nobody finds the bytes.
    unsafe { munmap(pointer(bytes)?, size) }.map_err(|_| Code::INVALID_VALUE)
}

#[cfg(test)]
mod tests;
