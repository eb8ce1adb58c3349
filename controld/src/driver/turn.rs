//! What a room is given while something happens, and what it tells of it.
//!
//! A room that owns its state may look at what the core knows, and tell the holder at once what has to survive: before
//! anybody else hears of it. What it wants decided, logged or recorded is passed on by the driver when the room is done.

use super::successor::Successor;
use crate::core::{ConnectionId, Core, Input, JournalEvent, Peer, ProcessKey};
use std::time::Duration;

/// What the driver is to pass on, in order.
pub(super) enum Told {
    /// To the core.
    Input(Input),
    /// To the log.
    Line(String),
    /// To the journal.
    Event(Box<JournalEvent>),
    /// To the witnesses: this one can't be heard, for one process or at all, and why.
    Missing(&'static str, Option<ProcessKey>, String),
    /// To the witnesses: this one can be heard.
    Heard(&'static str),
    /// To the clients' room: a connection goes on, whose client has been looked at.
    LookedAt(ConnectionId, Peer),
}

/// What a room is given of others, and what it has told so far.
pub(super) struct Turn<'a> {
    pub(super) core: &'a Core,
    pub(super) successor: &'a Successor,
    /// Since the daemon's start.
    pub(super) now: Duration,
    told: Vec<Told>,
}

impl<'a> Turn<'a> {
    /// What nobody has told anything in yet.
    pub(super) fn new(core: &'a Core, successor: &'a Successor, now: Duration) -> Self {
        Self { core, successor, now, told: Vec::new() }
    }

    /// What was told.
    pub(super) fn into_told(self) -> Vec<Told> {
        self.told
    }

    pub(super) fn tell(&mut self, told: Told) {
        self.told.push(told);
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.tell(Told::Input(input));
    }

    pub(super) fn say(&mut self, line: String) {
        self.tell(Told::Line(line));
    }

    pub(super) fn record(&mut self, event: JournalEvent) {
        self.tell(Told::Event(Box::new(event)));
    }
}
