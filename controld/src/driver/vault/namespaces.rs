//! User namespaces of those who have something in the vault, held open, and scopes that an earlier daemon did not note.
//!
//! A namespace is known by its inode number, and the kernel gives the number of one that is gone to the next. So while
//! anything is kept for processes of a namespace it is held open, here and by the holder: whoever makes a namespace later
//! gets another number, and never what belonged to the first.
//!
//! # After the daemon's death
//! | found by the successor | done |
//! |---|---|
//! | the namespace, open | held on |
//! | not, and the owner lives | opened again, by the owner's process |
//! | not, and the owner has ended | nobody can be known to be of it any more: what was kept ends with its time |
//! | kept by a release that noted no scope, and the owner lives | the owner's, from its process |
//! | the same, and the owner has ended | of its container and whatever namespace asks first, as with that release |

use super::keeper::Keeper;
use crate::core::vault::{Caller, Kept, NameEntry, NameId, RegionId, Scope};
use crate::core::{Namespace, ProcessKey};
use crate::door::client::Client;
use crate::driver::keys;
use crate::driver::turn::Turn;
use crate::holder::{Held, Kind};
use crate::witness::place::{self, Found};
use nix::sys::stat::fstat;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

/// What no process's namespace is like.
const GONE: &str = "gone";

/// Whether a descriptor is of the namespace with this number.
fn is_of(descriptor: &OwnedFd, number: u64) -> bool {
    fstat(descriptor).is_ok_and(|stat| stat.st_ino == number)
}

/// What an earlier daemon kept, with what is settled about whose it is before it goes into the rules.
#[derive(Default)]
pub(super) struct Restored {
    pub(super) regions: Vec<(RegionId, Kept)>,
    pub(super) entries: Vec<(NameId, String, NameEntry)>,
}

impl Restored {
    fn scopes(&mut self) -> impl Iterator<Item = (&Caller, bool, &str, &mut Scope)> {
        let regions = self
            .regions
            .iter_mut()
            .map(|(_, Kept { owner, until, region, scope })| (&*owner, until.is_none(), region.name.as_str(), scope));
        let entries = self
            .entries
            .iter_mut()
            .map(|(_, name, NameEntry { owner, until, scope, .. })| (&*owner, until.is_none(), name.as_str(), scope));
        regions.chain(entries)
    }
}

/// Where an owner is that lives.
fn found(owner: ProcessKey) -> Option<Found> {
    place::look(owner.pid).ok().filter(|found| found.start_time == owner.start_time)
}

impl Keeper {
    /// The namespaces for whose processes something is kept.
    fn owning_namespaces(&self) -> BTreeSet<u64> {
        let scopes = self.rules.iter().map(|(_, kept)| &kept.scope);
        let scopes = scopes.chain(self.rules.entries().map(|(_, _, entry)| &entry.scope));
        let numbers = scopes.filter_map(|scope| match scope.namespace {
            Namespace::Other(number) => Some(number),
            Namespace::Unknown | Namespace::Own | Namespace::Alike(_) => None,
        });
        numbers.collect()
    }

    /// Holds the namespace open of a program that has just become the owner of something.
    pub(super) fn keep_namespace(&mut self, turn: &Turn<'_>, client: &Client) {
        let Namespace::Other(number) = client.caller.place.user else { return };
        let Some(namespace) = client.namespace.as_ref().and_then(|namespace| namespace.try_clone().ok()) else {
            return;
        };
        self.hold_namespace(turn, number, namespace);
    }

    fn hold_namespace(&mut self, turn: &Turn<'_>, number: u64, namespace: OwnedFd) {
        if let Entry::Vacant(place) = self.namespaces.entry(number) {
            turn.successor.hold(keys::namespace(number), Kind::NAMESPACE, &[], &[namespace.as_fd()]);
            place.insert(namespace);
        }
    }

    /// Gives another holder all of them.
    pub(super) fn hold_namespaces(&self, turn: &Turn<'_>) {
        for (number, namespace) in &self.namespaces {
            turn.successor.hold(keys::namespace(*number), Kind::NAMESPACE, &[], &[namespace.as_fd()]);
        }
    }

    /// Lets go of those for whose processes nothing is kept any more.
    pub(super) fn forget_namespaces(&mut self, turn: &Turn<'_>) {
        if self.namespaces.is_empty() {
            return;
        }
        let owning = self.owning_namespaces();
        let gone: Vec<(u64, OwnedFd)> = self.namespaces.extract_if(.., |number, _| !owning.contains(number)).collect();
        for (number, _) in gone {
            turn.successor.release(keys::namespace(number));
        }
    }

    /// Goes on with a namespace that an earlier daemon held open.
    pub(super) fn take_over_namespace(&mut self, turn: &Turn<'_>, number: u64, held: Held) {
        match held.fds.into_iter().next().filter(|descriptor| is_of(descriptor, number)) {
            Some(namespace) => drop(self.namespaces.insert(number, namespace)),
            None => turn.successor.release(held.key),
        }
    }

    /// Settles whose everything is that an earlier daemon kept.
    pub(super) fn settle_scopes(&mut self, turn: &Turn<'_>, restored: &mut Restored) {
        let reach = self.rules.policy().scope;
        let mut living = BTreeMap::new();
        for (owner, lives, name, scope) in restored.scopes() {
            match &scope.namespace {
                Namespace::Unknown if lives => {
                    if let Some(Found { place, namespace, .. }) = found(owner.process) {
                        let settled = Scope::of(reach, &Caller { place, ..owner.clone() }, name);
                        if let (Namespace::Other(number), Some(namespace)) = (&settled.namespace, namespace) {
                            self.hold_namespace(turn, *number, namespace);
                        }
                        *scope = settled.clone();
                        if !name.is_empty() {
                            living.insert((owner.uid, name.to_owned()), settled);
                        }
                    }
                }
                Namespace::Other(number) if !self.namespaces.contains_key(number) => {
                    let again = found(owner.process).filter(|_| lives).and_then(|found| found.namespace);
                    match again.filter(|namespace| is_of(namespace, *number)) {
                        Some(namespace) => self.hold_namespace(turn, *number, namespace),
                        None => scope.namespace = Namespace::Alike(GONE.to_owned()),
                    }
                }
                Namespace::Unknown | Namespace::Own | Namespace::Other(_) | Namespace::Alike(_) => {}
            }
        }
        // Whose owner lives is his whole, as an adoption that was cut short left it.
        for (owner, _, name, scope) in restored.scopes().filter(|(.., scope)| scope.namespace == Namespace::Unknown) {
            if let Some(settled) = living.get(&(owner.uid, name.to_owned())) {
                *scope = settled.clone();
            }
        }
    }
}
