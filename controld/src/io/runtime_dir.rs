//! The pipe directory: its lock, its sockets, its pid file, and their removal.
//!
//! Users wait for these files and mount the directory into containers, so: a socket appears under its name only when it
//! listens; what this daemon made is removed on every orderly exit and nothing else ever is; the directory itself is
//! never removed or made anew, because running containers hold a mount of it. Names and the two messages of
//! [`RuntimeDirError`] that users see are the vendor's.
//!
//! # Whose it is
//! Whoever may replace names in it could be the daemon to clients and the holder to the daemon. So it is made 0755 (the
//! vendor's is 0777: no server or client makes a file there, they only open what is there), and one that exists is used
//! only when it is root's or this user's and nobody else may replace names in it. The vendor's leftovers have to go on
//! working: a directory of our own that others may write to is closed to them, by its descriptor. A sticky one, in which
//! nobody replaces another's names, is left as it is. Everything is then done through that descriptor ([`Folder`]),
//! so that a path which is led elsewhere meanwhile leads nobody but him who follows it.
//!
//! While the daemon or its holder lives, nobody cleans the directory because what is in it is old ([`Uncleaned`]).
//!
//! The lock file is 0600 (the vendor's 0666 lets any user hold the lock and so block a start).

pub(crate) mod entrances;
mod error;
mod lock;

pub use error::RuntimeDirError;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::socket::{Backlog, SockType};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, mkdirat};

use remps_proto::shim::DEFAULTS_NAME;

use super::folder::cleaning::Uncleaned;
use super::folder::way::{self, Way};
use super::folder::{Folder, Identity, Kind};
use super::{program_defaults, umask};
use crate::sys::proc;

/// Name of the socket of servers, clients and the command line of other users.
pub const CONTROL: &str = "control";
/// Name of the socket of the command line of root and the daemon's user.
pub const CONTROL_PRIVILEGED: &str = "control_privileged";
/// Name of the lock file.
pub const CONTROL_LOCK: &str = "control_lock";
/// Name of the log FIFO.
pub const LOG: &str = "log";
/// Name of the pid file.
pub const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o755);
const PID_FILE_MODE: Mode = Mode::from_bits_truncate(0o644);
/// Connections that wait for `accept`, as the vendor has it.
const BACKLOG: i32 = 128;
/// Longest path of a Unix socket: `sun_path` without its final NUL.
const MAX_SOCKET_PATH: usize = 107;

/// A file made here: removed at the end if it still is the one made.
#[derive(Debug)]
struct Made {
    name: String,
    file: Identity,
}

/// The pipe directory, locked for this process.
///
/// The lock is a POSIX record lock: it belongs to the process, is not inherited through fork (take it after
/// [`daemonize`](super::daemonize)) and ends with the process, however that ends.
/// Dropping the value removes the files that were made through it.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    folder: Arc<Folder>,
    made: Vec<Made>,
    remarks: Vec<String>,
    /// Closing any descriptor of the lock file gives up the lock, so this is the only one.
    _lock: File,
    _uncleaned: Option<Uncleaned>,
}

