//! Faults. Their way is one line: a sign belongs to an incident, that has a verdict, and from the verdict it follows what
//! becomes of everybody.
//!
//! | part | decides |
//! |---|---|
//! | [`signs`], `statement`, [`taint`] | what a sign is taken for, and which servers a fault has spoilt |
//! | `suspicion`, `silence` | what comes of asking a server how it is, and of its saying nothing |
//! | `barren` | what comes of its giving newcomers no context |
//! | [`incident`], [`self_report`] | which signs belong together, and when a client's own word is one |
//! | `nature` | whether it was an exception, whose server may be ended at once |
//! | [`blame`] | who it was |
//! | `announce` | whom it concerns, by name, and until when that is waited for |
//! | [`sanctions`] | what becomes of culprits |
//! | `unanswered` | what counts of the kernel's word when its server says nothing |
//! | [`reach`], [`spared`], [`recovered`] | whom a fault has left alone, and what becomes of their server |
//! | [`funeral`], [`held`] | what is done for a client that died in the middle of its work, and for how much of them |
//! | [`burials`] | until when nothing of a spoilt server is buried |
//! | [`hardware`] | whether it was rather the GPU |
//! | [`teardown`] | whether anything is left of a client whose fault was isolated |

pub(super) mod announce;
mod barren;
pub(super) mod blame;
pub(super) mod burials;
pub(super) mod funeral;
mod hardware;
pub(super) mod held;
pub(super) mod incident;
mod nature;
pub(super) mod reach;
pub(super) mod recovered;
pub(super) mod sanctions;
pub(super) mod self_report;
pub(super) mod signs;
mod silence;
pub(super) mod spared;
mod statement;
mod suspicion;
pub(super) mod taint;
pub(super) mod teardown;
mod unanswered;

use crate::core::Core;
use crate::core::clients::fate::Part;
use crate::core::effect::Turn;
use crate::core::evidence::ProcessKey;
use crate::core::ids::{ServerEpoch, Uid};
use crate::core::saved::{Saved, SavedServer, read, written};
use crate::core::verdict::Verdict;
use announce::Untold;
use blame::{Death, Deaths, Verdicts};
use burials::Burial;
use core::time::Duration;
use funeral::Funeral;
use hardware::Suspicions;
use held::HeldMemory;
use incident::Incident;
use sanctions::Ending;
use spared::Aftermath;
use std::collections::BTreeMap;
use teardown::{AddressSpaces, Teardown};
use unanswered::Unanswered;

/// All that is known of faults, and of those who have caused or met them.
#[derive(Debug)]
pub(super) struct Faults {
    incidents: BTreeMap<ServerEpoch, Incident>,
    next_incident: u64,
    /// Until when there were signs of a fault of a server of which nothing came.
    talked_of: BTreeMap<ServerEpoch, Duration>,
    /// What the kernel has said of a server that has not answered since.
    unanswered: BTreeMap<ServerEpoch, Unanswered>,
    /// The users of whose servers there was a verdict lately on what anybody can write and cause, and when.
    doubted: BTreeMap<Uid, Duration>,
    verdicts: Verdicts,
    next_verdict: u64,
    /// The verdicts that nobody outside is told of yet.
    untold: Untold,
    /// The clients that died lately, oldest first.
    deaths: Deaths,
    /// What has become of the servers that a fault has cost clients.
    aftermaths: BTreeMap<ServerEpoch, Aftermath>,
    funerals: BTreeMap<ProcessKey, Funeral>,
    /// The servers of which nothing is buried yet.
    burials: BTreeMap<ServerEpoch, Burial>,
    held: HeldMemory,
    teardowns: BTreeMap<ProcessKey, Teardown>,
    spaces: AddressSpaces,
    endings: BTreeMap<ProcessKey, Ending>,
    suspicions: Suspicions,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            incidents: BTreeMap::new(),
            next_incident: 1,
            talked_of: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            doubted: BTreeMap::new(),
            verdicts: Verdicts::new(),
            next_verdict: 1,
            untold: Untold::default(),
            deaths: Deaths::new(),
            aftermaths: BTreeMap::new(),
            funerals: BTreeMap::new(),
            burials: BTreeMap::new(),
            held: HeldMemory::default(),
            teardowns: BTreeMap::new(),
            spaces: AddressSpaces::default(),
            endings: BTreeMap::new(),
            suspicions: Suspicions::default(),
        }
    }
}

