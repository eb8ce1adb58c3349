//! A thread that knows when owners of events end, and settles records of this process.

use std::{
    collections::VecDeque,
    ffi::c_int,
    io,
    sync::{Mutex, OnceLock, PoisonError},
};

use super::{
    Event, Shared,
    handle::LIFELINE,
    peer::Owner,
    shared,
    slot::{Slot, State, Wait},
    told,
};
use crate::process::{
    descriptors::Held,
    glibc,
    lifeline::{self, Bell},
    panics::unpanicked,
    passing::{self, Secret},
};

/// Between two looks at records that are not settled, and at pages of owners that have ended: their GPU may write there
/// still. In milliseconds.
const OFTEN: i32 = 1;
const SELDOM: i32 = 250;
const NEVER: i32 = -1;

/// A record that goes on with what this process waits for.
#[derive(Debug)]
pub(super) struct Unsettled {
    slot: Slot,
    number: u64,
    waits: Vec<Wait>,
}

static BELL: OnceLock<Bell> = OnceLock::new();
/// Whether there is the thread.
static HAS_BEGUN: Mutex<bool> = Mutex::new(false);

/// There is such a thread from now on.
pub(super) fn begin() -> io::Result<()> {
    let mut has_begun = HAS_BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    if *has_begun {
        return Ok(());
    }
    let bell = Bell::new()?;
    let bell = BELL.get_or_init(|| bell);
    *has_begun = glibc::detached_thread(Box::new(|| {
        let _ended = unpanicked(|| watch(bell));
    }));
    if *has_begun { Ok(()) } else { Err(io::Error::other("no thread could be started")) }
}

/// There is something new.
pub(super) fn look() {
    if let Some(bell) = BELL.get() {
        bell.ring();
    }
}

/// A record is believed as soon as all that this process waits for now has come: at once where that is nothing, and never
/// where some of it was lost while the call was on its way, of which this thread was not told yet.
pub(super) fn settle_later(slot: Slot, number: u64) {
    let is_settled = shared(|shared| {
        let _unsettled = shared.look();
        if let Some(error) = told::still_owed() {
            slot.lose(number, number, error);
        }
        let is_first = shared.unsettled.iter().all(|of| of.slot != slot);
        if shared.pending.is_empty() && is_first {
            slot.settle(number);
            return true;
        }
        let waits = shared.pending.clone();
        shared.unsettled.push_back(Unsettled { slot, number, waits });
        false
    });
    if !is_settled {
        look();
    }
}

impl Shared {
    /// Settles what can be.
    fn settle(&mut self) {
        let mut left = VecDeque::new();
        let all = std::mem::take(&mut self.unsettled);
        for mut of in all {
            let mut lost = None;
            of.waits.retain(|wait| match wait.state(self.has_ended(wait.owner)) {
                State::Come => false,
                State::Open | State::Unsettled => true,
                State::Lost(error) => {
                    lost = Some(error);
                    false
                }
            });
            if let Some(error) = lost {
                of.slot.lose(of.number, of.number, error);
                of.waits.clear();
            }
            let is_first = left.iter().all(|before: &Unsettled| before.slot != of.slot);
            if of.waits.is_empty() && is_first {
                of.slot.settle(of.number);
            } else {
                left.push_back(of);
            }
        }
        self.unsettled = left;
    }

    /// How long there is nothing to do but to wait for ends.
    fn pause(&self) -> i32 {
        let has_ended = |owner: &Secret| self.has_ended(*owner);
        let of_events = self.events.values().any(|event| matches!(event, Event::Imported(of) if has_ended(&of.owner)));
        match (self.unsettled.is_empty(), of_events || self.pending.iter().any(|wait| has_ended(&wait.owner))) {
            (false, _) => OFTEN,
            (true, true) => SELDOM,
            (true, false) => NEVER,
        }
    }

    /// These processes have ended.
    fn ended(&mut self, owners: &[Secret]) {
        for owner in owners {
            if let Some(known) = self.owners.get_mut(owner) {
                known.lifeline = None;
            }
        }
    }

    /// Nobody waits for what those will write that have ended.
    fn release(&self) {
        self.awaited.values().filter(|wait| self.has_ended(wait.owner)).for_each(Wait::release_for_good);
    }
}

/// Who is watched.
#[derive(Debug, Default)]
struct Watched {
    living: Vec<Secret>,
    lifelines: Vec<c_int>,
    /// The program has closed their lifelines, as it does with all descriptors that it does not know.
    closed: Vec<Secret>,
}

/// Of owners that seem to have ended those that have: it may be that a lifeline was closed by a program that closes all
/// descriptors, and then another one is given.
fn ask_again(owners: Vec<Secret>) -> Vec<Secret> {
    let is_gone = |owner: &Secret| match passing::ask(*owner, LIFELINE).and_then(lifeline::of_another) {
        Ok(lifeline) => {
            let owner_now = Owner { lifeline: Some(lifeline) };
            shared(|shared| shared.owners.insert(*owner, owner_now));
            false
        }
        Err(_) => true,
    };
    owners.into_iter().filter(is_gone).collect()
}

impl Watched {
    fn of(shared: &Shared) -> Self {
        let mut watched = Self::default();
        for (owner, known) in &shared.owners {
            match known.lifeline.as_ref().map(Held::number) {
                Some(Some(number)) => {
                    watched.living.push(*owner);
                    watched.lifelines.push(number);
                }
                Some(None) => watched.closed.push(*owner),
                None => {}
            }
        }
        watched
    }
}

fn watch(bell: &Bell) {
    loop {
        // Before anything is looked at: whoever rings later wakes.
        let rung = bell.quiet();
        let (watched, pause) = shared(|shared| {
            shared.settle();
            (Watched::of(shared), shared.pause())
        });
        let pause = if watched.closed.is_empty() { pause } else { 0 };
        let hung_up = lifeline::wait(&watched.lifelines, rung, pause);
        let of_those = hung_up.into_iter().filter_map(|at| watched.living.get(at)).copied();
        let ended = ask_again(of_those.chain(watched.closed).collect());
        shared(|shared| {
            shared.ended(&ended);
            if !ended.is_empty() {
                // What has come is known before the rest is released.
                let _unsettled = shared.look();
                shared.settle();
            }
            shared.release();
        });
    }
}
