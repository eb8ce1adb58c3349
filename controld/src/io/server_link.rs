//! The control connection of one server: requests out, answers in, in order.
//!
//! Packets of one request go out in one system call. What the server does not take at once waits here, in order and
//! bounded, and goes out when the socket has room. Answers are matched with requests by their order; one that comes
//! after its deadline is recognised and dropped.
//!
//! A link that is taken over from a killed daemon may still bring the answer to one request of that daemon.
//! [`ServerLink::resume`] therefore asks for the thread percentage, the status and the thread percentage again, whose
//! answers are packets of eight, four and eight bytes, and drops everything up to those three in a row: no single
//! answer before them can end such a row early, since none has a packet of eight bytes followed by one of four.

use super::seqpacket::{Packet, SeqPacket};
use crate::core::{NoReply, RequestId};
use remps_proto::mps::server::{Reply, ReplyDecoder, Request};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take for an answer. Terminating a client took 10 ms on an H200.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that may wait for a server that does not read.
const MAX_QUEUED: usize = 1024;
/// A packet from a server; its longest is a device record.
pub const MAX_PACKET: usize = 4096;

/// Why a link is no longer usable.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
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

/// The packets before the three answers that mark the end of what an earlier daemon asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resync {
    Done,
    /// The lengths of the last two packets.
    Waiting([usize; 2]),
}

/// A server's control connection.
#[derive(Debug)]
pub struct ServerLink {
    socket: Arc<SeqPacket>,
    queued: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    outstanding: VecDeque<Outstanding>,
    resync: Resync,
}

impl ServerLink {
    /// A link to a server that has just said hello.
    #[must_use]
    pub fn new(socket: Arc<SeqPacket>) -> Self {
        Self { socket, queued: VecDeque::new(), outstanding: VecDeque::new(), resync: Resync::Done }
    }

    /// A link that an earlier daemon used.
    ///
    /// # Errors
    /// [`LinkError`] when the server takes nothing.
    pub fn resume(socket: Arc<SeqPacket>) -> Result<Self, LinkError> {
        let mut link = Self { resync: Resync::Waiting([0; 2]), ..Self::new(socket) };
        for request in [Request::GetThreadPercentage, Request::Status, Request::GetThreadPercentage] {
            link.send(&request.packets(), None)?;
        }
        Ok(link)
    }

    /// The socket, for the task that reads it.
    #[must_use]
    pub fn socket(&self) -> &Arc<SeqPacket> {
        &self.socket
    }

    /// Whether answers to an earlier daemon may still come.
    #[must_use]
    pub fn is_resuming(&self) -> bool {
        self.resync != Resync::Done
    }

