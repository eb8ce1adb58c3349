//! What goes in comes out everywhere, over restarts and in a flood.

mod memory;

use super::*;
use remps_proto::admin::{Form, Output};

const WIDE: Output = Output { form: Form::Wide, utc: false };
const JSON: Output = Output { form: Form::Json, utc: false };
const OWNER: Viewer = Viewer { uid: 0, privileged: true, within: None };
const SOMEBODY: Viewer = Viewer { uid: 1000, privileged: false, within: None };

fn answer(recorder: &Recorder, viewer: Viewer, report: Report) -> Vec<String> {
    recorder.answer(&report, viewer, Snapshot::blank(), Extras::default()).unwrap_or_else(|refusal| refusal)
}

#[test]
fn events_and_faults_of_an_earlier_daemon_are_still_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Recorder::new(Some((folder.path(), u64::MAX)), false);
    let _ = first.record(&JournalEvent::DaemonEnded { status: 0 }, SystemTime::now());
    let verdict = "{\"seq\":2,\"time\":\"t\",\"event\":\"verdict\",\"verdict\":{\"number\":7,\"kind\":\"trap\"}}\n";
    let path = folder.path().join(crate::observe::journal::FILE_NAME);
    let before = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, before + verdict).unwrap();

    let mut second = Recorder::new(Some((folder.path(), u64::MAX)), false);
    let faults = answer(&second, OWNER, Report::Faults { count: None, output: Output::default() });
    assert!(faults.len() == 2 && faults[1].starts_with("7 ") && faults[1].contains("trap"), "{faults:?}");
    let events = answer(&second, OWNER, Report::Events { count: None, follow: false, output: JSON });
    assert_eq!(events.len(), 2);
    let _ = second.record(&JournalEvent::DaemonEnded { status: 0 }, SystemTime::now());
    let newest = answer(&second, OWNER, Report::Events { count: Some(1), follow: false, output: JSON });
    assert!(newest[0].starts_with("{\"seq\":3,"), "{newest:?}");
    let others = answer(&second, SOMEBODY, Report::Events { count: None, follow: false, output: JSON });
    assert_eq!(others, newest, "somebody else sees what this daemon can say that he may see");
}

#[test]
fn a_flood_of_one_users_clients_pushes_nothing_out_and_every_event_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::new(Some((folder.path(), u64::MAX)), false);
    let refused = |uid| JournalEvent::ClientRefused {
        process: crate::core::ProcessKey { pid: 42, start_time: 7 },
        uid,
        domain: format!("user {uid}"),
        reason: crate::core::RefusalReason::TooManyWaiting,
        status: None,
    };
    const FLOOD: u64 = 20_000;
    let begun = Instant::now();
    for _ in 0..FLOOD {
        let _ = recorder.record(&refused(1000), SystemTime::now());
    }
    let most = 5000 + 20 * (begun.elapsed().as_secs() + 1);
    let _ = recorder.record(&refused(1001), SystemTime::now());
    let _ = recorder.record(&JournalEvent::DaemonEnded { status: 0 }, SystemTime::now());
    let text = std::fs::read_to_string(folder.path().join(crate::observe::journal::FILE_NAME)).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let written = lines.iter().filter(|line| line["event"] == "client-refused" && line["uid"] == 1000).count() as u64;
    assert!(written <= most, "{written}");
    let suppressed: u64 = lines.iter().filter_map(|line| line["count"].as_u64()).sum();
    assert_eq!(written + suppressed, FLOOD);
    assert!(
        lines.iter().any(|line| line["event"] == "client-refused" && line["uid"] == 1001),
        "another user's is told"
    );
    let metrics = recorder.openmetrics(&Snapshot::blank(), Extras::default());
    let all = format!("mps_clients_refused_total{{domain=\"user 1000\",reason=\"too_many_waiting\"}} {FLOOD}");
    assert!(metrics.contains(&all), "{metrics}");
}

#[test]
fn without_a_journal_everything_else_works() {
    let mut recorder = Recorder::new(None, false);
    assert_eq!(recorder.record(&JournalEvent::DaemonEnded { status: 0 }, SystemTime::now()), None);
    assert_eq!(answer(&recorder, OWNER, Report::Events { count: None, follow: false, output: WIDE }).len(), 1);
    let metrics = answer(&recorder, OWNER, Report::Metrics { output: None }).join("\n");
    assert!(metrics.contains("mps_journal_lost_total 0") && metrics.contains("event=\"daemon-ended\"} 1"));
}

#[test]
fn the_metrics_of_everybody_are_for_the_owner() {
    let recorder = Recorder::new(None, false);
    let refused = |report| recorder.answer(&report, SOMEBODY, Snapshot::blank(), Extras::default()).unwrap_err();
    assert_eq!(refused(Report::Metrics { output: None }), ["Insufficient privileges for UID 1000"]);
    assert_eq!(refused(Report::Client { pid: 7, output: JSON }), ["Client 7 not found"]);
    assert_eq!(refused(Report::Channels { pid: Some(7), output: Output::default() }), ["Client 7 not found"]);
    let misused = Report::Misused { name: CommandName::Metrics, word: Some("x".to_owned()) };
    assert_eq!(refused(misused), ["metrics: x is not understood", "Usage: metrics [-o table|wide|json] [--utc]"]);
    assert!(recorder.answer(&Report::Metrics { output: None }, OWNER, Snapshot::blank(), Extras::default()).is_ok());
}

#[test]
fn commands_are_counted_by_what_became_of_them() {
    let mut recorder = Recorder::new(None, false);
    let mut count = |name, line: &str| recorder.command(name, &[line.to_owned()], UserClass::Other, Duration::ZERO);
    count(Some(CommandName::Quit), reply::QUIT_REFUSED);
    count(Some(CommandName::TerminateClient), &reply::insufficient_privileges(7));
    count(Some(CommandName::GetFaultList), &remps_proto::admin::report::usage(CommandName::GetFaultList));
    count(Some(CommandName::Ps), reply::NO_SERVER);
    count(None, &reply::unknown_command("rm -rf"));
    let text = recorder.openmetrics(&Snapshot::blank(), Extras::default());
    for (command, result) in [
        ("quit", "refused"),
        ("terminate_client", "refused"),
        ("get_fault_list", "not_understood"),
        ("ps", "answered"),
        ("unknown", "not_understood"),
    ] {
        let series = format!("mps_commands_total{{command=\"{command}\",result=\"{result}\",uid_class=\"other\"}} 1");
        assert!(text.contains(&series), "{series}");
    }
    assert!(!text.contains("rm -rf"));
}

#[tokio::test]
async fn a_follower_gets_what_it_asked_for_and_then_what_comes() {
    let mut recorder = Recorder::new(None, false);
    for status in 0..3 {
        let _ = recorder.record(&JournalEvent::DaemonEnded { status }, SystemTime::now());
    }
    let mut followed = recorder.follow(SOMEBODY, Some(1), JSON);
    assert!(followed.lines.len() == 1 && followed.lines[0].contains("\"status\":2"), "{:?}", followed.lines);
    let _ = recorder.record(&JournalEvent::DaemonEnded { status: 9 }, SystemTime::now());
    let next = followed.following.as_mut().expect("room").next().await.expect("a line");
    assert!(next.contains("\"seq\":4") && next.contains("\"status\":9"), "{next}");
    let from_now_on = recorder.follow(SOMEBODY, None, JSON);
    assert!(from_now_on.lines.is_empty() && from_now_on.following.is_some());
}
