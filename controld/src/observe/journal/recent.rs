//! The newest events in memory.
//!
//! They are what `events` shows. Those of an earlier daemon, read back from the file, are shown to those alone who may
//! see everything: their lines say nothing about who else may.

use super::Stamp;
use crate::core::{JournalEvent, Verdict};
use crate::report::text::wrapped;
use crate::report::{Viewer, event_line};
use remps_proto::admin::{Form, Output};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events that are remembered at most.
const MOST_EVENTS: usize = 1000;
/// Memory that they may take, about: some 370 events of ordinary length. What is older is in the file. With what else is
/// remembered of faults and of the dead it is less than the mebibyte that operators are promised.
const MOST_BYTES: usize = 352 << 10;

/// An event that is remembered.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    line: String,
    /// `None` of an earlier daemon's.
    event: Option<Box<(Stamp, JournalEvent)>>,
}

impl Remembered {
    /// One of this daemon, with the line that the journal has of it.
    pub(crate) fn own(stamp: Stamp, event: JournalEvent, line: String) -> Self {
        Self { line, event: Some(Box::new((stamp, event))) }
    }

    /// One of an earlier daemon.
    pub(crate) fn earlier(line: String) -> Self {
        Self { line, event: None }
    }

    /// The memory that it takes, about: what an event has on the heap is in its line too, with its names.
    pub(crate) fn bytes(&self) -> usize {
        let own = if self.event.is_some() { self.line.len() + size_of::<(Stamp, JournalEvent)>() } else { 0 };
        size_of::<Self>() + self.line.len() + own
    }

    /// The verdict that it is, if this daemon has given it.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        let (_, event) = &**self.event.as_ref()?;
        let (JournalEvent::Verdict { verdict, .. } | JournalEvent::VerdictCorrected { verdict, .. }) = event else {
            return None;
        };
        Some(verdict)
    }

    /// The journal's line of it.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    /// What `viewer` may see of it, as the journal's line or as lines of text; `None` when it does not concern him.
    pub(crate) fn shown(&self, viewer: Viewer, output: Output) -> Option<Vec<String>> {
        /// Blanks before what goes on of an event.
        const INDENT: usize = 4;
        let line = if viewer.privileged && viewer.within.is_none() {
            self.line.clone()
        } else {
            let (stamp, event) = &**self.event.as_ref()?;
            let seen = if viewer.privileged { event.clone() } else { event.seen_by(viewer.uid)? };
            stamp.line(&if viewer.within.is_some() { seen.without_the_nodes_words() } else { seen })
        };
        if output.form == Form::Json {
            return Some(vec![line]);
        }
        // What is no JSON has been left out when it was read.
        let text = event_line(&serde_json::from_str(&line).unwrap_or_default(), output.utc);
        Some(wrapped(&text, INDENT, output.form))
    }
}

/// The newest events, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    events: VecDeque<Arc<Remembered>>,
    bytes: usize,
}

impl Recent {
    /// Remembers an event and forgets the oldest ones beyond the bounds.
    pub(crate) fn push(&mut self, event: Arc<Remembered>) {
        self.bytes += event.bytes();
        self.events.push_back(event);
        while self.events.len() > MOST_EVENTS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// The newest `count` of those that `viewer` may see, oldest first.
    pub(crate) fn list(&self, viewer: Viewer, count: Option<u32>, output: Output) -> Vec<String> {
        let count = count.map_or(MOST_EVENTS, |count| usize::try_from(count).unwrap_or(MOST_EVENTS));
        let shown = self.events.iter().rev().filter_map(|event| event.shown(viewer, output));
        let mut newest: Vec<Vec<String>> = shown.take(count).collect();
        newest.reverse();
        newest.concat()
    }
}
