//! The tools device: what `uvm_tools.c` keeps for each open descriptor, and the thread that brings the faults.

use crate::real;
use crate::release::{Argument, Release, Version};
use crate::stand_in;
use sim_wire::hardware;
use sim_wire::script::Script;
use sim_wire::tools::{DIRECTORY, Event, Listener};
use sim_wire::uvm::{Header, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// `NV_STATUS` values.
mod status {
    pub(super) const OK: u32 = 0;
    pub(super) const ILLEGAL_ACTION: u32 = 0x16;
    pub(super) const INSUFFICIENT_PERMISSIONS: u32 = 0x1b;
    pub(super) const INVALID_ADDRESS: u32 = 0x1e;
    pub(super) const INVALID_ARGUMENT: u32 = 0x1f;
}

/// `UvmEventTypeFatalFault`.
const FATAL_FAULT: u8 = 6;
/// Bits of the event types that there are: 1 to 14.
const EVENT_TYPES: u64 = 0x7ffe;
/// Offsets in the control page.
const GET: u64 = 0;
const GET_BEHIND: u64 = 4;
const PUT_AHEAD: u64 = 8;
const PUT_BEHIND: u64 = 12;
const DROPPED: u64 = 16;
/// What addresses must be aligned to.
const PAGE: u64 = 4096;

/// A tracker.
struct Tracker {
    space: u64,
    version: Version,
    entries: u32,
    queue: u64,
    control: u64,
    threshold: u32,
    events: u64,
    /// The copy of the client's open file that the kernel keeps.
    file: RawFd,
}

/// What belongs to an open tools descriptor.
type Slot = Option<Tracker>;

/// Descriptors beyond this are not to be had here.
const MOST_DESCRIPTORS: usize = 4096;

static OPEN: Mutex<BTreeMap<RawFd, Slot>> = Mutex::new(BTreeMap::new());
/// Which descriptors are in [`OPEN`]: asked at every close of the program, also in a child between fork and exec, where
/// the lock may be held by a thread that the child lacks.
static IS_OPEN: [AtomicBool; MOST_DESCRIPTORS] = [const { AtomicBool::new(false) }; MOST_DESCRIPTORS];
static IS_LISTENING: Mutex<bool> = Mutex::new(false);
/// The address spaces of which the second descriptor was refused.
static REFUSED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn open_slots() -> MutexGuard<'static, BTreeMap<RawFd, Slot>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where faults are told, if the simulation is on.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Whether the module is loaded: always, unless `MPS_SIM_UVM_MODULE` names a file that is there when it is.
pub(crate) fn is_loaded() -> bool {
    std::env::var_os("MPS_SIM_UVM_MODULE").is_none_or(|name| PathBuf::from(name).exists())
}

/// Opens the device: an event counter, which becomes readable when the queue does. Gives the error number instead.
pub(crate) fn open() -> Result<RawFd, i32> {
    if !is_loaded() {
        return Err(libc::ENOENT);
    }
    match std::env::var("MPS_SIM_UVM_TOOLS").as_deref() {
        Ok("missing") => return Err(libc::ENOENT),
        Ok("forbidden") => return Err(libc::EACCES),
        _ => {}
    }
    // SAFETY: two integers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(libc::EMFILE);
    }
    let Some(mark) = mark_of(fd) else {
        real::close(fd);
        return Err(libc::EMFILE);
    };
    open_slots().insert(fd, None);
    mark.store(true, Ordering::SeqCst);
    Ok(fd)
}

/// Whether this is an open tools descriptor.
pub(crate) fn is_open(fd: RawFd) -> bool {
    mark_of(fd).is_some_and(|mark| mark.load(Ordering::SeqCst))
}

fn mark_of(fd: RawFd) -> Option<&'static AtomicBool> {
    IS_OPEN.get(usize::try_from(fd).ok()?)
}

/// The descriptor is about to be closed: its queue is not written any more when this returns.
pub(crate) fn forget(fd: RawFd) {
    if !mark_of(fd).is_some_and(|mark| mark.swap(false, Ordering::SeqCst)) {
        return;
    }
    let file = open_slots().remove(&fd).flatten().map(|tracker| tracker.file);
    if let Some(file) = file {
        real::close(file);
    }
}

