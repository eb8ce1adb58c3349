//! Records of the compute modes that GPUs had before a daemon changed them, for when daemon and holder are both killed.
//!
//! | where | for |
//! |---|---|
//! | the pipe directory | the next daemon there, in a new container too that has the directory mounted |
//! | a folder of the machine (`gpu.records`) | all daemons of the machine: the next one anywhere, and those beside this one |
//!
//! One file a GPU and place, made before its mode is changed and removed when it has its mode back. The file of the
//! machine is locked (`flock`) by every daemon that counts on the changed mode, and the holder has a duplicate of the
//! descriptor, so the lock ends with both: whoever can have it alone is the last one, and gives the mode back.
//! What is no record of this boot in a file of root or this user alone is not believed.

mod record;
mod share;

pub(crate) use record::{NoRecord, PREFIX, Record, names, read};

use super::folder::Folder;
use record::{name_of, not_believed, write};
use share::Share;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Removes a GPU's records when it has its mode back; what can't be removed is found to be void later.
pub(crate) fn forget(folders: &[PathBuf], uuid: &str) {
    let Some(name) = name_of(uuid) else { return };
    for folder in folders.iter().filter(|folder| folder.is_absolute()) {
        let _ = Folder::open(folder).map(|folder| folder.remove(&name));
    }
}

/// A mode that a daemon has not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftBehind {
    /// `GPU-…`.
    pub uuid: String,
    /// What is known.
    pub record: Record,
    /// The file that says so.
    pub path: PathBuf,
}

/// What is known of a GPU that another daemon may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// No other daemon has.
    Alone,
    /// One has, and gives its mode back just now.
    Leaving,
    /// One has; this is the number of the mode before.
    Before(u32),
}

/// The records of one daemon.
#[derive(Debug)]
pub(crate) struct ModeRecords {
    own: Arc<Folder>,
    /// The machine's folder; `None` where there is to be none.
    shared: Option<PathBuf>,
    /// The GPUs whose changed mode this daemon counts on, each with its part in the machine's record if there is one.
    counted: BTreeMap<String, Option<Part>>,
    next_number: u64,
}

/// A part in a record of the machine.
#[derive(Debug)]
struct Part {
    /// Its number among those of this daemon and the ones before it.
    number: u64,
    share: Share,
}

impl ModeRecords {
    /// The records of the daemon of a pipe directory. Nothing is made.
    pub(crate) fn new(own: Arc<Folder>, shared: Option<PathBuf>) -> Self {
        Self { own, shared, counted: BTreeMap::new(), next_number: 0 }
    }

