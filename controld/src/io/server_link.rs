//! The control connection of one server: requests out, answers in, in order.
//!
//! Packets of one request go out in one system call. What the server does not take at once waits here, in order and
//! bounded, and goes out when the socket has room. Answers are matched with requests by their order; one that comes
//! after its deadline is recognised and dropped.
//!
//! A link that is taken over from a killed daemon may still bring answers to that daemon, and to others before it that
//! were killed while they took over. [`ServerLink::resume`] therefore asks for the thread percentage and the status in
//! an order that spells a number nobody else has asked in: their answers are packets of eight and of four bytes.
//! Everything up to the end of that row of lengths is dropped ([`Marker`]).

mod marker;

use super::seqpacket::{Packet, SeqPacket};
use crate::core::{NoReply, RequestId};
use marker::Marker;
use remps_proto::mps::server::{Configuration, Dialect, Reply, ReplyDecoder, Request};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take for an answer. Terminating a client took 10 ms on an H200.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that may wait for a server that does not read.
const MAX_QUEUED: usize = 1024;
/// A packet from a server; its longest is a device record.
pub(crate) const MAX_PACKET: usize = 4096;

/// Why a link is no longer usable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The socket failed.
    #[error("its control connection failed: {0}")]
    Socket(#[from] io::Error),
    /// The server closed it.
    #[error("it closed its control connection")]
    Closed,
    /// A packet does not fit the request that it should answer.
    #[error("it sent what can't be understood: {0}")]
    Answer(#[from] remps_proto::mps::DecodeError),
    /// A packet came although nothing was asked.
    #[error("it sent a packet of {0} bytes that answers nothing")]
    Unasked(usize),
    /// It takes no requests.
    #[error("it has not read its last {MAX_QUEUED} requests")]
    Stuck,
}

#[derive(Debug)]
struct Outstanding {
    /// Whom to tell; `None` once the deadline has passed.
    id: Option<RequestId>,
    decoder: ReplyDecoder,
    deadline: Instant,
}

/// Whether a request could be said at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It went out, or waits to.
    Yes,
    /// The server's release has no words for it.
    Unsupported,
}

/// A server's control connection.
#[derive(Debug)]
pub(crate) struct ServerLink {
    socket: Arc<SeqPacket>,
    queued: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    outstanding: VecDeque<Outstanding>,
    /// What is still waited for on a link that was taken over.
    marker: Option<Marker>,
    /// When answers seemed to be overdue, while it is not known yet whether they lie unread.
    seemed_overdue: Option<Instant>,
    dialect: Dialect,
}

impl ServerLink {
    /// A link to a server of this dialect that has just said hello.
    pub(crate) fn new(socket: Arc<SeqPacket>, dialect: Dialect) -> Self {
        Self {
            socket,
            queued: VecDeque::new(),
            outstanding: VecDeque::new(),
            marker: None,
            seemed_overdue: None,
            dialect,
        }
    }

    /// A link that an earlier daemon used.
    ///
    /// # Errors
    /// [`LinkError`] when the server takes nothing.
    pub(crate) fn resume(socket: Arc<SeqPacket>, dialect: Dialect) -> Result<Self, LinkError> {
        let marker = Marker::any();
        let mut link = Self::new(socket, dialect);
        link.send(&marker.requests(), None)?;
        link.marker = Some(marker);
        Ok(link)
    }

    /// The socket, for the task that reads it.
    pub(crate) fn socket(&self) -> &Arc<SeqPacket> {
        &self.socket
    }

    /// Whether answers to an earlier daemon may still come.
    pub(crate) fn is_resuming(&self) -> bool {
        self.marker.is_some()
    }

