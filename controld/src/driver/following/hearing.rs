//! A task for each tools queue, which tells what comes and, on demand, when nothing is left in it.

use crate::core::ProcessKey;
use crate::driver::events::{Event, Events};
use crate::witness::uvm::Tracker;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// Ends that wait for one queue: of its client, and of servers.
const MOST_ASKING: usize = 16;

/// A task that reads a tools queue. Dropped, it closes its queue on another thread.
#[derive(Debug)]
pub(super) struct Hearing {
    task: AbortHandle,
    /// driver --who wants to know when nothing is waiting any more--> task
    empty_tx: mpsc::Sender<oneshot::Sender<()>>,
}

impl Hearing {
    /// Begins to read the queue of this client. `is_of_own_server` is that of
    /// [`UvmEvent`](crate::core::Evidence::UvmEvent).
    pub(super) fn begin(process: ProcessKey, is_of_own_server: bool, tracker: Tracker, events: Events) -> Self {
        let (empty_tx, empty_rx) = mpsc::channel(MOST_ASKING);
        Self { task: tokio::spawn(hear(process, is_of_own_server, tracker, events, empty_rx)).abort_handle(), empty_tx }
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Has these queues read to their ends. One that is asked by many already, or can't be read any longer, is left out.
pub(super) fn hear_out<'a>(hearings: impl Iterator<Item = &'a Hearing>) -> Vec<oneshot::Receiver<()>> {
    let ask = |hearing: &Hearing| {
        let (empty, empty_rx) = oneshot::channel();
        hearing.empty_tx.try_send(empty).is_ok().then_some(empty_rx)
    };
    hearings.filter_map(ask).collect()
}

/// Reports a client's faults until the driver has enough of it, and on demand when there are none left.
async fn hear(
    process: ProcessKey,
    is_of_own_server: bool,
    mut tracker: Tracker,
    events: Events,
    mut empty_rx: mpsc::Receiver<oneshot::Sender<()>>,
) {
    loop {
        let heard = tokio::select! {
            fault = tracker.next() => Ok(fault),
            Some(tx) = empty_rx.recv() => Err(tx),
        };
        match heard {
            Ok(Ok(fault)) => {
                events.send(Event::Fault { process, fault, lost: tracker.newly_dropped(), is_of_own_server }).await;
            }
            Ok(Err(error)) => {
                events.send(Event::Unheard { process, error }).await;
                return;
            }
            Err(tx) => {
                for fault in tracker.waiting().await {
                    events.send(Event::Fault { process, fault, lost: tracker.newly_dropped(), is_of_own_server }).await;
                }
                // Whoever asked may have given up.
                let _ = tx.send(());
            }
        }
    }
}
