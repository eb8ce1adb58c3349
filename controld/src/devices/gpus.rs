//! The child processes that look at the GPUs' compute modes and who is on them, and that change modes.
//!
//! Both print a line of JSON a GPU and end. A change is made only where the mode still is the one that it is to be
//! changed from: what somebody else has done meanwhile is left alone, by the daemon as by its holder.

use super::nvml::{Gpu, GpuProcess, Nvml, NvmlError};
use super::print_rows;
use crate::io::mode_records;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The hidden first argument of the child that looks; the GPUs to look at follow, by UUID, or nothing for all.
pub const LOOK_ARGUMENT: &str = "--list-gpus";
/// That of the child that changes modes; the pid of who starts it, the library's file, the folders of records, an empty
/// word and the changes follow.
pub(crate) const CHANGE_ARGUMENT: &str = "--change-compute-mode";
/// What stands between folders and changes.
const END_OF_RECORDS: &str = "";
/// Any number of processes have contexts: what managed GPUs have.
const DEFAULT_MODE: u32 = 0;
/// Processes outside MPS that are told of one GPU; more are not needed to know that something is wrong.
const MOST_OUTSIDE: usize = 128;
/// How often memory is looked at while processes take and give back some.
const MOST_LOOKS_AT_MEMORY: usize = 10;
/// What `CUDA_VISIBLE_DEVICES` calls an instance of a GPU.
const INSTANCE_PREFIX: &str = "MIG-";

/// What the child prints of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbedGpu {
    /// The library's number of it, that of `nvidia-smi`.
    pub index: usize,
    /// `GPU-…`.
    pub uuid: String,
    /// The number of its compute mode, where it has one.
    pub mode: Option<u32>,
    /// Whether all of it was asked for, and not instances of it alone.
    pub whole: bool,
    /// Processes with a context on it, or on the instances that were asked for, that are no clients of MPS; servers
    /// are among them. `None` when the driver does not tell who is a client.
    pub outside: Option<Vec<ProbedProcess>>,
    /// Its memory, where all of it was asked for and the driver tells it.
    pub memory: Option<ProbedMemory>,
    /// The library's file; empty when the loader does not tell.
    pub library: String,
}

/// What it prints of a GPU's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbedMemory {
    /// What the GPU has, in bytes.
    pub total: u64,
    /// What of it is in use.
    pub used: u64,
    /// What the processes on it have, where that is told of each.
    pub of_processes: Option<u64>,
    /// Those processes.
    pub pids: Vec<u32>,
}

/// What it prints of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbedProcess {
    pub pid: u32,
    /// GPU memory in bytes, where it is known.
    pub bytes: Option<u64>,
    /// GPU instance and compute instance, on a GPU that is divided.
    pub instance: Option<(u32, u32)>,
}

/// A change of a GPU's compute mode, in numbers of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// `GPU-…`.
    pub uuid: String,
    /// The mode that it must have.
    pub from: u32,
    /// The mode that it gets.
    pub to: u32,
}

/// What the child prints of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbedChange {
    /// Which GPU.
    pub uuid: String,
    /// The number of its mode now, where it can be told.
    pub mode: Option<u32>,
    /// What was in the way.
    pub error: Option<String>,
}

/// The command line of the child that changes modes. It removes the records of each GPU that gets a mode back, and so
/// gets another one than [`DEFAULT_MODE`], from these folders.
pub(crate) fn change_arguments(library: &Path, records: &[PathBuf], changes: &[Change]) -> Vec<OsString> {
    let own_pid = std::process::id().to_string();
    let mut arguments: Vec<OsString> = vec![CHANGE_ARGUMENT.into(), own_pid.into(), library.into()];
    arguments.extend(records.iter().map(OsString::from));
    arguments.push(END_OF_RECORDS.into());
    for Change { uuid, from, to } in changes {
        arguments.extend([uuid.into(), from.to_string().into(), to.to_string().into()]);
    }
    arguments
}

