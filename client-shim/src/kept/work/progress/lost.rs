//! Work that was lost by a recovery is *in doubt*, for threads that began later and were not there to be told:
//!
//! - a stream with lost work; a stream that was told to wait for an event in doubt, or was given work behind a stream
//!   in doubt; until a thread that has been told has waited for it, for all threads that had begun by then;
//! - an event whose last record was behind lost work, or in a stream in doubt, also by a launch; until it is recorded
//!   again or destroyed.
//!
//! An event whose last record is unheard is so for all threads that were not told after it ([`events`](mod@super::super::events)).
//!
//! A use of the default stream, of a whole context, of a graph, and a copy to the host that waits have to do with all
//! streams of their context; any other use of a stream with that stream and the default one.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{Call, context_of, events, last_unheard};
use crate::{
    cuda::{functions::Effect, names},
    kept::work::{
        counts::Mark,
        hosts,
        places::{self, LEGACY, Place, SHARED},
        recorded,
    },
    process::birth,
};

/// Whether anything is in doubt: without that nobody looks.
static IS_DOUBT: AtomicBool = AtomicBool::new(false);

pub(super) fn is_doubt() -> bool {
    IS_DOUBT.load(Ordering::Acquire)
}

impl Call {
    /// Whether it has to do with all streams of its context.
    fn is_wide(&self) -> bool {
        match self.effect {
            Effect::FinishesContext | Effect::RecordsContext | Effect::SubmitsMany | Effect::SubmitsElsewhere => true,
            Effect::CopiesToHost | Effect::Submits | Effect::Launches => self.name & LEGACY != 0,
            Effect::FinishesStream | Effect::RecordsEvent | Effect::WaitsForEvent => self.name & LEGACY != 0,
            Effect::None
            | Effect::FinishesEvent
            | Effect::RecordsEventElsewhere
            | Effect::EndsEvent
            | Effect::ReadsEvents
            | Effect::EndsStream => false,
        }
    }

