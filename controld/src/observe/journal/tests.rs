//! The journal's file over restarts, its cap, trouble with the disk, and followers that do not read.

use super::followers::Followers;
use super::recent::{Recent, Remembered};
use super::*;
use crate::core::JournalEvent;
use crate::report::Viewer;
use remps_proto::admin::{Form, Output};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

const WIDE: Output = Output { form: Form::Wide, utc: false };
const JSON: Output = Output { form: Form::Json, utc: false };
const OWNER: Viewer = Viewer { uid: 0, privileged: true, within: None };
const SOMEBODY: Viewer = Viewer { uid: 1000, privileged: false, within: None };
const CAP: u64 = 4096;

fn moment() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(1_795_191_783_123_456)
}

fn event(text: &str) -> JournalEvent {
    JournalEvent::WitnessMissing { witness: "xid", process: None, text: text.to_owned() }
}

fn append(journal: &mut Journal, text: &str) -> Option<String> {
    journal.append(&event(text), moment()).2
}

/// Numbers and texts of a file's lines; what is no JSON has no number.
fn lines(path: &Path) -> Vec<(Option<u64>, String)> {
    let text = fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        (value["seq"].as_u64(), value["text"].as_str().unwrap_or_default().to_owned())
    };
    text.lines().map(line).collect()
}

#[test]
fn a_line_has_its_number_and_time_first() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, earlier) = Journal::open(&folder.path().join("made"), CAP);
    assert!(earlier.is_empty());
    assert_eq!(append(&mut journal, "no permission"), None);
    let path = folder.path().join("made").join(FILE_NAME);
    let want = r#"{"seq":1,"time":"2026-11-20T16:23:03.123456Z","event":"witness-missing","witness":"xid","process":null,"text":"no permission"}"#;
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{want}\n"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_time_before_the_epoch_is_written_as_the_epoch() {
    assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(9)), "1970-01-01T00:00:00.000000Z");
}

#[test]
fn numbers_go_on_after_a_restart_and_a_torn_line_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    let (mut journal, _) = Journal::open(folder.path(), CAP);
    for text in ["a", "b"] {
        append(&mut journal, text);
    }
    drop(journal);
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}{{\"seq\":3,\"time\":\"20")).unwrap();

    let (mut journal, earlier) = Journal::open(folder.path(), CAP);
    assert_eq!(earlier.len(), 2, "the whole lines: {earlier:?}");
    append(&mut journal, "c");
    append(&mut journal, "d");
    let lines = lines(&path);
    let numbers: Vec<_> = lines.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [Some(1), Some(2), None, Some(3), Some(4)], "{lines:?}");
}

#[test]
fn a_whole_line_that_no_journal_wrote_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    fs::write(&path, b"{\"seq\":41,\"time\":\"x\",\"event\":\"y\"}\n\xff\xfe\n{\"seq\":99}\nnonsense\n\n").unwrap();
    let (mut journal, earlier) = Journal::open(folder.path(), CAP);
    assert_eq!(earlier.len(), 1);
    append(&mut journal, "next");
    assert_eq!(lines_of_last(&path), Some(42));
}

fn lines_of_last(path: &Path) -> Option<u64> {
    let bytes = fs::read(path).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let value: Value = serde_json::from_str(text.lines().last()?).ok()?;
    value["seq"].as_u64()
}

#[test]
fn both_files_together_never_have_more_than_twice_the_cap() {
    let folder = tempfile::tempdir().unwrap();
    let (path, earlier) = (folder.path().join(FILE_NAME), folder.path().join("events.jsonl.1"));
    let (mut journal, _) = Journal::open(folder.path(), CAP);
    for index in 0..200 {
        append(&mut journal, &"x".repeat(index * 7 % 900));
        for file in [&path, &earlier] {
            assert!(fs::metadata(file).map_or(0, |metadata| metadata.len()) <= CAP);
        }
    }
    let both: Vec<u64> = lines(&earlier).into_iter().chain(lines(&path)).filter_map(|(number, _)| number).collect();
    let want: Vec<u64> = (both[0]..=200).collect();
    assert_eq!(both, want, "no event is missing between the two files");

    // A daemon that begins right after a rotation finds the numbers in the file before.
    fs::remove_file(&path).unwrap();
    let last = lines(&earlier).last().and_then(|(number, _)| *number).unwrap();
    let (mut journal, _) = Journal::open(folder.path(), CAP);
    append(&mut journal, "");
    assert_eq!(lines(&path)[0].0, Some(last + 1));
}

