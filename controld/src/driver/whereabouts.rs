//! Finds out which GPUs the machine has and which of them clients use. Both may wait for a GPU that hangs, so it is done
//! beside the driver, and what does not answer is not known.

use super::Driver;
use super::events::Event;
use crate::core::{Input, ProcessKey};
use crate::io::blocking::MACHINE;
use crate::patience::patient;
use crate::witness::gpus;
use std::path::PathBuf;
use std::time::Duration;

/// How long the daemon's start waits for that.
const AT_START: Duration = Duration::from_secs(1);
/// How long a later look is waited for.
const LATER: Duration = Duration::from_secs(30);
/// Whose thread it is: the daemon's own.
const OWN: u32 = 0;

impl Driver {
    /// Looks which GPUs the machine has before the first client comes, whose domain may depend on it.
    pub(super) async fn know_gpus(&mut self) {
        let root = PathBuf::from(&self.settings.file.witness.gpus);
        if root.as_os_str().is_empty() {
            return;
        }
        // What takes longer is looked for again with the first server.
        if let Ok(found) = MACHINE.run(OWN, patient(AT_START), move || gpus::list(&root)).await {
            self.feed(Input::GpusFound(found));
        }
    }

    /// Looks which GPUs the machine has, once at a time.
    pub(super) fn look_for_gpus(&mut self) {
        let root = PathBuf::from(&self.settings.file.witness.gpus);
        if root.as_os_str().is_empty() || std::mem::replace(&mut self.witnesses.looks_for_gpus, true) {
            return;
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            // A look that fails has found nothing.
            let found = MACHINE.run(OWN, patient(LATER), move || gpus::list(&root)).await.unwrap_or_default();
            events.send(Event::GpusFound(found)).await;
        });
    }

    /// Asks the UVM driver which GPUs a client's address spaces have.
    pub(super) fn find_gpus(&self, process: ProcessKey) {
        let Some(spaces) = self.witnesses.following.gpus_of(process) else {
            return;
        };
        let questions: Vec<_> = spaces.iter().map(|copies| copies.ask_for_gpus()).collect();
        let events = self.events.clone();
        tokio::spawn(async move {
            let mut all = Some(Vec::new());
            for question in questions {
                match (question.await, all.as_mut()) {
                    (Ok(found), Some(all)) => all.extend(found),
                    _ => all = None,
                }
            }
            events.send(Event::SpacesFound { process, gpus: all }).await;
        });
    }

    pub(super) fn spaces_found(&mut self, process: ProcessKey, gpus: Option<Vec<String>>) {
        self.feed(Input::SpacesFound { process, gpus });
    }
}