    /// The folders that records are in, for a child that is to remove them.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        [self.own.path().to_owned()].into_iter().chain(self.shared.clone()).collect()
    }

    /// Takes over an earlier daemon's part in a record of the machine.
    pub(crate) fn adopt(&mut self, number: u64, uuid: String, descriptor: OwnedFd) {
        self.next_number = self.next_number.max(number.saturating_add(1));
        self.counted.insert(uuid, Some(Part { number, share: Share::from(descriptor) }));
    }

    /// The parts in records of the machine, each with its number and its GPU, for the holder.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, &str, BorrowedFd<'_>)> {
        let parts = self.counted.iter().filter_map(|(uuid, part)| Some((uuid.as_str(), part.as_ref()?)));
        parts.map(|(uuid, part)| (part.number, uuid, part.share.as_fd()))
    }

    /// The GPUs that this daemon counts on.
    pub(crate) fn counted(&self) -> Vec<String> {
        self.counted.keys().cloned().collect()
    }

    fn count_on(&mut self, uuid: &str, share: Option<Share>) {
        let number = self.next_number;
        self.next_number += 1;
        self.counted.insert(uuid.to_owned(), share.map(|share| Part { number, share }));
    }

    /// The modes that nobody who lives will give back, without those of `known` GPUs, and what is to be said of files
    /// that are no records. They are this daemon's from now on.
    pub(crate) fn left_behind(&mut self, known: &BTreeSet<String>) -> (Vec<LeftBehind>, Vec<String>) {
        let (mut found, mut remarks) = (Vec::new(), Vec::new());
        // One that is not there, or not for this user to read, tells nothing.
        let shared = self.shared.as_deref().and_then(|path| share::open(path).ok());
        let of_shared = shared.as_ref().map(names).unwrap_or_default();
        let uuids: BTreeSet<String> = names(&self.own).into_iter().chain(of_shared).collect();
        for uuid in uuids.difference(known) {
            let own = believed(&self.own, uuid, &mut remarks);
            let part = shared.as_ref().and_then(|folder| Share::take_over(folder, uuid, own.is_some(), &mut remarks));
            let (record, folder) = match (own, &part) {
                (Some(own), _) => (own, self.own.path()),
                (None, Some((_, record))) => (record.clone(), shared.as_ref().expect("it has a record").path()),
                (None, None) => continue,
            };
            let path = folder.join(format!("{PREFIX}{uuid}"));
            self.count_on(uuid, part.map(|(share, _)| share));
            found.push(LeftBehind { uuid: uuid.clone(), record, path });
        }
        (found, remarks)
    }

    /// Counts on the mode that another daemon has given a GPU, if one has.
    pub(crate) fn join(&mut self, uuid: &str) -> Joined {
        let folder = self.shared.as_deref().filter(|_| !self.counted.contains_key(uuid));
        let Some(folder) = folder.and_then(|path| share::open(path).ok()) else { return Joined::Alone };
        match Share::join(&folder, uuid) {
            Ok(Some((share, record))) => {
                // Its own record would be of use only if this daemon outlived the machine's folder.
                self.count_on(uuid, Some(share));
                Joined::Before(record.mode)
            }
            Ok(None) => Joined::Leaving,
            Err(_) => Joined::Alone,
        }
    }

    /// Records the mode that a GPU has and is about to lose. Gives the files, to be synced, and what went wrong.
    pub(crate) fn note(&mut self, uuid: &str, mode: u32) -> (Vec<File>, Vec<String>) {
        let (mut files, mut remarks) = (Vec::new(), Vec::new());
        let (Some(name), Ok(text)) = (name_of(uuid), Record::now(uuid, mode)) else { return (files, remarks) };
        let own = self.own.under_temporary_name(&name, |temporary| write(&self.own, temporary, &text));
        match own {
            Ok(file) => files.push(file),
            Err(error) => remarks.push(cannot(&self.own.file(&name), &error)),
        }
        let has_part = self.counted.get(uuid).is_some_and(Option::is_some);
        if let Some(path) = self.shared.as_deref().filter(|_| !has_part) {
            match Share::make(path, uuid, &text) {
                Ok((share, file)) => {
                    files.extend(file);
                    self.count_on(uuid, Some(share));
                }
                Err(error) => remarks.push(cannot(&path.join(&name), &error)),
            }
        }
        self.counted.entry(uuid.to_owned()).or_default();
        (files, remarks)
    }

    /// Whether no other daemon counts on a GPU's mode any more; then none can begin to until [`drop_part`](Self::drop_part).
    pub(crate) fn is_last(&self, uuid: &str) -> bool {
        self.counted.get(uuid).and_then(Option::as_ref).is_none_or(|part| part.share.is_last())
    }

    /// Counts on a GPU's mode no longer, and leaves its record to whoever is to find it. Gives the number of its part.
    pub(crate) fn drop_part(&mut self, uuid: &str) -> Option<u64> {
        self.counted.remove(uuid).flatten().map(|part| part.number)
    }

    /// Counts on a GPU's mode no longer, and has nothing to give back: the machine's record goes with the last one.
    /// Gives the number of its part.
    pub(crate) fn forget(&mut self, uuid: &str) -> Option<u64> {
        let folders = self.folders();
        let is_last = self.is_last(uuid);
        forget(if is_last { &folders } else { &folders[..1] }, uuid);
        self.drop_part(uuid)
    }
}

fn cannot(path: &Path, error: &io::Error) -> String {
    format!(
        "{} can't be written ({error}): when daemon and holder are both killed, nobody will know the mode that the GPU \
         had",
        path.display()
    )
}

/// A record that is believed. What is none is said and set aside, so that it is said once.
fn believed(folder: &Folder, uuid: &str, remarks: &mut Vec<String>) -> Option<Record> {
    let error = match read(folder, uuid) {
        Ok((record, _)) => return Some(record),
        Err(NoRecord::Missing) => return None,
        Err(error) => error,
    };
    remarks.push(not_believed(folder, uuid, &error));
    let name = name_of(uuid)?;
    // What can't be moved or removed is said again by the next daemon.
    match error {
        NoRecord::EarlierBoot => drop(folder.remove(&name)),
        NoRecord::Untrusted(_) => remarks.extend(
            folder.move_aside(&name).ok().map(|to| format!("{} is {} now", folder.file(&name).display(), to.display())),
        ),
        NoRecord::Missing | NoRecord::Io(_) => {}
    }
    None
}

#[cfg(test)]
mod tests;
