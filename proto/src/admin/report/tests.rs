//! The grammar of ReMPS's own commands, and what is answered where it is not kept.

use super::*;
use crate::admin::{Command, Form, Personality};

fn parse(line: &str) -> Report {
    let Command::Report(report) = Command::parse(line.as_bytes(), Personality::V580) else {
        panic!("{line} is none of ours");
    };
    report
}

const TABLE: Output = Output { form: Form::Table, utc: false };
const WIDE: Output = Output { form: Form::Wide, utc: false };
const JSON: Output = Output { form: Form::Json, utc: false };

#[test]
fn options_come_in_any_order() {
    assert_eq!(parse("get_fault_list"), Report::Faults { count: None, output: TABLE });
    assert_eq!(parse("get_fault_list --json -n 3"), Report::Faults { count: Some(3), output: JSON });
    assert_eq!(parse("get_fault_list -n3 --wide"), Report::Faults { count: Some(3), output: WIDE });
    assert_eq!(parse("get_client_state 42"), Report::Client { pid: 42, output: TABLE });
    assert_eq!(parse("vault list"), Report::Vault { output: TABLE });
    assert_eq!(parse("vault list --json"), Report::Vault { output: JSON });
    assert_eq!(parse("get_channel_list"), Report::Channels { pid: None, output: TABLE });
    assert_eq!(parse("get_channel_list --json 42"), Report::Channels { pid: Some(42), output: JSON });
    assert_eq!(parse("events"), Report::Events { count: None, follow: false, output: TABLE });
    assert_eq!(parse("events -n 5 --follow"), Report::Events { count: Some(5), follow: true, output: TABLE });
    assert_eq!(parse("status --json\n\0"), Report::Status { output: JSON, exit_code: false, memory: false });
    assert_eq!(parse("status --exit-code"), Report::Status { output: TABLE, exit_code: true, memory: false });
    assert_eq!(parse("status --memory --json"), Report::Status { output: JSON, exit_code: false, memory: true });
    assert_eq!(parse("metrics"), Report::Metrics { output: None });
}

#[test]
fn every_command_takes_the_three_forms_and_utc() {
    for command in [
        "status",
        "get_fault_list",
        "get_fault_events 1",
        "get_client_state 1",
        "get_channel_list",
        "events",
        "vault list",
        "at-rest 1",
        "metrics",
    ] {
        let output = |options: &str| match parse(&format!("{command} {options}")) {
            Report::Faults { output, .. }
            | Report::FaultEvents { output, .. }
            | Report::Client { output, .. }
            | Report::Channels { output, .. }
            | Report::Events { output, .. }
            | Report::Status { output, .. }
            | Report::Vault { output }
            | Report::AtRest(RestQuery { output, .. })
            | Report::Metrics { output: Some(output) } => output,
            other @ (Report::Metrics { .. } | Report::Module(_) | Report::Misused { .. }) => {
                panic!("{command} {options}: {other:?}")
            }
        };
        assert_eq!(output("-o table"), TABLE);
        assert_eq!(output("-o wide"), WIDE);
        assert_eq!(output("-ojson"), JSON);
        assert_eq!(output("--utc"), Output { utc: true, ..TABLE });
        assert_eq!(output("--utc -o wide"), Output { utc: true, ..WIDE });
    }
    assert_eq!(parse("status -o json --json"), parse("status --json"));
    assert_eq!(parse("status --wide --json"), parse("status --json"));
}

#[test]
fn what_cannot_be_understood_is_answered_with_the_usage() {
    for line in [
        "get_fault_list -n",
        "get_fault_list -n 0",
        "get_fault_list -n 1 -n 2",
        "get_fault_list -n x",
        "get_fault_list 7",
        "get_fault_events",
        "get_fault_events 1 2",
        "get_client_state",
        "get_client_state abc",
        "get_client_state -5",
        "get_client_state 99999999999",
        "get_client_state 1 2",
        "get_channel_list --follow",
        "events 7",
        "events --wide",
        "get_client_state 1 --wide",
        "status -n 1",
        "metrics --json",
        "events --exit-code",
        "events --memory",
        "metrics --wide",
        "vault",
        "vault --json",
        "vault lists",
        "vault list 7",
        "status -o",
        "status -o yaml",
        "status -o json -o json",
        "status -o table --json",
        "status -o json --wide",
        "status -oJSON",
        "server list -o json",
    ] {
        let Report::Misused { name, .. } = parse(line) else { panic!("{line} was understood") };
        assert_eq!(usage(name).split(' ').nth(1), line.split(' ').next(), "{line}");
    }
    assert_eq!(usage(CommandName::GetClientState), "Usage: get_client_state PID [-o table|wide|json] [--utc] [--json]");
    assert_eq!(usage(CommandName::Metrics), "Usage: metrics [-o table|wide|json] [--utc]");
}

#[test]
fn the_word_that_is_not_understood_is_named() {
    let named = |line: &str| {
        let Report::Misused { word, .. } = parse(line) else { panic!("{line} was understood") };
        word
    };
    assert_eq!(named("status --jsn --json").as_deref(), Some("--jsn"));
    assert_eq!(named("get_fault_list -n x").as_deref(), Some("x"));
    assert_eq!(named("get_fault_list -nx").as_deref(), Some("-nx"));
    assert_eq!(named("get_client_state 1 2").as_deref(), Some("2"));
    assert_eq!(named("vault lists").as_deref(), Some("lists"));
    assert_eq!(named("get_fault_list -n"), None);
    assert_eq!(named("events 7"), None);
    assert_eq!(named("status -o yaml").as_deref(), Some("-o yaml"));
    assert_eq!(named("status -oyaml").as_deref(), Some("-o yaml"));
    const USAGE: &str = "Usage: metrics [-o table|wide|json] [--utc]";
    assert_eq!(misused(CommandName::Metrics, Some("x")), ["metrics: x is not understood", USAGE]);
    assert_eq!(misused(CommandName::Metrics, None), [USAGE]);
    let long = format!("status {}\x1b", "x".repeat(1000));
    assert_eq!(named(&long).map(|word| word.chars().count()), Some(41));
    assert_eq!(named("status a\x1bb").as_deref(), Some("a\u{fffd}b"));
}

#[test]
fn every_release_has_these_commands_and_no_other_word_changes() {
    for personality in Personality::ALL {
        for word in [
            "status",
            "metrics",
            "events",
            "get_fault_list",
            "get_channel_list",
            "get_client_state",
            "vault",
            "at-rest",
        ] {
            assert!(matches!(Command::parse(word.as_bytes(), personality), Command::Report(_)), "{word}");
        }
        for word in ["Status", "server_status", "event", "metric", "get_fault", "get_channels"] {
            assert_eq!(Command::parse(word.as_bytes(), personality), Command::Unknown(word.to_owned()));
        }
    }
}
