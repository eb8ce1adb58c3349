//! Who waits until work is at rest (`at-rest --wait`).
//!
//! They are looked after at intervals and not told: nobody hears of the end of a process that is no client any more.

use super::Driver;
use crate::core::{ProcessKey, RestFacts, SessionId, is_stand_in};
use crate::io::process::start_time;
use crate::report::{self, Viewer};
use crate::sys::pidfd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use remps_proto::admin::RestQuery;
use std::os::fd::AsFd;
use std::time::Duration;

/// How often it is looked whether what is waited for is so.
const EVERY: Duration = Duration::from_millis(20);

/// A session that waits.
struct Waiter {
    session: SessionId,
    viewer: Viewer,
    query: RestQuery,
    until: Duration,
}

/// All that wait.
#[derive(Default)]
pub(super) struct Resting {
    waiters: Vec<Waiter>,
    next_look: Duration,
}

impl Resting {
    /// When it is looked again, since the daemon's start.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        (!self.waiters.is_empty()).then_some(self.next_look)
    }

    /// A session is over, and its user waits no more.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.waiters.retain(|waiter| waiter.session != session);
    }
}

/// Whether a process has not ended. One whose start was never known is taken for whoever has its pid now.
fn lives(process: ProcessKey) -> bool {
    let Some(pid) = i32::try_from(process.pid).ok().map(Pid::from_raw) else { return false };
    // Opened before it is looked at, so that both are of one process.
    let opened = pidfd::open(pid);
    let Some(now) = start_time(pid) else { return false };
    // One that nobody has reaped yet has given back what it had.
    let is_over = opened.is_ok_and(|pidfd| {
        let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    });
    !is_over && (process.start_time == 0 || process.start_time == now)
}

impl Driver {
    /// Answers `at-rest`, at once or when it is so.
    pub(super) fn at_rest(&mut self, session: SessionId, viewer: Viewer, query: RestQuery) {
        let facts = self.rest_of(viewer, query);
        let is_open = facts.as_ref().is_some_and(|facts| !facts.is_proven());
        match query.wait_s {
            Some(wait_s) if is_open => {
                let until = self.now().saturating_add(Duration::from_secs(wait_s.into()));
                self.resting.next_look = self.now() + EVERY;
                self.resting.waiters.push(Waiter { session, viewer, query, until });
            }
            _ => self.answer_rest(session, query, facts),
        }
    }

    /// Answers those whose wait is over.
    pub(super) fn look_after_waiters(&mut self) {
        let now = self.now();
        if self.resting.next_deadline().is_none_or(|at| now < at) {
            return;
        }
        for waiter in std::mem::take(&mut self.resting.waiters) {
            let facts = self.rest_of(waiter.viewer, waiter.query);
            let is_open = facts.as_ref().is_some_and(|facts| !facts.is_proven());
            if is_open && now < waiter.until {
                self.resting.waiters.push(waiter);
            } else {
                self.answer_rest(waiter.session, waiter.query, facts);
            }
        }
        self.resting.next_look = now + EVERY;
    }

    fn rest_of(&self, viewer: Viewer, query: RestQuery) -> Option<RestFacts> {
        let lives = |process: ProcessKey| {
            if is_stand_in(process.pid) { self.witnesses.lives_hidden(process.pid) } else { lives(process) }
        };
        self.core.rest_of(query.whose, |uid| viewer.may_see(uid), lives)
    }

    fn answer_rest(&mut self, session: SessionId, query: RestQuery, facts: Option<RestFacts>) {
        match facts {
            Some(facts) if facts.is_proven() => self.answer_quietly(session, report::rest(&facts, query)),
            Some(facts) => self.answer_failure(session, report::rest(&facts, query), Vec::new()),
            None => self.answer_failure(session, Vec::new(), report::nobody(query.whose)),
        }
    }
}
