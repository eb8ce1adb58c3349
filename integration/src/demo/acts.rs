//! The play, act by act, the same with either daemon.
//!
//! | act | what happens |
//! |---|---|
//! | 1 | three programs share a server; a fourth has a fault domain of its own, where there are such |
//! | 2 | one of the three makes a memory fault, and newcomers arrive; one goes on in place, one is started again |
//! | 3 | a program is killed in the middle of a kernel, on the fourth one's server |
//! | 4 | the daemon is killed; somebody comes meanwhile; a daemon is started |
//! | 5 | the daemon is upgraded; somebody comes meanwhile |
//! | 6 | everybody ends, and then the daemon |
//!
//! With NVIDIA's daemon the programs are the same without ours around them: no library for recovery in place, no `run`. The
//! one that wants its memory kept has the library that asks for it, and is told that nobody does. The play ends there with
//! act 4, which leaves nobody.

use super::DemoError;
use super::cast::Cast;
use super::daemon::Daemon;
use super::part;
use super::questions::{has, works_on};
use super::stage::Stage;
use super::story::{Event, Lane, Side, Story, What};
use remps_controld::parts::patience::patient;
use std::process::Command;
use std::time::Duration;

/// Share a server, with the culprit.
pub(super) const SHARE: u8 = 1;
/// The fault.
pub(super) const FAULT: u8 = 2;
/// The sudden death.
pub(super) const DEATH: u8 = 3;
/// The daemon is killed.
pub(super) const KILL: u8 = 4;
/// It is upgraded.
pub(super) const UPGRADE: u8 = 5;
/// The end.
pub(super) const END: u8 = 6;

/// Bytes of the memory that outlives its program.
pub(super) const KEPT_BYTES: u64 = 64 << 20;
/// How long programs may take to their contexts; a cold driver takes a second for each.
const SERVE_LIMIT: Duration = Duration::from_secs(10);
/// From a fault or a death until everybody has settled who will.
const SETTLE_LIMIT: Duration = Duration::from_secs(6);
/// How long a newcomer is seen to wait while no daemon lives.
const WITHOUT_DAEMON: Duration = Duration::from_millis(150);
/// How long a bystander must work on after something has happened to count as unharmed.
const LIVED_ON: Duration = Duration::from_millis(300);
/// How long the kernel of the program that is killed takes, and how long after its launch that is.
const KERNEL: Duration = Duration::from_millis(500);
const INTO_THE_KERNEL: Duration = Duration::from_millis(60);
/// How long programs may take to end when they are told to.
const END_LIMIT: Duration = Duration::from_secs(3);
/// How often a bystander reports, in milliseconds: the longest step is known by this much.
const REPORT_MS: &str = "25";
/// How long the one that is recovered waits for a fault, in seconds: longer than the play.
const PATIENCE_S: &str = "600";
/// Programs with this `MPS_DOMAIN` share a fault domain.
const LABEL: (&str, &str) = ("MPS_DOMAIN", "elsewhere");
/// How long a program waits for the vault, in milliseconds.
const ASK_MS: u32 = 20_000;

/// Plays it once; `show` hears of every event as it becomes known.
pub(super) fn play(stage: &Stage, side: Side, show: &mut dyn FnMut(&Event)) -> Result<Story, DemoError> {
    let mut play = Play { stage, side, cast: Cast::new(stage, show), newcomers: 0 };
    let daemon = play.start_daemon()?;
    play.share()?;
    play.fault()?;
    play.death()?;
    let mut daemon = play.kill_daemon(daemon)?;
    if let Some(running) = daemon.take() {
        daemon = Some(play.upgrade(running)?);
    }
    play.cast.note(Lane::Daemon, What::Act { number: END });
    play.cast.end(patient(END_LIMIT))?;
    let end = daemon.map(|daemon| daemon.quit(stage));
    Ok(Story { side, setting: stage.setting().words.clone(), events: play.cast.into_events(), end })
}

struct Play<'a> {
    stage: &'a Stage<'a>,
    side: Side,
    cast: Cast<'a>,
    newcomers: u8,
}

