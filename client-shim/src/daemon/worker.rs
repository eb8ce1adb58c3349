//! The thread that speaks to the daemon: everything that has to do with the socket `shim` happens here, on one connection
//! and in one order.
//!
//! | first | what |
//! |---|---|
//! | 1 | another copy of the driver lives; when the dead one is cut off the daemon looks which of its descriptors are closed |
//! | 1 | that the program would recover from a fault, and what recoveries took, is told |
//! | 2 | news of this process's server is subscribed to, once for each connection and each copy of the driver |
//! | 3 | what a thread of the program's wants now |
//! | 4 | what is kept is given into the vault, in batches between which 1 to 3 come again |
//! | 5 | other questions, each after all that was to be given before it |
//!
//! News comes in between, whatever is waited for. With the next daemon all is begun anew. A daemon that takes no
//! subscriptions is asked for its news every [`BETWEEN_QUESTIONS`]. No lock is held while the daemon is waited for. A
//! program that only tells of its faults holds no place at the door between two things to tell.

use std::{
    collections::VecDeque,
    ffi::OsString,
    os::fd::AsFd,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use remps_proto::shim::{Ask, Capabilities};

use super::{
    connection::{Connection, Lost, Told},
    escrow::Escrow,
    evidence::Followed,
    link::{CHANGES, Job, Link, Wish, locked},
    news, recovered, renewal, stage,
};
use crate::{
    cuda::belongings,
    process::{failpoint::reached, log, packets::borrowed},
};

/// First and longest pause between two tries to find a daemon. One that was there a moment ago is mostly being replaced.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Between two questions for news, where it does not come by itself.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Worker {
    link: &'static Link,
    door: fn() -> OsString,
    connection: Option<Connection>,
    escrow: Option<Escrow>,
    followed: Followed,
    /// The copy of the driver that the daemon knows to live, and the one before which it knows all to be cut off.
    told: u64,
    renewed: u64,
    /// When this connection's daemon was asked for news, since that copy lives.
    asked: Option<Instant>,
    /// Whether this connection's daemon knows that the program would recover.
    is_introduced: bool,
    pause: Duration,
    try_at: Instant,
    has_complained: bool,
}

impl Worker {
    pub(super) fn new(link: &'static Link, door: fn() -> OsString) -> Self {
        let (connection, escrow, followed) = (None, None, Followed::default());
        let (pause, try_at, has_complained) = (FIRST_PAUSE, Instant::now(), false);
        let (told, renewed, asked, is_introduced) = (0, 0, None, false);
        Self {
            link,
            door,
            connection,
            escrow,
            followed,
            told,
            renewed,
            asked,
            is_introduced,
            pause,
            try_at,
            has_complained,
        }
    }

    /// Works until the process ends.
    pub(super) fn work(mut self) {
        let _for_ever = belongings::Ours::begin();
        loop {
            self.turn();
            self.wait();
        }
    }

    fn turn(&mut self) {
        let _empty = self.link.wake.read();
        let target = CHANGES.load(Ordering::Acquire);
        if self.escrow.is_none() {
            self.escrow = Escrow::begin();
        }
        if let Some(escrow) = &mut self.escrow {
            escrow.take_adopted(self.link);
        }
        self.dismiss();
        self.connect();
        let done = self.do_all();
        self.note(done.as_ref().is_ok_and(|all| *all).then_some(target));
        match done {
            Ok(_) => self.answer_one(),
            Err(lost) => self.lose(&lost),
        }
    }

    /// Whether a daemon is wanted also while there is nothing to say.
    fn is_standing(&self) -> bool {
        self.escrow.is_some() || news::is_awaited()
    }

