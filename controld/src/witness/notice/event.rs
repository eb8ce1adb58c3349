//! What the module says, in the daemon's words.

use std::time::Duration;

use remps_proto::notice::{AccessType, CLASS_GLOBAL, Notice, NoticeType, UNKNOWN, Verdict, class_text, flag, untried};

use crate::core::{Access, Evidence, HardwareChannel, HardwareFacts, Isolation, MemoryFault, ProcessKey};

/// A client as the module knows it: one address space, which is one process under MPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoticeClient {
    /// The module's number of the address space, never used again while the module is loaded; 0 if unknown.
    pub va_space: u64,
    /// The process; `None` when it can't be seen from this PID namespace.
    pub process: Option<ProcessKey>,
    /// Whether it has had an isolated fault: it can do no harm and must be ended.
    pub is_condemned: bool,
    /// Whether it is dead and its page tables are kept.
    pub is_held: bool,
    /// Whether the kernel has sent it SIGKILL.
    pub is_kill_sent: bool,
}

/// A fatal fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultNotice {
    /// Whose address space.
    pub client: NoticeClient,
    /// The access.
    pub fault: MemoryFault,
    /// The hardware channel, where the fault names it exactly: not for an SM's.
    pub channel: Option<u32>,
    /// The subcontext, for an SM's fault.
    pub subcontext: Option<u32>,
    /// What became of it.
    pub isolation: Isolation,
    /// Whether it is the client's own: errors that are nobody's fault name innocent clients.
    pub is_own: bool,
    /// Faults that were merged into this one.
    pub merged: u32,
    /// The class, a letter of the table in uvm-fault-isolation(4).
    pub class: char,
    /// When the module met it, since boot.
    pub at: Duration,
}

impl FaultNotice {
    /// Who is to be named: nobody where the process can't be seen, or where the error is nobody's fault.
    fn culprit(&self) -> Option<ProcessKey> {
        self.client.process.filter(|_| self.is_own)
    }
}

/// One thing that the module tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeEvent {
    /// What was known of channels and address spaces is void; the state follows.
    SnapshotBegins,
    /// The state is complete.
    SnapshotEnds,
    /// An address space is there.
    VaSpaceAdded(NoticeClient),
    /// The last trace of a client is gone: its page tables, its channels, its memory.
    VaSpaceRemoved(NoticeClient),
    /// A channel is there.
    ChannelAdded(NoticeClient, HardwareChannel, HardwareFacts),
    /// A channel is gone.
    ChannelRemoved(NoticeClient, HardwareChannel),
    /// A fatal fault.
    Fault(FaultNotice),
    /// A fault of a dead client's work: the driver cancels everybody in its time-slice group.
    ZombieFault(FaultNotice),
    /// So many fault records of a client were left out, because it faults too often.
    Suppressed(NoticeClient, u32),
    /// The kernel has sent SIGKILL to a client.
    Killed(NoticeClient),
    /// A client died suddenly, and its page tables are kept for a while.
    Held(NoticeClient),
    /// They are no longer kept.
    HoldEnds(NoticeClient),
    /// A condemned client asked for a mapping, by this request, and was refused.
    Refused(NoticeClient, u64),
    /// So many records were lost; a snapshot follows.
    Lost(u64),
    /// A record of a later module.
    Unknown(u32),
    /// The device is gone, or of no more use. Nothing more comes until somebody looks for it again.
    Gone(String),
}

impl NoticeEvent {
    /// The evidence that it is, if it is any and names somebody who is not innocent.
    #[must_use]
    pub fn evidence(&self) -> Option<Evidence> {
        if let Self::ZombieFault(notice) = self {
            return Some(Evidence::ZombieFault { process: notice.culprit()?, fault: notice.fault.clone() });
        }
        if let Self::Fault(notice) = self {
            return Some(Evidence::Notice {
                process: notice.culprit()?,
                fault: notice.fault.clone(),
                channel: notice.channel,
                isolation: notice.isolation.clone(),
            });
        }
        None
    }

