//! What is noted of a name besides its regions: who has it, which server that process was on, and how far it has come.
//!
//! A title comes with the first named region or commit of a process and goes with the name: it outlives its owner as the
//! regions do, is adopted with them, and is removed when neither a region nor a commit is left of the name.

use super::{Caller, Key, ProcessKey, Scope, Vault};
use core::time::Duration;
use remps_proto::shim::{Commit, Failure, Rest};
use std::collections::BTreeMap;

/// Titles of one user. A program needs one.
const MOST_OF_USER: usize = 256;
/// Titles of all users; with all that a commit may have, less than half of what the holder has room for.
const MOST: usize = 2048;

/// A title, by a number that no other gets while a holder lives.
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
pub struct Title {
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

/// All titles.
#[derive(Debug, Default)]
pub(super) struct Names {
    titles: BTreeMap<Key, (NameId, Title)>,
    next: u64,
    /// Those that have changed since they were last told.
    changed: BTreeMap<NameId, Key>,
}

impl Names {
    pub(super) const fn new() -> Self {
        Self { titles: BTreeMap::new(), next: 1, changed: BTreeMap::new() }
    }

    fn touch(&mut self, key: &Key) -> Option<&mut Title> {
        let (id, title) = self.titles.get_mut(key)?;
        self.changed.insert(*id, key.clone());
        Some(title)
    }

    fn remove(&mut self, key: &Key) {
        if self.touch(key).is_some() {
            self.titles.remove(key);
        }
    }
}

impl Vault {
    /// What is noted of a name.
    pub(crate) fn title(&self, caller: &Caller, name: &str) -> Option<&Title> {
        self.title_of(&self.key(caller, name))
    }

    pub(super) fn title_of(&self, key: &Key) -> Option<&Title> {
        self.names.titles.get(key).map(|(_, title)| title)
    }

    /// A name is looked for elsewhere from now on.
    pub(super) fn move_title(&mut self, old: &Key, new: Key) {
        if let Some((id, mut title)) = self.names.titles.remove(old) {
            title.scope = new.0.clone();
            self.names.titles.insert(new.clone(), (id, title));
            self.names.changed.insert(id, new);
        }
    }

    /// All titles with their names.
    pub(crate) fn titles(&self) -> impl Iterator<Item = (NameId, &str, &Title)> {
        self.names.titles.iter().map(|((_, name), (id, title))| (*id, name.as_str(), title))
    }

    /// The titles that have changed since this was last asked; `None` for one that is gone.
    pub(crate) fn take_changed_titles(&mut self) -> Vec<(NameId, Option<(String, Title)>)> {
        let titles = &self.names.titles;
        let now = |(id, key): (NameId, Key)| {
            let title = titles.get(&key).filter(|(found, _)| *found == id);
            (id, title.map(|(_, title)| (key.1, title.clone())))
        };
        std::mem::take(&mut self.names.changed).into_iter().map(now).collect()
    }

    /// Puts back what an earlier daemon had noted.
    pub(crate) fn restore_title(&mut self, id: NameId, name: String, title: Title) {
        self.names.next = self.names.next.max(id.0 + 1);
        self.names.titles.insert((title.scope.clone(), name), (id, title));
    }

