//! The text against what its readers take, its bounds, and what it must not tell.

mod agreement;

use super::*;
use crate::core::picture::{
    ClientFacts, ClientPhase, DaemonFacts, DomainFacts, DomainPhase, FuneralFacts, ServerFacts, ServerPhase,
    WitnessFacts,
};
use crate::core::{ProcessKey, ServerEpoch, SuspectIdentity};
use proptest::strategy::{Strategy as _, ValueTree as _};
use serde_json::Value;
use std::collections::BTreeMap;

fn snapshot() -> Snapshot {
    let daemon = DaemonFacts { driver: Some("580.159.04".to_owned()), ..DaemonFacts::blank() };
    let witnesses = vec![WitnessFacts { name: "uvm-event", missing: None, attached: Some(3), refused: 0 }];
    Snapshot { daemon, witnesses, ..Snapshot::blank() }
}

/// A picture with one of everything.
fn full() -> Snapshot {
    let process = ProcessKey { pid: 42, start_time: 7 };
    let (uid, domain) = (1000, "user 1000".to_owned());
    let mut snapshot = snapshot();
    let (gpu, place) = ("GPU-1".to_owned(), "GPC 1, TPC 2".to_owned());
    snapshot.suspicions.push(crate::core::Suspicion { gpu, place, faults: 3 });
    snapshot.domains.push(DomainFacts {
        entrance: None,
        name: domain.clone(),
        uid,
        phase: DomainPhase::Serving,
        server: Some(519),
        standby: None,
        clients: 1,
        max_clients: Some(16),
        waiting: 2,
        quarantined: false,
        quarantine_of: None,
        retry: None,
    });
    snapshot.servers.push(ServerFacts {
        threads: Some(100.0),
        entrance: None,
        gpus: vec![],
        spoilt_gpus: vec![],
        early_end: None,
        epoch: ServerEpoch(1),
        pid: Some(519),
        uid,
        domain: domain.clone(),
        phase: ServerPhase::Standby,
        clients: 1,
        ready: Some(Duration::ZERO),
        memory_bytes: Some(69 << 20),
    });
    snapshot.clients.push(ClientFacts {
        seen_as: None,
        threads: Some(100.0),
        memory_bytes: None,
        pid_namespace: None,
        spare: None,
        recovery: None,
        unrecovered: None,
        gpus: None,
        process,
        uid,
        domain: domain.clone(),
        phase: ClientPhase::Live,
        server: Some(519),
        contexts: 1,
        waited: None,
        identity: SuspectIdentity { command: "/opt/bin/train --token=secret".to_owned(), ..SuspectIdentity::default() },
        label: None,
        tracked: true,
        descriptors: 2,
        verdicts: vec![],
        end: None,
    });
    let (descriptors, pinned_bytes, held) = (3, Some(1 << 30), Duration::ZERO);
    snapshot.funerals.push(FuneralFacts { process, uid, domain, descriptors, pinned_bytes, held, endless: true });
    snapshot
}

#[test]
fn gauges_tell_what_the_picture_shows() {
    let metrics = Metrics::new(false);
    let now = samples(&metrics.openmetrics(&full(), Extras { fifo_garbage: 9, ..Extras::default() }));
    let labels = "domain=\"user 1000\",uid=\"1000\"";
    for (series, value) in [
        (format!("mps_clients{{{labels}}}"), 1.0),
        (format!("mps_clients_limit{{{labels}}}"), 16.0),
        (format!("mps_clients_pending{{{labels}}}"), 2.0),
        (format!("mps_server_state{{{labels},state=\"standby\"}}"), 1.0),
        (format!("mps_server_state{{{labels},state=\"fault\"}}"), 0.0),
        (format!("mps_server_memory_bytes{{{labels},state=\"standby\"}}"), f64::from(69 << 20)),
        (format!("mps_funerals_held{{{labels}}}"), 1.0),
        (format!("mps_funerals_endless{{{labels}}}"), 1.0),
        (format!("mps_funeral_pinned_bytes{{{labels}}}"), f64::from(1 << 30)),
        ("mps_held_descriptors{of=\"living\"}".to_owned(), 2.0),
        ("mps_held_descriptors{of=\"dead\"}".to_owned(), 3.0),
        ("mps_witness_attached{witness=\"uvm-event\"}".to_owned(), 3.0),
        ("mps_witness_up{witness=\"uvm-event\"}".to_owned(), 1.0),
        ("mps_faults_total".to_owned(), 0.0),
        ("mps_log_garbage_bytes_total".to_owned(), 9.0),
        ("mps_ready".to_owned(), 1.0),
    ] {
        assert_eq!(now.get(&series), Some(&value), "{series} of {now:#?}");
    }
}

