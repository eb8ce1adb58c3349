//! Waits for the ends of clients, and reads who they are meanwhile.

use super::Witnesses;
use crate::core::{Identity, Pid, ProcessKey, Uid};
use crate::driver::events::Event;
use crate::io::process::WatchedProcess;
use crate::witness::end::EndWatch;
use remps_proto::who::Cgroups;
use std::pin::pin;
use std::sync::Arc;

impl Witnesses {
    /// Reports who a client's process is, of whom this was known at once, and when it ends.
    pub(in crate::driver) fn await_end(
        &mut self,
        process: ProcessKey,
        uid: Uid,
        known: Arc<Identity>,
        opened: WatchedProcess,
    ) {
        let (identities, kills) = (self.identities.clone(), self.kills.clone());
        let (mounts, events) = (Arc::clone(&self.mounts), self.events.clone());
        let task = tokio::spawn(async move {
            let mut look = pin!(identities.more_of(process.pid, uid, &known));
            // A process that does not let itself be read must not delay the news of its own end.
            let found = tokio::select! {
                biased;
                found = &mut look => Some(found),
                _ = opened.ended() => None,
            };
            let cgroups = found.as_ref().map(|found| found.cgroups.clone()).unwrap_or_default();
            let watch = EndWatch::begin(process, &kills, &cgroups, &mounts);
            let is_read = found.is_some();
            if let Some(found) = found {
                events.send(Event::Identified { process, found: Box::new(found) }).await;
            }
            let _ = opened.ended().await;
            // What its tools queue still has to tell comes first: both may have become readable in the same moment.
            tokio::task::yield_now().await;
            let end = watch.end(opened.pidfd()).await;
            events.send(Event::ProcessGone { process, end }).await;
            if !is_read {
                // There may be a verdict on it.
                let found = Box::new(look.await);
                events.send(Event::Identified { process, found }).await;
            }
        });
        // A process that has outlived its server is watched anew when it comes back.
        let before = self.ends.insert(process, task.abort_handle()).filter(|_| process.start_time != 0);
        if let Some(before) = before {
            before.abort();
        }
    }

    /// Reports when a client's process ends that has no pid here.
    pub(in crate::driver) fn await_hidden_end(&mut self, process: ProcessKey, opened: WatchedProcess) {
        let watch = EndWatch::begin(process, &self.kills, &Cgroups::default(), &self.mounts);
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let _ = opened.ended().await;
            let end = watch.end(opened.pidfd()).await;
            events.send(Event::ProcessGone { process, end }).await;
        });
        if let Some(before) = self.ends.insert(process, task.abort_handle()) {
            before.abort();
        }
    }

    /// Whether a process without a pid here has not ended, as far as anybody waits for that.
    pub(in crate::driver) fn lives_hidden(&self, pid: Pid) -> bool {
        self.ends.keys().any(|process| process.pid == pid)
    }

    /// Whether the end of a process is waited for.
    pub(in crate::driver) fn awaits_end(&self, process: ProcessKey) -> bool {
        self.ends.contains_key(&process)
    }

    /// A process has ended.
    pub(in crate::driver) fn has_ended(&mut self, process: ProcessKey) {
        self.ends.remove(&process);
    }
}
