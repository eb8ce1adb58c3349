//! The system calls of the UVM witness: memory that the kernel writes into, ioctls, other processes' descriptors.
#![expect(
    unsafe_code,
    reason = "ioctl, statx, pidfd_getfd and shared memory have no safe wrapper in the crates used here"
)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::uvm_abi::{
    CONTROL_SIZE, EVENT_QUEUE_ENABLE_EVENTS, EnableEvents, GetProcessorTable, InitEventTracker,
    SET_NOTIFICATION_THRESHOLD, SetNotificationThreshold, Uuid, Version,
};

/// Zeroed, page-aligned memory that the kernel may write into at any time, read and written in atomic words only.
///
/// It is shared memory and not passed on by fork, so that no copy-on-write can part the pages that the kernel has
/// pinned from those that this process reads.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to no thread, and all access is by atomic operations.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// So many bytes.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` for a length of 0.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let memory = Self { start, length };
        // SAFETY: the range is the mapping just made. A refusal only means that a child has it mapped too.
        unsafe { libc::madvise(address, length, libc::MADV_DONTFORK) };
        Ok(memory)
    }

    /// Where it is, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// How many bytes it has.
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    fn place(&self, offset: usize, size: usize) -> NonNull<u8> {
        let end = offset.checked_add(size).expect("an offset is far below the end of the address space");
        assert!(end <= self.length && offset.is_multiple_of(size), "offset {offset} of {}", self.length);
        // SAFETY: the sum is inside the mapping, as just asserted.
        unsafe { self.start.add(offset) }
    }

    /// The 32-bit word at an offset, which must be aligned and inside.
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: aligned, inside, initialised by the kernel with zeros, and mapped as long as `self` lives.
        unsafe { self.place(offset, size_of::<AtomicU32>()).cast().as_ref() }
    }

    /// The 64-bit word at an offset, which must be aligned and inside.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as for `word32`.
        unsafe { self.place(offset, size_of::<AtomicU64>()).cast().as_ref() }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it outlives `self`. Pages that a driver has pinned stay
        // where they are until it lets go of them, so it can't write into whatever is mapped here next.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// # Safety
