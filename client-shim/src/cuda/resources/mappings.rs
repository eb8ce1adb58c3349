//! What a copy has mapped.
//!
//! Pages in which something lies that the program knows by its address stay reserved when the copy goes: a variable that
//! has moved, or an object's name. Nothing else may be found there, as long as the program knows it. All else of the copy
//! is free for the next: without MPS one takes 164 GiB below 1 TiB, and is not initialised where there are less than 4
//! (measured with 580.159.04 on an H100).
//!
//! Where one copy maps, no other has anything any more: memory that is kept is mapped at the same addresses by each.

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    ptr,
    sync::{Mutex, MutexGuard},
};

use super::{Lead, PLACES, locked};

const PAGE: usize = 4096;

/// Of all copies. Whoever maps or unmaps for a copy has it, so that the order is the system's.
static MAPPINGS: Mutex<All> = Mutex::new(All::new());

/// Addresses that the program knows: where each begins, and its bytes.
pub(crate) type Known = Vec<(usize, usize)>;

/// What all copies have mapped, and what is reserved since one that had it is gone.
#[derive(Debug)]
pub(crate) struct All([Mappings; PLACES], Mappings);

impl All {
    const fn new() -> Self {
        Self([const { Mappings(BTreeMap::new()) }; PLACES], Mappings(BTreeMap::new()))
    }

    /// Nobody maps or unmaps for a copy as long as this is held.
    pub(crate) fn lock() -> MutexGuard<'static, Self> {
        locked(&MAPPINGS)
    }

    /// A copy has mapped a range.
    fn mapped(&mut self, owner: usize, start: usize, size: usize, is_of_file: bool) {
        for (number, of) in self.0.iter_mut().enumerate() {
            of.note(start, size, (number == owner).then_some(is_of_file));
        }
        self.1.note(start, size, None);
    }

    /// A range is nobody's any more.
    fn unmapped(&mut self, start: usize, size: usize) {
        self.0.iter_mut().for_each(|of| of.note(start, size, None));
        self.1.note(start, size, None);
    }

    /// Unmaps all that a copy has, and what is reserved after others, but for the pages that the program knows something
    /// of: they are reserved.
    ///
    /// # Safety
    /// As of [`unmap`].
    unsafe fn give_back(&mut self, owner: usize, known: &[(usize, usize)]) {
        let own = std::mem::take(&mut self.0[owner].0);
        let reserved = std::mem::take(&mut self.1.0);
        for (start, (end, _)) in own.into_iter().chain(reserved) {
            let mut from = start;
            for (kept, until) in pages_of(known, start, end) {
                if from < kept {
                    // SAFETY: by the contract.
                    unsafe { libc::munmap(place(from), kept - from) };
                }
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
                // SAFETY: as above.
                unsafe { libc::mmap(place(kept), until - kept, libc::PROT_NONE, flags, -1, 0) };
                self.1.note(kept, until - kept, Some(false));
                from = until;
            }
            if from < end {
                // SAFETY: as above.
                unsafe { libc::munmap(place(from), end - from) };
            }
        }
    }

    /// Puts plain memory where a copy that is dead had mapped a file; whether it lies there now.
    fn is_overlaid(&mut self, start: usize, size: usize) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is the dead copy's alone, which may read and write there as before.
        let is_overlaid = unsafe { libc::mmap(place(start), size, access, flags, -1, 0) != libc::MAP_FAILED };
        if is_overlaid {
            let noted = self.0.iter_mut().filter_map(|of| of.0.get_mut(&start));
            noted.for_each(|(_, is_of_file)| *is_of_file = false);
        }
        is_overlaid
    }

    /// What a copy has mapped, and no file: where each range begins, and its end.
    pub(super) fn of(&self, owner: usize) -> Vec<(usize, usize)> {
        let own = self.0[owner].0.iter().filter(|(_, (_, is_of_file))| !*is_of_file);
        own.map(|(start, (end, _))| (*start, *end)).collect()
    }

    /// Ranges of files that a copy has mapped: where each begins, and its end.
    #[cfg(test)]
    fn files(&self, owner: usize) -> Vec<(usize, usize)> {
        let files = self.0[owner].0.iter().filter(|(_, (_, is_of_file))| *is_of_file);
        files.map(|(start, (end, _))| (*start, *end)).collect()
    }

    /// Those of all copies.
    pub(crate) fn all_files(&self) -> impl Iterator<Item = (usize, usize)> {
        let all = self.0.iter().flat_map(|of| &of.0);
        all.filter(|(_, (_, is_of_file))| *is_of_file).map(|(start, (end, _))| (*start, *end))
    }
}

/// A range was unmapped behind the copies' backs.
pub(crate) fn is_unmapped(start: usize, size: usize) {
    All::lock().unmapped(start, size);
}

