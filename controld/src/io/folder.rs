//! A directory by its descriptor: what is made in it can't be led elsewhere, however its path changes meanwhile.
//!
//! Names appear whole: with their mode, and a socket when it already listens. What has the name and is of the right
//! kind is replaced; what is of another kind goes aside into a directory of its own, since it may be somebody's.

pub(crate) mod cleaning;
pub(crate) mod way;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, mkfifoat, unlinkat};

use super::umask;
use crate::sys::passed;
use crate::sys::proc::path_of;

/// Names tried before there is no free one.
const TEMPORARY_NAMES: u32 = 100;
/// The directory of what went aside is nobody's business but its owner's.
const ASIDE_MODE: Mode = Mode::S_IRWXU;

/// Which file a name is of, as long as that file exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl From<FileStat> for Identity {
    fn from(file: FileStat) -> Self {
        Self { device: file.st_dev, inode: file.st_ino }
    }
}

/// What kind of file a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A Unix socket.
    Socket,
    /// A named pipe.
    Fifo,
    /// A regular file.
    File,
}

impl Kind {
    fn is(self, file: &FileStat) -> bool {
        let wanted = match self {
            Self::Socket => SFlag::S_IFSOCK,
            Self::Fifo => SFlag::S_IFIFO,
            Self::File => SFlag::S_IFREG,
        };
        SFlag::from_bits_truncate(file.st_mode) & SFlag::S_IFMT == wanted
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a directory by its path, whoever's it is.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Self::from_fd(openat(AT_FDCWD, path, flags, Mode::empty())?, path)
    }

    /// Takes an open directory and the path by which others find it.
    ///
    /// # Errors
    /// When the path is relative and there is no working directory.
    pub fn from_fd(fd: OwnedFd, path: &Path) -> io::Result<Self> {
        Ok(Self { fd, path: std::path::absolute(path)? })
    }

    /// The same directory once more.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// Its path, absolute: for others, and for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name in it: for others, and for messages.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What has a name, links not followed.
    ///
    /// # Errors
    /// `ENOENT` when nothing has.
    pub(crate) fn look(&self, name: impl AsRef<OsStr>) -> nix::Result<FileStat> {
        fstatat(&self.fd, name.as_ref(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Which file has a name now.
    #[must_use]
    pub fn identity(&self, name: &str) -> Option<Identity> {
        self.look(name).ok().map(Identity::from)
    }

    /// Whether a name is of a file of this kind that root or this user made.
    #[must_use]
    pub fn has(&self, name: &str, kind: Kind) -> bool {
        self.look(name).is_ok_and(|there| kind.is(&there) && way::is_trusted(there.st_uid))
    }

    /// The address of a socket in it, which fits however long the path is. Good while this value lives.
    ///
    /// # Errors
    /// When the name alone is too long.
    pub fn address(&self, name: &str) -> nix::Result<UnixAddr> {
        UnixAddr::new(format!("{}/{name}", path_of(&self.fd)).as_str())
    }

    /// Removes a name that is of no directory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(&self, name: &str) -> nix::Result<()> {
        unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir)
    }

    /// Removes a name if it still is of the same file.
    pub fn remove_same(&self, name: &str, file: Identity) {
        if self.identity(name) == Some(file) {
            // What cannot be removed stays; who makes the next one replaces it.
            let _ = self.remove(name);
        }
    }

    /// Makes room for a file of a kind: what is of another kind goes aside. Gives its new path.
    ///
    /// # Errors
    /// When somebody else's file can't be moved, as in a sticky directory of another user.
    pub fn clear_way(&self, name: &str, kind: Kind) -> io::Result<Option<PathBuf>> {
        match self.look(name) {
            Ok(there) if kind.is(&there) => Ok(None),
            Ok(_) => self.move_aside(name).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves a name into a new directory beside it.
    ///
    /// # Errors
    /// As [`clear_way`](Self::clear_way).
    pub fn move_aside(&self, name: &str) -> io::Result<PathBuf> {
        for attempt in 0..TEMPORARY_NAMES {
            let aside = format!(".aside-{}-{attempt}", std::process::id());
            match mkdirat(&self.fd, aside.as_str(), ASIDE_MODE) {
                Ok(()) => {}
                Err(Errno::EEXIST) => continue,
                Err(error) => return Err(error.into()),
            }
            // A new directory is empty, so nothing is overwritten.
            let to = Path::new(&aside).join(name);
            return match renameat(&self.fd, name, &self.fd, to.as_path()) {
                Ok(()) => Ok(self.path.join(to)),
                Err(error) => {
                    let _ = unlinkat(&self.fd, aside.as_str(), UnlinkatFlags::RemoveDir);
                    Err(error.into())
                }
            };
        }
        Err(Errno::EEXIST.into())
    }

    /// Makes a socket that appears under its name, with its mode, when it already listens. Non-blocking, close-on-exec.
    /// Who connects can send no descriptors, where the kernel has that ([`passed`]).
    ///
    /// # Errors
    /// What the kernel says; a directory in the way as `EISDIR`.
    pub fn listen(&self, name: &str, kind: SockType, mode: Mode, backlog: Backlog) -> io::Result<OwnedFd> {
        self.under_temporary_name(name, |temporary| self.bound(temporary, kind, mode, backlog))
    }

    /// The same with a given name that the socket is bound to first, which its connections have as their own name.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub(crate) fn listen_as(&self, name: &str, bound: &str, mode: Mode, backlog: Backlog) -> io::Result<OwnedFd> {
        // Of a daemon that was killed just here.
        let _ = self.remove(bound);
        let made = self.bound(bound, SockType::SeqPacket, mode, backlog);
        let named = made.and_then(|listener| {
            renameat(&self.fd, bound, &self.fd, name)?;
            Ok(listener)
        });
        named.inspect_err(|_| {
            let _ = self.remove(bound);
        })
    }

    fn bound(&self, name: &str, kind: SockType, mode: Mode, backlog: Backlog) -> io::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, kind, flags, None)?;
        // Who wants descriptors of his peers says so. Earlier kernels know no such choice.
        let _ = passed::allow(&listener, false);
        // The name gets the mode that the socket has when it is bound.
        fchmod(&listener, mode)?;
        let address = self.address(name)?;
        umask::exactly(mode, || bind(listener.as_raw_fd(), &address))?;
        listen(&listener, backlog)?;
        Ok(listener)
    }

