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

use super::seqpacket::{Packet, SeqPacket};
use crate::core::{NoReply, RequestId};
use remps_proto::mps::server::{Configuration, Dialect, Reply, ReplyDecoder, Request};
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

/// Bits of the number in a [`Marker`].
const MARKER_BITS: u32 = 24;
/// Bits between two short packets; fewer than the long ones at the start of a row.
const MARKER_GROUP: usize = 3;
/// Long packets at the start of a row.
const MARKER_START: usize = 6;

/// A row of requests whose answers have lengths that mark the end of what earlier daemons asked.
///
/// Six long ones, which come nowhere else in the row, then the number's bits, long for one, with a short one before
/// every three of them and at the end: no row ends within another one of the same number, and what a dead daemon asked
/// looks like it once in sixteen million times.
#[derive(Debug)]
struct Marker {
    /// Whether the answer is long, in order.
    row: Vec<bool>,
    /// The last answers, as many as the row is long; `None` for one of another length.
    seen: VecDeque<Option<bool>>,
}

impl Marker {
    fn new(number: u32) -> Self {
        let mut row = vec![true; MARKER_START];
        let bits: Vec<bool> = (0..MARKER_BITS).map(|bit| number >> bit & 1 == 1).collect();
        for group in bits.chunks(MARKER_GROUP) {
            row.push(false);
            row.extend(group);
        }
        row.push(false);
        Self { seen: VecDeque::with_capacity(row.len()), row }
    }

    /// A number that no other daemon has used, as far as chance allows.
    fn any() -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        let random = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        Self::new(u32::from_le_bytes([random[0], random[1], random[2], random[3]]))
    }

    fn requests(&self) -> Vec<Vec<u8>> {
        let request = |long: &bool| if *long { Request::GetThreadPercentage } else { Request::Status };
        self.row.iter().flat_map(|long| request(long).packets()).collect()
    }

    /// Takes the length of a packet; whether the row ends with it.
    fn is_end(&mut self, length: usize) -> bool {
        if self.seen.len() == self.row.len() {
            self.seen.pop_front();
        }
        self.seen.push_back(match length {
            8 => Some(true),
            4 => Some(false),
            _ => None,
        });
        self.seen.len() == self.row.len() && self.seen.iter().zip(&self.row).all(|(seen, row)| *seen == Some(*row))
    }
}

/// Whether a request could be said at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It went out, or waits to.
    Yes,
    /// The server's release has no words for it.
    Unsupported,
}

