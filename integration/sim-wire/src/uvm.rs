//! The stand-ins for a client's `/dev/nvidia-uvm` descriptors.
//!
//! On real hardware a client has two: its GPU address space, and one that holds its CPU address space for the driver.
//! The second, as long as a copy of it is open in whatever process, keeps the first and with it the page tables; the
//! first alone keeps the GPU memory, but not the channels, which are stopped when the second goes (`uvm_release_mm` in
//! `uvm.c` of NVIDIA's open kernel modules; that both together save the others is measured on an H200).
//! A client killed in the middle of a kernel takes the others of its server along, unless its page tables are kept until
//! the kernel has ended.
//!
//! Here each is a memory file with a header, which the library holds with an open-file-description lock: like the page
//! tables, that lasts until the last copy is closed.
//!
//! | byte | what | in |
//! |---|---|---|
//! | 0 | until when the client's kernels keep the GPU busy, so that the server knows when it has drained | the second |
//! | 8 | [`Kind`], once the library has initialised it | both |
//! | 16 | the number of the address space, which no other has | both |
//! | 24 | a bit for each GPU that the client sees | the first |
//! | 64 | for each GPU, the bytes of its memory that the client has | the first |

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Name of the memory file: `readlink` of the descriptor gives `/memfd:nvidia-uvm (deleted)`.
pub const FILE_NAME: &str = "nvidia-uvm";
/// Bytes of the file.
pub const FILE_LENGTH: u64 = 4096;
/// The busy word of an idle client.
pub const IDLE: u64 = 0;
/// The busy word of a client in a kernel that never ends.
pub const ENDLESS: u64 = u64::MAX;

const KIND: u64 = 8;
const SPACE: u64 = 16;
const DEVICES: u64 = 24;
const MEMORY: u64 = 64;

remps_proto::open_enum! {
    /// Which of the two descriptors it is.
    pub struct Kind: u32 {
        /// Opened, and not initialised yet.
        UNINITIALISED = 0,
        /// The GPU address space.
        SPACE = 1,
        /// The one that holds the CPU address space.
        MM = 2,
    }
}

/// Makes a file one of the two descriptors of an address space.
///
/// # Errors
/// The system call's.
pub fn initialise(file: &File, kind: Kind, space: u64) -> std::io::Result<()> {
    file.write_all_at(&space.to_le_bytes(), SPACE)?;
    file.write_all_at(&u64::from(kind.0).to_le_bytes(), KIND)
}

/// Notes that the client sees this GPU.
///
/// # Errors
/// The system call's.
pub fn add_device(file: &File, ordinal: u32) -> std::io::Result<()> {
    let mask = word(file, DEVICES)? | 1_u64.checked_shl(ordinal).unwrap_or(0);
    file.write_all_at(&mask.to_le_bytes(), DEVICES)
}

/// Notes how much memory of a GPU the client has.
///
/// # Errors
/// The system call's.
pub fn set_memory(file: &File, ordinal: u32, bytes: u64) -> std::io::Result<()> {
    file.write_all_at(&bytes.to_le_bytes(), MEMORY + u64::from(ordinal) * 8)
}

/// Reads how much it has.
///
/// # Errors
/// The system call's; `UnexpectedEof` for an ordinal that there is no room for.
pub fn memory(file: &File, ordinal: u32) -> std::io::Result<u64> {
    word(file, MEMORY + u64::from(ordinal) * 8)
}

/// What a stand-in says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which of the two it is.
    pub kind: Kind,
    /// The number of the address space.
    pub space: u64,
    /// A bit for each GPU.
    pub devices: u64,
}

impl Header {
    /// Reads it.
    ///
    /// # Errors
    /// The system call's; `UnexpectedEof` for a file that is too short.
    pub fn read(file: &File) -> std::io::Result<Self> {
        let kind = Kind(u32::try_from(word(file, KIND)?).unwrap_or(u32::MAX));
        Ok(Self { kind, space: word(file, SPACE)?, devices: word(file, DEVICES)? })
    }
}

fn word(file: &File, offset: u64) -> std::io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, offset)?;
    Ok(u64::from_le_bytes(word))
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).expect("a lock type is a small constant"),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).expect("SEEK_SET is 0"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Locks the library's own description for as long as a copy of it is open.
///
/// # Errors
/// The system call's.
pub fn hold(file: &File) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))).map(drop)
}

/// Whether somebody still holds a copy; `file` must be another description of the same file.
///
/// # Errors
/// The system call's.
pub fn is_held(file: &File) -> Result<bool, Errno> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_RDLCK))) {
        Ok(_) => Ok(false),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Blocks until nobody holds a copy.
///
/// # Errors
/// The system call's.
pub fn wait_until_free(file: &File) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLKW(&whole_file(libc::F_RDLCK))).map(drop)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("every Linux has this clock");
    let part = |number: i64| u64::try_from(number).expect("a monotonic clock is not negative");
    part(time.tv_sec()) * 1_000_000_000 + part(time.tv_nsec())
}

/// Nanoseconds of the monotonic clock, which all processes share.
#[must_use]
pub fn now() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds of the clock by which the real driver dates its events.
#[must_use]
pub fn event_time() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC_RAW)
}

/// Reads the busy word.
///
/// # Errors
/// The system call's; `UnexpectedEof` for a file that is too short.
pub fn busy_until(file: &File) -> std::io::Result<u64> {
    word(file, 0)
}

/// Ends the kernels of a client, whatever its own library has said of them. Of one that is dead nobody contradicts.
///
/// # Errors
/// The system call's.
pub fn end_work(file: &File) -> std::io::Result<()> {
    file.write_all_at(&IDLE.to_le_bytes(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_file::memory_file;

    #[test]
    fn a_stand_in_says_what_it_is() {
        let file = memory_file(FILE_NAME).unwrap();
        file.set_len(FILE_LENGTH).unwrap();
        assert_eq!(Header::read(&file).unwrap().kind, Kind::UNINITIALISED);
        initialise(&file, Kind::SPACE, 77).unwrap();
        add_device(&file, 1).unwrap();
        add_device(&file, 0).unwrap();
        assert_eq!(Header::read(&file).unwrap(), Header { kind: Kind::SPACE, space: 77, devices: 0b11 });
        set_memory(&file, 1, 4096).unwrap();
        assert_eq!([0, 1].map(|ordinal| memory(&file, ordinal).unwrap()), [0, 4096]);
        file.write_all_at(&ENDLESS.to_le_bytes(), 0).unwrap();
        assert_eq!(busy_until(&file).unwrap(), ENDLESS);
        end_work(&file).unwrap();
        assert_eq!(busy_until(&file).unwrap(), IDLE);
    }
}
