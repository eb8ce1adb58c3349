//! Who caused a fault, and who says so.

use super::evidence::{MemoryFault, ProcessKey};
use crate::core::gpu::Gpu;
use crate::core::identity::{Identity, PodNames};
use crate::core::ids::{EntranceId, Pid, ServerEpoch, Uid, is_hidden};
use core::fmt;
use core::time::Duration;
use serde::Serialize;

/// A GPU that is suspected of being ill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Suspicion {
    /// The GPU, as `GPU-…`.
    pub gpu: String,
    /// The place, in words.
    pub place: String,
    /// Faults there in 24 h, as far as they are remembered.
    pub faults: usize,
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} may be ill: {} faults at {} in 24 h, and no one program's", self.gpu, self.faults, self.place)
    }
}

/// A process that a verdict speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Suspect {
    /// Which process.
    #[serde(flatten)]
    pub process: ProcessKey,
    pub uid: Uid,
    /// What is known of it.
    #[serde(flatten)]
    pub identity: SuspectIdentity,
}

impl Suspect {
    /// The pid by which the machine knows it; `None` where only the daemon's number for it is known.
    pub(crate) fn machines_pid(&self) -> Option<Pid> {
        self.identity.seen_as.or_else(|| Some(self.process.pid).filter(|pid| !is_hidden(*pid)))
    }
}

/// The parts of an [`Identity`](crate::core::Identity) that a verdict repeats.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct SuspectIdentity {
    pub cgroup: String,
    pub container: Option<String>,
    /// Its pod's UID.
    pub pod: Option<String>,
    /// What its cluster calls it.
    #[serde(flatten)]
    pub names: Option<Box<PodNames>>,
    /// Its command line.
    pub command: String,
    /// Its pid on the machine, where it has none here and `witness.proc` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_as: Option<Pid>,
}

impl SuspectIdentity {
    /// What is repeated of an identity.
    pub(in crate::core) fn of(identity: &Identity) -> Self {
        let Identity { cgroup, container, pod, names, command, .. } = identity.clone();
        let seen_as = identity.elsewhere.as_ref().and_then(|known| known.seen_as);
        Self { cgroup, container, pod, names, command, seen_as }
    }

    /// What is known when more was read, which is nothing where the process had ended by then.
    pub(in crate::core) fn completed(&self, more: &Identity) -> Self {
        let Self { cgroup, container, pod, names, command, .. } = self.clone();
        let known = Identity { cgroup, container, pod, names, command, ..Identity::default() };
        let mut whole = Self::of(&more.completing(&known));
        whole.seen_as = whole.seen_as.or(self.seen_as);
        whole
    }
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Confidence {
    /// Nobody who can know has named anybody.
    Unknown,
    /// Signs that nobody else can give point to one process, and none of them is proof.
    Likely,
    /// A witness that cannot be wrong about who has named it.
    Certain,
}

/// One witness's part in a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Testimony {
    /// Who says so, such as `uvm-event`.
    pub witness: &'static str,
    /// Whom it names, right or wrong.
    pub names: Option<Pid>,
    /// When it reached the daemon, after the incident's first sign.
    #[serde(serialize_with = "as_milliseconds", rename = "after_ms")]
    pub after: Duration,
    pub text: String,
}

