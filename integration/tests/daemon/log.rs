//! The log: bounded, truncated in place, and never a reason to wait.

use integration::lab::program::Program;
use integration::lab::stage::{SERVER, Stage};
use remps_proto::mps::log::{LocalTime, Record, Source};
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Instant;

const ROOT: u32 = 0;
const MIB: u64 = 1 << 20;

fn record(text: &str) -> Record {
    let time = LocalTime { year: 2026, month: 1, day: 1, ..LocalTime::default() };
    Record { source: Source::SERVER, pid: 7, time, text: text.as_bytes().to_vec() }
}

fn fifo_of(stage: &Stage) -> std::fs::File {
    std::fs::OpenOptions::new().write(true).open(stage.pipe_dir().join("log")).expect("it is there")
}

/// Starts a daemon in the background, which logs to files.
fn start_with_files(stage: &Stage) {
    stage.lab().start(&[]);
    assert_eq!(stage.ask("get_default_client_priority\n").lines().count(), 1);
}

#[test]
fn ct_21_a_capped_log_is_truncated_in_place_and_a_follower_keeps_following() {
    Stage::run(|stage| {
        stage.config("log_size_mib = 1\n");
        start_with_files(stage);
        let path = stage.lab().log_dir().join("server.log");
        let mut fifo = fifo_of(stage);
        fifo.write_all(&record("the first").encode()).expect("somebody reads");
        stage.lab().wait_log("server.log", "the first");
        // A follower that keeps the file open, as `tail -f` does.
        let mut follower = std::fs::File::open(&path).expect("it is there");
        let long = "x".repeat(1000);
        for _ in 0..3000 {
            fifo.write_all(&record(&long).encode()).expect("somebody reads");
        }
        fifo.write_all(&record("the last").encode()).expect("somebody reads");
        stage.lab().wait_log("server.log", "the last");
        let length = std::fs::metadata(&path).expect("it is there").len();
        assert!(length <= MIB, "{length} bytes");
        // The same file, shorter: what tail notices and goes on from.
        follower.seek(SeekFrom::Start(0)).expect("a file");
        let mut text = String::new();
        follower.read_to_string(&mut text).expect("text");
        assert!(text.ends_with("the last\n"), "the follower's file is another one");
    });
}

/// A daemon that logs to files, and this level.
fn start_with_level(stage: &Stage, level: &str) {
    let mut command = stage.lab().command(&["-d"]);
    let started = stage.lab().finish(command.env("MPS_LOG_LEVEL", level), b"");
    assert_eq!(started.code, Some(0), "{started:?}");
}

#[test]
fn who_only_looks_has_no_lines_in_the_log_and_who_commands_has_the_vendors() {
    const LINES: [&str; 4] = ["Accepting connection...", "NEW UI", "Cmd:get_default_client_priority", "UI closed"];
    Stage::run(|stage| {
        start_with_level(stage, "info");
        let top = stage.lab().finish(&mut stage.lab().command(&["top", "--once"]), b"");
        assert_eq!(top.code, Some(0), "{top:?}");
        assert!(stage.ask("status\nget_fault_list\nevents\nmetrics\n").contains("ready"));
        // Looks before a command and after it in one session.
        assert!(stage.ask("status\nget_default_client_priority\nstatus\n").contains("ready"));
        stage.lab().wait_log("control.log", "UI closed");
        let log = stage.lab().log("control.log");
        let of_sessions = |line: &&str| LINES.iter().any(|known| line.ends_with(known)) || line.contains("Cmd:");
        let lines: Vec<&str> = log.lines().filter(of_sessions).collect();
        assert_eq!(lines.len(), LINES.len(), "{log}");
        assert!(lines.iter().zip(LINES).all(|(line, known)| line.ends_with(known)), "{log}");
        assert!(!log.contains("somebody looks"), "{log}");
    });
    // What is asked of the third interface is a command of the vendor's, and who asks nothing is told of, too.
    for (asked, line) in [("server list\n", "Cmd:server list"), ("status extra\n", "Cmd:status extra"), ("", "NEW UI")]
    {
        Stage::run(|stage| {
            start_with_level(stage, "info");
            let _ = stage.lab().finish(&mut stage.lab().command(&[]), asked.as_bytes());
            stage.lab().wait_log("control.log", "UI closed");
            assert!(stage.lab().log("control.log").contains(line), "{asked}");
        });
    }
    Stage::run(|stage| {
        start_with_level(stage, "debug");
        assert!(stage.ask("status\n").contains("ready"));
        stage.lab().wait_log("control.log", "somebody looks");
        let log = stage.lab().log("control.log");
        assert!(log.lines().any(|line| line.contains("somebody looks") && line.ends_with("command=status")), "{log}");
    });
}

#[test]
fn a_flood_of_records_is_bounded_in_rate_counted_and_delays_nobody() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        let mut fifo = fifo_of(stage);
        let one = record("flood").encode();
        let began = Instant::now();
        for _ in 0..20_000 {
            fifo.write_all(&one).expect("somebody reads");
        }
        client.ping();
        client.does("context", "context");
        // What was not kept is counted with the first record that is kept again.
        let one_more = || fifo_of(stage).write_all(&record("one more").encode()).expect("somebody reads");
        stage.wait_for("the flood counted", || {
            one_more();
            stage.daemon().output().contains("lines suppressed (process 7)")
        });
        let kept = stage.daemon().output().matches("] flood").count();
        // Five seconds' worth at once. The longer it takes on a slow machine, the more may be kept.
        let most = usize::try_from(began.elapsed().as_secs()).expect("not that long").saturating_add(6) * 1000;
        assert!((1..=most).contains(&kept), "{kept} lines kept of at most {most}");
    });
}

#[test]
fn a_server_that_floods_its_standard_error_is_bounded_and_served_on() {
    Stage::run(|stage| {
        // The real one is started by a script that talks without end beside it.
        let server = stage.lab().dir().join("bin").join(SERVER);
        let real = stage.lab().dir().join("bin").join("real-server");
        std::fs::rename(&server, &real).expect("our folder");
        let script = format!(
            "#!/bin/sh\n(i=0; while [ $i -lt 20000 ]; do echo noise >&2; i=$((i+1)); done) &\nexec {} \"$@\"\n",
            real.display()
        );
        let written = stage.lab().dir().join("script");
        std::fs::write(&written, script).expect("our folder");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&written, mode).expect("our file");
        integration::lab::copy_program(&written, &server);
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        stage.wait_for("the noise counted", || stage.daemon().output().contains("lines of standard error dropped"));
        client.ping();
        assert!(stage.daemon().output().matches("noise").count() < 5_000);
    });
}
