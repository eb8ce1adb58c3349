//! One connection to the daemon's door for this library. Every wait has a deadline, and hears the daemon's news on its way.

use std::{
    ffi::OsStr,
    io,
    os::fd::RawFd,
    path::Path,
    time::{Duration, Instant},
};

use nix::sys::{
    socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt},
    time::{TimeVal, TimeValLike},
};
use remps_proto::shim::{
    Answer, Ask, Capabilities, DecodeError, Failure, FromShim, MAX_MESSAGE_BYTES, ToShim, VERSION, Welcome,
};

use super::{listener::may_be_the_daemon, news, spare};
use crate::process::{
    descriptors::Held,
    packets::{self, borrowed},
    settings,
};

/// How long the daemon may take for one packet of a request that it need not wait for.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// An answer with its descriptor.
pub(crate) type Told = (Answer, Option<Held>);

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// Nobody listens, or the connection broke.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The other end has closed.
    #[error("the daemon has closed the connection")]
    Closed,
    /// The other end does not say what it should.
    #[error("what answers is no vault")]
    Stranger,
    /// It is another user's process, in a directory that is not his.
    #[error("what listens is another user's process and not the daemon")]
    Impostor,
    /// It refuses this process.
    #[error("the daemon refuses: {0}")]
    Refused(Failure),
    /// Nothing that may be sent.
    #[error("{0}")]
    Message(#[from] DecodeError),
}

/// A connection that has been greeted. A forked child finds it closed.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Held,
    requests: u64,
    /// What the daemon is and does.
    welcome: Welcome,
}

impl Connection {
    /// Connects and says hello.
    pub(super) fn open(path: &OsStr) -> Result<Self, Lost> {
        let address = UnixAddr::new(Path::new(path)).map_err(io::Error::from)?;
        // Among ours at once: what else comes up in the program meanwhile may be taken for the driver's.
        let socket = Held::made(|| socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None))?;
        let number = socket.number().ok_or(Lost::Closed)?;
        // A full queue of connections is waited for, under the limit for sending.
        set_send_limit(number)?;
        connect(number, &address).map_err(io::Error::from)?;
        if !may_be_the_daemon(&borrowed(number), Path::new(path)) {
            return Err(Lost::Impostor);
        }
        let welcome = Welcome {
            version: VERSION,
            capabilities: Capabilities::default(),
            most_bytes: 0,
            most_regions: 0,
            ttl_ms: 0,
        };
        let mut connection = Self { socket, requests: 0, welcome };
        let capabilities =
            Capabilities::VAULT.and(Capabilities::STATE).and(Capabilities::NEWS).and(Capabilities::SUBSCRIPTIONS);
        let capabilities =
            if settings::is_with_spare() { capabilities.and(Capabilities::SPARES) } else { capabilities };
        match connection.ask(Ask::Hello { version: VERSION, capabilities }, None)?.pop() {
            Some((Answer::Welcome(welcome), None)) => connection.welcome = welcome,
            Some((Answer::Failed(failure), None)) => return Err(Lost::Refused(failure)),
            _ => return Err(Lost::Stranger),
        }
        if connection.can(Capabilities::VAULT) { Ok(connection) } else { Err(Lost::Stranger) }
    }

    /// Whether the daemon is able to do all of these.
    pub(super) fn can(&self, capabilities: Capabilities) -> bool {
        self.welcome.capabilities.has(capabilities)
    }

    /// The socket's number, as long as nobody has closed it.
    pub(super) fn number(&self) -> Result<RawFd, Lost> {
        self.socket.number().ok_or(Lost::Closed)
    }

    /// Asks, and waits for all that is answered.
    pub(super) fn ask(&mut self, ask: Ask, descriptor: Option<RawFd>) -> Result<Vec<Told>, Lost> {
        self.ask_within(ask, descriptor, PATIENCE)
    }

    /// The same for a request that may be answered late.
    pub(super) fn ask_within(
        &mut self,
        ask: Ask,
        descriptor: Option<RawFd>,
        limit: Duration,
    ) -> Result<Vec<Told>, Lost> {
        let request = self.send(ask, descriptor)?;
        self.answers_within(request, limit)
    }

    /// Sends a request; its number.
    pub(super) fn send(&mut self, ask: Ask, descriptor: Option<RawFd>) -> Result<u64, Lost> {
        self.requests += 1;
        let packet = FromShim { request: self.requests, ask }.encode()?;
        packets::send(self.number()?, &packet, descriptor)?;
        Ok(self.requests)
    }

    /// Waits for all answers to a request.
    pub(super) fn answers(&mut self, request: u64) -> Result<Vec<Told>, Lost> {
        self.answers_within(request, PATIENCE)
    }

    fn answers_within(&mut self, request: u64, limit: Duration) -> Result<Vec<Told>, Lost> {
        let mut all = Vec::new();
        let mut deadline = Instant::now() + limit;
        loop {
            let Some((answered, (answer, descriptor))) = self.packet(deadline)? else { continue };
            if answered != request {
                return Err(Lost::Stranger);
            }
            let is_last = answer.is_last();
            all.push((answer, descriptor));
            if is_last {
                return Ok(all);
            }
            deadline = Instant::now() + PATIENCE;
        }
    }

    /// Reads a packet that has come while nothing was asked.
    pub(super) fn hear(&mut self) -> Result<(), Lost> {
        self.packet(Instant::now() + PATIENCE)?.map_or(Ok(()), |_| Err(Lost::Stranger))
    }

    /// One packet: an answer and the request's number. What nobody asked for is heard, and one of a later release not.
    fn packet(&self, deadline: Instant) -> Result<Option<(u64, Told)>, Lost> {
        match self.receive(deadline) {
            Ok((ToShim { request: 0, answer: Answer::Epoch { server, state, .. } }, _)) => {
                news::hear((server, state));
                Ok(None)
            }
            Ok((ToShim { request: 0, answer: Answer::SpareVoid { token } }, _)) => {
                spare::hear(token);
                Ok(None)
            }
            // A word to all at the door.
            Ok((ToShim { request: 0, answer: Answer::Failed(failure) }, _)) => Err(Lost::Refused(failure)),
            Ok((ToShim { request: 0, .. }, _)) | Err(Lost::Message(DecodeError::Unknown { request: 0 })) => Ok(None),
            Ok((ToShim { request, answer }, descriptor)) => Ok(Some((request, (answer, descriptor)))),
            Err(lost) => Err(lost),
        }
    }

    fn receive(&self, deadline: Instant) -> Result<(ToShim, Option<Held>), Lost> {
        let mut buffer = vec![0; MAX_MESSAGE_BYTES];
        let packet = packets::receive(self.number()?, &mut buffer, deadline)?;
        match packet.length {
            0 => Err(Lost::Closed),
            _ if packet.is_cut => Err(Lost::Stranger),
            length => Ok((ToShim::decode(&buffer[..length])?, packet.descriptor)),
        }
    }
}

fn set_send_limit(number: RawFd) -> Result<(), Lost> {
    let limit = TimeVal::microseconds(i64::try_from(PATIENCE.as_micros()).unwrap_or(i64::MAX));
    Ok(setsockopt(&borrowed(number), sockopt::SendTimeout, &limit).map_err(io::Error::from)?)
}