/// What the daemon holds for true about one fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Counts the daemon's verdicts, from 1.
    pub number: u64,
    /// The incident that it belongs to: the faults of one server that come together.
    pub incident: u64,
    pub server: Pid,
    /// The start of it.
    #[serde(skip)]
    pub epoch: ServerEpoch,
    /// The fault domain, as the operator reads it.
    pub domain: String,
    /// The entrance that the server's clients have come to, where it is a named one's: a name may be another's later.
    #[serde(skip)]
    pub within: Option<EntranceId>,
    /// Who did it; `None` is the honest answer when nobody can know.
    pub culprit: Option<Suspect>,
    /// How sure that is.
    pub confidence: Confidence,
    /// What happened, such as `memory fault`.
    pub kind: &'static str,
    /// The access, for a memory fault.
    pub fault: Option<MemoryFault>,
    /// Whether the patched module kept it from everybody else.
    pub isolated: bool,
    /// The hardware channel, where a witness names it exactly.
    pub channel: Option<u32>,
    /// The Xid that came with it.
    pub xid: Option<u32>,
    /// The other clients of the server, who are lost with it unless it was isolated.
    pub victims: Vec<Pid>,
    /// The GPUs that it was on, as `GPU-…` or `GPU-…/MIG-…`; none where nobody knows.
    pub gpus: Vec<Gpu>,
    /// The clients of the server that have nothing on those GPUs, and go on.
    pub spared: Vec<Pid>,
    /// Who says so.
    pub witnesses: Vec<Testimony>,
    /// Statements beyond those, of witnesses who have said too much.
    pub more_witnesses: u64,
    /// Clients of the server whom its log names by the phrase `Worker is in reset`, other than the culprit. Right when the
    /// server has written it; but everybody can write it, so it is a hint and no proof.
    pub named_by_log: Vec<Pid>,
    /// Whether it is rather the GPU, by this and earlier faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspicion: Option<Suspicion>,
    /// From the first sign to this verdict.
    #[serde(serialize_with = "as_milliseconds", rename = "delay_ms")]
    pub delay: Duration,
    /// The verdict that this one corrects, after late evidence.
    pub corrects: Option<u64>,
}

fn as_milliseconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

/// The line of `control.log`.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault {} of server {} ({}): ", self.number, self.server, self.domain)?;
        match &self.culprit {
            Some(culprit) => {
                let Suspect { process, uid, identity } = culprit;
                write!(f, "client {} (user {uid}", process.pid)?;
                if let Some(pid) = identity.seen_as {
                    write!(f, ", process {pid} of the machine")?;
                }
                for (word, value) in [("pod", &identity.pod), ("container", &identity.container)] {
                    if let Some(value) = value {
                        write!(f, ", {word} {value}")?;
                    }
                }
                if !identity.command.is_empty() {
                    write!(f, ", {}", identity.command)?;
                }
                write!(f, "), {}", self.kind)?;
            }
            None => write!(f, "nobody can be named, {}", self.kind)?,
        }
        if let Some(fault) = &self.fault {
            write!(f, ", {} of {:#x}, {}", fault.access, fault.address, fault.kind)?;
            if let Some(gpu) = &fault.gpu {
                write!(f, ", {gpu}")?;
            }
        } else if !self.gpus.is_empty() {
            let gpus: Vec<String> = self.gpus.iter().map(ToString::to_string).collect();
            write!(f, ", {}", gpus.join(" "))?;
        }
        let confidence = match self.confidence {
            Confidence::Unknown => "unknown",
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
        };
        let mut witnesses: Vec<&str> = self.witnesses.iter().map(|testimony| testimony.witness).collect();
        witnesses.dedup();
        write!(f, "; {confidence}, by {}", witnesses.join(" "))?;
        if self.culprit.is_none() && !self.named_by_log.is_empty() {
            let named: Vec<String> = self.named_by_log.iter().map(u32::to_string).collect();
            write!(f, "; the log, which anybody can write, names {}", named.join(" "))?;
        }
        if self.isolated {
            f.write_str("; isolated, nobody else is harmed")?;
        } else {
            let victims: Vec<String> = self.victims.iter().map(u32::to_string).collect();
            write!(
                f,
                "; others lost with it: {}",
                if victims.is_empty() { "none".to_owned() } else { victims.join(" ") }
            )?;
            if !self.spared.is_empty() {
                let spared: Vec<String> = self.spared.iter().map(u32::to_string).collect();
                write!(f, "; on other GPUs, and unharmed: {}", spared.join(" "))?;
            }
        }
        if let Some(suspicion) = &self.suspicion {
            write!(f, "; {suspicion}")?;
        }
        if let Some(number) = self.corrects {
            write!(f, "; corrects fault {number}")?;
        }
        Ok(())
    }
}
