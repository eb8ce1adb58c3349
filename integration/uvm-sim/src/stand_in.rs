//! What is known of a descriptor: whether it is a client's UVM stand-in, and which.

use sim_wire::memory_file::MEMORY_FILE_NAME;
use sim_wire::uvm::{FILE_NAME, Header};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::path::{Path, PathBuf};

/// Device numbers of the simulated UVM driver, as the real one often has them: its own, and the tools'.
pub(crate) const UVM: (u32, u32) = (511, 0);
pub(crate) const TOOLS: (u32, u32) = (511, 1);
/// Device number of `/dev/nvidiactl`, which exported GPU memory is a file of.
const CONTROL: (u32, u32) = (195, 255);

/// Whether a name that `/proc` shows for a descriptor is that of a stand-in.
fn is_named(link: &Path) -> bool {
    link.to_string_lossy().starts_with(&format!("/memfd:{FILE_NAME} "))
}

/// The name of one of our own descriptors in `/proc`.
pub(crate) fn path_of(fd: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{fd}"))
}

/// Whether a link of `/proc` leads to a stand-in.
pub(crate) fn is_link_to_stand_in(path: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|link| is_named(&link))
}

/// The device number of what a link of `/proc` leads to, if the simulation has it: a stand-in for a UVM descriptor, or
/// memory that the simulated driver has exported.
pub(crate) fn device_behind(path: &Path) -> Option<(u32, u32)> {
    let link = std::fs::read_link(path).ok()?;
    let is_memory = link.to_string_lossy().starts_with(&format!("/memfd:{MEMORY_FILE_NAME} "));
    if is_named(&link) { Some(UVM) } else { is_memory.then_some(CONTROL) }
}

/// What the stand-in says of itself; `None` for another descriptor.
pub(crate) fn header(fd: RawFd) -> Option<Header> {
    if !is_link_to_stand_in(&path_of(fd)) {
        return None;
    }
    // SAFETY: the descriptor is open, as its link shows, and the caller's; it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    Header::read(&file).ok()
}
