//! What a running daemon tells of itself: commands, journal and followers here, metrics and health beside.

mod health;

use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{CONTROL, Stage};
use integration::lab::watch;
use integration::lab::{LIMIT, Lab};
use integration::sim::{Sim, error_of};
use integration::under_test::{for_each, only_ours};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const ROOT: u32 = 0;
const ALICE: u32 = 1000;
const BOB: u32 = 1001;

fn journal(stage: &Stage) -> Vec<Value> {
    let text = std::fs::read_to_string(stage.lab().log_dir().join("events.jsonl")).expect("the journal is there");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().expect("an event has a name")).collect()
}

fn json_lines(answer: &str) -> Vec<Value> {
    answer.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn the_daemon_tells_what_it_knows_in_text_and_in_json() {
    Stage::run(|stage| {
        stage.start(&[]);
        let client = Program::attached(stage, ROOT);
        let pid = client.pid().to_string();
        let server = stage.servers()[0].to_string();
        stage.wait_for("the client's admission", || stage.ask("events\n").contains("client-admitted"));

        let status = stage.ask("status\n");
        assert!(status.starts_with("Daemon ") && status.contains(&pid) && status.contains(&server), "{status}");
        let status: Value = serde_json::from_str(&stage.ask("status --json\n")).expect("one object");
        assert_eq!(status["ready"], true);
        assert_eq!(status["servers"][0]["pid"].to_string(), server);
        assert_eq!(status["clients"][0]["phase"], "live");
        assert_eq!(status["domains"][0]["clients"], 1);

        let state = json_lines(&stage.ask(&format!("get_client_state {pid} --json\n")));
        assert_eq!((&state[0]["process"]["pid"].to_string(), &state[0]["server"].to_string()), (&pid, &server));
        let channels = json_lines(&stage.ask(&format!("get_channel_list {pid} --json\n")));
        assert!(
            !channels.is_empty() && channels.iter().all(|channel| channel["source"] == "connection"),
            "{channels:?}"
        );
        assert_eq!(stage.ask("get_fault_list\n").lines().count(), 1, "a heading and no fault");
        assert_eq!(stage.refusal_for(0, "get_client_state 1\n"), "Client 1 not found\n");
        let usage = "Usage: status [-o table|wide|json] [--utc] [--wide] [--json] [--exit-code] [--memory]\n";
        assert_eq!(stage.refusal_for(0, "status -x\n"), format!("status: -x is not understood\n{usage}"));
        assert_eq!(stage.refusal_for(0, "status -o yaml\n"), format!("status: -o yaml is not understood\n{usage}"));
        assert!(stage.ask("status --exit-code\n").starts_with("Daemon "), "it is ready");

        let metrics = stage.ask("metrics\n");
        assert!(metrics.contains("mps_clients_admitted_total{domain=\"user 0\"} "), "{metrics}");
        for sample in [
            "mps_clients{domain=\"user 0\",uid=\"0\"} 1",
            "mps_ready 1",
            "mps_commands_total{command=\"get_client_state\",result=\"answered\",uid_class=\"root\"} 2",
            "mps_commands_total{command=\"status\",result=\"not_understood\",uid_class=\"root\"} 2",
        ] {
            assert!(metrics.lines().any(|line| line == sample), "{sample} in\n{metrics}");
        }
        client.leave();
        stage.wait_for("the client's end", || names(&journal(stage)).contains(&"client-ended"));
        let gone = stage.ask(&format!("get_client_state {pid}\n"));
        assert!(gone.contains("gone"), "{gone}");
        let journal = journal(stage);
        let expected = ["daemon-started", "server-started", "server-ready", "client-admitted", "client-ended"];
        // A client has a connection for each context, and is admitted with each.
        let mut told: Vec<&str> = names(&journal).into_iter().filter(|name| expected.contains(name)).collect();
        told.dedup();
        assert_eq!(told, expected);
        assert_eq!(names(&json_lines(&stage.ask("events --json\n"))), names(&journal));
    });
}

#[test]
fn a_fault_is_told_everywhere_and_journal_and_metrics_agree_about_it() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        // A victim that stays keeps its server in the state in which it can be asked what has happened.
        let mut victim = sim.command("mps-first-alloc", &["--until-stdin-closes"]);
        let mut victim = victim.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was built");
        let mut first = String::new();
        let mut output = BufReader::new(victim.stdout.take().expect("piped"));
        output.read_line(&mut first).expect("it says that it has memory");
        let aggressor = sim.start("mps-aggressor", &["oob"], "launched");
        assert!(error_of(&sim.finish(aggressor)).is_some());
        let ask = |line: &str| sim.lab.ask(&format!("{line}\n"));
        let is_known = || json_lines(&ask("get_fault_list -o json")).len() == 1;
        watch::wait_for(sim.lab.dir(), sim.lab.log_dir(), LIMIT, "a verdict", is_known);
        let faults = json_lines(&ask("get_fault_list --json"));
        assert_eq!((&faults[0]["number"], faults[0]["victims"].is_array()), (&Value::from(1), true));
        every_form_of_an_answer(&sim.lab, &faults[0]);
        drop(victim.stdin.take());
        victim.wait().expect("it ends when its input does");
        // Nothing is told of its clients any more when it has gone, which may be known before the victim's own end.
        let is_over = || {
            let told = ask("events");
            told.contains("client-ended") && told.contains("server-exited")
        };
        watch::wait_for(sim.lab.dir(), sim.lab.log_dir(), LIMIT, "the end of all", is_over);
        let text = std::fs::read_to_string(sim.lab.log_dir().join("events.jsonl")).expect("the journal is there");
        let journal = json_lines(&text);
        let metrics = ask("metrics");
        for name in ["fault-sign", "server-tainted", "verdict", "client-admitted", "client-ended", "server-exited"] {
            let count = names(&journal).iter().filter(|&&told| told == name).count();
            assert!(count > 0, "{name}: {text}");
            let sample = format!("mps_events_total{{event=\"{name}\"}} {count}");
            assert!(metrics.lines().any(|line| line == sample), "{sample} in\n{metrics}");
        }
        assert!(metrics.lines().any(|line| line == "mps_faults_total 1"), "{metrics}");
        let verdict = journal.iter().find(|event| event["event"] == "verdict").expect("there is one");
        let mut listed = faults[0].clone();
        assert_eq!(listed.as_object_mut().and_then(|map| map.remove("time")), Some(verdict["time"].clone()));
        assert_eq!(listed, verdict["verdict"], "the list repeats the journal");
    });
}

