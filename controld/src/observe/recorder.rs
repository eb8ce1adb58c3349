//! Where the driver puts every event of the journal, and from where reports about events are answered.
//!
//! ```text
//!                         ┌──► journal file
//! core ─Record─► driver ──┼──► metrics
//!               recorder  ├──► recent events, fault ledger, incidents
//!                         │                                  (events, get_fault_list, get_fault_events)
//!                         └──► followers                     (events --follow)
//! ```
//! The driver owns one recorder. It gives it each event with [`Recorder::record`] and says the line that it gets back,
//! if any. What somebody's clients do by themselves is written at a bounded rate, because anybody can connect and leave
//! as often as he likes: who floods the journal must not push the faults out of it. The metrics count everything, and
//! the journal says how many events are missing. The driver gives the recorder each command with [`Recorder::command`]; and it answers a [`Report`] with [`Recorder::answer`]
//! or, for `events --follow`, [`Recorder::follow`].

use super::cluster::{self, Cluster, Config};
use super::incidents::Incidents;
use super::journal::followers::{Followers, Following, TOO_MANY};
use super::journal::recent::{Recent, Remembered};
use super::journal::{Journal, Stamp};
use super::metrics::{CommandResult, Extras, Metrics, UserClass, classic};
use super::rate::{Bucket, Limiter, Rate, Verdict as Pace};
use crate::core::picture::Snapshot;
use crate::core::{Announcement, JournalEvent};
use crate::report::{self, Fault, FaultLedger, Viewer};
use remps_proto::admin::{CommandName, Output, Report, reply};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Events of one user's clients: a thousand processes may come and go at once, and in the long run an hour of it fits
/// into the journal's default size.
const CLIENT_EVENTS: Rate = Rate { per_second: 20, burst: 5000 };

/// What a session that follows gets: the events before, and those to come.
#[derive(Debug)]
pub(crate) struct Followed {
    /// The newest events so far, as many as were asked for.
    pub lines: Vec<String>,
    /// The events to come; `None` when there are too many followers, which the lines say.
    pub following: Option<Following>,
}

/// Everything that events go into.
#[derive(Debug)]
pub(crate) struct Recorder {
    journal: Journal,
    metrics: Metrics,
    recent: Recent,
    faults: FaultLedger,
    incidents: Incidents,
    followers: Followers,
    limiter: Limiter,
    cluster: Cluster,
}

impl Recorder {
    /// A recorder with its journal in a directory, as [`Journal::open`] has it, that goes on after the events that are
    /// there; `None` is no journal. `with_pids` gives the metrics series for single processes.
    pub(crate) fn new(journal: Option<(&Path, u64)>, with_pids: bool) -> Self {
        let (journal, earlier) =
            journal.map_or_else(|| (Journal::off(), Vec::new()), |(directory, cap)| Journal::open(directory, cap));
        let (mut recent, mut faults) = (Recent::default(), FaultLedger::default());
        let mut incidents = Incidents::default();
        for line in earlier {
            let value: Value = serde_json::from_str(&line).unwrap_or_default();
            let verdict = &value["verdict"];
            if verdict.is_object() {
                let time = value["time"].as_str().unwrap_or_default().to_owned();
                faults.push(Fault::Earlier { time, verdict: verdict.to_string() });
            }
            let remembered = Arc::new(Remembered::earlier(line));
            incidents.push(&remembered);
            recent.push(remembered);
        }
        let limiter = Limiter::new(CLIENT_EVENTS);
        let (metrics, cluster) = (Metrics::new(with_pids), Cluster::default());
        Self { journal, metrics, recent, faults, incidents, followers: Followers::default(), limiter, cluster }
    }

