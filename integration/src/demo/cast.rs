//! The programs of one run: started, listened to, told what to do; what they and the daemon do becomes events.

use super::DemoError;
use super::actor::{Actor, Event as Heard, News, Said};
use super::interrupt;
use super::stage::Stage;
use super::story::{Event, Lane, What};
use super::watch::Watch;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often something is looked at that no event tells of.
const TURN: Duration = Duration::from_millis(5);
/// Somebody who was refused tries again after this time, or as soon as somebody else has gone.
const RETRY: Duration = Duration::from_millis(50);

/// One process.
struct Member {
    lane: Lane,
    actor: Actor,
    /// When who it plays came, or has begun anew.
    came: Instant,
    is_served: bool,
    is_gone: bool,
}

/// Somebody who comes and does not give up.
struct Comer {
    lane: Lane,
    command: Box<dyn Fn() -> Command>,
    member: usize,
    came: Instant,
    retry_at: Option<Instant>,
    /// Nobody tries again who has been served, or who is told to end.
    is_over: bool,
}

/// Everybody. Dropping it ends them.
pub(super) struct Cast<'a> {
    zero: Instant,
    wall: SystemTime,
    watch: Watch,
    members: Vec<Member>,
    comers: Vec<Comer>,
    events: Vec<Event>,
    show: &'a mut dyn FnMut(&Event),
    heard_tx: Sender<Heard>,
    heard_rx: Receiver<Heard>,
}

impl<'a> Cast<'a> {
    /// Nobody yet; `show` hears of every event as it becomes known.
    pub(super) fn new(stage: &Stage, show: &'a mut dyn FnMut(&Event)) -> Self {
        let (heard_tx, heard_rx) = channel();
        let (zero, wall) = (Instant::now(), SystemTime::now());
        let watch = Watch::new(stage, wall);
        Self {
            zero,
            wall,
            watch,
            members: Vec::new(),
            comers: Vec::new(),
            events: Vec::new(),
            show,
            heard_tx,
            heard_rx,
        }
    }

    /// Notes something that no program says.
    pub(super) fn note(&mut self, lane: Lane, what: What) {
        let ms = self.ms(Instant::now());
        self.push(Event { ms, lane, what });
    }

    fn push(&mut self, event: Event) {
        (self.show)(&event);
        self.events.push(event);
    }

    fn ms(&self, at: Instant) -> f64 {
        milliseconds(at.saturating_duration_since(self.zero))
    }