/// What the commands of ours print to readers in some time zone and to programs, of a daemon with one fault.
fn every_form_of_an_answer(lab: &Lab, fault: &Value) {
    const ZONE: &str = "XYZ-3:30";
    let time = fault["time"].as_str().expect("a time");
    let printed = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let finished = lab.finish(lab.command(&words).env("TZ", ZONE), b"");
        assert!(finished.code == Some(0), "{words:?}: {finished:?}");
        finished.stdout_text()
    };
    let date = |utc: &[&str]| {
        let mut date = std::process::Command::new("date");
        let date = date.env("TZ", ZONE).args(utc).args(["-d", time, "+%Y-%m-%d %H:%M:%S"]).output().expect("date");
        String::from_utf8(date.stdout).expect("text").trim().to_owned()
    };
    let (local, utc) = (date(&[]), format!("{}Z", date(&["-u"])));
    for (command, begin) in [("get_fault_list", "1      "), ("events", "")] {
        let has =
            |words: &str, time: &str| printed(words).lines().any(|line| line.starts_with(&format!("{begin}{time}")));
        let (local, utc) = if begin.is_empty() { (&local[..19], &utc[..19]) } else { (&*local, &*utc) };
        assert!(has(command, local), "{command}: {local} in {}", printed(command));
        assert!(has(&format!("{command} --utc"), utc), "{command}: {utc}");
        assert!(printed(&format!("{command} --utc -o json")).contains(time), "{command}: JSON is in UTC");
    }
    let victim = fault["victims"][0].to_string();
    for command in [
        "status",
        "get_fault_list",
        "get_fault_events 1",
        &format!("get_client_state {victim}"),
        "get_channel_list",
        "events",
        "vault list",
        "metrics",
        "doctor",
    ] {
        // Doctor's status says what is wrong with the machine.
        let printed = |form: &str| match command {
            "doctor" => lab.run(&["doctor", "-o", form], b"").stdout_text(),
            command => printed(&format!("{command} -o {form}")),
        };
        let table = printed("table");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let wide = printed("wide");
        assert!(command != "events" || wide.lines().all(|line| line.starts_with("20")), "a line an event: {wide}");
        let json = printed("json");
        let values = serde_json::Deserializer::from_str(&json).into_iter::<Value>();
        assert!(values.map(|value| value.expect("JSON")).all(|value| value.is_object()), "{command}: {json}");
    }
    let page = printed("explain 1");
    assert!(page.starts_with(&format!("Fault 1, {local}")), "{local}: {page}");
    assert!(
        page.contains(&format!("victim  {victim}")) && page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    assert!(printed("explain 1 --utc").starts_with(&format!("Fault 1, {}", &utc[..19])));
    let picture = lab.dir().join("fault.svg");
    let path = picture.to_str().expect("plain");
    let json: Value = serde_json::from_str(&printed(&format!("explain 1 -o json --svg {path}"))).expect("JSON");
    assert_eq!((&json["verdict"], &json["fault"]), (fault, &Value::from(1)));
    let moments = json["timeline"].as_array().expect("a list");
    let has =
        |words: &str| moments.iter().any(|moment| moment["what"].as_str().is_some_and(|what| what.contains(words)));
    assert!(has("verdict 1: ") && has("gets no client any more") && has("tells of a fault"), "{json:#}");
    let drawn = std::fs::read_to_string(&picture).expect("it was written");
    assert_eq!(drawn.matches("<circle ").count(), moments.len(), "{drawn}");
    let nobody = lab.run(&["explain", "99"], b"");
    assert_eq!((nobody.code, nobody.stdout_text().as_str()), (Some(1), ""));
    assert!(nobody.stderr_text().contains("no fault 99"), "{nobody:?}");
    let refused = lab.run(&["doctor", "-o", "yaml"], b"");
    assert_eq!((refused.code, refused.stdout_text().as_str()), (Some(2), ""));
}