#[test]
fn processes_are_told_only_when_asked_for_and_never_with_their_arguments() {
    let text = |with_pids| Metrics::new(with_pids).openmetrics(&full(), Extras::default());
    assert!(!text(false).contains("pid=\"") && !text(false).contains("server=\""), "{}", text(false));
    let told = text(true);
    assert!(
        told.contains("comm=\"train\"") && told.contains("pid=\"42\"") && told.contains("server=\"519\""),
        "{told}"
    );
    assert!(!told.contains("secret"), "{told}");
}

/// The samples of a text, by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// The sum of all series of a metric whose labels contain each of these.
fn sum(samples: &BTreeMap<String, f64>, name: &str, labels: &[&str]) -> f64 {
    let of = |series: &str| series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label));
    samples.iter().filter(|(series, _)| of(series)).map(|(_, value)| value).sum()
}

#[test]
fn the_classic_text_names_counters_as_their_samples() {
    let mut metrics = Metrics::new(false);
    metrics.command("status", CommandResult::Answered, UserClass::Root, Duration::from_millis(2));
    let openmetrics = metrics.openmetrics(&snapshot(), Extras::default());
    assert!(openmetrics.ends_with("# EOF\n") && openmetrics.contains("# TYPE mps_commands counter\n"), "{openmetrics}");
    let classic = classic(&openmetrics);
    let want = "# HELP mps_commands_total Commands of the command line.\n# TYPE mps_commands_total counter\n\
                mps_commands_total{command=\"status\",result=\"answered\",uid_class=\"root\"} 1\n";
    assert!(classic.contains(want), "{classic}");
    assert!(classic.contains("# TYPE mps_command_seconds histogram\n") && !classic.contains("EOF"));
    assert_eq!(samples(&classic), samples(&openmetrics));
    // Every sample stands behind the type of its family.
    let mut families = Vec::new();
    for line in classic.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert!(!families.contains(&name), "{name} comes twice");
            families.push(name);
        } else if !line.starts_with('#') {
            assert!(line.starts_with(families.last().expect("a type first")), "{line}");
        }
    }
}

#[test]
fn no_number_of_domains_makes_more_than_a_bounded_number_of_series() {
    let mut metrics = Metrics::new(false);
    let mut snapshot = snapshot();
    for index in 0..3000 {
        let name = format!("client {index}");
        metrics.observe(&JournalEvent::ClientAdmitted {
            process: ProcessKey { pid: index, start_time: 0 },
            uid: 1000,
            domain: name.clone(),
            server: 1,
            waited: Duration::ZERO,
        });
        snapshot.domains.push(DomainFacts {
            entrance: None,
            name,
            uid: 1000,
            phase: DomainPhase::Serving,
            server: None,
            standby: None,
            clients: 2,
            max_clients: None,
            waiting: 0,
            quarantined: false,
            quarantine_of: None,
            retry: None,
        });
    }
    let text = metrics.openmetrics(&snapshot, Extras::default());
    assert!(text.len() < 1 << 20, "{}", text.len());
    let samples = samples(&text);
    assert_eq!(sum(&samples, "mps_clients_admitted_total", &[]), 3000.0);
    assert_eq!(sum(&samples, "mps_client_wait_seconds_count", &[]), 3000.0);
    assert_eq!(sum(&samples, "mps_clients", &[]), 6000.0);
    assert!(sum(&samples, "mps_clients_admitted_total", &["(other)"]) >= 2400.0);
}

#[test]
fn labels_from_outside_stay_inside_their_quotes() {
    let mut snapshot = snapshot();
    snapshot.daemon.driver = Some("a\"} 1\nforged 2\\".to_owned());
    let text = Metrics::new(false).openmetrics(&snapshot, Extras::default());
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    assert!(text.contains("driver=\"a\\\"} 1\\nforged 2\\\\\""), "{text}");
}

/// Every name that begins with `mps_` in a text.
fn names(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("mps_")).map(str::to_owned).collect()
}

