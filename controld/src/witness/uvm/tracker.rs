//! Hears of the fatal memory faults of one client.
//!
//! A tracker is an open `/dev/nvidia-uvm-tools` that has been given a copy of the client's descriptor and memory for a
//! queue; it becomes readable when the driver has written an entry. The queue is that client's own, so an entry in it
//! names its culprit beyond doubt. It keeps the client's address space alive as [`Copies`] do.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use super::closing::{self, Closing};
use super::copies::{Copies, Held, number_of};
use super::error::AttachError;
use super::fatal::{self, FatalFault};
use super::processors::Processors;
use super::queue::Queue;
use super::{NOBODY, Uvm, look};
use crate::core::MemoryFault;
use crate::io::blocking::QUESTIONS;
use crate::io::process::uid_of;
use crate::patience::patient;
use crate::sys::uvm_abi::{self, EnableEvents, SetNotificationThreshold, Version};
use crate::sys::{polled, uvm as sys};

/// One entry makes the descriptor readable.
const THRESHOLD: u32 = 1;
/// How long a fault waits for the name of its GPU, when the client has taken that GPU since it was last asked.
const PATIENCE_FOR_NAME: Duration = Duration::from_millis(10);
/// The pauses between the questions to a client that has no GPU yet: it gets one with its context, and a fault whose GPU
/// is known need not wait for the name. Not while the context is made, which takes some 100 ms: the question waits for
/// the same lock, and whatever the client does there next waits behind it. A fault that comes before asks itself.
const ASK_FOR_GPUS: [Duration; 5] = [
    Duration::from_millis(150),
    Duration::from_millis(350),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];

/// A tracker that the driver has accepted, not yet waited on.
#[derive(Debug)]
pub(super) struct Armed {
    tools: OwnedFd,
    queue: Queue,
}

impl Armed {
    /// Gives it up, on another thread.
    pub(super) fn discard(self) {
        drop(closing::close(vec![self.tools]));
    }
}

/// What the driver made of a descriptor.
#[derive(Debug)]
pub(super) enum Probed {
    /// It is an address space, and watched now.
    Space(Armed),
    /// It is a UVM descriptor of another kind, or not initialised yet.
    Other,
}

/// Gives the driver a descriptor to watch. Blocks for the time of three ioctls.
pub(super) fn arm(uvm: &Uvm, held: &Held) -> Result<Probed, AttachError> {
    let tools = uvm.open_tools()?;
    let (queue, status) = match init(&tools, Version::V2, held) {
        Err(error) if is_unknown_request(&error) => init(&tools, Version::V1, held),
        result => result,
    }
    .map_err(|source| AttachError::System { what: "make an event tracker", source })?;
    match status {
        uvm_abi::STATUS_OK => {}
        uvm_abi::STATUS_ILLEGAL_ACTION | uvm_abi::STATUS_INSUFFICIENT_PERMISSIONS => return Ok(Probed::Other),
        status => return Err(AttachError::Kernel { call: "INIT_EVENT_TRACKER", status }),
    }
    // Events before the threshold: the queue then says so itself, whatever was put there in between.
    let mut enable = EnableEvents { events: uvm_abi::ENABLE_FATAL_FAULT, status: u32::MAX, reserved: 0 };
    sys::enable_events(tools.as_fd(), &mut enable)
        .map_err(|source| AttachError::System { what: "enable fatal fault events", source })?;
    check("EVENT_QUEUE_ENABLE_EVENTS", enable.status)?;
    let mut threshold = SetNotificationThreshold { threshold: THRESHOLD, status: u32::MAX };
    sys::set_notification_threshold(tools.as_fd(), &mut threshold)
        .map_err(|source| AttachError::System { what: "set the notification threshold", source })?;
    check("SET_NOTIFICATION_THRESHOLD", threshold.status)?;
    Ok(Probed::Space(Armed { tools, queue }))
}

fn init(tools: &OwnedFd, version: Version, held: &Held) -> io::Result<(Queue, u32)> {
    let queue = Queue::new(version)?;
    let mut request = queue.request(number_of(held));
    let (memory, control) = queue.memory();
    sys::init_event_tracker(tools.as_fd(), version, &mut request, memory, control)?;
    Ok((queue, request.status(version)))
}

/// The tools device answers so to a request that its release does not have.
fn is_unknown_request(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY))
}

const fn check(call: &'static str, status: u32) -> Result<(), AttachError> {
    match status {
        uvm_abi::STATUS_OK => Ok(()),
        status => Err(AttachError::Kernel { call, status }),
    }
}

/// Hears of one address space's fatal faults.
#[derive(Debug)]
pub struct Tracker {
    process: Pid,
    /// Taken out only at the end.
    tools: Option<AsyncFd<OwnedFd>>,
    queue: Queue,
    space: Weak<Held>,
    processors: Processors,
    /// Questions for the GPUs asked so far while there were none.
    asked: usize,
    last: Option<FatalFault>,
    /// Taken from the queue, and not told yet.
    untold: Option<FatalFault>,
    not_culpable: u64,
}

