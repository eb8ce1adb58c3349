//! Keeps the witnesses: follows each client with a tools queue and copies of its UVM descriptors, and hears the
//! kernel's log and the patched module.
//!
//! A client's first connection starts a task that attaches as soon as the client has an address space, some 5 ms after
//! its start; each later connection looks once more, because a new context may come with a new address space. What is
//! missing here costs exactly what that witness knows, and is said once.

use super::Driver;
use super::events::{Event, Events};
use super::processes::kernel_pid;
use crate::core::{Channel, ChannelFacts, Evidence, Input, JournalEvent, ProcessKey};
use crate::report::WitnessFacts;
use crate::settings::Settings;
use crate::witness::cgroup::Mounts;
use crate::witness::end::MemoryKills;
use crate::witness::identity::Identities;
use crate::witness::kmsg::{KernelSign, Kmsg, is_in_initial_pid_namespace};
use crate::witness::notice::{DeviceFile, NoticeEvent, Notices, Presence};
use crate::witness::uvm::{AttachError, Attached, Copies, Tracker, Uvm};
use remps_proto::mps::fault_log::FaultLine;
use remps_proto::mps::log::Record;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// How long a client may take from its first connection to an address space that can be tracked.
const ATTACH_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a record that a verdict repeats.
const MAX_SIGN: usize = 256;

/// Why a witness is missing that the configuration does not want.
const SWITCHED_OFF: &str = "switched off";

/// A client that is followed.
struct Followed {
    pidfd: Arc<OwnedFd>,
    copies: Vec<Copies>,
    /// The tasks that read its tools queues; one that is aborted closes its queue on another thread.
    tasks: Vec<AbortHandle>,
    /// Whether its first address space is still waited for.
    is_looking: bool,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Everything that tells of faults.
pub(super) struct Witnesses {
    uvm: Option<Arc<Uvm>>,
    followed: HashMap<ProcessKey, Followed>,
    kmsg: Option<Kmsg>,
    kmsg_lost: u64,
    notices: Notices,
    has_notices: bool,
    /// What is missing, said once the driver runs.
    remarks: Vec<(&'static str, String)>,
    pub(super) identities: Identities,
    pub(super) kills: MemoryKills,
    pub(super) mounts: Arc<Mounts>,
    /// Why a witness can't be heard at all.
    missing: BTreeMap<&'static str, String>,
}

/// What a witness says to the driver's loop.
pub(super) enum Sign {
    Kernel(std::io::Result<Vec<KernelSign>>),
    Notices(Vec<NoticeEvent>),
}

impl Witnesses {
    /// Opens what there is, within a tokio runtime.
    pub(super) fn open(settings: &Settings) -> Self {
        let file = &settings.file.witness;
        let mut remarks = Vec::new();
        let uvm = match file.uvm.then(Uvm::open) {
            Some(Ok(uvm)) => Some(uvm),
            Some(Err(error)) => {
                remarks.push(("uvm-event", error.to_string()));
                None
            }
            None => None,
        };
        let kmsg = match (!file.kmsg.is_empty()).then(|| Kmsg::open(Path::new(&file.kmsg))) {
            Some(Ok(kmsg)) => Some(kmsg),
            Some(Err(error)) => {
                remarks.push(("xid", error.to_string()));
                None
            }
            None => None,
        };
        let kills = MemoryKills::default();
        kills.log_is_read(kmsg.is_some() && is_in_initial_pid_namespace());
        let notices = Notices::new(DeviceFile::new(&file.notices));
        let has_notices = !file.notices.is_empty();
        Self {
            uvm,
            followed: HashMap::new(),
            kmsg,
            kmsg_lost: 0,
            notices,
            has_notices,
            remarks,
            identities: Identities::default(),
            kills,
            mounts: Arc::new(Mounts::read()),
            missing: BTreeMap::new(),
        }
    }

    /// Waits for the kernel's log and the patched module. May be dropped at any time.
    pub(super) async fn next(&mut self) -> Sign {
        let Self { kmsg, notices, .. } = self;
        let kernel = async {
            match kmsg {
                Some(kmsg) => kmsg.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            events = notices.next() => Sign::Notices(events),
            signs = kernel => Sign::Kernel(signs),
        }
    }

    /// What reports and metrics say of those that can be missing.
    pub(super) fn facts(&self) -> Vec<WitnessFacts> {
        let reason = |name| self.missing.get(name).cloned().unwrap_or_else(|| SWITCHED_OFF.to_owned());
        let has_copies = |followed: &Followed| !followed.copies.is_empty();
        let attached = self.followed.values().filter(|followed| has_copies(followed)).count();
        let refused = self.followed.values().filter(|followed| !followed.is_looking && !has_copies(followed)).count();
        let uvm_missing = self.uvm.is_none().then(|| reason("uvm-event"));
        let xid_missing = self.kmsg.is_none().then(|| reason("xid"));
        let notice_missing = if !self.has_notices {
            Some(SWITCHED_OFF.to_owned())
        } else if let Presence::Present(_) = self.notices.presence() {
            None
        } else {
            Some(self.notices.presence().to_string())
        };
        vec![
            WitnessFacts { name: "uvm-event", missing: uvm_missing, attached: Some(attached), refused },
            WitnessFacts { name: "xid", missing: xid_missing, attached: None, refused: 0 },
            WitnessFacts { name: "notice", missing: notice_missing, attached: None, refused: 0 },
        ]
    }
}

impl Driver {
    /// Says which witnesses are missing, and looks for the patched module.
    pub(super) fn begin_witnessing(&mut self) {
        for (witness, text) in std::mem::take(&mut self.witnesses.remarks) {
            self.witness_missing(witness, None, text);
        }
        self.look_for_notices();
    }

