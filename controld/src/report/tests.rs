//! The answers of ReMPS's own commands: what they show, to whom, and that nothing from outside breaks them.

mod clients;
mod faults;
mod line;
mod module;
mod status;

use super::*;
use crate::core::picture::{
    ChannelFacts, ClientFacts, ClientPhase, DaemonFacts, DomainFacts, DomainPhase, ServerFacts, ServerPhase, Snapshot,
    WitnessFacts,
};
use crate::core::{
    Confidence, End, MemoryFault, Pid, ProcessKey, ServerEpoch, Suspect, SuspectIdentity, Testimony, Uid, Verdict,
};
use core::time::Duration;
use remps_proto::admin::{Form, Output};
use serde_json::Value;

const TABLE: Output = Output { form: Form::Table, utc: false };
const WIDE: Output = Output { form: Form::Wide, utc: false };
const JSON: Output = Output { form: Form::Json, utc: false };
const OWNER: Viewer = Viewer { uid: 0, privileged: true, within: None };
const ALICE: Viewer = Viewer { uid: 1000, privileged: false, within: None };
const BOB: Viewer = Viewer { uid: 1001, privileged: false, within: None };

fn verdict(number: u64, culprit: Option<(Pid, Uid)>, victims: Vec<Pid>) -> Verdict {
    let suspect = |(pid, uid)| Suspect {
        process: ProcessKey { pid, start_time: 77 },
        uid,
        identity: SuspectIdentity {
            cgroup: "/kubepods.slice/secret".to_owned(),
            container: None,
            pod: None,
            names: None,
            command: "python train.py\x1b[2J\n0".to_owned(),
            seen_as: None,
        },
    };
    Verdict {
        number,
        incident: number,
        server: 519,
        epoch: ServerEpoch(1),
        domain: "user 1000".to_owned(),
        within: None,
        culprit: culprit.map(suspect),
        confidence: if culprit.is_some() { Confidence::Certain } else { Confidence::Unknown },
        kind: "memory fault",
        fault: Some(MemoryFault {
            address: 0x7f00_1000,
            access: crate::core::Access::Write,
            kind: "invalid PTE".to_owned(),
            gpu: Some("GPU-74d43ed3".to_owned()),
        }),
        isolated: false,
        channel: None,
        xid: Some(31),
        victims,
        gpus: vec![],
        spared: vec![],
        witnesses: vec![Testimony {
            witness: "uvm-event",
            names: culprit.map(|(pid, _)| pid),
            after: Duration::ZERO,
            text: "write".to_owned(),
        }],
        more_witnesses: 0,
        named_by_log: vec![],
        suspicion: None,
        delay: Duration::from_micros(400),
        corrects: None,
    }
}

fn client(pid: Pid, uid: Uid, phase: ClientPhase) -> ClientFacts {
    ClientFacts {
        seen_as: None,
        pid_namespace: None,
        spare: None,
        recovery: None,
        unrecovered: None,
        threads: Some(100.0),
        memory_bytes: None,
        gpus: None,
        process: ProcessKey { pid, start_time: 77 },
        uid,
        domain: format!("user {uid}"),
        phase,
        server: Some(519),
        contexts: 1,
        waited: Some(Duration::from_secs(3725)),
        identity: SuspectIdentity { command: format!("job-of-{uid}\n"), ..SuspectIdentity::default() },
        label: None,
        tracked: true,
        descriptors: 2,
        verdicts: vec![],
        end: (phase == ClientPhase::Gone).then_some(End::Signaled(9)),
    }
}

fn snapshot() -> Snapshot {
    let domain = |uid, phase| DomainFacts {
        entrance: None,
        name: format!("user {uid}"),
        uid,
        phase,
        server: Some(519),
        standby: None,
        clients: 1,
        max_clients: Some(16),
        waiting: 0,
        quarantined: false,
        quarantine_of: None,
        retry: None,
    };
    Snapshot {
        daemon: DaemonFacts {
            uptime: Duration::from_secs(90),
            pipe_directory: "/run/nvidia-mps".to_owned(),
            ..DaemonFacts::blank()
        },
        domains: vec![domain(1000, DomainPhase::Serving), domain(1001, DomainPhase::Broken)],
        servers: vec![ServerFacts {
            threads: Some(100.0),
            entrance: None,
            gpus: vec![],
            spoilt_gpus: vec![],
            early_end: None,
            epoch: ServerEpoch(1),
            pid: Some(519),
            uid: 1000,
            domain: "user 1000".to_owned(),
            phase: ServerPhase::Active,
            clients: 1,
            ready: Some(Duration::from_secs(80)),
            memory_bytes: Some(69 << 20),
        }],
        clients: vec![
            client(42, 1000, ClientPhase::Live),
            client(43, 1001, ClientPhase::Waiting),
            client(44, 1000, ClientPhase::Gone),
        ],
        channels: vec![ChannelFacts {
            channel: Some(0x2a),
            gpu: None,
            context: None,
            process: ProcessKey { pid: 42, start_time: 77 },
            uid: 1000,
            server: Some(519),
            source: "patched-module",
        }],
        witnesses: vec![WitnessFacts { name: "uvm-event", missing: None, attached: Some(1), refused: 1 }],
        ..Snapshot::blank()
    }
}

fn ledger(faults: impl IntoIterator<Item = Verdict>) -> FaultLedger {
    let mut ledger = FaultLedger::default();
    for verdict in faults {
        let users = vec![1000, 1001];
        ledger.push(Fault::Own { time: "2026-11-20T12:00:00.123Z".to_owned(), verdict: Box::new(verdict), users });
    }
    ledger
}