#[test]
fn users_see_their_own_and_the_owner_everybodys() {
    Stage::run(|stage| {
        stage.start(&[]);
        let (alice, bob) = (Program::attached(stage, ALICE), Program::attached(stage, BOB));
        let (alice, bob) = (alice.pid().to_string(), bob.pid().to_string());
        let is_admitted = |pid: &String| {
            let admission = |event: &Value| {
                event["event"] == "client-admitted" && event["process"]["pid"].as_u64() == pid.parse().ok()
            };
            journal(stage).iter().any(admission)
        };
        stage.wait_for("both admissions", || is_admitted(&alice) && is_admitted(&bob));
        for (uid, own, other) in [(ALICE, &alice, BOB), (BOB, &bob, ALICE)] {
            let everything = ["status\n", "status --json\n", "events --json\n", "get_channel_list\n"]
                .map(|command| stage.ask_as(uid, command))
                .join("");
            assert!(everything.contains(own), "{everything}");
            assert!(!everything.contains(&format!("user {other}")), "{everything}");
            assert_eq!(stage.refusal_for(uid, "metrics\n"), format!("Insufficient privileges for UID {uid}\n"));
        }
        let refusal = stage.refusal_for(BOB, &format!("get_client_state {alice}\n"));
        assert_eq!(refusal, format!("Client {alice} not found\n"));
        assert!(stage.ask_as(ALICE, &format!("get_client_state {alice}\n")).contains("live"));
        let all = stage.ask("status\n");
        assert!(all.contains(&alice) && all.contains(&bob), "{all}");
    });
}

