//! What becomes of a client's queues and copies when it ends, or its server does.

use super::{Following, looked_at};
use crate::core::{End, ExitCause, ProcessKey, ServerEpoch};
use crate::driver::events::Event;
use crate::driver::following::hearing::{Hearing, hear_out};
use crate::driver::turn::Turn;
use crate::patience::patient;
use std::time::Duration;

/// How long the end of a client waits for what its tools queues still hold. Reading them takes microseconds,
/// and ten milliseconds at most where a fault's GPU has no name yet.
const LAST_WORDS: Duration = Duration::from_millis(200);

impl Following {
    /// A client has ended. Its fault may still be waiting in its queue, so that is read before the core hears of the end
    /// and forgets whose it was; gives the event that comes then, if there is nothing to read.
    pub(in crate::driver) fn process_ended(&self, process: ProcessKey, end: End) -> Option<Event> {
        let own = self.clients.get(&process).into_iter().flat_map(|followed| &followed.hearings);
        self.heard_out(own, Event::ProcessHeard { process, end })
    }

    /// The same of a server and its clients: its incident ends with it.
    pub(in crate::driver) fn server_ended(&self, server: ServerEpoch, cause: ExitCause) -> Option<Event> {
        let all = self.clients.values().flat_map(|followed| &followed.hearings);
        self.heard_out(all, Event::ServerHeard { server, cause })
    }

    /// Tells the driver of an end when these queues are read, which send it their faults before they say so; gives the
    /// event back if there are none.
    fn heard_out<'a>(&self, hearings: impl Iterator<Item = &'a Hearing>, event: Event) -> Option<Event> {
        let heard = hear_out(hearings);
        if heard.is_empty() {
            return Some(event);
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            let last_words = async {
                for empty in heard {
                    // A queue that can't be read any longer has no last words.
                    let _ = empty.await;
                }
            };
            // A driver that is too busy to take events hears of the end first, which costs a fault its certainty.
            let _ = tokio::time::timeout(patient(LAST_WORDS), last_words).await;
            events.send(event).await;
        });
        None
    }

    /// Closes a client's queue and the copies of its descriptors, elsewhere: it takes the kernel 16 to 39 ms.
    pub(in crate::driver) fn release_copies(&mut self, turn: &mut Turn<'_>, process: ProcessKey) {
        self.inherited.release(turn.successor, process);
        if let Some(mut followed) = self.clients.remove(&process) {
            followed.keys.iter().for_each(|key| turn.successor.release(*key));
            looked_at(turn, std::mem::take(&mut followed.waiting));
        }
    }

    /// A client is gone, and the core wants nothing kept of it.
    pub(in crate::driver) fn forget_unless_held(&mut self, turn: &mut Turn<'_>, process: ProcessKey) {
        if !turn.core.holds_copies_of(process) {
            self.release_copies(turn, process);
        }
    }
}
