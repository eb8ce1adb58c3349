//! Keeps the witnesses: hears the kernel's log, the patched module and the servers' log records, and says what is
//! missing. What is missing here costs exactly what that witness knows, and is said once. Clients are followed in
//! [`following`](super::following).

pub(super) mod fault_records;

use super::Driver;
use super::following::{Following, UVM};
use crate::core::{Channel, ChannelFacts, Input, JournalEvent, ProcessKey};
use crate::io::proc_dir::is_in_first_pid_namespace;
use crate::report::WitnessFacts;
use crate::settings::Settings;
use crate::witness::cgroup::Mounts;
use crate::witness::end::MemoryKills;
use crate::witness::identity::Identities;
use crate::witness::kmsg::{KernelSign, Kmsg};
use crate::witness::notice::{DeviceFile, NoticeEvent, Notices, Presence};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

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
    pub(super) kills: MemoryKills,
    pub(super) mounts: Arc<Mounts>,
    /// Why a witness can't be heard at all.
    missing: BTreeMap<&'static str, String>,
    /// Whether it is being looked which GPUs there are.
    pub(super) looks_for_gpus: bool,
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
        let (following, error) = Following::open(file.uvm);
        remarks.extend(error.map(|error| (UVM, error.to_string())));
        let kmsg = match (!file.kmsg.is_empty()).then(|| Kmsg::open(Path::new(&file.kmsg))) {
            Some(Ok(kmsg)) => Some(kmsg),
            Some(Err(error)) => {
                remarks.push(("xid", error.to_string()));
                None
            }
            None => None,
        };
        let kills = MemoryKills::default();
        kills.log_is_read(kmsg.is_some() && is_in_first_pid_namespace());
        let notices = Notices::new(DeviceFile::new(&file.notices));
        let has_notices = !file.notices.is_empty();
        Self {
            following,
            kmsg,
            kmsg_lost: 0,
            notices,
            has_notices,
            remarks,
            identities: Identities::default(),
            kills,
            mounts: Arc::new(Mounts::read()),
            missing: BTreeMap::new(),
            looks_for_gpus: false,
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
}

impl Driver {
    /// Says which witnesses are missing, and looks for the patched module.
    pub(super) fn begin_witnessing(&mut self) {
        for (witness, text) in std::mem::take(&mut self.witnesses.remarks) {
            self.witness_missing(witness, None, text);
        }
        self.look_for_notices();
    }

    /// Says why a witness can't be heard, for one process or at all; the latter once for each reason.
    pub(super) fn witness_missing(&mut self, witness: &'static str, process: Option<ProcessKey>, text: String) {
        if process.is_none() && self.witnesses.missing.insert(witness, text.clone()).as_ref() == Some(&text) {
            return;
        }
        self.say(&match process {
            Some(process) => format!("Client {} is not watched by {witness}: {text}", process.pid),
            None => format!("Faults are not watched by {witness}: {text}"),
        });
        self.record(&JournalEvent::WitnessMissing { witness, process, text });
    }

    /// A witness that was missing can be heard.
    pub(super) fn witness_found(&mut self, witness: &'static str) {
        if self.witnesses.missing.remove(witness).is_some() {
            self.say(&format!("Faults are watched by {witness} from now on"));
        }
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
