//! Journal and metrics against each other: random events through one recorder, counted again from the journal's text.

mod events;

pub(super) use events::event;

use super::*;
use crate::core::{
    ComputeMode, Confidence, End, ExitReason, FuneralEnd, HoldEnd, MemoryFault, ModeCause, RefusalReason, Sanction,
    Suspect, Verdict,
};
use crate::observe::journal::FILE_NAME;
use crate::observe::recorder::Recorder;
use proptest::prelude::*;
use std::time::SystemTime;

fn verdict(number: u64, named: bool, isolated: bool, victims: u32) -> Verdict {
    Verdict {
        number,
        incident: number,
        server: 519,
        epoch: ServerEpoch(1),
        domain: "user 1000".to_owned(),
        within: None,
        culprit: named.then(|| Suspect {
            process: ProcessKey { pid: 42, start_time: 7 },
            uid: 1000,
            identity: SuspectIdentity::default(),
        }),
        confidence: if named { Confidence::Certain } else { Confidence::Unknown },
        kind: "memory fault",
        fault: Some(MemoryFault {
            address: 1,
            access: crate::core::Access::Read,
            kind: "invalid PTE".to_owned(),
            gpu: Some("GPU-1".to_owned()),
        }),
        isolated,
        channel: None,
        xid: Some(31),
        victims: (0..victims).collect(),
        gpus: vec![],
        spared: vec![],
        witnesses: vec![],
        more_witnesses: 0,
        named_by_log: vec![],
        suspicion: None,
        delay: Duration::from_micros(300),
        corrects: None,
    }
}

#[test]
fn a_fault_is_counted_by_gpu_and_by_mig_instance_where_there_is_one() {
    let mut metrics = Metrics::new(false);
    let on = ["GPU-1", "GPU-1/MIG-5e900000-0000-0005", "GPU-1/gi6", "GPU-2/gi6"];
    for (number, gpu) in (1..).zip(on) {
        let gpus = vec![crate::core::Gpu::parse(gpu)];
        let verdict = Verdict { gpus, ..verdict(number, true, false, 2) };
        metrics.observe(&JournalEvent::Verdict { verdict, users: vec![] });
    }
    let now = samples(&metrics.openmetrics(&snapshot(), Extras::default()));
    let rest = "kind=\"memory fault\",role=\"victim\"";
    for (uuid, mig) in [("GPU-1", ""), ("GPU-1", "MIG-5e900000-0000-0005"), ("GPU-1", "gi6"), ("GPU-2", "gi6")] {
        let has_mig = |series: &str| {
            if mig.is_empty() { !series.contains("MIG=") } else { series.contains(&format!("MIG=\"{mig}\"")) }
        };
        let is_it = |series: &&String| series.contains(&format!("UUID=\"{uuid}\"")) && has_mig(series);
        let of = |name: &str| now.keys().filter(is_it).filter(|series| series.starts_with(name)).cloned().collect();
        let faults: Vec<String> = of("mps_client_faults_total");
        assert_eq!(faults.len(), 2, "culprit and victim of {uuid} {mig}: {now:#?}");
        let victims = faults.iter().find(|series| series.contains("role=\"victim\"")).expect(rest);
        assert_eq!(now[victims], 2.0);
        let isolations: Vec<String> = of("mps_client_isolations_total");
        assert_eq!(isolations.len(), 1, "{now:#?}");
    }
}

