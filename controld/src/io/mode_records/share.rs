//! A daemon's part in the machine's record of a GPU's compute mode: a lock on the file, held together with the others
//! that count on that mode.
//!
//! The lock is of the open file, so a duplicate of its descriptor keeps it. It is only ever tried for: whoever could
//! have another wait for it does not exist, since none but root and the daemon's user can open the file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::linkat;

use super::record::{NoRecord, Record, name_of, not_believed, read, write};
use crate::io::folder::Folder;
use crate::io::folder::way::{self, Way};
use crate::io::umask;

/// The folder is root's matter.
const FOLDER_MODE: Mode = Mode::S_IRWXU;
/// How often a record may be made or removed by another daemon while it is opened.
const TURNS: u32 = 10;
/// Names tried before there is no free one.
const TEMPORARY_NAMES: u32 = 100;

/// The folder of the machine, as it is.
pub(super) fn open(path: &Path) -> io::Result<Folder> {
    let Way { folder: parent, name, .. } = way::find(path)?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = openat(&parent, name.as_os_str(), flags, Mode::empty())?;
    if way::is_shared(&fstat(&folder)?) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others can write to the folder"));
    }
    Folder::from_fd(folder, path)
}

/// The same, made if only its last part is missing.
fn make(path: &Path) -> io::Result<Folder> {
    let Way { folder: parent, name, .. } = way::find(path)?;
    match umask::exactly(FOLDER_MODE, || mkdirat(&parent, name.as_os_str(), FOLDER_MODE)) {
        Ok(()) | Err(Errno::EEXIST) => open(path),
        Err(error) => Err(error.into()),
    }
}

/// The part, as long as it lives.
#[derive(Debug)]
pub(crate) struct Share {
    file: File,
}

impl From<OwnedFd> for Share {
    fn from(descriptor: OwnedFd) -> Self {
        Self { file: descriptor.into() }
    }
}

impl AsFd for Share {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Share {
    /// Whether nobody else has a part. Then nobody can get one while this one lives; if not, it is a part no longer.
    pub(crate) fn is_last(&self) -> bool {
        self.file.try_lock().is_ok()
    }

    /// Takes part in a record that is there; `None` while the last one gives the mode back.
    pub(super) fn join(folder: &Folder, uuid: &str) -> Result<Option<(Self, Record)>, NoRecord> {
        for _ in 0..TURNS {
            let (record, file) = read(folder, uuid)?;
            if file.try_lock_shared().is_err() {
                return Ok(None);
            }
            let share = Self { file };
            if share.is_named(folder, uuid)? {
                return Ok(Some((share, record)));
            }
        }
        Ok(None)
    }

    /// Takes part in a record in which nobody who lives does, or, where `anyway` says so, together with those who do.
    /// What is no record is said, and removed unless somebody locks it.
    pub(super) fn take_over(
        folder: &Folder,
        uuid: &str,
        anyway: bool,
        remarks: &mut Vec<String>,
    ) -> Option<(Self, Record)> {
        match read(folder, uuid) {
            Ok((record, file)) => {
                let share = Self { file };
                // A lock that was had alone is given up for a part in it, and not dropped between.
                let is_ours = share.is_last() || anyway;
                let is_had = is_ours && share.file.try_lock_shared().is_ok();
                (is_had && share.is_named(folder, uuid).ok()?).then_some((share, record))
            }
            Err(NoRecord::Missing) => None,
            Err(error) => {
                remarks.push(not_believed(folder, uuid, &error));
                let name = name_of(uuid)?;
                match folder.open_file(&name, OFlag::O_RDONLY, Mode::empty()) {
                    Ok(file) => {
                        let share = Self { file };
                        if share.is_last() && share.is_named(folder, uuid).ok()? {
                            let _ = folder.remove(&name);
                        }
                    }
                    // A link. In this folder root alone can have made it.
                    Err(_) => drop(folder.remove(&name)),
                }
                None
            }
        }
    }

    /// Makes the record, or takes part in the one that another daemon has made meanwhile. Gives the file if it is new.
    pub(super) fn make(path: &Path, uuid: &str, text: &[u8]) -> io::Result<(Self, Option<File>)> {
        let folder = make(path)?;
        let name = name_of(uuid).ok_or(Errno::EINVAL)?;
        let (temporary, file) = write_new(&folder, text)?;
        // It has its lock before it has its name.
        file.try_lock_shared().map_err(|_| Errno::EWOULDBLOCK)?;
        for _ in 0..TURNS {
            let made = linkat(&folder, temporary.as_str(), &folder, name.as_str(), AtFlags::empty());
            if made != Err(Errno::EEXIST) {
                let _ = folder.remove(&temporary);
                made?;
                return Ok((Self { file: file.try_clone()? }, Some(file)));
            }
            match Self::join(&folder, uuid) {
                Ok(Some((share, _))) => {
                    let _ = folder.remove(&temporary);
                    return Ok((share, None));
                }
                // It is being removed.
                Ok(None) | Err(NoRecord::Missing) => {}
                Err(_) => drop(folder.remove(&name)),
            }
        }
        let _ = folder.remove(&temporary);
        Err(Errno::EBUSY.into())
    }

    fn is_named(&self, folder: &Folder, uuid: &str) -> io::Result<bool> {
        let name = name_of(uuid).unwrap_or_default();
        Ok(folder.identity(&name) == Some(fstat(&self.file)?.into()))
    }
}

/// A file with this text under a name of its own: daemons of several PID namespaces can have the same number.
fn write_new(folder: &Folder, text: &[u8]) -> io::Result<(String, File)> {
    for attempt in 0..TEMPORARY_NAMES {
        let name = format!(".new-{}-{attempt}", std::process::id());
        match write(folder, &name, text) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => return Ok((name, written?)),
        }
    }
    Err(Errno::EEXIST.into())
}