    /// The events so far.
    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    /// All events, in order of time.
    pub(super) fn into_events(mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.events);
        // Stable, so that those of the same time stay in the order in which they became known.
        events.sort_by(|one, other| one.ms.total_cmp(&other.ms));
        events
    }

    /// Starts a process and gives its number.
    fn start(&mut self, lane: Lane, mut command: Command, came: Instant) -> Result<usize, DemoError> {
        let number = self.members.len();
        let started = self.ms(Instant::now());
        let actor = Actor::start(&mut command, number, self.heard_tx.clone())
            .map_err(DemoError::system(format!("start {}", command.get_program().to_string_lossy())))?;
        let pid = actor.pid.as_raw();
        self.members.push(Member { lane, actor, came, is_served: false, is_gone: false });
        self.push(Event { ms: started, lane, what: What::Started { pid } });
        Ok(number)
    }

    /// Lets somebody come, who tries again until there is a context and memory.
    pub(super) fn comes(&mut self, lane: Lane, command: impl Fn() -> Command + 'static) -> Result<(), DemoError> {
        let came = Instant::now();
        let member = self.start(lane, command(), came)?;
        // Whoever had this lane is over.
        self.comers.retain(|comer| comer.lane != lane);
        self.comers.push(Comer { lane, command: Box::new(command), member, came, retry_at: None, is_over: false });
        Ok(())
    }

    fn last(&mut self, lane: Lane) -> Option<&mut Member> {
        self.members.iter_mut().rev().find(|member| member.lane == lane)
    }

    /// Tells a lane's process a line.
    pub(super) fn tell(&mut self, lane: Lane, line: &str) {
        if let Some(member) = self.last(lane) {
            member.actor.tell(line);
        }
    }

    /// Lets a lane's process end by itself.
    pub(super) fn stop(&mut self, lane: Lane) {
        if let Some(member) = self.last(lane) {
            member.actor.stop();
        }
    }

    /// Kills a lane's process.
    pub(super) fn kill(&mut self, lane: Lane) {
        // Nobody comes back.
        self.comers.retain(|comer| comer.lane != lane);
        if let Some(member) = self.last(lane) {
            member.actor.kill();
        }
        self.note(lane, What::Killed);
    }

    /// Whether a lane's process has a context and memory and lives.
    pub(super) fn is_well(&self, lane: Lane) -> bool {
        let last = self.members.iter().rev().find(|member| member.lane == lane);
        last.is_some_and(|member| member.is_served && !member.is_gone)
    }

    /// Whether a lane has had a context and memory.
    pub(super) fn is_served(&self, lane: Lane) -> bool {
        self.members.iter().any(|member| member.lane == lane && member.is_served)
    }

    /// Lets time pass until something is so; whether it became so in time.
    pub(super) fn wait(&mut self, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Result<bool, DemoError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(signal) = interrupt::came() {
                return Err(DemoError::Interrupted(signal));
            }
            self.look();
            if is_so(self) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if let Ok(heard) = self.heard_rx.recv_timeout(left.min(TURN)) {
                self.hear(heard);
                while let Ok(heard) = self.heard_rx.try_recv() {
                    self.hear(heard);
                }
            }
            self.tend_comers()?;
        }
    }

    /// Takes what daemon and servers have written.
    fn look(&mut self) {
        let now = self.ms(Instant::now());
        for event in self.watch.look(now) {
            self.push(event);
        }
    }

    /// Ends everybody: asks first, and kills who does not go in time.
    pub(super) fn end(&mut self, limit: Duration) -> Result<(), DemoError> {
        for comer in &mut self.comers {
            comer.is_over = true;
        }
        for member in &mut self.members {
            member.actor.stop();
        }
        let are_gone = |cast: &Self| cast.members.iter().all(|member| member.is_gone);
        if !self.wait(limit, are_gone)? {
            for member in self.members.iter_mut().filter(|member| !member.is_gone) {
                member.actor.kill();
            }
            self.wait(limit, are_gone)?;
        }
        self.look();
        Ok(())
    }

    fn hear(&mut self, Heard { at, actor, news }: Heard) {
        let mut ms = self.ms(at);
        let member = &mut self.members[actor];
        let what = match news {
            News::Said(Said::Ready { pid } | Said::Allocated { pid }) => {
                member.is_served = true;
                self.comers.iter_mut().filter(|comer| comer.member == actor).for_each(|comer| comer.is_over = true);
                Some(What::Served { pid, after_ms: milliseconds(at.saturating_duration_since(member.came)) })
            }
            News::Said(Said::Progress { steps, longest_ms }) => Some(What::Worked { steps, longest_ms }),
            News::Said(Said::Launched { at_us }) if member.lane == Lane::Culprit => {
                // By its own word: the line takes its time, and what follows is a matter of less.
                let wall = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
                ms = milliseconds(Duration::from_micros(at_us).saturating_sub(wall));
                Some(What::Faulted)
            }
            News::Said(Said::Launched { .. }) => Some(What::Launched),
            News::Said(Said::Committed { code }) => Some(What::Committed { is_kept: code == 0 }),
            News::Said(Said::Adopted { code, is_intact, bytes }) => Some(What::Found {
                bytes: bytes.filter(|_| code == 0).unwrap_or_default(),
                is_intact: is_intact.unwrap_or_default(),
            }),
            News::Said(Said::Recovered { is_intact, bytes, recovery }) => {
                let took_ms = recovery.map_or(0.0, |recovery| milliseconds(Duration::from_micros(recovery.total_us)));
                Some(What::Recovered { took_ms, bytes, is_intact })
            }
            News::Said(Said::End { is_intact }) => Some(What::Ended { is_intact }),
            News::Said(Said::Error { call, code, name }) => {
                // Should somebody start it again, that begins now.
                (member.came, member.is_served) = (at, false);
                Some(What::Failed { call, code, name: bare(&name) })
            }
            News::Said(Said::Usage { text }) => {
                Some(What::Failed { call: "its arguments".to_owned(), code: 0, name: text })
            }
            News::Said(Said::Other) => None,
            News::Unknown(line) => Some(What::Failed { call: "its output".to_owned(), code: 0, name: line }),
            News::Gone { code, signal } => {
                member.is_gone = true;
                Some(What::Gone { status: code, signal })
            }
        };
        let (lane, is_gone) = (member.lane, member.is_gone);
        if let Some(what) = what {
            self.push(Event { ms, lane, what });
        }
        if is_gone {
            // The door may be open again.
            for comer in &mut self.comers {
                comer.retry_at = comer.retry_at.map(|_| at);
            }
        }
    }

    /// Lets those try again who were refused.
    fn tend_comers(&mut self) -> Result<(), DemoError> {
        let now = Instant::now();
        for index in 0..self.comers.len() {
            let comer = &self.comers[index];
            if !self.members[comer.member].is_gone || comer.is_over {
                continue;
            }
            match comer.retry_at {
                None => self.comers[index].retry_at = Some(now + RETRY),
                Some(retry_at) if retry_at > now => {}
                Some(_) => {
                    let (lane, came, command) = (comer.lane, comer.came, (comer.command)());
                    let member = self.start(lane, command, came)?;
                    (self.comers[index].member, self.comers[index].retry_at) = (member, None);
                }
            }
        }
        Ok(())
    }
}

/// The name in what a program says of an error, which may be `DriverError(NAME, "words")`.
fn bare(name: &str) -> String {
    let inner = name.strip_prefix("DriverError(").and_then(|rest| rest.split(',').next());
    inner.unwrap_or(name).to_owned()
}

/// Milliseconds with the microseconds behind the point.
pub(super) fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
