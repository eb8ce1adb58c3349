//! When a server that has met a fault has got over it, and whose contexts it has then.
//!
//! It is asked for that as long as it has clients, with growing pauses. `ACTIVE` means it only when it is known to have
//! noticed the fault before; who has contexts there then was not hit, whatever was known of where he is.

use super::Faults;
use super::spared::whom;
use crate::core::servers::Clientele as _;
use crate::core::servers::questions::Purpose;
use crate::core::servers::server::Server;
use crate::core::{Core, NoReply, ServerEpoch};
use core::time::Duration;
use remps_proto::mps::server::{Reply, Request};

/// First pause between two questions whether a server has recovered.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Largest pause.
const LARGEST_PAUSE: Duration = Duration::from_secs(5);
/// A server that says so long after its taint that it is in no fault has got over it, also when nobody has heard it say
/// that it is in one. On an H200 it knows of a fault 60 to 130 ms after, and says `FAULT` until the last victim has left.
const HAS_NOTICED: Duration = Duration::from_secs(5);
/// The same when those whom the fault has hit have all left, so that it may have been in it between two questions.
const HAS_BURIED: Duration = Duration::from_secs(1);

impl Faults {
    fn ask_again(&mut self, now: Duration, epoch: ServerEpoch) {
        if let Some(aftermath) = self.aftermaths.get_mut(&epoch) {
            aftermath.ask_at = Some(now + aftermath.pause);
            aftermath.pause = (aftermath.pause * 2).min(LARGEST_PAUSE);
        }
    }

    /// A server says that it is in a fault.
    pub(super) fn admits_fault(&mut self, epoch: ServerEpoch) {
        if let Some(incident) = self.incidents.get_mut(&epoch) {
            incident.nature.is_admitted();
        }
        if let Some(aftermath) = self.aftermaths.get_mut(&epoch) {
            aftermath.is_admitted = true;
        }
    }

    /// A server that had recovered says, or is about to, that it is in a fault.
    pub(in crate::core) fn relapses(&mut self, now: Duration, epoch: ServerEpoch) {
        if let Some(aftermath) = self.aftermaths.get_mut(&epoch)
            && aftermath.sound_since.take().is_some()
        {
            aftermath.is_announced = false;
            aftermath.pause = FIRST_PAUSE;
            aftermath.ask_at = Some(now + FIRST_PAUSE);
        }
    }
}

impl Core {
    /// Asks a server whether it has got over its fault, as long as it has clients.
    pub(super) fn watch_aftermath(&mut self, epoch: ServerEpoch) {
        let now = self.turn.now;
        let is_connected = self.servers.get(epoch).is_some_and(Server::is_connected);
        let has_clients = self.clients.are_on(epoch);
        let Some(aftermath) = self.faults.aftermaths.get_mut(&epoch) else {
            return;
        };
        if !has_clients {
            aftermath.is_watched = false;
            return;
        }
        if !core::mem::replace(&mut aftermath.is_watched, true) {
            aftermath.pause = FIRST_PAUSE;
            aftermath.ask_at = Some(now + FIRST_PAUSE);
        }
        if aftermath.ask_at.take_if(|at| *at <= now).is_some() && is_connected {
            self.servers.ask(&mut self.turn, epoch, Request::Status, Purpose::Recovered(now));
        }
    }

    /// The answer to the question whether a server has recovered, which may come long after that: it is known of the time of
    /// the question.
    pub(in crate::core) fn recovery_answered(
        &mut self,
        epoch: ServerEpoch,
        asked_at: Duration,
        reply: &Result<Reply, NoReply>,
    ) {
        let now = self.turn.now;
        let patience = if self.clients.hit_processes(epoch).is_empty() { HAS_BURIED } else { HAS_NOTICED };
        let Some(server) = self.servers.get(epoch).filter(|server| server.is_lost()) else {
            return;
        };
        let aftermath = self.faults.aftermaths.entry(epoch).or_default();
        let has_noticed = server.tainted().is_some_and(|taint| asked_at >= taint.at + patience);
        match reply {
            Ok(Reply::Active(true)) if aftermath.is_admitted || has_noticed => {
                aftermath.sound_since.get_or_insert(now);
                self.servers.is_sound_at(epoch, asked_at);
                self.servers.ask(&mut self.turn, epoch, Request::DeviceClients, Purpose::Remaining);
            }
            Ok(_) | Err(NoReply::TimedOut) => {
                aftermath.is_admitted |= matches!(reply, Ok(Reply::Active(false)));
                self.faults.ask_again(now, epoch);
            }
            Err(NoReply::Lost | NoReply::Unsupported) => {}
        }
    }

    /// A server that has got over its fault has told whose contexts it has still.
    pub(in crate::core) fn remaining_told(&mut self, epoch: ServerEpoch, reply: &Result<Reply, NoReply>) {
        if !self.is_lost(epoch) || !self.faults.has_recovered(epoch) {
            return;
        }
        match reply {
            Ok(Reply::DeviceClients(devices)) => {
                let remaining = self.contexts_listed(epoch, devices);
                if self.clients.spare(epoch, &remaining) {
                    self.turn.save();
                }
                self.takes_clients_again(epoch);
            }
            Ok(_) | Err(NoReply::TimedOut) => self.faults.ask_again(self.turn.now, epoch),
            Err(NoReply::Lost | NoReply::Unsupported) => {}
        }
    }

    fn takes_clients_again(&mut self, epoch: ServerEpoch) {
        let has_spared = self.clients.has_spared(epoch);
        if let (Some(server), Some(aftermath)) = (self.servers.get(epoch), self.faults.aftermaths.get_mut(&epoch))
            && has_spared
            && !core::mem::replace(&mut aftermath.is_announced, true)
        {
            let (pid, whom) = (server.pid.unwrap_or_default(), whom(&aftermath.gpus));
            self.turn.log(format!("Server {pid} takes clients again that {whom}"));
        }
    }
}
