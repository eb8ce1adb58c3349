//! The notice device as a file: opening, its requests, and what it turns out to be.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use remps_proto::notice::control::{self, Info};
use remps_proto::notice::{ABI_VERSION, RECORD_SIZE};

use crate::sys::ioctl;

/// The patched module's device.
pub const DEVICE: &str = "/dev/nvidia-uvm-mps";

/// Where notices come from: the device, or a test's stand-in.
pub trait NoticeSource: fmt::Debug + Send + Sync {
    /// Opens it, non-blocking and close-on-exec; a new descriptor begins with a snapshot.
    ///
    /// # Errors
    /// As opening a file.
    fn open(&self) -> io::Result<OwnedFd>;

    /// Makes one of the requests in [`control`].
    ///
    /// # Errors
    /// As `ioctl`.
    fn control(&self, fd: BorrowedFd<'_>, request: u32, argument: &mut [u8]) -> io::Result<()>;
}

/// The device file.
#[derive(Debug, Clone)]
pub struct DeviceFile(PathBuf);

impl DeviceFile {
    /// The device with this name, [`DEVICE`] as a rule.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }
}

impl NoticeSource for DeviceFile {
    fn open(&self) -> io::Result<OwnedFd> {
        let open =
            |for_writing| OpenOptions::new().read(true).write(for_writing).custom_flags(libc::O_NONBLOCK).open(&self.0);
        // Who may only read still gets the notices; setting the policy then fails and says so.
        let file = match open(true) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(false)?,
            other => other?,
        };
        Ok(file.into())
    }

    fn control(&self, fd: BorrowedFd<'_>, request: u32, argument: &mut [u8]) -> io::Result<()> {
        ioctl::call(fd, request, argument)
    }
}

/// What a look at the device has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// Nobody has looked yet, or the descriptor was given back.
    Closed,
    /// There is no such device: the module is not patched, or not loaded.
    Absent,
    /// It may not be opened by this user, or in this container.
    Forbidden,
    /// Something else has the name.
    Foreign,
    /// The module speaks an earlier version of the layout.
    Older(u32),
    /// The module speaks a later version of the layout.
    Newer(u32),
    /// It is there and is read.
    Present(Info),
    /// It was there, or it can't be used: what the kernel said.
    Failed(String),
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("not open"),
            Self::Absent => f.write_str("not installed (optional)"),
            Self::Forbidden => f.write_str("not permitted"),
            Self::Foreign => f.write_str("not the notice device"),
            Self::Older(version) => write!(f, "version {version} of the module is older than {ABI_VERSION}"),
            Self::Newer(version) => write!(f, "version {version} of the module is newer than {ABI_VERSION}"),
            Self::Present(info) => {
                let isolation = if info.tested == 1 { "allowed" } else { "not tested on it" };
                write!(f, "present, driver {}, isolation {isolation}", info.driver_version())
            }
            Self::Failed(reason) => write!(f, "failed: {reason}"),
        }
    }
}

/// Opens the device and finds out what it is.
pub(super) fn open(source: &dyn NoticeSource) -> Result<(OwnedFd, Info), Presence> {
    use std::os::fd::AsFd as _;
    let fd = source.open().map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Presence::Absent,
        Some(libc::EACCES | libc::EPERM) => Presence::Forbidden,
        _ => Presence::Failed(error.to_string()),
    })?;
    let mut bytes = [0; Info::SIZE];
    source.control(fd.as_fd(), control::INFO, &mut bytes).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL) => Presence::Foreign,
        _ => Presence::Failed(error.to_string()),
    })?;
    let info = Info::decode(&bytes);
    let known = u32::from(ABI_VERSION);
    if info.version < known {
        return Err(Presence::Older(info.version));
    }
    if info.version > known || usize::try_from(info.record_size) != Ok(RECORD_SIZE) {
        return Err(Presence::Newer(info.version));
    }
    Ok((fd, info))
}
