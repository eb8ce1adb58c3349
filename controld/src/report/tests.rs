//! The answers of ReMPS's own commands: what they show, to whom, and that nothing from outside breaks them.

mod module;

use super::*;
use crate::core::picture::{
    ChannelFacts, ClientFacts, ClientPhase, DaemonFacts, Degradation, DomainFacts, DomainPhase, ServerFacts,
    ServerPhase, Snapshot, WitnessFacts,
};
use crate::core::{
    Confidence, EarlyEnd, End, MemoryFault, ProcessKey, ServerEpoch, Suspect, SuspectIdentity, Testimony, Verdict,
};
use crate::witness::notice::Presence;
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

use crate::core::{Pid, Uid};

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

#[test]
fn what_the_last_recovery_of_a_client_took_is_shown_wide_and_as_json() {
    use crate::core::picture::{RecoveryFacts, RefusalFacts};
    use crate::core::{ClientRecovery, ClientRefusal};
    use remps_proto::shim::{Recovered, Unrecovered, Way};
    let (steps_us, switch_us) = (vec![400, 0, 0, 0, 0, 0, 0, 30, 180], vec![10, 20]);
    let said = Recovered { number: 3, way: Way::SPARE, error: 700, total_us: 610, steps_us, switch_us };
    let clean = snapshot();
    let mut snapshot = clean.clone();
    let recovery = RecoveryFacts { recovery: ClientRecovery::of(&said), ago: Duration::from_secs(90) };
    snapshot.clients[0].recovery = Some(recovery);
    let shown = |form| status(snapshot.clone(), OWNER, form).join("\n");
    let wide = shown(Form::Wide);
    assert!(wide.contains("RECOVERED") && wide.contains("spare 0.61 ms"), "{wide}");
    assert!(!shown(Form::Table).contains("RECOVERED"));
    assert!(!status(clean, OWNER, Form::Wide).join("\n").contains("RECOVERED"));
    let json: Value = serde_json::from_str(&shown(Form::Json)).unwrap();
    let wanted = serde_json::json!({"number": 3, "way": "spare", "error": 700, "total_ms": 0.61, "ago_s": 90.0,
        "steps_ms": {"wait": 0.4, "map": 0.03, "objects": 0.18}, "switch_ms": {"held": 0.01, "alive": 0.02}});
    assert_eq!(json["clients"][0]["recovery"], wanted);
    assert_eq!(json["clients"][1]["recovery"], Value::Null);
    let state = client_state(&snapshot, OWNER, 42, Form::Table).unwrap().join("\n");
    assert!(state.contains("last recovery:    spare 0.61 ms, 1m30s ago"), "{state}");
    // It was refused since.
    let reason = Unrecovered::words("cuLinkCreate: \u{1b}[2J");
    let refusal = ClientRefusal::of(Unrecovered { number: 1, error: 719, reason, is_final: false });
    snapshot.clients[0].unrecovered = Some(RefusalFacts { refusal, ago: Duration::from_secs(5) });
    let shown = |form| status(snapshot.clone(), OWNER, form).join("\n");
    assert!(shown(Form::Wide).contains("refused") && !shown(Form::Table).contains("refused"));
    let json: Value = serde_json::from_str(&shown(Form::Json)).unwrap();
    let wanted =
        serde_json::json!({"number": 1, "error": 719, "reason": "cuLinkCreate: ?[2J", "final": false, "ago_s": 5.0});
    assert_eq!(json["clients"][0]["unrecovered"], wanted);
    let state = client_state(&snapshot, OWNER, 42, Form::Table).unwrap().join("\n");
    let wanted = "not recovered:    cuLinkCreate: ?[2J (for now), from CUDA error 719, 5.0s ago";
    assert!(state.contains(wanted), "{state}");
}

#[test]
fn the_fault_list_has_the_newest_oldest_first() {
    let ledger = ledger((1..=300).map(|number| verdict(number, Some((42, 1000)), vec![43])));
    let lines = ledger.list(OWNER, Some(2), WIDE);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("FAULT  TIME"));
    assert!(lines[1].starts_with("299    2026-11-20T12:00:00.123Z  42       1000  certain  memory fault  0x7f001000"));
    assert!(lines[2].starts_with("300 ") && !lines[2].contains('\n'), "{}", lines[2]);
    assert_eq!(ledger.list(OWNER, None, WIDE).len(), 256 + 1, "what is remembered is bounded");
    assert_eq!(ledger.against(42, 77).len(), 256);
    assert!(ledger.against(42, 78).is_empty(), "a later process with the same pid is another one");
}

