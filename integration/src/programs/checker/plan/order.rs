//! Streams and events: what is ordered before what.

use super::super::program::{Node, Queue};
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
    /// Kernels at its end that one which may begin early need not come after.
    pub(super) kernels: Ops,
}

impl Stream {
    pub(super) fn new(device: u8, is_blocking: bool) -> Self {
        Self { device, is_blocking, before: Ops::default(), kernels: Ops::default() }
    }
}

/// An event: what has been done when it has come, if it was recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) device: u8,
    pub(super) has_time: bool,
    pub(super) behind: Option<Ops>,
}

impl Planner {
    /// The stream that is meant.
    pub(super) fn named(&self, thread: u8, on: Queue) -> Option<Name> {
        Some(match on {
            Queue::Null(device) | Queue::Legacy(device) => Name::Null(device),
            Queue::Own(device) | Queue::OwnHandle(device) => Name::Own(thread, device),
            Queue::Stream(place) => Name::Stream(slot(&self.places, place)?),
        })
    }

    /// The same, which is there from now on.
    pub(super) fn stream(&mut self, thread: u8, on: Queue) -> Option<(Name, u8)> {
        let name = self.named(thread, on)?;
        let device = match name {
            Name::Null(device) | Name::Own(_, device) => self.has_device(device)?,
            Name::Stream(_) => self.streams.get(&name)?.device,
        };
        let is_blocking = !matches!(name, Name::Null(_));
        self.streams.entry(name).or_insert(Stream::new(device, is_blocking));
        Some((name, device))
    }

    /// What is ordered before the next piece of work there.
    pub(super) fn before(&self, thread: u8, name: Name, device: u8) -> Ops {
        let mut before = self.streams[&name].before.with(&self.known[usize::from(thread)]);
        before = before.with(&self.awaited.get(&device).copied().unwrap_or_default());
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

    /// The same of each device.
    pub(super) fn stages(&self) -> Vec<Ops> {
        (0..self.devices).map(|device| self.all(device)).collect()
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
        let stream = self.streams.get_mut(&name)?;
        (stream.before, stream.kernels) = (before, Ops::default());
        Some(before)
    }

    /// What was given last is a kernel.
    pub(super) fn is_kernel(&mut self, at: usize, thread: u8, on: Queue) {
        if let Some((name, _)) = self.stream(thread, on) {
            self.streams.entry(name).and_modify(|stream| stream.kernels.insert(at));
        }
    }

    /// A kernel with events that it records, which may begin early.
    pub(super) fn launch_besides(
        &mut self,
        at: usize,
        thread: u8,
        on: Queue,
        node: &Node,
        (ended, begun, is_early): (Option<u8>, Option<u8>, bool),
    ) -> Option<Step> {
        let (name, device) = self.stream(thread, on)?;
        let events = || ended.into_iter().chain(begun);
        let is_right = |event| slot(&self.events, event).is_some_and(|of| of.device == device && !of.has_time);
        if (ended == begun && begun.is_some()) || !events().all(is_right) {
            return None;
        }
        let effects = vec![self.effect(node, device)?];
        let kernels = self.streams.get(&name).filter(|_| is_early).map_or(Ops::default(), |stream| stream.kernels);
        // Whoever waits for its events waits for all of them in fact.
        if self.held.iter().any(|(hold, _)| kernels.contains(*hold)) {
            return None;
        }
        let all = self.before(thread, name, device);
        let before = all.without(&kernels).with(&self.known[usize::from(thread)]);
        self.access(at, &before, &effects)?;
        // The blocks of a kernel have ended before what they have written is there for all.
        events().for_each(|event| {
            if let Some(event) = &mut self.events[usize::from(event)] {
                event.behind = Some(before);
            }
        });
        let stream = self.streams.get_mut(&name)?;
        (stream.before, stream.kernels) = (all, kernels);
        stream.before.insert(at);
        stream.kernels.insert(at);
        Some(Step { effects, is_work: true, device, ..Step::default() })
    }

    /// An event is recorded in a stream.
    pub(super) fn record(&mut self, at: usize, thread: u8, event: u8, on: Queue) -> Option<Step> {
        let of = slot(&self.events, event)?;
        let (_, device) = self.stream(thread, on)?;
        if of.device != device {
            return None;
        }
        let before = self.give(at, thread, on, &[])?;
        self.events[usize::from(event)] = Some(Event { behind: Some(before), ..of });
        Some(Step { is_work: true, device, ..Step::default() })
    }

    /// An event is recorded behind all that its device has.
    pub(super) fn record_all(&mut self, thread: u8, event: u8) -> Option<Step> {
        let of = slot(&self.events, event)?;
        let behind = Some(self.all(of.device).with(&self.known[usize::from(thread)]));
        self.events[usize::from(event)] = Some(Event { behind, ..of });
        Some(Step { device: of.device, ..Step::default() })
    }

    /// A stream waits for an event.
    pub(super) fn wait_for(&mut self, thread: u8, event: u8, on: Queue) -> Option<Step> {
        let Event { device: of, behind, .. } = slot(&self.events, event)?;
        let (name, device) = self.stream(thread, on)?;
        // Whether a wait there is also one for the other streams, nobody says.
        if of != device || matches!(name, Name::Null(_)) {
            return None;
        }
        let stream = self.streams.get_mut(&name)?;
        stream.before = stream.before.with(&behind.unwrap_or_default());
        Some(Step { device, ..Step::default() })
    }

    /// The host waits for an event, or asks whether it has come.
    pub(super) fn look_at_event(&mut self, thread: u8, event: u8, waits: bool) -> Option<Step> {
        let Event { device, behind, .. } = slot(&self.events, event)?;
        let proves = behind.unwrap_or_default();
        if !waits {
            return Some(Step { device, proves, ..Step::default() });
        }
        let known = &mut self.known[usize::from(thread)];
        *known = known.with(&proves);
        Some(Step { device, proves, releases: self.releases(&proves), ..Step::default() })
    }

    /// The host asks for the time between two events.
    pub(super) fn ask_time(&mut self, from: u8, to: u8) -> Option<Step> {
        let [from, to] = [slot(&self.events, from)?, slot(&self.events, to)?];
        if from.device != to.device || !(from.has_time && to.has_time) {
            return None;
        }
        let proves = from.behind?.with(&to.behind?);
        Some(Step { device: from.device, proves, ..Step::default() })
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
