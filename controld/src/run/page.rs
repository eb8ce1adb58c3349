//! The page that a program and its wrapper share: a memory file with one word, the first error of the driver that ended
//! a context of the program. It outlives the program however that ends.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// Bytes of the file.
const SIZE: u64 = 4096;

/// A memory file. By the system call's number: glibc has a function for it since 2.27 only.
#[expect(unsafe_code, reason = "a system call without a function of its own")]
fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, c"mps-run".as_ptr(), libc::MFD_CLOEXEC) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// The page.
#[derive(Debug)]
pub(super) struct Page(File);

impl Page {
    /// A fresh one, which children inherit.
    pub(super) fn new() -> io::Result<Self> {
        let file = memory_file()?;
        file.set_len(SIZE)?;
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(Self(file))
    }

    /// Its number in the program.
    pub(super) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The error, if the library has noted one.
    pub(super) fn error(&self) -> Option<u32> {
        let mut word = [0; 4];
        self.0.read_exact_at(&mut word, 0).ok()?;
        Some(u32::from_ne_bytes(word)).filter(|error| *error != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_notes_is_read() {
        let page = Page::new().unwrap();
        assert_eq!(page.error(), None);
        page.0.write_all_at(&700_u32.to_ne_bytes(), 0).unwrap();
        assert_eq!(page.error(), Some(700));
    }
}
