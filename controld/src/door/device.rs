//! `/dev/nvidiaN`, held open as long as memory of that GPU is kept.
//!
//! When the last one who has a GPU's device file open closes it, and persistence mode is off, the driver shuts the GPU
//! down and its memory with it, exported or not. So whoever keeps memory has the device open too.
//!
//! That is done for nobody who has not the GPU's device file open himself ([`reach`](super::reach)).
//!
//! Which N a GPU has is in `/proc/driver/nvidia/gpus/*/information`. A GPU that is not found there, as a MIG instance or
//! the simulated one, is not held; the region says so in `vault list`.

use super::descriptor::Descriptor;
use crate::sys::proc::NVIDIA_GPUS;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Where the device files are.
const FOLDER: &str = "/dev";
/// GPUs that are remembered; no machine has as many.
const MOST_GPUS: usize = 256;

/// An open device file. Closing the last one may shut the GPU down, so that too is left to a thread.
#[derive(Debug)]
pub(crate) struct Device(Descriptor);

impl Device {
    /// Takes what the holder kept.
    #[must_use]
    pub(crate) fn proven(descriptor: OwnedFd) -> Self {
        Self(Descriptor::proven(descriptor))
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The device files that are open now, one for each GPU.
#[derive(Debug)]
pub(crate) struct Devices {
    listing: PathBuf,
    folder: PathBuf,
    open: Mutex<HashMap<String, (u32, Weak<Device>)>>,
}

impl Default for Devices {
    fn default() -> Self {
        Self::of(Path::new(NVIDIA_GPUS), Path::new(FOLDER))
    }
}

impl Devices {
    pub(super) fn of(listing: &Path, folder: &Path) -> Self {
        Self { listing: listing.to_owned(), folder: folder.to_owned(), open: Mutex::default() }
    }

    /// The device file of a GPU, by its UUID, for one who may use the one of this minor number. Blocks: the driver may
    /// have to start the GPU.
    pub(crate) fn get(&self, gpu: &str, may_use: impl FnOnce(u32) -> bool) -> Option<Arc<Device>> {
        let known = self.open.lock().get(gpu).and_then(|(minor, device)| Some((*minor, device.upgrade()?)));
        if let Some((minor, device)) = known {
            return may_use(minor).then_some(device);
        }
        let minor = self.minor(gpu)?;
        if !may_use(minor) {
            return None;
        }
        // Opened without the lock, so that a GPU in trouble holds up nobody but those who use it.
        let path = self.folder.join(format!("nvidia{minor}"));
        let opened = File::options().read(true).write(true).open(path).ok()?;
        let device = Arc::new(Device::proven(opened.into()));
        let mut open = self.open.lock();
        open.retain(|_, (_, device)| device.strong_count() > 0);
        if open.len() < MOST_GPUS {
            open.insert(gpu.to_owned(), (minor, Arc::downgrade(&device)));
        }
        Some(device)
    }

    fn minor(&self, gpu: &str) -> Option<u32> {
        let entries = std::fs::read_dir(&self.listing).ok()?;
        entries.flatten().find_map(|entry| {
            let text = std::fs::read_to_string(entry.path().join("information")).ok()?;
            minor_of(&text, gpu)
        })
    }
}

/// The minor number in a GPU's `information`, if it is this GPU's.
fn minor_of(text: &str, gpu: &str) -> Option<u32> {
    let field = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()));
    if field("GPU UUID") != Some(gpu) {
        return None;
    }
    field("Device Minor")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "GPU-5e90f0d2-1111-2222-3333-444455556666";
    const INFORMATION: &str = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 65\n\
        GPU UUID: \t GPU-5e90f0d2-1111-2222-3333-444455556666\nDMA Mask: \t 0xfffffffffffff\nDevice Minor: \t 3\n";

    #[test]
    fn the_minor_number_is_that_of_the_gpu_with_this_uuid() {
        assert_eq!(minor_of(INFORMATION, GPU), Some(3));
        assert_eq!(minor_of(INFORMATION, "GPU-0"), None);
        assert_eq!(minor_of(&INFORMATION.replace("Minor: \t 3", "Minor: \t ?"), GPU), None);
    }

    #[test]
    fn a_device_is_opened_once_and_again_when_nobody_has_it_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let listed = folder.path().join("gpus/0000:3b:00.0");
        std::fs::create_dir_all(&listed).unwrap();
        std::fs::write(listed.join("information"), INFORMATION).unwrap();
        std::fs::write(folder.path().join("nvidia3"), "").unwrap();
        let devices = Devices::of(&folder.path().join("gpus"), folder.path());
        let all = |minor| minor == 3;
        let first = devices.get(GPU, all).unwrap();
        assert!(Arc::ptr_eq(&first, &devices.get(GPU, all).unwrap()));
        assert!(devices.get("GPU-0", all).is_none());
        assert!(devices.get(GPU, |_| false).is_none(), "who may not use it gets none that is open for others");
        drop(first);
        assert!(devices.get(GPU, |_| false).is_none(), "and has none opened");
        assert!(devices.get(GPU, all).is_some());
    }
}
