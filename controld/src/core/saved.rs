//! What a successor must know to go on where a killed daemon stopped.
//!
//! The holder process keeps it beside the descriptors, in pieces where it is large. Requests that were under way are not in it: their
//! answers are recognised and dropped when the successor takes a server's connection over.

mod brief;

use super::evidence::ProcessKey;
use prost::Message;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::{DeviceKey, MemLimit, Percentage, Priority};

/// A memory limit by default.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SavedLimit {
    /// The device, as typed.
    #[prost(string, tag = "1")]
    pub device: String,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// A server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedServer {
    /// Its epoch.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// Its pid.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// The domain it serves.
    #[prost(uint32, tag = "3")]
    pub domain: u32,
    /// The user it runs as.
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    /// Whether it has said hello.
    #[prost(bool, tag = "5")]
    pub ready: bool,
    /// Whether `shutdown_server` asked for its end.
    #[prost(bool, tag = "6")]
    pub draining: bool,
    /// Whether it has decided to end, or has a signal.
    #[prost(bool, tag = "7")]
    pub ending: bool,
    /// The group for a server of a user that the user database does not know.
    #[prost(uint32, tag = "8")]
    pub gid: u32,
    /// What its domain's clients have in common besides the user; absent is nothing.
    #[prost(message, optional, tag = "9")]
    pub group: Option<SavedGroup>,
    /// Whether it only stands by.
    #[prost(bool, tag = "10")]
    pub standby: bool,
    /// Whether a fault has spoilt it.
    #[prost(bool, tag = "11")]
    pub tainted: bool,
    /// The incident, when its clients are lost; 0 when it only gets no newcomers.
    #[prost(uint64, tag = "12")]
    pub incident: u64,
    /// The GPUs that the fault was on; none is all.
    #[prost(string, repeated, tag = "13")]
    pub gpus: Vec<String>,
    /// The clients that it has left alone, each as `PID START`.
    #[prost(string, repeated, tag = "14")]
    pub spared: Vec<String>,
    /// Whether nobody has given a verdict on the incident.
    #[prost(bool, tag = "15")]
    pub unjudged: bool,
    /// The share of threads that its clients were last given, in percent.
    #[prost(double, optional, tag = "16")]
    pub threads: Option<f64>,
    /// Whether somebody has set limits of its own.
    #[prost(bool, tag = "17")]
    pub limited: bool,
    /// Whether all clients that it may have can be told apart; not known of a daemon that did not say so.
    #[prost(bool, tag = "18")]
    pub tells_apart: bool,
}

/// What the clients of a domain have in common.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SavedGroup {
    /// 1: a cgroup, 2: a label, 3: one process. Offenders in quarantine are remembered by the daemon alone, and their
    /// domain lives on as a label's that nobody can have, under its number.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// The cgroup, the label, or the process as `PID START`.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Which of several.
    #[prost(uint32, tag = "3")]
    pub part: u32,
    /// The GPU or MIG instance that is theirs alone, as `CUDA_VISIBLE_DEVICES` names it; empty is none.
    #[prost(string, tag = "4")]
    pub gpu: String,
    /// The number of the quarantine; 0 is none, or one of a daemon that gave no numbers.
    #[prost(uint64, tag = "5")]
    pub quarantine: u64,
    /// The number of the namespace's entrance; 0 is none.
    #[prost(uint64, tag = "6")]
    pub entrance: u64,
    /// The named server.
    #[prost(string, tag = "7")]
    pub server: String,
    /// Its namespace.
    #[prost(string, tag = "8")]
    pub namespace: String,
}

/// What was said of a namespace's clients; what is absent was not.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedLimits {
    /// Device memory in bytes.
    #[prost(uint64, optional, tag = "1")]
    pub memory: Option<u64>,
    /// Share of threads, in percent.
    #[prost(double, optional, tag = "2")]
    pub percentage: Option<f64>,
    /// Priority.
    #[prost(uint32, optional, tag = "3")]
    pub priority: Option<u32>,
}

/// A namespace of a named server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedNamespace {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The number of its entrance.
    #[prost(uint64, tag = "2")]
    pub id: u64,
    /// What its clients may have.
    #[prost(message, optional, tag = "3")]
    pub limits: Option<SavedLimits>,
}

/// A named server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedNamed {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The user that it serves; absent is whoever comes.
    #[prost(uint32, optional, tag = "2")]
    pub uid: Option<u32>,
    /// The devices that it may use, each as `ORDINAL UUID`; none is all.
    #[prost(string, repeated, tag = "3")]
    pub devices: Vec<String>,
    /// How many its processes see; 0 is not known.
    #[prost(uint32, tag = "4")]
    pub visible: u32,
    /// Its namespaces.
    #[prost(message, repeated, tag = "5")]
    pub namespaces: Vec<SavedNamespace>,
    /// What its servers start with, if a thin daemon has joined as it.
    #[prost(message, optional, tag = "16")]
    pub joined: Option<SavedDefaults>,
}

