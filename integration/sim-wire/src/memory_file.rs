//! Memory files, which stand in for the driver's descriptors.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Name of the memory files that are exported GPU memory: `readlink` of the descriptor gives
/// `/memfd:nvidia-vmm (deleted)`.
pub const MEMORY_FILE_NAME: &str = "nvidia-vmm";

/// A new memory file of this name, which is closed at `execve`.
///
/// By the system call's number: glibc has a function for it since 2.27 only, and the programs of the GPU suite run on
/// machines with 2.17.
///
/// # Errors
/// The kernel's, or a name with a zero in it.
#[expect(unsafe_code, reason = "a system call without a function of its own")]
pub fn memory_file(name: &str) -> io::Result<File> {
    let name = CString::new(name)?;
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}
