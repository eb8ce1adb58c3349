//! The clients of the demonstration: what each has done so far, and when.

use super::actor::{Actor, Event, News, Said};
use super::facts::{ClientFacts, Exit, Failure, NewcomerFacts, Refusal};
use super::verdict::why;
use std::io;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How often something is looked at that no event tells of.
const TURN: Duration = Duration::from_millis(20);
/// A newcomer that failed tries again after this time, or as soon as somebody else has gone.
const RETRY: Duration = Duration::from_millis(50);

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq)]
struct Error {
    at: Instant,
    call: String,
    code: u32,
    name: String,
}

/// One process.
#[derive(Debug)]
pub(super) struct Member {
    name: String,
    uid: u32,
    actor: Actor,
    started: Instant,
    served: Option<Instant>,
    allocation_ms: Option<f64>,
    launched: Option<Instant>,
    progress: Option<Instant>,
    steps: Option<u64>,
    longest_since_fault_ms: Option<f64>,
    is_intact: Option<bool>,
    error: Option<Error>,
    gone: Option<(Instant, Exit)>,
}

/// Somebody who comes and does not give up.
#[derive(Debug)]
struct Newcomer {
    name: String,
    uid: u32,
    attempts: Vec<usize>,
    retry_at: Option<Instant>,
    is_over: bool,
}

/// What happened, with its time.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    /// When.
    pub(super) at: Instant,
    /// Who.
    pub(super) who: String,
    /// What.
    pub(super) text: String,
}

/// All clients. Dropping it ends them.
pub(super) struct Cast {
    members: Vec<Member>,
    newcomers: Vec<Newcomer>,
    moments: Vec<Moment>,
    fault: Option<Instant>,
    events_tx: Sender<Event>,
    events_rx: Receiver<Event>,
    own_uid: u32,
    newcomer_command: Box<dyn Fn() -> Command>,
}

impl Cast {
    /// Nobody yet; `newcomer_command` makes the command of a newcomer's process.
    pub(super) fn new(own_uid: u32, newcomer_command: impl Fn() -> Command + 'static) -> Self {
        let (events_tx, events_rx) = channel();
        Self {
            members: Vec::new(),
            newcomers: Vec::new(),
            moments: Vec::new(),
            fault: None,
            events_tx,
            events_rx,
            own_uid,
            newcomer_command: Box::new(newcomer_command),
        }
    }

    /// Notes something that no client did.
    pub(super) fn note(&mut self, who: &str, text: impl Into<String>) {
        self.moments.push(Moment { at: Instant::now(), who: who.to_owned(), text: text.into() });
    }

    /// Everything noted.
    pub(super) fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Starts a process and gives its number.
    ///
    /// # Errors
    /// When it can't be started, as for another user's where that is not allowed.
    pub(super) fn start(&mut self, name: &str, uid: u32, command: &mut Command) -> io::Result<usize> {
        let number = self.members.len();
        let started = Instant::now();
        let as_user = (uid != self.own_uid).then_some(uid);
        let actor = Actor::start(command, as_user, number, self.events_tx.clone())?;
        let text = format!("starts as user {uid}, pid {}", actor.pid);
        self.moments.push(Moment { at: started, who: name.to_owned(), text });
        self.members.push(Member {
            name: name.to_owned(),
            uid,
            actor,
            started,
            served: None,
            allocation_ms: None,
            launched: None,
            progress: None,
            steps: None,
            longest_since_fault_ms: None,
            is_intact: None,
            error: None,
            gone: None,
        });
        Ok(number)
    }

    /// Lets a newcomer come, who tries again until it is served.
    pub(super) fn newcomer(&mut self, name: &str, uid: u32) -> io::Result<()> {
        let first = self.start(name, uid, &mut (self.newcomer_command)())?;
        self.newcomers.push(Newcomer {
            name: name.to_owned(),
            uid,
            attempts: vec![first],
            retry_at: None,
            is_over: false,
        });
        Ok(())
    }

