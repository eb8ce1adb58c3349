//! Those who connect to the thin daemon's privileged socket: greeted, and told apart by where they are.
//!
//! The owner is root or this user in this very container: user 0 of a container of clients, which has the directory too,
//! is nobody's owner ([`Place::is_the_daemons`](crate::core::Place::is_the_daemons)).

use crate::io::packets;
use crate::sys::polled::register;
use crate::witness::peer;
use nix::sys::socket::{setsockopt, sockopt::PassCred};
use remps_proto::mps::handshake::GREETING;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// How long nobody is accepted when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

/// The privileged socket.
#[derive(Debug)]
pub(super) struct Visitors(AsyncFd<OwnedFd>);

impl Visitors {
    /// Hears who connects to this socket.
    ///
    /// # Errors
    /// When it can't be watched.
    pub(super) fn new(listener: OwnedFd) -> io::Result<Self> {
        Ok(Self(register(listener, Interest::READABLE)?))
    }

    /// The next one, and whether it is the owner; `None` is one who is gone already.
    pub(super) async fn next(&self) -> Option<(OwnedFd, bool)> {
        match self.0.async_io(Interest::READABLE, |fd| Ok(packets::accept(fd.as_fd())?)).await {
            Ok(visitor) => {
                // Before the greeting, so that its first packet says who has sent it.
                setsockopt(&visitor, PassCred, &true).ok()?;
                packets::send(visitor.as_fd(), GREETING, &[]).ok()?;
                let is_owner = is_owner(&visitor);
                Some((visitor, is_owner))
            }
            Err(error) => {
                tracing::warn!(%error, "a command line can't be accepted");
                sleep_until(Instant::now() + PAUSE).await;
                None
            }
        }
    }
}

fn is_owner(visitor: &OwnedFd) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    let is_one = |uid: u32| uid == 0 || uid == own;
    peer::look(visitor).is_ok_and(|it| is_one(it.peer.uid) && it.found.place.is_the_daemons())
}
