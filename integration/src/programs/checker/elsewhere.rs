//! A thread that none of a program's has begun, for what the checker itself does while a program runs.
//!
//! It is there before any work is lost. One that a program's thread began after a loss would be told of it in that thread's
//! place, and those that the same thread begins later no more: the word would have gone to nobody of the program's.

use super::api::{Answer, Failed};
use std::sync::mpsc::{Sender, channel};
use std::thread;

type Work = Box<dyn FnOnce() -> Answer + Send>;

/// The thread, which ends with this.
#[derive(Debug)]
pub(super) struct Elsewhere(Sender<(Work, Sender<Answer>)>);

impl Elsewhere {
    pub(super) fn begin() -> Self {
        let (give, take) = channel::<(Work, Sender<Answer>)>();
        thread::spawn(move || {
            for (work, answer) in take {
                // Who has asked waits for the answer.
                let _unheard = answer.send(work());
            }
        });
        Self(give)
    }

    /// What this answers there.
    pub(super) fn does(&self, work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
        let (answer, is_answered) = channel();
        let has_ended = Failed { call: "the checker's thread has ended", code: 0 };
        self.0.send((Box::new(work), answer)).map_err(|_| has_ended)?;
        is_answered.recv().map_err(|_| has_ended)?
    }
}
