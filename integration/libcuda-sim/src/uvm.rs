//! What every CUDA process has besides its contexts: the abstract socket and the UVM descriptors.
//!
//! The socket `cuda-uvmfd-<inode of the PID namespace>-<pid>` is bound by every copy of the library, under MPS or not;
//! while another copy in the process holds the name, `cuInit` fails with 304. The two descriptors are the stand-ins that
//! [`sim_wire::uvm`] describes; a fatal memory fault is told to whoever has a tools device ([`sim_wire::tools`]).
#![expect(unsafe_code, reason = "the busy word is shared memory")]

use crate::codes::{Code, Outcome};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use sim_wire::memory_file::memory_file;
use sim_wire::seqpacket::Seqpacket;
use sim_wire::tools::{DIRECTORY, Event};
use sim_wire::uvm::{self, ENDLESS, FILE_LENGTH, FILE_NAME, IDLE, Kind, hold, now};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Binds the socket and serves it: a peer is heard out and gets nothing, since there is no real descriptor to give.
pub(crate) fn listen() -> Outcome {
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_err(|_| Code::OPERATING_SYSTEM)?.ino();
    let socket = Seqpacket::listen_abstract(&format!("cuda-uvmfd-{namespace}-{}", std::process::id()))
        .map_err(|_| Code::OPERATING_SYSTEM)?;
    std::thread::Builder::new()
        .name("cuda-uvmfd".into())
        .spawn(move || {
            loop {
                // A program may have put another file in the descriptor's place, to free the name: then there is
                // nothing to accept, and the thread goes on waiting as the real one does.
                let mut set = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
                match poll(&mut set, PollTimeout::NONE) {
                    Err(nix::errno::Errno::EINTR) => {}
                    Err(_) => return,
                    Ok(_) if set[0].revents().is_none_or(|events| events.contains(PollFlags::POLLNVAL)) => return,
                    Ok(_) => drop(socket.accept()),
                }
            }
        })
        .map(drop)
        .map_err(|_| Code::OPERATING_SYSTEM)
}

/// `UvmFaultTypeInvalidPte`.
const INVALID_PTE: u8 = 2;
/// `UvmEventFatalReasonInvalidAddress`.
const INVALID_ADDRESS: u8 = 1;

/// An access to an address that is not mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WildAccess {
    /// The address.
    pub(crate) address: usize,
    /// Whether it was a store.
    pub(crate) is_write: bool,
}

/// The stand-ins for the UVM descriptors, with the kernels that are running.
#[derive(Debug)]
pub(crate) struct Descriptor {
    /// The address space.
    space: Arc<File>,
    /// What keeps the page tables; it has the busy word.
    file: File,
    /// The number of the address space.
    number: u64,
    /// Where faults are told.
    tools: Option<PathBuf>,
    word: &'static AtomicU64,
    /// When each running kernel will have ended.
    running: Mutex<BTreeMap<u64, u64>>,
    next: AtomicU64,
}

/// A kernel is running as long as this lives.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a Descriptor, u64);

impl Descriptor {
    /// Makes the files and holds them.
    pub(crate) fn open() -> Outcome<Self> {
        let os = |_| Code::OPERATING_SYSTEM;
        // No two processes have the same pid at the same time, and no process opens two in a nanosecond.
        let number = now() ^ u64::from(std::process::id()).rotate_right(24);
        let make = |kind| {
            let file = memory_file(FILE_NAME).map_err(|_| Code::OPERATING_SYSTEM)?;
            file.set_len(FILE_LENGTH).map_err(|_| Code::OPERATING_SYSTEM)?;
            hold(&file).map_err(os)?;
            uvm::initialise(&file, kind, number).map_err(|_| Code::OPERATING_SYSTEM)?;
            Ok(file)
        };
        let (space, file) = (Arc::new(make(Kind::SPACE)?), make(Kind::MM)?);
        let length = NonZeroUsize::new(8).expect("8 is not 0");
        // SAFETY: a new shared mapping of a file that is longer; it is never unmapped, so the reference stays valid.
        let address =
            unsafe { mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, &file, 0) };
        let pointer = address.map_err(os)?.cast::<AtomicU64>();
        // SAFETY: the mapping is page-aligned, at least eight bytes long and lives until the process ends.
        let word = unsafe { pointer.as_ref() };
        let tools = std::env::var_os(DIRECTORY).map(PathBuf::from);
        let (running, next) = (Mutex::new(BTreeMap::new()), AtomicU64::new(0));
        Ok(Self { space, file, number, tools, word, running, next })
    }

    /// The address space.
    pub(crate) fn space(&self) -> Arc<File> {
        Arc::clone(&self.space)
    }

    /// Has this device in the address space.
    pub(crate) fn add_device(&self, ordinal: u32) {
        // Without it a fault's GPU has no name.
        let _ = uvm::add_device(&self.space, ordinal);
    }

    /// Tells of a fatal fault on a device, as the kernel module does.
    pub(crate) fn tell(&self, device: u32, access: WildAccess) {
        let Some(directory) = &self.tools else { return };
        let event = Event {
            space: self.number,
            address: access.address as u64,
            time: uvm::event_time(),
            fault_type: INVALID_PTE,
            access_type: if access.is_write { 2 } else { 1 },
            reason: INVALID_ADDRESS,
            processor: u16::try_from(device + 1).unwrap_or(u16::MAX),
        };
        // Nobody may be listening.
        let _ = event.send_and_wait(directory);
    }

    /// Another description of the file that keeps the page tables, through which a server watches this one.
    pub(crate) fn watcher(&self) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    fn publish(&self, running: &BTreeMap<u64, u64>) {
        self.word.store(running.values().copied().max().unwrap_or(IDLE), Ordering::SeqCst);
    }

    /// Notes that a kernel starts and how long it will run; `None` is for ever.
    pub(crate) fn start(&self, time: Option<Duration>) -> Running<'_> {
        let end = time.map_or(ENDLESS, |time| now().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(ENDLESS)));
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(token, end);
        self.publish(&running);
        Running(self, token)
    }

    /// The process ends in an orderly way, which stops its kernels first.
    pub(crate) fn stop(&self) {
        self.word.store(IDLE, Ordering::SeqCst);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.1);
        self.0.publish(&running);
    }
}