    /// Answers those who wait no longer, or for nothing.
    fn dismiss(&mut self) {
        let is_followed = |job: &Job| matches!(job.wish, Wish::Follow);
        let has_news = locked(&self.link.jobs).iter().any(is_followed) && self.followed.has_news();
        let is_idle = |job: &Job| job.until <= Instant::now() || is_followed(job) && !has_news;
        let idle: VecDeque<Job> = {
            let mut jobs = locked(&self.link.jobs);
            let (idle, others) = jobs.drain(..).partition(is_idle);
            *jobs = others;
            idle
        };
        idle.into_iter().for_each(|job| job.answer(Vec::new()));
    }

    fn connect(&mut self) {
        let is_urgent = locked(&self.link.jobs).iter().any(Job::is_urgent);
        let is_time = self.is_standing() && self.try_at <= Instant::now();
        if self.connection.is_none() && (is_urgent || is_time) {
            match Connection::open(&(self.door)()) {
                Ok(connection) => {
                    if let Some(escrow) = &mut self.escrow {
                        escrow.ledger.connected();
                    }
                    locked(&self.link.progress).connections += 1;
                    (self.connection, self.asked, self.pause) = (Some(connection), None, FIRST_PAUSE);
                    self.is_introduced = false;
                }
                Err(lost) => self.lose(&lost),
            }
        }
    }

    /// There is no daemon at this moment. Only one that refuses this process's memory is worth a line; one that is not there is
    /// not.
    fn lose(&mut self, lost: &Lost) {
        self.connection = None;
        self.try_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if let Lost::Refused(failure) = lost
            && self.escrow.is_some()
            && !self.has_complained
        {
            self.has_complained = true;
            log::complain(format_args!("the vault refuses this process: {failure}"));
        }
    }

    /// All but the questions that can wait; whether everything there is was dealt with.
    fn do_all(&mut self) -> Result<bool, Lost> {
        loop {
            self.attend()?;
            self.answer_urgent()?;
            let Some(connection) = &mut self.connection else { return Ok(false) };
            let Some(escrow) = &mut self.escrow else { return Ok(true) };
            if !escrow.give_some(connection, self.link)? {
                return Ok(true);
            }
        }
    }

    /// What is said and asked once for each connection and each copy of the driver.
    fn attend(&mut self) -> Result<(), Lost> {
        let is_standing = self.is_standing();
        let Some(connection) = &mut self.connection else { return Ok(()) };
        if !is_standing || !connection.can(Capabilities::NEWS) {
            return Ok(());
        }
        let generation = news::living();
        let cut_off = renewal::cut_off();
        if cut_off > self.renewed {
            connection.ask(Ask::Renewed, None)?;
            reached("renewal-told");
            self.renewed = cut_off;
        }
        if generation > self.told {
            // The new copy's have not been seen yet by a daemon that may not look.
            if self.followed.has_news() {
                self.followed.offer_to(Some(connection))?;
            }
            (self.told, self.asked) = (generation, None);
        }
        if !self.is_introduced && stage::introduce(connection)? {
            self.is_introduced = true;
        }
        recovered::pass_on(connection)?;
        if self.asks_for_news_at().is_some_and(|at| at <= Instant::now()) {
            self.asked = Some(Instant::now());
            self.connection.as_mut().map_or(Ok(()), news::inquire)?;
        }
        Ok(())
    }

    /// When the daemon is asked for news the next time; `None` where it comes by itself, or never.
    fn asks_for_news_at(&self) -> Option<Instant> {
        let connection = self.connection.as_ref().filter(|connection| connection.can(Capabilities::NEWS))?;
        let again = |asked: Instant| (!connection.can(Capabilities::SUBSCRIPTIONS)).then(|| asked + BETWEEN_QUESTIONS);
        self.asked.map_or(Some(Instant::now()), again)
    }

