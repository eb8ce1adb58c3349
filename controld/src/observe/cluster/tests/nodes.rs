//! Many nodes of a cluster at once, each with its journal, its metrics and its Events, and one API server for all of them on
//! loopback.
//!
//! `REMPS_LONG=1` makes a thousand of them, and what an event costs is printed for `integration/nodes/run`, which makes a
//! report of it: `.ci/long nodes`.

use super::fakes::Api;
use super::*;
use crate::core::JournalEvent;
use crate::core::picture::Snapshot;
use crate::observe::journal::FILE_NAME;
use crate::observe::metrics::Extras;
use crate::observe::recorder::Recorder;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Faults on each node.
const FAULTS: u64 = 3;
/// Events of the journal for each.
const LINES: u64 = 4;
/// Pods that a fault concerns.
const PODS: u64 = 2;

/// A node's.
struct Node {
    recorder: Recorder,
    folder: tempfile::TempDir,
    name: String,
}

impl Node {
    fn begin(number: usize, api: &Api) -> Self {
        let (folder, name) = (tempfile::tempdir().unwrap(), format!("node-{number}"));
        let mut recorder = Recorder::new(Some((folder.path(), u64::MAX)), false);
        let config = Config { node: name.clone(), ..config_of(api) };
        recorder.tell_these(Cluster::begin_with(config, HASTY).expect("a thread"));
        Self { recorder, folder, name }
    }

    /// One fault, as the core tells of it.
    fn fault(&mut self, number: u64) {
        let mut told = announcement(number);
        let rename = |suspect: &mut Suspect| {
            if let (Some(pod), Some(names)) = (&mut suspect.identity.pod, &mut suspect.identity.names) {
                *pod = format!("{pod}-on-{}", self.name);
                names.pod_name = format!("{}-on-{}", names.pod_name, self.name);
            }
        };
        told.verdict.culprit.iter_mut().chain(&mut told.victims).for_each(rename);
        let (server, epoch, uid, domain) = (500, ServerEpoch(number), 1000, "uid 1000".to_owned());
        let start = Duration::from_millis(700);
        let events = [
            JournalEvent::ServerReady { epoch, server, uid, domain: domain.clone(), start },
            JournalEvent::EventsSuppressed { uid: Some(uid), count: 1 },
            JournalEvent::Verdict { verdict: told.verdict.clone(), users: vec![1000] },
            JournalEvent::DaemonEnded { status: 0 },
        ];
        for event in &events {
            assert_eq!(self.recorder.record(event, SystemTime::now()), None, "the journal takes it");
        }
        self.recorder.announce(told);
    }

    fn has_all(&self) {
        let metrics = self.recorder.openmetrics(&Snapshot::blank(), Extras::default());
        for event in ["verdict", "server-ready", "daemon-ended"] {
            let sample = format!("mps_events_total{{event=\"{event}\"}} {FAULTS}");
            assert!(metrics.lines().any(|line| line == sample), "{sample} of {} in\n{metrics}", self.name);
        }
        has_every_line(self.folder.path());
    }
}

fn has_every_line(folder: &Path) {
    let text = std::fs::read_to_string(folder.join(FILE_NAME)).unwrap();
    let numbers: Vec<u64> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a whole line")["seq"].as_u64().expect("a number"))
        .collect();
    assert_eq!(numbers, (1..=FAULTS * LINES).collect::<Vec<_>>());
}

#[test]
fn no_event_of_many_nodes_is_lost_on_its_way() {
    let nodes = if std::env::var_os("REMPS_LONG").is_some_and(|value| value == "1") { 1000 } else { 20 };
    // Each node has a thread with its descriptors.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let api = Api::begin(vec![]);
    let mut all: Vec<Node> = (0..nodes).map(|number| Node::begin(number, &api)).collect();
    let begun = Instant::now();
    for number in 1..=FAULTS {
        all.iter_mut().for_each(|node| node.fault(number));
    }
    let recorded = begun.elapsed();
    all.iter().for_each(Node::has_all);
    let (told, folders): (Vec<Recorder>, Vec<tempfile::TempDir>) =
        all.into_iter().map(|node| (node.recorder, node.folder)).unzip();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for recorder in told {
        assert_eq!(runtime.block_on(recorder.end_within(Duration::from_secs(3600))), None, "all is told");
    }
    let delivered = begun.elapsed();
    let requests = api.requests(0);
    let names: BTreeSet<String> = requests.iter().map(|request| request.body["metadata"]["name"].to_string()).collect();
    let (nodes, events) = (nodes as u64, nodes as u64 * FAULTS * PODS);
    assert_eq!(
        (requests.len() as u64, names.len() as u64),
        (events, events),
        "each Event once, under a name of its own"
    );
    let of_nodes: BTreeSet<&str> = requests.iter().filter_map(|one| one.body["reportingInstance"].as_str()).collect();
    assert_eq!(of_nodes.len() as u64, nodes);
    folders.iter().for_each(|folder| has_every_line(folder.path()));
    let lines = nodes * FAULTS * LINES;
    let record_us = recorded.as_secs_f64() * 1e6 / lines as f64;
    let tell_ms = delivered.as_secs_f64() * 1e3 / events as f64;
    let said = json!({"nodes": nodes, "lines": lines, "events": events, "record_us": record_us, "tell_ms": tell_ms});
    println!("nodes: {said}");
}
