//! What daemon and servers say in their files while they run, as events.

use super::log_line::{LogLine, since};
use super::stage::Stage;
use super::story::{Event, Lane, What};
use crate::lab::process::ended_within;
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A file that grows.
#[derive(Debug)]
struct Tail {
    path: PathBuf,
    read: u64,
    rest: Vec<u8>,
}

impl Tail {
    const fn new(path: PathBuf) -> Self {
        Self { path, read: 0, rest: Vec::new() }
    }

    /// The lines that have come since the last time; the file need not be there yet.
    fn lines(&mut self) -> Vec<String> {
        let grown = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.read))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        };
        let bytes = grown().unwrap_or_default();
        self.read += bytes.len() as u64;
        self.rest.extend(bytes);
        let mut lines: Vec<String> =
            self.rest.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        // What has no end yet is looked at again.
        let rest = lines.pop().unwrap_or_default();
        self.rest = rest.into_bytes();
        lines
    }
}

/// All files of one run.
#[derive(Debug)]
pub(super) struct Watch {
    control: Tail,
    server: Tail,
    journal: Tail,
    wall: SystemTime,
    /// The servers that are not known to be gone.
    servers: Vec<i32>,
}

impl Watch {
    /// Nothing has been read yet; `wall` is the beginning of the run.
    pub(super) fn new(stage: &Stage, wall: SystemTime) -> Self {
        let tail = |name: &str| Tail::new(stage.log_dir().join(name));
        let (control, server, journal) = (tail("control.log"), tail("server.log"), tail("events.jsonl"));
        Self { control, server, journal, wall, servers: Vec::new() }
    }

    /// What has happened since the last time; `now` is the time in milliseconds of what has none of its own.
    pub(super) fn look(&mut self, now: f64) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for line in self.control.lines() {
            let Some(line) = LogLine::parse(&line, self.wall) else { continue };
            if let Some(pid) = line.started_server() {
                self.servers.push(pid);
                events.push(Event { ms: line.ms, lane: Lane::Server(pid), what: What::Started { pid } });
            } else if let Some(pid) = line.ready_server() {
                events.push(Event { ms: line.ms, lane: Lane::Server(pid), what: What::Ready });
            }
        }
        for line in self.server.lines() {
            let Some(line) = LogLine::parse(&line, self.wall) else { continue };
            let taken = line.taken_client().map(|pid| What::Took { pid });
            let what = taken.or_else(|| line.named_culprit().map(|pid| What::Blamed { pid }));
            events.extend(what.map(|what| Event { ms: line.ms, lane: Lane::Server(line.pid), what }));
        }
        events.extend(self.journal.lines().iter().filter_map(|line| verdict(line, self.wall)));
        self.servers.retain(|&pid| {
            let is_gone = ended_within(Pid::from_raw(pid), Duration::ZERO);
            if is_gone {
                // Only its parent learns how.
                let what = What::Gone { status: None, signal: None };
                events.push(Event { ms: now, lane: Lane::Server(pid), what });
            }
            !is_gone
        });
        events
    }
}

/// The verdict in a line of the journal.
fn verdict(line: &str, wall: SystemTime) -> Option<Event> {
    let entry: Value = serde_json::from_str(line).ok()?;
    let verdict = entry.get("verdict").filter(|_| entry["event"] == "verdict")?;
    let text = |value: &Value| value.as_str().unwrap_or("nobody").to_owned();
    let (_, time) = entry["time"].as_str()?.split_once('T')?;
    let (culprit, witnesses) = (&verdict["culprit"]["pid"], verdict["witnesses"].as_array()?);
    // The one who names him: on a busy machine somebody else may have spoken first.
    let naming = witnesses.iter().find(|witness| witness["names"].is_number() && witness["names"] == *culprit);
    let what = What::Verdict {
        pid: culprit.as_i64().and_then(|pid| i32::try_from(pid).ok()),
        confidence: text(&verdict["confidence"]),
        witness: text(&naming.or_else(|| witnesses.first()).unwrap_or(&Value::Null)["witness"]),
    };
    Some(Event { ms: since(time.strip_suffix('Z')?, wall)?, lane: Lane::Daemon, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_growing_file_gives_each_line_once_and_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut tail = Tail::new(path.clone());
        assert_eq!(tail.lines(), [""; 0], "it is not there yet");
        let mut file = File::create(path).expect("it is ours");
        let mut write = |text: &str| file.write_all(text.as_bytes()).expect("it is ours");
        write("one\ntw");
        assert_eq!(tail.lines(), ["one"]);
        write("o\nthree\n");
        assert_eq!(tail.lines(), ["two", "three"]);
        assert_eq!(tail.lines(), [""; 0]);
    }

    #[test]
    fn a_verdict_is_read_from_the_journal() {
        let line = r#"{"seq":14,"time":"1970-01-01T00:00:02.500250Z","event":"verdict","verdict":
            {"culprit":{"pid":77},"confidence":"certain","witnesses":
            [{"witness":"server-log","names":78},{"witness":"uvm-event","names":77}]}}"#;
        let line = line.replace('\n', "");
        let event = verdict(&line, UNIX_EPOCH).expect("a verdict");
        assert!((event.ms - 2500.25).abs() < 0.001, "{event:?}");
        let expected =
            What::Verdict { pid: Some(77), confidence: "certain".to_owned(), witness: "uvm-event".to_owned() };
        assert_eq!((event.lane, event.what), (Lane::Daemon, expected));
        assert_eq!(verdict(r#"{"event":"daemon-started","time":"1970-01-01T00:00:00Z"}"#, UNIX_EPOCH), None);
    }
}
