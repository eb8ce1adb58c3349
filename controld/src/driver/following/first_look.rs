//! Connections that wait until their client has been looked at, where that comes first.

use super::Following;
use crate::core::{ConnectionId, Peer, ProcessKey};
use crate::driver::events::Event;
use crate::driver::turn::{Told, Turn};
use crate::patience::patient;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a connection waits until its client has been looked at, where that comes first.
/// One look takes less than a millisecond, and more than 50 on two cores with a load of 12; with five test suites at a time
/// a client waited out 200. Nobody waits but a client that can't be looked at.
const LOOKED_AT_FIRST: Duration = Duration::from_millis(500);

/// A connection of a client that is to be looked at.
pub(super) struct Waiting {
    connection: ConnectionId,
    peer: Peer,
    _looked: oneshot::Sender<()>,
}

impl Following {
    /// A client that is followed has come with another connection, for a context, and is looked at. Whether that comes
    /// before it gets a server there; not when it is not followed.
    pub(in crate::driver) fn look_first(
        &mut self,
        turn: &mut Turn<'_>,
        process: ProcessKey,
        connection: ConnectionId,
        peer: Peer,
    ) -> bool {
        let Some(followed) = self.clients.get_mut(&process) else {
            return false;
        };
        if turn.core.is_before_contexts(process) && followed.is_covered() {
            self.follow(turn, process, None);
            return false;
        }
        // driver --nothing; its end says that it was looked at--> task
        let (looked, looked_rx) = oneshot::channel::<()>();
        followed.waiting.push(Waiting { connection, peer, _looked: looked });
        self.follow(turn, process, None);
        let events = self.events.clone();
        tokio::spawn(async move {
            if tokio::time::timeout(patient(LOOKED_AT_FIRST), looked_rx).await.is_err() {
                events.send(Event::LookOverdue { process, connection }).await;
            }
        });
        true
    }

    /// A look takes too long: the connection goes on without.
    pub(in crate::driver) fn look_overdue(
        &mut self,
        turn: &mut Turn<'_>,
        process: ProcessKey,
        connection: ConnectionId,
    ) {
        if let Some(followed) = self.clients.get_mut(&process) {
            let is_this = |waiting: &mut Waiting| waiting.connection == connection;
            looked_at(turn, followed.waiting.extract_if(.., is_this));
        }
    }
}

/// These connections' process has been looked at.
pub(super) fn looked_at(turn: &mut Turn<'_>, waiting: impl IntoIterator<Item = Waiting>) {
    waiting.into_iter().for_each(|Waiting { connection, peer, .. }| turn.tell(Told::LookedAt(connection, peer)));
}
