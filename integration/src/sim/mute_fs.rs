//! A file system in user space that stops answering: what a hostile client may have under any descriptor.
//!
//! It speaks just enough of FUSE (`linux/fuse.h`, protocol 7.31) for one file to be found and opened, and answers
//! nothing from then on: whoever asks it for anything, or closes the file, waits until this is dropped.

use crate::under_test::Skipped;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The one file of it.
pub const FILE: &str = "nvidia-uvm";

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Bytes of a request's head.
const REQUEST_HEAD: usize = 40;
/// Longest request; the kernel refuses to fill less than 8 KiB.
const LONGEST_REQUEST: usize = 1 << 17;
const ROOT: u64 = 1;
const FILE_NODE: u64 = 2;

/// The mounted file system.
#[derive(Debug)]
pub struct MuteFs {
    place: PathBuf,
    device: Option<Arc<File>>,
    is_mute: Arc<AtomicBool>,
    unanswered: Arc<AtomicUsize>,
}

impl MuteFs {
    /// Mounts it on a folder.
    ///
    /// # Errors
    /// Without the right to mount, or without FUSE.
    pub fn mount(place: &Path) -> Result<Self, Skipped> {
        let why = |error: &dyn std::fmt::Display| Skipped(format!("no file system in user space here: {error}"));
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|error| why(&error))?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("mute"), place, Some("fuse"), flags, Some(options.as_str())).map_err(|error| why(&error))?;
        let device = Arc::new(device);
        let (is_mute, unanswered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let worker =
            Worker { device: Arc::clone(&device), is_mute: Arc::clone(&is_mute), unanswered: Arc::clone(&unanswered) };
        std::thread::spawn(move || worker.serve());
        Ok(Self { place: place.to_owned(), device: Some(device), is_mute, unanswered })
    }

    /// Its one file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.place.join(FILE)
    }

    /// Answers nothing from now on.
    pub fn be_mute(&self) {
        self.is_mute.store(true, Ordering::SeqCst);
    }

    /// How many requests have gone unanswered: whoever made them waits.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered.load(Ordering::SeqCst)
    }
}

impl Drop for MuteFs {
    fn drop(&mut self) {
        // Unmounting by force ends the connection, and with it everybody's waiting and the worker.
        let _ = umount2(&self.place, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        self.device.take();
    }
}

struct Worker {
    device: Arc<File>,
    is_mute: Arc<AtomicBool>,
    unanswered: Arc<AtomicUsize>,
}

impl Worker {
    fn serve(self) {
        let mut request = vec![0; LONGEST_REQUEST];
        // The read fails when the file system is unmounted.
        while let Ok(length) = (&*self.device).read(&mut request) {
            if length < REQUEST_HEAD {
                continue;
            }
            let number = |at: usize| u32::from_le_bytes(core::array::from_fn(|byte| request[at + byte]));
            let wide = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| request[at + byte]));
            let (opcode, unique, node) = (number(4), wide(8), wide(16));
            if [FORGET, BATCH_FORGET, INTERRUPT].contains(&opcode) {
                continue;
            }
            if self.is_mute.load(Ordering::SeqCst) {
                self.unanswered.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            let (error, body) = match opcode {
                INIT => (0, init(number(REQUEST_HEAD + 8))),
                LOOKUP if request[REQUEST_HEAD..length].starts_with(FILE.as_bytes()) => (0, entry()),
                LOOKUP => (-libc::ENOENT, Vec::new()),
                GETATTR => (0, [&[0; 16][..], &attributes(node)].concat()),
                OPEN => (0, vec![0; 16]),
                _ => (-libc::ENOSYS, Vec::new()),
            };
            // A request that was given up meanwhile takes no answer.
            let _ = self.answer(unique, error, &body);
        }
    }

    fn answer(&self, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(16 + body.len()).expect("an answer is short");
        let mut answer = Vec::with_capacity(16 + body.len());
        answer.extend(length.to_le_bytes());
        answer.extend(error.to_le_bytes());
        answer.extend(unique.to_le_bytes());
        answer.extend(body);
        (&*self.device).write_all(&answer)
    }
}

/// `fuse_init_out`.
fn init(read_ahead: u32) -> Vec<u8> {
    let mut body: Vec<u8> = [7, 31, read_ahead, 0].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    // No background requests to speak of, writes of a page.
    body.extend([1, 0, 1, 0]);
    body.extend(4096_u32.to_le_bytes());
    body.resize(64, 0);
    body
}

/// `fuse_attr`; nothing of it may be kept, so that every question reaches us.
fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == ROOT { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o666 };
    let mut body = node.to_le_bytes().to_vec();
    body.resize(60, 0);
    body.extend(mode.to_le_bytes());
    body.extend(1_u32.to_le_bytes());
    body.resize(88, 0);
    body
}

/// `fuse_entry_out`.
fn entry() -> Vec<u8> {
    let mut body = FILE_NODE.to_le_bytes().to_vec();
    body.resize(40, 0);
    body.extend(attributes(FILE_NODE));
    body
}
