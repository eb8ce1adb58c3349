//! Who gets events as they come: sessions of `events --follow`.
//!
//! ```text
//! recorder ──lines──► follower's queue (bounded) ──► session ──► command line
//! ```
//! A follower that does not read holds nobody up: when its queue is full it is cut off. What is queued already is
//! still sent, and then [`CUT_OFF`] as its last line.

use super::recent::Remembered;
use crate::report::Viewer;
use remps_proto::admin::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// The last line of a follower that was cut off.
pub(crate) const CUT_OFF: &str = "events: this follower was too slow and has been cut off";
/// The answer to one more than may follow.
pub(crate) const TOO_MANY: &str = "events: too many follow already";

/// Bytes that may wait for one follower.
const MOST_QUEUED: usize = 256 << 10;
/// Followers at one time.
const MOST_FOLLOWERS: usize = 32;
/// Followers at one time of a user who is neither root nor the owner.
const MOST_FOLLOWERS_PER_USER: usize = 4;

/// The recorder's end of a follower.
#[derive(Debug)]
struct Follower {
    viewer: Viewer,
    output: Output,
    queued: Arc<AtomicUsize>,
    /// recorder --lines--> session
    lines_tx: mpsc::UnboundedSender<String>,
}

/// The session's end: gives lines until the follower is cut off.
#[derive(Debug)]
pub(crate) struct Following {
    queued: Arc<AtomicUsize>,
    /// recorder --lines--> session
    lines_rx: mpsc::UnboundedReceiver<String>,
}

impl Following {
    /// The next line; `None` when the follower has been cut off and everything before has been given. May be dropped
    /// without losing a line.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let line = self.lines_rx.recv().await?;
        self.queued.fetch_sub(line.len(), Ordering::Relaxed);
        Some(line)
    }
}

/// Everybody who follows.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    followers: Vec<Follower>,
}

impl Followers {
    /// One more follower; `None` when there are too many.
    pub(crate) fn add(&mut self, viewer: Viewer, output: Output) -> Option<Following> {
        self.followers.retain(|follower| !follower.lines_tx.is_closed());
        let of_user = self.followers.iter().filter(|follower| follower.viewer.uid == viewer.uid).count();
        if self.followers.len() >= MOST_FOLLOWERS || (!viewer.privileged && of_user >= MOST_FOLLOWERS_PER_USER) {
            return None;
        }
        // recorder --lines--> session. Bounded by the bytes that are counted beside it.
        let (lines_tx, lines_rx) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        self.followers.push(Follower { viewer, output, queued: queued.clone(), lines_tx });
        Some(Following { queued, lines_rx })
    }

    /// Gives an event to all whom it concerns, and cuts off those whose queue is full.
    pub(crate) fn tell(&mut self, event: &Remembered) {
        self.followers.retain(|follower| {
            let Some(lines) = event.shown(follower.viewer, follower.output) else {
                return !follower.lines_tx.is_closed();
            };
            let length = lines.iter().map(String::len).sum::<usize>();
            if follower.queued.load(Ordering::Relaxed) + length > MOST_QUEUED {
                return false;
            }
            follower.queued.fetch_add(length, Ordering::Relaxed);
            lines.into_iter().all(|line| follower.lines_tx.send(line).is_ok())
        });
    }

    /// How many follow.
    pub(crate) fn count(&self) -> usize {
        self.followers.iter().filter(|follower| !follower.lines_tx.is_closed()).count()
    }
}