#[test]
fn the_fault_list_fits_a_terminal_unless_all_of_it_is_asked_for() {
    let mut long = verdict(1, Some((42, 1000)), vec![43]);
    long.domain = format!("user 1000, cgroup /kubepods.slice/{}", "x".repeat(80));
    let ledger = ledger([long.clone()]);
    let lines = ledger.list(OWNER, None, TABLE);
    let heading: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(heading, ["FAULT", "TIME", "CULPRIT", "SURE", "VICTIMS", "DOMAIN"]);
    assert_eq!(lines[1], "    KIND          COMMAND");
    let begins = "1      2026-11-20T12:00:00Z  42       certain  1        user 1000, cgro…xxxxxxxx";
    assert!(lines[2].starts_with(begins), "{}", lines[2]);
    assert_eq!(lines[3], "    memory fault  python train.py\\u{1b}[2J\\u{a}0");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    let utc = ledger.list(OWNER, None, Output { utc: true, ..TABLE });
    assert!(utc[2].starts_with("1      2026-11-20 12:00:00Z  42"), "{}", utc[2]);
    let wide = ledger.list(OWNER, None, WIDE);
    assert!(wide[1].contains(&long.domain) && !wide[1].contains('…'), "{}", wide[1]);
}

#[test]
fn tables_of_status_fit_a_terminal_and_names_differ_in_their_ends() {
    let mut snapshot = snapshot();
    let long = |pod| format!("user 1000, cgroup /kubepods.slice/{}/{pod}", "x".repeat(90));
    for (client, pod) in snapshot.clients.iter_mut().zip(["pod-a", "pod-b", "pod-c"]) {
        client.domain = long(pod);
    }
    let lines = status(snapshot.clone(), OWNER, Form::Table);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    let (narrow, wide) = (lines.join("\n"), status(snapshot, OWNER, Form::Wide).join("\n"));
    assert!(narrow.contains("x/pod-a ") && narrow.contains("x/pod-b "), "{narrow}");
    assert!(narrow.contains("job-of-1000"), "{narrow}");
    assert!(wide.contains(&long("pod-a")) && wide.contains(&long("pod-b")), "{wide}");
}

#[test]
fn memory_of_clients_is_a_column_where_it_is_known() {
    let mut snapshot = snapshot();
    let headings = |snapshot: &Snapshot| status(snapshot.clone(), OWNER, Form::Table).join("\n");
    assert!(!headings(&snapshot).contains("SERVER  MEMORY"), "{}", headings(&snapshot));
    snapshot.clients[0].memory_bytes = Some(512 << 20);
    let text = headings(&snapshot);
    assert!(text.contains("SERVER  MEMORY   WAITED") && text.contains("519     512 MiB  1h02m"), "{text}");
    snapshot.daemon.memory_unknown = Some("no \u{1b}library".to_owned());
    let text = headings(&snapshot);
    assert!(text.contains("GPU memory of clients: unknown, no \\u{1b}library"), "{text}");
}

#[test]
fn verdicts_with_much_to_say_are_fewer_in_memory() {
    let wordy = |number| {
        let mut verdict = verdict(number, Some((42, 1000)), vec![43]);
        let testimony = Testimony { text: "x".repeat(256), ..verdict.witnesses[0].clone() };
        verdict.witnesses = vec![testimony; 64];
        verdict
    };
    let ledger = ledger((1..=300).map(wordy));
    let lines = ledger.list(OWNER, None, WIDE);
    assert!((5..20).contains(&lines.len()), "{}", lines.len());
    assert!(lines.last().is_some_and(|newest| newest.starts_with("300 ")), "{lines:?}");
}

#[test]
fn a_fault_is_shown_to_those_it_hit_without_what_is_private() {
    let ledger = ledger([verdict(1, Some((42, 1000)), vec![43])]);
    let shown = |uid| ledger.list(Viewer { uid, privileged: false, within: None }, None, JSON).join("\n");
    assert!(shown(1000).contains("train.py"));
    assert!(shown(1001).contains("\"pid\":42") && !shown(1001).contains("train.py") && !shown(1001).contains("secret"));
    assert_eq!(shown(1002), "");
    let value: Value = serde_json::from_str(&shown(1001)).expect("one object");
    assert_eq!(value["time"], "2026-11-20T12:00:00.123Z");
}

#[test]
fn an_earlier_daemons_faults_are_shown_as_its_own_to_the_owner_alone() {
    let own = ledger([verdict(1, Some((42, 1000)), vec![43])]);
    let mut earlier = FaultLedger::default();
    let verdict = serde_json::to_string(&verdict(1, Some((42, 1000)), vec![43])).expect("serialises");
    earlier.push(Fault::Earlier { time: "2026-11-20T12:00:00.123Z".to_owned(), verdict });
    assert_eq!(earlier.list(OWNER, None, WIDE), own.list(OWNER, None, WIDE));
    assert_eq!(earlier.list(OWNER, None, JSON), own.list(OWNER, None, JSON));
    assert_eq!(earlier.list(ALICE, None, JSON), Vec::<String>::new());
    let mut nonsense = FaultLedger::default();
    nonsense.push(Fault::Earlier { time: "\x1b[2J".to_owned(), verdict: "[1, {\"culprit\": 7}]".to_owned() });
    assert_eq!(nonsense.list(OWNER, None, WIDE).len(), 2);
}

