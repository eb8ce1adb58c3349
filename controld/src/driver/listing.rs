//! The listing of the machine's devices, which a child does: for sessions, and in advance with the option `-q`.

use super::events::{Event, Events};
use super::turn::Told;
use crate::core::Device;
use crate::core::{Input, SessionId};
use crate::devices;

/// One process lists them at a time: whoever asks meanwhile gets its answer too, so that no number of sessions starts as
/// many processes.
pub(super) struct Listing {
    /// The devices, when the option `-q` had them listed at the start.
    known: Option<Vec<Device>>,
    /// Who waits for the listing that is under way; `None` is the option `-q`.
    waiting: Vec<Option<SessionId>>,
    events: Events,
}

impl Listing {
    pub(super) fn new(events: Events) -> Self {
        Self { known: None, waiting: Vec::new(), events }
    }

    /// Lists the devices for a session, or for good.
    pub(super) fn begin(&mut self, session: Option<SessionId>) {
        self.waiting.push(session);
        if self.waiting.len() > 1 {
            return;
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            let devices = devices::list().await.map_err(|error| error.to_string());
            events.send(Event::Devices { devices }).await;
        });
    }

    /// The devices for a session, if they are known already; else they are listed for it.
    pub(super) fn known(&mut self, session: SessionId) -> Option<Input> {
        let known = self.known.clone().map(|devices| Input::DevicesListed { session, devices: Ok(devices) });
        if known.is_none() {
            self.begin(Some(session));
        }
        known
    }

    /// The devices are listed, or why not.
    pub(super) fn done(&mut self, devices: &Result<Vec<Device>, String>) -> Vec<Told> {
        let mut told = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            match (waiting, devices) {
                (Some(session), devices) => {
                    told.push(Told::Input(Input::DevicesListed { session, devices: devices.clone() }));
                }
                (None, Ok(devices)) => self.known = Some(devices.clone()),
                (None, Err(reason)) => told.push(Told::Line(format!("The devices can't be listed: {reason}"))),
            }
        }
        told
    }
}