/// Puts plain memory where a copy that is dead has mapped files, but for ranges that are another copy's by now, by where
/// each begins and its bytes; how many. Others map and unmap in between, and never meanwhile.
pub(super) fn overlay_files(owner: usize, is_anothers: impl Fn((usize, usize)) -> bool) -> u32 {
    let (mut from, mut count) = (0, 0);
    loop {
        let mut all = All::lock();
        let files = all.0[owner].0.range(from..).filter(|(_, (_, is_of_file))| *is_of_file);
        let mut own =
            files.map(|(start, (end, _))| (*start, *end)).filter(|(start, end)| !is_anothers((*start, end - start)));
        let Some((start, end)) = own.next() else { return count };
        count += u32::from(all.is_overlaid(start, end - start));
        from = end;
    }
}

/// The same for one range; whether plain memory lies there now.
pub(crate) fn is_overlaid(start: usize, size: usize) -> bool {
    All::lock().is_overlaid(start, size)
}

/// Unmaps all that a copy has, but for the pages with something that the program knows: they are reserved, and so are
/// those of copies before, as long as it does.
///
/// # Safety
/// Nobody uses it.
pub(super) unsafe fn unmap(owner: usize, known: &[(usize, usize)]) {
    // SAFETY: by the contract.
    unsafe { All::lock().give_back(owner, known) };
}

/// Pages of a range in which something lies that is known, in order: where each run begins, and its end.
pub(super) fn pages_of(known: &[(usize, usize)], start: usize, end: usize) -> Vec<(usize, usize)> {
    let page_of = |address: usize| address - address % PAGE;
    let mut found: Vec<_> = known
        .iter()
        .map(|(at, size)| (*at, at.saturating_add((*size).max(1))))
        .filter(|(at, until)| *at < end && start < *until)
        .map(|(at, until)| (page_of(at).max(start), until.min(end).next_multiple_of(PAGE).min(end)))
        .collect();
    found.sort_unstable();
    found.dedup_by(|next, before| {
        let is_joined = next.0 <= before.1;
        before.1 = if is_joined { before.1.max(next.1) } else { before.1 };
        is_joined
    });
    found
}

fn place(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// Ranges that don't meet: where each begins, and its end; and whether it is of a file and no code.
#[derive(Debug)]
struct Mappings(BTreeMap<usize, (usize, bool)>);

impl Mappings {
    /// A range is mapped by the copy, of a file or not, or by somebody else from now on.
    fn note(&mut self, start: usize, size: usize, copys: Option<bool>) {
        let end = start.saturating_add(size.next_multiple_of(PAGE));
        let met: Vec<_> =
            self.0.range(..end).rev().take_while(|(_, (of, _))| *of > start).map(|(a, b)| (*a, *b)).collect();
        for (from, (to, is_of_file)) in met {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, (start, is_of_file));
            }
            if to > end {
                self.0.insert(end, (to, is_of_file));
            }
        }
        if let Some(is_of_file) = copys.filter(|_| start < end) {
            self.0.insert(start, (end, is_of_file));
        }
    }
}

unsafe extern "C" fn mmap<const OWNER: usize>(
    place: *mut c_void,
    size: usize,
    access: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    let mut mappings = All::lock();
    // SAFETY: as the caller asks.
    let found = unsafe { libc::mmap(place, size, access, flags, descriptor, offset) };
    if found != libc::MAP_FAILED {
        let is_of_file = flags & libc::MAP_ANONYMOUS == 0 && access & libc::PROT_EXEC == 0;
        mappings.mapped(OWNER, found.expose_provenance(), size, is_of_file);
    }
    found
}

unsafe extern "C" fn munmap(place: *mut c_void, size: usize) -> c_int {
    let mut mappings = All::lock();
    // SAFETY: as the caller asks.
    let failed = unsafe { libc::munmap(place, size) };
    if failed == 0 {
        mappings.unmapped(place.addr(), size);
    }
    failed
}

unsafe extern "C" fn mremap<const OWNER: usize>(
    place: *mut c_void,
    size: usize,
    next_size: usize,
    flags: c_int,
    next: *mut c_void,
) -> *mut c_void {
    let mut mappings = All::lock();
    let is_of_file = mappings.0[OWNER].0.get(&place.addr()).is_some_and(|(_, is_of_file)| *is_of_file);
    // SAFETY: as the caller asks; the last argument is looked at when the flags say so.
    let found = unsafe { libc::mremap(place, size, next_size, flags, next) };
    if found != libc::MAP_FAILED {
        mappings.unmapped(place.addr(), size);
        mappings.mapped(OWNER, found.expose_provenance(), next_size, is_of_file);
    }
    found
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> [Lead; 4] {
    [
        (c"mmap", mmap::<OWNER> as *const c_void),
        (c"mmap64", mmap::<OWNER> as *const c_void),
        (c"munmap", munmap as *const c_void),
        (c"mremap", mremap::<OWNER> as *const c_void),
    ]
}

#[cfg(test)]
mod tests;
