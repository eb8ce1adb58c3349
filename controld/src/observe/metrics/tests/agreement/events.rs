//! Any event, as the journal and the metrics may get it.

use super::*;

pub(in crate::observe::metrics::tests) fn event() -> impl Strategy<Value = JournalEvent> {
    let process = ProcessKey { pid: 42, start_time: 7 };
    let uid = 1000;
    let domain = || "user 1000".to_owned();
    let end =
        prop::sample::select(vec![End::Exited(0), End::Exited(3), End::Signaled(9), End::OutOfMemory, End::Unknown]);
    let exit =
        prop::sample::select(vec![ExitReason::Fault, ExitReason::Idle, ExitReason::Crash, ExitReason::ExecFailed]);
    let time = || (0u64..100_000).prop_map(Duration::from_micros);
    prop_oneof![
        time().prop_map(move |waited| JournalEvent::ClientAdmitted {
            process,
            uid,
            domain: domain(),
            server: 519,
            waited
        }),
        Just(JournalEvent::ClientRefused {
            process,
            uid,
            domain: domain(),
            reason: RefusalReason::TooManyWaiting,
            status: None
        }),
        end.prop_map(move |end| JournalEvent::ClientEnded {
            process,
            uid,
            domain: domain(),
            server: 519,
            end,
            incident: None
        }),
        exit.prop_map(move |reason| JournalEvent::ServerExited {
            epoch: ServerEpoch(1),
            server: Some(519),
            uid,
            domain: domain(),
            end: End::Exited(0),
            reason
        }),
        Just(JournalEvent::ServerStartFailed { epoch: ServerEpoch(1), uid, domain: domain(), text: String::new() }),
        (any::<bool>(), any::<bool>(), 0u32..5).prop_map(|(named, isolated, victims)| JournalEvent::Verdict {
            verdict: verdict(1, named, isolated, victims),
            users: vec![1000]
        }),
        any::<bool>().prop_map(|named| JournalEvent::VerdictCorrected {
            verdict: verdict(2, named, false, 2),
            users: vec![1000]
        }),
        time().prop_map(move |held| JournalEvent::FuneralEnded {
            process,
            uid,
            domain: domain(),
            descriptors: 3,
            pinned_bytes: Some(1 << 30),
            reason: FuneralEnd::Drained,
            held
        }),
        time().prop_map(move |held| JournalEvent::BurialHeld {
            epoch: ServerEpoch(1),
            server: 519,
            uid,
            domain: domain(),
            incident: 1,
            clients: 2,
            back: 1,
            reason: HoldEnd::TimedOut,
            held
        }),
        time().prop_map(move |start| JournalEvent::ServerReady {
            epoch: ServerEpoch(1),
            server: 519,
            uid,
            domain: domain(),
            start
        }),
        time().prop_map(move |after| JournalEvent::ServerSwapped {
            incident: 1,
            uid,
            domain: domain(),
            from: 519,
            to: 520,
            standby: true,
            after
        }),
        Just(JournalEvent::FaultSign {
            incident: 1,
            server: 519,
            uid,
            domain: domain(),
            witness: "xid",
            names: None,
            text: String::new()
        }),
        Just(JournalEvent::CulpritSanctioned {
            verdict: 1,
            process,
            uid,
            domain: domain(),
            sanction: Sanction::Report,
            lasts: None,
            quarantine: None,
            offender: None
        }),
        Just(JournalEvent::VictimTerminated { incident: 1, process, uid, domain: domain() }),
        Just(JournalEvent::RegionEscrowed { process, uid, name: "weights".into(), gpu: "GPU-1".into(), bytes: 7 }),
        Just(JournalEvent::RegionsReleased { process, uid, regions: 2, bytes: 7 }),
        Just(JournalEvent::RegionsAdopted { process, uid, name: "weights".into(), regions: 2, bytes: 7 }),
        Just(JournalEvent::RegionExpired { process, uid, name: "weights".into(), bytes: 7 }),
        Just(JournalEvent::ComputeModeChanged {
            gpu: "GPU-1".into(),
            from: ComputeMode::EXCLUSIVE_PROCESS,
            to: ComputeMode::DEFAULT,
            cause: ModeCause::Daemon
        }),
        Just(JournalEvent::StrangerFound {
            process,
            uid,
            command: "a.out".into(),
            gpus: vec!["GPU-1".into()],
            bytes: Some(7),
            server: false
        }),
        Just(JournalEvent::StrangerLeft { process, uid }),
        any::<bool>().prop_map(move |force| JournalEvent::StrangerEnded { process, uid, force }),
        Just(JournalEvent::BreakerOpened { uid, domain: domain(), failures: 8, retry: Duration::ZERO }),
        (1u64..50).prop_map(|count| JournalEvent::WitnessLost { witness: "uvm-event", process: None, count }),
    ]
}