    /// Tells a cluster of verdicts from now on, if there is one to be told.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub(crate) fn tell_cluster(&mut self, config: Config) -> std::io::Result<()> {
        self.cluster = Cluster::begin(config)?;
        Ok(())
    }

    /// Tells it by way of a test's own.
    #[cfg(test)]
    pub(in crate::observe) fn tell_these(&mut self, cluster: Cluster) {
        self.cluster = cluster;
    }

    /// Tells the cluster of a verdict, and counts it for the pods that it concerns.
    pub(crate) fn announce(&mut self, announcement: Announcement) {
        self.metrics.announce(&announcement);
        self.cluster.tell(announcement);
    }

    /// Waits until the cluster is told of every verdict, for a while ([`cluster::FAREWELL`]); gives a line for `control.log`,
    /// if something was not told.
    pub(crate) async fn end(self) -> Option<String> {
        self.end_within(cluster::FAREWELL).await
    }

    /// The same for as long as this at the most.
    pub(in crate::observe) async fn end_within(self, limit: Duration) -> Option<String> {
        self.cluster.end(limit).await
    }

    /// Takes an event in; gives a line for `control.log`, if there is something to say about the journal itself.
    #[must_use = "the line belongs into control.log"]
    pub(crate) fn record(&mut self, event: &JournalEvent, now: SystemTime) -> Option<String> {
        let suppressed = match bucket(event) {
            Some(bucket) => match self.limiter.line(bucket, Instant::now()) {
                Pace::Suppress => {
                    self.metrics.observe(event);
                    return None;
                }
                Pace::Write { suppressed: 0 } => Vec::new(),
                Pace::Write { suppressed } => vec![(bucket, suppressed)],
            },
            // What is never suppressed comes with the counts of all that was.
            None => self.limiter.take_suppressed(),
        };
        let mut remark = None;
        for (bucket, count) in suppressed {
            let uid = if let Bucket::Writer(uid) = bucket { Some(uid) } else { None };
            remark = remark.or(self.write(&JournalEvent::EventsSuppressed { uid, count }, now));
        }
        remark.or(self.write(event, now)).or_else(|| self.cluster.remark())
    }

    fn write(&mut self, event: &JournalEvent, now: SystemTime) -> Option<String> {
        let (stamp, line, remark) = self.journal.append(event, now);
        self.metrics.observe(event);
        if let JournalEvent::Verdict { verdict, users } | JournalEvent::VerdictCorrected { verdict, users } = event {
            let Stamp { time, .. } = stamp.clone();
            self.faults.push(Fault::Own { time, verdict: Box::new(verdict.clone()), users: users.clone() });
        }
        let remembered = Arc::new(Remembered::own(stamp, event.clone(), line));
        self.followers.tell(&remembered);
        self.incidents.push(&remembered);
        self.recent.push(remembered);
        remark
    }

    /// Counts a command. `name` is `None` for a word that is no command.
    pub(crate) fn command(&mut self, name: Option<CommandName>, lines: &[String], user: UserClass, took: Duration) {
        let word = name.map_or("unknown", CommandName::spelling);
        self.metrics.command(word, result(name, lines), user, took);
    }

    /// The answer to one of ReMPS's own commands, from a picture of the daemon in which each client's `verdicts` may
    /// be left empty. For `events --follow` it is what [`Recorder::follow`] begins with.
    ///
    /// # Errors
    /// Why there is none: it is not for this viewer, of nobody whom he may see, or the command makes no sense.
    pub(crate) fn answer(
        &self,
        report: &Report,
        viewer: Viewer,
        snapshot: Snapshot,
        extras: Extras,
    ) -> Result<Vec<String>, Vec<String>> {
        Ok(match report {
            Report::Faults { count, output } => self.faults.list(viewer, *count, *output),
            Report::FaultEvents { fault, output } => self
                .incidents
                .list(viewer, *fault, *output)
                .ok_or_else(|| vec![format!("The events of fault {fault} are not known")])?,
            Report::Client { pid, output } => {
                report::client_state(&self.with_verdicts(snapshot), viewer, *pid, output.form)?
            }
            Report::Channels { pid, output } => report::channel_list(&snapshot, viewer, *pid, output.form)?,
            // Without a number of its own a follower wants what comes.
            Report::Events { count: None, follow: true, .. } => Vec::new(),
            Report::Events { count, output, .. } => self.recent.list(viewer, *count, *output),
            Report::Status { output, .. } => report::status(self.with_verdicts(snapshot), viewer, output.form),
            Report::Vault { output } => report::vault_list(&snapshot.regions, viewer, output.form),
            Report::Module(query) => report::module(&snapshot, viewer, query)?,
            Report::Metrics { output } if viewer.privileged => {
                let metrics = classic(&self.openmetrics(&snapshot, extras));
                match output {
                    Some(output) => report::sample_list(&metrics, output.form),
                    None => metrics.lines().map(str::to_owned).collect(),
                }
            }
            Report::Metrics { .. } => return Err(vec![reply::insufficient_privileges(viewer.uid)]),
            // The driver answers it, which can wait.
            Report::AtRest(query) => return Err(report::nobody(query.whose)),
            Report::Misused { name, word } => {
                return Err(remps_proto::admin::report::misused(*name, word.as_deref()));
            }
        })
    }

    /// Begins `events --follow`.
    #[must_use]
    pub(crate) fn follow(&mut self, viewer: Viewer, count: Option<u32>, output: Output) -> Followed {
        match self.followers.add(viewer, output) {
            Some(following) => {
                let lines = count.map(|count| self.recent.list(viewer, Some(count), output)).unwrap_or_default();
                Followed { lines, following: Some(following) }
            }
            None => Followed { lines: vec![TOO_MANY.to_owned()], following: None },
        }
    }

    /// All metrics in OpenMetrics' text format; the journal's own numbers are filled in here.
    pub(crate) fn openmetrics(&self, snapshot: &Snapshot, extras: Extras) -> String {
        let (journal_lost, followers, told) = (self.journal.lost(), self.followers.count(), self.cluster.told());
        let extras = Extras { journal_lost, followers, told, ..extras };
        self.metrics.openmetrics(snapshot, extras)
    }

    /// Why the journal can't be written now, if it can't.
    pub(crate) fn journal_trouble(&self) -> Option<String> {
        self.journal.trouble()
    }

    /// Opens the journal anew by its name with the next event (SIGHUP).
    pub(crate) fn reopen(&mut self) {
        self.journal.reopen();
    }

    fn with_verdicts(&self, mut snapshot: Snapshot) -> Snapshot {
        for client in &mut snapshot.clients {
            client.verdicts = self.faults.against(client.process.pid, client.process.start_time);
        }
        snapshot
    }
}