#[test]
fn events_are_followed_as_they_come_until_the_daemon_ends() {
    Stage::run(|stage| {
        stage.start(&[]);
        // A daemon's own beginning is asked for too, so that it is known when following has begun.
        let follower =
            Process::start(&mut stage.command_as(ROOT, CONTROL, &["events", "--follow", "-n", "100", "--json"]));
        stage.wait_for("the follower", || follower.output().contains("daemon-started"));
        let client = Program::attached(stage, ROOT);
        let pid = client.pid().to_string();
        let is_admitted =
            || follower.output().lines().any(|line| line.contains("client-admitted") && line.contains(&pid));
        stage.wait_for("the admission", is_admitted);
        client.leave();
        assert_eq!(stage.lab().run(&[], b"quit\n").code, Some(0));
        let finished = follower.finish(LIMIT).expect("it ends with the daemon");
        assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""));
        let followed = json_lines(&finished.stdout_text());
        assert_eq!(names(&followed).last(), Some(&"daemon-ended"));
        assert_eq!(followed, journal(stage), "nothing is missing and nothing comes twice");
    });
}

#[test]
fn a_follower_ends_when_nobody_reads_it() {
    Stage::run(|stage| {
        stage.start(&[]);
        let control = stage.lab().dir().join("bin").join(CONTROL);
        let mut shell = stage.command_as(ROOT, CONTROL, &[]);
        let mut command = std::process::Command::new("/bin/sh");
        command.env_clear().envs(shell.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.args(["-c", &format!("{} events --follow -n 1 | head -n 1", control.display())]);
        shell.env_clear();
        let pipeline = Process::start(&mut command);
        stage.wait_for("one line", || pipeline.output().contains("daemon-started"));
        // The next event is one too many for a reader that has gone.
        Program::attached(stage, ROOT).leave();
        assert_eq!(pipeline.finish(LIMIT).expect("it ends").code, Some(0));
    });
}

#[test]
fn the_journals_numbers_go_on_after_the_daemons_sudden_end() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        stage.wait_for("the admission", || names(&journal(stage)).contains(&"client-admitted"));
        let before = journal(stage).len();
        stage.kill_daemon();
        stage.start(&[]);
        client.ping();
        stage.wait_for("the successor's word", || names(&journal(stage)).contains(&"daemon-taken-over"));
        let journal = journal(stage);
        let numbers: Vec<u64> = journal.iter().map(|event| event["seq"].as_u64().expect("a number")).collect();
        assert_eq!(numbers, (1..=u64::try_from(journal.len()).unwrap()).collect::<Vec<_>>());
        assert!(journal.len() > before);
        assert!(stage.ask("events --json\n").contains("daemon-started"), "what was before is still known");
    });
}

#[test]
fn renamed_files_are_written_anew_after_a_hangup() {
    Stage::run(|stage| {
        stage.lab().start(&[]);
        let (old, new) = (stage.lab().log_dir().join("events.jsonl"), stage.lab().log_dir().join("events.old"));
        let log = stage.lab().log_dir().join("control.log");
        std::fs::rename(&old, &new).expect("the journal is there");
        std::fs::rename(&log, stage.lab().log_dir().join("control.old")).expect("the log is there");
        kill(stage.lab().running_daemon(), Signal::SIGHUP).expect("it runs");
        stage.wait_for("a new log", || log.exists());
        assert_eq!(stage.lab().run(&[], b"quit\n").code, Some(0));
        let (before, after) = (std::fs::read_to_string(&new).expect("kept"), journal(stage));
        assert!(before.contains("daemon-started") && !before.contains("daemon-ended"), "{before}");
        assert_eq!(names(&after), ["daemon-ended"]);
        assert_eq!(after[0]["seq"].as_u64(), Some(before.lines().count() as u64 + 1));
    });
}

#[test]
fn without_a_journal_nothing_is_written() {
    Stage::run(|stage| {
        stage.config("[observe]\njournal = false\n");
        stage.start(&[]);
        assert!(stage.ask("events\n").contains("daemon-started"));
        assert!(!stage.lab().log_dir().join("events.jsonl").exists());
    });
}