impl Play<'_> {
    fn is_ours(&self) -> bool {
        self.side == Side::Remps
    }

    fn act(&mut self, number: u8) {
        self.cast.note(Lane::Daemon, What::Act { number });
    }

    fn start_daemon(&mut self) -> Result<Daemon, DemoError> {
        let daemon = Daemon::start(self.stage)?;
        // Programs come when it takes connections.
        self.cast.note(Lane::Daemon, What::Started { pid: daemon.pid.as_raw() });
        Ok(daemon)
    }

    /// The same for one that comes after another, which is promised.
    fn start_successor(&mut self) -> Result<Daemon, DemoError> {
        self.start_daemon()
            .map_err(|error| if let DemoError::Daemon(text) = error { DemoError::Successor(text) } else { error })
    }

    /// A command that can be made again and again.
    fn again(&self, make: impl Fn(&Stage) -> Command) -> impl Fn() -> Command + 'static {
        let like = make(self.stage);
        move || {
            let mut command = Command::new(like.get_program());
            command.args(like.get_args()).env_clear();
            command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command
        }
    }

    fn bystander(&mut self, lane: Lane) -> Result<(), DemoError> {
        let make = self.again(|stage| {
            let mut command = stage.program(part::BYSTANDER);
            command.args(["--until-stdin-closes", "--every-ms", REPORT_MS]);
            if lane == Lane::Elsewhere {
                command.env(LABEL.0, LABEL.1);
            }
            command
        });
        self.cast.comes(lane, make)
    }

    fn newcomer(&mut self) -> Result<Lane, DemoError> {
        self.newcomers += 1;
        let lane = Lane::Newcomer(self.newcomers);
        let make = self.again(|stage| stage.program(part::FIRST_ALLOCATION));
        self.cast.comes(lane, make)?;
        Ok(lane)
    }

    /// The one that has memory to lose: under `run`, or with the library alone where there is no such command.
    fn heir(&mut self) -> Result<(), DemoError> {
        let is_ours = self.is_ours();
        let make = self.again(|stage| {
            if is_ours {
                return stage.wrapped(part::HEIR);
            }
            stage.preloaded(part::HEIR, &[("MPS_SHIM_KEEP", "memory"), ("MPS_SHIM_NAME", "demo")])
        });
        self.cast.comes(Lane::Culprit, make)
    }

    fn share(&mut self) -> Result<(), DemoError> {
        self.act(SHARE);
        self.bystander(Lane::Plain)?;
        let arguments = ["--light", "--recoveries", "1", "--seconds", PATIENCE_S, "--until-stdin-closes"];
        let is_ours = self.is_ours();
        let in_place = self.again(|stage| {
            let mut command = if is_ours {
                stage.preloaded(part::REPLAY, &[("MPS_SHIM_KEEP", "state"), ("MPS_SHIM_REPLAY", "in-place")])
            } else {
                stage.program(part::REPLAY)
            };
            command.args(arguments);
            command
        });
        self.cast.comes(Lane::InPlace, in_place)?;
        self.heir()?;
        self.bystander(Lane::Elsewhere)?;
        let all = [Lane::Plain, Lane::InPlace, Lane::Culprit, Lane::Elsewhere];
        self.cast.wait(patient(SERVE_LIMIT), |cast| all.iter().all(|lane| cast.is_well(*lane)))?;
        // NVIDIA's daemon has none, which need not be waited for.
        let ask_ms = if self.is_ours() { ASK_MS } else { 0 };
        self.cast.tell(Lane::Culprit, &format!("make weights {KEPT_BYTES} 3"));
        self.cast.tell(Lane::Culprit, &format!("commit 1 {ask_ms}"));
        self.until(SERVE_LIMIT, Lane::Culprit, |what| matches!(what, What::Committed { .. }))?;
        Ok(())
    }

    /// Waits for an event of a lane.
    fn until(&mut self, limit: Duration, lane: Lane, is_it: impl Fn(&What) -> bool) -> Result<bool, DemoError> {
        self.cast.wait(patient(limit), |cast| has(cast.events(), lane, 0.0, &is_it))
    }

    fn fault(&mut self) -> Result<(), DemoError> {
        self.act(FAULT);
        if !self.cast.is_well(Lane::Culprit) {
            // Nobody is there to make it; that the programs were not served is told by the promises.
            return Ok(());
        }
        self.cast.tell(Lane::Culprit, "fault oob");
        if !self.until(SETTLE_LIMIT, Lane::Culprit, |what| matches!(what, What::Faulted))? {
            return Err(DemoError::NoFault);
        }
        let at_the_fault = self.newcomer()?;
        self.until(SETTLE_LIMIT, Lane::Plain, |what| matches!(what, What::Failed { .. }))?;
        let after_it = self.newcomer()?;
        self.until(SETTLE_LIMIT, Lane::Culprit, |what| matches!(what, What::Failed { .. }))?;
        if !self.is_ours() {
            // The others have to leave first; whoever starts it again does so until it is served.
            self.heir()?;
        }
        self.cast.wait(patient(SERVE_LIMIT), |cast| cast.is_well(Lane::Culprit))?;
        let is_ours = self.is_ours();
        if is_ours {
            self.cast.tell(Lane::Culprit, &format!("adopt {ASK_MS}"));
        } else {
            // It was told already that nobody keeps its memory; idle as it is it would stand in the way of the others.
            self.cast.stop(Lane::Culprit);
        }
        let fault = self.cast.events().iter().find(|event| event.what == What::Faulted).map_or(0.0, |event| event.ms);
        self.cast.wait(patient(SETTLE_LIMIT), |cast| {
            let has = |lane, is_it: &dyn Fn(&What) -> bool| has(cast.events(), lane, fault, &is_it);
            (!is_ours || has(Lane::Culprit, &|what| matches!(what, What::Found { .. })))
                && (has(Lane::InPlace, &What::is_loss)
                    || has(Lane::InPlace, &|what| matches!(what, What::Recovered { .. })))
                && (has(Lane::Elsewhere, &What::is_loss) || works_on(cast.events(), fault, LIVED_ON))
                && [at_the_fault, after_it].iter().all(|lane| has(*lane, &|what| what.served().is_some()))
                && (!is_ours || has(Lane::Daemon, &|what| matches!(what, What::Verdict { .. })))
        })?;
        Ok(())
    }

    /// Somebody must be there to whom the next act can do harm.
    fn somebody_elsewhere(&mut self) -> Result<(), DemoError> {
        if !self.cast.is_well(Lane::Elsewhere) {
            self.bystander(Lane::Elsewhere)?;
            self.cast.wait(patient(SERVE_LIMIT), |cast| cast.is_well(Lane::Elsewhere))?;
        }
        Ok(())
    }

    fn death(&mut self) -> Result<(), DemoError> {
        self.somebody_elsewhere()?;
        self.act(DEATH);
        let make = self.again(|stage| {
            // With the library only where the daemon needs its help to know of the program.
            let mut command = stage.watched(part::AGGRESSOR);
            command.args(["long", "--for-ms", &KERNEL.as_millis().to_string()]).env(LABEL.0, LABEL.1);
            command
        });
        self.cast.comes(Lane::Killed, make)?;
        if !self.until(SERVE_LIMIT, Lane::Killed, |what| matches!(what, What::Launched))? {
            return Ok(());
        }
        // Until the kernel runs: the launch comes back before it does.
        self.cast.wait(INTO_THE_KERNEL, |_| false)?;
        self.cast.kill(Lane::Killed);
        let killed = self.cast.events().last().map_or(0.0, |event| event.ms);
        let newcomer = self.newcomer()?;
        self.cast.wait(patient(SETTLE_LIMIT), |cast| {
            (has(cast.events(), Lane::Elsewhere, killed, &What::is_loss)
                || works_on(cast.events(), killed, KERNEL + LIVED_ON))
                && cast.is_served(newcomer)
        })?;
        Ok(())
    }

    /// Gives the daemon that comes after, which NVIDIA's play does without.
    fn kill_daemon(&mut self, daemon: Daemon) -> Result<Option<Daemon>, DemoError> {
        self.somebody_elsewhere()?;
        self.act(KILL);
        self.cast.note(Lane::Daemon, What::Killed);
        let killed = self.cast.events().last().map_or(0.0, |event| event.ms);
        daemon.kill();
        self.cast.note(Lane::Daemon, What::Gone { status: None, signal: Some(9) });
        let newcomer = self.newcomer()?;
        let next = if self.is_ours() {
            self.cast.wait(WITHOUT_DAEMON, |cast| cast.is_served(newcomer))?;
            Some(self.start_successor()?)
        } else {
            None
        };
        self.cast.wait(patient(SETTLE_LIMIT), |cast| {
            (has(cast.events(), Lane::Elsewhere, killed, &What::is_loss) || works_on(cast.events(), killed, LIVED_ON))
                && cast.is_served(newcomer)
        })?;
        Ok(next)
    }

    fn upgrade(&mut self, daemon: Daemon) -> Result<Daemon, DemoError> {
        self.act(UPGRADE);
        self.cast.note(Lane::Daemon, What::Upgraded);
        let upgraded = self.cast.events().last().map_or(0.0, |event| event.ms);
        if !daemon.make_room(self.stage)? {
            return Err(DemoError::Successor("it does not make room".to_owned()));
        }
        self.cast.note(Lane::Daemon, What::Gone { status: None, signal: None });
        let newcomer = self.newcomer()?;
        let next = self.start_successor()?;
        self.cast.wait(patient(SETTLE_LIMIT), |cast| {
            (has(cast.events(), Lane::Elsewhere, upgraded, &What::is_loss)
                || works_on(cast.events(), upgraded, LIVED_ON))
                && cast.is_served(newcomer)
        })?;
        Ok(next)
    }
}
