//! Which events belong to a fault, how long, and how many.

use super::*;
use remps_proto::admin::Form;
use serde_json::json;

const OWNER: Viewer = Viewer { uid: 0, privileged: true, within: None };
const JSON: Output = Output { form: Form::Json, utc: false };

/// Events as the journal has them, a second apart.
#[derive(Default)]
struct Told {
    incidents: Incidents,
    seconds: u64,
}

impl Told {
    fn event(&mut self, event: Value) {
        let mut event = event;
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + self.seconds);
        event["time"] = Value::String(humantime::format_rfc3339_micros(time).to_string());
        self.seconds += 1;
        self.incidents.push(&Arc::new(Remembered::earlier(event.to_string())));
    }

    fn fault(&mut self, incident: u64, number: u64, server: u64) {
        let domain = format!("user {server}");
        self.event(json!({"event": "fault-sign", "incident": incident, "server": server, "domain": domain}));
        self.event(json!({"event": "verdict", "verdict": {"number": number, "incident": incident, "server": server,
            "domain": domain, "culprit": {"pid": 42}, "victims": [43]}}));
    }

    fn admission(&mut self, pid: u64, server: u64) {
        self.event(json!({"event": "client-admitted", "process": {"pid": pid}, "server": server}));
    }

    fn words(&self, fault: u32) -> Option<Vec<String>> {
        let lines = self.incidents.list(OWNER, fault, JSON)?;
        let word = |line: &String| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().to_owned();
        Some(lines.iter().map(word).collect())
    }
}

#[test]
fn a_fault_has_its_own_events_and_those_of_whom_it_concerns() {
    let mut told = Told::default();
    told.admission(42, 7);
    told.fault(1, 5, 7);
    for event in [
        json!({"event": "culprit-sanctioned", "verdict": 5, "process": {"pid": 42}}),
        json!({"event": "culprit-sanctioned", "verdict": 6, "process": {"pid": 42}}),
        json!({"event": "server-started", "server": 8, "domain": "user 7"}),
        json!({"event": "server-started", "server": 9, "domain": "user 1"}),
        json!({"event": "server-swapped", "incident": 1, "from": 7, "to": 8}),
        json!({"event": "client-ended", "process": {"pid": 43}, "incident": 1}),
        json!({"event": "client-ended", "process": {"pid": 99}, "incident": null}),
        json!({"event": "server-exited", "server": 7}),
        json!({"event": "server-exited", "server": 9}),
    ] {
        told.event(event);
    }
    told.admission(42, 8);
    told.admission(77, 7);
    let own = ["fault-sign", "verdict", "culprit-sanctioned", "server-started", "server-swapped", "client-ended"];
    assert_eq!(told.words(5).unwrap(), [&own[..], &["server-exited", "client-admitted"]].concat());
    assert_eq!(told.words(6), None);
    let stranger = Viewer { uid: 7, privileged: false, within: None };
    assert_eq!(told.incidents.list(stranger, 5, JSON), None, "an earlier daemon's are the owner's");
}

#[test]
fn each_client_has_recovered_from_a_fault_once_whether_the_verdict_knows_it_yet_or_not() {
    let mut told = Told::default();
    let recovered =
        |pid: u64, domain: &str| json!({"event": "client-recovered", "process": {"pid": pid}, "domain": domain});
    told.event(recovered(44, "user 7"));
    told.event(json!({"event": "fault-sign", "incident": 1, "server": 7, "domain": "user 7"}));
    for event in [recovered(43, "user 7"), recovered(43, "user 7"), recovered(44, "user 8"), recovered(99, "user 7")] {
        told.event(event);
    }
    told.event(json!({"event": "verdict", "verdict": {"number": 5, "incident": 1, "server": 7, "domain": "user 7",
        "culprit": {"pid": 42}, "victims": [43, 44]}}));
    for event in [recovered(43, "user 7"), recovered(44, "user 7"), recovered(44, "user 7"), recovered(99, "user 7")] {
        told.event(event);
    }
    let own = ["fault-sign", "client-recovered", "verdict", "client-recovered"];
    assert_eq!(told.words(5).unwrap(), own, "its own of 43 and 44, no other one's and no other fault's");
    let pids: Vec<u64> = told
        .incidents
        .list(OWNER, 5, JSON)
        .unwrap()
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["process"]["pid"].as_u64())
        .collect();
    assert_eq!(pids, [43, 44]);
}

#[test]
fn that_a_client_is_not_recovered_is_of_its_fault_once_and_in_no_ones_way_who_is_later() {
    let mut told = Told::default();
    let says = |event: &str| json!({"event": event, "process": {"pid": 43}, "domain": "user 7"});
    told.event(json!({"event": "fault-sign", "incident": 1, "server": 7, "domain": "user 7"}));
    told.event(says("client-unrecovered"));
    told.event(json!({"event": "verdict", "verdict": {"number": 5, "incident": 1, "server": 7, "domain": "user 7",
        "culprit": {"pid": 42}, "victims": [43]}}));
    for event in ["client-unrecovered", "client-recovered", "client-unrecovered"] {
        told.event(says(event));
    }
    let own = ["fault-sign", "client-unrecovered", "verdict", "client-recovered"];
    assert_eq!(told.words(5).unwrap(), own);
}

#[test]
fn newcomers_and_time_are_bounded_and_another_daemon_has_incidents_of_its_own() {
    let mut told = Told::default();
    told.fault(1, 1, 7);
    told.event(json!({"event": "server-swapped", "incident": 1, "from": 7, "to": 8}));
    for pid in 100..1000 {
        told.admission(pid, 8);
    }
    let admitted =
        |told: &Told, fault| told.words(fault).unwrap().iter().filter(|word| *word == "client-admitted").count();
    assert_eq!(admitted(&told, 1), 4);
    told.event(json!({"event": "server-exited", "server": 7}));
    assert!(!told.words(1).unwrap().contains(&"server-exited".to_owned()), "that was much later");
    told.fault(2, 2, 9);
    told.event(json!({"event": "daemon-started"}));
    told.fault(2, 1, 9);
    told.event(json!({"event": "client-ended", "process": {"pid": 43}, "incident": 2}));
    assert_eq!(told.words(1).unwrap(), ["fault-sign", "verdict", "client-ended"], "the newest with that number");
    assert_eq!(told.words(2).unwrap(), ["fault-sign", "verdict"]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut told = Told::default();
    for fault in 1..1000 {
        told.fault(fault, fault, 7);
        for _ in 0..100 {
            told.event(json!({"event": "client-ended", "incident": fault, "text": "x".repeat(100)}));
        }
        for pid in 0..100 {
            let process = json!({"pid": pid});
            told.event(json!({"event": "client-recovered", "process": process, "domain": "user 7"}));
        }
    }
    let bytes = |told: &Told| told.incidents.incidents.iter().map(|incident| incident.bytes).sum::<usize>();
    assert_eq!(told.incidents.bytes, bytes(&told));
    assert!(told.incidents.bytes <= MOST_BYTES && told.incidents.incidents.len() > 3);
    assert_eq!(told.words(999).unwrap().len(), MOST_EVENTS);
    assert_eq!(told.words(1), None);
}