/// What is to be looked at of one GPU: all of it, or these instances.
type Parts = Option<BTreeSet<(u32, u32)>>;

/// What `CUDA_VISIBLE_DEVICES` leaves of the GPUs. A word that names nothing is left out, as by CUDA.
fn served<'a>(nvml: &'a Nvml, words: &[String]) -> Result<Vec<(usize, String, Gpu<'a>, Parts)>, NvmlError> {
    let mut all = Vec::new();
    for (index, gpu) in nvml.gpus()?.into_iter().enumerate() {
        all.push((index, gpu.uuid()?, gpu));
    }
    if words.is_empty() {
        return Ok(all.into_iter().map(|(index, uuid, gpu)| (index, uuid, gpu, None)).collect());
    }
    let instances: Vec<(String, (u32, u32))> = words.iter().filter_map(|word| instance(nvml, word)).collect();
    let wanted = |(index, uuid, gpu): (usize, String, Gpu<'a>)| {
        if words.iter().any(|word| !word.starts_with(INSTANCE_PREFIX) && uuid.starts_with(word.as_str())) {
            return Some((index, uuid, gpu, None));
        }
        let parts: BTreeSet<_> = instances.iter().filter(|(of, _)| *of == uuid).map(|(_, part)| *part).collect();
        (!parts.is_empty()).then_some((index, uuid, gpu, Some(parts)))
    };
    Ok(all.into_iter().filter_map(wanted).collect())
}

/// The GPU and the part of it that a word names: `MIG-UUID`, or `MIG-GPU-UUID/1/0` as until release 470.
fn instance(nvml: &Nvml, word: &str) -> Option<(String, (u32, u32))> {
    let name = word.strip_prefix(INSTANCE_PREFIX)?;
    if let [gpu, gpu_instance, compute_instance] = name.split('/').collect::<Vec<_>>().as_slice() {
        return Some(((*gpu).to_owned(), (gpu_instance.parse().ok()?, compute_instance.parse().ok()?)));
    }
    nvml.by_uuid(word).and_then(|instance| instance.place()).ok()
}

/// Who has a context on the GPU and is no client of MPS. The clients are listed last: one that comes in between is in
/// their list alone, and never taken for somebody else.
fn outside(gpu: &Gpu<'_>, parts: &Parts) -> Option<Vec<ProbedProcess>> {
    let all = gpu.processes().ok()?;
    let clients: BTreeSet<u32> = gpu.mps_clients().ok()?.into_iter().map(|client| client.pid).collect();
    let is_there = |process: &GpuProcess| match (parts, process.instance) {
        (Some(parts), Some(instance)) => parts.contains(&instance),
        (Some(_), None) | (None, _) => true,
    };
    let others = all.into_iter().filter(|process| !clients.contains(&process.pid)).filter(is_there);
    let row = |GpuProcess { pid, bytes, instance }| ProbedProcess { pid, bytes, instance };
    Some(others.take(MOST_OUTSIDE).map(row).collect())
}

/// A GPU's memory and who has it. Between the two questions somebody may take or give back some: so they are asked again
/// until who is there has the same before and after.
fn memory(gpu: &Gpu<'_>) -> Option<ProbedMemory> {
    let mut before = gpu.processes().ok()?;
    for _ in 0..MOST_LOOKS_AT_MEMORY {
        let (total, used) = gpu.memory().ok()?;
        let after = gpu.processes().ok()?;
        if after == before {
            let of_processes = after.iter().map(|process| process.bytes).sum();
            return Some(ProbedMemory { total, used, of_processes, pids: after.iter().map(|row| row.pid).collect() });
        }
        before = after;
    }
    None
}