#[test]
fn every_metric_that_the_dashboard_and_the_alerts_ask_for_exists() {
    let dashboard = include_str!("../../../../packaging/grafana/remps.json");
    let rules = include_str!("../../../../packaging/prometheus/remps.rules.yaml");
    let value: Value = serde_json::from_str(dashboard).expect("the dashboard is JSON");
    let ids: Vec<&Value> = value["panels"].as_array().expect("panels").iter().map(|panel| &panel["id"]).collect();
    assert!(ids.iter().enumerate().all(|(index, id)| !ids[..index].contains(id)), "each panel has its own number");
    // A family is in the text once it has a series.
    let mut metrics = Metrics::new(true);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..400 {
        metrics.observe(&agreement::event().new_tree(&mut runner).expect("an event").current());
    }
    for way in 0..5 {
        metrics.observe(&recovered_by(way));
    }
    metrics.observe(&refused(1));
    metrics.command("status", CommandResult::Answered, UserClass::Root, Duration::ZERO);
    let text = classic(&metrics.openmetrics(&full(), Extras::default()));
    let mut served = std::collections::BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        served.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    for way in ["no_spare", "spare_failed"] {
        assert!(
            rules.contains(way) && text.contains(&format!("way=\"{way}\"")),
            "{way} is what is asked for and served"
        );
    }
    assert!(text.contains("state=\"making\""), "{text}");
    let asked: Vec<String> = names(dashboard).into_iter().chain(names(rules)).collect();
    assert!(asked.len() > 40, "the texts were read");
    for name in asked {
        assert!(served.contains(&name), "{name} is asked for and not served:\n{served:#?}");
    }
}

/// A program says that it has gone on in this way.
fn recovered_by(way: u32) -> JournalEvent {
    use remps_proto::shim::{MOST_STEPS, Recovered, Way};
    let (steps_us, switch_us) = (vec![10_000; MOST_STEPS], vec![1_000; MOST_STEPS]);
    let said = Recovered { number: 1, way: Way(way), error: 700, total_us: 500_000, steps_us, switch_us };
    JournalEvent::ClientRecovered {
        process: ProcessKey { pid: 42, start_time: 7 },
        uid: 1000,
        domain: "user 1000".to_owned(),
        server: Some(519),
        recovery: crate::core::ClientRecovery::of(&said),
    }
}

#[test]
fn recoveries_of_clients_have_a_bounded_number_of_series_whatever_they_say() {
    let mut metrics = Metrics::new(false);
    for way in 0..1000 {
        metrics.observe(&recovered_by(way));
    }
    let text = metrics.openmetrics(&snapshot(), Extras::default());
    let now = samples(&text);
    let of = |name: &str| now.keys().filter(|series| series.starts_with(name)).count();
    assert_eq!(of("mps_client_recovery_seconds_count"), 5, "{text}");
    assert_eq!(of("mps_client_recovery_step_seconds_total"), 5 * 11, "{text}");
    assert_eq!(of("mps_client_switch_step_seconds_total"), 11, "{text}");
    let is = |series: &str, wanted: f64| assert!((now[series] - wanted).abs() < 1e-6, "{series} {}", now[series]);
    is("mps_client_recovery_seconds_count{way=\"spare\"}", 1.0);
    is("mps_client_recovery_seconds_sum{way=\"no_spare\"}", 0.5);
    is("mps_client_recovery_step_seconds_total{way=\"spare\",step=\"wait\"}", 0.01);
    is("mps_client_recovery_step_seconds_total{way=\"other\",step=\"other\"}", 996.0 * 22.0 * 0.01);
}

/// The first one is for good.
fn refused(number: u64) -> JournalEvent {
    use remps_proto::shim::Unrecovered;
    let reason = Unrecovered::words(&format!("reason {number}\"}} 1\n"));
    JournalEvent::ClientUnrecovered {
        process: ProcessKey { pid: 42, start_time: 7 },
        uid: 1000,
        domain: "user 1000".to_owned(),
        server: None,
        refusal: crate::core::ClientRefusal::of(Unrecovered { number, error: 719, reason, is_final: number == 1 }),
    }
}

#[test]
fn refused_recoveries_of_clients_are_counted_and_their_reasons_are_no_series() {
    let mut metrics = Metrics::new(false);
    for number in 1..=1000 {
        metrics.observe(&refused(number));
    }
    let text = metrics.openmetrics(&snapshot(), Extras::default());
    assert!(!text.contains("reason 1"), "{text}");
    for (is_final, count) in [("yes", 1), ("no", 999)] {
        let line = format!("mps_client_recoveries_refused_total{{final=\"{is_final}\"}} {count}\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
}
