//! Device memory: ranges of this process's address space that count as mapped on a device.
//!
//! What `cuMemMap` maps is not where the program knows it: as with the real driver there is only a place among the
//! process's addresses, which cannot be read and may be taken away (`recovery-findings` 8). The bytes lie elsewhere, in
//! each copy of this library elsewhere, and whoever uses them goes through [`Ranges`].
#![expect(unsafe_code, reason = "device memory is host memory, mapped and copied by address")]

use crate::codes::{Code, Outcome};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Alignment and granularity of plain allocations, in bytes; the real driver aligns to 256 and takes 2 MiB pages.
const PAGE: usize = 4096;
/// Elements of a set that are written at once.
const AT_ONCE: usize = 1 << 16;

/// Whom a range belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// `cuMemAlloc` in this context; freed with it.
    Context(usize),
    /// `cuMemHostAlloc` in this context; freed with it.
    Host {
        /// The context's handle.
        context: usize,
        /// Flags as given.
        flags: u32,
    },
    /// A variable of a module of this context.
    Variable(usize),
    /// `cuMemHostRegister` in this context, with which it ends: memory of the program's own.
    Registered {
        /// The context's handle.
        context: usize,
    },
    /// `cuMemMap`, with whether `cuMemSetAccess` has made it accessible.
    Mapping {
        /// The allocation's handle.
        allocation: usize,
        /// May be read and written.
        is_accessible: bool,
        /// Where the bytes are.
        bytes: usize,
    },
}

impl Owner {
    /// Whether it ends with this context.
    pub(crate) fn is_of(self, handle: usize) -> bool {
        match self {
            Self::Context(context) | Self::Host { context, .. } | Self::Registered { context } => context == handle,
            Self::Variable(_) | Self::Mapping { .. } => false,
        }
    }

    /// The context that its memory is of. What a program maps itself is of none.
    pub(crate) fn context(self) -> usize {
        match self {
            Self::Context(context)
            | Self::Host { context, .. }
            | Self::Registered { context }
            | Self::Variable(context) => context,
            Self::Mapping { .. } => 0,
        }
    }
}

/// A mapped range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    /// Bytes as asked for.
    pub(crate) size: usize,
    /// Whose it is.
    pub(crate) owner: Owner,
    /// Device ordinal.
    pub(crate) device: u32,
    /// No other one has it, or had.
    pub(crate) number: u64,
}

impl Range {
    /// Another one.
    pub(crate) fn new(size: usize, owner: Owner, device: u32) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self { size, owner, device, number: LAST.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// All mapped ranges of the process, by start address.
#[derive(Debug, Default)]
pub(crate) struct Ranges(pub(crate) BTreeMap<usize, Range>);

impl Ranges {
    /// The range that holds an address.
    pub(crate) fn find(&self, address: usize) -> Option<(usize, Range)> {
        let (&start, &range) = self.0.range(..=address).next_back()?;
        (address - start < range.size).then_some((start, range))
    }

    /// Whether every byte may be accessed by a kernel. Ranges that touch are one piece of memory.
    pub(crate) fn is_accessible(&self, mut address: usize, mut length: usize) -> bool {
        while length > 0 {
            let Some((start, range)) = self.find(address) else { return false };
            if matches!(range.owner, Owner::Mapping { is_accessible: false, .. }) {
                return false;
            }
            let step = (range.size - (address - start)).min(length);
            address += step;
            length -= step;
        }
        true
    }

    /// Where the bytes of a range are, piece by piece, and how many there are of each. What is in no range of ours is the
    /// host's, and is where its address says.
    fn pieces(&self, address: usize, length: usize) -> impl Iterator<Item = (usize, usize)> {
        let end = address.saturating_add(length);
        let mut at = address;
        std::iter::from_fn(move || {
            let left = end.checked_sub(at).filter(|left| *left > 0)?;
            let (place, step) = match self.find(at) {
                Some((start, Range { size, owner: Owner::Mapping { bytes, .. }, .. })) => {
                    (bytes + (at - start), size - (at - start))
                }
                Some((start, Range { size, .. })) => (at, size - (at - start)),
                None => (at, self.0.range(at..).next().map_or(left, |(next, _)| next - at)),
            };
            let step = step.min(left);
            at += step;
            Some((place, step))
        })
    }

    /// The bytes of an accessible range.
    fn read(&self, address: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut to = bytes.as_mut_ptr().expose_provenance();
        for (from, step) in self.pieces(address, length) {
            copy(to, from, step);
            to += step;
        }
        bytes
    }

    /// Puts bytes into an accessible range.
    pub(crate) fn write(&self, address: usize, bytes: &[u8]) {
        let mut from = bytes.as_ptr().expose_provenance();
        for (to, step) in self.pieces(address, bytes.len()) {
            copy(to, from, step);
            from += step;
        }
    }

    /// Copies bytes; both sides must be accessible.
    pub(crate) fn copy(&self, destination: usize, source: usize, length: usize) {
        self.write(destination, &self.read(source, length));
    }

    /// Fills with a repeated pattern; the range must be accessible.
    pub(crate) fn fill(&self, destination: usize, pattern: &[u8], count: usize) {
        for first in (0..count).step_by(AT_ONCE) {
            self.write(destination + first * pattern.len(), &pattern.repeat(AT_ONCE.min(count - first)));
        }
    }

    /// Adds one to each of `count` words; the range must be accessible.
    pub(crate) fn increment(&self, address: usize, count: usize) {
        self.change(address, count, |_, word| word.wrapping_add(1));
    }

    /// Works on `count` words at `to` with those at `from`, all accessible: five times the word, and the other one, and a
    /// key.
    pub(crate) fn mix(&self, to: usize, from: usize, count: usize, key: u32) {
        if to == from || to.abs_diff(from) >= count * size_of::<u32>() {
            let others = self.read(from, count * size_of::<u32>());
            return self.change(to, count, |index, word| {
                word.wrapping_mul(5).wrapping_add(word_of(&others, index)).wrapping_add(key)
            });
        }
        // One after the other, since each may be another's source.
        for at in (0..count).map(|index| index * size_of::<u32>()) {
            let other = word_of(&self.read(from + at, size_of::<u32>()), 0);
            self.change(to + at, 1, |_, word| word.wrapping_mul(5).wrapping_add(other).wrapping_add(key));
        }
    }

    fn change(&self, address: usize, count: usize, change: impl Fn(usize, u32) -> u32) {
        let mut bytes = self.read(address, count * size_of::<u32>());
        for index in 0..count {
            let changed = change(index, word_of(&bytes, index)).to_ne_bytes();
            bytes[index * changed.len()..][..changed.len()].copy_from_slice(&changed);
        }
        self.write(address, &bytes);
    }

    /// New memory, zeroed.
    pub(crate) fn allocate(&mut self, size: usize, owner: Owner, device: u32) -> Outcome<usize> {
        let length = NonZeroUsize::new(size.next_multiple_of(PAGE)).ok_or(Code::INVALID_VALUE)?;
        // Host memory is shared with forked children (assumed).
        let kind = if matches!(owner, Owner::Host { .. }) { MapFlags::MAP_SHARED } else { MapFlags::MAP_PRIVATE };
        let flags = kind | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let memory = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) };
        let address = memory.map_err(|_| Code::OUT_OF_MEMORY)?.as_ptr().addr();
        self.0.insert(address, Range::new(size, owner, device));
        Ok(address)
    }

