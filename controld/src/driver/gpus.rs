//! The driver's part in what is done about GPUs: children that look at them and change compute modes, what the holder
//! keeps of that, and the end of strangers. [`records`] is what outlives both.

mod records;

use super::events::{Event, Events};
use super::processes::kernel_pid;
use super::successor::{Successor, keys};
use crate::core::{
    ComputeMode, GpuMemory, GpuPolicy, GpuSeen, Input, ManagedMode, ModeChange, ModeOutcome, ModeStage, Outsider, Pid,
    ProcessKey,
};
use crate::devices;
use crate::devices::gpus::{Change, ProbedChange, ProbedGpu, ProbedMemory, ProbedProcess};
use crate::failpoint::reached;
use crate::holder::{self, Kind, ModeNote, ModesNote};
use crate::io::mode_records::ModeRecords;
use crate::io::process::{name_of, open_same, program_of, start_time, uid_of};
use crate::io::server_process::SERVER_NAME;
use crate::sys::proc::is_in_first_pid_namespace;
use nix::sys::signal::Signal;
use prost::Message as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Bytes of a process's name that the kernel keeps.
const KERNEL_NAME: usize = 15;

/// What daemon and holder know and keep of the GPUs' compute modes. Who looks or changes is a child; remarks are for the
/// log.
pub(super) struct Gpus {
    policy: GpuPolicy,
    /// The management library's file, for the holder; empty until it is known.
    library: String,
    records: ModeRecords,
    events: Events,
}

impl Gpus {
    pub(super) fn new(policy: GpuPolicy, records: ModeRecords, events: Events) -> Self {
        Self { policy, library: String::new(), records, events }
    }

    /// Begins to look at the GPUs, with what an earlier daemon has noted.
    pub(super) fn begin(
        &mut self,
        note: Option<ModesNote>,
        parts: Vec<(u64, String, OwnedFd)>,
        successor: &Successor,
    ) -> (Input, Vec<String>) {
        let mut remarks = Vec::new();
        if self.policy.manages() && !successor.restores_modes() {
            remarks.push(
                "The holder process is an earlier release's and gives no compute mode back when this daemon is killed: \
                 it will when the daemon has quit once and started again"
                    .to_owned(),
            );
        }
        let why_not = why_none_is_ended();
        if let Some(why) = why_not.filter(|_| self.policy.ends_strangers()) {
            remarks.push(format!("Processes that use a GPU outside MPS are told of and not ended: {why}"));
        }
        let note = note.unwrap_or_default();
        self.library = note.library;
        let mut modes: Vec<ManagedMode> = note.gpus.iter().map(managed).collect();
        for (number, uuid, part) in parts {
            self.records.adopt(number, uuid, part);
        }
        modes.extend(self.modes_left_behind(&modes, successor, &mut remarks));
        (Input::GpusWatched { modes, may_end: why_not.is_none() }, remarks)
    }

    pub(super) fn look(&self) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let seen = devices::look().await.map_err(|error| error.to_string());
            events.send(Event::GpusSeen(seen)).await;
        });
    }

    /// The GPUs were looked at, where these modes are managed.
    pub(super) fn seen(
        &mut self,
        seen: Result<Vec<ProbedGpu>, String>,
        managed: &[ManagedMode],
        successor: &Successor,
    ) -> [Input; 2] {
        reached("gpus-seen");
        if let Some(gpu) = seen.iter().flatten().next() {
            self.library.clone_from(&gpu.library);
        }
        let own = [std::process::id(), successor.holder_pid()];
        let memory = Input::MemorySeen { memory: memory_of(&seen), asked: false };
        let gpu = |ProbedGpu { index, uuid, mode, whole, outside, memory: _, library: _ }| GpuSeen {
            index,
            mode: mode.map(ComputeMode),
            before: None,
            uuid,
            whole,
            outside: outside.map(|rows: Vec<ProbedProcess>| {
                rows.into_iter().filter(|row| !own.contains(&row.pid)).filter_map(outsider).collect()
            }),
        };
        let gpus = |gpus: Vec<ProbedGpu>| {
            gpus.into_iter().map(gpu).map(|gpu| self.with_other_daemons(gpu, managed, successor)).collect()
        };
        [memory, Input::GpusSeen(seen.map(gpus))]
    }

    pub(super) fn look_at_memory(&self) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let seen = devices::look().await.map_err(|error| error.to_string());
            events.send(Event::MemorySeen(memory_of(&seen))).await;
        });
    }

    /// Records what is set, leaves to other daemons what they count on, and has a child change the rest.
    pub(super) fn change(&mut self, changes: Vec<ModeChange>, successor: &Successor) -> Vec<String> {
        let (files, remarks) = self.record_modes(&changes, successor);
        let (changes, others): (Vec<ModeChange>, Vec<ModeChange>) =
            changes.into_iter().partition(|change| self.is_ours_to_change(change));
        let (events, library) = (self.events.clone(), PathBuf::from(&self.library));
        let records = self.records.folders();
        tokio::spawn(async move {
            records::sync(files).await;
            let change = |ModeChange { uuid, from, to }| Change { uuid, from: from.0, to: to.0 };
            let changes: Vec<Change> = changes.into_iter().map(change).collect();
            let changed = match changes.is_empty() {
                true => Ok(Vec::new()),
                false => devices::change_modes(&library, &records, &changes).await.map_err(|error| error.to_string()),
            };
            let left =
                |ModeChange { uuid, from, .. }: ModeChange| ModeOutcome { uuid, mode: Ok(from), is_others: true };
            let others: Vec<ModeOutcome> = others.into_iter().map(left).collect();
            let all = changed.map(|changed| changed.into_iter().map(outcome).chain(others).collect());
            events.send(Event::ModesChanged(all)).await;
        });
        remarks
    }

    pub(super) fn changed(&mut self, changed: Result<Vec<ModeOutcome>, String>, successor: &Successor) -> Input {
        reached("modes-changed");
        for outcome in changed.iter().flatten().filter(|outcome| outcome.is_others) {
            self.forget_mode(&outcome.uuid, successor);
        }
        Input::ModesChanged(changed)
    }

    /// Lets the holder know what it has to give back, before anything is changed.
    pub(super) fn hold_modes(&mut self, modes: &[ManagedMode], successor: &Successor) -> Vec<String> {
        let remarks = self.count_on_modes(modes, successor);
        if modes.is_empty() {
            successor.release(keys::COMPUTE_MODES);
            return remarks;
        }
        let note = |ManagedMode { uuid, original, stage }: &ManagedMode| ModeNote {
            uuid: uuid.clone(),
            original: original.0,
            set: ComputeMode::DEFAULT.0,
            stage: match stage {
                ModeStage::Left => holder::ModeStage::Left,
                ModeStage::Planned => holder::ModeStage::Planned,
                ModeStage::Set => holder::ModeStage::Set,
            }
            .into(),
        };
        let records = self.records.folders().into_iter().map(|path| path.into_os_string().into_encoded_bytes());
        let (gpus, library) = (modes.iter().map(note).collect(), self.library.clone());
        let note = ModesNote { gpus, library, records: records.collect() };
        successor.hold(keys::COMPUTE_MODES, Kind::COMPUTE_MODES, &note.encode_to_vec(), &[]);
        reached("modes-held");
        remarks
    }
}

