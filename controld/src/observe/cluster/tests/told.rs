//! What is said to whom: the note of an Event, as Flyte reads it, and a health event of NVSentinel's.

use super::*;
use std::collections::BTreeMap;

/// What Flyte reads of a note (`ParseEventMessage` of its `event.go`).
fn as_flyte_reads(note: &str) -> BTreeMap<String, String> {
    assert!(note.starts_with("[gpu-health]"), "{note}");
    let at = note.find(" xid=").expect("a tail");
    let tokens = note[at..].split_whitespace().filter_map(|token| token.split_once('='));
    tokens.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_note_of_an_event_is_what_flyte_reads() {
    let told = announcement(3);
    let culprit = told.verdict.culprit.as_ref().expect("there is one");
    let note = events::note(&told, culprit, true, NODE);
    assert_eq!(
        note,
        format!(
            "[gpu-health] [USER] Xid 31 (GPU memory page fault) on GPU 3 {UUID}. This pod's process caused it, by proof \
             (fault 3). xid=31 severity=user gpu_uuid={UUID} gpu_index=3 pci=0000:3b:00.0 node={NODE} pid=10 process=python3"
        )
    );
    let read = as_flyte_reads(&events::note(&told, &told.victims[0], false, NODE));
    assert_eq!((read["xid"].as_str(), read["severity"].as_str(), read["pid"].as_str()), ("31", "warn", "11"));
    assert_eq!(read.len(), 8, "{read:?}");
    // What nobody knows is not there, and no number is made up.
    let mut bare = announcement(4);
    (bare.index, bare.bus, bare.verdict.gpus, bare.verdict.xid) = (None, None, Vec::new(), None);
    assert_eq!(as_flyte_reads(&events::note(&bare, culprit, true, NODE))["xid"], "31", "a memory fault's");
    bare.verdict.kind = "fault";
    let note = events::note(&bare, culprit, true, NODE);
    assert!(note.starts_with("[gpu-health] [USER] Fault under MPS. ") && !note.contains("xid="), "{note}");
    assert_eq!(events::of(&bare, NODE, SystemTime::now())[0].body["reason"], "MPSFault");
}

#[test]
fn a_client_without_a_pid_is_told_of_by_the_machines_pid_or_by_none() {
    let mut told = announcement(3);
    let mut culprit = suspect((1 << 22) + 5, Some("culprit"));
    culprit.identity.container = Some("c0ffee".to_owned());
    let note = events::note(&told, &culprit, true, NODE);
    assert_eq!(as_flyte_reads(&note).get("pid"), None, "a number of the daemon's own says nothing to others: {note}");
    told.verdict.culprit = Some(culprit.clone());
    let event = &sentinel::event(&told, NODE, SystemTime::now()).events[0];
    assert_eq!(event.metadata["pid"], "");
    assert!(event.message.contains("caused by a process of container c0ffee;"), "{}", event.message);
    culprit.identity.seen_as = Some(4711);
    assert_eq!(as_flyte_reads(&events::note(&told, &culprit, true, NODE))["pid"], "4711");
    told.verdict.culprit = Some(culprit);
    let event = &sentinel::event(&told, NODE, SystemTime::now()).events[0];
    assert_eq!(event.metadata["pid"], "4711");
    assert!(event.message.contains("caused by process 4711;"), "{}", event.message);
}

#[test]
fn a_hardware_fault_is_told_as_what_it_is() {
    let mut told = announcement(1);
    told.verdict.xid = Some(79);
    let read = as_flyte_reads(&events::note(&told, &told.victims[0], false, NODE));
    assert_eq!(read["severity"], "critical");
    let event = &sentinel::event(&told, NODE, SystemTime::now()).events[0];
    assert_eq!((event.is_fatal, event.recommended_action()), (true, RecommendedAction::RestartBm));
}

#[test]
fn whatever_a_program_calls_itself_the_tail_of_a_note_is_whole() {
    let mut told = announcement(1);
    told.verdict.domain = "x".repeat(5000);
    let mut culprit = suspect(10, Some("culprit"));
    culprit.identity.command = "/opt/a=b\u{1}\u{e9}pid=9999999999999999999 --secret".to_owned();
    let note = events::note(&told, &culprit, true, &"n".repeat(253));
    assert!(note.len() <= 1024, "{}", note.len());
    let read = as_flyte_reads(&note);
    assert_eq!((read["pid"].as_str(), read["process"].as_str()), ("10", "a_b__pid_999999"));
}
