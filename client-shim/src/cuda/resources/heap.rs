//! A copy's own heap.
//!
//! All heaps lie in one range of addresses, of which each takes the next piece, and no piece is given out twice: a handle
//! is the address of an object in such a heap, and the program may know a handle of a dead copy for ever
//! ([`names`](crate::cuda::names)). Addresses without pages cost nothing.
//!
//! What the C library has allocated for a copy (`strdup`) is freed by the C library.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use dlmalloc::{Allocator, Dlmalloc};

use super::{Lead, RESOURCES, locked, mappings::pages_of};

/// Bytes of the range, the first that can be had: a process may be limited.
const ROOMS: [usize; 3] = [1 << 42, 1 << 38, 1 << 34];
/// Bytes of a piece, at least.
const PIECE: usize = 1 << 20;
const PAGE: usize = 4096;

/// The range for all heaps.
struct Room {
    base: usize,
    size: usize,
    used: AtomicUsize,
}

fn room() -> Option<&'static Room> {
    static ROOM: OnceLock<Option<Room>> = OnceLock::new();
    let reserved = |size: &usize| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, wherever the kernel puts it.
        let place = unsafe { libc::mmap(ptr::null_mut(), *size, libc::PROT_NONE, flags, -1, 0) };
        (place != libc::MAP_FAILED).then(|| Room { base: place.expose_provenance(), size: *size, used: 0.into() })
    };
    ROOM.get_or_init(|| ROOMS.iter().find_map(reserved)).as_ref()
}

/// Whether an address is in a heap of a copy.
fn is_in_room(address: *mut c_void) -> bool {
    is_in_a_heap(address.addr())
}

/// The same of a number.
pub(crate) fn is_in_a_heap(address: usize) -> bool {
    room().is_some_and(|room| address.wrapping_sub(room.base) < room.size)
}

/// Where a heap has its pages from.
struct Pieces {
    room: &'static Room,
    taken: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: each piece is given out once.
unsafe impl Allocator for Pieces {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(PIECE);
        let offset = self.room.used.fetch_add(size, Ordering::AcqRel);
        if offset.saturating_add(size) > self.room.size {
            return (ptr::null_mut(), 0, 0);
        }
        let place = ptr::with_exposed_provenance_mut::<u8>(self.room.base + offset);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a part of the range that nobody else has.
        if unsafe { libc::mprotect(place.cast(), size, access) } != 0 {
            return (ptr::null_mut(), 0, 0);
        }
        locked(&self.taken).push((place.addr(), size));
        (place, size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// One copy's.
pub(super) struct Heap(Dlmalloc<Pieces>);

impl Heap {
    /// An empty one; `None` if there are no addresses.
    pub(super) fn new() -> Option<Self> {
        Some(Self(Dlmalloc::new_with_allocator(Pieces { room: room()?, taken: Mutex::new(Vec::new()) })))
    }

    /// Gives all pages back, but for those in which something lies that is `staying`, and keeps the addresses.
    ///
    /// # Safety
    /// Nobody uses anything else that it has given out.
    pub(super) unsafe fn free(self, staying: &[(usize, usize)]) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        for (base, size) in locked(&self.0.allocator().taken).drain(..) {
            let (mut from, end) = (base, base + size);
            for (stays, until) in pages_of(staying, base, end).into_iter().chain([(end, end)]) {
                if from < stays {
                    // SAFETY: the heap's own, which nobody uses.
                    unsafe {
                        libc::mmap(ptr::with_exposed_provenance_mut(from), stays - from, libc::PROT_NONE, flags, -1, 0)
                    };
                }
                from = until;
            }
        }
    }
}

/// Who hears of each address that a copy gives back to its heap, before it may be given out again.
static WATCHER: OnceLock<fn(usize)> = OnceLock::new();

/// Has somebody hear of that from now on. It is called within calls of the driver, by any thread.
pub(crate) fn watch_freed(watcher: fn(usize)) {
    let _the_first_one_stays = WATCHER.set(watcher);
}

/// The pieces of a copy's heap: where each begins, and its bytes.
pub(super) fn pieces(owner: usize) -> Vec<(usize, usize)> {
    let heap = locked(&RESOURCES[owner].heap);
    heap.as_ref().map_or_else(Vec::new, |heap| locked(&heap.0.allocator().taken).clone())
}

/// Works on a copy's heap; `None` if it has none any more.
fn with<R>(owner: usize, work: impl FnOnce(&mut Dlmalloc<Pieces>) -> R) -> Option<R> {
    locked(&RESOURCES[owner].heap).as_mut().map(|heap| work(&mut heap.0))
}

fn or_none(found: Option<*mut u8>) -> *mut c_void {
    let found = found.unwrap_or(ptr::null_mut()).cast::<c_void>();
    if found.is_null() {
        nix::errno::Errno::ENOMEM.set();
    }
    found
}

unsafe extern "C" fn malloc<const OWNER: usize>(size: usize) -> *mut c_void {
    // SAFETY: any size is sound.
    or_none(with(OWNER, |heap| unsafe { heap.c_malloc(size) }))
}

unsafe extern "C" fn calloc<const OWNER: usize>(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else { return or_none(None) };
    // SAFETY: 16 is a power of two.
    or_none(with(OWNER, |heap| unsafe { heap.calloc(bytes, 16) }))
}

unsafe extern "C" fn free<const OWNER: usize>(place: *mut c_void) {
    if is_in_room(place) {
        if let Some(watcher) = WATCHER.get() {
            watcher(place.addr());
        }
        // SAFETY: the copy has it from its heap.
        with(OWNER, |heap| unsafe { heap.c_free(place.cast()) });
    } else {
        // SAFETY: the copy has it from the C library.
        unsafe { libc::free(place) };
    }
}

unsafe extern "C" fn realloc<const OWNER: usize>(place: *mut c_void, size: usize) -> *mut c_void {
    match () {
        // SAFETY: any size is sound.
        () if place.is_null() => unsafe { malloc::<OWNER>(size) },
        // SAFETY: the copy has it from its heap.
        () if is_in_room(place) => or_none(with(OWNER, |heap| unsafe { heap.c_realloc(place.cast(), size) })),
        // SAFETY: the copy has it from the C library.
        () => unsafe { libc::realloc(place, size) },
    }
}

unsafe extern "C" fn memalign<const OWNER: usize>(alignment: usize, size: usize) -> *mut c_void {
    let alignment = alignment.max(16).next_power_of_two();
    // SAFETY: the alignment is a power of two.
    or_none(with(OWNER, |heap| unsafe { heap.c_memalign(alignment, size) }))
}

unsafe extern "C" fn posix_memalign<const OWNER: usize>(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    // SAFETY: the alignment is a power of two.
    let found = unsafe { memalign::<OWNER>(alignment, size) };
    if found.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller gives a place for the result.
    unsafe { place.write(found) };
    0
}

unsafe extern "C" fn valloc<const OWNER: usize>(size: usize) -> *mut c_void {
    // SAFETY: a page is a power of two.
    unsafe { memalign::<OWNER>(PAGE, size) }
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> [Lead; 8] {
    [
        (c"malloc", malloc::<OWNER> as *const c_void),
        (c"calloc", calloc::<OWNER> as *const c_void),
        (c"free", free::<OWNER> as *const c_void),
        (c"realloc", realloc::<OWNER> as *const c_void),
        (c"memalign", memalign::<OWNER> as *const c_void),
        (c"aligned_alloc", memalign::<OWNER> as *const c_void),
        (c"posix_memalign", posix_memalign::<OWNER> as *const c_void),
        (c"valloc", valloc::<OWNER> as *const c_void),
    ]
}
