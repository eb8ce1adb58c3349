//! Device requests whose argument is a block of plain bytes.
#![expect(unsafe_code, reason = "ioctl takes a pointer whose meaning only the request number tells")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bits of a request number that say how many bytes the argument has (`linux/ioctl.h`).
const SIZE_SHIFT: u32 = 16;
const SIZE_MASK: u32 = 0x3fff;
/// Room that the kernel gets at least. A descriptor that is not the device meant may know the same number with a
/// larger argument.
const MIN_ROOM: usize = 4096;

/// Makes a request. The argument is copied in and, whatever the request does, copied back.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] when the number says another size than the argument has; `ENOTTY` when the device
/// does not know the request; else what the device says.
pub(crate) fn call(fd: impl AsFd, request: u32, argument: &mut [u8]) -> io::Result<()> {
    if usize::try_from(request >> SIZE_SHIFT & SIZE_MASK) != Ok(argument.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Words of eight bytes, so that the block is aligned as any structure of the kernel's may be.
    let mut block = vec![0_u64; argument.len().max(MIN_ROOM).div_ceil(size_of::<u64>())];
    for (word, bytes) in block.iter_mut().zip(argument.chunks(size_of::<u64>())) {
        let mut whole = [0; size_of::<u64>()];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    let number = libc::Ioctl::from(request);
    // SAFETY: the block is live, aligned and larger than any argument that fits the request number.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), number, block.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    for (bytes, word) in argument.chunks_mut(size_of::<u64>()).zip(block) {
        bytes.copy_from_slice(&word.to_ne_bytes()[..bytes.len()]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of `FIONREAD` with a size in it, which the real one has not.
    const UNKNOWN_REQUEST: u32 = 2 << 30 | 4 << 16 | ('T' as u32) << 8 | 0x1b;
    /// `FS_IOC_GETFLAGS`, `_IOR('f', 1, long)`: every file of ext4, xfs, btrfs and tmpfs has flags.
    const GET_FLAGS: u32 = 2 << 30 | 8 << 16 | ('f' as u32) << 8 | 1;

    #[test]
    fn an_unknown_request_and_a_wrong_size_are_errors() {
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(call(&reader, UNKNOWN_REQUEST, &mut [0; 4]).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(call(&reader, UNKNOWN_REQUEST, &mut [0; 5]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_answer_comes_back() {
        let file = tempfile::tempfile().unwrap();
        let mut answer = [0xff; 8];
        match call(&file, GET_FLAGS, &mut answer) {
            // The kernel writes an int there, whatever the number says.
            Ok(()) => assert_ne!(answer[..4], [0xff; 4]),
            Err(error) => println!("Skipped(this file system has no flags: {error})"),
        }
    }
}
