//! What the daemon tells of itself: events into the journal, answers to the commands of ours, vitals over HTTP.

use super::Driver;
use super::degraded::Degraded;
use super::sessions::conversation::ToSession;
use crate::core::picture::{DaemonFacts, Degradation, ReplayFacts, RightsFacts, Snapshot};
use crate::core::vault::Caller;
use crate::core::{Announcement, JournalEvent, Peer, Place, ProcessKey, SessionId, Uid};
use crate::observe::http::{self, Endpoint, Question, Vitals};
use crate::observe::metrics::UserClass;
use crate::observe::recorder::{Followed, Recorder};
use crate::report::Viewer;
use crate::settings::Settings;
use crate::sys::proc::own_capabilities;
use nix::unistd::geteuid;
use remps_proto::admin::module::{ClientField, Query};
use remps_proto::admin::{Personality, Report};
use remps_proto::shim::ProgramDefaults;
use std::time::SystemTime;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// What serves metrics and health, if anything does.
#[derive(Debug, Default)]
struct Served {
    task: Option<AbortHandle>,
    /// connections --questions--> driver
    questions_rx: Option<mpsc::Receiver<Question>>,
}

impl Served {
    /// The next question. May be dropped at any time.
    async fn next(&mut self) -> Question {
        if let Some(questions_rx) = &mut self.questions_rx
            && let Some(question) = questions_rx.recv().await
        {
            return question;
        }
        std::future::pending().await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What the daemon knows of itself, and where it is told.
pub(super) struct Reports {
    recorder: Recorder,
    served: Served,
    pub(super) degraded: Degraded,
    personality: Personality,
    /// The version of the installed driver, where it is known.
    driver: Option<String>,
    /// What the daemon may do, which stays as it was at the start.
    rights: RightsFacts,
}

impl Reports {
    /// Of a daemon that answers as this release does, where the driver is `installed`.
    pub(super) fn new(settings: &Settings, personality: Personality, installed: Option<String>) -> Self {
        let observe = &settings.file.observe;
        let size = observe.journal_size_mib.saturating_mul(1 << 20);
        let journal = observe.journal.then_some((settings.log_directory.as_path(), size));
        let degraded = Degraded::playing(personality, settings.personality.as_deref(), installed.as_deref());
        let recorder = Recorder::new(journal, observe.per_process_metrics);
        let rights = RightsFacts::of(geteuid().as_raw(), own_capabilities());
        Self { recorder, served: Served::default(), degraded, personality, driver: installed, rights }
    }

    /// The next question. May be dropped at any time.
    pub(super) async fn next(&mut self) -> Question {
        self.served.next().await
    }

    /// Serves nothing more, and waits until the cluster is told of every verdict, for a while; gives a line for the log, if
    /// something was not told.
    pub(super) async fn end(self) -> Option<String> {
        drop(self.served);
        self.recorder.end().await
    }

    /// Tells the cluster of a verdict.
    pub(super) fn announce(&mut self, announcement: Announcement) {
        self.recorder.announce(announcement);
    }
}

impl Driver {
    /// Puts an event into the journal and wherever else events go.
    pub(super) fn record(&mut self, event: &JournalEvent) {
        self.vault.hear(event);
        if let Some(remark) = self.reports.recorder.record(event, SystemTime::now()) {
            self.say(&remark);
        }
    }

    /// Says that the daemon is there, and begins to serve metrics and health. Without them it does as well.
    pub(super) async fn begin_observing(&mut self, is_fresh: bool) {
        let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
        let event = if is_fresh {
            JournalEvent::DaemonStarted { pid, version, personality: self.reports.personality.to_string() }
        } else {
            let (servers, clients) = (self.core.servers().count(), self.core.waiting());
            JournalEvent::DaemonTakenOver { pid, version, servers, clients }
        };
        if let Err(error) = self.reports.recorder.tell_cluster(self.settings.cluster()) {
            self.say(&format!("The cluster is told nothing: {error}"));
        }
        self.record(&event);
        let listen = self.settings.file.observe.listen.clone();
        if listen.is_empty() {
            return;
        }
        match Endpoint::bind(&listen).await {
            Ok(endpoint) => {
                let (task, questions_rx) = http::serve(endpoint);
                self.reports.served = Served { task: Some(task), questions_rx: Some(questions_rx) };
                self.say(&format!("Metrics and health are served on {listen}"));
            }
            Err(error) => {
                self.say(&format!("Metrics and health are not served: {error}"));
                self.reports.degraded.without_metrics(error.to_string());
            }
        }
    }

    /// The option for static SM partitions was given, which is taken and has no effect.
    pub(crate) fn makes_no_partitions(&mut self) {
        self.reports.degraded.without_partitions();
    }

    /// Says in the log what the daemon does without at its start, in a line each, which nobody would look for where
    /// everything seems to work. Where there is no log, whoever starts it is told so in the vendor's words.
    pub(crate) fn log_obstacles(&self) {
        let found = self.degradations(self.missing_server());
        for Degradation { part, text } in found.iter().filter(|one| one.part != "log") {
            self.say(&format!("Warning: {part}: {text}"));
        }
    }

    /// Why no server can be started.
    fn missing_server(&self) -> Option<String> {
        self.servers.program().err()
    }

    fn degradations(&self, server: Option<String>) -> Vec<Degradation> {
        let (journal, log) = (self.reports.recorder.journal_trouble(), self.logs.sink.troubles());
        self.reports.degraded.all(server, self.successor.trouble(), journal, log)
    }

    /// What programs get that say nothing, where that is not nothing for everybody.
    fn replay_facts(&self, claim: Option<ProgramDefaults>) -> Option<ReplayFacts> {
        let file = &self.settings.file;
        let (all, tables) = (claim.unwrap_or(file.replay.words()), file.domain_replays.iter().flatten().count());
        let is_said = all != ProgramDefaults::default() || tables > 0;
        is_said.then(|| ReplayFacts { keep: all.keep.word(), recover: all.recover.word(), tables })
    }

    fn picture(&self) -> Snapshot {
        let no_server = self.missing_server();
        let daemon = DaemonFacts {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            personality: self.reports.personality.to_string(),
            owner: self.owner,
            rights: self.reports.rights.clone(),
            uptime: self.now(),
            quitting: self.core.is_quitting(),
            obstacles: no_server.clone().into_iter().collect(),
            degraded: self.degradations(no_server),
            driver: self.reports.driver.clone(),
            memory_unknown: None,
            replay: self.replay_facts(None),
            pipe_directory: self.directory.path().to_string_lossy().into_owned(),
        };
        let picture = self.core.picture(self.now(), daemon, self.witnesses.facts());
        Snapshot { regions: self.vault.facts(self.now()), ..picture }
    }

    /// A picture without what others have in the vault who merely have the same number. Who is where the daemon is sees
    /// everything of his user, whatever container it is in.
    fn seen_by(&self, session: SessionId, peer: Peer, picture: Snapshot) -> Snapshot {
        let place = self.sessions.rights(session).map_or_else(Place::default, |rights| rights.place.clone());
        if place.is_the_daemons() {
            return picture;
        }
        let process = ProcessKey { pid: peer.pid, start_time: 0 };
        let caller = Caller { process, uid: peer.uid, cgroup: String::new(), place };
        Snapshot { regions: self.vault.facts_for(self.now(), &caller), ..picture }
    }

    fn viewer(&self, session: SessionId, uid: Uid) -> Viewer {
        let is_privileged = self.sessions.rights(session).is_some_and(|rights| rights.privileged);
        let within = self.sessions.rights(session).and_then(|rights| rights.within);
        Viewer { uid, privileged: is_privileged && self.is_owner(uid), within }
    }

    /// Answers one of the commands of ours. Its answer is not repeated in `control.log`, where others' are: it tells what
    /// is known already, and may be long.
    pub(super) fn report(&mut self, session: SessionId, peer: Peer, report: Report) {
        let viewer = self.viewer(session, peer.uid);
        if let Report::Events { count, follow: true, output } = report {
            let Followed { lines, following } = self.reports.recorder.follow(viewer, count, output);
            match following {
                Some(following) => {
                    self.count_command(session, &lines);
                    self.sessions.answer(session, ToSession::Follow(lines, following));
                }
                None => self.answer_failure(session, Vec::new(), lines),
            }
            return;
        }
        if let Report::AtRest(query) = report {
            return self.at_rest(session, viewer, query);
        }
        if matches!(report, Report::Status { memory: true, .. }) {
            return self.report_memory(session, peer, report);
        }
        self.answer_report(session, peer, &report);
    }

    /// Answers from a picture of now.
    pub(super) fn answer_report(&mut self, session: SessionId, peer: Peer, report: &Report) {
        let viewer = self.viewer(session, peer.uid);
        let mut picture = self.seen_by(session, peer, self.picture());
        if matches!(report, Report::Status { memory: true, .. }) {
            self.usage.show(&mut picture);
        }
        // Before anything else looks at it, so that it can't tell what others have.
        if let Some(entrance) = viewer.within {
            picture = picture.within(entrance, self.core.server_behind(entrance).as_deref());
            picture.daemon.replay = self.replay_facts(self.joins.replay_of(&self.core, entrance));
        }
        if let Report::Module(Query::Client { pid, field: ClientField::LinuxNamespace }) = *report {
            let asked = picture.clients.iter_mut().filter(|client| client.process.pid == pid);
            asked.for_each(|client| client.pid_namespace = self.namespace_of(pid));
        }
        let is_failure = matches!(report, Report::Status { exit_code: true, .. }) && !picture.obstacles().is_empty();
        match self.reports.recorder.answer(report, viewer, picture, self.logs.extras()) {
            Ok(lines) if is_failure => self.answer_failure(session, lines, Vec::new()),
            Ok(lines) => self.answer_quietly(session, lines),
            Err(reason) => self.answer_failure(session, Vec::new(), reason),
        }
    }

    /// Counts the command that a session has under way, which has this answer.
    pub(super) fn count_command(&mut self, session: SessionId, lines: &[String]) {
        let Some((name, uid, took)) = self.sessions.take_under_way(session) else {
            return;
        };
        let user = match uid {
            0 => UserClass::Root,
            uid if uid == self.owner => UserClass::Owner,
            _ => UserClass::Other,
        };
        self.reports.recorder.command(name, lines, user, took);
    }

    /// Writes logs and journal on under their names, after somebody has renamed them (SIGHUP).
    pub(super) fn reopen(&mut self) {
        self.reports.recorder.reopen();
        if let Err(error) = self.logs.sink.reopen() {
            self.say(&format!("A log file can't be opened again: {error}"));
        }
    }

    /// Answers a question that came over HTTP.
    pub(super) fn asked(&mut self, Question { metrics, vitals_tx }: Question) {
        let picture = self.picture();
        let metrics = metrics.then(|| self.reports.recorder.openmetrics(&picture, self.logs.extras()));
        // Whoever asked may have gone.
        let _ = vitals_tx.send(Vitals { obstacles: picture.obstacles(), metrics });
    }
}
