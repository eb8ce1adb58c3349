//! The state that a successor goes on with, kept whole with the holder whatever its size.
//!
//! # What is kept
//! A state that fits into one message is under its key as it is. One that does not is in pieces under keys of their own,
//! and under its key is an index: which pieces it is made of, in order, with its length and checksum. A piece is never
//! replaced, and its key never used for another. So a state changes when the index does, which is one message:
//!
//! ```text
//! hold the pieces that the holder has not ──▶ hold the index ──▶ release the pieces that nothing names ──▶ ask
//! ```
//! A daemon that dies anywhere in between leaves the state before, or this one, and never a mixture. Pieces that are the
//! same as before are not sent again.
//!
//! # What the holder refuses
//! It says so later. So the index also names the last state that the holder is known to have whole
//! ([`Keeping::passed`]), whose pieces stay until another one is; a successor takes that where the latest lacks a piece.
//!
//! # Earlier releases
//! A holder of one keeps pieces as a kind that it does not know, and an index as any state. Before the index lies as much
//! of the state as fits beside it ([`Saved::brief`](crate::core::saved::Saved::brief)), which is what a daemon of one reads
//! there. It passes over the index as a field that it does not know, and over the pieces.

use super::{keys, pieces};
use crate::holder::{Kind, MAX_STATE_BYTES};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A state in pieces.
#[derive(Clone, PartialEq, Eq, Message)]
struct Whole {
    /// Which it is: later ones have higher numbers.
    #[prost(uint64, tag = "1")]
    generation: u64,
    /// The numbers of its pieces, in order.
    #[prost(uint64, repeated, tag = "2")]
    pieces: Vec<u64>,
    /// Its length.
    #[prost(uint64, tag = "3")]
    bytes: u64,
    /// What [`pieces::checksum`] says of it.
    #[prost(fixed64, tag = "4")]
    checksum: u64,
}

/// What is under the state's key when that is in pieces.
#[derive(Clone, PartialEq, Eq, Message)]
struct Index {
    /// The latest state.
    #[prost(message, optional, tag = "1")]
    latest: Option<Whole>,
    /// The one before that the holder is known to have.
    #[prost(message, optional, tag = "2")]
    safe: Option<Whole>,
}

/// The index as it lies behind a brief state: a field that no state has ([`Saved`](crate::core::saved::Saved)).
#[derive(Clone, PartialEq, Eq, Message)]
struct Beside {
    #[prost(message, optional, tag = "1000")]
    index: Option<Index>,
}

/// What the holder is to be told, in this order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Hold {
        key: u64,
        kind: Kind,
        state: Vec<u8>,
    },
    Release {
        key: u64,
    },
    /// Asks to be told when everything before is done, or was refused.
    Barrier {
        number: u64,
    },
}

/// Whether everything can be left to a successor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// The holder has been asked whether it has everything.
    Asked,
    /// Why not.
    Lacking(String),
}

/// What the holder has of the state, as far as is known.
#[derive(Debug, Default)]
pub(in crate::driver) struct Keeping {
    /// The pieces that it was given, with their numbers.
    pieces: HashMap<Vec<u8>, u64>,
    /// Pieces of an earlier daemon that are there twice.
    stale: Vec<u64>,
    /// The state that it was given last, if nothing of that is known to be missing.
    latest: Option<Whole>,
    /// That state itself where it is not in pieces.
    single: Vec<u8>,
    /// Whether the holder is known to have the latest.
    is_safe: bool,
    /// The last one that it is known to have, if that is in pieces.
    safe: Option<Whole>,
    last_piece: u64,
    last_generation: u64,
    /// Why it has not the latest.
    trouble: Option<String>,
}

/// What a daemon finds of the state that one before has left.
#[derive(Debug, Default)]
pub(in crate::driver) struct Left {
    /// The state, if there is any.
    pub(in crate::driver) state: Option<Vec<u8>>,
    /// What is wrong with it.
    pub(in crate::driver) remark: Option<&'static str>,
    pub(in crate::driver) keeping: Keeping,
}

