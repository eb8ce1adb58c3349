//! Giving the holder the state that a successor goes on with, and hearing what it has of that.

use super::whole::{Keeping, Readiness, Step};
use super::{Successor, keys};
use crate::core::saved::Saved;
use crate::failpoint::reached;
use crate::holder::{Failure, HolderError};
use prost::Message as _;
use std::time::Duration;
use tokio::time::Instant;

/// How long the holder may take to say that it has everything before it is asked again.
const PATIENCE: Duration = Duration::from_millis(100);

impl Successor {
    /// Goes on with the state that an earlier daemon has left.
    pub(in crate::driver) fn go_on(&mut self, keeping: Keeping) {
        self.keeping = keeping;
    }

    /// Keeps the state that a successor goes on with.
    pub(super) fn save(&mut self, saved: &Saved) {
        let steps = self.keeping.keep(&saved.encode_to_vec(), |most| saved.brief(most));
        self.take(steps);
    }

    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            let done = match step {
                Step::Hold { key, kind, state } => self.holder.hold(key, kind, &state, &[]),
                Step::Release { key } => self.holder.release(key),
                Step::Barrier { number } => self.holder.barrier(number),
            };
            match &done {
                Ok(()) => {}
                // Another one is started, and given everything.
                Err(HolderError::Lost | HolderError::Full) => self.keeping.begin_anew(),
                Err(error) => self.keeping.lacks(error.to_string()),
            }
            let is_done = done.is_ok();
            self.told(done);
            if !is_done {
                return;
            }
            reached("state-half-held");
        }
    }

    /// The holder has done everything before a barrier; whether that was one behind a state.
    pub(in crate::driver) fn passed(&mut self, number: u64) -> bool {
        let is_ours = keys::is_state_barrier(number);
        if is_ours {
            let steps = self.keeping.passed(number);
            self.take(steps);
        }
        is_ours
    }

    /// Whether what the holder does not keep belongs to the state.
    pub(in crate::driver) fn refused(&mut self, key: u64, why: Failure) -> bool {
        self.keeping.refused(key, why)
    }

    /// When to [ask again](Self::ask_again).
    pub(in crate::driver) const fn next_deadline(&self) -> Option<Instant> {
        self.ask_at
    }

    /// Asks a holder again that has not said whether it has the state: it does not tell what there is no room for.
    pub(in crate::driver) fn ask_again(&mut self) {
        if self.ask_at.is_some_and(|at| at <= Instant::now()) {
            self.awaits_word();
            if let Some(number) = self.keeping.open_barrier() {
                self.barrier(number);
            }
        }
    }

    /// Somebody waits for the holder's word.
    pub(super) fn awaits_word(&mut self) {
        self.ask_at = Some(Instant::now() + PATIENCE);
    }

    /// Why a successor would not have all of the state, if so.
    pub(in crate::driver) fn trouble(&self) -> Option<String> {
        self.keeping.trouble().map(|why| format!("not all of the state can be left to a successor: {why}"))
    }

    /// What there is to say of that and was not yet.
    pub(super) fn remark(&mut self) -> Option<String> {
        let trouble = self.trouble();
        if self.is_trouble_said == trouble.is_some() {
            return None;
        }
        self.is_trouble_said = trouble.is_some();
        Some(match self.keeping.trouble() {
            Some(why) => format!(
                "Not all of the state can be left to a successor ({why}): a signal to hand over is refused, and servers that \
                 it does not know would end with this daemon"
            ),
            None => "All of the state can be left to a successor again".to_owned(),
        })
    }

    /// Whether the state can be left to a successor now.
    pub(super) fn readiness(&self) -> Readiness {
        self.keeping.readiness()
    }
}
