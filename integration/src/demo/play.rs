//! The course of events: daemon, clients, fault, newcomers, end.

use super::DemoError;
use super::cast::{Cast, since};
use super::facts::{Entry, Facts, FaultFacts, MachineFacts, QuitFacts};
use super::log_line::LogLine;
use super::machine::{Kind, Machine};
use super::programs::Programs;
use super::stage::{COMMAND_LIMIT, Launcher, Stage};
use super::verdict::{not_proven, promises};
use remps_controld::patience::patient;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// The user beside root: `nobody`.
const OTHER_USER: u32 = 65534;
/// How long all clients together may take to their first step; a cold driver takes a second for each.
const SERVE_LIMIT: Duration = Duration::from_secs(8);
/// From the fault until everybody who will fail has failed and every newcomer is served.
const FAULT_LIMIT: Duration = Duration::from_secs(8);
/// How long a bystander must work on after the fault to count as unharmed.
const LIVED_ON: Duration = Duration::from_millis(500);
/// How long clients may take to end after they were told to; then they are killed.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How long the faulting client behaves well; time to ask who is in which server.
const GOOD_TIME: Duration = Duration::from_millis(400);
/// How often a bystander reports: the longest step since the fault is known by this much.
const REPORT_MS: &str = "20";
const FAULT: &str = "oob";

/// The three clients, and which server each process is in.
#[derive(Debug)]
struct Roles {
    bystanders: [usize; 2],
    culprit: usize,
    users: Vec<u32>,
    servers: BTreeMap<i32, u32>,
}

/// Plays it once.
pub(super) fn perform(machine: &Machine, programs: &Programs) -> Result<Facts, DemoError> {
    let mut play =
        Play { zero: Instant::now(), wall: SystemTime::now(), programs, stage: Stage::set(machine, programs)? };
    play.stage.start_daemon(programs)?;
    let (launcher, newcomer) = (play.stage.launcher().clone(), programs.first_allocation.clone());
    let own_uid = nix::unistd::geteuid().as_raw();
    let mut cast = Cast::new(own_uid, move || launcher.command(&newcomer));
    cast.note("demo", "the daemon takes connections");
    let roles = play.serve(&mut cast, own_uid)?;
    // A fault that nobody can bring about shows nothing; that nobody was served is told all the same.
    let server_status = if cast.is_served(roles.culprit) { play.fault(&mut cast, &roles, own_uid)? } else { None };
    cast.end(patient(END_LIMIT));
    let (quit, log) = play.quit(&mut cast);
    Ok(play.facts(machine, &cast, &roles, server_status, quit, &log))
}

#[derive(Debug)]
struct Play<'a> {
    zero: Instant,
    wall: SystemTime,
    programs: &'a Programs,
    stage: Stage,
}

