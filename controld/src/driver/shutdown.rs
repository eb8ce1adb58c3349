//! The end of the daemon: files first, then the holder, then those who wait for the end.

use super::Driver;
use super::events::Event;
use crate::failpoint::reached;
use std::time::Duration;

/// How long the last answers may take when the daemon ends.
const FAREWELL: Duration = Duration::from_secs(1);

impl Driver {
    /// Answers those who wait for the end, removes what is ours, and ends the holder.
    pub(super) async fn shut_down(mut self) {
        self.logs.sink.report_suppressed();
        self.directory.remove_files();
        reached("files-removed");
        let status = u32::from(self.exit.unwrap_or_default());
        self.sessions.end(status);
        let deadline = tokio::time::Instant::now() + FAREWELL;
        // Those who wait for `quit` must find the daemon gone when they are answered, so the holder goes first.
        let Self { successor, mut events_rx, mut sessions, .. } = self;
        successor.end().await;
        reached("holder-left");
        while !sessions.is_empty() {
            match tokio::time::timeout_at(deadline, events_rx.recv()).await {
                Ok(Some(Event::SessionEnded { session })) => drop(sessions.ended(session)),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
    }
}
