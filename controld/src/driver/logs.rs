//! The log: the daemon's own lines, and the FIFO into which servers write records, which may speak of faults.

use super::Driver;
use super::witnesses::fault_records::FaultRecords;
use crate::core::{Entrance, Input, JournalEvent, Pid, ServerEpoch};
use crate::io::folder::Folder;
use crate::io::folder::cleaning::Uncleaned;
use crate::io::log_fifo::LogFifo;
use crate::observe::log::LogSink;
use crate::observe::metrics::Extras;
use remps_proto::admin::module::DEFAULT_NAMESPACE;
use remps_proto::mps::log::Record;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// How often it is said how many lines were not logged: one who floods the log makes no lines of that either.
const SUPPRESSED_TELLING: Duration = Duration::from_secs(1);

/// Processes of named servers that are known when one more has begun: more are forgotten when they have ended.
const MOST_NAMED: usize = 1024;

/// Where lines are logged, and what servers write.
pub(super) struct Logs {
    pub(super) sink: LogSink,
    fifo: LogFifo,
    /// Bytes of the FIFO that were no records, as last said.
    garbage: u64,
    faults: FaultRecords,
    /// To which named server processes belong, those that have ended lately among them: their last lines come late.
    named: BTreeMap<Pid, String>,
    /// Files in it are found by their names, also by who reads them after weeks without a line.
    uncleaned: Option<Uncleaned>,
    /// When it was said last which lines were not logged.
    suppressed_told_at: Duration,
}

impl Logs {
    pub(super) fn new(sink: LogSink, fifo: LogFifo) -> Self {
        Self {
            sink,
            fifo,
            garbage: 0,
            faults: FaultRecords::default(),
            named: BTreeMap::new(),
            uncleaned: None,
            suppressed_told_at: Duration::ZERO,
        }
    }

    /// Keeps the directory of the files from being cleaned, if there is one. Who has it for himself keeps it so, too:
    /// named servers may be kept there.
    pub(super) fn keep_uncleaned(&mut self, directory: &Path) {
        self.uncleaned = Folder::open(directory).and_then(|folder| folder.keep_uncleaned()).ok();
    }

    /// A line of our own for `control.log`.
    pub(super) fn say(&self, line: &str) {
        self.sink.control(std::process::id(), line);
    }

    /// The same, of what happens often.
    pub(super) fn chatter(&self, line: &str) {
        self.sink.chatter(std::process::id(), line);
    }

    /// What a server has written to its standard error.
    pub(super) fn server_said(&self, pid: Pid, lines: &[Vec<u8>], dropped: u32) {
        let named = self.named.get(&pid).map(String::as_str);
        for line in lines {
            self.sink.server_stderr(pid, named, line);
        }
        if dropped > 0 {
            self.sink.server_stderr(pid, named, format!("{dropped} lines of standard error dropped").as_bytes());
        }
    }

    pub(super) fn fifo(&self) -> BorrowedFd<'_> {
        self.fifo.as_fd()
    }

    /// The next records. May be dropped at any time.
    pub(super) async fn next(&mut self) -> std::io::Result<Vec<Record>> {
        self.fifo.read().await
    }

    pub(super) fn extras(&self) -> Extras {
        Extras { log: self.sink.counters(), fifo_garbage: self.garbage, ..Extras::default() }
    }

    /// When there is something to tell.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let suppressed = self.sink.has_suppressed().then(|| self.suppressed_told_at + SUPPRESSED_TELLING);
        self.faults.next_deadline().into_iter().chain(suppressed).min()
    }

    /// Of records of which too many came, one more sign for all.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<Input> {
        self.faults.overdue(now).into_iter().map(Input::Evidence).collect()
    }

    /// Logs a record, which anybody may have written; what it says of a fault, if records of its server are heard.
    fn record(&mut self, now: Duration, record: &Record, is_heard: impl Fn(Pid) -> bool) -> Option<Input> {
        self.sink.record(record, self.named.get(&record.pid).map(String::as_str));
        self.faults.hear(now, record, is_heard).map(Input::Evidence)
    }

    fn tell_of_garbage(&mut self) {
        let new = self.fifo.skipped().saturating_sub(self.garbage);
        if new > 0 {
            self.garbage += new;
            self.chatter(&format!("{new} bytes in the log FIFO are no records, {} so far", self.garbage));
        }
    }

    /// Says now and then how many lines were not logged.
    fn report_suppressed(&mut self, now: Duration) {
        if self.sink.has_suppressed() && now >= self.suppressed_told_at + SUPPRESSED_TELLING {
            self.suppressed_told_at = now;
            self.sink.report_suppressed();
        }
    }
}

impl Driver {
    /// A line of our own for `control.log`.
    pub(super) fn say(&self, line: &str) {
        self.logs.say(line);
    }

    pub(super) fn say_all(&self, lines: &[String]) {
        lines.iter().for_each(|line| self.say(line));
    }

    /// A server has this process from now on.
    pub(super) fn server_has(&mut self, server: ServerEpoch, pid: Pid) {
        let Self { logs, servers, core, .. } = self;
        match core.entrance_of(server) {
            Some(entrance) => drop(logs.named.insert(pid, entrance.server)),
            None => drop(logs.named.remove(&pid)),
        }
        if logs.named.len() > MOST_NAMED {
            let living: Vec<Pid> = servers.pids().collect();
            logs.named.retain(|pid, _| living.contains(pid));
        }
    }

    /// Opens the log of a named server, with its first namespace. The logs of those that are deleted and have ended are
    /// closed by then.
    pub(super) fn open_log_of(&self, entrance: &Entrance) {
        if entrance.namespace != DEFAULT_NAMESPACE {
            return;
        }
        let existing = self.core.entrances();
        let of_processes = |name: &str| self.logs.named.values().any(|known| known == name);
        self.logs.sink.keep_named(|name| existing.iter().any(|known| known.server == name) || of_processes(name));
        if let Err(error) = self.logs.sink.open_named(&entrance.server) {
            self.say(&format!("The lines of server {} go to the log of all servers: {error}", entrance.server));
        }
    }

    pub(super) fn records(&mut self, records: &[Record]) {
        for record in records {
            let (now, core) = (self.now(), &self.core);
            if let Some(sign) = self.logs.record(now, record, |pid| core.hears_log_of(pid)) {
                self.feed(sign);
            }
        }
        self.logs.tell_of_garbage();
    }

    /// Takes in what lies in the log FIFO, as much as one read gives: whoever floods it holds up nobody.
    pub(super) fn read_log_now(&mut self) {
        // An error is met again when the FIFO is waited for.
        if let Ok(records) = self.logs.fifo.read_now() {
            self.records(&records);
        }
    }

    /// Says now and then how many records were not heard, and how many lines not logged.
    pub(super) fn tell_of_unheard(&mut self) {
        let now = self.now();
        if let Some(count) = self.logs.faults.take_untold(now) {
            self.say(&format!("{count} records of faults in the log FIFO were too many to be heard"));
            self.record(&JournalEvent::WitnessLost { witness: "server-log", process: None, count });
        }
        self.logs.report_suppressed(now);
    }
}