    /// Whether packets wait for room in the socket.
    pub(crate) fn is_backed_up(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Sends packets as one; `descriptor` goes with the packet of that index.
    ///
    /// # Errors
    /// [`LinkError`]; the link can't be used after that.
    pub(crate) fn send(&mut self, packets: &[Vec<u8>], descriptor: Option<(usize, OwnedFd)>) -> Result<(), LinkError> {
        let (at, mut descriptor) = match descriptor {
            Some((at, fd)) => (at, Some(fd)),
            None => (usize::MAX, None),
        };
        let mut sent = 0;
        if self.queued.is_empty() {
            let batch: Vec<_> = packets
                .iter()
                .enumerate()
                .map(|(index, packet)| {
                    (packet.as_slice(), descriptor.as_ref().filter(|_| index == at).map(AsFd::as_fd))
                })
                .collect();
            sent = match self.socket.send_batch(&batch) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error.into()),
            };
        }
        if self.queued.len() + packets.len() - sent > MAX_QUEUED {
            return Err(LinkError::Stuck);
        }
        for (index, packet) in packets.iter().enumerate().skip(sent) {
            let descriptor = if index == at { descriptor.take() } else { None };
            self.queued.push_back((packet.clone(), descriptor));
        }
        Ok(())
    }

    /// Sends a request whose answer `id` names.
    ///
    /// # Errors
    /// [`LinkError`]; the link can't be used after that.
    pub(crate) fn ask(&mut self, now: Instant, id: RequestId, request: &Request) -> Result<Said, LinkError> {
        let said = self.tell(request)?;
        if let (Said::Yes, Some(decoder)) = (said, ReplyDecoder::new(request)) {
            self.outstanding.push_back(Outstanding { id: Some(id), decoder, deadline: now + ANSWER_TIMEOUT });
        }
        Ok(said)
    }

    /// Sends a request in the words of the server's release.
    ///
    /// # Errors
    /// [`LinkError`]; the link can't be used after that.
    pub(crate) fn tell(&mut self, request: &Request) -> Result<Said, LinkError> {
        let Some(packets) = request.packets_for(self.dialect) else {
            return Ok(Said::Unsupported);
        };
        self.send(&packets, None)?;
        Ok(Said::Yes)
    }

    /// Sends the configuration in the words of the server's release.
    ///
    /// # Errors
    /// [`LinkError`]; the link can't be used after that.
    pub(crate) fn configure(&mut self, configuration: &Configuration) -> Result<(), LinkError> {
        self.send(&configuration.packets_for(self.dialect), None)
    }

    /// Sends what waits, as far as there is room.
    ///
    /// # Errors
    /// [`LinkError`]; the link can't be used after that.
    pub(crate) fn flush(&mut self) -> Result<(), LinkError> {
        while let Some((packet, descriptor)) = self.queued.front() {
            match self.socket.send(packet, descriptor.as_ref().map(AsFd::as_fd)) {
                Ok(()) => drop(self.queued.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes a packet that was read; gives an answer when it is whole and still waited for.
    ///
    /// # Errors
    /// [`LinkError`]; the link can't be used after that.
    pub(crate) fn received(&mut self, packet: &Packet) -> Result<Option<(RequestId, Reply)>, LinkError> {
        let length = packet.bytes.len();
        if let Some(marker) = &mut self.marker {
            if marker.is_end(length) {
                self.marker = None;
            }
            return Ok(None);
        }
        let Some(outstanding) = self.outstanding.front_mut() else {
            return Err(LinkError::Unasked(length));
        };
        let Some(reply) = outstanding.decoder.feed(&packet.bytes)? else {
            return Ok(None);
        };
        let id = self.outstanding.pop_front().and_then(|outstanding| outstanding.id);
        Ok(id.map(|id| (id, reply)))
    }

    /// When the next answer seems to be overdue.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.seemed_overdue.is_some() {
            return None;
        }
        self.outstanding.iter().find(|outstanding| outstanding.id.is_some()).map(|outstanding| outstanding.deadline)
    }

    /// Whether the deadline of an answer has just passed. It may lie unread in the socket, or in a long queue of the
    /// daemon's own: whoever hears this reads all that has come by now, and then asks for [`Self::overdue`].
    pub(crate) fn seems_overdue(&mut self, now: Instant) -> bool {
        let seems = self.next_deadline().is_some_and(|deadline| deadline <= now);
        self.seemed_overdue = self.seemed_overdue.or(Some(now).filter(|_| seems));
        seems
    }

    /// The requests whose answers are overdue, now that all has been read that had come when they seemed to be; each is
    /// named once.
    pub(crate) fn overdue(&mut self) -> Vec<RequestId> {
        let Some(then) = self.seemed_overdue.take() else {
            return Vec::new();
        };
        let due = self.outstanding.iter_mut().take_while(|outstanding| outstanding.deadline <= then);
        due.filter_map(|outstanding| outstanding.id.take()).collect()
    }

    /// Ends the link: every request that is still waited for, with the reason.
    #[must_use]
    pub(crate) fn close(self) -> Vec<(RequestId, NoReply)> {
        self.outstanding.into_iter().filter_map(|outstanding| Some((outstanding.id?, NoReply::Lost))).collect()
    }
}

#[cfg(test)]
mod tests;