/// `parameters` is what the driver behind `fd` takes for `request`, or longer, and points to memory that it may write.
unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: u32, parameters: &mut T) -> io::Result<()> {
    let argument: *mut T = parameters;
    // SAFETY: by the contract above.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(request), argument) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `UVM_TOOLS_INIT_EVENT_TRACKER` with a queue at the start of `memory` and its control page at `control`. `tools` is
/// an open `/dev/nvidia-uvm-tools`; the kernel pins the pages until that is closed.
///
/// # Errors
/// The system call's: `EINVAL` when the release does not know the request. The driver's own is in `parameters`.
pub(crate) fn init_event_tracker(
    tools: BorrowedFd<'_>,
    version: Version,
    parameters: &mut InitEventTracker,
    memory: &SharedMemory,
    control: usize,
) -> io::Result<()> {
    let entries = usize::try_from(parameters.queue_entries).unwrap_or(usize::MAX);
    let queue = entries.checked_mul(version.entry_size()).expect("a queue is small");
    assert!(queue <= control && control + CONTROL_SIZE <= memory.len(), "queue and control page are in the memory");
    parameters.queue_buffer = memory.address();
    parameters.control_buffer = memory.address() + control as u64;
    // SAFETY: the structure is as long as the longest release's; the addresses in it are those of memory that is
    // meant to be written by the kernel, and long enough, as just asserted.
    unsafe { ioctl(tools, version.init_request(), parameters) }
}

/// `UVM_TOOLS_SET_NOTIFICATION_THRESHOLD`.
///
/// # Errors
/// The system call's. The driver's own is in `parameters`.
pub(crate) fn set_notification_threshold(
    tools: BorrowedFd<'_>,
    parameters: &mut SetNotificationThreshold,
) -> io::Result<()> {
    // SAFETY: the structure is the same in all releases and holds no address.
    unsafe { ioctl(tools, SET_NOTIFICATION_THRESHOLD, parameters) }
}

/// `UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS`.
///
/// # Errors
/// The system call's. The driver's own is in `parameters`.
pub(crate) fn enable_events(tools: BorrowedFd<'_>, parameters: &mut EnableEvents) -> io::Result<()> {
    // SAFETY: as above.
    unsafe { ioctl(tools, EVENT_QUEUE_ENABLE_EVENTS, parameters) }
}

/// Places in the table for [`processor_table`]: the drivers have 33 or 257, and are not told how long ours is.
pub(crate) const TABLE_LENGTH: usize = 4096;

/// `UVM_TOOLS_GET_PROCESSOR_UUID_TABLE` or its second version, by `request`, on a UVM descriptor.
///
/// # Errors
/// The system call's: `EINVAL` when the release does not know the request. The driver's own is in `parameters`.
pub(crate) fn processor_table(
    uvm: BorrowedFd<'_>,
    request: u32,
    parameters: &mut GetProcessorTable,
    table: &mut [Uuid; TABLE_LENGTH],
) -> io::Result<()> {
    parameters.table = table.as_mut_ptr().addr() as u64;
    // SAFETY: the structure is as long as the longest release's, and the table many times as long.
    unsafe { ioctl(uvm, request, parameters) }
}

/// What a file is, without asking the file system that it is on.
fn statx(dir: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<libc::statx> {
    let mut status = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = flags | libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    // SAFETY: path and buffer are valid for the call.
    let result =
        unsafe { libc::syscall(libc::SYS_statx, dir, path.as_ptr(), flags, libc::STATX_TYPE, status.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed bytes are a valid value, and the call has filled them.
    Ok(unsafe { status.assume_init() })
}

fn character_device(status: &libc::statx) -> Option<(u32, u32)> {
    let is_device = u32::from(status.stx_mode) & libc::S_IFMT == libc::S_IFCHR;
    is_device.then_some((status.stx_rdev_major, status.stx_rdev_minor))
}

/// Major and minor number of the character device that a path leads to, magic links of `/proc` included; `None` for
/// another kind of file. A file system in user space is not asked, so it can't keep the caller waiting.
pub(crate) fn device_at(path: &CStr) -> io::Result<Option<(u32, u32)>> {
    statx(libc::AT_FDCWD, path, 0).map(|status| character_device(&status))
}

/// The same of an open descriptor.
pub(crate) fn device_of(fd: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    statx(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH).map(|status| character_device(&status))
}

/// A copy of another process's descriptor: of the same open file, so that what lives as long as that does is kept.
///
/// # Errors
/// `EPERM` without the right to trace the process, `EBADF` when it has no such descriptor, `ESRCH` when it has ended,
/// `ENOSYS` before Linux 5.6.
pub fn get_descriptor(process: BorrowedFd<'_>, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes three integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `F_DUPFD_QUERY` of Linux 6.10.
const F_DUPFD_QUERY: libc::c_int = 1027;
/// `KCMP_FILE`.
const KCMP_FILE: libc::c_int = 0;

/// Whether two descriptors are of one open file; `None` where neither kernel call for it is allowed.
pub(crate) fn is_same_file(first: BorrowedFd<'_>, second: BorrowedFd<'_>) -> Option<bool> {
    // SAFETY: three integers.
    match unsafe { libc::fcntl(first.as_raw_fd(), F_DUPFD_QUERY, second.as_raw_fd()) } {
        0 => return Some(false),
        1 => return Some(true),
        _ => {}
    }
    let own = std::process::id();
    // SAFETY: five integers.
    match unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, first.as_raw_fd(), second.as_raw_fd()) } {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn the_null_device_is_a_character_device_and_a_folder_is_none() {
        assert_eq!(device_at(c"/dev/null").unwrap(), Some((1, 3)));
        assert_eq!(device_at(c"/proc").unwrap(), None);
        assert_eq!(device_of(File::open("/dev/null").unwrap().as_fd()).unwrap(), Some((1, 3)));
        assert_eq!(device_at(c"/nowhere").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_duplicate_is_the_same_open_file_and_a_second_opening_is_not() {
        let first = File::open("/dev/null").unwrap();
        let duplicate = first.as_fd().try_clone_to_owned().unwrap();
        let second = File::open("/dev/null").unwrap();
        assert_eq!(is_same_file(first.as_fd(), duplicate.as_fd()), Some(true));
        assert_eq!(is_same_file(first.as_fd(), second.as_fd()), Some(false));
    }

    #[test]
    fn memory_is_zeroed_and_its_words_are_shared() {
        let memory = SharedMemory::new(4096).unwrap();
        assert_eq!(memory.word64(4088).load(Ordering::Relaxed), 0);
        memory.word64(8).store(0x1_0000_0002, Ordering::Relaxed);
        assert_eq!([8, 12].map(|offset| memory.word32(offset).load(Ordering::Relaxed)).iter().sum::<u32>(), 3);
    }

    #[test]
    #[should_panic(expected = "offset 4096 of 4096")]
    fn a_word_outside_the_memory_is_refused() {
        let _ = SharedMemory::new(4096).unwrap().word32(4096);
    }
}