fn look(words: &[String]) -> Result<Vec<ProbedGpu>, NvmlError> {
    let nvml = Nvml::open(None)?;
    let library = nvml.path().to_string_lossy().into_owned();
    let row = |(index, uuid, gpu, parts): (usize, String, Gpu<'_>, Parts)| ProbedGpu {
        index,
        uuid,
        mode: gpu.compute_mode().ok(),
        whole: parts.is_none(),
        outside: outside(&gpu, &parts),
        memory: parts.is_none().then(|| memory(&gpu)).flatten(),
        library: library.clone(),
    };
    Ok(served(&nvml, words)?.into_iter().map(row).collect())
}

fn change(nvml: &Nvml, change: &Change) -> ProbedChange {
    let Change { uuid, from, to } = change;
    let result = nvml.by_uuid(uuid).and_then(|gpu| {
        if gpu.compute_mode()? == *from {
            gpu.set_compute_mode(*to)?;
        }
        gpu.compute_mode()
    });
    let (mode, error) = match result {
        Ok(mode) => (Some(mode), None),
        Err(error) => (None, Some(error.to_string())),
    };
    ProbedChange { uuid: uuid.clone(), mode, error }
}

/// Makes this process end with its parent, which has this pid; whether that lives. What a killed daemon had begun is its
/// holder's to undo, and must not be done after that.
fn dies_with(parent: &str) -> bool {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).is_ok() && nix::unistd::getppid().to_string() == parent
}

/// Makes a change. What is no longer as a daemon has set it is nobody's to give back, so that its records go.
fn changed(nvml: &Nvml, wanted: &Change, records: &[PathBuf]) -> ProbedChange {
    let changed = change(nvml, wanted);
    if wanted.to != DEFAULT_MODE && changed.mode.is_some_and(|mode| mode != DEFAULT_MODE) {
        mode_records::forget(records, &changed.uuid);
    }
    changed
}

fn parse(words: &[String]) -> Option<Vec<Change>> {
    let change = |words: &[String]| match words {
        [uuid, from, to] => Some(Change { uuid: uuid.clone(), from: from.parse().ok()?, to: to.parse().ok()? }),
        _ => None,
    };
    words.chunks(3).map(change).collect()
}

fn texts(arguments: &[OsString]) -> Vec<String> {
    arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Prints what is known of the GPUs that the arguments name; returns the exit status.
#[must_use]
pub(crate) fn run_look(arguments: &[OsString]) -> u8 {
    print_rows(look(&texts(arguments)))
}

/// Makes the changes that the arguments name and prints what came of each; returns the exit status.
#[must_use]
pub(crate) fn run_change(arguments: &[OsString]) -> u8 {
    let [parent, library, words @ ..] = arguments else { return 1 };
    if !dies_with(&parent.to_string_lossy()) {
        return 1;
    }
    let Some(end) = words.iter().position(|word| word == END_OF_RECORDS) else { return 1 };
    let records: Vec<PathBuf> = words[..end].iter().map(PathBuf::from).collect();
    let Some(changes) = parse(&texts(&words[end + 1..])) else { return 1 };
    let library = Some(Path::new(library)).filter(|path| path.is_absolute());
    let changed = |nvml: Nvml| changes.iter().map(|wanted| changed(&nvml, wanted, &records)).collect();
    print_rows(Nvml::open(library).map(changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_reads_the_changes_that_it_is_given() {
        let changes = [("GPU-a", 3, 0), ("GPU-b", 0, 1)];
        let changes = changes.map(|(uuid, from, to)| Change { uuid: uuid.into(), from, to });
        let arguments = change_arguments(Path::new("/lib/x.so"), &["/run/x".into()], &changes);
        assert_eq!(arguments[0], CHANGE_ARGUMENT);
        assert_eq!(arguments[2..5], ["/lib/x.so", "/run/x", END_OF_RECORDS].map(OsString::from));
        assert_eq!(parse(&texts(&arguments[5..])), Some(changes.to_vec()));
        assert_eq!(parse(&texts(&arguments[5..7])), None, "half a change");
        assert_eq!(parse(&["GPU-a".into(), "x".into(), "0".into()]), None);
    }
}
