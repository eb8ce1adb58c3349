//! Finds a running holder or starts one.
//!
//! A holder that is started here is spoken to over a pair of sockets that nobody else has an end of. Its listening
//! socket is for successors, who find it by name; so they look at who listens ([`trust`](super::trust)) before anything
//! is sent or taken.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, connect, socket, socketpair};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use remps_proto::holder::SOCKET_NAME;

use super::place::Place;
use super::process::ATTACH_BACKLOG;
use super::trust::Peer;
use super::{ARGUMENT, HolderError, PROGRAM};
use crate::io::folder::Kind;
use crate::io::foreign_files::without_foreign_files;
use crate::io::runtime_dir::RuntimeDirError;
use crate::sys::proc::{OWN_PROGRAM, explained};

/// Only the daemon's user and root may attach.
const SOCKET_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// A connection to a holder that has not answered yet.
#[derive(Debug)]
pub(super) struct Contact {
    pub(super) socket: OwnedFd,
    pub(super) pid: Pid,
    /// The process, when it was started here.
    pub(super) child: Option<Child>,
}

/// Connects to the holder of a pipe directory; where there is none, or what listens is none, starts one.
pub(super) fn find_or_start(place: &Place) -> Result<Contact, HolderError> {
    match find(place) {
        Ok(Some(contact)) => Ok(contact),
        Ok(None) => start(place).map_err(HolderError::system("start the holder")),
        Err(error) => Err(HolderError::System { what: "connect to the holder", error }),
    }
}

fn find(place: &Place) -> io::Result<Option<Contact>> {
    // Another user's, or no socket at all, is nothing that a daemon would wait for.
    if !place.folder().has(SOCKET_NAME, Kind::Socket) {
        return Ok(None);
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    match connect(socket.as_raw_fd(), &place.address()?) {
        Ok(()) => {}
        // Nobody listens: never was, or ended without a chance to unlink. Or it is no socket of this type.
        Err(Errno::ENOENT | Errno::ECONNREFUSED | Errno::EPROTOTYPE) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let holder = Peer::of(&socket).filter(|peer| peer.is_holder_of(place.folder()) && peer.lives());
    Ok(holder.map(|peer| Contact { socket, pid: peer.pid(), child: None }))
}

fn start(place: &Place) -> io::Result<Contact> {
    let folder = place.folder();
    folder.clear_way(SOCKET_NAME, Kind::Socket)?;
    let listener = folder.listen(SOCKET_NAME, SockType::SeqPacket, SOCKET_MODE, Backlog::new(ATTACH_BACKLOG)?);
    let listener = listener.map_err(|source| {
        let path = folder.file(SOCKET_NAME);
        io::Error::other(RuntimeDirError::File { action: "listen on", path, source })
    })?;
    launch(place, listener).inspect_err(|_| {
        // Without a process behind it the file would only mislead.
        let _ = folder.remove(SOCKET_NAME);
    })
}

/// Starts the process with the listening socket as standard input, its end of the pair as standard output, and the pipe
/// directory as standard error, which is its to keep from being cleaned.
fn launch(place: &Place, listener: OwnedFd) -> io::Result<Contact> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (socket, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    let directory = place.folder().open_again().map_or_else(|_| Stdio::null(), Stdio::from);
    let mut command = Command::new(OWN_PROGRAM);
    command
        .arg0(PROGRAM)
        .arg(ARGUMENT)
        .arg(place.folder().path())
        .env_clear()
        .stdin(Stdio::from(listener))
        .stdout(Stdio::from(theirs))
        .stderr(directory);
    let child = without_foreign_files(|| command.spawn()).map_err(explained)?;
    // Our copies of what it was given: the end of its connection is seen only when nobody else has it.
    drop(command);
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    Ok(Contact { socket, pid, child: Some(child) })
}
