//! What is noted of a name besides its regions: who has it, which server that process was on, and how far it has come.
//!
//! A name's entry comes with the first named region or commit of a process and goes with the name: it outlives its owner as the
//! regions do, is adopted with them, and is removed when neither a region nor a commit is left of the name.

use super::{Caller, Key, ProcessKey, Scope, Vault};
use core::time::Duration;
use remps_proto::shim::{Commit, Failure, Rest};
use std::collections::BTreeMap;

/// Names of one user. A program needs one.
const MOST_OF_USER: usize = 256;
/// Names of all users; with all that a commit may have, less than half of what the holder has room for.
const MOST: usize = 2048;

/// An entry, by a number that no other gets while a holder lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NameId(pub u64);

/// Whom the owner of a name has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predecessor {
    pub pid: u32,
    /// The server that it was on; 0 when none is known.
    pub server: u64,
    /// What was known of its work.
    pub rest: Rest,
}

/// What is noted of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameEntry {
    /// Whose it is, or was.
    pub owner: Caller,
    /// When it is forgotten; `None` while its owner lives.
    pub until: Option<Duration>,
    /// The server that the owner was on when it last asked for anything; 0 when none is known.
    pub server: u64,
    /// Whom it has succeeded.
    pub predecessor: Option<Predecessor>,
    /// How far it has come.
    pub commit: Option<Commit>,
    /// Among whom the name is looked for.
    pub scope: Scope,
}

/// How a name is, for somebody who wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has it.
    Nobody,
    /// Another process has it, which lives.
    Taken,
    /// The caller has it.
    Own,
    /// Its owner has ended: this process.
    Free(ProcessKey),
}

/// All entries.
#[derive(Debug, Default)]
pub(super) struct Names {
    entries: BTreeMap<Key, (NameId, NameEntry)>,
    next: u64,
    /// Those that have changed since they were last told.
    changed: BTreeMap<NameId, Key>,
}

impl Names {
    pub(super) const fn new() -> Self {
        Self { entries: BTreeMap::new(), next: 1, changed: BTreeMap::new() }
    }

    fn touch(&mut self, key: &Key) -> Option<&mut NameEntry> {
        let (id, entry) = self.entries.get_mut(key)?;
        self.changed.insert(*id, key.clone());
        Some(entry)
    }

    fn remove(&mut self, key: &Key) {
        if self.touch(key).is_some() {
            self.entries.remove(key);
        }
    }
}

impl Vault {
    /// What is noted of a name.
    pub(crate) fn entry(&self, caller: &Caller, name: &str) -> Option<&NameEntry> {
        self.entry_of(&self.key(caller, name))
    }

    pub(super) fn entry_of(&self, key: &Key) -> Option<&NameEntry> {
        self.names.entries.get(key).map(|(_, entry)| entry)
    }

    /// A name is looked for elsewhere from now on.
    pub(super) fn move_entry(&mut self, old: &Key, new: Key) {
        if let Some((id, mut entry)) = self.names.entries.remove(old) {
            entry.scope = new.0.clone();
            self.names.entries.insert(new.clone(), (id, entry));
            self.names.changed.insert(id, new);
        }
    }

