//! The driver's part of the conversation with servers.

use super::Driver;
use super::events::{Event, Events};
use crate::core::{ConnectionId, Input, NoReply, RequestId, ServerEpoch};
use crate::failpoint::reached;
use crate::io::seqpacket::{Packet, SeqPacket};
use crate::io::server_link::{LinkError, MAX_PACKET, Said, ServerLink};
use remps_proto::mps::server::{Dialect, Request};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, yield_now};
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

/// A server's control connection and the tasks on it.
#[derive(Debug)]
struct Link {
    link: ServerLink,
    connection: ConnectionId,
    reader: AbortHandle,
    /// Whether a task waits for room in its socket.
    waits_for_room: bool,
}

/// A link that can't be used any longer.
#[derive(Debug)]
pub(super) struct Lost {
    server: ServerEpoch,
    connection: ConnectionId,
    reason: String,
    unanswered: Vec<(RequestId, NoReply)>,
}

/// What a packet has brought.
#[derive(Debug, Default)]
pub(super) struct Heard {
    answer: Option<Input>,
    /// Whether all that an earlier daemon was to hear has come with it.
    has_resumed: bool,
}

/// The control connections of all servers. What fails at one loses it: the error is what is to be done then, and `None`
/// where there was none.
#[derive(Debug)]
pub(super) struct Links {
    links: BTreeMap<ServerEpoch, Link>,
    /// How the installed release's servers are told of memory limits.
    dialect: Dialect,
    events: Events,
}

impl Links {
    pub(super) fn new(dialect: Dialect, events: Events) -> Self {
        Self { links: BTreeMap::new(), dialect, events }
    }

    /// Uses the connection of a server that has just said hello as its link from now on.
    pub(super) fn insert(&mut self, server: ServerEpoch, connection: ConnectionId, socket: Arc<SeqPacket>) {
        self.insert_link(server, connection, ServerLink::new(socket, self.dialect));
    }

    /// Goes on with a link that an earlier daemon used.
    ///
    /// # Errors
    /// [`LinkError`] when the server takes nothing.
    pub(super) fn resume(
        &mut self,
        server: ServerEpoch,
        connection: ConnectionId,
        socket: SeqPacket,
    ) -> Result<(), LinkError> {
        let link = ServerLink::resume(Arc::new(socket), self.dialect)?;
        self.insert_link(server, connection, link);
        Ok(())
    }

    fn insert_link(&mut self, server: ServerEpoch, connection: ConnectionId, link: ServerLink) {
        let reader = tokio::spawn(read_link(server, link.socket().clone(), self.events.clone())).abort_handle();
        self.links.insert(server, Link { link, connection, reader, waits_for_room: false });
        self.wait_for_room(server);
    }

    pub(super) fn has(&self, server: ServerEpoch) -> bool {
        self.links.contains_key(&server)
    }

    /// All servers that have one, each with its connection.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServerEpoch, ConnectionId, &Arc<SeqPacket>)> {
        self.links.iter().map(|(server, link)| (*server, link.connection, link.link.socket()))
    }

    /// When the next answer seems to be overdue.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.links.values().filter_map(|link| link.link.next_deadline()).min()
    }

    /// Reports [`Event::CaughtUp`] when all that has come by now is told.
    pub(super) fn catch_up(&self, server: ServerEpoch) {
        let socket = self.links.get(&server).map(|link| Arc::downgrade(link.link.socket())).unwrap_or_default();
        tokio::spawn(catch_up(socket, self.events.clone(), Event::CaughtUp { server }));
    }

    /// Does something with a server's link.
    pub(super) fn with<T>(
        &mut self,
        server: ServerEpoch,
        act: impl FnOnce(&mut ServerLink) -> Result<T, LinkError>,
    ) -> Result<T, Option<Lost>> {
        let link = self.links.get_mut(&server).ok_or(None)?;
        let done = act(&mut link.link).map_err(|error| self.lose(server, error.to_string()))?;
        self.wait_for_room(server);
        Ok(done)
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

    /// A server's socket has room again.
    pub(super) fn writable(&mut self, server: ServerEpoch) -> Result<(), Option<Lost>> {
        if let Some(link) = self.links.get_mut(&server) {
            link.waits_for_room = false;
        }
        self.with(server, ServerLink::flush)
    }

    /// A server has sent a packet.
    pub(super) fn received(&mut self, server: ServerEpoch, packet: &Packet) -> Result<Heard, Option<Lost>> {
        self.with(server, |link| {
            let was_resuming = link.is_resuming();
            let answer = link.received(packet)?.map(|(request, reply)| Input::Replied { request, reply: Ok(reply) });
            Ok(Heard { answer, has_resumed: was_resuming && !link.is_resuming() })
        })
    }

    /// A link can't be used any longer.
    pub(super) fn lose(&mut self, server: ServerEpoch, reason: String) -> Option<Lost> {
        let Link { link, connection, reader, .. } = self.links.remove(&server)?;
        reader.abort();
        Some(Lost { server, connection, reason, unanswered: link.close() })
    }

    /// Where the time for an answer is over, all that has come is read first: nothing is concluded from the clock alone.
    pub(super) fn seem_overdue(&mut self) {
        let now = Instant::now();
        for (&server, Link { link, .. }) in &mut self.links {
            if link.seems_overdue(now) {
                let told = Event::AnswersOverdue { server };
                tokio::spawn(catch_up(Arc::downgrade(link.socket()), self.events.clone(), told));
            }
        }
    }

    /// Which requests a server has not answered in time.
    pub(super) fn overdue(&mut self, server: ServerEpoch) -> Vec<Input> {
        let overdue = self.links.get_mut(&server).map(|link| link.link.overdue()).unwrap_or_default();
        overdue.into_iter().map(|request| Input::Replied { request, reply: Err(NoReply::TimedOut) }).collect()
    }
}

impl Driver {
    /// Does what is left to do after something was done with a link: `None` when it was lost.
    pub(super) fn unless_lost<T>(&mut self, done: Result<T, Option<Lost>>) -> Option<T> {
        done.map_err(|lost| self.link_lost(lost)).ok()
    }

    /// A link can't be used any longer: the core hears so, then whoever waits for an answer.
    pub(super) fn link_lost(&mut self, lost: Option<Lost>) {
        let Some(Lost { server, connection, reason, unanswered }) = lost else { return };
        self.successor.release(connection.0);
        // First, so that nothing that follows makes the core use the server again.
        self.feed(Input::ServerLinkLost { server, reason });
        self.undecided_wait_again(server);
        for (request, lost) in unanswered {
            self.feed(Input::Replied { request, reply: Err(lost) });
        }
    }

    pub(super) fn link_packet(&mut self, server: ServerEpoch, packet: &Packet) {
        let heard = self.links.received(server, packet);
        let Heard { answer, has_resumed } = self.unless_lost(heard).unwrap_or_default();
        if let Some(answer) = answer {
            reached("answer-read");
            self.feed(answer);
        }
        if has_resumed {
            self.undecided_wait_again(server);
        }
    }

    pub(super) fn ask(&mut self, server: ServerEpoch, id: RequestId, request: &Request) {
        let asked = self.links.with(server, |link| link.ask(Instant::now(), id, request));
        let unanswered = match self.unless_lost(asked) {
            Some(Said::Yes) => None,
            Some(Said::Unsupported) => Some(NoReply::Unsupported),
            None => Some(NoReply::Lost),
        };
        if let Some(reason) = unanswered {
            self.feed(Input::Replied { request: id, reply: Err(reason) });
        }
        reached("asked");
    }
}

#[cfg(test)]
mod tests;