impl Faults {
    /// What a successor must know of them.
    pub(super) fn saved(&self) -> Saved {
        let held = self.funerals.iter().filter_map(|(key, funeral)| Some((written(*key), funeral.pinned?)));
        Saved {
            next_incident: self.next_incident,
            next_verdict: self.next_verdict,
            nobodys_memory: self.held.base(),
            held: held.map(|(process, bytes)| format!("{process} {bytes}")).collect(),
            ..Saved::default()
        }
    }

    /// What an earlier daemon knew, and what it knew of those of its servers that are there.
    pub(super) fn restored(saved: &Saved, alive: &[SavedServer]) -> Self {
        let incidents = alive.iter().map(|old| old.incident.saturating_add(1)).max();
        let held = |text: &String| Some((read(text), text.rsplit_once(' ')?.1.parse().ok()?));
        let lost = alive.iter().filter(|old| old.tainted && old.incident != 0);
        Self {
            next_incident: saved.next_incident.max(incidents.unwrap_or_default()).max(1),
            next_verdict: saved.next_verdict.max(1),
            aftermaths: lost.map(|old| (ServerEpoch(old.epoch), Aftermath::restored(old))).collect(),
            held: HeldMemory::restored(saved.nobodys_memory, saved.held.iter().filter_map(held).collect()),
            ..Self::default()
        }
    }

    /// A server has ended: nobody is left whom its fault, or remains there, could harm.
    pub(super) fn server_gone(&mut self, server: ServerEpoch) {
        self.talked_of.remove(&server);
        self.unanswered.remove(&server);
        self.aftermaths.remove(&server);
        // Their memory is gone with it.
        self.teardowns.retain(|_, teardown| teardown.server != server);
    }

    /// When something must be done on account of them alone.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let signs = [self.incidents_deadline(), self.endings_deadline()];
        let dead = [self.funerals_deadline(), self.burials_deadline(), self.held_deadline(), self.teardowns_deadline()];
        signs.into_iter().chain(dead).chain([self.untold.deadline()]).flatten().min()
    }

    /// Has those told of verdicts of whom all is known that concerns them, or will not be.
    pub(super) fn advance_untold(&mut self, turn: &mut Turn) {
        self.untold.advance(turn);
    }

    /// The daemon is about to exit: has everything told as it is known.
    pub(super) fn tell_all(&mut self, turn: &mut Turn) {
        self.untold.flush(turn);
    }

    /// The clients that died lately, oldest first.
    pub(super) fn deaths(&self) -> impl DoubleEndedIterator<Item = &Death> {
        self.deaths.iter()
    }
}

impl Core {
    /// What a process has to do with the faults of this server, by the verdicts that are remembered and not corrected.
    pub(crate) fn part_of(&self, process: ProcessKey, server: ServerEpoch) -> Part {
        let of_server = |verdict: &&Verdict| verdict.epoch == server;
        let is_corrected = |number| self.verdicts().any(|verdict| verdict.corrects == Some(number));
        let standing = self.verdicts().filter(of_server).filter(|verdict| !is_corrected(verdict.number));
        let mut part = Part::Unknown;
        for verdict in standing {
            let Some(culprit) = &verdict.culprit else { continue };
            match part {
                _ if culprit.process == process => part = Part::Culprit(verdict.confidence),
                // Who has done wrong once there has done so.
                Part::Culprit(_) => {}
                Part::Unknown | Part::Bystander => part = Part::Bystander,
            }
        }
        part
    }
}

#[cfg(test)]
impl Faults {
    pub(super) fn incidents(&self) -> &BTreeMap<ServerEpoch, Incident> {
        &self.incidents
    }

    pub(super) fn funerals(&self) -> &BTreeMap<ProcessKey, Funeral> {
        &self.funerals
    }

    pub(super) fn teardowns(&self) -> &BTreeMap<ProcessKey, Teardown> {
        &self.teardowns
    }

    pub(super) fn endings(&self) -> &BTreeMap<ProcessKey, Ending> {
        &self.endings
    }
}
