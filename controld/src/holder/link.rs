//! The daemon's side: attaching to the holder, telling it what to hold, and hearing of new connections.

mod requests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use remps_proto::holder::{self as proto, MAX_MESSAGE_BYTES, ToHolder, VERSION};
use remps_proto::holder::{AttachDone, Failure, Kind, Refusal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

use super::place::Place;
use super::start::{Contact, find_or_start};
use super::{HolderError, REFUSED_KEYS};
use crate::io::folder::Folder;
use crate::io::packets::receive;
use crate::patience::patient;
use crate::sys::polled::register;

/// How long a holder that is there may take to hand over what it has.
const ATTACH_WAIT: Duration = Duration::from_secs(2);
/// How long the start of one may take, which is the start of a program on a machine that may be as busy as it likes:
/// without a holder there is no daemon. It takes milliseconds.
const START_WAIT: Duration = Duration::from_secs(15);

/// Something that a former daemon left, with its descriptors.
#[derive(Debug)]
pub struct Held {
    /// Its key.
    pub key: u64,
    /// What it is.
    pub kind: Kind,
    /// The state as last given; for [`Kind::LOG_BACKLOG`] a piece of the log.
    pub state: Vec<u8>,
    /// Whether a connection came in through `control_privileged`.
    pub privileged: bool,
    /// With the first piece of a log backlog: bytes of log that were lost before it.
    pub dropped_bytes: u64,
    /// Duplicates of the descriptors, in the order in which they were given.
    pub fds: Vec<OwnedFd>,
}

/// What the holder tells an attached daemon.
#[derive(Debug)]
pub enum FromHolder {
    /// A new connection. `SO_PASSCRED` is set and the greeting is sent; it is non-blocking.
    Accepted {
        /// The key under which the holder keeps a duplicate, as [`Kind::CONNECTION`] with an empty state.
        key: u64,
        /// Whether it came in through `control_privileged`.
        privileged: bool,
        /// The connection.
        fd: OwnedFd,
    },
    /// A request was not done; what was held under the key before is unchanged.
    Failed {
        /// The key of the request, 0 where it could not be read.
        key: u64,
        /// Why.
        reason: Failure,
    },
    /// Everything that the holder was told before a [`barrier`](HolderLink::barrier) is done, or its failure told.
    Passed {
        /// The barrier's number.
        number: u64,
    },
}

/// The connection to the holder. Dropping it leaves the holder and all it holds to a successor.
#[derive(Debug)]
pub struct HolderLink {
    socket: AsyncFd<OwnedFd>,
    pid: Pid,
    child: Option<Child>,
    done: AttachDone,
    buffer: Box<[u8]>,
}

impl HolderLink {
    /// Attaches to the holder of a pipe directory, starting one where none runs, and takes over what it holds.
    ///
    /// Must run within a tokio runtime with I/O and time enabled. The program that is started is this one, with
    /// [`ARGUMENT`](super::ARGUMENT) and the directory: its `main` must call [`process::run`](super::process::run).
    ///
    /// # Errors
    /// [`HolderError::Busy`] while another daemon is attached, [`HolderError::Timeout`] after 2 s, and whatever stood
    /// in the way of starting one.
    pub async fn attach(pipe_dir: &Path) -> Result<(Self, Vec<Held>), HolderError> {
        let folder = Folder::open(pipe_dir).map_err(HolderError::system("find the pipe directory"))?;
        Self::attach_in(&folder).await
    }

    /// The same for a pipe directory that is open already.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub async fn attach_in(folder: &Folder) -> Result<(Self, Vec<Held>), HolderError> {
        let place = Place::new(folder).map_err(HolderError::system("keep the pipe directory open"))?;
        let begin = Instant::now();
        loop {
            let mut link = Self::new(find_or_start(&place)?)?;
            let deadline = begin + patient(if link.is_child() { START_WAIT } else { ATTACH_WAIT });
            match timeout_at(deadline, link.take_over()).await {
                Ok(Ok(held)) => return Ok((link, held)),
                // It was about to end when we connected; the next is found or started.
                Ok(Err(HolderError::Lost)) if Instant::now() < deadline => link.reap(),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(HolderError::Timeout),
            }
        }
    }

    fn new(contact: Contact) -> Result<Self, HolderError> {
        let Contact { socket, pid, child } = contact;
        let socket = register(socket, Interest::READABLE | Interest::WRITABLE)
            .map_err(HolderError::system("watch the holder"))?;
        let done = AttachDone { version: VERSION, pid: 0, accept_pauses: 0, malformed: 0, abilities: 0 };
        Ok(Self { socket, pid, child, done, buffer: vec![0; MAX_MESSAGE_BYTES].into_boxed_slice() })
    }

    async fn take_over(&mut self) -> Result<Vec<Held>, HolderError> {
        let mut all = Vec::new();
        loop {
            match self.receive().await? {
                (proto::FromHolder::Held(held), fds) => all.push(Held {
                    key: held.key,
                    kind: held.kind,
                    state: held.state,
                    privileged: held.listener == Kind::LISTENER_PRIVILEGED,
                    dropped_bytes: held.dropped_bytes,
                    fds,
                }),
                (proto::FromHolder::AttachDone(done), _) if done.version > VERSION => {
                    return Err(HolderError::Version(done.version));
                }
                (proto::FromHolder::AttachDone(done), _) => {
                    self.done = done;
                    return Ok(all);
                }
                (proto::FromHolder::Refused(Refusal::BUSY), _) => return Err(HolderError::Busy),
                (proto::FromHolder::Refused(_), _) => return Err(HolderError::NotPermitted),
                (
                    proto::FromHolder::Accepted { .. }
                    | proto::FromHolder::Failed { .. }
                    | proto::FromHolder::Passed { .. },
                    _,
                ) => {}
            }
        }
    }

    /// One message of a kind that this version knows. Cancel-safe.
    async fn receive(&mut self) -> Result<(proto::FromHolder, Vec<OwnedFd>), HolderError> {
        loop {
            let mut ready = self.socket.readable().await.map_err(HolderError::system("wait for the holder"))?;
            let read = ready.try_io(|socket| Ok(receive(socket.get_ref().as_fd(), &mut self.buffer)?));
            let got = match read {
                Ok(Ok(got)) => got,
                // The holder ended without having read everything: told once, before what it had sent.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::ECONNRESET as i32) => continue,
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(Err(error)) => return Err(HolderError::System { what: "read from the holder", error }),
                Err(_would_block) => continue,
            };
            if got.bytes == 0 && got.fds.is_empty() {
                return Err(HolderError::Lost);
            }
            match proto::FromHolder::decode(&self.buffer[..got.bytes]) {
                Ok(message) => return Ok((message, got.fds)),
                Err(proto::DecodeError::Unknown) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next news. Cancel-safe: nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`HolderError::Lost`] when the holder is gone. Attach again and hold everything again.
    pub async fn next(&mut self) -> Result<FromHolder, HolderError> {
        loop {
            match self.receive().await? {
                (proto::FromHolder::Accepted { key, listener }, mut fds) => {
                    if let Some(fd) = fds.pop() {
                        let privileged = listener == Kind::LISTENER_PRIVILEGED;
                        return Ok(FromHolder::Accepted { key, privileged, fd });
                    }
                    // Too many descriptors are open here. Nobody will ever answer, so the peer is let go.
                    self.release(key)?;
                    return Ok(FromHolder::Failed { key, reason: Failure::DESCRIPTORS });
                }
                (proto::FromHolder::Failed { key, .. }, _) if REFUSED_KEYS.contains(&key) => {
                    return Ok(FromHolder::Passed { number: key - REFUSED_KEYS.start });
                }
                (proto::FromHolder::Failed { key, reason }, _) => return Ok(FromHolder::Failed { key, reason }),
                (proto::FromHolder::Passed { number }, _) => return Ok(FromHolder::Passed { number }),
                (proto::FromHolder::Held(_) | proto::FromHolder::AttachDone(_) | proto::FromHolder::Refused(_), _) => {}
            }
        }
    }

    /// The holder's process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the holder is a child of this process, which then has to reap it when it ends: by its pid, or with
    /// [`reap`](Self::reap).
    #[must_use]
    pub fn is_child(&self) -> bool {
        self.child.is_some()
    }

    /// What the holder said at the end of attaching: its version and what went wrong since its start.
    #[must_use]
    pub fn attach_done(&self) -> AttachDone {
        self.done
    }

    /// Takes the exit status of a lost holder that was our child. It is at its end when its connection has closed, so
    /// this waits for microseconds; for anybody else's child there is nothing to do.
    pub fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Reaped already by whoever reaps everything: that is all that was wanted.
            let _ = child.wait();
        }
    }

    /// Asks the holder to close everything and end, and waits until it is gone; kills it after the deadline.
    ///
    /// # Errors
    /// [`HolderError::System`] when it could not be killed.
    pub async fn leave(mut self, deadline: Duration) -> Result<(), HolderError> {
        let asked = async {
            while let Err(HolderError::Full) = self.send(ToHolder::Leave, &[]) {
                self.writable().await?;
            }
            self.until_lost().await
        };
        if timeout_at(Instant::now() + deadline, asked).await.is_err() {
            // The connection is open, so the process lives and the pid is still its own.
            nix::sys::signal::kill(self.pid, Signal::SIGKILL).map_err(HolderError::system("kill the holder"))?;
            self.until_lost().await?;
        }
        self.reap();
        Ok(())
    }

    async fn writable(&self) -> Result<(), HolderError> {
        self.socket.writable().await.map_err(HolderError::system("wait for the holder"))?.clear_ready();
        Ok(())
    }

    async fn until_lost(&mut self) -> Result<(), HolderError> {
        loop {
            match self.receive().await {
                Ok(_) | Err(HolderError::Message(_)) => {}
                Err(HolderError::Lost) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
