//! The machine's GPUs as CUDA lists them, without CUDA in the daemon.
//!
//! The daemon must hold no driver library: it runs in foreign containers, stays small, and a CUDA process under MPS
//! would be its own client. So a child process of the same binary ([`probe`]) loads `libcuda.so.1`, prints what it
//! sees as lines of JSON, and ends. Others ask the management library (`nvml`): how much memory processes have ([`usage`]),
//! which compute modes GPUs have and who is on them ([`gpus`]).

pub(crate) mod gpus;
mod nvml;
pub(crate) mod probe;
pub(crate) mod usage;

use crate::core::Device;
use crate::io::foreign_files::without_foreign_files;
use crate::sys::proc::{NOWHERE, OWN_PROGRAM, explained};
use gpus::{Change, LOOK_ARGUMENT, ProbedChange, ProbedGpu, change_arguments};
use parking_lot::Mutex;
use remps_proto::admin::reply::{DeviceRow, PciAddress};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};

/// The hidden first argument that turns this binary into the probe.
pub const PROBE_ARGUMENT: &str = "--list-devices";
/// The one that turns it into the probe for memory.
pub(crate) const USAGE_ARGUMENT: &str = "--list-memory";
/// A cold driver takes seconds to initialise several GPUs.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// More output than 64 devices print, or 32 with a crowd of processes outside MPS on each.
const MAX_OUTPUT: u64 = 512 * 1024;
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
    /// Its name.
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
pub(crate) struct ProbedUsage {
    pub pid: u32,
    /// GPU memory, in bytes.
    pub bytes: u64,
}

/// Why the devices can't be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The child process can't be started or read.
    #[error("the probe can't be run: {0}")]
    Run(#[from] io::Error),
    /// It did not end in time.
    #[error("the probe did not end in {} s", .0.as_secs())]
    TimedOut(Duration),
    /// It says why.
    #[error("{0}")]
    Probe(String),
}

/// Probes under way, which only this module reaps.
static PROBES: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The pids of probes under way.
pub(crate) fn probe_pids() -> Vec<u32> {
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
pub(crate) async fn list() -> Result<Vec<Device>, ListError> {
    let devices: Vec<ProbedDevice> = probed([PROBE_ARGUMENT]).await?;
    Ok(devices.into_iter().map(Device::from).collect())
}

/// The GPU memory that a process has on all GPUs, in bytes, by the driver's own account.
///
/// # Errors
/// [`ListError`] when there is no account: no management library, no GPU, or no answer in time.
pub(crate) async fn memory_of(pid: u32) -> Result<u64, ListError> {
    let usage: Vec<ProbedUsage> = probed([USAGE_ARGUMENT]).await?;
    Ok(usage.iter().filter(|row| row.pid == pid).map(|row| row.bytes).sum())
}

/// The GPU memory of every process that has any, in bytes by pid, by the driver's own account. Takes `limit` at the most.
///
/// # Errors
/// [`ListError`] when there is no account.
pub(crate) async fn memory_of_all(limit: Duration) -> Result<BTreeMap<u32, u64>, ListError> {
    let probed = tokio::time::timeout(limit, probed::<ProbedUsage>([USAGE_ARGUMENT]));
    let usage = probed.await.map_err(|_| ListError::TimedOut(limit))??;
    let mut memory = BTreeMap::new();
    for row in usage {
        *memory.entry(row.pid).or_default() += row.bytes;
    }
    Ok(memory)
}

/// The compute modes of the GPUs that this process's servers see, and who is on them outside MPS.
///
/// # Errors
/// [`ListError`] when nothing can be told: no management library, no GPU, or no answer in time.
pub(crate) async fn look() -> Result<Vec<ProbedGpu>, ListError> {
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
    let words = match visible.as_deref().map(named) {
        None => Vec::new(),
        Some(Some(words)) => words,
        // CUDA's numbers are not those of the management library.
        Some(None) => list().await?.into_iter().map(|device| device.row.uuid).collect(),
    };
    if visible.is_some() && words.is_empty() {
        return Err(ListError::Probe("CUDA_VISIBLE_DEVICES leaves no GPU".to_owned()));
    }
    probed([LOOK_ARGUMENT.to_owned()].into_iter().chain(words)).await
}

/// The words of `CUDA_VISIBLE_DEVICES` where all of them are UUIDs; `None` where CUDA has to be asked what they mean.
fn named(visible: &OsStr) -> Option<Vec<String>> {
    let words = visible.to_str()?.split(',').map(|word| word.trim().to_owned());
    let is_uuid = |word: &String| word.starts_with("GPU-") || word.starts_with("MIG-");
    words.map(|word| Some(word).filter(is_uuid)).collect()
}

/// Changes compute modes where they still are what they are to be changed from, and removes the records of those that
/// are given back.
///
/// # Errors
/// [`ListError`] when it is not known what came of it.
pub(crate) async fn change_modes(
    library: &Path,
    records: &[PathBuf],
    changes: &[Change],
) -> Result<Vec<ProbedChange>, ListError> {
    probed(change_arguments(library, records, changes)).await
}

/// Prints a child's rows as lines of JSON on standard output, or on standard error the reason why there are none; returns
/// its exit status.
fn print_rows<Row: Serialize>(rows: Result<Vec<Row>, nvml::NvmlError>) -> u8 {
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => {
            // A closed standard error leaves nobody to tell.
            let _ = writeln!(io::stderr(), "{error}");
            return 1;
        }
    };
    let mut output = io::stdout().lock();
    let write = |row: Row| writeln!(output, "{}", serde_json::to_string(&row).expect("plain data"));
    u8::from(rows.into_iter().try_for_each(write).is_err())
}

/// What a probe prints.
async fn probed<Row: serde::de::DeserializeOwned>(
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Vec<Row>, ListError> {
    let mut command = tokio::process::Command::new(OWN_PROGRAM);
    command
        .args(arguments.into_iter().map(Into::into))
        // Without this the probe would be a client of this daemon and wait for a server.
        .env("CUDA_MPS_PIPE_DIRECTORY", NOWHERE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = without_foreign_files(|| command.spawn()).map_err(explained)?;
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
    let status = tokio::time::timeout(PROBE_TIMEOUT, whole).await.map_err(|_| ListError::TimedOut(PROBE_TIMEOUT))??;
    if !status.success() {
        return Err(ListError::Probe(err.lines().next().unwrap_or("the probe gave no reason").to_owned()));
    }
    out.lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| ListError::Probe(format!("the probe's answer can't be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uuids_name_gpus_without_cuda() {
        let named = |text: &str| named(OsStr::new(text));
        assert_eq!(named("GPU-1, MIG-GPU-2/1/0"), Some(vec!["GPU-1".to_owned(), "MIG-GPU-2/1/0".to_owned()]));
        assert_eq!((named("GPU-1,0"), named("0"), named("")), (None, None, None));
    }
}
