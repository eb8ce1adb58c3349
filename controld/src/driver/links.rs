//! The driver's part of the conversation with servers.

use super::events::{Event, Events};
use super::{Driver, Link};
use crate::core::{ConnectionId, Input, NoReply, RequestId, ServerEpoch};
use crate::failpoint::reached;
use crate::io::seqpacket::{Packet, SeqPacket};
use crate::io::server_link::{LinkError, MAX_PACKET, Said, ServerLink};
use remps_proto::mps::server::Request;
use std::sync::Arc;
use std::time::Instant;

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

impl Driver {
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
        self.release(connection);
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

    /// Tells the core which servers have not answered in time.
    pub(super) fn overdue_answers(&mut self) {
        let now = Instant::now();
        let overdue: Vec<RequestId> = self.links.values_mut().flat_map(|link| link.link.overdue(now)).collect();
        for request in overdue {
            self.feed(Input::Replied { request, reply: Err(NoReply::TimedOut) });
        }
    }
}
