use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn record(source: Source, text: &str) -> Record {
    Record { source, pid: 519, time: now(), text: text.as_bytes().to_vec() }
}

/// The lines of a file without their time.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split_once("] ").map_or(line, |(_, text)| text).to_owned()).collect()
}

fn sink(directory: &Path, limits: Limits) -> LogSink {
    let (sink, warning) = LogSink::files(directory, limits, Format::Vendor);
    assert!(warning.is_none(), "{warning:?}");
    sink
}

#[test]
fn both_files_exist_at_once_with_the_vendors_modes() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("logs");
    let _sink = sink(&directory, Limits::default());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join(CONTROL_LOG)), 0o644);
    assert_eq!(mode(&directory.join(SERVER_LOG)), 0o644);
}

#[test]
fn each_source_goes_to_its_file_in_the_vendors_form() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink(folder.path(), Limits::default());
    sink.control(42, "Starting new server 519 for user 0");
    sink.chatter(42, "NEW UI");
    sink.record(&record(Source::CONTROL, "of a vendor's thread"), None);
    sink.record(&record(Source::SERVER, "Server has started"), None);
    sink.record(&record(Source::OTHER, "Startup"), None);
    sink.server_stderr(519, None, b"cannot load\x1b[2J libcuda");
    assert_eq!(
        lines(&folder.path().join(CONTROL_LOG)),
        ["Starting new server 519 for user 0", "NEW UI", "of a vendor's thread"]
    );
    assert_eq!(lines(&folder.path().join(SERVER_LOG)), ["Server has started", "Startup", "cannot load [2J libcuda"]);
    let first = fs::read_to_string(folder.path().join(CONTROL_LOG)).unwrap();
    assert!(first.contains(" Control    42] Starting"), "{first}");
    assert_eq!(sink.counters(), LogCounters { written: 6, ..LogCounters::default() });
}

#[test]
fn a_named_server_has_a_file_of_its_own_that_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink(folder.path(), Limits { file_bytes: 4096, ..Limits::default() });
    let own = folder.path().join("training").join(SERVER_LOG);
    sink.open_named("training").unwrap();
    assert_eq!(lines(&own), Vec::<String>::new(), "it is there at once");
    sink.record(&record(Source::SERVER, "its own"), Some("training"));
    sink.server_stderr(519, Some("training"), b"its error");
    // Who says that he is the daemon is believed as little as ever, and only in the daemon's file.
    sink.record(&record(Source::CONTROL, "of the daemon"), Some("training"));
    sink.record(&record(Source::SERVER, "another's"), Some("inference"));
    assert_eq!(lines(&own), ["its own", "its error"]);
    assert_eq!(lines(&folder.path().join(CONTROL_LOG)), ["of the daemon"]);
    assert_eq!(lines(&folder.path().join(SERVER_LOG)), ["another's"], "one without a file");
    // It is written on by its name after a hangup, and has the others' cap.
    fs::rename(&own, folder.path().join("rotated")).unwrap();
    sink.reopen().unwrap();
    for _ in 0..100 {
        sink.record(&record(Source::SERVER, &"x".repeat(100)), Some("training"));
    }
    assert!(fs::metadata(&own).unwrap().len() <= 4096);
    assert!(sink.counters().truncations > 0);
    sink.keep_named(|name| name != "training");
    sink.record(&record(Source::SERVER, "late"), Some("training"));
    assert_eq!(lines(&folder.path().join(SERVER_LOG)).last().map(String::as_str), Some("late"));
    assert!(own.exists());
}

#[test]
fn a_named_server_whose_file_cannot_be_made_goes_on_in_that_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink(folder.path(), Limits::default());
    fs::write(folder.path().join("training"), "in the way").unwrap();
    sink.open_named("training").unwrap_err();
    sink.record(&record(Source::SERVER, "a line"), Some("training"));
    assert_eq!(lines(&folder.path().join(SERVER_LOG)), ["a line"]);
}

#[test]
fn lines_are_appended_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    sink(folder.path(), Limits::default()).control(1, "one");
    sink(folder.path(), Limits::default()).control(1, "two");
    assert_eq!(lines(&folder.path().join(CONTROL_LOG)), ["one", "two"]);
}

