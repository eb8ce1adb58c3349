//! The end of the daemon: files first, then the holder, then those who wait for the end; last of all, when nobody waits
//! for it any more and another daemon may start, what the cluster has not been told yet.

use super::Driver;
use super::events::Event;
use super::logs::Logs;
use super::reports::Reports;
use crate::failpoint::reached;
use std::time::Duration;

/// How long the last answers may take when the daemon ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// What is left of a daemon that has ended.
pub(super) struct LastWords {
    reports: Reports,
    logs: Logs,
}

impl LastWords {
    /// Waits until the cluster is told of every verdict, for a while.
    pub(super) async fn said(self) {
        if let Some(remark) = self.reports.end().await {
            self.logs.say(&remark);
        }
    }
}

impl Driver {
    /// Answers those who wait for the end, removes what is ours, and ends the holder.
    ///
    /// Everything else that is open is closed then, the lock that keeps another daemon away among it.
    #[must_use = "the cluster may not know all"]
    pub(super) async fn shut_down(mut self) -> LastWords {
        self.logs.sink.report_suppressed();
        super::joins::clear(self.joined_places(), FAREWELL).await;
        self.directory.remove_files();
        reached("files-removed");
        let status = u32::from(self.exit.unwrap_or_default());
        self.sessions.end(status);
        let deadline = tokio::time::Instant::now() + FAREWELL;
        // Those who wait for `quit` must find the daemon gone when they are answered, so the holder goes first.
        let Self { successor, mut events_rx, mut sessions, reports, logs, .. } = self;
        successor.end().await;
        reached("holder-left");
        while !sessions.is_empty() {
            match tokio::time::timeout_at(deadline, events_rx.recv()).await {
                Ok(Some(Event::SessionEnded { session })) => sessions.forget(session),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        LastWords { reports, logs }
    }
}
