//! An event as one line of text.

use super::*;

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