/// Counts a journal's lines again, from their text alone, and compares each number with the metrics'.
fn compare(journal: &str, samples: &BTreeMap<String, f64>) -> Result<(), TestCaseError> {
    let mut counts: BTreeMap<(&str, Vec<String>), f64> = BTreeMap::new();
    let mut add = |name: &'static str, labels: &[(&str, &str)], count: f64| {
        let labels = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        *counts.entry((name, labels)).or_default() += count;
    };
    for line in journal.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let event = text(&line["event"]);
        add("mps_events_total", &[("event", &event)], 1.0);
        let verdict = &line["verdict"];
        match event.as_str() {
            "client-admitted" => {
                add("mps_clients_admitted_total", &[("domain", &text(&line["domain"]))], 1.0);
                add("mps_client_wait_seconds_count", &[], 1.0);
                add("mps_client_wait_seconds_sum", &[], line["waited_ms"].as_f64().expect("a time") / 1e3);
            }
            "client-refused" => {
                add("mps_clients_refused_total", &[("reason", &text(&line["reason"]).replace('-', "_"))], 1.0);
            }
            "client-ended" => {
                let word = match &line["end"] {
                    Value::String(word) => word.replace("out-of-memory", "out_of_memory"),
                    end if end["signaled"].is_i64() => "signaled".to_owned(),
                    end if end["exited"] == 0 => "exited".to_owned(),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                        "failed".to_owned()
                    }
                };
                add("mps_client_ends_total", &[("end", &word)], 1.0);
            }
            "server-exited" => {
                add("mps_server_restarts_total", &[("reason", &text(&line["reason"]).replace('-', "_"))], 1.0);
            }
            "server-ended-early" => {
                add("mps_server_early_ends_total", &[("reason", &text(&line["reason"]).replace('-', "_"))], 1.0);
            }
            "burial-held" => {
                let reason = text(&line["reason"]).replace('-', "_");
                add("mps_burial_hold_seconds_count", &[("reason", &reason)], 1.0);
                add("mps_burial_hold_seconds_sum", &[], line["held_ms"].as_f64().expect("a time") / 1e3);
            }
            "server-start-failed" => add("mps_server_restarts_total", &[("reason", "exec_failed")], 1.0),
            "verdict" => {
                add("mps_faults_total", &[], 1.0);
                add("mps_verdicts_total", &[("confidence", &text(&verdict["confidence"]))], 1.0);
                let gpu = text(&verdict["fault"]["gpu"]);
                let culprits = f64::from(u8::from(!verdict["culprit"].is_null()));
                add("mps_client_faults_total", &[("UUID", &gpu), ("role", "culprit")], culprits);
                let isolated = verdict["isolated"] == true;
                let victims =
                    verdict["victims"].as_array().map_or(0, |victims| if isolated { 0 } else { victims.len() });
                add("mps_client_faults_total", &[("UUID", &gpu), ("role", "victim")], victims as f64);
                let result = if isolated { "isolated" } else { "escalated" };
                add("mps_client_isolations_total", &[("result", result)], 1.0);
                add("mps_recovery_seconds_count", &[("phase", "detect")], 1.0);
            }
            "verdict-corrected" => add("mps_verdict_corrections_total", &[], 1.0),
            "funeral-ended" => {
                add("mps_funerals_total", &[("reason", &text(&line["reason"]))], 1.0);
                add("mps_funeral_seconds_sum", &[], line["held_ms"].as_f64().expect("a time") / 1e3);
            }
            "witness-lost" => {
                add("mps_witness_lost_total", &[("witness", "uvm-event")], line["count"].as_f64().expect("a count"));
            }
            "server-ready" => {
                add("mps_server_start_seconds_sum", &[], line["start_ms"].as_f64().expect("a time") / 1e3);
            }
            "server-swapped" => {
                let seconds = line["after_ms"].as_f64().expect("a time") / 1e3;
                add("mps_recovery_seconds_sum", &[("phase", "respawn")], seconds);
            }
            "fault-sign" => add("mps_fault_signs_total", &[("witness", &text(&line["witness"]))], 1.0),
            "culprit-sanctioned" => {
                add("mps_culprit_sanctions_total", &[("sanction", &text(&line["sanction"]))], 1.0);
            }
            "victim-terminated" => add("mps_victims_terminated_total", &[], 1.0),
            "breaker-opened" => add("mps_breaker_opened_total", &[], 1.0),
            // Counted by their name alone, as all are.
            "compute-mode-changed" | "stranger-found" | "stranger-left" => {}
            "stranger-ended" => add("mps_stranger_ends_total", &[], 1.0),
            "region-escrowed" | "regions-released" | "regions-adopted" | "region-expired" => {}
            other => panic!("the test does not know {other}"),
        }
    }
    for ((name, labels), count) in counts {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let counted = sum(samples, name, &labels);
        prop_assert!(
            (counted - count).abs() < 1e-6,
            "{name} {labels:?}: the journal has {count}, the metrics {counted}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn journal_and_metrics_agree(events in prop::collection::vec(event(), 1..120)) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut recorder = Recorder::new(Some((folder.path(), u64::MAX)), false);
        for event in &events {
            prop_assert_eq!(recorder.record(event, SystemTime::now()), None);
        }
        let journal = std::fs::read_to_string(folder.path().join(FILE_NAME)).expect("written");
        prop_assert_eq!(journal.lines().count(), events.len());
        let text = recorder.openmetrics(&snapshot(), Extras::default());
        compare(&journal, &samples(&text))?;
        // Nothing is counted that the journal does not have.
        prop_assert_eq!(sum(&samples(&text), "mps_events_total", &[]), events.len() as f64);
    }
}

#[test]
fn faults_are_counted_for_the_pods_that_they_concern() {
    let mut metrics = Metrics::new(false);
    let of_pod = |pid, pod: &str| Suspect {
        process: ProcessKey { pid, start_time: 7 },
        uid: 1000,
        identity: SuspectIdentity {
            names: Some(Box::new(crate::core::PodNames {
                namespace: "research".to_owned(),
                pod_name: pod.to_owned(),
                container_name: "main".to_owned(),
            })),
            ..SuspectIdentity::default()
        },
    };
    let mut told = Announcement {
        verdict: Verdict { gpus: vec![crate::core::Gpu::parse("GPU-1/gi6")], ..verdict(1, true, false, 2) },
        // One of whom no name is known has no series.
        victims: vec![of_pod(0, "victim"), Suspect { identity: SuspectIdentity::default(), ..of_pod(1, "") }],
        index: None,
        bus: None,
    };
    told.verdict.culprit = Some(of_pod(42, "culprit"));
    metrics.announce(&told);
    // What is better known later adds no victims.
    told.verdict.corrects = Some(1);
    metrics.announce(&told);
    let text = metrics.openmetrics(&snapshot(), Extras::default());
    let samples = samples(&text);
    let culprits = sum(&samples, "mps_pod_faults_total", &["pod=\"culprit\"", "role=\"culprit\"", "GPU_I_ID=\"6\""]);
    let victims =
        sum(&samples, "mps_pod_faults_total", &["pod=\"victim\"", "role=\"victim\"", "namespace=\"research\""]);
    assert_eq!((culprits, victims), (2.0, 1.0), "{text}");
    // Pods without end are counted together from some number on.
    for number in 0..2000 {
        told.verdict.culprit = Some(of_pod(42, &format!("pod-{number}")));
        metrics.announce(&told);
    }
    let text = metrics.openmetrics(&snapshot(), Extras::default());
    assert!(text.matches("mps_pod_faults_total{").count() < 600, "bounded");
}