/// Takes as long as the variable says: the driver answers under locks that a busy client may hold.
fn take_time(variable: &str) {
    let time = std::env::var(variable).ok().and_then(|text| text.parse().ok()).map(Duration::from_millis);
    std::thread::park_timeout(time.unwrap_or_default());
}

/// With `MPS_SIM_UVM_STAY_AGAIN`, does not return to who looks for the second time at what goes with an address space that
/// is watched already: the client holds a lock that the driver waits for.
fn stay_if_looked_at_again(header: &Header) {
    if header.kind != Kind::MM || std::env::var_os("MPS_SIM_UVM_STAY_AGAIN").is_none() {
        return;
    }
    let is_watched = open_slots().values().flatten().any(|tracker| tracker.space == header.space);
    let is_first = REFUSED.lock().unwrap_or_else(PoisonError::into_inner).insert(header.space);
    if is_watched && !is_first {
        loop {
            std::thread::park();
        }
    }
}

/// `UVM_TOOLS_INIT_EVENT_TRACKER`.
pub(crate) fn init(fd: RawFd, release: Release, request: u64, argument: &mut Argument) -> u32 {
    let Some(version) = release.tracker_version(request, argument) else { return status::INVALID_ARGUMENT };
    let client = argument.number(44).cast_signed();
    let Some(header) = stand_in::header(client) else { return status::INSUFFICIENT_PERMISSIONS };
    if header.kind != Kind::SPACE {
        stay_if_looked_at_again(&header);
        return status::ILLEGAL_ACTION;
    }
    let (queue, count, control) = (argument.wide(0), argument.wide(8), argument.wide(16));
    let entries = match u32::try_from(count) {
        Ok(entries) if entries.is_power_of_two() && entries >= 2 => entries,
        _ => return status::INVALID_ARGUMENT,
    };
    if [queue, control].iter().any(|address| *address == 0 || !address.is_multiple_of(PAGE)) {
        return status::INVALID_ADDRESS;
    }
    if !listen() {
        return status::INVALID_ARGUMENT;
    }
    take_time("MPS_SIM_UVM_INIT_MS");
    let mut slots = open_slots();
    let Some(slot @ None) = slots.get_mut(&fd) else { return status::INVALID_ARGUMENT };
    // SAFETY: three integers.
    let file = unsafe { libc::fcntl(client, libc::F_DUPFD_CLOEXEC, 0) };
    if file < 0 {
        return status::INSUFFICIENT_PERMISSIONS;
    }
    let threshold = entries / 2;
    *slot = Some(Tracker { space: header.space, version, entries, queue, control, threshold, events: 0, file });
    status::OK
}

/// `UVM_TOOLS_SET_NOTIFICATION_THRESHOLD`.
pub(crate) fn set_threshold(fd: RawFd, threshold: u32) -> u32 {
    let mut slots = open_slots();
    let Some(Some(tracker)) = slots.get_mut(&fd) else { return status::INVALID_ARGUMENT };
    tracker.threshold = threshold;
    tracker.wake(fd);
    status::OK
}

/// `UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS`.
pub(crate) fn enable_events(fd: RawFd, events: u64) -> u32 {
    let mut slots = open_slots();
    let Some(Some(tracker)) = slots.get_mut(&fd) else { return status::INVALID_ARGUMENT };
    if events & !EVENT_TYPES != 0 {
        return status::INVALID_ARGUMENT;
    }
    tracker.events |= events;
    status::OK
}