    /// The places whose streams it has to do with.
    fn reached(&self) -> Vec<&'static Place> {
        if self.is_wide() {
            let others = Some(places::at(SHARED)).filter(|_| self.context != 0);
            return places::of(self.context).map(|(_, place)| place).chain(others).collect();
        }
        let own = self.place.or_else(|| places::find(self.name)).unwrap_or(SHARED);
        let default = places::find(self.context | LEGACY).filter(|at| *at != own);
        [Some(own), default].into_iter().flatten().map(places::at).collect()
    }

    /// Whether it takes what lost work was to give, for a thread that began at this time and has not been told.
    pub(crate) fn is_in_doubt(&self, born: u64) -> bool {
        let of_event = || events(|events| self.events().any(|event| events.doubt(event) > 0));
        let of_a_graph = || self.effect == Effect::SubmitsMany && events(|events| events.any_doubt()) > 0;
        let of_stream = || self.reached().into_iter().any(|place| place.is_in_doubt(born));
        let looks_at_event = matches!(self.effect, Effect::FinishesEvent | Effect::WaitsForEvent | Effect::ReadsEvents);
        is_doubt() && ((looks_at_event && of_event()) || of_a_graph() || (!self.is_of_event() && of_stream()))
    }

    /// Whether it puts an event behind what its thread takes for good.
    pub(crate) fn records_event(&self) -> bool {
        matches!(self.effect, Effect::RecordsEvent | Effect::RecordsContext)
    }

    /// It does, on a thread that has to be told.
    pub(crate) fn is_unheard(&mut self) {
        self.is_unheard = true;
    }

    /// Whether it is behind a record that is unheard, and later than this one: it waits for such an event or looks at it, or it
    /// launches a graph, and one may wait for such an event, of which `may_wait` is asked with their handles.
    pub(crate) fn is_behind_unheard(&self, heard: u64, may_wait: impl FnOnce(&BTreeSet<usize>) -> bool) -> bool {
        if last_unheard() <= heard {
            return false;
        }
        if matches!(self.effect, Effect::FinishesEvent | Effect::WaitsForEvent | Effect::ReadsEvents) {
            return events(|events| self.events().any(|event| events.unheard(event) > heard));
        }
        if self.effect != Effect::SubmitsMany {
            return false;
        }
        let unheard = events(|events| events.unheard_since(heard));
        let handles = unheard.into_iter().map(names::current_of).collect::<BTreeSet<_>>();
        !handles.is_empty() && may_wait(&handles)
    }

    /// Whether it is for the state of a stream that has lost functions of the host, and has told nobody yet.
    pub(crate) fn is_owed_by_its_stream(&self) -> bool {
        self.effect == Effect::FinishesStream && self.place.is_some_and(hosts::are_lost)
    }

    /// It brings the error that lost work has.
    pub(crate) fn tells(&self) {
        if self.effect == Effect::FinishesStream {
            self.place.into_iter().for_each(hosts::are_told);
        }
    }

    /// The events that it names.
    pub(super) fn events(&self) -> impl Iterator<Item = usize> {
        [self.earlier, self.event].into_iter().filter(|event| *event != 0)
    }

    /// Whether it is about an event alone.
    fn is_of_event(&self) -> bool {
        matches!(self.effect, Effect::FinishesEvent | Effect::ReadsEvents)
    }

    /// The last recovery that has lost what its streams were to give, of those that nobody has taken up.
    pub(super) fn doubt(&self) -> u64 {
        self.reached().into_iter().map(Place::doubt).max().unwrap_or(0)
    }

    /// What it gives goes on with what is in doubt.
    #[cold]
    pub(super) fn go_on_with_doubt(&self) {
        let of_graphs = if self.effect == Effect::SubmitsMany { events(|events| events.any_doubt()) } else { 0 };
        let doubt = self.doubt().max(of_graphs);
        if let Some(place) = self.place().filter(|place| doubt > place.doubt()) {
            place.lose(doubt);
        }
    }

    /// A stream, or all of a context, waits for an event in doubt.
    #[cold]
    pub(super) fn wait_for_doubt(&self) {
        let doubt = events(|events| events.doubt(self.event));
        if doubt > 0 && self.is_wide() {
            self.reached().into_iter().for_each(|place| place.lose(doubt));
        }
        if doubt > 0 {
            places::at(places::take(self.name, || context_of(self.name, self.context))).lose(doubt);
        }
    }

    /// A thread that has been told has waited.
    #[cold]
    pub(super) fn take_up(&self) {
        let is_wait = matches!(
            self.effect,
            Effect::FinishesStream | Effect::FinishesContext | Effect::CopiesToHost | Effect::FinishesEvent
        );
        let own = self.place.into_iter().map(places::at);
        let waited_for = if self.is_wide() { self.reached() } else { own.collect() };
        let now = birth::now();
        waited_for.into_iter().filter(|_| is_wait).for_each(|place| place.take_up(now));
    }
}

/// All work is gone. What was not done was lost by the recovery of this number, 0 for one that has lost nothing. The
/// gate is closed.
pub(crate) fn lose(recovery: u64) {
    let is_done = |place: usize, mark: &Mark| places::at(place).counts().has_come_to(mark);
    let is_any = events(|events| {
        recorded::close().into_iter().for_each(|(event, behind)| events.found(event, behind));
        events.lose(recovery, is_done)
    });
    let mut is_doubt = is_any || is_doubt();
    for (_, place) in places::used().filter(|_| recovery > 0).filter(|(_, place)| place.counts().is_busy()) {
        place.lose(recovery);
        is_doubt = true;
    }
    hosts::lose(recovery > 0);
    for (_, place) in places::used() {
        place.counts().complete_all();
    }
    IS_DOUBT.store(is_doubt, Ordering::Release);
}
