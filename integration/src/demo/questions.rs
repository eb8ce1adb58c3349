//! What the table, the promises and the picture ask of a story, and the play of the events so far.

use super::story::{Event, Lane, Story, What};
use std::time::Duration;

impl Story {
    /// The events of a lane.
    pub(super) fn of(&self, lane: Lane) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.lane == lane)
    }

    /// The first event of a lane that is so.
    pub(super) fn first(&self, lane: Lane, is_so: impl Fn(&What) -> bool) -> Option<&Event> {
        self.of(lane).find(|event| is_so(&event.what))
    }

    /// When an act began and when the next one did; `None` when it was not played.
    pub(super) fn act(&self, wanted: u8) -> Option<(f64, f64)> {
        let mut acts = self.events.iter().filter_map(|event| Some((event.what.act()?, event.ms)));
        let (_, begin) = acts.by_ref().find(|(number, _)| *number == wanted)?;
        Some((begin, acts.next().map_or(f64::INFINITY, |(_, end)| end)))
    }

    /// The events of an act.
    pub(super) fn during(&self, act: u8) -> impl Iterator<Item = &Event> {
        let (begin, end) = self.act(act).unwrap_or((f64::INFINITY, f64::INFINITY));
        self.events.iter().filter(move |event| (begin..end).contains(&event.ms))
    }

    /// The driver's error that a lane had in an act.
    pub(super) fn failure(&self, act: u8, lane: Lane) -> Option<u32> {
        self.during(act).filter(|event| event.lane == lane).find_map(|event| event.what.failed())
    }

    /// Whether a lane's process ended in an act, however.
    pub(super) fn was_lost(&self, act: u8, lane: Lane) -> bool {
        self.during(act).any(|event| event.lane == lane && event.what.is_loss())
    }

    /// The longest step of a lane that was told of in an act.
    pub(super) fn longest_step(&self, act: u8, lane: Lane) -> Option<f64> {
        self.during(act).filter(|event| event.lane == lane).filter_map(|event| event.what.step()).reduce(f64::max)
    }

    /// The newcomers, in order.
    pub(super) fn newcomers(&self) -> Vec<Lane> {
        let mut lanes: Vec<Lane> = self.events.iter().map(|event| event.lane).collect();
        lanes.retain(|lane| matches!(lane, Lane::Newcomer(_)));
        lanes.sort();
        lanes.dedup();
        lanes
    }

    /// The newcomers that came in an act.
    pub(super) fn came(&self, act: u8) -> Vec<Lane> {
        let mut lanes = self.newcomers();
        let came = |lane: &Lane| self.of(*lane).next().map(|event| event.ms);
        let (begin, end) = self.act(act).unwrap_or((f64::INFINITY, f64::INFINITY));
        lanes.retain(|lane| came(lane).is_some_and(|came| (begin..end).contains(&came)));
        lanes
    }

    /// How long a lane waited for its context and memory, and its pid then.
    pub(super) fn served(&self, lane: Lane) -> Option<(i32, f64)> {
        self.of(lane).find_map(|event| event.what.served())
    }

    /// Whether a server has taken this process: without one a program runs outside MPS.
    pub(super) fn was_taken(&self, process: i32) -> bool {
        self.events.iter().any(|event| event.what == What::Took { pid: process })
    }

    /// The servers, in the order in which they were started.
    pub(super) fn servers(&self) -> Vec<i32> {
        let mut servers: Vec<i32> = Vec::new();
        for event in &self.events {
            if let Lane::Server(pid) = event.lane
                && !servers.contains(&pid)
            {
                servers.push(pid);
            }
        }
        servers
    }

    /// Whose process this is.
    pub(super) fn lane_of(&self, process: i32) -> Option<Lane> {
        let is_it = |event: &&Event| {
            event.what == What::Started { pid: process } || event.what.served().is_some_and(|(pid, _)| pid == process)
        };
        self.events.iter().find(is_it).map(|event| event.lane)
    }

    /// The programs that work when an act begins.
    pub(super) fn working_at(&self, act: u8) -> Vec<Lane> {
        let Some((begin, _)) = self.act(act) else { return Vec::new() };
        let is_change = |what: &What| what.served().is_some() || what.is_loss() || matches!(what, What::Ended { .. });
        let is_working = |lane: &Lane| {
            let last = self.of(*lane).filter(|event| event.ms < begin && is_change(&event.what)).last();
            last.is_some_and(|event| event.what.served().is_some())
        };
        [Lane::Plain, Lane::InPlace, Lane::Culprit, Lane::Elsewhere].into_iter().filter(is_working).collect()
    }

    /// How often a newcomer was sent away.
    pub(super) fn refusals(&self, lane: Lane) -> usize {
        self.of(lane).filter(|event| event.what.failed().is_some()).count()
    }

    /// When the fault was made.
    pub(super) fn fault(&self) -> Option<f64> {
        self.first(Lane::Culprit, |what| *what == What::Faulted).map(|event| event.ms)
    }

    /// Who the culprit was: the process that had a context in the culprit's lane before the fault.
    pub(super) fn culprit(&self) -> Option<i32> {
        let fault = self.fault()?;
        let before = self.of(Lane::Culprit).take_while(|event| event.ms < fault);
        before.filter_map(|event| event.what.served()).last().map(|(pid, _)| pid)
    }
}

/// Whether a lane has had such an event since then.
pub(super) fn has(events: &[Event], lane: Lane, since: f64, is_it: &dyn Fn(&What) -> bool) -> bool {
    events.iter().any(|event| event.lane == lane && event.ms >= since && is_it(&event.what))
}

/// Whether the one elsewhere has told of work so long after that.
pub(super) fn works_on(events: &[Event], since: f64, time: Duration) -> bool {
    let enough = since + time.as_secs_f64() * 1e3;
    has(events, Lane::Elsewhere, enough, &|what| matches!(what, What::Worked { .. }))
}