    /// Makes a named pipe and opens it for reading and writing, non-blocking and close-on-exec.
    ///
    /// # Errors
    /// What the kernel says; a directory in the way as `EISDIR`.
    pub fn fifo(&self, name: &str, mode: Mode) -> io::Result<File> {
        self.under_temporary_name(name, |temporary| {
            umask::exactly(mode, || mkfifoat(&self.fd, temporary, mode))?;
            let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let file = openat(&self.fd, temporary, flags, Mode::empty())?;
            let made = fstat(&file)?;
            if !Kind::Fifo.is(&made) || !way::is_trusted(made.st_uid) {
                return Err(Errno::EEXIST.into());
            }
            Ok(file.into())
        })
    }

    /// Makes a file with this content.
    ///
    /// # Errors
    /// What the kernel says; a directory in the way as `EISDIR`.
    pub fn write(&self, name: &str, mode: Mode, content: &[u8]) -> io::Result<()> {
        self.under_temporary_name(name, |temporary| self.create(temporary, mode)?.write_all(content))
    }

    /// Makes a file that was not there, with exactly its mode, and opens it for writing.
    ///
    /// # Errors
    /// `EEXIST` when anything has the name.
    pub(crate) fn create(&self, name: impl AsRef<OsStr>, mode: Mode) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.fd, name.as_ref(), flags, mode)?;
        fchmod(&file, mode)?;
        Ok(file.into())
    }

    /// Opens what has a name, with these flags; a link has `ELOOP`.
    pub(crate) fn open_file(&self, name: impl AsRef<OsStr>, flags: OFlag, mode: Mode) -> nix::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        openat(&self.fd, name.as_ref(), flags, mode).map(File::from)
    }

    /// Runs `make` with a free name, and renames what it made to `target`.
    pub(crate) fn under_temporary_name<T>(
        &self,
        target: impl AsRef<OsStr>,
        make: impl Fn(&str) -> io::Result<T>,
    ) -> io::Result<T> {
        for attempt in 0..TEMPORARY_NAMES {
            let temporary = format!(".new-{}-{attempt}", std::process::id());
            let made = match make(&temporary) {
                Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AlreadyExists) => {
                    continue;
                }
                made => made,
            };
            let named = made.and_then(|made| {
                renameat(&self.fd, temporary.as_str(), &self.fd, target.as_ref())?;
                Ok(made)
            });
            return named.inspect_err(|_| {
                let _ = self.remove(&temporary);
            });
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
