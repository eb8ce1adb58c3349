//! Keeps a directory from those who clean away what is old.
//!
//! `systemd-tmpfiles` removes what has not changed for ten days below `/tmp`, file by file, and so the pid file, the lock
//! file and the FIFO of a daemon that is at rest. It leaves a directory alone, with all in it, that somebody has locked
//! (`flock`): tmpfiles.d(5), *Age*. A shared lock is enough, so that several processes can have it.

use super::Folder;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// A directory that is not cleaned while this value lives.
#[derive(Debug)]
pub(crate) struct Uncleaned {
    _locked: Flock<File>,
}

impl Folder {
    /// The directory opened anew, for a lock of its own.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn open_again(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(openat(&self.fd, ".", flags, Mode::empty())?)
    }

    /// Keeps it from being cleaned.
    ///
    /// # Errors
    /// What the kernel says: `EWOULDBLOCK` where somebody has it for himself, who may be cleaning it just now.
    pub(crate) fn keep_uncleaned(&self) -> io::Result<Uncleaned> {
        Uncleaned::lock(self.open_again()?)
    }
}

impl Uncleaned {
    /// Locks a directory that was opened for this and nothing else.
    ///
    /// # Errors
    /// As [`Folder::keep_uncleaned`].
    pub(crate) fn lock(directory: OwnedFd) -> io::Result<Self> {
        match Flock::lock(File::from(directory), FlockArg::LockSharedNonblock) {
            Ok(locked) => Ok(Self { _locked: locked }),
            Err((_, error)) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cleans_finds_it_locked_until_the_last_one_lets_go() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let cleans =
            || Flock::lock(File::open(place.path()).unwrap(), FlockArg::LockExclusiveNonblock).map(drop).is_ok();
        assert!(cleans());
        let first = folder.keep_uncleaned().unwrap();
        let second = folder.keep_uncleaned().unwrap();
        assert!(!cleans());
        drop(first);
        assert!(!cleans());
        drop(second);
        assert!(cleans());
    }
}
