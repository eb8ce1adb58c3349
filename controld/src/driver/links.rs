//! The driver's part of the conversation with servers.

use super::events::{Event, Events};
use super::{Driver, Link};
use crate::core::{ConnectionId, Input, NoReply, RequestId, ServerEpoch};
use crate::failpoint::reached;
use crate::io::seqpacket::{Packet, SeqPacket};
use crate::io::server_link::{LinkError, MAX_PACKET, Said, ServerLink};
use remps_proto::mps::server::Request;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tokio::time::sleep_until;

/// How often, and for how long, the runtime is let look at all sockets before everything counts as read. It looks at
/// 1024 of those that have something at a time, and that before it ends a sleep.
const LOOKS: usize = 4;
const LOOK: Duration = Duration::from_millis(2);

/// Reports a server's packets until its connection ends.
async fn read_link(server: ServerEpoch, socket: Arc<SeqPacket>, events: Events) {
    loop {
        match socket.receive(MAX_PACKET).await {
            Ok(Some(packet)) => events.send(Event::LinkPacket { server, packet }).await,
            Ok(None) => {
                let reason = LinkError::Closed.to_string();
                return events.send(Event::LinkEnded { server, reason }).await;
            }
            Err(error) => {
                let reason = LinkError::Socket(error).to_string();
                return events.send(Event::LinkEnded { server, reason }).await;
            }
        }
    }
}

/// Reports when a server's socket has room again.
async fn wait_for_room(server: ServerEpoch, socket: Arc<SeqPacket>, events: Events) {
    // An error shows at the next attempt to send.
    let _ = socket.writable().await;
    events.send(Event::LinkWritable { server }).await;
}

/// Reports `event` when all that had come, from the server of this socket above all, is in the queue before it.
///
/// Whoever waits for room in the queue gets it in turn, so a reader that has taken a packet from its socket comes first.
async fn catch_up(socket: Weak<SeqPacket>, events: Events, event: Event) {
    for _ in 0..LOOKS {
        sleep_until((Instant::now() + LOOK).into()).await;
    }
    // An answer of many packets is taken one by one while the queue is full. A link that is lost is read no further.
    while socket.upgrade().is_some_and(|socket| matches!(socket.peek_now(1), Ok(Some(_)))) {
        sleep_until((Instant::now() + LOOK).into()).await;
    }
    // A reader may have taken the last one just now, and have to go on before it queues.
    yield_now().await;
    events.send(event).await;
}

impl Driver {
    /// Tells the core, when it has been told of all that has come by now.
    pub(super) fn catch_up(&self, server: ServerEpoch) {
        let socket = self.links.get(&server).map(|link| Arc::downgrade(link.link.socket())).unwrap_or_default();
        tokio::spawn(catch_up(socket, self.events.clone(), Event::CaughtUp { server }));
    }

    /// Uses a connection as a server's link from now on.
    pub(super) fn insert_link(&mut self, server: ServerEpoch, connection: ConnectionId, link: ServerLink) {
        let reader = tokio::spawn(read_link(server, link.socket().clone(), self.events.clone())).abort_handle();
        self.links.insert(server, Link { link, connection, reader, waits_for_room: false });
        self.wait_for_room(server);
    }

    /// Does something with a server's link; a link that fails at it is lost.
    pub(super) fn with_link<T>(
        &mut self,
        server: ServerEpoch,
        act: impl FnOnce(&mut ServerLink) -> Result<T, LinkError>,
    ) -> Option<T> {
        let link = self.links.get_mut(&server)?;
        match act(&mut link.link) {
            Ok(value) => {
                self.wait_for_room(server);
                Some(value)
            }
            Err(error) => {
                self.link_lost(server, error.to_string());
                None
            }
        }
    }

    fn wait_for_room(&mut self, server: ServerEpoch) {
        if let Some(link) = self.links.get_mut(&server)
            && link.link.is_backed_up()
            && !link.waits_for_room
        {
            link.waits_for_room = true;
            tokio::spawn(wait_for_room(server, link.link.socket().clone(), self.events.clone()));
        }
    }

    pub(super) fn link_writable(&mut self, server: ServerEpoch) {
        if let Some(link) = self.links.get_mut(&server) {
            link.waits_for_room = false;
        }
        self.with_link(server, ServerLink::flush);
    }