/// Ends a process that uses a GPU outside MPS, if it still is the one that was seen.
pub(super) fn end_stranger(process: ProcessKey, force: bool) {
    let pid = kernel_pid(process.pid);
    let signal = if force { Signal::SIGKILL } else { Signal::SIGTERM };
    let ended = open_same(pid, process.start_time).and_then(|opened| opened.signal(Some(signal)));
    if let Err(error) = ended {
        tracing::debug!(pid = process.pid, %error, "a process outside MPS could not be sent a signal");
    }
}

/// What a look at the GPUs has told of their memory.
fn memory_of(seen: &Result<Vec<ProbedGpu>, String>) -> Result<Vec<GpuMemory>, String> {
    let memory = |gpu: &ProbedGpu| {
        let ProbedMemory { total, used, of_processes, pids } = gpu.memory.clone()?;
        Some(GpuMemory { total, used, of_processes, pids })
    };
    let told = seen.as_ref().map_err(Clone::clone)?.iter().map(memory).collect::<Option<Vec<_>>>();
    told.ok_or_else(|| "the driver does not tell what of a GPU's memory is in use".to_owned())
}

/// Why this daemon ends nobody outside MPS: another process may have a pid that a driver tells from another namespace.
fn why_none_is_ended() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("that takes root");
    }
    (!is_in_first_pid_namespace()).then_some("the daemon is not in the machine's own pid namespace")
}

fn outcome(ProbedChange { uuid, mode, error }: ProbedChange) -> ModeOutcome {
    let mode = mode.map(ComputeMode).ok_or_else(|| error.unwrap_or_else(|| "no reason is given".to_owned()));
    ModeOutcome { uuid, mode, is_others: false }
}

fn managed(note: &ModeNote) -> ManagedMode {
    let stage = match note.stage() {
        holder::ModeStage::Left => ModeStage::Left,
        holder::ModeStage::Planned => ModeStage::Planned,
        holder::ModeStage::Set => ModeStage::Set,
    };
    ManagedMode { uuid: note.uuid.clone(), original: ComputeMode(note.original), stage }
}

/// What `/proc` knows of a process on a GPU; `None` when it is gone.
fn outsider(row: ProbedProcess) -> Option<Outsider> {
    let pid = kernel_pid(row.pid);
    let process = ProcessKey { pid: row.pid, start_time: start_time(pid)? };
    Some(Outsider {
        process,
        uid: uid_of(pid)?,
        command: name_of(pid)?.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        is_server: is_server(row.pid),
        bytes: row.bytes,
        instance: row.instance,
    })
}

/// Whether a process is a server of MPS by its name, which only keeps it from being ended.
fn is_server(pid: Pid) -> bool {
    let program = program_of(kernel_pid(pid)).unwrap_or_default();
    let is_program = program.file_name().is_some_and(|name| name == SERVER_NAME);
    is_program || name_of(kernel_pid(pid)).is_some_and(|name| name == SERVER_NAME[..KERNEL_NAME])
}
