//! The machine's GPUs as CUDA lists them, without CUDA in the daemon.
//!
//! The daemon must hold no driver library: it runs in foreign containers, stays small, and a CUDA process under MPS
//! would be its own client. So a child process of the same binary ([`probe`]) loads `libcuda.so.1`, prints what it
//! sees as lines of JSON, and ends. Another one ([`usage`]) asks the management library how much memory processes have.

pub mod probe;
pub mod usage;

use parking_lot::Mutex;
use remps_proto::admin::reply::{DeviceRow, PciAddress};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};

/// The hidden first argument that turns this binary into the probe.
pub const PROBE_ARGUMENT: &str = "--list-devices";
/// The one that turns it into the probe for memory.
pub const USAGE_ARGUMENT: &str = "--list-memory";
/// A cold driver takes seconds to initialise several GPUs.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// More output than 64 devices print.
const MAX_OUTPUT: u64 = 64 * 1024;
/// From compute capability 9.0 (Hopper) on a chunk of a static partition has this many SMs, before that half of it.
const HOPPER_CHUNK: u32 = 8;
const HOPPER: u32 = 9;

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its row in `device_query`.
    pub row: DeviceRow,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Major compute capability.
    pub major: u32,
}

impl Device {
    /// How many multiprocessors a chunk of a static partition has.
    #[must_use]
    pub fn chunk(&self) -> u32 {
        if self.major >= HOPPER { HOPPER_CHUNK } else { HOPPER_CHUNK / 2 }
    }
}

/// What the probe prints of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedDevice {
    /// CUDA ordinal.
    pub ordinal: u32,
    /// PCI domain.
    pub domain: u32,
    /// PCI bus.
    pub bus: u8,
    /// PCI device.
    pub device: u8,
    /// UUID with its `GPU-`.
    pub uuid: String,
    /// Name.
    pub name: String,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Major compute capability.
    pub major: u32,
}

impl From<ProbedDevice> for Device {
    fn from(probed: ProbedDevice) -> Self {
        let pci = PciAddress { domain: probed.domain, bus: probed.bus, device: probed.device, function: 0 };
        Self {
            row: DeviceRow { ordinal: probed.ordinal, pci, uuid: probed.uuid, name: probed.name, attributes: None },
            multiprocessors: probed.multiprocessors,
            major: probed.major,
        }
    }
}

/// What the probe for memory prints of a process on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedUsage {
    /// Its pid.
    pub pid: u32,
    /// GPU memory, in bytes.
    pub bytes: u64,
}

/// Why the devices can't be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The child process can't be started or read.
    #[error("the probe can't be run: {0}")]
    Run(#[from] io::Error),
    /// It did not end in time.
    #[error("the probe did not end in {} s", PROBE_TIMEOUT.as_secs())]
    TimedOut,
    /// It says why.
    #[error("{0}")]
    Probe(String),
}

/// Probes under way, which only this module reaps.
static PROBES: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The pids of probes under way.
#[must_use]
pub fn probe_pids() -> Vec<u32> {
    PROBES.lock().iter().copied().collect()
}

/// Keeps a probe's pid in [`PROBES`] for as long as it lives.
struct Registered(u32);

impl Drop for Registered {
    fn drop(&mut self) {
        PROBES.lock().remove(&self.0);
    }
}

/// Lists the devices with a child process.
///
/// # Errors
/// [`ListError`] says what is missing: the driver library, a GPU, or an answer in time.
pub async fn list() -> Result<Vec<Device>, ListError> {
    let devices: Vec<ProbedDevice> = probed(PROBE_ARGUMENT).await?;
    Ok(devices.into_iter().map(Device::from).collect())
}

/// The GPU memory that a process has on all GPUs, in bytes, by the driver's own account.
///
/// # Errors
/// [`ListError`] when there is no account: no management library, no GPU, or no answer in time.
pub async fn memory_of(pid: u32) -> Result<u64, ListError> {
    let usage: Vec<ProbedUsage> = probed(USAGE_ARGUMENT).await?;
    Ok(usage.iter().filter(|row| row.pid == pid).map(|row| row.bytes).sum())
}

/// What a probe prints.
async fn probed<Row: serde::de::DeserializeOwned>(argument: &str) -> Result<Vec<Row>, ListError> {
    let mut child = tokio::process::Command::new("/proc/self/exe")
        .arg(argument)
        // Without this the probe would be a client of this daemon and wait for a server.
        .env("CUDA_MPS_PIPE_DIRECTORY", "/proc/self/no-mps")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().expect("it has not been waited for");
    PROBES.lock().insert(pid);
    let _registered = Registered(pid);
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let (mut out, mut err) = (String::new(), String::new());
    let whole = async {
        BufReader::new(stdout).take(MAX_OUTPUT).read_to_string(&mut out).await?;
        BufReader::new(stderr).take(MAX_OUTPUT).read_to_string(&mut err).await?;
        child.wait().await
    };
    let status = tokio::time::timeout(PROBE_TIMEOUT, whole).await.map_err(|_| ListError::TimedOut)??;
    if !status.success() {
        return Err(ListError::Probe(err.lines().next().unwrap_or("the probe gave no reason").to_owned()));
    }
    out.lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| ListError::Probe(format!("the probe's answer can't be read: {error}")))
}