    /// Lets time pass until something is so; whether it became so in time.
    pub(super) fn wait(&mut self, limit: Duration, is_so: impl Fn(&Self) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if is_so(self) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if let Ok(event) = self.events_rx.recv_timeout(left.min(TURN)) {
                self.apply(event);
            }
            self.tend_newcomers();
        }
    }

    /// Ends everybody: asks first, and kills who does not go in time.
    pub(super) fn end(&mut self, limit: Duration) {
        // Nobody comes back.
        for newcomer in &mut self.newcomers {
            newcomer.is_over = true;
        }
        for member in &mut self.members {
            member.actor.stop();
        }
        let are_gone = |cast: &Self| cast.members.iter().all(|member| member.gone.is_some());
        if !self.wait(limit, are_gone) {
            for member in self.members.iter_mut().filter(|member| member.gone.is_none()) {
                member.actor.kill();
            }
            self.wait(limit, are_gone);
        }
    }

    /// Its pid.
    pub(super) fn pid(&self, number: usize) -> i32 {
        self.members[number].actor.pid.as_raw()
    }

    /// Whether it has a context and memory, or has failed.
    pub(super) fn is_settled(&self, number: usize) -> bool {
        let member = &self.members[number];
        member.served.is_some() || member.error.is_some() || member.gone.is_some()
    }

    /// Whether it has had a context and memory.
    pub(super) fn is_served(&self, number: usize) -> bool {
        self.members[number].served.is_some()
    }

    /// Whether it has ended.
    pub(super) fn is_gone(&self, number: usize) -> bool {
        self.members[number].gone.is_some()
    }

    /// When its faulting kernel was launched.
    pub(super) fn launched(&self, number: usize) -> Option<Instant> {
        self.members[number].launched
    }

    /// Whether it has failed.
    pub(super) fn has_failed(&self, number: usize) -> bool {
        self.members[number].error.is_some()
    }

    /// Whether it has worked on for so long after the fault, or has ended.
    pub(super) fn has_lived_on(&self, number: usize, time: Duration) -> bool {
        let member = &self.members[number];
        let goes_on = |fault: Instant| member.progress.is_some_and(|at| at >= fault + time);
        member.gone.is_some() || self.fault.is_some_and(goes_on)
    }

    /// Whether every newcomer is served.
    pub(super) fn are_newcomers_served(&self) -> bool {
        self.newcomers.iter().all(|newcomer| self.served_attempt(newcomer).is_some())
    }

    fn served_attempt(&self, newcomer: &Newcomer) -> Option<&Member> {
        newcomer.attempts.iter().map(|&number| &self.members[number]).find(|member| member.served.is_some())
    }

    fn apply(&mut self, Event { at, actor, news }: Event) {
        let fault = self.fault;
        let member = &mut self.members[actor];
        let text = match news {
            News::Said(Said::Ready {}) => {
                member.served = Some(at);
                Some(format!("has a context and memory {:.1} ms after its start", since(member.started, at)))
            }
            News::Said(Said::Allocated { total_ms }) => {
                member.served = Some(at);
                member.allocation_ms = Some(total_ms);
                Some(format!("has its first allocation, {total_ms:.1} ms after its main began"))
            }
            News::Said(Said::Progress { steps, longest_ms }) => {
                member.progress = Some(at);
                member.steps = Some(steps);
                if fault.is_some() {
                    let longest = member.longest_since_fault_ms.get_or_insert(longest_ms);
                    *longest = longest.max(longest_ms);
                }
                None
            }
            News::Said(Said::Launched {}) => {
                member.launched = Some(at);
                self.fault = Some(at);
                Some("launches a kernel that writes to an address where nothing is mapped".to_owned())
            }
            News::Said(Said::End { steps, is_intact }) => {
                member.steps = steps.or(member.steps);
                member.is_intact = is_intact;
                match (steps, is_intact) {
                    (Some(steps), Some(true)) => Some(format!("ends well after {steps} steps, its memory is intact")),
                    (Some(steps), _) => Some(format!("ends after {steps} steps, its memory is not what it should be")),
                    (None, _) => None,
                }
            }
            News::Said(Said::Error { call, code, name, steps }) => {
                member.steps = steps.or(member.steps);
                let text = format!("fails: {call} gives {name} ({code})");
                member.error = Some(Error { at, call, code, name });
                Some(text)
            }
            News::Said(Said::Usage { text }) => Some(format!("does not understand its arguments: {text}")),
            News::Unknown(line) => Some(format!("prints {line:?}")),
            News::Gone { code, signal } => {
                member.gone = Some((at, Exit { status: code, signal }));
                let is_expected = signal.is_none() && (member.error.is_some() || code == Some(0));
                (!is_expected).then(|| match signal {
                    Some(signal) => format!("was ended by signal {signal}"),
                    None => format!("ended with status {}", code.unwrap_or_default()),
                })
            }
        };
        let is_gone = member.gone.is_some();
        if let Some(text) = text {
            let who = member.name.clone();
            self.moments.push(Moment { at, who, text });
        }
        if is_gone {
            // The door may be open again.
            for newcomer in &mut self.newcomers {
                newcomer.retry_at = newcomer.retry_at.map(|_| at);
            }
        }
    }

    /// Lets newcomers that failed try again.
    fn tend_newcomers(&mut self) {
        let now = Instant::now();
        for index in 0..self.newcomers.len() {
            let newcomer = &self.newcomers[index];
            let last = newcomer.attempts.last().map(|&number| &self.members[number]);
            let has_failed = last.is_some_and(|member| member.gone.is_some() && member.served.is_none());
            if !has_failed || newcomer.is_over {
                continue;
            }
            match newcomer.retry_at {
                None => self.newcomers[index].retry_at = Some(now + RETRY),
                Some(retry_at) if retry_at > now => {}
                Some(_) => {
                    let (name, uid) = (newcomer.name.clone(), newcomer.uid);
                    self.newcomers[index].retry_at = None;
                    // One that can't be started now is tried again on the next turn.
                    if let Ok(number) = self.start(&name, uid, &mut (self.newcomer_command)()) {
                        self.newcomers[index].attempts.push(number);
                    }
                }
            }
        }
    }

    /// The facts of a client. `server_of` gives the server of a pid, `zero` is the start of the clock.
    pub(super) fn client_facts(
        &self,
        number: usize,
        zero: Instant,
        culprit: usize,
        server_of: impl Fn(i32) -> Option<u32>,
    ) -> ClientFacts {
        let member = &self.members[number];
        let pid = member.actor.pid.as_raw();
        let is_culprit = number == culprit;
        // Servers are by user unless somebody has seen otherwise.
        let shares_the_fault = match (server_of(pid), server_of(self.pid(culprit))) {
            (Some(own), Some(culprits)) => own == culprits,
            _ => member.uid == self.members[culprit].uid,
        };
        let failure = member.error.as_ref().map(|error| error.facts(zero, is_culprit, shares_the_fault));
        ClientFacts {
            name: member.name.clone(),
            uid: member.uid,
            pid,
            server: server_of(pid),
            shares_the_fault,
            is_culprit,
            served_after_ms: member.served.map(|served| since(member.started, served)),
            steps: member.steps,
            longest_step_since_fault_ms: member.longest_since_fault_ms,
            is_intact: member.is_intact,
            failure,
            exit: member.gone.map(|(_, exit)| exit).unwrap_or_default(),
        }
    }

    /// The facts of the newcomers. `culprits_uid` is whose server has the fault; `server_of` gives the server of a pid;
    /// `is_refused` says whether the server's
    /// log has the refusal of a pid.
    pub(super) fn newcomer_facts(
        &self,
        zero: Instant,
        culprits_uid: u32,
        server_of: impl Fn(i32) -> Option<u32>,
        is_refused: impl Fn(i32) -> bool,
    ) -> Vec<NewcomerFacts> {
        let facts = |newcomer: &Newcomer| {
            let attempts: Vec<&Member> = newcomer.attempts.iter().map(|&number| &self.members[number]).collect();
            let came = attempts.first().map_or(zero, |member| member.started);
            let served = self.served_attempt(newcomer);
            let refusal = |member: &&Member| {
                let pid = member.actor.pid.as_raw();
                let failure = member.error.as_ref()?.facts(zero, false, newcomer.uid == culprits_uid);
                Some(Refusal { pid, failure, is_by_server: is_refused(pid) })
            };
            NewcomerFacts {
                name: newcomer.name.clone(),
                uid: newcomer.uid,
                server: served.and_then(|member| server_of(member.actor.pid.as_raw())),
                came_at_ms: since(zero, came),
                served_after_ms: served.and_then(|member| member.served).map(|at| since(came, at)),
                first_allocation_ms: served.and_then(|member| member.allocation_ms),
                failures: attempts.iter().filter(|member| member.served.is_none()).filter_map(refusal).collect(),
            }
        };
        self.newcomers.iter().map(facts).collect()
    }
}

impl Error {
    fn facts(&self, zero: Instant, is_culprit: bool, shares_the_fault: bool) -> Failure {
        Failure {
            at_ms: since(zero, self.at),
            call: self.call.clone(),
            code: self.code,
            name: self.name.clone(),
            why: why(self.code, is_culprit, shares_the_fault),
        }
    }
}

/// Milliseconds between two moments, with the microseconds behind the point.
pub(super) fn since(earlier: Instant, later: Instant) -> f64 {
    (later.saturating_duration_since(earlier).as_secs_f64() * 1e6).round() / 1e3
}