    /// Carries out what threads of the program's want now. Without a daemon they have no answer.
    fn answer_urgent(&mut self) -> Result<(), Lost> {
        loop {
            let next = {
                let mut jobs = locked(&self.link.jobs);
                let at = jobs.iter().position(Job::is_urgent);
                at.and_then(|at| jobs.remove(at))
            };
            let Some(job) = next else { return Ok(()) };
            let done = self.carry_out(&job);
            let (answers, lost) = done.map_or_else(|lost| (Vec::new(), Err(lost)), |answers| (answers, Ok(())));
            job.answer(answers);
            lost?;
        }
    }

    fn carry_out(&mut self, job: &Job) -> Result<Vec<Told>, Lost> {
        match (&job.wish, &mut self.connection) {
            (Wish::Follow, connection) => self.followed.offer_to(connection.as_mut()).map(|()| Vec::new()),
            (Wish::Ask(ask, needs), Some(connection)) if connection.can(needs.unwrap_or_default()) => {
                connection.ask_within(ask.clone(), None, job.limit)
            }
            (Wish::Ask(..), _) => Ok(Vec::new()),
        }
    }

    fn note(&self, settled: Option<u64>) {
        let mut progress = locked(&self.link.progress);
        progress.is_connected = self.connection.is_some();
        progress.has_state = self.connection.as_ref().is_some_and(|connection| connection.can(Capabilities::STATE));
        if let Some(Escrow { ledger, .. }) = &self.escrow {
            (progress.kept, progress.bytes, progress.refused, progress.why) = ledger.totals();
            progress.escrows = ledger.escrows;
        }
        progress.settled = settled.unwrap_or(0);
        self.link.moved.notify_all();
    }

    /// Carries out one question that can wait.
    fn answer_one(&mut self) {
        if self.connection.is_none() {
            return;
        }
        let Some(job) = locked(&self.link.jobs).pop_front() else { return };
        // Who has a name, or what a name has, is another matter afterwards.
        let moves_names = matches!(job.wish, Wish::Ask(Ask::Discard { .. } | Ask::Succeed { .. }, _));
        match self.carry_out(&job) {
            Ok(answers) => job.answer(answers),
            // Each request may be made again with the next daemon.
            Err(lost) => {
                locked(&self.link.jobs).push_front(job);
                self.lose(&lost);
            }
        }
        if moves_names && let Some(escrow) = &mut self.escrow {
            escrow.ledger.ask_again();
        }
    }

    /// Waits for a word of the program, for the daemon's news or end, or until it is time to ask again.
    fn wait(&mut self) {
        let jobs = locked(&self.link.jobs).iter().map(|job| job.until).min();
        if self.connection.is_some() && jobs.is_some() {
            return;
        }
        let is_standing = self.is_standing();
        self.connection.take_if(|connection| !is_standing || connection.number().is_err());
        let retry = (self.connection.is_none() && is_standing).then_some(self.try_at);
        let again = self.escrow.as_ref().and_then(|escrow| escrow.ledger.next());
        let until = [retry, jobs, again, self.asks_for_news_at()].into_iter().flatten().min();
        let timeout = until.map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let number = self.connection.as_ref().and_then(|connection| connection.number().ok());
        let mut polled = vec![PollFd::new(self.link.wake.as_fd(), PollFlags::POLLIN)];
        let socket = number.map(borrowed);
        polled.extend(socket.iter().map(|socket| PollFd::new(*socket, PollFlags::POLLIN)));
        // An interrupted wait is one turn more.
        let _woken = poll(&mut polled, timeout);
        let has_news = polled.get(1).and_then(PollFd::revents).is_some_and(|flags| !flags.is_empty());
        if has_news && let Some(Err(lost)) = self.connection.as_mut().map(Connection::hear) {
            self.lose(&lost);
            if !matches!(lost, Lost::Refused(_) | Lost::Stranger) {
                // Most likely its successor is coming up.
                (self.try_at, self.pause) = (Instant::now(), FIRST_PAUSE);
            }
        }
        if self.connection.is_some() != locked(&self.link.progress).is_connected {
            self.note(None);
        }
    }
}

#[cfg(test)]
mod tests;
