//! Finds a running holder or starts one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, bind, connect, getsockopt, listen, socket, sockopt,
};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Pid, geteuid};

use super::place::Place;
use super::process::ATTACH_BACKLOG;
use super::{ARGUMENT, HolderError, PROGRAM};

/// The program that is started: this one, even when its file has been replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// A connection to a holder that has not answered yet.
#[derive(Debug)]
pub(super) struct Contact {
    pub(super) socket: OwnedFd,
    pub(super) pid: Pid,
    /// The process, when it was started here.
    pub(super) child: Option<Child>,
}

/// Connects to the holder of a pipe directory; where there is none, or only somebody else's, starts one.
pub(super) fn find_or_start(place: &Place) -> Result<Contact, HolderError> {
    match find(place) {
        Ok(Some(contact)) => Ok(contact),
        Ok(None) => start(place).map_err(HolderError::system("start the holder")),
        Err(error) => Err(HolderError::System { what: "connect to the holder", error }),
    }
}

fn new_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

fn find(place: &Place) -> io::Result<Option<Contact>> {
    let socket = new_socket()?;
    match connect(socket.as_raw_fd(), &place.address()?.address) {
        Ok(()) => {}
        // Nobody listens: never was, or ended without a chance to unlink. Or it is no socket of this type at all.
        Err(Errno::ENOENT | Errno::ECONNREFUSED | Errno::EPROTOTYPE) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let peer = getsockopt(&socket, sockopt::PeerCredentials)?;
    // Where others may write to the folder, anybody could wait there for a daemon's descriptors.
    let trusted = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
    Ok(trusted.then(|| Contact { socket, pid: Pid::from_raw(peer.pid()), child: None }))
}

fn start(place: &Place) -> io::Result<Contact> {
    let listener = new_socket()?;
    // Before it is bound, so that the file is never there with another mode.
    fchmod(&listener, Mode::S_IRUSR | Mode::S_IWUSR)?;
    match std::fs::remove_file(place.path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let address = place.address()?;
    bind(listener.as_raw_fd(), &address.address)?;
    launch(place, listener).inspect_err(|_| {
        // Without a process behind it the file would only mislead.
        let _ = std::fs::remove_file(place.path());
    })
}

/// Connects first and starts the process then: there is no moment at which a connection could be refused.
fn launch(place: &Place, listener: OwnedFd) -> io::Result<Contact> {
    listen(&listener, Backlog::new(ATTACH_BACKLOG)?)?;
    let socket = new_socket()?;
    connect(socket.as_fd().as_raw_fd(), &place.address()?.address)?;
    let child = Command::new(SELF)
        .arg0(PROGRAM)
        .arg(ARGUMENT)
        .arg(place.pipe_dir())
        .env_clear()
        .stdin(Stdio::from(listener))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    Ok(Contact { socket, pid, child: Some(child) })
}