impl Left {
    /// Puts together what was under the state's key and all pieces by their numbers.
    pub(super) fn of(found: Option<Vec<u8>>, pieces: BTreeMap<u64, Vec<u8>>) -> Self {
        let index = found.as_ref().and_then(|found| Beside::decode(found.as_slice()).ok()?.index);
        let Index { latest, safe } = index.clone().unwrap_or_default();
        let together = |whole: Option<&Whole>| {
            let whole = whole?;
            let state = whole.pieces.iter().map(|number| pieces.get(number).map(Vec::as_slice));
            let state = state.collect::<Option<Vec<_>>>()?.concat();
            let is_it = u64::try_from(state.len()) == Ok(whole.bytes) && pieces::checksum(&state) == whole.checksum;
            is_it.then_some((state, whole.clone()))
        };
        let (state, remark, safe) = match (together(latest.as_ref()), together(safe.as_ref())) {
            (Some((state, whole)), _) => (Some(state), None, Some(whole)),
            (None, _) if latest.is_none() => (found, None, None),
            (None, Some((state, whole))) => (
                Some(state),
                Some("The holder has not all of the latest state, the one before is gone on with"),
                Some(whole),
            ),
            (None, None) => {
                (found, Some("The holder has not all of the state, its first servers are gone on with"), None)
            }
        };
        let mut keeping = Keeping { safe, ..Keeping::default() };
        keeping.last_piece = pieces.last_key_value().map_or(0, |(number, _)| *number);
        keeping.last_generation = latest.map_or(0, |whole| whole.generation);
        for (number, piece) in pieces {
            keeping.stale.extend(keeping.pieces.insert(piece, number));
        }
        Self { state, remark, keeping }
    }
}

impl Keeping {
    /// What to tell the holder so that it has this state; `brief` gives of it what fits into so many bytes. Nothing, if it
    /// has that already.
    pub(super) fn keep(&mut self, state: &[u8], brief: impl FnOnce(usize) -> Vec<u8>) -> Vec<Step> {
        if state.len() > pieces::most_bytes() {
            let (is, most) = (state.len(), pieces::most_bytes());
            self.latest = None;
            self.trouble = Some(format!("it has {is} bytes, and {most} are the most that are kept"));
            return Vec::new();
        }
        if state.len() <= MAX_STATE_BYTES { self.keep_single(state) } else { self.keep_pieces(state, brief) }
    }

    fn keep_single(&mut self, state: &[u8]) -> Vec<Step> {
        let is_single = |whole: &Whole| whole.pieces.is_empty();
        if self.latest.as_ref().is_some_and(is_single) && self.single == state {
            return Vec::new();
        }
        self.is_safe = self.pieces.is_empty() && self.trouble.is_none();
        self.single = state.to_vec();
        let number = self.begin(state, Vec::new());
        let mut steps = vec![Step::Hold { key: keys::STATE, kind: Kind::STATE, state: state.to_vec() }];
        // As ever, nobody waits for the holder's word where nothing else depends on it.
        steps.extend((!self.is_safe).then_some(Step::Barrier { number }));
        steps
    }

    fn keep_pieces(&mut self, state: &[u8], brief: impl FnOnce(usize) -> Vec<u8>) -> Vec<Step> {
        let (mut steps, mut numbers) = (Vec::new(), Vec::new());
        for piece in pieces::cut(state) {
            let number = self.pieces.get(piece).copied().unwrap_or_else(|| {
                self.last_piece += 1;
                self.pieces.insert(piece.to_vec(), self.last_piece);
                let key = keys::piece(self.last_piece);
                steps.push(Step::Hold { key, kind: Kind::STATE_PIECE, state: piece.to_vec() });
                self.last_piece
            });
            numbers.push(number);
        }
        if self.latest.as_ref().is_some_and(|latest| latest.pieces == numbers) {
            return Vec::new();
        }
        self.is_safe = false;
        self.single = Vec::new();
        let number = self.begin(state, numbers);
        let index =
            Beside { index: Some(Index { latest: self.latest.clone(), safe: self.safe.clone() }) }.encode_to_vec();
        let mut beside = brief(MAX_STATE_BYTES.saturating_sub(index.len()));
        beside.extend(index);
        steps.push(Step::Hold { key: keys::STATE, kind: Kind::STATE, state: beside });
        steps.extend(self.release_unnamed());
        steps.push(Step::Barrier { number });
        steps
    }