#[test]
fn without_a_directory_the_warning_is_the_vendors_and_lines_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("missing/logs");
    let (sink, warning) = LogSink::files(&directory, Limits::default(), Format::Vendor);
    assert_eq!(
        warning.unwrap().to_string(),
        format!("Warning: Failed writing log files to directory [{}]. No logs will be available.", directory.display())
    );
    sink.control(1, "one");
    assert_eq!(sink.counters().dropped, 1);
}

#[test]
fn a_flood_of_one_writer_is_cut_counted_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let rate = Rate { per_second: 1, burst: 10 };
    let sink = sink(folder.path(), Limits { rate, ..Limits::default() });
    for _ in 0..1_000 {
        sink.record(&record(Source::SERVER, "flood"), None);
    }
    sink.control(1, "still heard");
    assert!(sink.has_suppressed());
    sink.report_suppressed();
    let counters = sink.counters();
    assert!(counters.suppressed >= 900, "{counters:?}");
    let server = lines(&folder.path().join(SERVER_LOG));
    assert_eq!(server.iter().filter(|line| *line == "flood").count() as u64 + counters.suppressed, 1_000);
    assert!(server.last().unwrap().ends_with("lines suppressed (process 519)"), "{server:?}");
    assert_eq!(lines(&folder.path().join(CONTROL_LOG)), ["still heard"]);
}

#[test]
fn at_the_cap_the_file_starts_over_in_place_and_the_newest_half_is_kept_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(CONTROL_LOG);
    let cap = 4096;
    let sink = sink(folder.path(), Limits { file_bytes: cap, ..Limits::default() });
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let mut written = 0;
    while sink.counters().truncations < 3 {
        sink.control(1, &format!("line {written}"));
        written += 1;
        assert!(fs::metadata(&path).unwrap().len() <= cap);
    }
    assert_eq!(std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap()), inode);
    assert_eq!(lines(&path), [format!("line {}", written - 1)]);
    let kept = lines(&folder.path().join("control.log.1"));
    assert_eq!(kept.last().unwrap(), &format!("line {}", written - 2));
    assert!(fs::metadata(folder.path().join("control.log.1")).unwrap().len() <= cap / 2);
}

#[test]
fn a_file_truncated_by_someone_else_is_written_on_from_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(CONTROL_LOG);
    let sink = sink(folder.path(), Limits { file_bytes: 4096, ..Limits::default() });
    for _ in 0..40 {
        sink.control(1, "before");
    }
    fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    for _ in 0..40 {
        sink.control(1, "after");
    }
    assert_eq!(lines(&path), ["after"; 40]);
    assert_eq!(sink.counters().truncations, 0);
}

#[test]
fn a_file_moved_away_is_made_anew_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(CONTROL_LOG);
    let sink = sink(folder.path(), Limits::default());
    sink.control(1, "old");
    fs::rename(&path, folder.path().join("moved")).unwrap();
    sink.control(1, "old too");
    sink.reopen().unwrap();
    sink.control(1, "new");
    assert_eq!(lines(&folder.path().join("moved")), ["old", "old too"]);
    assert_eq!(lines(&path), ["new"]);
}

#[test]
fn json_is_one_object_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let (sink, _) = LogSink::files(folder.path(), Limits::default(), Format::Json);
    sink.record(&record(Source::SERVER, "a \"quoted\"\nline"), None);
    let text = fs::read_to_string(folder.path().join(SERVER_LOG)).unwrap();
    let value: Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!((value["source"].as_str(), value["pid"].as_u64()), (Some("Server"), Some(519)));
    assert_eq!(value["text"], "a \"quoted\"\nline");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn what_keeps_lines_from_being_kept_is_known_while_it_lasts() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("logs");
    let log = sink(&directory, Limits::default());
    log.control(1, "one");
    assert!(log.troubles().is_empty());
    fs::remove_dir_all(&directory).unwrap();
    log.control(1, "two");
    let troubles = log.troubles();
    assert_eq!(troubles.len(), 2, "of both files: {troubles:?}");
    assert!(troubles.iter().all(|text| text.contains("logs/") && text.contains("was removed")), "{troubles:?}");
    fs::create_dir(&directory).unwrap();
    log.reopen().unwrap();
    assert!(log.troubles().is_empty());
    let (none, _) = LogSink::files(&folder.path().join("missing/logs"), Limits::default(), Format::Vendor);
    let troubles = none.troubles();
    assert!(troubles.len() == 1 && troubles[0].starts_with("no log files in "), "{troubles:?}");
    none.control(1, "one");
    assert_eq!(none.troubles(), troubles, "the first reason is the one that helps");
}