/// Whose events an event is counted among; `None` for one that nobody can cause as often as he likes. A client that ends
/// in a fault is part of what is told of the fault.
fn bucket(event: &JournalEvent) -> Option<Bucket> {
    match event {
        JournalEvent::ClientAdmitted { uid, .. }
        | JournalEvent::ClientRefused { uid, .. }
        | JournalEvent::ClientEnded { uid, incident: None, .. }
        | JournalEvent::SpareGranted { uid, .. }
        | JournalEvent::SpareReady { uid, .. }
        | JournalEvent::SpareLives { uid, .. }
        | JournalEvent::SpareEnded { uid, .. }
        | JournalEvent::ClientRecovered { uid, .. }
        | JournalEvent::ClientUnrecovered { uid, .. }
        | JournalEvent::FuneralBegun { uid, .. }
        | JournalEvent::FuneralMeasured { uid, .. }
        | JournalEvent::FuneralEnded { uid, .. }
        | JournalEvent::RegionEscrowed { uid, .. }
        | JournalEvent::RegionsReleased { uid, .. }
        | JournalEvent::RegionsAdopted { uid, .. }
        | JournalEvent::StrangerFound { uid, .. }
        | JournalEvent::StrangerLeft { uid, .. }
        | JournalEvent::RegionExpired { uid, .. } => Some(Bucket::Writer(*uid)),
        JournalEvent::WitnessLost { process: Some(_), .. } | JournalEvent::WitnessMissing { process: Some(_), .. } => {
            Some(Bucket::Chatter)
        }
        JournalEvent::DaemonStarted { .. }
        | JournalEvent::DaemonTakenOver { .. }
        | JournalEvent::DaemonEnded { .. }
        | JournalEvent::ServerStarted { .. }
        | JournalEvent::ServerStartFailed { .. }
        | JournalEvent::ServerReady { .. }
        | JournalEvent::StandbyReady { .. }
        | JournalEvent::ServerTainted { .. }
        | JournalEvent::ServerEndedEarly { .. }
        | JournalEvent::BurialHeld { .. }
        | JournalEvent::ServerSwapped { .. }
        | JournalEvent::ServerExited { .. }
        | JournalEvent::ClientEnded { .. }
        | JournalEvent::FaultSign { .. }
        | JournalEvent::Verdict { .. }
        | JournalEvent::VerdictCorrected { .. }
        | JournalEvent::HardwareSuspected { .. }
        | JournalEvent::CulpritSanctioned { .. }
        | JournalEvent::CulpritGone { .. }
        | JournalEvent::VictimTerminated { .. }
        | JournalEvent::ComputeModeChanged { .. }
        | JournalEvent::StrangerEnded { .. }
        | JournalEvent::BreakerOpened { .. }
        | JournalEvent::BreakerClosed { .. }
        | JournalEvent::EventsSuppressed { .. }
        | JournalEvent::WitnessLost { .. }
        | JournalEvent::WitnessMissing { .. } => None,
    }
}

/// What became of a command, by its answer.
fn result(name: Option<CommandName>, lines: &[String]) -> CommandResult {
    let first = lines.first().map(String::as_str).unwrap_or_default();
    let is_usage = |name| lines.last().is_some_and(|last| *last == remps_proto::admin::report::usage(name));
    if name.is_none_or(is_usage) {
        CommandResult::NotUnderstood
    } else if first == reply::QUIT_REFUSED || first.starts_with(reply::INSUFFICIENT_PRIVILEGES) {
        CommandResult::Refused
    } else {
        CommandResult::Answered
    }
}

#[cfg(test)]
mod tests;
