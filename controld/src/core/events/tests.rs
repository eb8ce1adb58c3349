//! How events are written, and who may see them.

use super::*;
use crate::core::{Confidence, Suspect, SuspectIdentity, Testimony};
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../man/nvidia-cuda-mps-control-events.1");
const WORDS: &str = include_str!("names.rs");

const CULPRIT: Uid = 1000;
const VICTIM: Uid = 1001;
const STRANGER: Uid = 1002;

fn verdict() -> Verdict {
    let identity = SuspectIdentity { command: "train --secret".to_owned(), ..SuspectIdentity::default() };
    Verdict {
        number: 1,
        incident: 1,
        server: 7,
        epoch: ServerEpoch(3),
        domain: "user 1000".to_owned(),
        within: None,
        culprit: Some(Suspect { process: ProcessKey { pid: 42, start_time: 9 }, uid: CULPRIT, identity }),
        confidence: Confidence::Certain,
        kind: "memory fault",
        fault: None,
        isolated: false,
        channel: None,
        xid: None,
        victims: vec![43],
        gpus: vec![],
        spared: vec![],
        witnesses: vec![Testimony {
            witness: "xid",
            names: Some(43),
            after: Duration::from_millis(2),
            text: "name=secret".to_owned(),
        }],
        more_witnesses: 0,
        named_by_log: vec![],
        suspicion: None,
        delay: Duration::from_micros(400),
        corrects: None,
    }
}

fn json(event: &JournalEvent) -> String {
    serde_json::to_string(event).expect("serialises")
}

#[test]
fn an_event_is_one_flat_object_with_its_name() {
    let process = ProcessKey { pid: 42, start_time: 9 };
    let event = JournalEvent::ClientAdmitted {
        process,
        uid: CULPRIT,
        domain: "user 1000".to_owned(),
        server: 7,
        waited: Duration::from_micros(1500),
    };
    let want = r#"{"event":"client-admitted","process":{"pid":42,"start_time":9},"uid":1000,"domain":"user 1000","server":7,"waited_ms":1.5}"#;
    assert_eq!(json(&event), want);
    let event = JournalEvent::BreakerClosed { uid: 1, domain: "a".to_owned() };
    assert!(json(&event).contains(&format!(r#""event":"{}""#, event.name())));
}

#[test]
fn a_victim_learns_who_it_was_and_nothing_private_of_it() {
    let event = JournalEvent::Verdict { verdict: verdict(), users: vec![CULPRIT, VICTIM] };
    assert_eq!(event.seen_by(STRANGER), None);
    assert!(json(&event.seen_by(CULPRIT).expect("his own")).contains("secret"));
    let seen = json(&event.seen_by(VICTIM).expect("he was hit"));
    assert!(!seen.contains("secret") && seen.contains(r#""pid":42"#), "{seen}");
}

#[test]
fn a_user_sees_his_own_clients_and_the_daemon_alone() {
    let server = JournalEvent::BreakerClosed { uid: CULPRIT, domain: "user 1000".to_owned() };
    assert!(server.seen_by(CULPRIT).is_some() && server.seen_by(STRANGER).is_none());
    assert!(JournalEvent::DaemonEnded { status: 0 }.seen_by(STRANGER).is_some());
    let lost = JournalEvent::WitnessLost { witness: "uvm-event", process: None, count: 3 };
    assert_eq!(lost.seen_by(STRANGER), None);
}

#[test]
fn the_page_has_every_event_and_no_other() {
    let word = |line: &'static str| line.trim_start().strip_prefix("Self::")?.split('"').nth(1);
    let in_program: BTreeSet<&str> = WORDS.lines().filter_map(word).collect();
    let of_page = PAGE.lines().filter_map(|line| line.strip_prefix(".It Ic "));
    let in_page: Vec<&str> = of_page.flat_map(|names| names.split(" , ")).collect();
    assert_eq!(in_page.len(), in_program.len(), "one is there twice: {in_page:?}");
    assert_eq!(BTreeSet::from_iter(in_page), in_program);
}
