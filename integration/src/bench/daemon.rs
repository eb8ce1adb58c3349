//! What the daemon takes: for a command, with and without a flood of log records, for its end, and of memory.

use super::figures::{Figure, Samples};
use super::programs::Programs;
use super::{BenchError, system};
use crate::lab::LIMIT;
use crate::lab::client::Connection;
use crate::lab::commands::{ask, send, session};
use crate::lab::program::Program;
use crate::lab::stage::{Part, Stage};
use nix::unistd::{Pid, geteuid};
use remps_proto::mps::log::{LocalTime, Record, Source};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A rate is measured in so many parts.
const PARTS: usize = 20;
/// Commands of a part.
const COMMANDS: u32 = 500;
/// Starts of the command line.
const STARTS: usize = 50;
/// Commands beside a flood.
const FLOODED: usize = 500;
/// Daemons that are started and ended.
const DAEMONS: usize = 5;
/// A command of which the answer is known.
const QUESTION: &str = "get_default_active_thread_percentage";
const ANSWER: &[u8] = b"100.0";

pub(super) fn measure(programs: &Programs) -> Result<Vec<Figure>, BenchError> {
    let stage = programs.stage();
    let _client = Program::attached(&stage, geteuid().as_raw());
    let figures = [rates(&stage)?, command_line(&stage), flood(&stage)?];
    drop(stage);
    let ends = [quits(programs), memory(programs)];
    Ok(figures.into_iter().chain(ends).collect())
}

fn is_answer(answer: &[u8], expected: &[u8]) -> Result<(), BenchError> {
    let wrong = || BenchError::Wrong(format!("a command was answered with {:?}", String::from_utf8_lossy(answer)));
    answer.ends_with(expected).then_some(()).ok_or_else(wrong)
}

fn answered(session: &Connection, line: &str, expected: &[u8]) -> Result<(), BenchError> {
    is_answer(&ask(session, line).map_err(system("ask"))?, expected)
}

/// How often a second something is done, in each of many parts.
fn rate(mut one: impl FnMut() -> Result<(), BenchError>) -> Result<Samples, BenchError> {
    let part = |_| {
        let began = Instant::now();
        (0..COMMANDS).try_for_each(|_| one())?;
        Ok(f64::from(COMMANDS) / began.elapsed().as_secs_f64())
    };
    Ok(Samples::new((0..PARTS).map(part).collect::<Result<Vec<_>, BenchError>>()?))
}

fn rates(stage: &Stage) -> Result<Figure, BenchError> {
    let server = stage.only(Part::Server);
    let many = session(stage.pipe_dir()).map_err(system("open a session"))?;
    let about = format!("Commands over a session's socket, {PARTS} parts of {COMMANDS} each.");
    Ok(Figure::new("commands a second", about)
        .with("one session, answered by the daemon, 1/s", rate(|| answered(&many, QUESTION, ANSWER))?)
        .with(
            "one session, answered by the server, 1/s",
            rate(|| answered(&many, &format!("get_server_status {server}"), b"ACTIVE"))?,
        )
        .with(
            "a session for each command, 1/s",
            rate(|| answered(&session(stage.pipe_dir()).map_err(system("open a session"))?, QUESTION, ANSWER))?,
        ))
}

/// A whole program that asks one thing, without a line end as in `echo -n … | nvidia-cuda-mps-control`.
fn command_line(stage: &Stage) -> Figure {
    let times = (0..STARTS).map(|_| {
        let began = Instant::now();
        assert_eq!(stage.ask(QUESTION), "100.0\n");
        began.elapsed()
    });
    let about = "From the start of the command line to its end, with a command that has no line end.";
    Figure::new("command line", about).with("ms", Samples::milliseconds(times))
}

/// Fills the FIFO until there is no room.
fn fill(mut fifo: &File, record: &[u8]) -> std::io::Result<()> {
    loop {
        match fifo.write(record) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn flood(stage: &Stage) -> Result<Figure, BenchError> {
    let path = stage.pipe_dir().join("log");
    let fifo =
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(system("open the log"))?;
    let time = LocalTime { year: 2026, month: 1, day: 1, ..LocalTime::default() };
    let record = Record { source: Source::SERVER, pid: 7, time, text: vec![b'y'; 1000] }.encode();
    let own = session(stage.pipe_dir()).map_err(system("open a session"))?;
    let once = || {
        let began = Instant::now();
        answered(&own, QUESTION, ANSWER).map(|()| began.elapsed())
    };
    let times = || (0..FLOODED).map(|_| once()).collect::<Result<Vec<Duration>, BenchError>>();
    let calm = times()?;
    let is_over = AtomicBool::new(false);
    let flooded = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fill(&fifo, &record)?;
                std::thread::yield_now();
            }
            Ok(())
        });
        let times = times();
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("it only writes").map_err(system("write to the log")).and(times)
    })?;
    let about = "A command over a session's socket, beside a writer that keeps the log's FIFO full of records.";
    Ok(Figure::new("commands beside a flood", about)
        .with("without the flood, ms", Samples::milliseconds(calm))
        .with("with it, ms", Samples::milliseconds(flooded)))
}

/// From the command to the end of the daemon's process.
fn end(stage: &mut Stage, line: &str) -> Duration {
    let own = session(stage.pipe_dir()).expect("it answers");
    let began = Instant::now();
    send(&own, line).expect("it answers");
    let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
    assert_eq!(finished.code, Some(0), "{line}");
    began.elapsed()
}

fn quits(programs: &Programs) -> Figure {
    let user = geteuid().as_raw();
    let idle = (0..DAEMONS).map(|_| {
        let mut stage = programs.stage();
        Program::attached(&stage, user).leave();
        end(&mut stage, "quit")
    });
    let idle = Samples::milliseconds(idle);
    let limited = (0..DAEMONS).map(|_| {
        let mut stage = programs.stage();
        let _client = Program::attached(&stage, user);
        end(&mut stage, "quit -t 1")
    });
    Figure::new("quit", "From the command to the end of the daemon's process.")
        .with("with an idle server, ms", idle)
        .with("`-t 1` with a client that stays, ms", Samples::milliseconds(limited))
}

fn status(pid: Pid, field: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel has it");
    let kib: u32 = line.trim_start_matches(':').trim_end_matches(" kB").trim().parse().expect("a number");
    f64::from(kib)
}

fn memory(programs: &Programs) -> Figure {
    let mut figure = Figure::new("idle memory", "Of processes with one client that does nothing.");
    let mut all = Vec::new();
    for _ in 0..DAEMONS {
        let stage = programs.stage();
        let _client = Program::attached(&stage, geteuid().as_raw());
        let parts = [stage.daemon().pid(), stage.only(Part::Holder)];
        all.push(parts.map(|pid| ["VmRSS", "RssAnon"].map(|field| status(pid, field))));
    }
    for (part, who) in ["daemon", "holder"].iter().enumerate() {
        for (field, what) in ["resident", "of that its own"].iter().enumerate() {
            figure = figure.with(format!("{who}, {what}, KiB"), Samples::new(all.iter().map(|run| run[part][field])));
        }
    }
    figure
}
