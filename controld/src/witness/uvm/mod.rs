//! The UVM tools queue of each client: who made a fatal memory access, within a millisecond, on the unmodified driver;
//! and copies of each client's UVM descriptors, which make its sudden death harmless.
//!
//! | module | is |
//! |---|---|
//! | [`sys::uvm_abi`](crate::sys::uvm_abi) | numbers and layouts of the driver's interface, by release |
//! | [`fatal`] | what an entry of the queue says |
//! | [`queue`] | the ring that the driver writes |
//! | [`descriptors`] | finding a client's descriptors |
//! | [`copies`] | keeping them |
//! | [`tracker`] | waiting for one client's faults |
//! | [`attach`] | when to look for them |
//! | [`closing`] | closing what may take the kernel long to close |
//! | [`error`] | why it came to nothing |
//!
//! # How the driver of the daemon uses it
//! - At start: [`Uvm::open`]. [`AttachError::NoDevice`] may only mean that the module is not loaded yet, which the first
//!   server of a machine does: so it is tried again whenever a server or a client has come. Each reason is said once.
//! - When a process connects for the first time (`cuInit`): a task with [`Uvm::attach_when_ready`], beside its
//!   handshake.
//! - When it connects for a context and is not attached yet, that task is hurried, and done **before** the client is
//!   handed to its server, within a bounded time: no kernel can run in a context that has no server, so nothing is
//!   missed. When it is attached, the same without patience for a second address space, whose usual answer is
//!   [`AttachError::NotYet`]; that adds to the copies what they lack. For the first context it is done beside the way to
//!   the server, for others before.
//! - Then a task that loops over [`Tracker::next`]: each fault is an [`Evidence::UvmEvent`] of that process.
//! - At the process's end: [`Tracker::waiting`], since its fault may be waiting still. Then the tracker is of no
//!   more use than the copies. When its work has drained, drop or close both; until then they pin its GPU memory. An
//!   [`AttachError::Gone`] needs nothing.
//!
//!
//! Copies of a dead client that must outlive this daemon can be given to another process ([`Copies::duplicates`]), and
//! taken back by a successor ([`Uvm::attach_given`]); so can those that a client's own preload library sends, where the
//! daemon may not trace.
//!
//! [`Evidence::UvmEvent`]: crate::core::Evidence::UvmEvent

pub(crate) mod attach;
pub(crate) mod closing;
pub(crate) mod copies;
pub(crate) mod descriptors;
pub(crate) mod error;
pub(crate) mod fatal;
mod processors;
pub(crate) mod queue;
pub(crate) mod tracker;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use attach::Attached;
pub use copies::Copies;
pub(crate) use copies::OpenFiles;
pub(crate) use descriptors::{Given, has_open, may_look};
pub use error::AttachError;
pub use tracker::Tracker;

use attach::LookedFor;
use copies::Registry;
use descriptors::{TOOLS_MINOR, read_major};
use nix::unistd::Pid;

use crate::io::blocking::{LOOKS, NoResult, QUESTIONS, Threads};
use crate::io::process::uid_of;
use crate::patience::patient;

/// The tools device.
const TOOLS: &str = "/dev/nvidia-uvm-tools";
/// How long a look is waited for, and a thread for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Whose the threads are on which what is left of the dead is looked at: `(uid_t)-1` is no user.
const NOBODY: u32 = u32::MAX;

/// The UVM driver of this machine, and everything that is held of it.
#[derive(Debug)]
pub struct Uvm {
    major: u32,
    registry: Registry,
    looked_for: LookedFor,
}

impl Uvm {
    /// Finds the driver, and opens its tools device once to see whether it can be used.
    ///
    /// # Errors
    /// [`AttachError::NoDevice`], [`AttachError::NotPermitted`] or another reason why the device can't be opened.
    pub fn open() -> Result<Arc<Self>, AttachError> {
        let major = read_major().map_err(|source| AttachError::System { what: "read /proc/devices", source })?;
        let major =
            major.ok_or_else(|| AttachError::NoDevice { what: "/proc/devices has no nvidia-uvm".to_owned() })?;
        let uvm = Self { major, registry: Registry::default(), looked_for: LookedFor::default() };
        drop(uvm.open_tools()?);
        Ok(Arc::new(uvm))
    }

    /// How many descriptors of clients are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.registry.count()
    }

    pub(crate) const fn major(&self) -> u32 {
        self.major
    }

    const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A new tracker's descriptor; nothing else is on it yet.
    fn open_tools(&self) -> Result<OwnedFd, AttachError> {
        let mut options = OpenOptions::new();
        // Non-blocking, so that whatever may lie there instead cannot keep us waiting.
        let opened = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(Path::new(TOOLS));
        let tools = OwnedFd::from(opened.map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
                AttachError::NoDevice { what: format!("{TOOLS}: {source}") }
            }
            Some(libc::EACCES | libc::EPERM) => AttachError::NotPermitted { what: "open the tools device", source },
            _ => AttachError::System { what: "open the tools device", source },
        })?);
        match crate::sys::uvm::device_of(tools.as_fd()) {
            Ok(Some(device)) if device == (self.major, TOOLS_MINOR) => Ok(tools),
            Ok(_) => Err(AttachError::NoDevice { what: format!("{TOOLS} is not the device of the UVM driver") }),
            Err(source) => Err(AttachError::System { what: "look at the tools device", source }),
        }
    }
}

/// Runs one look at a process on a thread, if not too many of its user's hang there already.
async fn look<T: Send + 'static>(
    pid: Pid,
    work: impl FnOnce() -> Result<T, AttachError> + Send + 'static,
) -> Result<T, AttachError> {
    on(&LOOKS, pid, work).await
}

/// The same of one question about a process's address space.
async fn ask<T: Send + 'static>(
    pid: Pid,
    question: impl FnOnce() -> Result<T, AttachError> + Send + 'static,
) -> Result<T, AttachError> {
    on(&QUESTIONS, pid, question).await
}

async fn on<T: Send + 'static>(
    threads: &'static Threads,
    pid: Pid,
    work: impl FnOnce() -> Result<T, AttachError> + Send + 'static,
) -> Result<T, AttachError> {
    let user = uid_of(pid).unwrap_or(NOBODY);
    match threads.run(user, patient(PATIENCE), work).await {
        Ok(result) => result,
        Err(NoResult::Exhausted) => Err(AttachError::Exhausted),
        Err(NoResult::Stuck) => Err(AttachError::Stuck { after: PATIENCE }),
        Err(NoResult::Panicked(panic)) => {
            Err(AttachError::System { what: "look into the process", source: io::Error::other(panic) })
        }
    }
}