#[test]
fn a_server_that_is_killed_for_a_fault_says_so_as_long_as_it_is_there() {
    let mut snapshot = snapshot();
    let server = &mut snapshot.servers[0];
    (server.phase, server.early_end) = (ServerPhase::Ending, Some(EarlyEnd::AllHaveSpares));
    assert!(status(snapshot.clone(), OWNER, Form::Wide).iter().any(|line| line.contains("ending after a fault")));
    let lines = status(snapshot, OWNER, Form::Json).join("\n");
    let value: Value = serde_json::from_str(&lines).expect("whole JSON");
    assert_eq!(value["servers"][0]["early_end"], "all-have-spares");
}

#[test]
fn status_as_json_is_one_object_whatever_is_in_it() {
    let mut snapshot = snapshot();
    snapshot.clients = (0..200).map(|pid| client(pid, 1000, ClientPhase::Live)).collect();
    snapshot.clients[3].identity.cgroup = "/x".repeat(4000);
    let lines = status(snapshot, OWNER, Form::Json);
    assert!(lines.iter().all(|line| line.len() <= LINE_LIMIT), "a line is too long");
    let value: Value = serde_json::from_str(&lines.join("\n")).expect("whole JSON");
    assert_eq!(value["clients"].as_array().map(Vec::len), Some(200));
    assert_eq!(value["ready"], true);
    assert_eq!(value["servers"][0]["phase"], "active");
}

#[test]
fn status_shows_a_user_his_own() {
    let mine = status(snapshot(), ALICE, Form::Table).join("\n");
    assert!(mine.contains("job-of-1000\\u{a}") && !mine.contains("1001"), "{mine}");
    let all = status(snapshot(), OWNER, Form::Table).join("\n");
    assert!(
        all.contains("job-of-1001") && all.contains("Witness uvm-event: follows 1 client, can't follow 1"),
        "{all}"
    );
    assert!(
        all.contains("1h02m") && all.contains("READY FOR  MEMORY") && all.contains("69 MiB") && !all.contains("gone"),
        "{all}"
    );
}

#[test]
fn witnesses_are_told_in_words_that_say_whether_something_is_wrong() {
    let mut snapshot = snapshot();
    let missing = Some(Presence::Absent.to_string());
    snapshot.witnesses = vec![
        WitnessFacts { name: "uvm-event", missing: None, attached: Some(2), refused: 0 },
        WitnessFacts { name: "xid", missing: Some("switched off".to_owned()), attached: None, refused: 0 },
        WitnessFacts { name: "notice", missing, attached: None, refused: 0 },
    ];
    let lines = status(snapshot, OWNER, Form::Table);
    assert_eq!(
        lines[1..4],
        [
            "Witness uvm-event: follows 2 clients",
            "Witness xid: missing: switched off",
            "Patched module: not installed (optional)"
        ]
    );
}

#[test]
fn status_says_whose_a_quarantine_is_below_the_domains() {
    let mut snapshot = snapshot();
    snapshot.domains[0].name = "q1".to_owned();
    snapshot.domains[0].quarantined = true;
    snapshot.domains[0].quarantine_of = Some("train.py of user 1000 in /kubepods.slice/\x1b".to_owned());
    let lines = status(snapshot.clone(), OWNER, Form::Table);
    let at = lines.iter().position(|line| line.starts_with("q1 is the quarantine of")).expect("it is told");
    assert_eq!(lines[at], "q1 is the quarantine of train.py of user 1000 in /kubepods.slice/\\u{1b}");
    assert!(lines[..at].iter().any(|line| line.starts_with("q1 ") && line.contains("quarantine")), "{lines:?}");
    assert!(status(snapshot, BOB, Form::Table).iter().all(|line| !line.contains("train.py")), "others' are not shown");
}

#[test]
fn readiness_is_lost_by_quitting_a_missing_holder_or_every_domains_failure() {
    assert_eq!(snapshot().obstacles(), Vec::<String>::new());
    let mut broken = snapshot();
    broken.domains.remove(0);
    assert_eq!(broken.obstacles().len(), 1);
    broken.daemon.quitting = true;
    broken.daemon.obstacles.push("the holder is gone".to_owned());
    assert_eq!(broken.obstacles().len(), 3);
    assert!(status(broken, OWNER, Form::Wide)[0].contains("not ready: the daemon is about to end, the holder is gone"));
}

