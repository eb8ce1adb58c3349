//! Why a program is not recovered, as the program says it.
//!
//! The words come from a process that may be hostile and go to journals, lists and terminals, so they are printable ASCII of
//! a bounded length, or there is no message. Whether they are true nobody but the program knows.

use super::codec::{DecodeError, limited};
use super::wire;

/// Longest reason, in bytes.
pub const MAX_REASON_BYTES: usize = 160;

/// How a process does not go on after a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecovered {
    /// The how manieth time that a recovery of the process was refused, from 1.
    pub number: u64,
    /// The `CUresult` that the program has for an answer.
    pub error: u32,
    /// Why: see [`Self::words`].
    pub reason: String,
    /// Nothing is tried again.
    pub is_final: bool,
}

const fn is_printable(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte == b' '
}

impl Unrecovered {
    /// A text as a reason may be: cut, and with a question mark for what is not printable ASCII.
    #[must_use]
    pub fn words(text: &str) -> String {
        let printable = |of: char| u8::try_from(of).ok().filter(|byte| is_printable(*byte)).map_or('?', char::from);
        let words: String = text.chars().map(printable).take(MAX_REASON_BYTES).collect();
        if words.is_empty() { "?".to_owned() } else { words }
    }

    pub(super) fn check(&self) -> Result<(), DecodeError> {
        limited("reason", self.reason.len(), MAX_REASON_BYTES)?;
        if self.number == 0 {
            return Err(DecodeError::Value("a refusal has no number"));
        }
        if self.reason.is_empty() || !self.reason.bytes().all(is_printable) {
            return Err(DecodeError::Value("a reason is missing or has characters that are not printable ASCII"));
        }
        Ok(())
    }

    pub(super) fn read(unrecovered: wire::Unrecovered) -> Self {
        let wire::Unrecovered { number, error, reason, is_final } = unrecovered;
        Self { number, error, reason, is_final }
    }

    pub(super) fn write(self) -> wire::Unrecovered {
        let Self { number, error, reason, is_final } = self;
        wire::Unrecovered { number, error, reason, is_final }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::{Ask, FromShim};
    use prost::Message as _;

    fn plain() -> Unrecovered {
        Unrecovered { number: 1, error: 719, reason: "cuMemMap answers 2".to_owned(), is_final: true }
    }

    /// As a peer may send it that keeps no rules.
    fn sent(unrecovered: Unrecovered) -> Result<FromShim, DecodeError> {
        let content = Some(wire::from_shim::Content::Unrecovered(unrecovered.write()));
        FromShim::decode(&wire::FromShim { request: 1, content }.encode_to_vec())
    }

    #[test]
    fn a_reason_that_no_terminal_should_see_is_no_message() {
        assert_eq!(sent(plain()).map(|message| message.ask), Ok(Ask::Unrecovered(plain())));
        let with = |reason: &str| Unrecovered { reason: reason.to_owned(), ..plain() };
        let long = "x".repeat(MAX_REASON_BYTES + 1);
        for odd in [
            Unrecovered { number: 0, ..plain() },
            with(""),
            with("a\nb"),
            with("\u{1b}[2J"),
            with("\u{e9}"),
            with(&long),
        ] {
            assert!(FromShim { request: 1, ask: Ask::Unrecovered(odd.clone()) }.encode().is_err(), "{odd:?}");
            assert!(sent(odd.clone()).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn any_text_becomes_a_reason() {
        for (text, words) in [("plain: 2", "plain: 2"), ("", "?"), ("a\n\u{1b}\u{e9}b\u{0}", "a???b?")] {
            assert_eq!(Unrecovered::words(text), words);
        }
        let long = Unrecovered::words(&"\u{1F600}".repeat(1000));
        assert_eq!(long.len(), MAX_REASON_BYTES);
        assert!(Unrecovered { reason: long, ..plain() }.check().is_ok());
    }
}
