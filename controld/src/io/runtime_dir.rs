//! The pipe directory: its lock, its sockets, its pid file, and their removal.
//!
//! Users wait for these files and mount the directory into containers, so: a socket appears under its name only when it
//! listens; what this daemon made is removed on every orderly exit and nothing else ever is; the directory itself is
//! never removed or made anew, because running containers hold a mount of it. Names, modes and the two messages of
//! [`RuntimeDirError`] that users see are the vendor's; the lock file's mode is stricter (the vendor's 0666 lets any
//! user hold the lock and so block a start), and so is the pid file's.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};

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

const DIRECTORY_MODE: u32 = 0o777;
const LOCK_MODE: u32 = 0o600;
const PID_FILE_MODE: u32 = 0o644;
/// Connections that wait for `accept`, as the vendor has it.
const BACKLOG: i32 = 128;
/// Longest path of a Unix socket: `sun_path` without its final NUL.
const MAX_SOCKET_PATH: usize = 107;
/// Names tried for a socket before it is renamed into place.
const TEMPORARY_NAMES: u32 = 100;

/// Why the pipe directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// The directory does not exist and cannot be made, or cannot be entered. The text is the vendor's.
    #[error("Cannot access CUDA_MPS_PIPE_DIRECTORY={}", path.display())]
    Access {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A socket in the directory would have too long a path.
    #[error("the path of {} has {length} bytes, over the limit of {MAX_SOCKET_PATH} of a socket", path.display())]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// Another daemon holds the lock. The text is the vendor's.
    #[error("An instance of this daemon is already running")]
    AlreadyRunning,
    /// A file of ours cannot be made.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something else has the name of a file of ours.
    #[error("{} is in the way: it is no {expected}", path.display())]
    InTheWay {
        /// The name.
        path: PathBuf,
        /// What was to be there.
        expected: &'static str,
    },
}

/// A file made here: removed at the end if it still is the one made.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The pipe directory, locked for this process.
///
/// The lock is a POSIX record lock: it belongs to the process, is not inherited through fork (take it after
/// [`daemonize`](super::daemonize)) and ends with the process, however that ends.
/// Dropping the value removes the files that were made through it.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    made: Vec<Made>,
    /// Closing any descriptor of the lock file gives up the lock, so this is the only one.
    _lock: File,
}

impl RuntimeDir {
    /// Makes the directory if only its last part is missing (mode 0777 whatever the umask), and takes the lock.
    ///
    /// # Errors
    /// See [`RuntimeDirError`].
    pub fn open(path: &Path) -> Result<Self, RuntimeDirError> {
        let length = path.join(CONTROL_PRIVILEGED).as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(RuntimeDirError::TooLong { path: path.join(CONTROL_PRIVILEGED), length });
        }
        create_directory(path).map_err(|source| RuntimeDirError::Access { path: path.to_owned(), source })?;
        let lock = take_lock(&path.join(CONTROL_LOCK))?;
        let mut directory = Self { path: path.to_owned(), made: Vec::new(), _lock: lock };
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

    /// Makes a listening SEQPACKET socket that appears under its name, with its mode, when it already listens.
    /// A socket that has the name is replaced: the lock proves that its daemon is gone. Non-blocking, close-on-exec,
    /// removed at the end.
    ///
    /// # Errors
    /// [`RuntimeDirError::InTheWay`] when something that is no socket has the name, else
    /// [`RuntimeDirError::File`].
    pub fn bind_listener(&mut self, name: &str, mode: u32) -> Result<OwnedFd, RuntimeDirError> {
        let path = self.file(name);
        if fs::symlink_metadata(&path).is_ok_and(|there| !there.file_type().is_socket()) {
            return Err(RuntimeDirError::InTheWay { path, expected: "socket" });
        }
        let bound = bind_and_rename(&self.path, &path, mode);
        let listener = bound.map_err(|source| RuntimeDirError::File { action: "listen on", path, source })?;
        self.remove_on_exit(name)?;
        Ok(listener)
    }

    /// Writes this process's pid, decimal and without a newline, as the vendor does. A file that has the name is
    /// replaced. Removed at the end.
    ///
    /// # Errors
    /// [`RuntimeDirError::InTheWay`] when something that is no file has the name, else [`RuntimeDirError::File`].
    pub fn write_pid_file(&mut self) -> Result<(), RuntimeDirError> {
        let path = self.file(PID_FILE);
        if fs::symlink_metadata(&path).is_ok_and(|there| there.is_dir()) {
            return Err(RuntimeDirError::InTheWay { path, expected: "file" });
        }
        write_and_rename(&self.path, &path).map_err(|source| RuntimeDirError::File {
            action: "write",
            path,
            source,
        })?;
        self.remove_on_exit(PID_FILE)
    }

