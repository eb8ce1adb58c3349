//! Thin daemons that have joined: who they are, where their directories are, and what they are told.
//!
//! Each has a task that reads what it says ([`hearing`]). Its directory is kept here, also when it is gone, so that the
//! socket in it can be taken away with its server. A successor of this daemon has the listening sockets and not the
//! directories, which thin daemons hand over when they join again.

mod hearing;

use super::Driver;
use super::events::{Event, Events};
use super::sessions::Visitor;
use super::successor::keys;
use crate::core::{Core, Device, Entrance, EntranceId, Input, JoinId, Peer, Rights, SessionId};
use crate::devices;
use crate::holder::Kind;
use crate::io::blocking::{JOINED_PLACES, NoResult};
use crate::io::joined_place::JoinedPlace;
use crate::io::seqpacket::SeqPacket;
use crate::patience::patient;
use crate::sys::passed;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::DeviceKey;
use remps_proto::join::{MAX_TEXT, SOCKET_NAME, ToThin};
use remps_proto::shim::ProgramDefaults;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Only the daemon's user and root may connect there.
const SOCKET_MODE: u32 = 0o600;
/// How long a thin daemon's file system may take.
const FILE_PATIENCE: Duration = Duration::from_secs(10);
/// What the numbers of sessions begin with that thin daemons have handed over: no connection of the holder's has them.
const SESSIONS: u64 = 1 << 63;

/// What a thin daemon has asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) devices: Vec<DeviceKey>,
    /// What an earlier daemon of the node has told it of limits.
    pub(super) limits: Option<Defaults>,
    /// What its own configuration has for programs that have the preload library and say nothing.
    pub(super) replay: Option<ProgramDefaults>,
    pub(super) place: Arc<JoinedPlace>,
}

#[derive(Debug)]
struct Known {
    asked: Asked,
    /// driver --messages--> its task
    tell: mpsc::UnboundedSender<ToThin>,
}

/// All of them.
pub(super) struct Joins {
    known: BTreeMap<JoinId, Known>,
    places: BTreeMap<EntranceId, Arc<JoinedPlace>>,
    sessions: u64,
    events: Events,
    hearing: Option<AbortHandle>,
}

impl Drop for Joins {
    fn drop(&mut self) {
        if let Some(hearing) = &self.hearing {
            hearing.abort();
        }
    }
}

impl Joins {
    pub(super) fn new(events: Events) -> Self {
        Self { known: BTreeMap::new(), places: BTreeMap::new(), sessions: 0, events, hearing: None }
    }

    fn tell(&self, join: JoinId, message: ToThin) {
        if let Some(known) = self.known.get(&join) {
            // One that is gone needs no word.
            let _ = known.tell.send(message);
        }
    }

    /// Takes the socket of an entrance away, where it was in a thin daemon's directory.
    fn close(&mut self, entrance: EntranceId) {
        if let Some(place) = self.places.remove(&entrance) {
            tokio::spawn(async move {
                let _ = JOINED_PLACES.run(0, patient(FILE_PATIENCE), move || place.close()).await;
            });
        }
    }

    /// What the programs of a claim have in place of the `[replay]` of all, where its thin daemon has said so.
    pub(super) fn replay_of(&self, core: &Core, entrance: EntranceId) -> Option<ProgramDefaults> {
        let known = self.known.iter().find(|(join, _)| core.entrance_of_join(**join) == Some(entrance));
        known.and_then(|(_, known)| known.asked.replay)
    }

    /// Whether the thin daemon that asks is in the directory of the one that is there.
    fn is_same_place(&self, core: &Core, join: JoinId) -> bool {
        let Some(known) = self.known.get(&join) else { return false };
        let is_its = |(other, it): (&JoinId, &Known)| {
            *other != join && it.asked.name == known.asked.name && {
                core.entrance_of_join(*other).is_some() && it.asked.place.identity() == known.asked.place.identity()
            }
        };
        self.known.iter().any(is_its)
    }
}

fn said<T>(result: Result<T, NoResult>) -> Result<T, String> {
    result.map_err(|_| "its pipe directory's file system does not answer".to_owned())
}

impl Driver {
    /// Opens the socket of thin daemons. Without it the daemon does all else.
    pub(super) fn open_joins(&mut self) {
        match self.directory.bind_listener(SOCKET_NAME, SOCKET_MODE) {
            Ok(listener) => {
                let _ = passed::allow(&listener, true);
                let events = self.joins.events.clone();
                let may_be_apart = self.settings.file.join.containers;
                let task = tokio::spawn(hearing::accept(listener, events, self.owner, may_be_apart));
                self.joins.hearing = Some(task.abort_handle());
            }
            Err(error) => self.say(&format!("No daemon can join: {error}")),
        }
    }

    /// A thin daemon has said what it wants. The devices are looked up for a server that is new.
    pub(super) fn join_asked(&mut self, join: JoinId, asked: Asked, tell: mpsc::UnboundedSender<ToThin>) {
        let is_known = self.core.has_joined(&asked.name);
        self.joins.known.insert(join, Known { asked, tell });
        if is_known {
            return self.join_listed(join, Ok(Vec::new()));
        }
        let events = self.joins.events.clone();
        tokio::spawn(async move {
            let devices = devices::list().await.map_err(|error| error.to_string());
            events.send(Event::JoinListed { join, devices }).await;
        });
    }

    pub(super) fn join_listed(&mut self, join: JoinId, listed: Result<Vec<Device>, String>) {
        let is_same_place = self.joins.is_same_place(&self.core, join);
        let Some(Known { asked, .. }) = self.joins.known.get(&join) else { return };
        let (name, devices, limits) = (asked.name.clone(), asked.devices.clone(), asked.limits.clone());
        self.feed(Input::JoinWanted { join, name, devices, limits, listed, is_same_place });
    }