    /// What a record says, except for those that are about the records themselves.
    pub(super) fn of(notice: &Notice, process: Option<ProcessKey>) -> Self {
        let client = NoticeClient {
            va_space: notice.va_space_id,
            process,
            is_condemned: notice.has(flag::CONDEMNED),
            is_held: notice.has(flag::HELD),
            is_kill_sent: notice.has(flag::KILL_SENT),
        };
        match notice.kind {
            NoticeType::VASPACE_ADD => Self::VaSpaceAdded(client),
            NoticeType::VASPACE_DEL => Self::VaSpaceRemoved(client),
            NoticeType::CHANNEL_ADD => Self::ChannelAdded(client, hardware_channel(notice), hardware_facts(notice)),
            NoticeType::CHANNEL_DEL => Self::ChannelRemoved(client, hardware_channel(notice)),
            NoticeType::FATAL_FAULT => Self::Fault(fault(notice, client)),
            NoticeType::ZOMBIE_FAULT => Self::ZombieFault(fault(notice, client)),
            NoticeType::SUPPRESSED => Self::Suppressed(client, notice.count),
            NoticeType::KILLED => Self::Killed(client),
            NoticeType::HELD => Self::Held(client),
            NoticeType::HOLD_END => Self::HoldEnds(client),
            NoticeType::REFUSED => Self::Refused(client, notice.address),
            other => Self::Unknown(other.0),
        }
    }
}

fn known(number: u32) -> Option<u32> {
    (number != UNKNOWN).then_some(number)
}

fn hardware_channel(notice: &Notice) -> HardwareChannel {
    HardwareChannel {
        gpu: notice.gpu().unwrap_or_default(),
        runlist: known(notice.runlist_id),
        channel: notice.channel_id,
    }
}

fn hardware_facts(notice: &Notice) -> HardwareFacts {
    HardwareFacts {
        va_space: notice.va_space_id,
        tsg: known(notice.tsg_id),
        subcontext: known(notice.ve_id).filter(|_| notice.has(flag::SUBCONTEXT)),
        instance: notice.instance_ptr,
    }
}

fn fault(notice: &Notice, client: NoticeClient) -> FaultNotice {
    let is_sm = notice.has(flag::REPLAYABLE);
    FaultNotice {
        client,
        fault: MemoryFault {
            address: notice.address,
            access: access(notice),
            kind: notice.fault_type.text(),
            gpu: notice.gpu(),
        },
        channel: known(notice.channel_id).filter(|_| !is_sm),
        subcontext: known(notice.ve_id).filter(|_| is_sm),
        isolation: isolation(notice),
        is_own: notice.fault_class != CLASS_GLOBAL,
        merged: notice.count,
        class: char::from(notice.fault_class),
        at: Duration::from_nanos(notice.time_ns),
    }
}

fn access(notice: &Notice) -> Access {
    match notice.access_type {
        AccessType::PREFETCH => Access::Prefetch,
        AccessType::READ => Access::Read,
        AccessType::WRITE => Access::Write,
        AccessType::ATOMIC_WEAK | AccessType::ATOMIC_STRONG => Access::Atomic,
        AccessType(other) => Access::Other(other),
    }
}

fn isolation(notice: &Notice) -> Isolation {
    let class = || class_text(notice.fault_class).map_or_else(String::new, |text| format!(": {text}"));
    let reason = match notice.verdict {
        _ if notice.kind == NoticeType::ZOMBIE_FAULT => "work of a dead client".to_owned(),
        verdict if verdict.is_harmless() => return Isolation::Isolated,
        Verdict::PASSED => "the module only observes".to_owned(),
        Verdict::NOT_SHARED => "nobody shares the time-slice group".to_owned(),
        Verdict::CLASS => format!("a class that cannot be isolated{}", class()),
        Verdict::FAILED => format!("isolation failed with status {:#x}{}", notice.nv_status, class()),
        Verdict::LIMIT => "the client has used up its sinks or retries".to_owned(),
        Verdict::STRANGER => "the module has no entry for the client".to_owned(),
        Verdict::UNTRIED => {
            let untried = untried::ALL.iter().filter(|(bit, _)| notice.nv_status & bit != 0);
            let names: Vec<&str> = untried.map(|(_, name)| *name).collect();
            format!("isolation was never tried with {} (uvm_mps_untested={})", names.join(", "), notice.nv_status)
        }
        Verdict(other) => format!("verdict {other} of a later module"),
    };
    Isolation::Passed { reason }
}
