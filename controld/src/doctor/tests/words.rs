//! What is printed, and what of the manual page it is.

use super::Made;
use crate::doctor::gather::parse_gpus;
use crate::doctor::machine::Gpu;
use crate::doctor::report::{json, table};
use crate::doctor::{Finding, Severity, examine};
use remps_proto::admin::Form;

const PAGE: &str = include_str!("../../../../man/nvidia-cuda-mps-control-doctor.1");

fn findings() -> Vec<Finding> {
    let finding = |id, severity, what: &str, costs: &str, advice: &str| Finding {
        id,
        severity,
        what: what.to_owned(),
        costs: costs.to_owned(),
        advice: advice.to_owned(),
    };
    vec![
        finding("driver", Severity::Ok, "580.159.04", "", ""),
        finding("uvm-tools", Severity::Problem, "missing\x1b[2J\nhere", "a lot", "make it"),
        finding("kernel", Severity::Note, &"word ".repeat(40), "", ""),
    ]
}

#[test]
fn the_table_is_aligned_wrapped_and_summed_up() {
    let text = table(&findings(), Form::Table);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "ok      driver     580.159.04");
    assert_eq!(lines[1], "PROBLEM uvm-tools  missing?[2J here", "a file's name can't write on the terminal");
    assert_eq!(lines[2], "                   costs: a lot");
    assert_eq!(lines[3], "                   do:    make it");
    assert!(lines.iter().all(|line| line.len() <= 80), "{text}");
    assert!(table(&findings(), Form::Wide).lines().any(|line| line.len() > 200), "nothing is wrapped");
    let what = "/folder".repeat(30);
    let long = Finding { id: "paths", severity: Severity::Note, what, costs: String::new(), advice: String::new() };
    let text_of_long = table(&[long], Form::Table);
    assert!(text_of_long.lines().all(|line| line.len() <= 80), "{text_of_long}");
    assert!(lines[5].starts_with("                   word"), "{text}");
    assert_eq!(lines.last(), Some(&"1 problem, 0 warnings, 1 note, 1 ok"));
}

#[test]
fn json_has_every_finding_and_the_same_sums() {
    let value: serde_json::Value = serde_json::from_str(&json(&findings())).unwrap();
    assert_eq!((&value["problems"], &value["notes"]), (&1.into(), &1.into()));
    let found = value["findings"].as_array().unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(found[1]["severity"], "problem");
    for key in ["id", "severity", "what", "costs", "advice"] {
        assert!(found[0][key].is_string(), "{key}");
    }
    let made = Made::sound();
    let value: serde_json::Value = serde_json::from_str(&json(&examine(&made.machine))).unwrap();
    assert_eq!(value["problems"], 0);
}

#[test]
fn nvidia_smi_is_understood_and_its_complaints_are_no_gpus() {
    let text = "0, Default, Enabled, Disabled\n1, Exclusive_Process, Disabled, [N/A]\nNo devices were found\n1, 2, 3\n";
    let gpu = |index: &str, mode: &str, persistence: &str, mig: &str| Gpu {
        index: index.into(),
        compute_mode: mode.into(),
        persistence: persistence.into(),
        mig: mig.into(),
    };
    let want = [gpu("0", "Default", "Enabled", "Disabled"), gpu("1", "Exclusive_Process", "Disabled", "[N/A]")];
    assert_eq!(parse_gpus(text), want);
}

#[test]
fn the_page_lists_every_check_with_what_it_looks_at() {
    let section = PAGE.split(".Sh CHECKS\n").nth(1).expect("the section");
    let section = section.split("\n.S").next().unwrap_or(section);
    let mut lines = section.lines();
    let mut listed = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(id) = line.strip_prefix(".It Cm ") {
            listed.push((id, lines.next().unwrap_or_default().trim_end_matches('.')));
        }
    }
    assert_eq!(listed, crate::cli::CHECKS);
}