    /// Makes the socket of a joined server, unless it is heard already.
    pub(super) fn bind_joined(&mut self, join: JoinId, entrance: &Entrance) {
        let id = entrance.id;
        let Some(known) = self.joins.known.get(&join) else {
            return self.feed(Input::JoinBound { join, entrance: id, result: Err("it is gone".to_owned()) });
        };
        let (place, events) = (Arc::clone(&known.asked.place), self.joins.events.clone());
        let has_one = self.successor.has_listener(keys::entrance(id));
        let content = self.told_to_programs(known.asked.replay);
        let listen = move || {
            // Before anybody can come. One who is told nothing gets what its environment says.
            if let Err(error) = place.tell_programs(content.as_deref()) {
                tracing::warn!(%error, "programs of a daemon that has joined are not told what [replay] has for them");
            }
            place.listen(id.0, has_one)
        };
        tokio::spawn(async move {
            let bound = JOINED_PLACES.run(0, patient(FILE_PATIENCE), listen).await;
            let result = said(bound).and_then(|bound| {
                bound.map_err(|error| format!("no socket can be made in its pipe directory: {error}"))
            });
            events.send(Event::JoinBound { join, entrance: id, result }).await;
        });
    }

    pub(super) fn join_bound(&mut self, join: JoinId, entrance: EntranceId, result: Result<Option<OwnedFd>, String>) {
        let listening = result.and_then(|listener| {
            let Some(listener) = listener else { return Ok(()) };
            let key = keys::entrance(entrance);
            self.successor.forget_listener(key);
            let listening = self.successor.listen(key, Kind::LISTENER_PUBLIC, listener, true);
            listening.map_err(|error| error.to_string())
        });
        if listening.is_ok()
            && let Some(known) = self.joins.known.get(&join)
        {
            let place = Arc::clone(&known.asked.place);
            let before = self.joins.places.insert(entrance, Arc::clone(&place));
            // It has moved.
            if let Some(before) = before.filter(|before| before.identity() != place.identity()) {
                self.joins.places.insert(entrance, before);
                self.joins.close(entrance);
                self.joins.places.insert(entrance, place);
            }
        }
        self.feed(Input::JoinBound { join, entrance, result: listening });
        if !self.core.is_joined(entrance) {
            self.successor.forget_listener(keys::entrance(entrance));
            self.joins.close(entrance);
        }
        self.hold_settings();
    }

    pub(super) fn accept_join(&mut self, join: JoinId, name: String) {
        self.joins.tell(join, ToThin::Joined { name });
    }

    /// Tells a thin daemon what its server's clients may have now. What does not fit into a packet it is not told.
    pub(super) fn tell_limits(&self, join: JoinId, defaults: &Defaults) {
        let limits = defaults.written();
        if limits.len() <= MAX_TEXT {
            self.joins.tell(join, ToThin::Limits(limits));
        } else {
            self.say("The limits of a claim are too many to be there again after this daemon's end");
        }
    }

    /// Tells a thin daemon that it may not join, which ends the conversation.
    pub(super) fn refuse_join(&mut self, join: JoinId, reason: &str) {
        self.say(&format!("A daemon that wants to join is refused: {reason}"));
        self.joins.tell(join, ToThin::Refused(reason.to_owned()));
        self.joins.known.remove(&join);
    }

    pub(super) fn end_join(&mut self, join: JoinId, reason: String) {
        self.joins.tell(join, ToThin::Ended(reason));
    }

    pub(super) fn join_gone(&mut self, join: JoinId) {
        self.joins.known.remove(&join);
        self.feed(Input::JoinGone { join });
    }

    /// Somebody has connected to a thin daemon's privileged socket and said that he is a command line.
    pub(super) fn join_visited(&mut self, join: JoinId, socket: Arc<SeqPacket>, peer: Peer, is_owner: bool) {
        let Some(within) = self.core.entrance_of_join(join) else {
            return socket.refuse_the_rest();
        };
        let privileged = is_owner && self.is_owner(peer.uid);
        self.joins.sessions += 1;
        let session = SessionId(SESSIONS | self.joins.sessions);
        let rights = Rights { privileged, within: Some(within), ..Rights::default() };
        // Nor has a claim's owner the room that this daemon's owner has.
        self.open_session(Visitor { session, peer, rights, is_owner: false, socket });
    }

    /// Goes on with the listening socket of a joined server that an earlier daemon had.
    pub(super) fn resume_joined(&mut self, entrance: &Entrance, old: Option<OwnedFd>) {
        let Some(listener) = old else { return };
        let _ = passed::allow(&listener, false);
        let resumed = self.successor.listen(keys::entrance(entrance.id), Kind::LISTENER_PUBLIC, listener, false);
        if let Err(error) = resumed {
            self.say(&format!("Clients of {} can't be let in until its daemon joins again: {error}", entrance.server));
        }
    }

    pub(super) fn close_joined(&mut self, entrance: EntranceId) {
        self.joins.close(entrance);
    }

    /// Takes all sockets away that are in others' directories, at the daemon's end.
    pub(super) fn joined_places(&mut self) -> Vec<Arc<JoinedPlace>> {
        std::mem::take(&mut self.joins.places).into_values().collect()
    }
}

/// Takes these sockets away, or gives up.
pub(super) async fn clear(places: Vec<Arc<JoinedPlace>>, patience: Duration) {
    let clearing = JOINED_PLACES.run(0, patience, move || places.iter().for_each(|place| place.close()));
    let _ = clearing.await;
}
