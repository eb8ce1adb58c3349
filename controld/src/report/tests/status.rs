//! `status`: its tables and its JSON, what each user sees of it, and how it says that the daemon is not ready.

use super::*;
use crate::core::EarlyEnd;
use crate::core::picture::Degradation;
use crate::witness::notice::Presence;

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
