//! What a handle of an event says: whom to ask for its page, and where in that its place is.

use super::slot::COUNT;
use crate::{
    cuda::types::{CUipcEventHandle, Key as _},
    process::passing::{EVENTS, Secret},
};

/// What a handle of ours begins with. The driver's begin with numbers.
const MAGIC: [u8; 8] = *b"ReMPSevt";

/// The number by which the other end of a process's lifeline is asked for.
pub(super) const LIFELINE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) secret: Secret,
    /// The page's number.
    pub(super) page: u64,
    /// Its place there.
    pub(super) index: u64,
    /// Which event that was.
    pub(super) event: u64,
}

impl Said {
    pub(super) fn write(&self) -> CUipcEventHandle {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.secret);
        for (place, word) in bytes[24..48].chunks_exact_mut(8).zip([self.page, self.index, self.event]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        CUipcEventHandle(bytes)
    }

    /// `None` of what is not ours, or is none that we have written.
    pub(super) fn read(CUipcEventHandle(bytes): &CUipcEventHandle) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let secret = *bytes[8..].first_chunk()?;
        let said = Self { secret, page: word(24)?, index: word(32)?, event: word(40)? };
        let is_sound = bytes.starts_with(&MAGIC) && (EVENTS..LIFELINE).contains(&said.page) && said.index < COUNT.key();
        is_sound.then_some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNT, CUipcEventHandle, EVENTS, LIFELINE, Said};
    use crate::cuda::types::Key as _;

    const SAID: Said = Said { secret: [7; 16], page: EVENTS + 5, index: 3, event: 9 };

    #[test]
    fn a_handle_says_what_was_written_and_others_say_nothing() {
        assert_eq!(Said::read(&SAID.write()), Some(SAID));
        assert_eq!(Said::read(&CUipcEventHandle([3; 64])), None);
        for wrong in [
            Said { page: 5, ..SAID },
            Said { page: LIFELINE, ..SAID },
            Said { index: COUNT.key(), ..SAID },
            Said { index: u64::MAX, ..SAID },
        ] {
            assert_eq!(Said::read(&wrong.write()), None, "{wrong:?}");
        }
    }
}