    /// Notes on which server the owner of a name is. Whoever has no title there yet gets one, if there is room.
    pub(crate) fn note_server(&mut self, caller: &Caller, name: &str, server: u64) {
        if name.is_empty() || self.entitle(caller, name).is_err() {
            return;
        }
        let key = self.key(caller, name);
        if self.title_of(&key).is_some_and(|title| title.server != server)
            && let Some(title) = self.names.touch(&key)
        {
            title.server = server;
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
        let id = self.entitle(caller, name)?;
        let key = self.key(caller, name);
        if let Some(title) = self.names.touch(&key) {
            title.commit = Some(commit);
        }
        Ok(id)
    }

    /// The caller's title, a new one if there is none.
    fn entitle(&mut self, caller: &Caller, name: &str) -> Result<NameId, Failure> {
        if self.owner_of_name(caller, name).is_some_and(|owner| owner != caller.process) {
            return Err(Failure::NAME_IN_USE);
        }
        let key = self.key(caller, name);
        if let Some((id, _)) = self.names.titles.get(&key) {
            return Ok(*id);
        }
        let of_user = self.names.titles.keys().filter(|(scope, _)| scope.uid == caller.uid).count();
        if of_user >= MOST_OF_USER || self.names.titles.len() >= MOST {
            return Err(Failure::QUOTA);
        }
        let id = NameId(self.names.next);
        self.names.next += 1;
        let (owner, scope) = (caller.clone(), key.0.clone());
        let title = Title { owner, until: None, server: 0, predecessor: None, commit: None, scope };
        self.names.titles.insert(key.clone(), (id, title));
        self.names.changed.insert(id, key);
        Ok(id)
    }

    /// How a name is for the caller.
    pub(crate) fn standing(&self, caller: &Caller, name: &str) -> Standing {
        let key = self.key(caller, name);
        let ids = self.by_name.get(&key);
        let regions = ids.into_iter().flatten().filter_map(|id| self.kept.get(id));
        let regions = regions.map(|kept| (kept.owner.process, kept.until.is_none()));
        let title = self.title_of(&key).map(|title| (title.owner.process, title.until.is_none()));
        let owners: Vec<(ProcessKey, bool)> = title.into_iter().chain(regions).collect();
        match owners.iter().find(|(_, lives)| *lives) {
            Some((owner, _)) if *owner == caller.process => Standing::Own,
            Some(_) => Standing::Taken,
            None => owners.first().map_or(Standing::Nobody, |(owner, _)| Standing::Free(*owner)),
        }
    }

    /// Notes whom the new owner of a name has succeeded, and where it is itself.
    pub(crate) fn note_predecessor(&mut self, caller: &Caller, name: &str, predecessor: Predecessor, server: u64) {
        let is_entitled = self.entitle(caller, name).is_ok();
        let key = self.key(caller, name);
        if is_entitled && let Some(title) = self.names.touch(&key) {
            title.predecessor = Some(predecessor);
            title.server = server;
        }
    }

    /// Takes a title out: it could not be made safe.
    pub(crate) fn remove_title(&mut self, id: NameId) {
        let key = self.names.titles.iter().find(|(_, (found, _))| *found == id).map(|(key, _)| key.clone());
        if let Some(key) = key {
            self.names.titles.remove(&key);
        }
    }

    pub(super) fn titled_owner(&self, key: &Key) -> Option<ProcessKey> {
        self.title_of(key).map(|title| title.owner.process)
    }

    pub(super) fn has_title(&self, process: ProcessKey) -> bool {
        self.names.titles.values().any(|(_, title)| title.owner.process == process)
    }

    /// A title changes hands with its regions.
    pub(super) fn give_title(&mut self, key: &Key, owner: &Caller) {
        if let Some(title) = self.names.touch(key) {
            title.owner = owner.clone();
            title.until = None;
        }
    }

    pub(super) fn discard_title(&mut self, key: &Key) {
        self.names.remove(key);
    }

    /// Removes a title of which nothing else is left.
    pub(super) fn tidy_title(&mut self, key: &Key) {
        if !self.by_name.contains_key(key) && self.title_of(key).is_some_and(|title| title.commit.is_none()) {
            self.names.remove(key);
        }
    }

    pub(super) fn titles_of_ended(&mut self, process: ProcessKey, until: Duration) {
        let own = self.names.titles.iter().filter(|(_, (_, title))| title.owner.process == process);
        let keys: Vec<Key> = own.map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(title) = self.names.touch(&key) {
                title.until.get_or_insert(until);
            }
            self.tidy_title(&key);
        }
    }

    pub(super) fn titles_deadline(&self) -> Option<Duration> {
        self.names.titles.values().filter_map(|(_, title)| title.until).min()
    }

    pub(super) fn expire_titles(&mut self, now: Duration) {
        let due = self.names.titles.iter().filter(|(_, (_, title))| title.until.is_some_and(|at| at <= now));
        let keys: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.names.remove(&key);
        }
    }

    /// The living owner of a title, and whether it is known of each.
    pub(super) fn living_titles(&self) -> Vec<(Key, Caller)> {
        let living = self.names.titles.iter().filter(|(_, (_, title))| title.until.is_none());
        living.map(|(key, (_, title))| (key.clone(), title.owner.clone())).collect()
    }
}