    fn witness_missing(&mut self, witness: &'static str, process: Option<ProcessKey>, text: String) {
        self.say(&match process {
            Some(process) => format!("Client {} is not watched by {witness}: {text}", process.pid),
            None => format!("Faults are not watched by {witness}: {text}"),
        });
        if process.is_none() {
            self.witnesses.missing.insert(witness, text.clone());
        }
        self.record(&JournalEvent::WitnessMissing { witness, process, text });
    }

    /// The module may have been loaded since: looked for when a server starts, so that nothing wakes up for it.
    pub(super) fn look_for_notices(&mut self) {
        if !self.witnesses.has_notices || matches!(self.witnesses.notices.presence(), Presence::Present(_)) {
            return;
        }
        let before = self.witnesses.notices.presence().clone();
        let presence = self.witnesses.notices.look().clone();
        match presence {
            Presence::Present(_) => self.say("The patched UVM module's notices are read"),
            Presence::Absent | Presence::Closed => {}
            other @ (Presence::Forbidden
            | Presence::Foreign
            | Presence::Older(_)
            | Presence::Newer(_)
            | Presence::Failed(_)) => {
                if other != before {
                    self.witness_missing("notice", None, other.to_string());
                }
            }
        }
    }

    /// Gives the notice device back: an open descriptor keeps its module loaded, and an operator who has stopped all MPS
    /// work expects to be able to replace it.
    pub(super) fn stop_reading_notices(&mut self) {
        if matches!(self.witnesses.notices.presence(), Presence::Present(_)) {
            self.witnesses.notices.close();
            self.feed(Input::HardwareForgotten);
        }
    }

    /// Follows a client from its first connection on; at each later one it is looked for a new address space.
    pub(super) fn follow(&mut self, process: ProcessKey, pidfd: Option<OwnedFd>) {
        let Some(uvm) = self.witnesses.uvm.clone() else {
            return;
        };
        let is_first = !self.witnesses.followed.contains_key(&process);
        if is_first {
            let Some(pidfd) = pidfd else {
                return;
            };
            let pidfd = Arc::new(pidfd);
            let followed = Followed { pidfd, copies: Vec::new(), tasks: Vec::new(), is_looking: true };
            self.witnesses.followed.insert(process, followed);
        }
        let Some(followed) = self.witnesses.followed.get_mut(&process) else {
            return;
        };
        if followed.is_looking && !is_first {
            return;
        }
        let patience = if is_first { ATTACH_PATIENCE } else { Duration::ZERO };
        let (pidfd, events) = (Arc::clone(&followed.pidfd), self.events.clone());
        tokio::spawn(async move {
            let pid = kernel_pid(process.pid);
            let result = uvm.attach_when_ready(pid, pidfd.as_fd(), Instant::now() + patience).await;
            events.send(Event::Attached { process, is_first, result: result.map(Box::new) }).await;
        });
    }

    /// A client that is followed has come with another connection.
    pub(super) fn follow_again(&mut self, process: ProcessKey) {
        if self.witnesses.followed.contains_key(&process) {
            self.follow(process, None);
        }
    }

    pub(super) fn attached(&mut self, process: ProcessKey, is_first: bool, result: Result<Box<Attached>, AttachError>) {
        if is_first && let Some(followed) = self.witnesses.followed.get_mut(&process) {
            followed.is_looking = false;
        }
        match result {
            Ok(attached) => {
                let Attached { tracker, copies } = *attached;
                let task = tokio::spawn(hear(process, tracker, self.events.clone())).abort_handle();
                let Some(followed) = self.witnesses.followed.get_mut(&process) else {
                    // The client is gone and buried.
                    task.abort();
                    return;
                };
                followed.tasks.push(task);
                followed.copies.push(copies);
                let descriptors = followed.copies.iter().map(Copies::count).sum();
                self.feed(Input::CopiesHeld { process, descriptors });
                self.feed(Input::Tracked { process, tracked: true });
            }
            Err(AttachError::Gone) => {}
            // Nothing new at a later connection.
            Err(AttachError::NotYet) if !is_first => {}
            Err(error) => {
                self.feed(Input::Tracked { process, tracked: false });
                if error.concerns_everybody() {
                    self.witnesses.uvm = None;
                    self.witness_missing("uvm-event", None, error.to_string());
                } else {
                    self.witness_missing("uvm-event", Some(process), error.to_string());
                }
            }
        }
    }