impl Play<'_> {
    fn launcher(&self) -> &Launcher {
        self.stage.launcher()
    }

    fn bystander(&self) -> Command {
        let mut command = self.launcher().command(&self.programs.bystander);
        command.args(["--until-stdin-closes", "--every-ms", REPORT_MS]);
        command
    }

    /// Three clients come and are served.
    fn serve(&self, cast: &mut Cast, own_uid: u32) -> Result<Roles, DemoError> {
        let deadline = Instant::now() + patient(SERVE_LIMIT);
        let first = cast.start("bystander A", own_uid, &mut self.bystander());
        let first = first.map_err(DemoError::system("start a bystander"))?;
        let mut users = vec![own_uid];
        let mut second = Err(std::io::ErrorKind::PermissionDenied.into());
        if own_uid == 0 {
            // In some containers root may not become somebody else; then all clients are of one user.
            second = cast.start("bystander B", OTHER_USER, &mut self.bystander());
        }
        let second = match second {
            Ok(second) => {
                users.push(OTHER_USER);
                second
            }
            Err(_) => cast
                .start("bystander B", own_uid, &mut self.bystander())
                .map_err(DemoError::system("start a bystander"))?,
        };
        cast.wait(patient(SERVE_LIMIT), |cast| cast.is_settled(first) && cast.is_settled(second));
        let mut servers = self.ask_servers();
        let mut command = self.launcher().command(&self.programs.aggressor);
        command.args([FAULT, "--after-ms", &patient(GOOD_TIME).as_millis().to_string()]);
        let culprit = cast.start("culprit", own_uid, &mut command);
        let culprit = culprit.map_err(DemoError::system("start the faulting client"))?;
        cast.wait(deadline.saturating_duration_since(Instant::now()), |cast| cast.is_settled(culprit));
        servers.extend(self.ask_servers());
        for number in [first, second, culprit] {
            if let Some(server) = servers.get(&cast.pid(number)) {
                cast.note("demo", format!("pid {} is a client of server {server}", cast.pid(number)));
            }
        }
        Ok(Roles { bystanders: [first, second], culprit, users, servers })
    }

    /// Which server each client process is in, as the daemon says it.
    fn ask_servers(&self) -> BTreeMap<i32, u32> {
        let ask = |lines: &str| {
            let answer =
                self.stage.ask(self.programs, lines).map(|finished| finished.stdout_text()).unwrap_or_default();
            answer.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let servers: Vec<u32> = ask("get_server_list\n").iter().filter_map(|line| line.parse().ok()).collect();
        let clients = servers.into_iter().flat_map(|server| {
            let pids = ask(&format!("get_client_list {server}\n"));
            pids.into_iter().filter_map(move |pid| Some((pid.parse().ok()?, server)))
        });
        clients.collect()
    }

    /// One of them faults, newcomers come; gives what the daemon says of the server when the first client knew.
    fn fault(&self, cast: &mut Cast, roles: &Roles, own_uid: u32) -> Result<Option<String>, DemoError> {
        let Roles { bystanders: [first, second], culprit, .. } = *roles;
        cast.wait(patient(SERVE_LIMIT), |cast| cast.launched(culprit).is_some() || cast.is_gone(culprit));
        if cast.launched(culprit).is_none() {
            return Err(DemoError::NoFault);
        }
        cast.newcomer("newcomer 1", own_uid).map_err(DemoError::system("start a newcomer"))?;
        if let Some(&other) = roles.users.get(1) {
            cast.newcomer("newcomer 2", other).map_err(DemoError::system("start a newcomer"))?;
        }
        cast.wait(patient(FAULT_LIMIT), |cast| [first, second, culprit].iter().any(|&number| cast.has_failed(number)));
        cast.newcomer("newcomer 3", own_uid).map_err(DemoError::system("start a newcomer"))?;
        // The first bystander is of the culprit's user, hence in its server.
        let server = roles.servers.get(&cast.pid(culprit)).or_else(|| roles.servers.get(&cast.pid(first)));
        let status = server.and_then(|server| {
            let answer = self.stage.ask(self.programs, &format!("get_server_status {server}\n")).ok()?.stdout_text();
            let answer = answer.trim_end().to_owned();
            cast.note("demo", format!("get_server_status {server} answers {answer:?}"));
            Some(answer)
        });
        cast.wait(patient(FAULT_LIMIT), |cast| {
            cast.is_gone(culprit)
                && [first, second].iter().all(|&number| cast.has_lived_on(number, LIVED_ON))
                && cast.are_newcomers_served()
        });
        Ok(status)
    }

    /// The daemon ends; gives the lines of its log and its complaints, which is known only now.
    fn quit(&mut self, cast: &mut Cast) -> (QuitFacts, Vec<String>) {
        let begin = Instant::now();
        let was_alive = self.stage.is_daemon_alive();
        cast.note("demo", "tells the daemon to quit");
        let status = self.stage.ask(self.programs, "quit\n").ok().and_then(|finished| finished.code);
        let end = self.stage.end_daemon(COMMAND_LIMIT);
        let took_ms = since(begin, Instant::now());
        let files_left = self.stage.files();
        let processes_left = self.stage.processes_left();
        cast.note("demo", "everything has ended");
        for complaint in &end.complaints {
            cast.note("daemon, standard error", complaint);
        }
        let quit = QuitFacts { was_alive, status, daemon_status: end.status, took_ms, files_left, processes_left };
        (quit, end.log)
    }

    fn facts(
        &self,
        machine: &Machine,
        cast: &Cast,
        roles: &Roles,
        server_status: Option<String>,
        quit: QuitFacts,
        log: &[String],
    ) -> Facts {
        let log: Vec<LogLine> = log.iter().filter_map(|line| LogLine::parse(line)).collect();
        let refused: Vec<i32> = log.iter().filter_map(LogLine::refused).collect();
        let culprit_pid = cast.pid(roles.culprit);
        // The log knows of those too that were gone before the daemon was asked.
        let taken: BTreeMap<i32, u32> = log.iter().filter_map(LogLine::connected).collect();
        let server_of = |pid: i32| roles.servers.get(&pid).or_else(|| taken.get(&pid)).copied();
        let numbers = roles.bystanders.into_iter().chain([roles.culprit]);
        let clients: Vec<_> =
            numbers.map(|number| cast.client_facts(number, self.zero, roles.culprit, server_of)).collect();
        let newcomers = cast.newcomer_facts(self.zero, roles.users[0], server_of, |pid| refused.contains(&pid));
        let named_by_server = log.iter().find_map(LogLine::named_culprit);
        let fault = FaultFacts {
            kind: FAULT,
            launched_ms: cast.launched(roles.culprit).map(|at| since(self.zero, at)),
            culprit: Some(culprit_pid),
            named_by_server,
            is_named_rightly: named_by_server.map(|named| named == culprit_pid),
            server_log: log.iter().filter(|line| line.is_about_the_fault()).map(|line| line.text.clone()).collect(),
            server_status,
        };
        let machine = MachineFacts {
            driver: if machine.is_simulated() { "simulated" } else { "real" },
            why_simulated: match &machine.kind {
                Kind::Simulated { reason } => Some(reason.clone()),
                Kind::Real { .. } => None,
            },
            devices: machine.devices.clone(),
            users: roles.users.clone(),
        };
        Facts {
            promises: promises(fault.launched_ms.is_some(), &clients, &newcomers, &quit),
            not_proven: not_proven(&machine, &clients, &fault),
            timeline: self.timeline(cast, &log),
            machine,
            clients,
            fault,
            newcomers,
            quit,
        }
    }

    /// What the demonstration saw and what the logs say, in order of time.
    fn timeline(&self, cast: &Cast, log: &[LogLine]) -> Vec<Entry> {
        let seen = cast.moments().iter().map(|moment| Entry {
            ms: since(self.zero, moment.at),
            who: moment.who.clone(),
            text: moment.text.clone(),
        });
        let logged = log.iter().filter(|line| line.is_shown()).map(|line| Entry {
            ms: line.since(self.wall),
            who: line.speaker(),
            text: line.text.clone(),
        });
        let mut timeline: Vec<Entry> = seen.chain(logged).collect();
        // Stable, so that lines of the same time stay in the order in which they were said.
        timeline.sort_by(|one, other| one.ms.total_cmp(&other.ms));
        timeline
    }
}