#[test]
fn what_the_daemon_does_without_is_the_last_that_status_says_and_it_is_ready_all_the_same() {
    let mut snapshot = snapshot();
    assert!(!status(snapshot.clone(), OWNER, Form::Table).iter().any(|line| line.starts_with("Degraded")));
    snapshot.daemon.degraded = vec![
        Degradation { part: "metrics", text: "127.0.0.1:9401: in use".to_owned() },
        Degradation { part: "log", text: "/logs/\u{1b}: no space".to_owned() },
    ];
    let lines = status(snapshot.clone(), ALICE, Form::Table);
    let end = ["", "Degraded:", "  metrics: 127.0.0.1:9401: in use", "  log: /logs/\\u{1b}: no space"];
    assert_eq!(lines[lines.len() - end.len()..], end);
    assert!(lines[0].ends_with(", ready"), "{}", lines[0]);
    let json: Value = serde_json::from_str(&status(snapshot, OWNER, Form::Json).join("\n")).expect("whole JSON");
    assert_eq!(json["degraded"][0], serde_json::json!({"part": "metrics", "text": "127.0.0.1:9401: in use"}));
    assert_eq!((&json["ready"], json["degraded"].as_array().map(Vec::len)), (&Value::Bool(true), Some(2)));
}

#[test]
fn a_client_of_somebody_else_is_answered_like_one_that_does_not_exist() {
    let snapshot = snapshot();
    let state = client_state(&snapshot, ALICE, 42, Form::Table).unwrap().join("\n");
    assert!(state.contains("state:            live") && state.contains("command:          job-of-1000"), "{state}");
    assert_eq!(client_state(&snapshot, BOB, 42, Form::Json).unwrap_err(), ["Client 42 not found"]);
    assert_eq!(client_state(&snapshot, BOB, 99, Form::Json).unwrap_err(), ["Client 99 not found"]);
    assert!(client_state(&snapshot, OWNER, 44, Form::Table).unwrap().join("\n").contains("killed by signal 9"));
    let json = client_state(&snapshot, OWNER, 43, Form::Json).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json[0]).expect("JSON")["phase"], "waiting");
}

#[test]
fn channels_are_listed_by_client() {
    let snapshot = snapshot();
    let all = channel_list(&snapshot, OWNER, None, Form::Table).unwrap();
    assert_eq!(all[1], "42      1000  519     -        0x2a     -    patched-module");
    assert_eq!(channel_list(&snapshot, ALICE, Some(42), Form::Table).unwrap(), all);
    assert_eq!(channel_list(&snapshot, BOB, Some(42), Form::Table).unwrap_err(), ["Client 42 not found"]);
    assert_eq!(
        channel_list(&snapshot, OWNER, Some(43), Form::Table).unwrap().len(),
        1,
        "a client without a known channel"
    );
    assert_eq!(channel_list(&snapshot, BOB, None, Form::Json).unwrap(), Vec::<String>::new());
}

#[test]
fn an_event_is_told_with_its_values_and_nothing_that_moves_the_cursor() {
    let event = serde_json::json!({
        "seq": 9, "time": "2026-11-20T12:00:00.123Z", "event": "client-ended",
        "process": {"pid": 42, "start_time": 77}, "uid": 1000, "domain": "user 1000", "server": 519,
        "end": {"signaled": 9}, "incident": null, "text": "a\u{1b}[2J\"b\"", "gpus": ["GPU-1", "GPU-2"],
    });
    assert_eq!(
        event_line(&event, false),
        "2026-11-20T12:00:00.123Z client-ended pid=42 domain=\"user 1000\" server=519 end.signaled=9 gpus=GPU-1,GPU-2 \
         start_time=77 text=\"a\\u{1b}[2J\\\"b\\\"\" uid=1000"
    );
    assert!(event_line(&event, true).starts_with("2026-11-20 12:00:00.123Z client-ended pid=42"));
    assert_eq!(event_line(&serde_json::json!(null), false), "- -");
}

#[test]
fn a_verdict_is_told_with_each_value_under_a_name_of_its_own() {
    let verdict = verdict(3, Some((42, 1000)), vec![43, 44]);
    let event = serde_json::json!({"time": "t", "event": "verdict", "verdict": verdict, "users": [1000]});
    let line = event_line(&event, false);
    let head = "t verdict culprit.pid=42 domain=\"user 1000\" server=519 confidence=certain culprit.cgroup=";
    assert!(line.starts_with(head), "{line}");
    for pair in
        [" kind=\"memory fault\"", " fault.kind=\"invalid PTE\"", " fault.address=0x7f001000", " culprit.uid=1000"]
    {
        assert!(line.contains(pair), "{pair} in {line}");
    }
    assert!(line.contains(" victims=43,44 ") && line.contains(" witnesses=uvm-event"), "{line}");
    assert!(!line.contains("users="), "who may see it is no value of it: {line}");
}