impl Tracker {
    /// Watches the address space of these copies; several trackers may watch one.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub async fn attach(uvm: &Arc<Uvm>, copies: &Copies) -> Result<Self, AttachError> {
        let (own, space) = (Arc::clone(uvm), Arc::clone(copies.space()));
        let armed = look(copies.process(), move || arm(&own, &space)).await?;
        let Probed::Space(armed) = armed else { return Err(AttachError::NotYet) };
        Self::listen(armed, copies)
    }

    /// Waits on a tracker that the driver has accepted.
    pub(super) fn listen(armed: Armed, copies: &Copies) -> Result<Self, AttachError> {
        let Armed { tools, queue } = armed;
        let tools = polled::register(tools, Interest::READABLE | Interest::ERROR)
            .map_err(|source| AttachError::System { what: "wait on the event queue", source })?;
        Ok(Self {
            process: copies.process(),
            tools: Some(tools),
            queue,
            space: Arc::downgrade(copies.space()),
            processors: Processors::default(),
            asked: 0,
            last: None,
            untold: None,
            not_culpable: 0,
        })
    }

    /// Whose address space it is.
    #[must_use]
    pub const fn process(&self) -> Pid {
        self.process
    }

    /// Which queue the driver has granted.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.queue.version()
    }

    /// The fault that [`Tracker::next`] gave last, as it lay in the queue.
    #[must_use]
    pub const fn last(&self) -> Option<FatalFault> {
        self.last
    }

    /// Fatal faults so far that were no one's fault: accesses of the CPU, which end their own process alone, and
    /// accesses that the driver gave up for want of memory or for an error of its own, which meets the innocent too.
    #[must_use]
    pub const fn not_culpable(&self) -> u64 {
        self.not_culpable
    }

    /// Fatal faults that the driver dropped since this was last asked, for want of room in the queue.
    pub fn newly_dropped(&mut self) -> u64 {
        self.queue.newly_dropped()
    }

    /// Waits for the next fatal fault of this client. What repeats the fault before it is left out: a kernel has many
    /// threads, and each of them faults. May be dropped and called again.
    ///
    /// # Errors
    /// When the driver has failed for good, or the descriptor cannot be waited on.
    pub async fn next(&mut self) -> io::Result<MemoryFault> {
        loop {
            if let Some(fault) = self.untold.or_else(|| self.take()) {
                // Kept until it is told: this may be dropped while the name is asked for, which is done once.
                if self.untold.replace(fault).is_none() && self.processors.name_of(fault.processor).is_none() {
                    self.ask_for_gpus(patient(PATIENCE_FOR_NAME)).await;
                }
                self.untold = None;
                return Ok(self.describe(fault));
            }
            self.wait().await?;
        }
    }

    /// The faults that are waiting already. For a tracker that is about to be dropped because its client has ended:
    /// a daemon that is kept from running learns of the end and of the fault before it at the same time. The GPUs are asked
    /// for once for all of them, where one has no name.
    pub async fn waiting(&mut self) -> Vec<MemoryFault> {
        let mut faults: Vec<FatalFault> = self.untold.take().into_iter().collect();
        faults.extend(std::iter::from_fn(|| self.take()));
        if faults.iter().any(|fault| self.processors.name_of(fault.processor).is_none()) {
            self.ask_for_gpus(patient(PATIENCE_FOR_NAME)).await;
        }
        faults.into_iter().map(|fault| self.describe(fault)).collect()
    }

    /// The next entry that is a fault of the client and not told yet.
    fn take(&mut self) -> Option<FatalFault> {
        while let Some(fault) = self.queue.take() {
            if self.is_new(&fault) {
                self.last = Some(fault);
                return Some(fault);
            }
        }
        None
    }

    fn describe(&self, fault: FatalFault) -> MemoryFault {
        MemoryFault {
            address: fault.address,
            access: fatal::access(fault.access_type),
            kind: fatal::fault_name(fault.fault_type),
            gpu: self.processors.name_of(fault.processor).map(str::to_owned),
        }
    }

    /// Whether this is somebody's doing, and something else than what was reported last.
    fn is_new(&mut self, fault: &FatalFault) -> bool {
        if fault.processor == uvm_abi::CPU_INDEX || !fault.reason.is_culprits() {
            self.not_culpable += 1;
            return false;
        }
        let told = |last: FatalFault| (last.address, last.access_type, last.fault_type, last.processor);
        self.last.map(told) != Some(told(*fault))
    }

    /// Waits until the queue may have something, and meanwhile finds out which GPUs the client has.
    async fn wait(&mut self) -> io::Result<()> {
        let tools = self.tools.as_ref().expect("it is taken out only when the tracker is dropped");
        let ready = tools.ready(Interest::READABLE | Interest::ERROR);
        let mut ready = match ASK_FOR_GPUS.get(self.asked).filter(|_| self.processors.is_empty()) {
            None => ready.await?,
            Some(&pause) => match timeout(pause, ready).await {
                Ok(ready) => ready?,
                Err(_) => {
                    self.asked += 1;
                    self.ask_for_gpus(PATIENCE_FOR_NAME).await;
                    return Ok(());
                }
            },
        };
        // An entry that comes after the look makes the descriptor ready anew: the readiness that is cleared is the one
        // from before the look.
        if self.queue.is_empty() {
            if ready.ready().is_error() {
                return Err(io::Error::other("the UVM driver reports a fatal error of its own"));
            }
            ready.clear_ready();
        }
        Ok(())
    }

    /// Asks the client's descriptor, as long as it is held. The answer may have to wait for a lock of the driver.
    async fn ask_for_gpus(&mut self, patience: Duration) {
        let Some(space) = self.space.upgrade() else { return };
        let version = self.queue.version();
        let begin = Instant::now();
        let user = uid_of(self.process).unwrap_or(NOBODY);
        let question = QUESTIONS.run(user, patience, move || Processors::ask(space.fd(), version));
        if let Ok(Ok(found)) = question.await {
            self.processors = found;
        } else {
            tracing::debug!(pid = self.process.as_raw(), waited = ?begin.elapsed(), "the client's GPUs are not known");
        }
    }

    /// Ends it on another thread.
    #[must_use]
    pub fn close(mut self) -> Closing {
        closing::close(self.tools.take().map(AsyncFd::into_inner).into_iter().collect())
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        if let Some(tools) = self.tools.take() {
            drop(closing::close(vec![tools.into_inner()]));
        }
    }
}