/// `UVM_TOOLS_GET_PROCESSOR_UUID_TABLE`; the table, to be written to the address at the argument's start.
pub(crate) fn processors(
    fd: RawFd,
    release: Release,
    request: u64,
    argument: &mut Argument,
) -> Result<Vec<[u8; 16]>, u32> {
    let header = stand_in::header(fd).filter(|header| header.kind == Kind::SPACE).ok_or(status::ILLEGAL_ACTION)?;
    take_time("MPS_SIM_UVM_TABLE_MS");
    let (_, places) = release.table_version(request, argument).ok_or(status::INVALID_ARGUMENT)?;
    let mut table = vec![[0; 16]; places];
    // The CPU has a UUID too.
    table[0] = [0xc0; 16];
    for device in hardware::machine(&Script::load()) {
        let has_it = 1_u64.checked_shl(device.ordinal).is_some_and(|bit| header.devices & bit != 0);
        let place = usize::try_from(device.ordinal).ok().and_then(|ordinal| table.get_mut(ordinal + 1));
        if let (true, Some(place)) = (has_it, place) {
            *place = device.uvm_uuid();
        }
    }
    Ok(table)
}

/// Starts the thread that brings the faults, once.
fn listen() -> bool {
    let mut is_listening = IS_LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_listening {
        let Some(listener) = directory().and_then(|directory| Listener::bind(&directory).ok()) else { return false };
        let bring = move || {
            loop {
                // A datagram that is no event is nobody's.
                match listener.next(deliver) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {}
                    Err(_) => return,
                }
            }
        };
        *is_listening = std::thread::Builder::new().name("uvm-sim".into()).spawn(bring).is_ok();
    }
    *is_listening
}

fn deliver(event: &Event) {
    for (&fd, slot) in open_slots().iter() {
        if let Some(tracker) = slot
            && tracker.space == event.space
            && tracker.events & (1 << FATAL_FAULT) != 0
        {
            tracker.enqueue(event);
            tracker.wake(fd);
        }
    }
}

/// A word of the memory that the program has given.
fn word32(address: u64) -> &'static AtomicU32 {
    let pointer = std::ptr::with_exposed_provenance::<AtomicU32>(usize::try_from(address).unwrap_or(usize::MAX));
    // SAFETY: the program has given this memory for as long as the descriptor is open, which is now: closing it waits
    // for the lock that is held here. It is aligned, since the pages are.
    unsafe { &*pointer }
}

/// A word of the memory that the program has given.
fn word64(address: u64) -> &'static AtomicU64 {
    let pointer = std::ptr::with_exposed_provenance::<AtomicU64>(usize::try_from(address).unwrap_or(usize::MAX));
    // SAFETY: as for `word32`.
    unsafe { &*pointer }
}

impl Tracker {
    fn control(&self, offset: u64) -> &'static AtomicU32 {
        word32(self.control + offset)
    }

    /// `enqueue_event`.
    fn enqueue(&self, event: &Event) {
        let mask = self.entries - 1;
        let get = self.control(GET_BEHIND).load(Ordering::Acquire) & mask;
        let put = self.control(PUT_BEHIND).load(Ordering::Relaxed) & mask;
        if (self.entries + get - put) & mask == 1 {
            word64(self.control + DROPPED + u64::from(FATAL_FAULT) * 8).fetch_add(1, Ordering::Relaxed);
            return;
        }
        let [low, high] = event.processor.to_le_bytes();
        let mut head = [FATAL_FAULT, event.fault_type, event.access_type, low, event.reason, 0, 0, 0];
        if self.version == Version::V2 {
            (head[3], head[4], head[5]) = (event.reason, low, high);
        }
        let start = self.queue + u64::from(put) * self.version.entry_size() as u64;
        for (index, word) in (0..).zip([u64::from_le_bytes(head), event.address, event.time]) {
            word64(start + index * 8).store(word, Ordering::Relaxed);
        }
        self.control(PUT_AHEAD).store((put + 1) & mask, Ordering::Release);
        self.control(PUT_BEHIND).store((put + 1) & mask, Ordering::Release);
    }

    /// Makes the descriptor readable when enough is waiting.
    fn wake(&self, fd: RawFd) {
        let mask = self.entries - 1;
        let (get, put) = (self.control(GET).load(Ordering::Acquire), self.control(PUT_BEHIND).load(Ordering::Acquire));
        if (self.entries.wrapping_add(put).wrapping_sub(get)) & mask >= self.threshold {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes are read from a local.
            unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
        }
    }
}
