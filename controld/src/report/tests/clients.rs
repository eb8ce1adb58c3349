//! What is told of one client: its state, its last recovery, its channels.

use super::*;
use crate::core::picture::{RecoveryFacts, RefusalFacts, SpareFacts};
use crate::core::{ClientRecovery, ClientRefusal};
use remps_proto::shim::{Recovered, Unrecovered, Way};

#[test]
fn what_the_last_recovery_of_a_client_took_is_shown_wide_and_as_json() {
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
fn what_a_spare_copy_takes_of_its_process_is_shown_of_the_client_and_as_json() {
    let mut snapshot = snapshot();
    let spare = SpareFacts { ready: true, connections: 2, threads: 4, host_bytes: 45 << 20, ..SpareFacts::default() };
    let told = |spare: SpareFacts, snapshot: &mut Snapshot| {
        snapshot.clients[0].spare = Some(spare);
        let state = client_state(snapshot, OWNER, 42, Form::Table).unwrap().join("\n");
        let json: Value = serde_json::from_str(&status(snapshot.clone(), OWNER, Form::Json).join("\n")).unwrap();
        (state, json["clients"][0]["spare"].clone())
    };
    let (state, json) = told(spare.clone(), &mut snapshot);
    assert!(state.contains("ready, 4 threads, 45 MiB of the host's memory"), "{state}");
    assert_eq!((&json["threads"], &json["host_bytes"]), (&Value::from(4), &Value::from(45 << 20)));
    // Nobody has counted it yet.
    let (state, json) = told(SpareFacts { threads: 0, host_bytes: 0, ..spare }, &mut snapshot);
    assert!(state.contains("ready") && !state.contains("threads"), "{state}");
    assert_eq!(json["host_bytes"], 0);
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
