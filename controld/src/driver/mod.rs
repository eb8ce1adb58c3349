//! The one task that owns the daemon's state: names what happened, asks the core, performs its effects in order.
//!
//! ```text
//!   holder ──accepted connections──┐
//!   tasks ──events─────────────────┤                      ┌──► servers, clients, sessions
//!   log FIFO ──records─────────────┼──► Driver ─► Core ───┤
//!   signals, timers ───────────────┘                      └──► log, holder (what a successor needs)
//! ```
//! Tasks only wait and report; nothing is decided in a select arm. No send waits either: what a peer does not take is
//! queued within bounds, or the peer is given up. Whatever must survive a `kill -9` of this process is told to the holder
//! *before* the packet that makes it true is taken from or given to a peer, in an order that lets a successor find out
//! from the peer's side what was done last ([`successor`]).
//!
//! What is open has its owners, which are told what has happened and return inputs for the core, lines for the log or
//! events for the journal ([`Told`](turn::Told)), or what is lost. Those that need more for it are given a
//! [`Turn`](turn::Turn): what the core knows, the holder, the time. What concerns more than one of them is done here.
//!
//! | owner | of |
//! |---|---|
//! | [`Connections`], [`Handovers`], [`Sessions`] | peers: until their role is known, clients on their way to a server, command lines |
//! | [`Joins`] | thin daemons that have joined, and their directories |
//! | [`Servers`], [`Links`] | servers: their processes, the conversation with them |
//! | [`Successor`] | the holder, and what is told to it |
//! | [`Witnesses`] | who tells of faults |
//! | [`Following`](following::Following) | what clients are followed with: queues, copies of descriptors |
//! | [`Keeper`] | the vault: its descriptors, who asks for what, who waits for news |
//! | [`Gpus`], [`Listing`] | compute modes, the list of devices |
//! | [`Logs`], [`Reports`] | log and its FIFO, journal, metrics and answers |

mod clients;
mod connections;
mod degraded;
mod dispatch;
mod entrances;
mod events;
mod following;
mod gpus;
mod handshake;
mod joins;
mod kept;
mod links;
mod listing;
mod logs;
mod perform;
mod processes;
mod reports;
mod resting;
mod servers;
mod sessions;
mod shutdown;
mod start;
mod successor;
mod turn;
mod usage;
mod vault;
mod watching;
mod witnesses;

use crate::core::{Core, Input, Uid};
use crate::holder::Kind;
use crate::io::notify::Watchdog;
use crate::io::reaper::Reaper;
use crate::io::runtime_dir::RuntimeDir;
use crate::settings::Settings;
use clients::handover::Handovers;
use connections::Connections;
use dispatch::Wake;
use events::{Event, Events};
use gpus::Gpus;
use joins::Joins;
use kept::Kept;
use links::Links;
use listing::Listing;
use logs::Logs;
use reports::Reports;
use resting::Resting;
use servers::Servers;
use sessions::Sessions;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use successor::Successor;
use successor::keys;
use successor::notes::{ConnectionNote, Stage};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use usage::Usage;
use vault::Keeper;
use witnesses::Witnesses;

pub(crate) use start::StartError;

/// Everything that the daemon has open.
pub(crate) struct Driver {
    core: Core,
    started: Instant,
    settings: Settings,
    owner: Uid,
    logs: Logs,
    directory: RuntimeDir,
    successor: Successor,
    events: Events,
    events_rx: mpsc::Receiver<Event>,
    signals: Signals,
    connections: Connections,
    sessions: Sessions,
    joins: Joins,
    links: Links,
    servers: Servers,
    handovers: Handovers,
    /// Inputs that follow from performing effects.
    pending: VecDeque<Input>,
    feeding: bool,
    listing: Listing,
    kept: Kept,
    witnesses: Witnesses,
    vault: Keeper,
    reports: Reports,
    gpus: Gpus,
    resting: Resting,
    usage: Usage,
    watchdog: Option<Watchdog>,
    exit: Option<u8>,
}

/// The signals that mean something. They are caught before the sockets appear, so that none ends the daemon without
/// its files being removed.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    hand_over: Signal,
    /// As PID 1 only.
    reaper: Option<Reaper>,
}

impl Signals {
    fn caught() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            hand_over: signal(SignalKind::user_defined1())?,
            reaper: if std::process::id() == 1 { Some(Reaper::new()?) } else { None },
        })
    }
}

impl Driver {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Serves until the daemon is told to end; returns its exit status.
    pub(crate) async fn run(mut self) -> u8 {
        while self.exit.is_none() {
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.tell(Instant::now());
            }
            let wake = {
                let deadline = self.next_deadline();
                let timer = async {
                    match deadline {
                        Some(at) => tokio::time::sleep_until(at.into()).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    Some(event) = self.events_rx.recv() => Wake::Event(event),
                    news = self.successor.next() => Wake::Holder(news),
                    records = self.logs.next() => Wake::Records(records),
                    sign = self.witnesses.next() => Wake::Sign(sign),
                    news = self.vault.next() => Wake::Vault(news),
                    question = self.reports.next() => Wake::Asked(question),
                    () = received(&mut self.signals.terminate) => Wake::Terminate,
                    () = received(&mut self.signals.interrupt) => Wake::Terminate,
                    () = received(&mut self.signals.hangup) => Wake::Reopen,
                    () = received(&mut self.signals.hand_over) => Wake::HandOver,
                    () = child_ended(&mut self.signals.reaper) => Wake::ChildEnded,
                    () = timer => Wake::Deadline,
                }
            };
            let is_log = matches!(wake, Wake::Records(_));
            self.woken(wake);
            if is_log {
                // Anybody can write there without end, and nobody else's task would run until this one has nothing to do.
                tokio::task::yield_now().await;
            }
        }
        let status = self.exit.unwrap_or_default();
        Box::pin(self.shut_down()).await.said().await;
        status
    }

    fn next_deadline(&self) -> Option<Instant> {
        let own = [
            self.core.next_deadline(),
            self.vault.next_deadline(self.now()),
            self.logs.next_deadline(),
            self.resting.next_deadline(),
        ];
        let own = own.into_iter().flatten().map(|at| self.started + at);
        let watchdog = self.watchdog.as_ref().map(Watchdog::next_deadline);
        let word = self.successor.next_deadline().map(tokio::time::Instant::into_std);
        own.chain(self.links.next_deadline()).chain(watchdog).chain(word).min()
    }

    /// Tells the core what happened, and performs what it asks for until nothing is left.
    ///
    /// What happens while an effect is performed is told after the rest of its effects are done.
    fn feed(&mut self, input: Input) {
        self.pending.push_back(input);
        if self.feeding {
            return;
        }
        self.feeding = true;
        while let Some(input) = self.pending.pop_front() {
            let effects = self.core.handle(self.now(), input);
            for effect in effects {
                self.perform(effect);
            }
        }
        self.feeding = false;
    }

    /// Lists the devices now and not at the first `device_query` (option `-q`).
    pub(crate) fn ready_devices(&mut self) {
        self.listing.begin(None);
    }
}

async fn received(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}

async fn child_ended(reaper: &mut Option<Reaper>) {
    match reaper {
        Some(reaper) => reaper.child_ended().await,
        None => std::future::pending().await,
    }
}