    /// Closes a client's queue and the copies of its descriptors, elsewhere: it takes the kernel 16 to 39 ms.
    pub(super) fn release_copies(&mut self, process: ProcessKey) {
        self.witnesses.followed.remove(&process);
    }

    /// A client is gone, and the core wants nothing kept of it.
    pub(super) fn forget_unless_held(&mut self, process: ProcessKey) {
        if !self.core.holds_copies_of(process) {
            self.release_copies(process);
        }
    }

    /// A record of the log FIFO, which anybody may have written, speaks of a fault.
    pub(super) fn log_sign(&mut self, record: &Record) {
        let Some(line) = FaultLine::parse(&record.text).filter(|line| line.begins() || line.blames()) else {
            return;
        };
        let text = String::from_utf8_lossy(&record.text[..record.text.len().min(MAX_SIGN)]).into_owned();
        let (server, named, blames) = (record.pid, line.accused(), line.blames());
        self.feed(Input::Evidence(Evidence::ServerLog { server, named, blames, text }));
    }

    pub(super) fn sign(&mut self, sign: Sign) {
        match sign {
            Sign::Kernel(Ok(signs)) => {
                for sign in signs {
                    match sign {
                        KernelSign::Xid(evidence) => self.feed(Input::Evidence(evidence)),
                        KernelSign::OutOfMemory(Some(pid)) => self.witnesses.kills.note(pid),
                        KernelSign::OutOfMemory(None) => {}
                    }
                }
                let lost = self.witnesses.kmsg.as_ref().map_or(0, Kmsg::lost);
                let count = lost.saturating_sub(std::mem::replace(&mut self.witnesses.kmsg_lost, lost));
                if count > 0 {
                    self.record(&JournalEvent::WitnessLost { witness: "xid", process: None, count });
                }
            }
            Sign::Kernel(Err(error)) => {
                self.witnesses.kmsg = None;
                self.witnesses.kills.log_is_read(false);
                self.witness_missing("xid", None, error.to_string());
            }
            Sign::Notices(events) => events.into_iter().for_each(|event| self.notice(event)),
        }
    }

    fn notice(&mut self, event: NoticeEvent) {
        match event {
            NoticeEvent::Fault(_) | NoticeEvent::ZombieFault(_) => match event.evidence() {
                Some(evidence) => self.feed(Input::Evidence(evidence)),
                None => self.say("The patched module tells of a fault that is nobody's, or of a process not seen here"),
            },
            NoticeEvent::SnapshotBegins => self.feed(Input::HardwareForgotten),
            NoticeEvent::SnapshotEnds => self.feed(Input::HardwareKnown),
            NoticeEvent::VaSpaceAdded(client) => {
                if let Some(process) = client.process {
                    let (va_space, condemned) = (client.va_space, client.is_condemned);
                    self.feed(Input::AddressSpaceAdded { va_space, process, condemned });
                }
            }
            NoticeEvent::ChannelAdded(client, channel, facts) => {
                if let Some(process) = client.process {
                    let (channel, facts) = (Channel::Hardware(channel), ChannelFacts::Hardware(facts));
                    self.feed(Input::ChannelAdded { process, channel, facts });
                }
            }
            NoticeEvent::ChannelRemoved(_, channel) => {
                self.feed(Input::ChannelRemoved { channel: Channel::Hardware(channel) });
            }
            NoticeEvent::VaSpaceRemoved(client) => {
                self.feed(Input::AddressSpaceGone { va_space: client.va_space, process: client.process });
            }
            NoticeEvent::Lost(count) => {
                self.record(&JournalEvent::WitnessLost { witness: "notice", process: None, count });
            }
            NoticeEvent::Suppressed(client, count) => {
                let (witness, process) = ("notice", client.process);
                self.record(&JournalEvent::WitnessLost { witness, process, count: u64::from(count) });
            }
            NoticeEvent::Gone(text) => {
                self.feed(Input::HardwareForgotten);
                self.witness_missing("notice", None, text);
            }
            NoticeEvent::Killed(client) => {
                if let Some(process) = client.process {
                    self.say(&format!("The kernel has killed client {}, whose fault was isolated", process.pid));
                }
            }
            NoticeEvent::Held(_) | NoticeEvent::HoldEnds(_) | NoticeEvent::Refused(..) | NoticeEvent::Unknown(_) => {
                tracing::debug!(?event, "notice");
            }
        }
    }
}

/// Reports a client's faults until the driver has enough of it.
async fn hear(process: ProcessKey, mut tracker: Tracker, events: Events) {
    loop {
        let fault = match tracker.next().await {
            Ok(fault) => fault,
            Err(error) => {
                events.send(Event::Unheard { process, error }).await;
                return;
            }
        };
        events.send(Event::Fault { process, fault, lost: tracker.newly_dropped() }).await;
    }
}