/// What servers of one name start with.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedDefaults {
    /// Share of threads, in percent.
    #[prost(double, tag = "1")]
    pub thread_percentage: f64,
    /// Client priority.
    #[prost(uint32, tag = "2")]
    pub priority: u32,
    /// Memory limits, oldest first.
    #[prost(message, repeated, tag = "3")]
    pub limits: Vec<SavedLimit>,
}

/// A spare copy of the driver in a process.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SavedSpare {
    /// Its process, as `PID START`.
    #[prost(string, tag = "1")]
    pub process: String,
    /// The grant's token; 0 when that is over and the copy may still be on the server.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    /// The epoch of the server that it stands on.
    #[prost(uint64, tag = "3")]
    pub server: u64,
    /// The user of the process.
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    /// Whether the program could go on with it.
    #[prost(bool, tag = "5")]
    pub ready: bool,
    /// How many things it lacked.
    #[prost(uint64, tag = "6")]
    pub behind: u64,
    /// Its connections that the server has accepted.
    #[prost(uint32, tag = "7")]
    pub connections: u32,
    /// Whether the process works with it now, and nothing is left of the grant but the token.
    #[prost(bool, tag = "8")]
    pub lived: bool,
    /// Threads that it had in the process.
    #[prost(uint32, tag = "9")]
    pub threads: u32,
    /// Bytes of the host's memory that it took.
    #[prost(uint64, tag = "10")]
    pub host_bytes: u64,
}

/// The daemon. Field 1000 is not to be one of it: there lies what the driver has to say of its pieces.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Saved {
    /// Default share of threads, in percent.
    #[prost(double, tag = "1")]
    pub thread_percentage: f64,
    /// Default client priority.
    #[prost(uint32, tag = "2")]
    pub priority: u32,
    /// Default memory limits, oldest first.
    #[prost(message, repeated, tag = "3")]
    pub limits: Vec<SavedLimit>,
    /// The next server's epoch.
    #[prost(uint64, tag = "4")]
    pub next_epoch: u64,
    /// The servers.
    #[prost(message, repeated, tag = "5")]
    pub servers: Vec<SavedServer>,
    /// The next incident's number.
    #[prost(uint64, tag = "6")]
    pub next_incident: u64,
    /// The next verdict's.
    #[prost(uint64, tag = "7")]
    pub next_verdict: u64,
    /// GPU memory in use that no process had when nobody's copies were held, in bytes; absent is not known.
    #[prost(uint64, optional, tag = "8")]
    pub nobodys_memory: Option<u64>,
    /// What dead clients hold, each as `PID START BYTES`.
    #[prost(string, repeated, tag = "9")]
    pub held: Vec<String>,
    /// The next quarantine's number.
    #[prost(uint64, tag = "10")]
    pub next_quarantine: u64,
    /// Spare copies of the driver.
    #[prost(message, repeated, tag = "11")]
    pub spares: Vec<SavedSpare>,
    /// Named servers.
    #[prost(message, repeated, tag = "12")]
    pub named: Vec<SavedNamed>,
    /// The number of the last entrance.
    #[prost(uint64, tag = "13")]
    pub last_entrance: u64,
    /// Whether servers of a file were made.
    #[prost(bool, tag = "14")]
    pub is_file_applied: bool,
    /// Which of the defaults commands have set ([`Said`](super::Said)); absent in what earlier releases have saved.
    #[prost(uint32, optional, tag = "15")]
    pub defaults_said: Option<u32>,
}

impl Saved {
    /// The defaults in it.
    pub(crate) fn defaults(&self) -> Defaults {
        let Self { thread_percentage, priority, limits, .. } = self;
        SavedDefaults { thread_percentage: *thread_percentage, priority: *priority, limits: limits.clone() }.read()
    }
}

impl SavedDefaults {
    pub(super) fn of(defaults: &Defaults) -> Self {
        let saved = |(device, limit): &(DeviceKey, MemLimit)| SavedLimit { device: device.to_string(), bytes: limit.0 };
        Self {
            thread_percentage: defaults.percentage().get(),
            priority: defaults.priority().get(),
            limits: defaults.limits().iter().map(saved).collect(),
        }
    }

    /// The defaults in it; what can't be read is left at the vendor's default.
    pub(super) fn read(&self) -> Defaults {
        let mut defaults = Defaults::default();
        if let Ok(percentage) = Percentage::new(self.thread_percentage) {
            defaults.set_percentage(percentage);
        }
        if let Ok(priority) = Priority::parse(self.priority.to_string().as_bytes()) {
            defaults.set_priority(priority);
        }
        for limit in &self.limits {
            if let Ok(device) = DeviceKey::parse(limit.device.as_bytes()) {
                defaults.set_limit(device, MemLimit(limit.bytes));
            }
        }
        defaults
    }
}

/// A process as `PID START`.
pub(super) fn written(process: ProcessKey) -> String {
    format!("{} {}", process.pid, process.start_time)
}

pub(super) fn read(text: &str) -> ProcessKey {
    let mut numbers = text.split(' ');
    let pid = numbers.next().and_then(|pid| pid.parse().ok()).unwrap_or_default();
    let start_time = numbers.next().and_then(|time| time.parse().ok()).unwrap_or_default();
    ProcessKey { pid, start_time }
}
