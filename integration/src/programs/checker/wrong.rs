//! What may be found in a program's disturbed run, and how it is told. [`judge`](super::judge) has the rule.

use super::api::Failed;
use super::program::{CELL, Memory, Place};
use serde::Serialize;
use std::fmt;

/// The bytes of a cell.
pub(super) type Bytes = [u8; CELL];

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The undisturbed run has failed: a mistake of the checker, of the driver or of the library at rest.
    Undisturbed(Failed),
    /// A value that was not in doubt differs.
    Value { memory: Memory, found: Bytes, expected: Bytes },
    /// A value that was in doubt differs, and its thread was not told.
    Untold { memory: Memory, found: Bytes, expected: Bytes },
    /// Its thread was told, and `mps_shim_in_doubt` does not have it.
    NotInDoubt { memory: Memory },
    /// A call fails though nothing was lost.
    NothingWasLost(Failed),
    /// It goes on failing.
    Persistent(Failed),
    /// It was not recovered.
    Refused(Failed, String),
    /// There was a recovery, from this error, and nothing that it could be from.
    Unprovoked(u32),
}

impl Wrong {
    /// The kind alone, by which a shorter program is compared with the one that it is made of.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Undisturbed(_) => "undisturbed",
            Self::Value { .. } => "value",
            Self::Untold { .. } => "untold",
            Self::NotInDoubt { .. } => "not-in-doubt",
            Self::NothingWasLost(_) => "nothing-was-lost",
            Self::Persistent(_) => "persistent",
            Self::Refused(..) => "refused",
            Self::Unprovoked(_) => "unprovoked",
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |f: &mut fmt::Formatter<'_>, found: &Bytes, expected: &Bytes| {
            write!(f, " begins with {:#x} in place of {:#x}", first_word(found), first_word(expected))
        };
        match self {
            Self::Undisturbed(Failed { call, code }) => write!(f, "{call} answers {code} in the undisturbed run"),
            Self::Value { memory, found, expected } => {
                write!(f, "a cell of {memory:?} memory that was not in doubt")?;
                values(f, found, expected)
            }
            Self::Untold { memory, found, expected } => {
                write!(f, "a cell of {memory:?} memory, of which its thread was not told,")?;
                values(f, found, expected)
            }
            Self::NotInDoubt { memory } => {
                write!(f, "lost work has left a cell of {memory:?} memory that mps_shim_in_doubt does not have")
            }
            Self::NothingWasLost(Failed { call, code }) => write!(f, "{call} answers {code} though nothing was lost"),
            Self::Persistent(Failed { call, code }) => write!(f, "{call} answers {code} again and again"),
            Self::Refused(Failed { call, code }, why) => write!(f, "{call} answers {code}, and no recovery: {why}"),
            Self::Unprovoked(error) => write!(f, "a recovery from error {error}, and no fault for it"),
        }
    }
}

/// A cell that has another value than in the undisturbed run: what helps to find out why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Differing {
    place: Place,
    memory: Memory,
    /// The first word.
    found: u32,
    expected: u32,
    is_in_doubt: bool,
    /// The type of memory that the driver has it for, or the error of asking.
    known_as: Result<u32, u32>,
}

impl Differing {
    pub(super) fn new(
        (place, memory): (Place, Memory),
        is_in_doubt: bool,
        known_as: Result<u32, u32>,
        found: &Bytes,
        expected: &Bytes,
    ) -> Self {
        Self { place, memory, found: first_word(found), expected: first_word(expected), is_in_doubt, known_as }
    }
}

fn first_word(bytes: &Bytes) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
