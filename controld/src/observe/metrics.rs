//! The metrics: counters and histograms from the journal's events, gauges from a picture of the daemon.
//!
//! Journal and metrics are fed with the same [`JournalEvent`](crate::core::JournalEvent)s at the same place, so that
//! they agree by construction; a test replays a journal and compares. What is not in the journal, since it would fill it
//! up (a Kubernetes probe is a command every ten seconds), is commands, and lines of the logs.
//!
//! | part | is |
//! |---|---|
//! | this file | all of them together, and the two text formats |
//! | `families` | counters and histograms with labels, bounded in number |
//! | `events` | which event counts where |
//! | `gauges` | what is now, from a [`Snapshot`] |
//!
//! Names and units follow Prometheus' rules, the labels of GPUs and pods those of NVIDIA's exporter (`UUID`, `GPU_I_ID`,
//! `namespace`, `pod`, `container`; `internal/pkg/transformation` of <https://github.com/NVIDIA/dcgm-exporter>), so that
//! joins work. Series with a pid are off unless asked for, since each process would leave one in
//! the database; the label `domain` takes a bounded number of values, and `(other)` stands for the rest.
//!
//! What is not told because the daemon, which has no CUDA, cannot know it: how much memory a client has on a GPU, and on
//! which GPU it works before a fault of it names one. So `UUID` is a label of faults and isolations alone. What kept
//! memory and replayed clients cost is told by those who keep and replay.

mod events;
mod families;
mod gauges;
#[cfg(test)]
mod tests;

use crate::core::picture::Snapshot;
use crate::core::{Announcement, JournalEvent};
use crate::observe::cluster::Told;
use crate::observe::log::LogCounters;
use events::EventMetrics;
use families::{Counters, Histograms};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// `Content-Type` of [`Metrics::openmetrics`].
pub(crate) const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// `Content-Type` of [`classic`].
pub(crate) const CLASSIC_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandResult {
    /// It was answered.
    Answered,
    /// Whoever gave it may not.
    Refused,
    /// There is no such command, or not with these arguments.
    NotUnderstood,
}

impl CommandResult {
    const fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::NotUnderstood => "not_understood",
        }
    }
}

/// Who gave a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserClass {
    /// Root.
    Root,
    /// The daemon's owner, if that is not root.
    Owner,
    /// Anybody else.
    Other,
}

impl UserClass {
    const fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Owner => "owner",
            Self::Other => "other",
        }
    }
}

/// What is known besides the picture of the daemon when metrics are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras {
    /// Lines of the logs.
    pub log: LogCounters,
    /// Bytes of the log FIFO that were no records.
    pub fifo_garbage: u64,
    /// Events that are missing in the journal.
    pub journal_lost: u64,
    /// Sessions that follow events.
    pub followers: usize,
    /// What became of what a cluster was to be told; `None` where there is none.
    pub told: Option<Told>,
}

/// All metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    events: EventMetrics,
    commands: Counters,
    command_seconds: Histograms,
    with_pids: bool,
}

impl Metrics {
    /// Metrics that have counted nothing. `with_pids` adds the series of single processes.
    pub(crate) fn new(with_pids: bool) -> Self {
        let mut registry = Registry::with_prefix("mps");
        let events = EventMetrics::register(&mut registry);
        let commands = Counters::register(&mut registry, "commands", "Commands of the command line");
        let command_seconds =
            Histograms::register(&mut registry, "command_seconds", "Time from a command to its whole answer");
        Self { registry, events, commands, command_seconds, with_pids }
    }

    /// Counts an event of the journal.
    pub(crate) fn observe(&mut self, event: &JournalEvent) {
        self.events.observe(event);
    }

    /// Counts a command. `command` is a word of the grammar, or `unknown`, and never what somebody typed.
    pub(crate) fn command(&mut self, command: &'static str, result: CommandResult, user: UserClass, took: Duration) {
        self.commands.add(
            vec![("command", command.into()), ("result", result.word().into()), ("uid_class", user.word().into())],
            1,
        );
        self.command_seconds.observe(vec![("command", command.into())], took);
    }

    /// Counts a verdict for the pods that it concerns.
    pub(crate) fn announce(&mut self, announcement: &Announcement) {
        self.events.announce(announcement);
    }

    /// Everything in OpenMetrics' text format.
    pub(crate) fn openmetrics(&self, snapshot: &Snapshot, extras: Extras) -> String {
        let mut text = String::new();
        let now = gauges::registry(snapshot, extras, self.with_pids);
        // Writing into a string does not fail.
        let _ = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &now))
            .and_then(|()| encode_eof(&mut text));
        text
    }
}

/// Text in OpenMetrics' format in that of Prometheus before it (version 0.0.4), which every scraper and the textfile
/// collector of the node exporter read. They differ in the name of a counter's family, and in two kinds of comments.
pub(crate) fn classic(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Whether the name changes is known from the next line.
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
