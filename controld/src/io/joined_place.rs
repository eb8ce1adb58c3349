//! The pipe directory of a thin daemon, as its descriptor: the daemon of the node makes the socket of its clients there.
//!
//! It need not have a path here, since it is of another mount namespace perhaps, and may be of a file system that answers
//! when it likes: every call here is for a thread that may hang. It has to be root's or this user's, and nobody else may
//! replace what is in it, as in the daemon's own ([`runtime_dir`](super::runtime_dir)).

use super::folder::way::{is_exposed, is_trusted};
use super::folder::{Folder, Identity, Kind};
use super::packets::peer;
use super::program_defaults;
use super::runtime_dir::{CONTROL, entrances};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, connect, getpeername, getsockopt, socket, sockopt,
};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Connections that wait to be accepted, as on the daemon's own sockets.
const BACKLOG: i32 = 128;
/// Clients of every user connect there.
const MODE: Mode = Mode::from_bits_truncate(0o666);

/// Why a directory is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The kernel said something.
    #[error("its pipe directory can't be used: {0}")]
    Io(#[from] io::Error),
    /// It is none.
    #[error("what it has sent is no directory")]
    NoDirectory,
    /// It is somebody else's.
    #[error("its pipe directory belongs to user {0}, who could put himself in the daemon's place")]
    Foreign(u32),
    /// Others may replace what is in it.
    #[error("other users can replace files in its pipe directory (mode {0:04o}): chmod go-w it")]
    Exposed(u32),
}

/// A thin daemon's pipe directory.
#[derive(Debug)]
pub(crate) struct JoinedPlace {
    folder: Folder,
    identity: Identity,
}

impl JoinedPlace {
    /// Looks at what a thin daemon has sent as its pipe directory.
    ///
    /// # Errors
    /// See [`PlaceError`].
    pub(crate) fn new(directory: OwnedFd) -> Result<Self, PlaceError> {
        let found = fstat(&directory).map_err(io::Error::from)?;
        if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFDIR {
            return Err(PlaceError::NoDirectory);
        }
        if !is_trusted(found.st_uid) {
            return Err(PlaceError::Foreign(found.st_uid));
        }
        if is_exposed(&found) {
            return Err(PlaceError::Exposed(found.st_mode & 0o7777));
        }
        Ok(Self { folder: Folder::from_fd(directory, Path::new("/"))?, identity: found.into() })
    }

    /// Which directory it is.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Listens for clients there, as the entrance of this number. `None` when a socket of that number does so already and
    /// is to stay, as whoever connects just now is on it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn listen(&self, number: u64, has_one: bool) -> io::Result<Option<OwnedFd>> {
        if has_one && self.is_heard(number) {
            return Ok(None);
        }
        self.folder.clear_way(CONTROL, Kind::Socket)?;
        let backlog = Backlog::new(BACKLOG)?;
        self.folder.listen_as(CONTROL, &entrances::bound_name(number), MODE, backlog).map(Some)
    }

    /// Writes what programs get that have the preload library and say nothing, for those who find the daemon there.
    ///
    /// # Errors
    /// What the kernel says; then there is no such file.
    pub(crate) fn tell_programs(&self, content: Option<&str>) -> io::Result<()> {
        program_defaults::tell(&self.folder, content).map(drop)
    }

    /// Whether the socket there is the entrance of this number, and root or this user listens on it.
    fn is_heard(&self, number: u64) -> bool {
        let connected = || -> nix::Result<bool> {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let probe = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
            connect(probe.as_raw_fd(), &self.folder.address(CONTROL)?)?;
            let name = getpeername::<UnixAddr>(probe.as_raw_fd())?;
            let listener = peer(&getsockopt(&probe, sockopt::PeerCredentials)?);
            Ok(name.path().and_then(entrances::number_of) == Some(number) && is_trusted(listener.uid))
        };
        connected().unwrap_or(false)
    }

    /// Takes the socket away, and what was said to programs.
    pub(crate) fn close(&self) {
        program_defaults::take_away(&self.folder);
        if self.folder.has(CONTROL, Kind::Socket) {
            // What can't be removed is a socket that nobody hears.
            let _ = self.folder.remove(CONTROL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn place(path: &Path) -> Result<JoinedPlace, PlaceError> {
        JoinedPlace::new(File::open(path).expect("it is there").into())
    }

    #[test]
    fn a_socket_that_is_heard_stays_and_every_other_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let there = place(folder.path()).expect("it is ours");
        let first = there.listen(7, true).expect("listens");
        assert!(first.is_some(), "there was none");
        assert!(there.listen(7, true).expect("listens").is_none(), "it is heard");
        assert!(there.listen(8, true).expect("listens").is_some(), "it was of another number");
        assert!(there.listen(8, true).expect("listens").is_some(), "nobody hears it any more");
        there.close();
        assert!(!folder.path().join(CONTROL).exists());
    }

    #[test]
    fn only_a_directory_of_ours_that_is_closed_to_others_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("our folder");
        assert!(matches!(place(&file), Err(PlaceError::NoDirectory)));
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("our folder");
        assert!(matches!(place(folder.path()), Err(PlaceError::Exposed(0o777))));
    }
}
