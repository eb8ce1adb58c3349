//! One connection at the preload library's door, on a thread of its own.

use super::client::{Client, identify};
use super::descriptor::Descriptor;
use super::device::Devices;
use super::line::Line;
use super::reach::Reach;
use super::{Reply, ReplyTo, Request, Told, failed};
use crate::io::foreign_files::ForeignFile;
use crate::io::packets::{receive_one, send};
use crate::patience::patient;
use crate::sys::passed;
use crate::witness::end::ending;
use crate::witness::uvm::Given;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use remps_proto::shim::{
    Answer, Ask, DecodeError, Failure, FromShim, MAX_MESSAGE_BYTES, MOST_FOLLOWED, ToShim, Welcome,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// How long a peer may take to say hello, and to take an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests that a peer may make in one [`PACE`]; then it waits until that is over.
const MOST_REQUESTS: u32 = 2048;
/// The time that requests are counted over.
const PACE: Duration = Duration::from_secs(1);

/// What a peer has sent.
enum Proven {
    /// GPU memory.
    Memory(Descriptor),
    /// The UVM driver's.
    Uvm(Given),
}

/// What a peer has sent, if it is what goes with its request; anything else is closed.
type Proof = Result<Proven, ()>;

/// Proves what came with a request, or closes it here, where nobody waits.
fn prove(descriptor: OwnedFd, ask: Option<&Ask>, foreign: &ForeignFile) -> Proof {
    let proven = match ask {
        Some(Ask::Follow { .. }) => Given::prove(descriptor).map(Proven::Uvm),
        _ => Descriptor::prove(descriptor).map(Proven::Memory),
    };
    proven.map_err(|descriptor| foreign.close(descriptor))
}

/// Why a connection ends. Nobody is told: the peer sees it.
struct Over;

pub(super) struct Session {
    socket: Arc<OwnedFd>,
    line: Arc<Line>,
    welcome: Welcome,
    requests: mpsc::Sender<Told>,
    devices: Arc<Devices>,
    client: Option<Arc<Client>>,
    /// Which GPUs may be held open for it.
    reach: Reach,
    is_greeted: bool,
    /// What the peer has handed over, until it says that it is all.
    given: Vec<Given>,
    /// When the time that requests are counted over began, and how many there were.
    pace: (Instant, u32),
}

impl Session {
    pub(super) fn new(socket: OwnedFd, welcome: Welcome, requests: mpsc::Sender<Told>, devices: Arc<Devices>) -> Self {
        let socket = Arc::new(socket);
        Self {
            line: Arc::new(Line::new(&socket)),
            socket,
            welcome,
            requests,
            devices,
            client: None,
            reach: Reach::default(),
            is_greeted: false,
            given: Vec::new(),
            pace: (Instant::now(), 0),
        }
    }

    /// Serves until the peer closes, breaks the rules, or the driver hears no more.
    pub(super) fn serve(mut self) {
        if setsockopt(&self.socket, sockopt::PassCred, &true).is_err() {
            return;
        }
        // From now on, on this thread; no program sends one before it is welcome. Earlier kernels have no such choice.
        let _ = passed::allow(&self.socket, true);
        self.client = identify(&self.socket).ok().map(Arc::new);
        let begin = Instant::now();
        while self.turn(begin).is_ok() {}
        self.look_at_end();
    }

    /// A connection that its program did not close itself may be the first sign of the program's end: the kernel closes its
    /// files one after the other, and the GPU's may take it long.
    fn look_at_end(&self) {
        let Some(process) = self.client.as_ref().filter(|_| self.is_greeted).map(|client| client.caller.process) else {
            return;
        };
        if let Some(end) = ending(process) {
            // A driver that has gone needs not know.
            let _ = self.requests.blocking_send(Told::Ends { process, end });
        }
    }

    /// Waits for one packet and answers it.
    fn turn(&mut self, begin: Instant) -> Result<(), Over> {
        let left = (!self.is_greeted).then(|| patient(PATIENCE).saturating_sub(begin.elapsed()));
        wait(self.socket.as_fd(), PollFlags::POLLIN, left)?;
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let foreign = ForeignFile::enter();
        let mut got = match receive_one(self.socket.as_fd(), &mut buffer) {
            Ok(got) => got,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNRESET) => return Ok(()),
            Err(_) => return Err(Over),
        };
        // The end of a connection has no sender; an empty packet has one.
        if got.bytes == 0 && got.sender.is_none() {
            return Err(Over);
        }
        let (request, ask) = if got.truncated {
            (0, Err(Failure::MALFORMED))
        } else {
            match FromShim::decode(&buffer[..got.bytes]) {
                Ok(FromShim { request, ask }) => (request, Ok(ask)),
                Err(DecodeError::Unknown { request }) => (request, Err(Failure::UNKNOWN_REQUEST)),
                Err(_) => (0, Err(Failure::MALFORMED)),
            }
        };
        let descriptor = match (got.fds.len(), got.descriptors_lost) {
            (0 | 1, false) => Ok(got.fds.pop().map(|descriptor| prove(descriptor, ask.as_ref().ok(), &foreign))),
            _ => Err(Failure::DESCRIPTORS),
        };
        got.fds.into_iter().for_each(|descriptor| foreign.close(descriptor));
        drop(foreign);
        self.keep_pace();
        let sender = got.sender.map(|peer| peer.pid);
        let answers = match ask.and_then(|ask| Ok((ask, descriptor?))) {
            Ok((ask, descriptor)) => self.answer(ask, descriptor, sender)?,
            Err(failure) => failed(failure),
        };
        for (answer, descriptor) in answers {
            self.send(ToShim { request, answer }, descriptor.as_deref())?;
        }
        Ok(())
    }

    fn answer(&mut self, ask: Ask, descriptor: Option<Proof>, sender: Option<u32>) -> Result<Vec<Reply>, Over> {
        let is_hello = matches!(ask, Ask::Hello { .. });
        // The kernel adds the sender to what is sent once the connection passes credentials, and the first packet may
        // have been sent before that. It says nothing but hello, of whoever has connected.
        let is_sender = |pid: u32| sender == Some(pid) || is_hello && matches!(sender, None | Some(0));
        let Some(client) = self.client.clone().filter(|client| is_sender(client.caller.process.pid)) else {
            return Ok(failed(Failure::IDENTITY));
        };
        if is_hello == self.is_greeted {
            return Ok(failed(Failure::NOT_GREETED));
        }
        let mut device = None;
        let descriptor = match (&ask, descriptor) {
            (Ask::Escrow(region), Some(Ok(Proven::Memory(descriptor)))) => {
                device = self.devices.get(&region.gpu, |minor| self.reach.includes(&client, minor));
                Some(descriptor)
            }
            (Ask::Follow { more }, Some(Ok(Proven::Uvm(given)))) => {
                if self.given.len() >= MOST_FOLLOWED {
                    return Ok(failed(Failure::QUOTA));
                }
                self.given.push(given);
                if *more {
                    return Ok(vec![(Answer::Done { regions: 0 }, None)]);
                }
                None
            }
            (Ask::Escrow(_) | Ask::Follow { .. }, Some(_)) => return Ok(failed(Failure::WRONG_DESCRIPTOR)),
            (Ask::Escrow(_) | Ask::Follow { .. }, None) | (_, Some(_)) => return Ok(failed(Failure::DESCRIPTORS)),
            (_, None) => None,
        };
        if is_hello {
            self.is_greeted = true;
            return Ok(vec![(Answer::Welcome(self.welcome), None)]);
        }
        // session <--answers-- driver
        let (reply, answers) = oneshot::channel();
        let given = if matches!(ask, Ask::Follow { .. }) { std::mem::take(&mut self.given) } else { Vec::new() };
        let line = Arc::downgrade(&self.line);
        let request = Request { client, ask, descriptor, device, given, line, reply: ReplyTo(reply) };
        self.requests.blocking_send(Told::Asked(request)).map_err(|_| Over)?;
        Ok(answers.blocking_recv().unwrap_or_else(|_| failed(Failure::QUITTING)))
    }

    fn send(&self, message: ToShim, descriptor: Option<&Descriptor>) -> Result<(), Over> {
        let packet = message.encode().map_err(|_| Over)?;
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.map(AsFd::as_fd).into_iter().collect();
        let begin = Instant::now();
        loop {
            match send(self.socket.as_fd(), &packet, &descriptors) {
                Ok(()) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let left = patient(PATIENCE).saturating_sub(begin.elapsed());
                    wait(self.socket.as_fd(), PollFlags::POLLOUT, Some(left))?;
                }
                Err(_) => return Err(Over),
            }
        }
    }

    /// Makes a peer that asks too fast wait, on its own thread.
    fn keep_pace(&mut self) {
        if self.pace.0.elapsed() >= PACE {
            self.pace = (Instant::now(), 0);
        }
        self.pace.1 += 1;
        if self.pace.1 > MOST_REQUESTS {
            let left = PACE.saturating_sub(self.pace.0.elapsed());
            let _ = poll(&mut [], PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.line.close();
    }
}

/// Waits until a socket is ready; for ever without a limit.
fn wait(socket: BorrowedFd<'_>, flags: PollFlags, limit: Option<Duration>) -> Result<(), Over> {
    let timeout = match limit {
        // Rounded up, so that a wait that is not over is never one of no time.
        Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
        None => PollTimeout::NONE,
    };
    let mut polled = [PollFd::new(socket, flags)];
    match poll(&mut polled, timeout) {
        Ok(0) => Err(Over),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
