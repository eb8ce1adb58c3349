//! Metrics and health where the operator wants them, and how a daemon says what it does without.

use super::Stage;
use integration::lab::LIMIT;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn get(stage: &Stage, path: &str) -> String {
    let mut stream = UnixStream::connect(stage.lab().dir().join("m.sock")).expect("something listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket takes a timeout");
    stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

#[test]
fn metrics_and_health_are_served_where_the_operator_wants_them() {
    Stage::run(|stage| {
        let socket = stage.lab().dir().join("m.sock");
        stage.config(&format!("[observe]\nlisten = \"unix:{}\"\n", socket.display()));
        stage.start(&[]);
        for path in ["/livez", "/readyz", "/startupz"] {
            assert!(get(stage, path).starts_with("HTTP/1.1 200 OK\r\n"), "{path}");
        }
        let metrics = get(stage, "/metrics");
        assert!(metrics.contains("\nmps_uptime_seconds ") && metrics.contains("mps_build_info{version="), "{metrics}");
        // A killed daemon leaves the socket's file, and its successor listens there again.
        stage.kill_daemon();
        stage.start(&[]);
        assert!(get(stage, "/livez").starts_with("HTTP/1.1 200 OK\r\n"));
        stage.daemon().signal(Signal::SIGTERM);
        assert!(stage.daemon().ended_within(LIMIT));
        assert!(!socket.exists(), "the file goes with the daemon");
    });
}

#[test]
fn a_daemon_that_finds_no_server_is_alive_and_not_ready() {
    Stage::run(|stage| {
        let socket = stage.lab().dir().join("m.sock");
        stage.config(&format!("[observe]\nlisten = \"unix:{}\"\n", socket.display()));
        stage.launch(&[], &[("MPS_SERVER_BINARY", "/nonexistent/server")]);
        stage.wait_up();
        assert!(get(stage, "/livez").starts_with("HTTP/1.1 200 OK\r\n"));
        let ready = get(stage, "/readyz");
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("/nonexistent/server"), "{ready}");
        let status = stage.ask("status --wide\n");
        let told = "\nDegraded:\n  server: MPS_SERVER_BINARY=/nonexistent/server ";
        assert!(status.contains("not ready:") && status.contains(told), "{status}");
        let failed = stage.lab().run(&["status", "--exit-code"], b"");
        assert_eq!((failed.code, failed.stderr_text().as_str()), (Some(1), ""));
        assert!(failed.stdout_text().contains("not ready:"), "{}", failed.stdout_text());
    });
}

#[test]
fn a_daemon_whose_metrics_nobody_can_ask_for_serves_and_says_so() {
    Stage::run(|stage| {
        let path = stage.lab().dir().join("m.sock");
        std::fs::write(&path, "").expect("the folder is there");
        stage.config(&format!("[observe]\nlisten = \"unix:{}\"\n", path.display()));
        stage.start(&[]);
        let text = format!("{} is in the way", path.display());
        let status = stage.ask("status --wide\n");
        let (_, end) = status.split_once("\nDegraded:\n").expect("something is");
        assert!(end.lines().any(|line| line == format!("  metrics: {text}")), "{status}");
        let status: Value = serde_json::from_str(&stage.ask("status --json\n")).expect("one object");
        let found = serde_json::json!({"part": "metrics", "text": text});
        assert!(status["degraded"].as_array().expect("a list").contains(&found), "{status}");
        assert_eq!(status["ready"], true);
    });
}

#[test]
fn what_a_daemon_does_without_is_in_its_log_and_a_start_that_succeeds_says_nothing() {
    Stage::run(|stage| {
        let path = stage.lab().dir().join("m.sock");
        std::fs::write(&path, "").expect("the folder is there");
        stage.config(&format!("[observe]\nlisten = \"unix:{}\"\n", path.display()));
        let mut command = stage.lab().command(&["-d"]);
        let started = stage.lab().finish(command.env("MPS_SERVER_BINARY", "/nonexistent/server"), b"");
        let said = (started.code, started.stdout_text(), started.stderr_text());
        assert_eq!(said, (Some(0), String::new(), String::new()));
        let server = "Warning: server: MPS_SERVER_BINARY=/nonexistent/server is no program that can be executed";
        let metrics = format!("Warning: metrics: {} is in the way", path.display());
        let log = stage.lab().log("control.log");
        let warnings: Vec<&str> = log.lines().filter_map(|line| line.find("Warning: ").map(|at| &line[at..])).collect();
        assert_eq!(warnings, [server, &metrics]);
    });
}
