//! What a room is given while something happens, and what it tells of it.
//!
//! A room that owns its state may look at what the core knows, and tell the holder at once what has to survive: before
//! anybody else hears of it. What it wants decided, logged or recorded is passed on by the driver when the room is done.

use super::Driver;
use super::following::Following;
use super::successor::Successor;
use super::vault::Keeper;
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

impl Turn<'_> {
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

impl Driver {
    fn turn<T>(&mut self, act: impl FnOnce(&mut Following, &mut Keeper, &mut Turn<'_>) -> T) -> T {
        let now = self.now();
        let mut turn = Turn { core: &self.core, successor: &self.successor, now, told: Vec::new() };
        let done = act(&mut self.witnesses.following, &mut self.vault, &mut turn);
        let told = turn.told;
        self.told(told);
        done
    }

    /// Has those do something who follow clients, and passes on what they tell.
    pub(super) fn following<T>(&mut self, act: impl FnOnce(&mut Following, &mut Turn<'_>) -> T) -> T {
        self.turn(|following, _, turn| act(following, turn))
    }

    /// Has the vault do something, and passes on what it tells.
    pub(super) fn vault<T>(&mut self, act: impl FnOnce(&mut Keeper, &mut Turn<'_>) -> T) -> T {
        self.turn(|_, vault, turn| act(vault, turn))
    }

    /// Passes on what somebody has told.
    pub(super) fn told(&mut self, told: impl IntoIterator<Item = Told>) {
        for told in told {
            match told {
                Told::Input(input) => self.feed(input),
                Told::Line(line) => self.say(&line),
                Told::Event(event) => self.record(&event),
                Told::Missing(witness, process, why) => {
                    let told = self.witnesses.is_missing(witness, process, why);
                    self.told(told);
                }
                Told::Heard(witness) => {
                    let told = self.witnesses.is_found(witness);
                    self.told(told);
                }
                // Unless it has left meanwhile.
                Told::LookedAt(connection, peer) if self.connections.has(connection) => {
                    self.client_arrived(connection, peer);
                }
                Told::LookedAt(..) => {}
            }
        }
    }
}