    /// Whether packets wait for room in the socket.
    #[must_use]
    pub fn is_backed_up(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Sends packets as one; `descriptor` goes with the packet of that index.
    ///
    /// # Errors
    /// [`LinkError`]; the link can't be used after that.
    pub fn send(&mut self, packets: &[Vec<u8>], descriptor: Option<(usize, OwnedFd)>) -> Result<(), LinkError> {
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
    pub fn ask(&mut self, now: Instant, id: RequestId, request: &Request) -> Result<(), LinkError> {
        let decoder = ReplyDecoder::new(request);
        self.send(&request.packets(), None)?;
        if let Some(decoder) = decoder {
            self.outstanding.push_back(Outstanding { id: Some(id), decoder, deadline: now + ANSWER_TIMEOUT });
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room.
    ///
    /// # Errors
    /// [`LinkError`]; the link can't be used after that.
    pub fn flush(&mut self) -> Result<(), LinkError> {
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
    pub fn received(&mut self, packet: &Packet) -> Result<Option<(RequestId, Reply)>, LinkError> {
        let length = packet.bytes.len();
        if let Resync::Waiting([before, last]) = self.resync {
            let whole = [before, last, length] == [size_of::<f64>(), size_of::<u32>(), size_of::<f64>()];
            self.resync = if whole { Resync::Done } else { Resync::Waiting([last, length]) };
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

    /// When the next answer is overdue.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.outstanding.iter().find(|outstanding| outstanding.id.is_some()).map(|outstanding| outstanding.deadline)
    }

    /// The requests whose answers are overdue; each is named once.
    pub fn overdue(&mut self, now: Instant) -> Vec<RequestId> {
        let due = self.outstanding.iter_mut().take_while(|outstanding| outstanding.deadline <= now);
        due.filter_map(|outstanding| outstanding.id.take()).collect()
    }

    /// Ends the link: every request that is still waited for, with the reason.
    #[must_use]
    pub fn close(self) -> Vec<(RequestId, NoReply)> {
        self.outstanding.into_iter().filter_map(|outstanding| Some((outstanding.id?, NoReply::Lost))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::seqpacket::pair;

    fn link() -> (ServerLink, SeqPacket) {
        let (near, far) = pair().expect("descriptors");
        let near = Arc::new(SeqPacket::new(near).expect("a socket"));
        (ServerLink::new(near), SeqPacket::new(far).expect("a socket"))
    }

    async fn answer(link: &mut ServerLink, server: &SeqPacket, reply: &Reply) -> Option<(RequestId, Reply)> {
        let mut result = None;
        for packet in reply.packets() {
            server.send(&packet, None).expect("room");
            let packet = link.socket().clone().receive(MAX_PACKET).await.expect("readable").expect("a packet");
            result = link.received(&packet).expect("it fits");
        }
        result
    }

    #[tokio::test(flavor = "current_thread")]
    async fn answers_are_matched_in_order() {
        let (mut link, server) = link();
        let now = Instant::now();
        link.ask(now, RequestId(1), &Request::Clients).expect("room");
        link.ask(now, RequestId(2), &Request::Status).expect("room");
        let clients = Reply::Clients(vec![5, 6]);
        assert_eq!(answer(&mut link, &server, &clients).await, Some((RequestId(1), clients)));
        assert_eq!(answer(&mut link, &server, &Reply::Active(true)).await, Some((RequestId(2), Reply::Active(true))));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_late_answer_is_dropped_and_the_next_one_still_matched() {
        let (mut link, server) = link();
        let now = Instant::now();
        link.ask(now, RequestId(1), &Request::Shutdown).expect("room");
        link.ask(now + ANSWER_TIMEOUT, RequestId(2), &Request::Status).expect("room");
        assert_eq!(link.overdue(now + ANSWER_TIMEOUT), [RequestId(1)]);
        assert_eq!(link.overdue(now + ANSWER_TIMEOUT), []);
        assert_eq!(answer(&mut link, &server, &Reply::ActiveWorkers(2)).await, None);
        assert_eq!(answer(&mut link, &server, &Reply::Active(false)).await, Some((RequestId(2), Reply::Active(false))));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn whatever_an_earlier_daemon_had_asked_is_dropped() {
        let lists = Reply::Clients(vec![1, 2, 3]);
        let earlier = [
            None,
            Some(Reply::ThreadPercentage(5.0)),
            Some(Reply::ActiveWorkers(2)),
            Some(lists),
            Some(Reply::PinnedLimit(4)),
            Some(Reply::Devices(vec![])),
        ];
        for earlier in earlier {
            let (near, far) = pair().expect("descriptors");
            let server = SeqPacket::new(far).expect("a socket");
            let mut link = ServerLink::resume(Arc::new(SeqPacket::new(near).expect("a socket"))).expect("room");
            link.ask(Instant::now(), RequestId(9), &Request::Shutdown).expect("room");
            for reply in earlier.iter().chain(&[
                Reply::ThreadPercentage(100.0),
                Reply::Active(true),
                Reply::ThreadPercentage(100.0),
            ]) {
                assert_eq!(answer(&mut link, &server, reply).await, None);
            }
            let own = answer(&mut link, &server, &Reply::ActiveWorkers(1)).await;
            assert_eq!(own, Some((RequestId(9), Reply::ActiveWorkers(1))), "after {earlier:?}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_server_that_does_not_read_gets_everything_later_and_in_order() {
        let (mut link, server) = link();
        let tell = |value: u32| Request::SetPriority(value).packets();
        let mut told = 0;
        while link.queued.len() < 8 {
            link.send(&tell(told), None).expect("it is queued");
            told += 1;
        }
        assert!(link.is_backed_up());
        for value in 0..told {
            let operation = server.receive(64).await.expect("readable").expect("a packet");
            assert_eq!(operation.bytes, Request::SetPriority(value).packets()[0]);
            link.flush().expect("room");
            let number = server.receive(64).await.expect("readable").expect("a packet");
            assert_eq!(number.bytes, value.to_le_bytes());
            link.flush().expect("room");
        }
        assert!(!link.is_backed_up());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_server_that_never_reads_is_given_up() {
        let (mut link, _server) = link();
        let packets = Request::Status.packets();
        let error = (0..100_000).find_map(|_| link.send(&packets, None).err());
        assert!(matches!(error, Some(LinkError::Stuck)));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_packet_that_nobody_asked_for_is_an_error() {
        let (mut link, server) = link();
        server.send(b"????", None).expect("room");
        let packet = link.socket().clone().receive(MAX_PACKET).await.expect("readable").expect("a packet");
        assert!(matches!(link.received(&packet), Err(LinkError::Unasked(4))));
    }
}