impl RuntimeDir {
    /// Makes the directory if only its last part is missing (mode 0755 whatever the umask), sees to it that nobody else
    /// can replace what is in it, and takes the lock.
    ///
    /// # Errors
    /// See [`RuntimeDirError`].
    pub fn open(path: &Path) -> Result<Self, RuntimeDirError> {
        let length = path.join(CONTROL_PRIVILEGED).as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(RuntimeDirError::TooLong { path: path.join(CONTROL_PRIVILEGED), length });
        }
        if !proc::is_there() {
            return Err(RuntimeDirError::NoProc);
        }
        let mut remarks = Vec::new();
        let folder = open_folder(path, &mut remarks)?;
        let lock = lock::take(&folder, &mut remarks)?;
        let uncleaned = folder.keep_uncleaned();
        let uncleaned = uncleaned.map_err(|error| remarks.push(not_kept(path, &error))).ok();
        let mut directory = Self {
            path: path.to_owned(),
            folder: Arc::new(folder),
            made: Vec::new(),
            remarks,
            _lock: lock,
            _uncleaned: uncleaned,
        };
        directory.remove_on_exit(CONTROL_LOCK)?;
        Ok(directory)
    }

    /// The directory's path, as given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory itself.
    #[must_use]
    pub fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// What was done about the directory that the operator should know, for the log. Each is given once.
    pub fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// Makes a listening SEQPACKET socket that appears under its name, with its mode, when it already listens.
    /// A socket that has the name is replaced: the lock proves that its daemon is gone. Something else goes aside.
    /// Non-blocking, close-on-exec, removed at the end.
    ///
    /// # Errors
    /// [`RuntimeDirError::InTheWay`] when something that has the name can't be moved, else [`RuntimeDirError::File`].
    pub fn bind_listener(&mut self, name: &str, mode: u32) -> Result<OwnedFd, RuntimeDirError> {
        self.clear_way(name, Kind::Socket)?;
        let mode = Mode::from_bits_truncate(mode);
        let listener = Backlog::new(BACKLOG)
            .map_err(io::Error::from)
            .and_then(|backlog| self.folder.listen(name, SockType::SeqPacket, mode, backlog))
            .map_err(|source| self.failed("listen on", name, source))?;
        self.remove_on_exit(name)?;
        Ok(listener)
    }

    /// Writes this process's pid, decimal and without a newline, as the vendor does. A file that has the name is
    /// replaced, something else goes aside. Removed at the end.
    ///
    /// # Errors
    /// As [`bind_listener`](Self::bind_listener).
    pub fn write_pid_file(&mut self) -> Result<(), RuntimeDirError> {
        self.clear_way(PID_FILE, Kind::File)?;
        let pid = std::process::id().to_string();
        let written = self.folder.write(PID_FILE, PID_FILE_MODE, pid.as_bytes());
        written.map_err(|source| self.failed("write", PID_FILE, source))?;
        self.remove_on_exit(PID_FILE)
    }

    /// Writes what programs with the preload library get that say nothing ([`program_defaults`]). Removed at the end.
    ///
    /// # Errors
    /// When it can't be written; then there is none.
    pub(crate) fn tell_programs(&mut self, content: Option<&str>) -> Result<(), RuntimeDirError> {
        let told = program_defaults::tell(&self.folder, content);
        let aside = told.map_err(|source| self.failed("write", DEFAULTS_NAME, source))?;
        self.remarks.extend(aside.map(|aside| moved(&self.folder, DEFAULTS_NAME, &aside)));
        if content.is_some() { self.remove_on_exit(DEFAULTS_NAME) } else { Ok(()) }
    }

    /// Moves what has a name and is of another kind out of the way, and says so.
    ///
    /// # Errors
    /// [`RuntimeDirError::InTheWay`].
    pub fn clear_way(&mut self, name: &str, kind: Kind) -> Result<(), RuntimeDirError> {
        let cleared = self.folder.clear_way(name, kind);
        let cleared = cleared.map_err(|source| RuntimeDirError::InTheWay { path: self.file(name), source })?;
        self.remarks.extend(cleared.map(|aside| moved(&self.folder, name, &aside)));
        Ok(())
    }

    /// Remembers that a file of ours exists in the directory; it is removed at the end unless another one has taken its
    /// name by then. Call it after making the file.
    ///
    /// # Errors
    /// [`RuntimeDirError::File`] when there is no such file.
    pub fn remove_on_exit(&mut self, name: &str) -> Result<(), RuntimeDirError> {
        let file = self.folder.look(name).map_err(|source| self.failed("find", name, source.into()))?;
        self.made.retain(|made| made.name != name);
        self.made.push(Made { name: name.to_owned(), file: file.into() });
        Ok(())
    }

    /// Removes what was made, in the order of making but the lock last, so that a successor never finds its own files
    /// removed. Idempotent.
    pub fn remove_files(&mut self) {
        let (lock, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.made).into_iter().partition(|made| made.name == CONTROL_LOCK);
        for made in others.into_iter().chain(lock) {
            self.folder.remove_same(&made.name, made.file);
        }
    }

    /// Leaves all files: another process has taken the sockets over.
    pub fn keep_files(&mut self) {
        self.made.clear();
    }

    fn failed(&self, action: &'static str, name: &str, source: io::Error) -> RuntimeDirError {
        RuntimeDirError::File { action, path: self.file(name), source }
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        self.remove_files();
    }
}

fn moved(folder: &Folder, name: &str, aside: &Path) -> String {
    format!("{} was in the way, it is {} now", folder.file(name).display(), aside.display())
}

fn not_kept(path: &Path, error: &io::Error) -> String {
    format!("{} can't be kept from systemd-tmpfiles, which removes what is old: {error}", path.display())
}

/// Opens the directory, and makes it if it is not there.
fn open_folder(path: &Path, remarks: &mut Vec<String>) -> Result<Folder, RuntimeDirError> {
    let failed = |source: io::Error| RuntimeDirError::Access { path: path.to_owned(), source };
    // A link that somebody else may have put there is told apart from what the vendor has words for.
    let Way { folder: parent, name, exposed, .. } = way::find(path).map_err(|source| match source.raw_os_error() {
        Some(_) => failed(source),
        None => RuntimeDirError::File { action: "use", path: path.to_owned(), source },
    })?;
    if let Some(exposed) = exposed {
        remarks.push(format!(
            "Other users can replace {} as a whole, since they can write to {}: clients may be led to another daemon",
            path.display(),
            exposed.display()
        ));
    }
    match umask::exactly(DIRECTORY_MODE, || mkdirat(&parent, name.as_os_str(), DIRECTORY_MODE)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = openat(&parent, name.as_os_str(), flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let found = fstat(&folder).map_err(|error| failed(error.into()))?;
    if !way::is_trusted(found.st_uid) {
        return Err(RuntimeDirError::Foreign { path: path.to_owned(), owner: found.st_uid });
    }
    if way::is_exposed(&found) {
        remarks.push(close(&folder, path, &found)?);
    }
    Folder::from_fd(folder, path).map_err(failed)
}

/// Takes the right to change names from everybody else.
fn close(folder: &OwnedFd, path: &Path, found: &FileStat) -> Result<String, RuntimeDirError> {
    let old = found.st_mode & 0o7777;
    let new = old & !way::OTHERS_WRITE;
    let changed = fchmod(folder, Mode::from_bits_truncate(new));
    changed.map_err(|_| RuntimeDirError::Unclosed { path: path.to_owned(), mode: old })?;
    let shown = path.display();
    Ok(format!("{shown} had mode {old:04o}, so that every user could replace the daemon's files; it is {new:04o} now"))
}

impl AsFd for RuntimeDir {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

#[cfg(test)]
mod tests;
