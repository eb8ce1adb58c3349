//! Streams and events: what is ordered before what.

use super::super::program::Queue;
use super::ops::{Effect, Ops, Step};
use super::{Planner, slot};

/// A stream's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Null(u8),
    Own(u8, u8),
    Stream(usize),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) device: u8,
    pub(super) is_blocking: bool,
    pub(super) before: Ops,
}

impl Planner {
    /// The stream that is meant, which is there from now on.
    pub(super) fn stream(&mut self, thread: u8, on: Queue) -> Option<(Name, u8)> {
        let (name, device) = match on {
            Queue::Null(device) | Queue::Legacy(device) => (Name::Null(device), self.has_device(device)?),
            Queue::Own(device) | Queue::OwnHandle(device) => (Name::Own(thread, device), self.has_device(device)?),
            Queue::Stream(place) => {
                let name = Name::Stream(slot(&self.places, place)?);
                (name, self.streams.get(&name)?.device)
            }
        };
        let is_blocking = !matches!(name, Name::Null(_));
        self.streams.entry(name).or_insert(Stream { device, is_blocking, before: Ops::default() });
        Some((name, device))
    }

    /// What is ordered before the next piece of work there.
    pub(super) fn before(&self, thread: u8, name: Name, device: u8) -> Ops {
        let mut before = self.streams[&name].before.with(&self.known[usize::from(thread)]);
        let is_blocking = self.streams[&name].is_blocking;
        for (other, stream) in &self.streams {
            let is_ordered = match (name, other) {
                (Name::Null(_), _) => stream.device == device && stream.is_blocking,
                (_, Name::Null(of)) => is_blocking && *of == device,
                _ => false,
            };
            if is_ordered {
                before = before.with(&stream.before);
            }
        }
        before
    }

    /// All work on a device.
    pub(super) fn all(&self, device: u8) -> Ops {
        let of_device = self.streams.values().filter(|stream| stream.device == device);
        of_device.fold(Ops::default(), |all, stream| all.with(&stream.before))
    }

    pub(super) fn everything(&self) -> Ops {
        (0..self.devices).fold(Ops::default(), |all, device| all.with(&self.all(device)))
    }

    /// A fault meets a device: nothing is held on the others, for whose work a recovery waits.
    pub(super) fn strikes(&mut self, device: u8) -> Vec<usize> {
        self.struck.insert(device);
        self.held.extract_if(.., |(_, of)| *of != device).map(|(hold, _)| hold).collect()
    }

    pub(super) fn releases(&mut self, waits_for: &Ops) -> Vec<usize> {
        self.held.extract_if(.., |(hold, _)| waits_for.contains(*hold)).map(|(hold, _)| hold).collect()
    }

    /// Gives work to a stream; what is ordered before it and itself.
    pub(super) fn give(&mut self, at: usize, thread: u8, on: Queue, effects: &[Effect]) -> Option<Ops> {
        let (name, device) = self.stream(thread, on)?;
        let mut before = self.before(thread, name, device);
        self.access(at, &before, effects)?;
        before.insert(at);
        self.streams.get_mut(&name)?.before = before;
        Some(before)
    }

    /// An event is recorded in a stream.
    pub(super) fn record(&mut self, at: usize, thread: u8, event: u8, on: Queue) -> Option<Step> {
        let (of, _) = slot(&self.events, event)?;
        let (_, device) = self.stream(thread, on)?;
        if of != device {
            return None;
        }
        let before = self.give(at, thread, on, &[])?;
        self.events[usize::from(event)] = Some((device, Some(before)));
        Some(Step { is_work: true, device, ..Step::default() })
    }

    /// A stream waits for an event.
    pub(super) fn wait_for(&mut self, thread: u8, event: u8, on: Queue) -> Option<Step> {
        let (of, recorded) = slot(&self.events, event)?;
        let (name, device) = self.stream(thread, on)?;
        // Whether a wait there is also one for the other streams, nobody says.
        if of != device || matches!(name, Name::Null(_)) {
            return None;
        }
        let stream = self.streams.get_mut(&name)?;
        stream.before = stream.before.with(&recorded.unwrap_or_default());
        Some(Step { device, ..Step::default() })
    }

    /// The host waits for an event, or asks whether it has come.
    pub(super) fn look_at_event(&mut self, thread: u8, event: u8, waits: bool) -> Option<Step> {
        let (device, recorded) = slot(&self.events, event)?;
        let proves = recorded.unwrap_or_default();
        if !waits {
            return Some(Step { device, proves, ..Step::default() });
        }
        let known = &mut self.known[usize::from(thread)];
        *known = known.with(&proves);
        Some(Step { device, proves, releases: self.releases(&proves), ..Step::default() })
    }

    /// The host waits for a stream, or asks whether it is done.
    pub(super) fn look_at_stream(&mut self, thread: u8, on: Queue, waits: bool) -> Option<Step> {
        let (name, device) = self.stream(thread, on)?;
        let proves = self.streams[&name].before;
        if !waits {
            return Some(Step { device, proves, ..Step::default() });
        }
        let waits_for = self.before(thread, name, device);
        let known = &mut self.known[usize::from(thread)];
        *known = known.with(&proves);
        Some(Step { device, proves, releases: self.releases(&waits_for), ..Step::default() })
    }
}