    /// Frees what [`Self::allocate`] gave; the bytes it had.
    pub(crate) fn free(&mut self, address: usize) -> Outcome<Range> {
        let range = *self.0.get(&address).ok_or(Code::INVALID_VALUE)?;
        if matches!(range.owner, Owner::Mapping { .. } | Owner::Registered { .. } | Owner::Variable(_)) {
            return Err(Code::INVALID_VALUE);
        }
        self.0.remove(&address);
        let pointer = NonNull::new(std::ptr::with_exposed_provenance_mut::<c_void>(address));
        let pointer = pointer.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the range was mapped by `allocate`, is not in the table any longer, and no kernel of its context runs.
        unsafe { munmap(pointer, range.size.next_multiple_of(PAGE)) }.map_err(|_| Code::INVALID_VALUE)?;
        Ok(range)
    }
}

/// Copies bytes; both sides must be accessible.
pub(crate) fn copy(destination: usize, source: usize, length: usize) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(destination);
    let from = std::ptr::with_exposed_provenance::<u8>(source);
    // SAFETY: the device side was found in the table, the host side is vouched for by the caller of the driver function.
    unsafe { std::ptr::copy(from, to, length) };
}

/// Fills with a repeated pattern; the range must be accessible.
pub(crate) fn fill(destination: usize, pattern: &[u8], count: usize) {
    for index in 0..count {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(destination + index * pattern.len());
        // SAFETY: the whole range was found in the table.
        unsafe { to.copy_from_nonoverlapping(pattern.as_ptr(), pattern.len()) };
    }
}

/// One of the words in a row of bytes.
fn word_of(bytes: &[u8], index: usize) -> u32 {
    let mut word = [0; size_of::<u32>()];
    word.copy_from_slice(&bytes[index * size_of::<u32>()..][..size_of::<u32>()]);
    u32::from_ne_bytes(word)
}

/// A word that somebody else writes meanwhile; it must be accessible.
pub(crate) fn read_volatile(address: usize) -> u32 {
    let word = std::ptr::with_exposed_provenance::<u32>(address);
    // SAFETY: the range was found in the table.
    unsafe { word.read_volatile() }
}

/// A word that other processes read and write too; it must be accessible, and at a multiple of its size.
pub(crate) fn word(address: usize) -> &'static AtomicU64 {
    let word = std::ptr::with_exposed_provenance::<AtomicU64>(address);
    // SAFETY: the range was found in the table, which the caller holds as long as it uses the word.
    unsafe { &*word }
}

#[cfg(test)]
mod tests;
