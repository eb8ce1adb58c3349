//! What the vault should have, what it has, and what to ask for next. Pure bookkeeping.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use remps_proto::shim::{Failure, Region};

/// When something that was refused for want of room, or because of the name, is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Names a piece of kept memory within the process, and no other ever.
pub(crate) type Serial = u64;

/// What became of a piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The daemon has said that it is kept.
    Kept,
    /// The daemon has it, perhaps: it is to be told again on a new connection.
    Stale,
    /// Not now.
    Refused(Failure, Instant),
    /// Never.
    Impossible(Failure),
}

#[derive(Clone, Debug)]
struct Entry {
    region: Region,
    place: Place,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: BTreeMap<Serial, Entry>,
    /// What is gone here and still has to be released there: by serial, its key.
    to_release: BTreeMap<Serial, u64>,
    /// Part of every key, so that keys of several processes under one name do not meet.
    salt: u64,
    /// Escrows in all.
    pub(super) escrows: u64,
}

impl Ledger {
    /// An empty one of a process; `salt` differs from process to process.
    pub(super) fn new(salt: u64) -> Self {
        Self { entries: BTreeMap::new(), to_release: BTreeMap::new(), salt: salt << 32, escrows: 0 }
    }

    /// The key for a new piece of memory.
    pub(super) fn key(&self, serial: Serial) -> u64 {
        self.salt | (serial & u64::from(u32::MAX))
    }

    /// Everything has to be told again.
    pub(super) fn connected(&mut self) {
        for entry in self.entries.values_mut() {
            if !matches!(entry.place, Place::Impossible(_)) {
                entry.place = Place::Stale;
            }
        }
    }

    /// What there is now: what is not there any more is to be released.
    pub(super) fn there_are(&mut self, serials: &BTreeSet<Serial>) {
        let gone: Vec<Serial> = self.entries.keys().filter(|serial| !serials.contains(serial)).copied().collect();
        for serial in gone {
            if let Some(entry) = self.entries.remove(&serial)
                && matches!(entry.place, Place::Kept | Place::Stale)
            {
                self.to_release.insert(serial, entry.region.key);
            }
        }
    }

    /// Memory that came from the vault and is there already.
    pub(super) fn adopted(&mut self, serial: Serial, region: Region) {
        self.entries.insert(serial, Entry { region, place: Place::Kept });
    }

    /// Whether a piece of memory is to be given to the vault now.
    pub(super) fn is_due(&self, serial: Serial, now: Instant) -> bool {
        match self.entries.get(&serial).map(|entry| &entry.place) {
            None | Some(Place::Stale) => true,
            Some(Place::Refused(_, since)) => now >= *since + ASK_AGAIN,
            Some(Place::Kept | Place::Impossible(_)) => false,
        }
    }

    /// What is known of a piece of memory.
    pub(super) fn region(&self, serial: Serial) -> Option<&Region> {
        self.entries.get(&serial).map(|entry| &entry.region)
    }

    /// The daemon's answer to an escrow.
    pub(super) fn answered(&mut self, serial: Serial, region: Region, answer: Result<(), Failure>, now: Instant) {
        let place = match answer {
            Ok(()) => Place::Kept,
            Err(failure @ (Failure::QUOTA | Failure::NAME_IN_USE | Failure::NOT_SAFE | Failure::QUITTING)) => {
                Place::Refused(failure, now)
            }
            Err(failure) => Place::Impossible(failure),
        };
        self.escrows += u64::from(place == Place::Kept);
        self.entries.insert(serial, Entry { region, place });
    }

    /// The keys to release.
    pub(super) fn releases(&self) -> Vec<(Serial, u64)> {
        self.to_release.iter().map(|(serial, key)| (*serial, *key)).collect()
    }

    /// The daemon has answered a release, whatever it said: what it does not have is released.
    pub(super) fn released(&mut self, serial: Serial) {
        self.to_release.remove(&serial);
    }

    /// When something is to be asked for again, if nothing happens before.
    pub(super) fn next(&self) -> Option<Instant> {
        let again = self.entries.values().filter_map(|entry| match entry.place {
            Place::Refused(_, since) => Some(since + ASK_AGAIN),
            Place::Kept | Place::Stale | Place::Impossible(_) => None,
        });
        again.min()
    }

    /// What was refused is asked for at once: something has changed.
    pub(super) fn ask_again(&mut self) {
        for entry in self.entries.values_mut() {
            if matches!(entry.place, Place::Refused(..)) {
                entry.place = Place::Stale;
            }
        }
    }

    /// Pieces of memory that are kept, bytes of them, those that are not, and why the last of these is not.
    pub(super) fn totals(&self) -> (u64, u64, u64, Option<Failure>) {
        let (mut kept, mut bytes, mut refused, mut why) = (0, 0, 0, None);
        for entry in self.entries.values() {
            match entry.place {
                Place::Kept => {
                    kept += 1;
                    bytes += entry.region.bytes;
                }
                Place::Stale => {}
                Place::Refused(failure, _) | Place::Impossible(failure) => {
                    refused += 1;
                    why = Some(failure);
                }
            }
        }
        (kept, bytes, refused, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(key: u64) -> Region {
        Region { key, bytes: 2 << 20, ..Region::default() }
    }

    #[test]
    fn what_is_new_is_given_and_what_is_gone_is_released_once() {
        let (mut ledger, now) = (Ledger::new(7), Instant::now());
        assert!(ledger.is_due(1, now));
        let key = ledger.key(1);
        assert_eq!(key, (7 << 32) | 1);
        ledger.answered(1, region(key), Ok(()), now);
        assert!(!ledger.is_due(1, now));
        assert_eq!(ledger.totals(), (1, 2 << 20, 0, None));
        ledger.there_are(&BTreeSet::new());
        assert_eq!(ledger.releases(), [(1, key)]);
        ledger.released(1);
        assert_eq!(ledger.releases(), []);
    }

    #[test]
    fn a_new_daemon_is_told_everything_again_and_released_what_went_meanwhile() {
        let (mut ledger, now) = (Ledger::new(7), Instant::now());
        ledger.adopted(1, region(99));
        ledger.answered(2, region(2), Ok(()), now);
        ledger.connected();
        ledger.there_are(&BTreeSet::from([1]));
        assert!(ledger.is_due(1, now));
        assert_eq!((ledger.region(1).unwrap().key, ledger.releases()), (99, vec![(2, 2)]));
    }

    #[test]
    fn a_refusal_is_tried_again_unless_it_is_for_good() {
        let (mut ledger, now) = (Ledger::new(7), Instant::now());
        ledger.answered(1, region(1), Err(Failure::QUOTA), now);
        ledger.answered(2, region(2), Err(Failure::WRONG_DESCRIPTOR), now);
        assert_eq!(ledger.totals(), (0, 0, 2, Some(Failure::WRONG_DESCRIPTOR)));
        assert!(!ledger.is_due(1, now) && ledger.is_due(1, now + ASK_AGAIN));
        assert_eq!(ledger.next(), Some(now + ASK_AGAIN));
        ledger.ask_again();
        assert!(ledger.is_due(1, now) && !ledger.is_due(2, now + ASK_AGAIN));
        // What the daemon never had is not released.
        ledger.answered(1, region(1), Err(Failure::QUOTA), now);
        ledger.there_are(&BTreeSet::new());
        assert_eq!(ledger.releases(), []);
    }
}
