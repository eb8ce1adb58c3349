//! Accepts connections on the socket `shim`, within bounds.

use super::Told;
use super::client::user_of;
use super::device::Devices;
use super::session::Session;
use crate::core::Uid;
use crate::io::discard;
use crate::io::packets::{accept, send};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use remps_proto::shim::{Answer, Failure, ToShim, Welcome};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Connections of one user at a time. A program needs one; MPS serves at most 60 programs on a GPU.
pub(crate) const MOST_OF_USER: usize = 128;
/// Connections of all users at a time, each with a thread.
pub(crate) const MOST: usize = 1024;
/// A thread that serves a connection calls nothing deep.
const STACK_BYTES: usize = 256 * 1024;
/// How long accepting pauses when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections each user has.
#[derive(Debug, Default)]
struct Crowd {
    by_user: HashMap<Uid, usize>,
    all: usize,
}

/// A connection's place; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    crowd: Arc<Mutex<Crowd>>,
    uid: Uid,
}

impl Ticket {
    fn take(crowd: &Arc<Mutex<Crowd>>, uid: Uid) -> Option<Self> {
        let mut all = crowd.lock();
        let of_user = all.by_user.get(&uid).copied().unwrap_or_default();
        if of_user >= MOST_OF_USER || all.all >= MOST {
            return None;
        }
        all.by_user.insert(uid, of_user + 1);
        all.all += 1;
        Some(Self { crowd: Arc::clone(crowd), uid })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut all = self.crowd.lock();
        all.all -= 1;
        if let Some(count) = all.by_user.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                all.by_user.remove(&self.uid);
            }
        }
    }
}

/// The open door. Dropping it closes it to newcomers; who is in stays until the driver hears no more requests.
#[derive(Debug)]
pub(crate) struct Door {
    /// Its end wakes the thread that accepts.
    _open: OwnedFd,
}

impl Door {
    /// Accepts on a listening, non-blocking socket from now on.
    ///
    /// # Errors
    /// When there is no thread or no descriptor to be had.
    pub(crate) fn open(listener: OwnedFd, welcome: Welcome, requests: mpsc::Sender<Told>) -> io::Result<Self> {
        let (shut, open) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let porter = Porter { listener, shut, welcome, requests, crowd: Arc::default(), devices: Arc::default() };
        std::thread::Builder::new().name("door".into()).stack_size(STACK_BYTES).spawn(move || porter.work())?;
        Ok(Self { _open: open })
    }
}

struct Porter {
    listener: OwnedFd,
    shut: OwnedFd,
    welcome: Welcome,
    requests: mpsc::Sender<Told>,
    crowd: Arc<Mutex<Crowd>>,
    devices: Arc<Devices>,
}

impl Porter {
    fn work(self) {
        loop {
            let mut polled = [
                PollFd::new(self.shut.as_fd(), PollFlags::empty()),
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            ];
            // An interrupted wait is one turn more.
            let _ = poll(&mut polled, PollTimeout::NONE);
            if polled[0].revents().is_some_and(|flags| !flags.is_empty()) {
                return;
            }
            match accept(self.listener.as_fd()) {
                Ok(socket) => self.let_in(socket),
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS) => {
                    let mut shut = [PollFd::new(self.shut.as_fd(), PollFlags::empty())];
                    let _ = poll(&mut shut, PollTimeout::try_from(PAUSE).unwrap_or(PollTimeout::MAX));
                }
                // Nobody there any more.
                Err(_) => {}
            }
        }
    }

    fn let_in(&self, socket: OwnedFd) {
        let Ok(uid) = user_of(&socket) else { return };
        let Some(ticket) = Ticket::take(&self.crowd, uid) else {
            let refusal = ToShim { request: 0, answer: Answer::Failed(Failure::TOO_MANY_CONNECTIONS) };
            if let Ok(packet) = refusal.encode() {
                // One that does not read it finds its connection closed.
                let _ = send(socket.as_fd(), &packet, &[]);
            }
            return discard::rest(socket);
        };
        let (welcome, requests) = (self.welcome, self.requests.clone());
        let devices = Arc::clone(&self.devices);
        let serve = move || {
            Session::new(socket, welcome, requests, devices).serve();
            drop(ticket);
        };
        let spawned = std::thread::Builder::new().name("door-client".into()).stack_size(STACK_BYTES).spawn(serve);
        if let Err(error) = spawned {
            tracing::warn!(%error, "a program can't be served at the door");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_places_and_no_more() {
        let crowd = Arc::default();
        let mut tickets: Vec<Ticket> = (0..MOST_OF_USER).map(|_| Ticket::take(&crowd, 1000).unwrap()).collect();
        assert!(Ticket::take(&crowd, 1000).is_none());
        assert!(Ticket::take(&crowd, 1001).is_some());
        tickets.pop();
        assert!(Ticket::take(&crowd, 1000).is_some());
        drop(tickets);
        assert_eq!(crowd.lock().all, 0);
        assert!(crowd.lock().by_user.is_empty());
    }
}
