//! Which descriptors are kept: exported GPU memory, which is a file of `/dev/nvidiactl`, and nothing else.
//!
//! The proof is the device number, asked of the kernel alone (`statx` with `AT_STATX_DONT_SYNC`, which a file system in
//! user space is not asked for). Whether such a file is an export of memory only the driver could tell, by an ioctl that
//! a keeper without CUDA does not make; one that is none costs its owner a place and is harmless.
//!
//! A debug build also takes memory files (`memfd_create`) when `MPS_TEST_VAULT_MEMFD` is set: the simulated driver's
//! memory is such. What is shipped can't be told to.

use crate::sys::uvm::device_of;
use crate::witness::uvm::closing::{self, Closing};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `/dev/nvidiactl`: major 195 is registered with Linux for NVIDIA (`admin-guide/devices.txt`), 255 is the control
/// device.
const CONTROL_DEVICE: (u32, u32) = (195, 255);

/// A descriptor of GPU memory. Closing the last one frees the memory, which takes the driver its time, so the drop leaves
/// that to a thread.
#[derive(Debug)]
pub(crate) struct Descriptor(Option<OwnedFd>);

impl Descriptor {
    /// Takes what a peer has sent.
    ///
    /// # Errors
    /// Gives back what is not GPU memory. Closing that may hang.
    pub(crate) fn prove(descriptor: OwnedFd) -> Result<Self, OwnedFd> {
        let is_path = fcntl(&descriptor, FcntlArg::F_GETFL).is_ok_and(|flags| flags & OFlag::O_PATH.bits() != 0);
        let device = device_of(descriptor.as_fd()).ok().flatten();
        let is_memory = device == Some(CONTROL_DEVICE) || simulated::is_memory(descriptor.as_fd());
        if is_memory && !is_path { Ok(Self(Some(descriptor))) } else { Err(descriptor) }
    }

    /// Takes what the holder kept, which was proven when it came.
    #[must_use]
    pub(crate) fn proven(descriptor: OwnedFd) -> Self {
        Self(Some(descriptor))
    }

    /// Closes it on another thread; who waits for that knows when the kernel is done.
    #[must_use]
    pub(crate) fn close(mut self) -> Option<Closing> {
        self.0.take().map(|descriptor| closing::close(vec![descriptor]))
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it is taken out only when it is dropped").as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(descriptor) = self.0.take() {
            drop(closing::close(vec![descriptor]));
        }
    }
}

#[cfg(debug_assertions)]
mod simulated {
    use nix::fcntl::{FcntlArg, fcntl};
    use std::os::fd::BorrowedFd;
    use std::sync::LazyLock;

    static IS_TAKEN: LazyLock<bool> = LazyLock::new(|| std::env::var_os("MPS_TEST_VAULT_MEMFD").is_some());

    /// Whether it is a memory file. Its name is made up by the kernel, and only a file in memory has seals.
    pub(super) fn is_memory(descriptor: BorrowedFd<'_>) -> bool {
        let name = || std::fs::read_link(crate::sys::proc::path_of(descriptor));
        *IS_TAKEN
            && name().is_ok_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"))
            && fcntl(descriptor, FcntlArg::F_GET_SEALS).is_ok()
    }
}

#[cfg(not(debug_assertions))]
mod simulated {
    pub(super) fn is_memory(_: std::os::fd::BorrowedFd<'_>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_is_no_gpu_memory_is_given_back() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (socket, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("nvidiactl")).unwrap();
        let null = File::open("/dev/null").unwrap();
        #[expect(clippy::disallowed_methods, reason = "no test is released")]
        let memory = nix::sys::memfd::memfd_create(c"nvidia-vmm", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).unwrap();
        let all: [OwnedFd; 7] =
            [reader.into(), writer.into(), socket.into(), other.into(), file.into(), null.into(), memory];
        for descriptor in all {
            assert!(Descriptor::prove(descriptor).is_err());
        }
    }
}
