//! Finds out which GPUs the machine has and which of them clients use. Both may wait for a GPU that hangs, so it is done
//! beside the driver, and what does not answer is not known.

use super::Witnesses;
use crate::core::{GpuPlace, Input, ProcessKey};
use crate::driver::events::Event;
use crate::io::blocking::MACHINE;
use crate::patience::patient;
use crate::witness::gpus;
use std::time::Duration;

/// How long the daemon's start waits for that.
const AT_START: Duration = Duration::from_secs(1);
/// How long a later look is waited for.
const LATER: Duration = Duration::from_secs(30);
/// Whose thread it is: the daemon's own.
const OWN: u32 = 0;

impl Witnesses {
    /// Which GPUs the machine has, before the first client comes, whose domain may depend on it.
    pub(in crate::driver) async fn know_gpus(&self) -> Option<Input> {
        let root = self.gpus.clone()?;
        // What takes longer is looked for again with the first server.
        MACHINE.run(OWN, patient(AT_START), move || gpus::list(&root)).await.ok().map(Input::GpusFound)
    }

    /// Looks which GPUs the machine has, once at a time.
    pub(in crate::driver) fn look_for_gpus(&mut self) {
        let Some(root) = self.gpus.clone().filter(|_| !self.looks_for_gpus) else {
            return;
        };
        self.looks_for_gpus = true;
        let events = self.events.clone();
        tokio::spawn(async move {
            // A look that fails has found nothing.
            let found = MACHINE.run(OWN, patient(LATER), move || gpus::list(&root)).await.unwrap_or_default();
            events.send(Event::GpusFound(found)).await;
        });
    }

    /// The machine has these GPUs.
    pub(in crate::driver) fn gpus_found(&mut self, found: Vec<GpuPlace>) -> Input {
        self.looks_for_gpus = false;
        Input::GpusFound(found)
    }

    /// Asks the UVM driver which GPUs a client's address spaces have.
    pub(in crate::driver) fn find_gpus(&self, process: ProcessKey) {
        let Some(spaces) = self.following.gpus_of(process) else {
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
}
