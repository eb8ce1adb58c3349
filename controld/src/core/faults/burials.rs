//! What is held back of the burial of a server that a fault has spoilt, as long as clients of it recover.
//!
//! The driver works for one process after the other, so what is torn down while a victim makes a new context holds that
//! up. Most of it is torn down by processes that end. What the daemon does itself can wait until the victims have their
//! contexts:
//!
//! | | |
//! |---|---|
//! | the server | is neither asked to end nor forced to on account of the fault |
//! | another server to stand by, where no spare copy waits for it | is not started yet: making its context takes the driver as long as a client's |
//! | copies of the descriptors of those who end orderly, the culprit above all | stay open ([`funeral`](super::funeral)): with the last one the driver takes the address space down |
//!
//! Who recovers says so beforehand, and each says when it has its contexts. That is a word, so it is believed for
//! `burial_hold` only, from the taint on. Who is waited for is a matter of more than this ([`serving`](crate::core::serving)).
//! A successor of the daemon holds nothing back: by the time it could know for whom, that is over.

use super::Faults;
use crate::core::Core;
use crate::core::evidence::ProcessKey;
use crate::core::ids::ServerEpoch;
use crate::core::policy::Sharing;
use core::time::Duration;
use std::collections::BTreeSet;

/// A server of which nothing is buried yet.
#[derive(Debug, Clone)]
pub(in crate::core) struct Burial {
    /// When it was tainted.
    pub(in crate::core) since: Duration,
    pub(in crate::core) until: Duration,
    pub(in crate::core) incident: u64,
    /// The clients that are waited for.
    pub(in crate::core) awaited: BTreeSet<ProcessKey>,
    /// Those that have their contexts again.
    pub(in crate::core) back: BTreeSet<ProcessKey>,
    /// Memory is short, of which the dead may hold some.
    pub(in crate::core) is_short: bool,
    /// How many were waited for in the beginning; `None` when nobody has looked yet.
    pub(in crate::core) clients: Option<usize>,
}

impl Faults {
    /// How much longer the burial of a server may be held back.
    pub(super) fn burial_left(&self, now: Duration, server: ServerEpoch) -> Duration {
        let held = self.burials.get(&server).filter(|burial| !burial.awaited.is_empty());
        held.map_or(Duration::ZERO, |burial| burial.until.saturating_sub(now))
    }

    pub(super) fn burials_deadline(&self) -> Option<Duration> {
        self.burials.values().map(|burial| burial.until).min()
    }

    pub(in crate::core) fn burials(&self) -> impl Iterator<Item = (ServerEpoch, &Burial)> {
        self.burials.iter().map(|(server, burial)| (*server, burial))
    }

    pub(in crate::core) fn burial(&self, server: ServerEpoch) -> Option<&Burial> {
        self.burials.get(&server)
    }

    pub(in crate::core) fn burial_mut(&mut self, server: ServerEpoch) -> Option<&mut Burial> {
        self.burials.get_mut(&server)
    }

    pub(in crate::core) fn take_burial(&mut self, server: ServerEpoch) -> Option<Burial> {
        self.burials.remove(&server)
    }

    /// One that recovers says that it has its contexts again.
    pub(in crate::core) fn is_back(&mut self, process: ProcessKey) {
        for burial in self.burials.values_mut() {
            if burial.awaited.remove(&process) {
                burial.back.insert(process);
            }
        }
    }

    /// One is not waited for any more.
    pub(in crate::core) fn does_not_recover(&mut self, process: ProcessKey) {
        let is_it = |other: &ProcessKey| {
            other.pid == process.pid && (process.start_time == 0 || other.start_time == process.start_time)
        };
        self.burials.values_mut().for_each(|burial| burial.awaited.retain(|other| !is_it(other)));
    }

    /// There is no memory for one that recovers, has recovered, or is of a user whose servers these are.
    pub(in crate::core) fn is_short_of_memory(&mut self, process: ProcessKey, of_its_user: &BTreeSet<ServerEpoch>) {
        for (server, burial) in &mut self.burials {
            let is_own = burial.awaited.contains(&process) || burial.back.contains(&process);
            burial.is_short |= is_own || of_its_user.contains(server);
        }
    }
}

impl Core {
    /// A fault has spoilt a server: it is not buried as long as clients of it recover.
    pub(super) fn hold_burial(&mut self, epoch: ServerEpoch, incident: u64) {
        let (now, hold) = (self.turn.now, self.turn.policy.burial_hold);
        // Where one server fits only, those who recover wait for its end.
        let is_in_the_way = self.gpus.fits_one_server() || self.turn.policy.sharing == Sharing::Single;
        let awaited = self.clients.able_to_recover(epoch);
        if hold.is_zero() || is_in_the_way || self.turn.quit.is_some() || awaited.is_empty() {
            return;
        }
        let until = now.saturating_add(hold);
        let (back, is_short, clients) = (BTreeSet::new(), false, None);
        let burial = Burial { since: now, until, incident, awaited, back, is_short, clients };
        self.faults.burials.insert(epoch, burial);
        self.servers.hold_burial(epoch, until);
    }
}
