//! What the event journal holds: everything that an operator may have to know about a fault afterwards.
//!
//! The core says that something has happened by `Effect::Record`; the driver stamps it with a number and a time and
//! gives it to `observe`, where the journal, the metrics and the followers of `events` take it from the same place. So
//! they can't disagree.
//!
//! An event is written as one JSON object: `{"seq":…,"time":…,"event":"client-admitted","pid":…}`. The names here are
//! the names there, in kebab-case, and stay what they are: programs read them.

mod names;
mod reasons;
mod seen;

pub(crate) use reasons::{
    EarlyEnd, ExitReason, FuneralEnd, HoldEnd, ModeCause, RefusalReason, Sanction, SpareEnd, StartReason,
};

use super::client_recovery::{ClientRecovery, ClientRefusal};
use super::evidence::{End, ProcessKey};
use super::gpu::{ComputeMode, Gpu};
use super::ids::{Pid, ServerEpoch, Uid};
use super::milliseconds::{maybe_milliseconds, milliseconds};
use super::verdict::Verdict;
use core::time::Duration;
use serde::Serialize;

/// One entry of the journal, without its number and time. Times of it are in milliseconds and end in `_ms`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum JournalEvent {
    /// The daemon began, with nothing before it.
    DaemonStarted {
        pid: Pid,
        version: &'static str,
        /// The release whose answers it gives, as `580`.
        personality: String,
    },
    /// The daemon began where another one had stopped.
    DaemonTakenOver {
        pid: Pid,
        version: &'static str,
        /// Servers that it found.
        servers: usize,
        /// Clients that it found waiting or in their handshake.
        clients: usize,
    },
    /// The daemon ends as it was told to.
    DaemonEnded {
        /// With this status.
        status: u8,
    },
    /// A server's process was started.
    ServerStarted {
        epoch: ServerEpoch,
        server: Pid,
        /// The user it runs as.
        uid: Uid,
        /// Its domain, as the operator reads it.
        domain: String,
        reason: StartReason,
    },
    /// A server could not be started.
    ServerStartFailed {
        epoch: ServerEpoch,
        /// The user it should have run as.
        uid: Uid,
        domain: String,
        /// What was in the way.
        text: String,
    },
    /// A server has said that it serves.
    ServerReady {
        epoch: ServerEpoch,
        server: Pid,
        /// The user it runs as.
        uid: Uid,
        domain: String,
        /// Since its start.
        #[serde(serialize_with = "milliseconds", rename = "start_ms")]
        start: Duration,
    },
    /// A server that stands by is ready to take over.
    StandbyReady {
        epoch: ServerEpoch,
        server: Pid,
        /// The user it runs as.
        uid: Uid,
        domain: String,
        /// Since its start.
        #[serde(serialize_with = "milliseconds", rename = "start_ms")]
        start: Duration,
        /// What it costs on the GPU, in bytes, where that is known.
        memory_bytes: Option<u64>,
    },
    /// Nobody is sent to this server any more: there are signs of a fault.
    ServerTainted {
        epoch: ServerEpoch,
        server: Pid,
        /// The user it runs as.
        uid: Uid,
        domain: String,
        /// The incident, as the signs and verdicts that belong to it number it.
        incident: u64,
        /// Those of its clients at that moment that the fault has hit.
        clients: usize,
        /// The GPUs that are known to be spoilt, as `GPU-…` or `GPU-…/MIG-…`; none is all, as far as anybody knows.
        gpus: Vec<Gpu>,
        /// Its clients that have nothing there.
        spared: usize,
    },
    /// A server that an exception has spoilt is killed, before its clients have left it.
    ServerEndedEarly {
        epoch: ServerEpoch,
        server: Pid,
        /// The user it runs as.
        uid: Uid,
        domain: String,
        incident: u64,
        /// Its clients at that moment.
        clients: usize,
        reason: EarlyEnd,
    },
    /// A spoilt server was not asked to end, nor the copies of its dead clients closed, while clients of it recovered; from
    /// now on they are.
    BurialHeld {
        epoch: ServerEpoch,
        server: Pid,
        /// The user it runs as.
        uid: Uid,
        domain: String,
        incident: u64,
        /// Its clients that were to recover.
        clients: usize,
        /// Those of them that have their contexts again.
        back: usize,
        reason: HoldEnd,
        /// Since the server was tainted.
        #[serde(serialize_with = "milliseconds", rename = "held_ms")]
        held: Duration,
    },
    /// A domain has a sound server again after a fault.
    ServerSwapped {
        incident: u64,
        /// The user of the domain.
        uid: Uid,
        domain: String,
        /// The pid of the tainted server.
        from: Pid,
        /// The pid of the sound one.
        to: Pid,
        /// Whether it stood by.
        standby: bool,
        /// Since the first sign of the fault.
        #[serde(serialize_with = "milliseconds", rename = "after_ms")]
        after: Duration,
    },
    /// A server's process is gone.
    ServerExited {
        epoch: ServerEpoch,
        /// Its pid; `None` when it never had one.
        server: Option<Pid>,
        /// The user it ran as.
        uid: Uid,
        domain: String,
        end: End,
        reason: ExitReason,
    },
    /// A client was handed to a server that took it.
    ClientAdmitted {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        server: Pid,
        /// Since it came.
        #[serde(serialize_with = "milliseconds", rename = "waited_ms")]
        waited: Duration,
    },
    /// A client was sent away.
    ClientRefused {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        reason: RefusalReason,
        /// The `CUresult` with which a server did not take it.
        status: Option<u32>,
    },
    /// A client's process is gone.
    ClientEnded {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        server: Pid,
        end: End,
        /// The incident it was lost in, as culprit or as victim.
        incident: Option<u64>,
    },
    /// A client has a place for a spare copy of the driver.
    SpareGranted {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        /// The server that it may stand on.
        server: Pid,
    },
    /// The spare copy is ready to be gone on with, for the first time.
    SpareReady {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        server: Pid,
        /// Since it was granted.
        #[serde(serialize_with = "milliseconds", rename = "after_ms")]
        after: Duration,
    },
    /// The program goes on with its spare copy.
    SpareLives {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        /// The server that it was on, unless that is gone.
        from: Option<Pid>,
        to: Pid,
        /// Whether the program had said so.
        ready: bool,
    },
    /// There is no spare copy any more, and none lives.
    SpareEnded { process: ProcessKey, uid: Uid, domain: String, server: Pid, reason: SpareEnd },
    /// A client says how it has gone on after a fault.
    ClientRecovered {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        /// Its server when it said so; `None` when it had none.
        server: Option<Pid>,
        #[serde(flatten)]
        recovery: ClientRecovery,
    },
    /// A client says why it does not go on after a fault.
    ClientUnrecovered {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        /// Its server when it said so; `None` when it had none.
        server: Option<Pid>,
        #[serde(flatten)]
        refusal: ClientRefusal,
    },
    /// A witness has said something that may be a fault.
    FaultSign {
        incident: u64,
        server: Pid,
        /// The user of the server.
        uid: Uid,
        domain: String,
        /// Who says so, as in a verdict.
        witness: &'static str,
        /// Whom it names, right or wrong.
        names: Option<Pid>,
        text: String,
    },
    /// Who caused a fault.
    Verdict {
        verdict: Verdict,
        /// The users whose processes it speaks of: the culprit's and the victims'.
        users: Vec<Uid>,
    },
    /// Late evidence has changed a verdict; the new one names the one that it corrects.
    VerdictCorrected {
        verdict: Verdict,
        /// The users whose processes it and the corrected one speak of.
        users: Vec<Uid>,
    },
    /// Several programs of several tenants have met faults at one place of a GPU: it may be ill.
    HardwareSuspected {
        gpu: String,
        /// Such as `GPC 1, TPC 2`.
        place: String,
        /// Faults there in 24 h.
        faults: usize,
    },
    /// What was done to a culprit.
    CulpritSanctioned {
        verdict: u64,
        process: ProcessKey,
        uid: Uid,
        domain: String,
        sanction: Sanction,
        /// For how long, where it ends by itself.
        #[serde(serialize_with = "maybe_milliseconds", rename = "for_ms")]
        lasts: Option<Duration>,
        /// Of a quarantine: the domain of the culprit's like from now on.
        quarantine: Option<String>,
        /// Of a quarantine: who is the culprit's like.
        offender: Option<String>,
    },
    /// A culprit whose fault was isolated has ended, and the patched module was asked what is left of it.
    CulpritGone {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        /// Whether nothing is left; else the module's last record did not come in time.
        complete: bool,
        /// Since its process ended.
        #[serde(serialize_with = "milliseconds", rename = "after_ms")]
        after: Duration,
    },
    /// A victim that lingered on a tainted server was ended.
    VictimTerminated { incident: u64, process: ProcessKey, uid: Uid, domain: String },
    /// Copies of a dead client's descriptors are kept until its work has drained.
    FuneralBegun {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        descriptors: usize,
        /// The GPU memory that they pin, in bytes, where that is known.
        pinned_bytes: Option<u64>,
    },
    /// It is known how much GPU memory they pin.
    FuneralMeasured {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        /// The memory, in bytes.
        pinned_bytes: u64,
    },
    /// They are closed.
    FuneralEnded {
        process: ProcessKey,
        uid: Uid,
        domain: String,
        descriptors: usize,
        /// The GPU memory that they have pinned, in bytes, where that is known.
        pinned_bytes: Option<u64>,
        reason: FuneralEnd,
        /// Since the client's end.
        #[serde(serialize_with = "milliseconds", rename = "held_ms")]
        held: Duration,
    },
    /// GPU memory of a process is kept from now on.
    RegionEscrowed {
        process: ProcessKey,
        uid: Uid,
        /// Its name; empty when nobody may adopt it.
        name: String,
        gpu: String,
        bytes: u64,
    },
    /// Kept memory was given up: by its owner, or with an owner's end where it had no name.
    RegionsReleased { process: ProcessKey, uid: Uid, regions: usize, bytes: u64 },
    /// A process has taken over the memory that another one left.
    RegionsAdopted {
        /// Its owner now.
        process: ProcessKey,
        uid: Uid,
        name: String,
        regions: usize,
        bytes: u64,
    },
    /// Nobody has adopted a region in time.
    RegionExpired { process: ProcessKey, uid: Uid, name: String, bytes: u64 },
    /// A domain's servers keep failing: the next start waits.
    BreakerOpened {
        /// The user of the domain.
        uid: Uid,
        domain: String,
        /// Failures in a row.
        failures: u32,
        /// Until the next start.
        #[serde(serialize_with = "milliseconds", rename = "retry_ms")]
        retry: Duration,
    },
    /// Its servers work again.
    BreakerClosed {
        /// The user of the domain.
        uid: Uid,
        domain: String,
    },
    /// A GPU has another compute mode than it had.
    ComputeModeChanged {
        gpu: String,
        /// The mode that it had.
        from: ComputeMode,
        /// The mode that it has.
        to: ComputeMode,
        cause: ModeCause,
    },
    /// A process has a context on a GPU outside of this daemon's MPS.
    StrangerFound {
        process: ProcessKey,
        uid: Uid,
        /// Its name, as the kernel has it.
        command: String,
        gpus: Vec<String>,
        /// Its memory there, in bytes, where that is known.
        bytes: Option<u64>,
        /// Whether it seems to be a server of another daemon.
        server: bool,
    },
    /// It is on no GPU any more, or has come to MPS.
    StrangerLeft { process: ProcessKey, uid: Uid },
    /// It was ended, as the operator wants it.
    StrangerEnded {
        process: ProcessKey,
        uid: Uid,
        /// Whether with SIGKILL, and not with SIGTERM.
        force: bool,
    },
    /// Something that a witness had to say was lost before the daemon could read it.
    WitnessLost {
        /// Which witness, as in a verdict.
        witness: &'static str,
        /// The process whose tracker lost it, where it is one process's.
        process: Option<ProcessKey>,
        /// How many statements, at least.
        count: u64,
    },
    /// Somebody's clients come and go so often that not all of it was written; the metrics have counted it.
    EventsSuppressed {
        /// Whose; `None` when there are many of them, or it is not known.
        uid: Option<Uid>,
        /// How many events.
        count: u64,
    },
    /// A witness can't be heard, from now on or for one process.
    WitnessMissing {
        /// Which witness, as in a verdict.
        witness: &'static str,
        /// The process that can't be tracked; `None` when none can.
        process: Option<ProcessKey>,
        text: String,
    },
}

#[cfg(test)]
mod tests;
