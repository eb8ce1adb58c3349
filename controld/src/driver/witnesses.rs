//! Keeps the witnesses: hears the kernel's log, the patched module and the servers' log records, and says what is
//! missing. What is missing here costs exactly what that witness knows, and is said once. Clients are followed in
//! [`following`](super::following).

mod ends;
pub(super) mod fault_records;
mod whereabouts;

use super::Driver;
use super::clients::hidden::Noted;
use super::events::Events;
use super::following::{Following, UVM};
use super::turn::Told;
use crate::core::picture::WitnessFacts;
use crate::core::{Channel, ChannelFacts, Input, JournalEvent, ProcessKey};
use crate::settings::Settings;
use crate::sys::other_proc::OtherProc;
use crate::witness::cgroup::Mounts;
use crate::witness::end::MemoryKills;
use crate::witness::identity::Identities;
use crate::witness::kmsg::{KernelSign, Kmsg};
use crate::witness::notice::{DeviceFile, NoticeEvent, Notices, Presence};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Why a witness is missing that the configuration does not want.
const SWITCHED_OFF: &str = "switched off";

/// Everything that tells of faults.
pub(super) struct Witnesses {
    pub(super) following: Following,
    kmsg: Option<Kmsg>,
    kmsg_lost: u64,
    notices: Notices,
    has_notices: bool,
    /// What is missing, said once the driver runs.
    remarks: Vec<(&'static str, String)>,
    pub(super) identities: Identities,
    /// Why those can't be found who have no pid here.
    pub(super) no_other_proc: Option<String>,
    kills: MemoryKills,
    mounts: Arc<Mounts>,
    /// The tasks that wait for the ends of clients.
    ends: HashMap<ProcessKey, AbortHandle>,
    /// Of whom the next daemon is to know, of those who have no pid here.
    pub(super) hidden: Noted,
    /// Why a witness can't be heard at all.
    missing: BTreeMap<&'static str, String>,
    /// Where the machine's GPUs are found, if they are to be looked for.
    gpus: Option<PathBuf>,
    /// Whether it is being looked which GPUs there are.
    looks_for_gpus: bool,
    events: Events,
}

/// What a witness says to the driver's loop.
pub(super) enum Sign {
    Kernel(std::io::Result<Vec<KernelSign>>),
    Notices(Vec<NoticeEvent>),
}

impl Told {
    fn lost(witness: &'static str, process: Option<ProcessKey>, count: u64) -> Self {
        Self::Event(Box::new(JournalEvent::WitnessLost { witness, process, count }))
    }
}

impl Witnesses {
    /// Opens what there is, within a tokio runtime.
    pub(super) fn open(settings: &Settings, events: Events) -> Self {
        let file = &settings.file.witness;
        let mut remarks = Vec::new();
        let (following, error) = Following::open(file.uvm, events.clone());
        remarks.extend(error.map(|error| (UVM, error.to_string())));
        let (other, no_other_proc) = match OtherProc::open(Path::new(&file.proc)) {
            _ if file.proc.is_empty() => (None, Some("witness.proc is not set".to_owned())),
            Ok(other) => (Some(other), None),
            Err(error) => (None, Some(format!("witness.proc = \"{}\": {error}", file.proc))),
        };
        let kmsg = match (!file.kmsg.is_empty()).then(|| Kmsg::open(Path::new(&file.kmsg))) {
            Some(Ok(kmsg)) => Some(kmsg.looking_up(other.as_ref())),
            Some(Err(error)) => {
                remarks.push(("xid", error.to_string()));
                None
            }
            None => None,
        };
        let kills = MemoryKills::default();
        kills.log_is_read(kmsg.as_ref().is_some_and(Kmsg::names_processes));
        let notices = Notices::new(DeviceFile::new(&file.notices));
        let has_notices = !file.notices.is_empty();
        Self {
            following,
            kmsg,
            kmsg_lost: 0,
            notices,
            has_notices,
            remarks,
            identities: Identities::naming(&settings.file.cluster.containers).seeing(other),
            no_other_proc,
            kills,
            mounts: Arc::new(Mounts::read()),
            ends: HashMap::new(),
            hidden: Noted::default(),
            missing: BTreeMap::new(),
            gpus: Some(PathBuf::from(&file.gpus)).filter(|root| !root.as_os_str().is_empty()),
            looks_for_gpus: false,
            events,
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
        let (attached, refused) = self.following.counts();
        let uvm_missing = (!self.following.is_possible()).then(|| reason(UVM));
        let xid_missing = self.kmsg.is_none().then(|| reason("xid"));
        let notice_missing = if !self.has_notices {
            Some(SWITCHED_OFF.to_owned())
        } else if let Presence::Present(_) = self.notices.presence() {
            None
        } else {
            Some(self.notices.presence().to_string())
        };
        vec![
            WitnessFacts { name: UVM, missing: uvm_missing, attached: Some(attached), refused },
            WitnessFacts { name: "xid", missing: xid_missing, attached: None, refused: 0 },
            WitnessFacts { name: "notice", missing: notice_missing, attached: None, refused: 0 },
        ]
    }

    /// Says which witnesses are missing, and looks for the patched module.
    fn begin(&mut self) -> Vec<Told> {
        let remarks = std::mem::take(&mut self.remarks);
        let mut told: Vec<Told> =
            remarks.into_iter().flat_map(|(witness, text)| self.is_missing(witness, None, text)).collect();
        told.extend(self.look_for_notices());
        told
    }

    /// Says why a witness can't be heard, for one process or at all; the latter once for each reason.
    pub(super) fn is_missing(&mut self, witness: &'static str, process: Option<ProcessKey>, text: String) -> Vec<Told> {
        if process.is_none() && self.missing.insert(witness, text.clone()).as_ref() == Some(&text) {
            return Vec::new();
        }
        let line = match process {
            Some(process) => format!("Client {} is not watched by {witness}: {text}", process.pid),
            None => format!("Faults are not watched by {witness}: {text}"),
        };
        vec![Told::Line(line), Told::Event(Box::new(JournalEvent::WitnessMissing { witness, process, text }))]
    }

    /// A witness that was missing can be heard.
    pub(super) fn is_found(&mut self, witness: &'static str) -> Option<Told> {
        self.missing.remove(witness).map(|_| Told::Line(format!("Faults are watched by {witness} from now on")))
    }

    /// The module may have been loaded since: looked for when a server starts, so that nothing wakes up for it.
    pub(super) fn look_for_notices(&mut self) -> Vec<Told> {
        if !self.has_notices || matches!(self.notices.presence(), Presence::Present(_)) {
            return Vec::new();
        }
        let before = self.notices.presence().clone();
        match self.notices.look().clone() {
            Presence::Present(_) => vec![Told::Line("The patched UVM module's notices are read".to_owned())],
            Presence::Absent | Presence::Closed => Vec::new(),
            other @ (Presence::Forbidden
            | Presence::Foreign
            | Presence::Older(_)
            | Presence::Newer(_)
            | Presence::Failed(_)) => {
                if other == before {
                    Vec::new()
                } else {
                    self.is_missing("notice", None, other.to_string())
                }
            }
        }
    }

    /// Gives the notice device back: an open descriptor keeps its module loaded, and an operator who has stopped all MPS
    /// work expects to be able to replace it.
    pub(super) fn stop_reading_notices(&mut self) -> Option<Told> {
        let is_read = matches!(self.notices.presence(), Presence::Present(_));
        is_read.then(|| {
            self.notices.close();
            Told::Input(Input::HardwareForgotten)
        })
    }

    fn sign(&mut self, sign: Sign) -> Vec<Told> {
        match sign {
            Sign::Kernel(Ok(signs)) => {
                let mut told = Vec::new();
                for sign in signs {
                    match sign {
                        KernelSign::Xid(evidence) => told.push(Told::Input(Input::Evidence(evidence))),
                        KernelSign::OutOfMemory(Some(pid)) => self.kills.note(pid),
                        KernelSign::OutOfMemory(None) => {}
                    }
                }
                let lost = self.kmsg.as_ref().map_or(0, Kmsg::lost);
                let count = lost.saturating_sub(std::mem::replace(&mut self.kmsg_lost, lost));
                told.extend((count > 0).then(|| Told::lost("xid", None, count)));
                told
            }
            Sign::Kernel(Err(error)) => {
                self.kmsg = None;
                self.kills.log_is_read(false);
                self.is_missing("xid", None, error.to_string())
            }
            Sign::Notices(events) => events.into_iter().flat_map(|event| self.notice(event)).collect(),
        }
    }

    fn notice(&mut self, event: NoticeEvent) -> Vec<Told> {
        let told = match event {
            NoticeEvent::Fault(_) | NoticeEvent::ZombieFault(_) => Some(match event.evidence() {
                Some(evidence) => Told::Input(Input::Evidence(evidence)),
                None => Told::Line(
                    "The patched module tells of a fault that is nobody's, or of a process not seen here".to_owned(),
                ),
            }),
            NoticeEvent::SnapshotBegins => Some(Told::Input(Input::HardwareForgotten)),
            NoticeEvent::SnapshotEnds => Some(Told::Input(Input::HardwareKnown)),
            NoticeEvent::VaSpaceAdded(client) => client.process.map(|process| {
                let (va_space, condemned) = (client.va_space, client.is_condemned);
                Told::Input(Input::AddressSpaceAdded { va_space, process, condemned })
            }),
            NoticeEvent::ChannelAdded(client, channel, facts) => client.process.map(|process| {
                let (channel, facts) = (Channel::Hardware(channel), ChannelFacts::Hardware(facts));
                Told::Input(Input::ChannelAdded { process, channel, facts })
            }),
            NoticeEvent::ChannelRemoved(_, channel) => {
                Some(Told::Input(Input::ChannelRemoved { channel: Channel::Hardware(channel) }))
            }
            NoticeEvent::VaSpaceRemoved(client) => {
                Some(Told::Input(Input::AddressSpaceGone { va_space: client.va_space, process: client.process }))
            }
            NoticeEvent::Lost(count) => Some(Told::lost("notice", None, count)),
            NoticeEvent::Suppressed(client, count) => Some(Told::lost("notice", client.process, u64::from(count))),
            NoticeEvent::Gone(text) => {
                let mut told = vec![Told::Input(Input::HardwareForgotten)];
                told.extend(self.is_missing("notice", None, text));
                return told;
            }
            NoticeEvent::Killed(client) => client.process.map(|process| {
                Told::Line(format!("The kernel has killed client {}, whose fault was isolated", process.pid))
            }),
            NoticeEvent::Held(_) | NoticeEvent::HoldEnds(_) | NoticeEvent::Refused(..) | NoticeEvent::Unknown(_) => {
                tracing::debug!(?event, "notice");
                None
            }
        };
        told.into_iter().collect()
    }
}

impl Driver {
    /// Says which witnesses are missing, and looks for the patched module.
    pub(super) fn begin_witnessing(&mut self) {
        let told = self.witnesses.begin();
        self.told(told);
    }

    pub(super) fn sign(&mut self, sign: Sign) {
        let told = self.witnesses.sign(sign);
        self.told(told);
    }
}