    /// All entries with their names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (NameId, &str, &NameEntry)> {
        self.names.entries.iter().map(|((_, name), (id, entry))| (*id, name.as_str(), entry))
    }

    /// The entries that have changed since this was last asked; `None` for one that is gone.
    pub(crate) fn take_changed_entries(&mut self) -> Vec<(NameId, Option<(String, NameEntry)>)> {
        let entries = &self.names.entries;
        let now = |(id, key): (NameId, Key)| {
            let entry = entries.get(&key).filter(|(found, _)| *found == id);
            (id, entry.map(|(_, entry)| (key.1, entry.clone())))
        };
        std::mem::take(&mut self.names.changed).into_iter().map(now).collect()
    }

    /// Puts back what an earlier daemon had noted.
    pub(crate) fn restore_entry(&mut self, id: NameId, name: String, entry: NameEntry) {
        self.names.next = self.names.next.max(id.0 + 1);
        self.names.entries.insert((entry.scope.clone(), name), (id, entry));
    }

    /// Notes on which server the owner of a name is. Whoever has no entry there yet gets one, if there is room.
    pub(crate) fn note_server(&mut self, caller: &Caller, name: &str, server: u64) {
        if name.is_empty() || self.ensure_entry(caller, name).is_err() {
            return;
        }
        let key = self.key(caller, name);
        if self.entry_of(&key).is_some_and(|entry| entry.server != server)
            && let Some(entry) = self.names.touch(&key)
        {
            entry.server = server;
        }
    }

    /// Notes how far the owner of a name has come; a name that nobody has becomes the caller's.
    ///
    /// # Errors
    /// `SWITCHED_OFF`, `NAME_IN_USE`, `QUOTA`.
    pub(crate) fn commit(&mut self, caller: &Caller, name: &str, commit: Commit) -> Result<NameId, Failure> {
        if !self.policy.enabled {
            return Err(Failure::SWITCHED_OFF);
        }
        let id = self.ensure_entry(caller, name)?;
        let key = self.key(caller, name);
        if let Some(entry) = self.names.touch(&key) {
            entry.commit = Some(commit);
        }
        Ok(id)
    }

    /// The caller's entry, a new one if there is none.
    fn ensure_entry(&mut self, caller: &Caller, name: &str) -> Result<NameId, Failure> {
        if self.owner_of_name(caller, name).is_some_and(|owner| owner != caller.process) {
            return Err(Failure::NAME_IN_USE);
        }
        let key = self.key(caller, name);
        if let Some((id, _)) = self.names.entries.get(&key) {
            return Ok(*id);
        }
        let of_user = self.names.entries.keys().filter(|(scope, _)| scope.uid == caller.uid).count();
        if of_user >= MOST_OF_USER || self.names.entries.len() >= MOST {
            return Err(Failure::QUOTA);
        }
        let id = NameId(self.names.next);
        self.names.next += 1;
        let (owner, scope) = (caller.clone(), key.0.clone());
        let entry = NameEntry { owner, until: None, server: 0, predecessor: None, commit: None, scope };
        self.names.entries.insert(key.clone(), (id, entry));
        self.names.changed.insert(id, key);
        Ok(id)
    }

    /// How a name is for the caller.
    pub(crate) fn standing(&self, caller: &Caller, name: &str) -> Standing {
        let key = self.key(caller, name);
        let ids = self.by_name.get(&key);
        let regions = ids.into_iter().flatten().filter_map(|id| self.kept.get(id));
        let regions = regions.map(|kept| (kept.owner.process, kept.until.is_none()));
        let entry = self.entry_of(&key).map(|entry| (entry.owner.process, entry.until.is_none()));
        let owners: Vec<(ProcessKey, bool)> = entry.into_iter().chain(regions).collect();
        match owners.iter().find(|(_, lives)| *lives) {
            Some((owner, _)) if *owner == caller.process => Standing::Own,
            Some(_) => Standing::Taken,
            None => owners.first().map_or(Standing::Nobody, |(owner, _)| Standing::Free(*owner)),
        }
    }

    /// Notes whom the new owner of a name has succeeded, and where it is itself.
    pub(crate) fn note_predecessor(&mut self, caller: &Caller, name: &str, predecessor: Predecessor, server: u64) {
        let has_entry = self.ensure_entry(caller, name).is_ok();
        let key = self.key(caller, name);
        if has_entry && let Some(entry) = self.names.touch(&key) {
            entry.predecessor = Some(predecessor);
            entry.server = server;
        }
    }

    /// Takes an entry out: it could not be made safe.
    pub(crate) fn remove_entry(&mut self, id: NameId) -> Option<ProcessKey> {
        let key = self.names.entries.iter().find(|(_, (found, _))| *found == id).map(|(key, _)| key.clone())?;
        self.names.entries.remove(&key).map(|(_, entry)| entry.owner.process)
    }

    pub(super) fn entry_owner(&self, key: &Key) -> Option<ProcessKey> {
        self.entry_of(key).map(|entry| entry.owner.process)
    }

    pub(super) fn has_entry(&self, process: ProcessKey) -> bool {
        self.names.entries.values().any(|(_, entry)| entry.owner.process == process)
    }

    /// An entry changes hands with its regions.
    pub(super) fn give_entry(&mut self, key: &Key, owner: &Caller) {
        if let Some(entry) = self.names.touch(key) {
            entry.owner = owner.clone();
            entry.until = None;
        }
    }

    pub(super) fn discard_entry(&mut self, key: &Key) {
        self.names.remove(key);
    }

    /// Removes an entry of which nothing else is left.
    pub(super) fn tidy_entry(&mut self, key: &Key) {
        if !self.by_name.contains_key(key) && self.entry_of(key).is_some_and(|entry| entry.commit.is_none()) {
            self.names.remove(key);
        }
    }

    pub(super) fn entries_of_ended(&mut self, process: ProcessKey, until: Duration) {
        let own = self.names.entries.iter().filter(|(_, (_, entry))| entry.owner.process == process);
        let keys: Vec<Key> = own.map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(entry) = self.names.touch(&key) {
                entry.until.get_or_insert(until);
            }
            self.tidy_entry(&key);
        }
    }

    pub(super) fn entries_deadline(&self) -> Option<Duration> {
        self.names.entries.values().filter_map(|(_, entry)| entry.until).min()
    }

    pub(super) fn expire_entries(&mut self, now: Duration) {
        let due = self.names.entries.iter().filter(|(_, (_, entry))| entry.until.is_some_and(|at| at <= now));
        let keys: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.names.remove(&key);
        }
    }

    /// The living owner of an entry, and whether it is known of each.
    pub(super) fn living_entries(&self) -> Vec<(Key, Caller)> {
        let living = self.names.entries.iter().filter(|(_, (_, entry))| entry.until.is_none());
        living.map(|(key, (_, entry))| (key.clone(), entry.owner.clone())).collect()
    }
}
