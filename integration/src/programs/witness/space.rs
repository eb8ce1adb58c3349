//! One address space of the process that is watched: what is told of it, and for how long its copies are kept.

use super::{Client, Failure, Hold, clock};
use crate::programs::report::{Report, milliseconds};
use nix::time::ClockId;
use remps_controld::parts::core::MemoryFault;
use remps_controld::parts::witness::uvm::{AttachError, Attached, Copies, Tracker, Uvm};
use serde_json::{Value, json};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Between two looks for the second descriptor.
const COMPLETION_PERIOD: Duration = Duration::from_millis(5);
/// Looks for it.
const COMPLETION_LOOKS: u32 = 2000;

/// One address space of the process.
pub(super) struct Space {
    pub(super) report: Report,
    pub(super) client: Arc<Client>,
    pub(super) uvm: Arc<Uvm>,
    pub(super) number: u32,
}

impl Space {
    fn say(&self, event: &str, fields: Value) {
        let mut all = json!({
            "client": self.client.pid.as_raw(),
            "space": self.number,
            "since_start_ms": milliseconds(self.client.started.elapsed()),
        });
        if let (Value::Object(all), Value::Object(fields)) = (&mut all, fields) {
            all.extend(fields);
        }
        self.report.say(event, all);
    }

    pub(super) fn say_attached(&self, Attached { tracker, copies }: &Attached) {
        self.say(
            "attached",
            json!({
                "queue": format!("{:?}", tracker.version()),
                "descriptors": copies.numbers(),
                "is_complete": copies.is_complete(),
            }),
        );
    }

    /// Looks for the second descriptor.
    async fn complete(&self, copies: &mut Copies) -> Result<(), Failure> {
        match self.uvm.complete(copies, self.client.pidfd.as_fd()).await {
            Err(AttachError::Gone) => return Ok(()),
            result => result?,
        }
        if copies.is_complete() {
            self.say("completed", json!({ "descriptors": copies.numbers() }));
        }
        Ok(())
    }

    pub(super) async fn hold(self, Attached { tracker, mut copies }: Attached, hold: Hold) -> Result<(), Failure> {
        tracker.close().done().await;
        for _ in 0..COMPLETION_LOOKS {
            if copies.is_complete() {
                break;
            }
            pass(COMPLETION_PERIOD).await;
            self.complete(&mut copies).await?;
        }
        let ended = self.client.end()?;
        let over = async {
            match hold {
                Hold::For(time) => pass(time).await,
                Hold::UntilStdinCloses => stdin_closes().await,
            }
        };
        let mut over = std::pin::pin!(over);
        tokio::select! {
            biased;
            _ = ended.readable() => {
                self.say("ended", json!({}));
                over.as_mut().await;
            }
            () = over.as_mut() => {}
        }
        let took = copies.close().done().await;
        self.say("closed", json!({ "copies_ms": milliseconds(took) }));
        Ok(())
    }

    pub(super) async fn follow(self, Attached { mut tracker, mut copies }: Attached) -> Result<(), Failure> {
        let ended = self.client.end()?;
        let mut looks = 0;
        loop {
            let is_looking = !copies.is_complete() && looks < COMPLETION_LOOKS;
            tokio::select! {
                biased;
                fault = tracker.next() => self.say_fault(&fault?, &mut tracker),
                _ = ended.readable() => break,
                () = pass(COMPLETION_PERIOD), if is_looking => {
                    looks += 1;
                    self.complete(&mut copies).await?;
                }
            }
        }
        // A machine that is busy tells of the end and of the fault before it at the same time.
        for fault in tracker.waiting().await {
            self.say_fault(&fault, &mut tracker);
        }
        self.say("ended", json!({ "not_culpable": tracker.not_culpable() }));
        let tracker_took = tracker.close().done().await;
        let copies_took = copies.close().done().await;
        let took = json!({ "tracker_ms": milliseconds(tracker_took), "copies_ms": milliseconds(copies_took) });
        self.say("closed", took);
        Ok(())
    }

    fn say_fault(&self, fault: &MemoryFault, tracker: &mut Tracker) {
        let last = tracker.last().expect("a fault was just given");
        let ago = clock(ClockId::CLOCK_MONOTONIC_RAW).saturating_sub(Duration::from_nanos(last.time));
        self.say(
            "fault",
            json!({
                "address": format!("{:#x}", fault.address),
                "access": fault.access.to_string(),
                "kind": fault.kind,
                "gpu": fault.gpu,
                "reason": format!("{:?}", last.reason),
                "ago_ms": milliseconds(ago),
                "dropped": tracker.newly_dropped(),
            }),
        );
    }
}

/// Waits for the end of standard input; whatever comes before it is thrown away.
async fn stdin_closes() {
    // A read that fails is its end, too.
    let _ = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await;
}

/// Lets time pass: nothing is waited for.
async fn pass(time: Duration) {
    // It always runs out.
    let _ = timeout(time, std::future::pending::<()>()).await;
}
