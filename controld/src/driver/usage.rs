//! How much GPU memory each client has, for who asks (`status --memory`).
//!
//! Only the driver's own account has it, which a child process reads ([`devices`]). So a session that asks
//! waits for a look, and who asks soon after another one has that one's answer: whoever asks as often as he can costs a
//! child process each [`FRESH`], and one that hangs, on a machine whose driver does, costs one each [`PAUSE`].

use super::Driver;
use super::events::Event;
use crate::core::picture::Snapshot;
use crate::core::{Peer, SessionId};
use crate::devices;
use crate::patience::patient;
use remps_proto::admin::Report;
use std::collections::BTreeMap;
use std::time::Duration;

/// GPU memory in bytes by pid, or why it is not known.
pub(super) type Memory = Result<BTreeMap<u32, u64>, String>;

/// How long an account answers whoever asks.
const FRESH: Duration = Duration::from_secs(1);
/// How long a look may take.
const LIMIT: Duration = Duration::from_secs(3);
/// How long nobody looks again after one that came to nothing.
const PAUSE: Duration = Duration::from_secs(30);

/// A session that waits for a look.
#[derive(Debug)]
struct Waiter {
    session: SessionId,
    peer: Peer,
    report: Report,
}

/// The latest account, and who waits for the next.
#[derive(Debug, Default)]
pub(super) struct Usage {
    latest: Option<(Duration, Memory)>,
    is_looking: bool,
    waiters: Vec<Waiter>,
}

impl Usage {
    /// Whether the latest account answers now.
    fn answers(&self, now: Duration) -> bool {
        self.latest.as_ref().is_some_and(|(at, memory)| {
            let lasts = if memory.is_ok() { FRESH } else { PAUSE };
            now.saturating_sub(*at) < lasts
        })
    }

    /// A session is over, and its user waits no more.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.waiters.retain(|waiter| waiter.session != session);
    }

    /// Puts the latest account into a picture.
    pub(super) fn show(&self, picture: &mut Snapshot) {
        match self.latest.as_ref().map(|(_, memory)| memory) {
            Some(Ok(memory)) => {
                for client in &mut picture.clients {
                    client.memory_bytes = memory.get(&client.process.pid).copied();
                }
                for server in &mut picture.servers {
                    let now = server.pid.and_then(|pid| memory.get(&pid).copied());
                    server.memory_bytes = now.or(server.memory_bytes);
                }
            }
            Some(Err(reason)) => picture.daemon.memory_unknown = Some(reason.clone()),
            None => {}
        }
    }
}

impl Driver {
    /// Answers a report that tells of memory, at once or when it has been looked at.
    pub(super) fn report_memory(&mut self, session: SessionId, peer: Peer, report: Report) {
        if self.usage.answers(self.now()) {
            return self.answer_report(session, peer, &report);
        }
        self.usage.waiters.push(Waiter { session, peer, report });
        if std::mem::replace(&mut self.usage.is_looking, true) {
            return;
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            let memory = devices::memory_of_all(patient(LIMIT)).await.map_err(|error| error.to_string());
            events.send(Event::UsageSeen(memory)).await;
        });
    }

    /// A look has told this.
    pub(super) fn usage_seen(&mut self, memory: Memory) {
        self.usage.is_looking = false;
        self.usage.latest = Some((self.now(), memory));
        for Waiter { session, peer, report } in std::mem::take(&mut self.usage.waiters) {
            self.answer_report(session, peer, &report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_answers_for_a_second_and_its_absence_for_half_a_minute() {
        let at = Duration::from_secs(100);
        let usage = |memory| Usage { latest: Some((at, memory)), ..Usage::default() };
        let (known, unknown) = (usage(Ok(BTreeMap::new())), usage(Err("it hangs".to_owned())));
        assert!(!Usage::default().answers(at));
        for (after, is_known, is_unknown) in
            [(0, true, true), (999, true, true), (1000, false, true), (29_999, false, true)]
        {
            let now = at + Duration::from_millis(after);
            assert_eq!((known.answers(now), unknown.answers(now)), (is_known, is_unknown), "{after} ms");
        }
        assert!(!unknown.answers(at + PAUSE));
    }
}