    pub(super) fn link_packet(&mut self, server: ServerEpoch, packet: &Packet) {
        let resuming = self.links.get(&server).is_some_and(|link| link.link.is_resuming());
        if let Some(Some((request, reply))) = self.with_link(server, |link| link.received(packet)) {
            reached("answer-read");
            self.feed(Input::Replied { request, reply: Ok(reply) });
        }
        if resuming && self.links.get(&server).is_some_and(|link| !link.link.is_resuming()) {
            self.undecided_wait_again(server);
        }
    }

    /// A link can't be used any longer: the core hears so, then whoever waits for an answer.
    pub(super) fn link_lost(&mut self, server: ServerEpoch, reason: String) {
        let Some(Link { link, connection, reader, .. }) = self.links.remove(&server) else {
            return;
        };
        reader.abort();
        self.successor.release(connection.0);
        // First, so that nothing that follows makes the core use the server again.
        self.feed(Input::ServerLinkLost { server, reason });
        self.undecided_wait_again(server);
        for (request, lost) in link.close() {
            self.feed(Input::Replied { request, reply: Err(lost) });
        }
    }

    pub(super) fn ask(&mut self, server: ServerEpoch, id: RequestId, request: &Request) {
        let unanswered = match self.with_link(server, |link| link.ask(Instant::now(), id, request)) {
            Some(Said::Yes) => None,
            Some(Said::Unsupported) => Some(NoReply::Unsupported),
            None => Some(NoReply::Lost),
        };
        if let Some(reason) = unanswered {
            self.feed(Input::Replied { request: id, reply: Err(reason) });
        }
        reached("asked");
    }

    /// Where the time for an answer is over, all that has come is read first: nothing is concluded from the clock alone.
    pub(super) fn answers_seem_overdue(&mut self) {
        let now = Instant::now();
        for (&server, Link { link, .. }) in &mut self.links {
            if link.seems_overdue(now) {
                let told = Event::AnswersOverdue { server };
                tokio::spawn(catch_up(Arc::downgrade(link.socket()), self.events.clone(), told));
            }
        }
    }

    /// Tells the core which requests this server has not answered in time.
    pub(super) fn overdue_answers(&mut self, server: ServerEpoch) {
        let overdue = self.links.get_mut(&server).map(|link| link.link.overdue()).unwrap_or_default();
        for request in overdue {
            self.feed(Input::Replied { request, reply: Err(NoReply::TimedOut) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::seqpacket::pair;
    use tokio::time::timeout;

    const SERVER: ServerEpoch = ServerEpoch(1);
    const LIMIT: Duration = Duration::from_secs(120);

    fn ends() -> (Arc<SeqPacket>, SeqPacket) {
        let (near, far) = pair().unwrap();
        (Arc::new(SeqPacket::new(near).unwrap()), SeqPacket::new(far).unwrap())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn all_that_a_server_has_said_is_told_before_the_daemon_has_caught_up() {
        const PACKETS: usize = 20;
        let (events, mut events_rx) = Events::channel();
        // So full that the reader has to wait for room with every packet.
        for _ in 0..events_rx.max_capacity() {
            events.send(Event::LinkWritable { server: SERVER }).await;
        }
        let (socket, server) = ends();
        tokio::spawn(catch_up(Arc::downgrade(&socket), events.clone(), Event::CaughtUp { server: SERVER }));
        tokio::spawn(read_link(SERVER, socket, events.clone()));
        for _ in 0..PACKETS {
            server.send(b"packet", None).unwrap();
        }
        // Long enough for it to queue its report at once, were that its way.
        sleep_until((Instant::now() + LOOK * 10).into()).await;
        let mut told = Vec::new();
        while !matches!(told.last(), Some(Event::CaughtUp { .. })) {
            told.push(timeout(LIMIT, events_rx.recv()).await.unwrap().unwrap());
            // There is room for one at a time.
            yield_now().await;
        }
        assert_eq!(told.iter().filter(|event| matches!(event, Event::LinkPacket { .. })).count(), PACKETS);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_a_lost_link_still_has_is_not_waited_for() {
        let (events, mut events_rx) = Events::channel();
        let (socket, server) = ends();
        server.send(b"nobody reads it", None).unwrap();
        tokio::spawn(catch_up(Arc::downgrade(&socket), events, Event::CaughtUp { server: SERVER }));
        drop(socket);
        let told = timeout(LIMIT, events_rx.recv()).await.unwrap().unwrap();
        assert!(matches!(told, Event::CaughtUp { server: SERVER }));
    }
}
