//! Funerals across the daemon's end: what a successor must know of them and of whose they are, and how it goes on with
//! them.

use super::Funeral;
use crate::core::Core;
use crate::core::clients::client::Process;
use crate::core::events::JournalEvent;
use crate::core::evidence::{End, ProcessKey};
use crate::core::gpu::Whereabouts;
use crate::core::identity::Identity;
use crate::core::ids::{ServerEpoch, Uid};
use core::time::Duration;
use std::sync::Arc;

/// What an earlier daemon noted of a dead client whose copies are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mourned {
    pub process: ProcessKey,
    pub uid: Uid,
    pub server: ServerEpoch,
    pub descriptors: usize,
    /// How long they are still kept; `None` is as long as others are on the server.
    pub left: Option<Duration>,
    /// Whether its work counts as endless.
    pub endless: bool,
    /// Whether nobody has told of this funeral yet: the client ended while no daemon looked.
    pub is_new: bool,
}

impl Core {
    /// Goes on with a funeral of an earlier daemon that has this much time left; `None` is as long as others are on the
    /// server. `false` when the server is gone, and nothing is to be kept.
    pub(crate) fn restore_funeral(&mut self, now: Duration, mourned: Mourned) -> bool {
        self.turn.now = now;
        let Mourned { process: key, uid, server, descriptors, left, endless, is_new } = mourned;
        let Some(domain) = self.servers.get(server).map(|server| self.servers.domain_name(server.domain)) else {
            return false;
        };
        let identity = Arc::new(Identity { start_time: key.start_time, ..Identity::default() });
        let process = Process {
            server,
            uid,
            identity,
            copies: descriptors,
            tracked: false,
            condemned: false,
            connections: 0,
            gpus: Whereabouts::default(),
        };
        // Its work may fault when the copies are closed.
        self.faults.remember_death(now, key, &process, End::Unknown);
        let act_at = left.map(|left| now + left);
        if is_new {
            let domain = domain.clone();
            self.turn.record(JournalEvent::FuneralBegun { process: key, uid, domain, descriptors, pinned_bytes: None });
        }
        let pinned = self.faults.held.take_known(key);
        let (is_endless, is_looked_at) = (endless, pinned.is_some());
        self.faults.funerals.insert(
            key,
            Funeral { process, domain, since: now, act_at, is_endless, is_for_recoveries: false, pinned, is_looked_at },
        );
        self.hold_begins();
        true
    }

    /// The dead whose copies are held, until when, and whether their work counts as endless.
    pub(crate) fn mourned(&self) -> Vec<(ProcessKey, Option<Duration>, bool)> {
        self.faults.funerals.iter().map(|(key, funeral)| (*key, funeral.act_at, funeral.is_endless)).collect()
    }

    /// Whose copies are held: of a client that lives or is mourned, its user and its server.
    pub(crate) fn home_of(&self, key: ProcessKey) -> Option<(Uid, ServerEpoch)> {
        let process = self.clients.known(key).or_else(|| Some(&self.faults.funerals.get(&key)?.process))?;
        Some((process.uid, process.server))
    }
}
