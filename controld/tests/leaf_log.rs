//! The log under what happens to logs: a full disk, a follower, a closed or stuck standard output.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use remps_controld::parts::observe::log::{CONTROL_LOG, Format, Limits, LogSink};
use remps_controld::parts::observe::rate::Rate;

const DEADLINE: Duration = Duration::from_secs(120);
const PLENTY: Rate = Rate { per_second: u32::MAX, burst: u32::MAX };

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file system of 64 KiB, gone at the end of the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(folder.path()).output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg(self.0.path()).status().unwrap().success());
    }
}

fn sink(directory: &Path, file_bytes: u64) -> LogSink {
    let (sink, warning) = LogSink::files(directory, Limits { file_bytes, rate: PLENTY }, Format::Vendor);
    assert!(warning.is_none(), "{warning:?}");
    sink
}

#[test]
fn a_full_disk_loses_lines_and_one_line_says_so_when_there_is_room_again() {
    let Some(disk) = SmallDisk::mount() else {
        println!("Skipped(no right to mount a small file system)");
        return;
    };
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 32 * 1024]).unwrap();
    let sink = sink(disk.path(), 1 << 20);
    let long = "x".repeat(1000);
    while sink.counters().dropped < 5 {
        sink.control(1, &long);
    }
    let full = fs::read_to_string(disk.path().join(CONTROL_LOG)).unwrap();
    fs::remove_file(&filler).unwrap();
    sink.control(1, "after");
    sink.control(1, "and on");
    let text = fs::read_to_string(disk.path().join(CONTROL_LOG)).unwrap();
    let lines: Vec<&str> = text.strip_prefix(&full).unwrap().lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].ends_with("] Log writing works again, 5 lines were lost"), "{lines:?}");
    assert!(lines[1].ends_with("] after") && lines[2].ends_with("] and on"), "{lines:?}");
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with('[')), "a torn line was not ended");
    assert_eq!(sink.counters().dropped, 5);
}

#[test]
fn a_full_disk_does_not_let_a_file_grow_past_its_cap() {
    let Some(disk) = SmallDisk::mount() else {
        println!("Skipped(no right to mount a small file system)");
        return;
    };
    // The newest half does not fit beside the file, so it is lost; what counts is that logging goes on.
    let sink = sink(disk.path(), 48 * 1024);
    let long = "x".repeat(1000);
    while sink.counters().truncations < 3 {
        sink.control(1, &long);
    }
    assert_eq!(sink.counters().dropped, 0);
    assert!(fs::metadata(disk.path().join(CONTROL_LOG)).unwrap().len() <= 48 * 1024);
}

#[test]
fn a_follower_by_descriptor_sees_every_line_once_through_truncations() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink(folder.path(), 2048);
    let mut tail = Killed(
        Command::new("tail")
            .args(["-n", "+1", "-f"])
            .arg(folder.path().join(CONTROL_LOG))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let follower = BufReader::new(tail.0.stdout.take().unwrap());
    let (seen_tx, seen_rx) = mpsc::channel();
    std::thread::spawn(move || follower.lines().map_while(Result::ok).try_for_each(|line| seen_tx.send(line)));
    let mut number = 0;
    while sink.counters().truncations < 4 {
        sink.control(1, &format!("line {number}"));
        // In step, as a follower that keeps up: one that lags behind a truncation has lost lines with any program.
        assert!(seen_rx.recv_timeout(DEADLINE).unwrap().ends_with(&format!("] line {number}")));
        number += 1;
    }
    sink.control(1, "last");
    assert!(seen_rx.recv_timeout(DEADLINE).unwrap().ends_with("] last"));
}

#[test]
fn a_closed_reader_of_standard_output_costs_lines_and_nothing_else() {
    let (reader, writer) = std::io::pipe().unwrap();
    let sink = LogSink::stream(&writer, PLENTY, Format::Vendor);
    sink.control(1, "one");
    drop(reader);
    // A child that another test has just forked has it until it executes its program.
    let mut closed = [PollFd::new(writer.as_fd(), PollFlags::empty())];
    assert_eq!(poll(&mut closed, PollTimeout::try_from(DEADLINE).unwrap()), Ok(1));
    sink.control(1, "two");
    let counters = sink.counters();
    assert_eq!((counters.written, counters.dropped), (1, 1));
}

#[test]
fn a_log_on_a_pipe_without_reader_does_not_block_the_start() {
    let folder = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&folder.path().join(CONTROL_LOG), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (sink, warning) = LogSink::files(folder.path(), Limits::default(), Format::Vendor);
    assert!(warning.is_some());
    sink.control(1, "one");
    assert_eq!(sink.counters().dropped, 1);
}

#[test]
fn a_link_to_a_device_is_followed_and_never_truncated() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.path().join(CONTROL_LOG)).unwrap();
    let sink = sink(folder.path(), 16);
    for _ in 0..10 {
        sink.control(1, "one");
    }
    let counters = sink.counters();
    assert_eq!((counters.written, counters.truncations), (10, 0));
}