/// A server's control connection.
#[derive(Debug)]
pub struct ServerLink {
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
    #[must_use]
    pub fn new(socket: Arc<SeqPacket>, dialect: Dialect) -> Self {
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
    pub fn resume(socket: Arc<SeqPacket>, dialect: Dialect) -> Result<Self, LinkError> {
        let marker = Marker::any();
        let mut link = Self::new(socket, dialect);
        link.send(&marker.requests(), None)?;
        link.marker = Some(marker);
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
        self.marker.is_some()
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
    pub fn ask(&mut self, now: Instant, id: RequestId, request: &Request) -> Result<Said, LinkError> {
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
    pub fn tell(&mut self, request: &Request) -> Result<Said, LinkError> {
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
    pub fn configure(&mut self, configuration: &Configuration) -> Result<(), LinkError> {
        self.send(&configuration.packets_for(self.dialect), None)
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
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.seemed_overdue.is_some() {
            return None;
        }
        self.outstanding.iter().find(|outstanding| outstanding.id.is_some()).map(|outstanding| outstanding.deadline)
    }

    /// Whether the deadline of an answer has just passed. It may lie unread in the socket, or in a long queue of the
    /// daemon's own: whoever hears this reads all that has come by now, and then asks for [`Self::overdue`].
    pub fn seems_overdue(&mut self, now: Instant) -> bool {
        let seems = self.next_deadline().is_some_and(|deadline| deadline <= now);
        self.seemed_overdue = self.seemed_overdue.or(Some(now).filter(|_| seems));
        seems
    }

    /// The requests whose answers are overdue, now that all has been read that had come when they seemed to be; each is
    /// named once.
    pub fn overdue(&mut self) -> Vec<RequestId> {
        let Some(then) = self.seemed_overdue.take() else {
            return Vec::new();
        };
        let due = self.outstanding.iter_mut().take_while(|outstanding| outstanding.deadline <= then);
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
        (ServerLink::new(near, Dialect::Keys), SeqPacket::new(far).expect("a socket"))
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
        assert!(!link.seems_overdue(now));
        assert!(link.seems_overdue(now + ANSWER_TIMEOUT));
        assert_eq!(link.overdue(), [RequestId(1)]);
        assert_eq!(link.overdue(), []);
        assert!(!link.seems_overdue(now + ANSWER_TIMEOUT));
        assert_eq!(answer(&mut link, &server, &Reply::ActiveWorkers(2)).await, None);
        assert_eq!(answer(&mut link, &server, &Reply::Active(false)).await, Some((RequestId(2), Reply::Active(false))));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_answer_that_lay_unread_when_its_time_was_over_counts() {
        let (mut link, server) = link();
        let now = Instant::now();
        link.ask(now, RequestId(1), &Request::Clients).expect("room");
        link.ask(now, RequestId(2), &Request::Status).expect("room");
        assert!(link.seems_overdue(now + ANSWER_TIMEOUT));
        // Nobody is asked a second time to read, and no timer is set for what is known to be over.
        assert!(!link.seems_overdue(now + ANSWER_TIMEOUT));
        assert_eq!(link.next_deadline(), None);
        link.ask(now + ANSWER_TIMEOUT, RequestId(3), &Request::Status).expect("room");
        let clients = Reply::Clients(vec![5]);
        assert_eq!(answer(&mut link, &server, &clients).await, Some((RequestId(1), clients)));
        assert_eq!(link.overdue(), [RequestId(2)]);
        assert_eq!(link.next_deadline(), Some(now + ANSWER_TIMEOUT + ANSWER_TIMEOUT));
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
            let near = Arc::new(SeqPacket::new(near).expect("a socket"));
            // Two daemons died before; the second one while it was taking over.
            let dead = ServerLink::resume(near.clone(), Dialect::Keys).expect("room").marker.expect("it waits");
            let mut link = ServerLink::resume(near, Dialect::Keys).expect("room");
            link.ask(Instant::now(), RequestId(9), &Request::Shutdown).expect("room");
            let replies = |row: &[bool]| -> Vec<Reply> {
                let reply = |long: &bool| if *long { Reply::ThreadPercentage(100.0) } else { Reply::Active(true) };
                row.iter().map(reply).collect()
            };
            let own = replies(&link.marker.as_ref().expect("it waits").row);
            for reply in earlier.iter().chain(&replies(&dead.row)).chain(&earlier).chain(&own) {
                assert_eq!(answer(&mut link, &server, reply).await, None);
            }
            let own = answer(&mut link, &server, &Reply::ActiveWorkers(1)).await;
            assert_eq!(own, Some((RequestId(9), Reply::ActiveWorkers(1))), "after {earlier:?}");
        }
    }

    #[test]
    fn no_row_of_answers_ends_within_another() {
        let numbers = [0, 1, 0b1010_1010, 0xff_ffff, 0x80_0000, 0x12_3456];
        for first in numbers {
            for second in numbers.into_iter().filter(|second| *second != first) {
                let mut waits = Marker::new(second);
                let length = |long: &bool| if *long { 8 } else { 4 };
                let stream: Vec<usize> =
                    Marker::new(first).row.iter().chain(&Marker::new(second).row).map(length).collect();
                let ends: Vec<usize> = (0..stream.len()).filter(|&index| waits.is_end(stream[index])).collect();
                assert_eq!(ends, [stream.len() - 1], "{first:x} before {second:x}");
            }
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