    /// Notes what the holder is given now; returns the number of the barrier behind that.
    fn begin(&mut self, state: &[u8], pieces: Vec<u64>) -> u64 {
        self.last_generation += 1;
        let bytes = u64::try_from(state.len()).unwrap_or(u64::MAX);
        let checksum = pieces::checksum(state);
        self.latest = Some(Whole { generation: self.last_generation, pieces, bytes, checksum });
        keys::state_barrier(self.last_generation)
    }

    /// Lets go of the pieces of neither the latest state nor the last safe one.
    fn release_unnamed(&mut self) -> Vec<Step> {
        let named: BTreeSet<u64> =
            self.latest.iter().chain(&self.safe).flat_map(|whole| whole.pieces.clone()).collect();
        let gone = self.pieces.extract_if(|_, number| !named.contains(number)).map(|(_, number)| number);
        let gone: Vec<u64> = gone.chain(self.stale.extract_if(.., |number| !named.contains(number))).collect();
        gone.into_iter().map(|number| Step::Release { key: keys::piece(number) }).collect()
    }

    /// The holder has done, or refused, everything that came before a barrier. What is to be let go of then, if that was
    /// behind the latest state.
    pub(super) fn passed(&mut self, number: u64) -> Vec<Step> {
        let Some(latest) = self.latest.as_ref().filter(|latest| keys::state_barrier(latest.generation) == number)
        else {
            return Vec::new();
        };
        (self.is_safe, self.trouble) = (true, None);
        self.safe = Some(latest.clone()).filter(|whole| !whole.pieces.is_empty());
        self.release_unnamed()
    }

    /// Whether something that the holder does not keep belongs to the state, which it has not whole then.
    pub(super) fn refused(&mut self, key: u64, why: impl std::fmt::Display) -> bool {
        let piece = keys::piece_of(key);
        if piece.is_none() && key != keys::STATE {
            return false;
        }
        self.pieces.retain(|_, number| Some(*number) != piece);
        let is_named = |whole: &Whole| piece.is_none_or(|piece| whole.pieces.contains(&piece));
        if !self.latest.as_ref().is_some_and(is_named) {
            // Of a state before, which another one has followed.
            return true;
        }
        self.lacks(format!("the holder refuses it: {why}"));
        true
    }

    /// Something of the latest state could not be given to the holder.
    pub(super) fn lacks(&mut self, why: String) {
        (self.latest, self.is_safe, self.trouble) = (None, false, Some(why));
    }

    /// There is another holder, which has nothing.
    pub(super) fn begin_anew(&mut self) {
        let Self { last_piece, last_generation, .. } = *self;
        *self = Self { last_piece, last_generation, trouble: self.trouble.take(), ..Self::default() };
    }

    pub(super) fn readiness(&self) -> Readiness {
        match (&self.latest, &self.trouble) {
            (None, Some(trouble)) => Readiness::Lacking(trouble.clone()),
            _ if self.is_safe => Readiness::Ready,
            _ => Readiness::Asked,
        }
    }

    /// The barrier that has not been passed, to ask again: a holder does not tell what there is no room for.
    pub(super) fn open_barrier(&self) -> Option<u64> {
        let latest = self.latest.as_ref().filter(|_| !self.is_safe)?;
        Some(keys::state_barrier(latest.generation))
    }

    /// Why the holder has not the latest state.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

#[cfg(test)]
mod tests;
