//! Asks the daemon, and reads its answers.

use crate::patience::patient;
use crate::ui;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long one answer may take. A look at the memory is part of it.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Verdicts that are asked for: the latest one is shown, and the latest of each domain.
const VERDICTS: usize = 64;
/// Bytes of `/etc/passwd` that are read.
const MOST_OF_PASSWD: u64 = 4 << 20;

/// What the daemon has said, at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Seen {
    /// When, in RFC 3339 and UTC.
    pub time: String,
    pub daemon: Daemon,
    /// Whether it admits clients, and what keeps it from that.
    pub ready: bool,
    pub obstacles: Vec<String>,
    pub gpus: Vec<GpuIndex>,
    pub domains: Vec<Domain>,
    pub servers: Vec<Server>,
    /// Those that are not gone.
    pub clients: Vec<Client>,
    /// The latest verdicts, the newest first.
    pub verdicts: Vec<Verdict>,
    /// The names of the users of all of these.
    pub users: BTreeMap<u32, String>,
}

/// The daemon itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Daemon {
    pub pid: u32,
    pub version: String,
    pub personality: String,
    pub uptime_s: f64,
    /// Why no client's memory is known.
    pub memory_unknown: Option<String>,
}

/// The number of a GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GpuIndex {
    pub index: usize,
    pub uuid: String,
}

/// A fault domain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Domain {
    pub name: String,
    pub uid: u32,
    pub phase: String,
    pub server: Option<u32>,
    pub standby: Option<u32>,
    pub clients: usize,
    pub max_clients: Option<usize>,
    pub waiting: usize,
    pub quarantined: bool,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Server {
    pub pid: Option<u32>,
    pub uid: u32,
    pub domain: String,
    pub phase: String,
    pub clients: usize,
    pub ready_s: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub threads: Option<f64>,
    pub gpus: Vec<String>,
}

/// Which process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Process {
    pub pid: u32,
}

/// What is known of a process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Identity {
    pub command: String,
}

/// A second copy of the driver that stands by.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Spare {
    pub ready: bool,
    pub behind: u64,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Client {
    pub process: Process,
    /// Its pid on the machine, where it has none for the daemon.
    pub seen_as: Option<u32>,
    pub uid: u32,
    pub domain: String,
    pub phase: String,
    pub server: Option<u32>,
    pub identity: Identity,
    pub gpus: Option<Vec<String>>,
    pub threads: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub spare: Option<Spare>,
    pub verdicts: Vec<u64>,
}

/// Whom a verdict names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Culprit {
    pub pid: u32,
    pub uid: u32,
    pub command: String,
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Verdict {
    pub number: u64,
    pub time: String,
    pub domain: String,
    pub culprit: Option<Culprit>,
    pub confidence: String,
    pub kind: String,
    pub victims: Vec<u32>,
}

/// The answer to `status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    daemon: Option<Daemon>,
    ready: bool,
    obstacles: Vec<String>,
    gpus: Vec<GpuIndex>,
    domains: Vec<Domain>,
    servers: Vec<Server>,
    clients: Vec<Client>,
}

/// Who asks.
#[derive(Debug)]
pub(super) struct Asker {
    pipe_dir: PathBuf,
    users: BTreeMap<u32, String>,
}

impl Asker {
    /// One that asks the daemon of this folder.
    pub(super) fn new(pipe_dir: &Path) -> Self {
        Self { pipe_dir: pipe_dir.to_owned(), users: users() }
    }

    /// What there is now.
    ///
    /// # Errors
    /// Why there is no answer, in words for the screen.
    pub(super) fn ask(&self) -> Result<Seen, String> {
        let ask = |command: &str| {
            let answer = ui::ask(&self.pipe_dir, command, patient(ANSWER_LIMIT));
            answer.map(|answer| answer.text).map_err(|error| error.to_string())
        };
        let status = ask("status --memory -o json")?;
        let verdicts = ask(&format!("get_fault_list -n {VERDICTS} -o json"))?;
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        read(&status, &verdicts, time, &self.users)
    }
}

/// The answers of the daemon, as values.
///
/// # Errors
/// When it is not ReMPS that answers, or an earlier version of it.
pub(super) fn read(status: &str, verdicts: &str, time: String, users: &BTreeMap<u32, String>) -> Result<Seen, String> {
    let strange = || format!("it does not answer as ReMPS does: {}", status.lines().next().unwrap_or_default());
    let Status { daemon, ready, obstacles, gpus, domains, servers, clients } = parse(status).ok_or_else(strange)?;
    let daemon = daemon.ok_or_else(strange)?;
    let clients: Vec<Client> = clients.into_iter().filter(|client| client.phase != "gone").collect();
    let mut verdicts: Vec<Verdict> = verdicts.lines().filter_map(parse).collect();
    verdicts.reverse();
    let culprits = verdicts.iter().filter_map(|verdict| verdict.culprit.as_ref()).map(|culprit| culprit.uid);
    let known = domains.iter().map(|domain| domain.uid).chain(servers.iter().map(|server| server.uid));
    let known = known.chain(clients.iter().map(|client| client.uid)).chain(culprits);
    let users = known.filter_map(|uid| Some((uid, users.get(&uid)?.clone()))).collect();
    Ok(Seen { time, daemon, ready, obstacles, gpus, domains, servers, clients, verdicts, users })
}

fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// The users that the machine's own file names. Others are shown by their number: a directory service may be slow, or
/// down with the network.
fn users() -> BTreeMap<u32, String> {
    let mut bytes = Vec::new();
    // Without the file there are numbers.
    if let Ok(file) = std::fs::File::open("/etc/passwd") {
        let _ = file.take(MOST_OF_PASSWD).read_to_end(&mut bytes);
    }
    let user = |line: &str| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?);
        Some((uid.parse().ok()?, name.to_owned()))
    };
    // The first of several names of one user, as the C library has it.
    String::from_utf8_lossy(&bytes).lines().rev().filter_map(user).collect()
}
