//! The log FIFO against real writers: garbage, floods, writers that die, links in its place.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use remps_controld::parts::io::folder::Folder;
use remps_controld::parts::io::log_fifo::{self, HALF_RECORD_DEADLINE, LogFifo};
use remps_proto::mps::log::{LocalTime, Record, Source};

/// Whatever takes longer than this has hung.
const DEADLINE: Duration = Duration::from_secs(120);

fn record(text: &str) -> Record {
    let time = LocalTime { year: 2026, month: 11, day: 20, ..LocalTime::default() };
    Record { source: Source::SERVER, pid: 519, time, text: text.as_bytes().to_vec() }
}

fn made(path: &Path, mode: u32) -> std::io::Result<std::os::fd::OwnedFd> {
    log_fifo::create(&Folder::open(path.parent().unwrap()).unwrap(), path.file_name().unwrap().to_str().unwrap(), mode)
}

fn fifo(path: &Path) -> LogFifo {
    LogFifo::from_fd(made(path, log_fifo::MODE).unwrap()).unwrap()
}

/// Reads until `count` records are there.
async fn records(fifo: &mut LogFifo, count: usize) -> Vec<Record> {
    let mut records = Vec::new();
    let read = async {
        while records.len() < count {
            records.extend(fifo.read().await.unwrap());
        }
    };
    tokio::time::timeout(DEADLINE, read).await.expect("records did not come");
    records
}

fn writer(path: &Path) -> fs::File {
    OpenOptions::new().write(true).open(path).unwrap()
}

#[tokio::test]
async fn every_user_may_write_and_a_stale_fifo_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let stale = made(&path, 0o600).unwrap();
    // Kept, so that its inode number is not used again.
    let kept = folder.path().join("kept");
    fs::hard_link(&path, &kept).unwrap();
    let old = fs::metadata(&path).unwrap().ino();
    let mut fifo = fifo(&path);
    let there = fs::symlink_metadata(&path).unwrap();
    assert!(there.file_type().is_fifo());
    assert_ne!(there.ino(), old);
    assert_eq!(there.permissions().mode() & 0o7777, 0o622);
    writer(&path).write_all(&record("one").encode()).unwrap();
    assert_eq!(records(&mut fifo, 1).await, [record("one")]);
    drop(stale);
}

#[test]
fn what_has_the_name_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let target = folder.path().join("target");
    symlink(&target, &path).unwrap();
    made(&path, 0o622).unwrap();
    assert!(!target.exists());
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(made(&path, 0o622).unwrap_err().kind(), std::io::ErrorKind::IsADirectory);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

#[tokio::test]
async fn garbage_is_counted_and_the_records_after_it_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut fifo = fifo(&path);
    let mut writer = writer(&path);
    writer.write_all(&[0xff; 10_000]).unwrap();
    writer.write_all(&record("after").encode()).unwrap();
    assert_eq!(records(&mut fifo, 1).await, [record("after")]);
    assert_eq!(fifo.skipped(), 10_000);
}

#[tokio::test]
async fn a_million_bytes_of_records_fit_before_anybody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut fifo = fifo(&path);
    let mut writer = OpenOptions::new().write(true).custom_flags_nonblock().open(&path).unwrap();
    let bytes = record(&"x".repeat(952)).encode();
    assert_eq!(bytes.len(), 1000);
    let mut written = 0;
    while writer.write_all(&bytes).is_ok() {
        written += 1;
    }
    assert!(written >= 250, "the pipe took {written} records of 1000 bytes");
    // The one that did not fit may have gone in by half; it is completed by none, so it is given up.
    assert_eq!(records(&mut fifo, written).await.len(), written);
}

#[tokio::test]
async fn a_turn_is_bounded_however_much_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut fifo = fifo(&path);
    let mut writer = OpenOptions::new().write(true).custom_flags_nonblock().open(&path).unwrap();
    let bytes = record("").encode();
    while writer.write_all(&bytes).is_ok() {}
    let turn = tokio::time::timeout(DEADLINE, fifo.read()).await.unwrap().unwrap();
    assert!(turn.len() * bytes.len() <= 64 * 1024 && !turn.is_empty(), "{} records", turn.len());
}

#[tokio::test]
async fn half_a_record_of_a_dead_writer_does_not_swallow_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut fifo = fifo(&path);
    let half = &record(&"x".repeat(1000)).encode()[..500];
    writer(&path).write_all(half).unwrap();
    let start = Instant::now();
    // The daemon drops the future of a read whenever another event comes first.
    let mut other_events = tokio::time::interval(Duration::from_millis(50));
    while fifo.skipped() == 0 {
        assert!(start.elapsed() < DEADLINE, "the half record was kept");
        tokio::select! {
            read = fifo.read() => assert_eq!(read.unwrap(), []),
            _ = other_events.tick() => {}
        }
    }
    assert!(start.elapsed() >= HALF_RECORD_DEADLINE);
    assert_eq!(fifo.skipped(), 500);
    writer(&path).write_all(&record("next").encode()).unwrap();
    assert_eq!(records(&mut fifo, 1).await, [record("next")]);
}

#[tokio::test]
async fn a_record_in_two_writes_is_one_record() {
    let bytes = record("in two").encode();
    let start = Instant::now();
    loop {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut fifo = fifo(&path);
        let mut writer = writer(&path);
        let begun = Instant::now();
        writer.write_all(&bytes[..48]).unwrap();
        assert_eq!(fifo.read().await.unwrap(), []);
        writer.write_all(&bytes[48..]).unwrap();
        let read = tokio::time::timeout(DEADLINE, fifo.read()).await.unwrap().unwrap();
        // Where the machine stood still meanwhile the second half came too late, which says nothing.
        if begun.elapsed() < HALF_RECORD_DEADLINE {
            assert_eq!((read.as_slice(), fifo.skipped()), ([record("in two")].as_slice(), 0));
            return;
        }
        assert!(start.elapsed() < DEADLINE, "the machine stands still all the time");
    }
}

#[tokio::test]
async fn a_successor_goes_on_with_the_same_fifo() {
    use std::os::fd::AsFd;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let first = fifo(&path);
    let copy = first.as_fd().try_clone_to_owned().unwrap();
    let mut writer = writer(&path);
    writer.write_all(&record("unread").encode()).unwrap();
    drop(first);
    let mut successor = LogFifo::from_fd(copy).unwrap();
    assert_eq!(records(&mut successor, 1).await, [record("unread")]);
    writer.write_all(&record("later").encode()).unwrap();
    assert_eq!(records(&mut successor, 1).await, [record("later")]);
}

trait NonBlocking {
    fn custom_flags_nonblock(&mut self) -> &mut Self;
}

impl NonBlocking for OpenOptions {
    fn custom_flags_nonblock(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self, libc::O_NONBLOCK)
    }
}