#[test]
fn a_full_disk_costs_events_alone_and_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    symlink("/dev/full", &path).unwrap();
    let (mut journal, _) = Journal::open(folder.path(), CAP);
    assert_eq!(journal.trouble(), None, "nothing has been written");
    let remark = append(&mut journal, "a").expect("said once");
    assert!(remark.contains("can't be written: No space left on device"), "{remark}");
    let trouble = journal.trouble().expect("it lasts");
    assert!(trouble.starts_with(path.to_str().unwrap()) && trouble.contains(": No space left"), "{trouble}");
    for _ in 0..9 {
        assert_eq!(append(&mut journal, "b"), None);
    }
    assert_eq!(journal.lost(), 10);
    fs::remove_file(&path).unwrap();
    let remark = append(&mut journal, "c").expect("said that it is over");
    assert!(remark.contains("10 events are missing"), "{remark}");
    assert_eq!(journal.trouble(), None);
    assert_eq!(append(&mut journal, "d"), None);
    assert_eq!(lines(&path), [(Some(11), "c".to_owned()), (Some(12), "d".to_owned())]);
}

#[test]
fn a_journal_whose_directory_was_removed_says_so_until_it_has_a_name_again() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("logs");
    let (mut journal, _) = Journal::open(&directory, CAP);
    append(&mut journal, "a");
    assert_eq!(journal.trouble(), None);
    fs::remove_dir_all(&directory).unwrap();
    append(&mut journal, "b");
    assert!(journal.trouble().is_some_and(|text| text.contains("was removed")), "{:?}", journal.trouble());
    fs::create_dir(&directory).unwrap();
    journal.reopen();
    append(&mut journal, "c");
    assert_eq!(journal.trouble(), None);
    assert_eq!(Journal::off().trouble(), None, "none is wanted");
}

#[test]
fn a_directory_that_cannot_be_made_costs_events_alone() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    let (mut journal, earlier) = Journal::open(&in_the_way.join("logs"), CAP);
    assert!(earlier.is_empty());
    assert!(append(&mut journal, "a").is_some() && append(&mut journal, "b").is_none());
    assert_eq!(journal.lost(), 2);
}

#[test]
fn a_line_that_would_be_too_long_is_cut_and_whole() {
    let stamp = Stamp { seq: u64::MAX, time: timestamp(moment()) };
    let line = stamp.line(&event(&"\u{1}".repeat(100_000)));
    assert!(line.len() <= LINE_LIMIT, "{}", line.len());
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&value["seq"], &value["cut"], &value["event"]),
        (&u64::MAX.into(), &true.into(), &"witness-missing".into())
    );
}

fn remembered(number: u64, event: JournalEvent) -> Arc<Remembered> {
    let stamp = Stamp { seq: number, time: timestamp(moment()) };
    let line = stamp.line(&event);
    Arc::new(Remembered::own(stamp, event, line))
}

fn of_user(uid: u32) -> JournalEvent {
    JournalEvent::BreakerClosed { uid, domain: "x".repeat(1000) }
}

#[test]
fn what_is_remembered_is_bounded_and_shown_to_those_whom_it_concerns() {
    let mut recent = Recent::default();
    recent.push(Arc::new(Remembered::earlier("{\"seq\":1,\"time\":\"t\",\"event\":\"daemon-ended\"}".to_owned())));
    assert_eq!(recent.list(OWNER, None, WIDE), ["t daemon-ended"]);
    assert!(recent.list(SOMEBODY, None, WIDE).is_empty());
    for number in 2..2000 {
        recent.push(remembered(number, of_user(1000 + u32::from(number % 2 == 0))));
    }
    let all = recent.list(OWNER, None, JSON);
    assert!(all.iter().map(String::len).sum::<usize>() <= 192 << 10 && all.len() > 100, "{}", all.len());
    let mine = recent.list(SOMEBODY, Some(3), JSON);
    let numbers: Vec<Value> =
        mine.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].clone()).collect();
    assert_eq!(numbers, [1995, 1997, 1999]);
}

#[tokio::test]
async fn a_follower_that_does_not_read_is_cut_off_and_the_others_go_on() {
    let mut followers = Followers::default();
    let mut stuck = followers.add(OWNER, JSON).expect("room");
    let mut reader = followers.add(SOMEBODY, JSON).expect("room");
    for number in 1..=400 {
        followers.tell(&remembered(number, of_user(1000)));
        assert!(reader.next().await.is_some());
    }
    assert_eq!(followers.count(), 1);
    let mut taken = 0;
    while stuck.next().await.is_some() {
        taken += 1;
    }
    assert!((200..400).contains(&taken), "what was queued is still given, and no more: {taken}");
}

#[tokio::test]
async fn a_user_sees_his_own_events_and_may_not_take_every_place() {
    let mut followers = Followers::default();
    let mut mine: Vec<_> = std::iter::from_fn(|| followers.add(SOMEBODY, WIDE)).collect();
    assert_eq!(mine.len(), 4);
    let owners: Vec<_> = std::iter::from_fn(|| followers.add(OWNER, WIDE)).collect();
    assert_eq!(owners.len(), 28);
    drop(owners);
    followers.tell(&remembered(1, of_user(1001)));
    followers.tell(&remembered(2, JournalEvent::DaemonEnded { status: 3 }));
    assert_eq!(mine[0].next().await.as_deref(), Some("2026-11-20T16:23:03.123456Z daemon-ended status=3"));
    assert!(followers.add(OWNER, WIDE).is_some(), "the place of one that has gone is free again");
}
