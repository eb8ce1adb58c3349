//! The child processes that look at the GPUs' compute modes and who is on them, and that change modes.
//!
//! Both print a line of JSON a GPU and end. A change is made only where the mode still is the one that it is to be
//! changed from: what somebody else has done meanwhile is left alone, by the daemon as by its holder.

use super::nvml::{Gpu, GpuProcess, Nvml, NvmlError};
use super::print_rows;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

/// The hidden first argument of the child that looks; the GPUs to look at follow, by UUID, or nothing for all.
pub const LOOK_ARGUMENT: &str = "--list-gpus";
/// That of the child that changes modes; the library's file and the changes follow.
pub const CHANGE_ARGUMENT: &str = "--change-compute-mode";
/// Processes outside MPS that are told of one GPU; more are not needed to know that something is wrong.
const MOST_OUTSIDE: usize = 128;
/// What `CUDA_VISIBLE_DEVICES` calls an instance of a GPU.
const INSTANCE_PREFIX: &str = "MIG-";

/// What the child prints of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedGpu {
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
    /// The library's file; empty when the loader does not tell.
    pub library: String,
}

/// What it prints of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedProcess {
    /// Its pid.
    pub pid: u32,
    /// GPU memory in bytes, where it is known.
    pub bytes: Option<u64>,
    /// GPU instance and compute instance, on a GPU that is divided.
    pub instance: Option<(u32, u32)>,
}

/// A change of a GPU's compute mode, in numbers of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
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
pub struct ProbedChange {
    /// Which GPU.
    pub uuid: String,
    /// The number of its mode now, where it can be told.
    pub mode: Option<u32>,
    /// What was in the way.
    pub error: Option<String>,
}

/// The command line of the child that changes modes.
#[must_use]
pub fn change_arguments(library: &Path, changes: &[Change]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![CHANGE_ARGUMENT.into(), library.into()];
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

fn look(words: &[String]) -> Result<Vec<ProbedGpu>, NvmlError> {
    let nvml = Nvml::open(None)?;
    let library = nvml.path().to_string_lossy().into_owned();
    let row = |(index, uuid, gpu, parts): (usize, String, Gpu<'_>, Parts)| ProbedGpu {
        index,
        uuid,
        mode: gpu.compute_mode().ok(),
        whole: parts.is_none(),
        outside: outside(&gpu, &parts),
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
pub fn run_look(arguments: &[OsString]) -> u8 {
    print_rows(look(&texts(arguments)))
}

/// Makes the changes that the arguments name and prints what came of each; returns the exit status.
#[must_use]
pub fn run_change(arguments: &[OsString]) -> u8 {
    let Some((library, words)) = arguments.split_first() else { return 1 };
    let Some(changes) = parse(&texts(words)) else { return 1 };
    let library = Some(Path::new(library)).filter(|path| path.is_absolute());
    print_rows(Nvml::open(library).map(|nvml| changes.iter().map(|wanted| change(&nvml, wanted)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_reads_the_changes_that_it_is_given() {
        let changes = [("GPU-a", 3, 0), ("GPU-b", 0, 1)];
        let changes = changes.map(|(uuid, from, to)| Change { uuid: uuid.into(), from, to });
        let arguments = change_arguments(Path::new("/lib/x.so"), &changes);
        assert_eq!(arguments[..2], [OsString::from(CHANGE_ARGUMENT), OsString::from("/lib/x.so")]);
        assert_eq!(parse(&texts(&arguments[2..])), Some(changes.to_vec()));
        assert_eq!(parse(&texts(&arguments[2..4])), None, "half a change");
        assert_eq!(parse(&["GPU-a".into(), "x".into(), "0".into()]), None);
    }
}