    /// Remembers that a file of ours exists in the directory; it is removed at the end unless another one has taken its
    /// name by then. Call it after making the file.
    ///
    /// # Errors
    /// [`RuntimeDirError::File`] when there is no such file.
    pub fn remove_on_exit(&mut self, name: &str) -> Result<(), RuntimeDirError> {
        let path = self.file(name);
        match fs::symlink_metadata(&path) {
            Ok(there) => {
                self.made.retain(|made| made.path != path);
                self.made.push(Made { path, device: there.dev(), inode: there.ino() });
                Ok(())
            }
            Err(source) => Err(RuntimeDirError::File { action: "find", path, source }),
        }
    }

    /// Removes what was made, in the order of making but the lock last, so that a successor never finds its own files
    /// removed. Idempotent.
    pub fn remove_files(&mut self) {
        let (lock, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.made).into_iter().partition(|made| made.path.ends_with(CONTROL_LOCK));
        for made in others.into_iter().chain(lock) {
            let same = |there: fs::Metadata| (there.dev(), there.ino()) == (made.device, made.inode);
            if fs::symlink_metadata(&made.path).is_ok_and(same) {
                // A file that cannot be removed stays; the next daemon replaces it.
                let _ = fs::remove_file(&made.path);
            }
        }
    }

    /// Leaves all files: another process has taken the sockets over.
    pub fn keep_files(&mut self) {
        self.made.clear();
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        self.remove_files();
    }
}

fn create_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        // The umask took bits away.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(DIRECTORY_MODE)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::read_dir(path).map(drop),
        Err(error) => Err(error),
    }
}

fn take_lock(path: &Path) -> Result<File, RuntimeDirError> {
    let failed = |action| move |source| RuntimeDirError::File { action, path: path.to_owned(), source };
    // A file that was removed by an ending daemon between our open and our lock would be locked by us alone and seen by
    // nobody; such a one is opened again. The ending daemon is gone by then, so few turns are needed.
    for _ in 0..TEMPORARY_NAMES {
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(LOCK_MODE)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(failed("open"))?;
        let opened = lock.metadata().map_err(failed("examine"))?;
        if !opened.is_file() {
            return Err(RuntimeDirError::InTheWay { path: path.to_owned(), expected: "file" });
        }
        let request = libc::flock {
            l_type: i16::try_from(libc::F_WRLCK).expect("a lock type is a small number"),
            l_whence: i16::try_from(libc::SEEK_SET).expect("a seek origin is a small number"),
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        match fcntl(&lock, FcntlArg::F_SETLK(&request)) {
            Ok(_) => {}
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => return Err(RuntimeDirError::AlreadyRunning),
            Err(error) => return Err(failed("lock")(error.into())),
        }
        let there = fs::symlink_metadata(path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (opened.dev(), opened.ino())) {
            // Left by the vendor's daemon it is 0666. Not ours to change when it is another user's.
            let _ = lock.set_permissions(fs::Permissions::from_mode(LOCK_MODE));
            return Ok(lock);
        }
    }
    Err(RuntimeDirError::AlreadyRunning)
}

/// Runs `make` with a free name in `directory`, and renames what it made to `target`.
fn under_temporary_name<T>(directory: &Path, target: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let pid = std::process::id();
    for attempt in 0..TEMPORARY_NAMES {
        // Never longer than `control_privileged`, whose length was checked.
        let temporary = directory.join(format!(".new-{pid}-{attempt}"));
        match make(&temporary) {
            Ok(made) => {
                return match fs::rename(&temporary, target) {
                    Ok(()) => Ok(made),
                    Err(error) => {
                        let _ = fs::remove_file(&temporary);
                        Err(error)
                    }
                };
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AlreadyExists) => {}
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                return Err(error);
            }
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

fn bind_and_rename(directory: &Path, target: &Path, mode: u32) -> io::Result<OwnedFd> {
    under_temporary_name(directory, target, |temporary| {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(listener.as_raw_fd(), &UnixAddr::new(temporary)?)?;
        fs::set_permissions(temporary, fs::Permissions::from_mode(mode))?;
        listen(&listener, Backlog::new(BACKLOG)?)?;
        Ok(listener)
    })
}

fn write_and_rename(directory: &Path, target: &Path) -> io::Result<()> {
    use std::io::Write as _;
    under_temporary_name(directory, target, |temporary| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(PID_FILE_MODE).open(temporary)?;
        file.set_permissions(fs::Permissions::from_mode(PID_FILE_MODE))?;
        write!(file, "{}", std::process::id())
    })
}

#[cfg(test)]
mod tests;
