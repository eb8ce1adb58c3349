//! What a handle of ours says: whom to ask, for which block, and where it is in which piece of memory.

use crate::{cuda::types::CUipcMemHandle, kept::memory::region::PAGE, process::passing::Secret};

/// What a handle of ours begins with. The driver's begin with numbers.
const MAGIC: [u8; 8] = *b"ReMPSip3";

/// What a handle of ours says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Whom to ask.
    pub(super) secret: Secret,
    /// For which block: a number that no other one has, or had.
    pub(super) block: u64,
    /// The piece of memory that it lies in, by such a number.
    pub(super) piece: u64,
    /// Its bytes.
    pub(super) size: u64,
    /// Where in it the block begins.
    pub(super) offset: u64,
    /// The block's bytes.
    pub(super) length: u64,
}

impl Said {
    pub(super) fn write(&self) -> CUipcMemHandle {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.secret);
        let words = [self.piece, self.size, self.offset, self.block, self.length];
        for (place, word) in bytes[24..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        CUipcMemHandle(bytes)
    }

    /// `None` of what is not ours, or is none that we have written.
    pub(super) fn read(CUipcMemHandle(bytes): &CUipcMemHandle) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let secret = *bytes[8..].first_chunk()?;
        let [piece, size, offset, block, length] = [word(24)?, word(32)?, word(40)?, word(48)?, word(56)?];
        let lies_inside = length > 0 && offset.checked_add(length).is_some_and(|end| end <= size);
        let is_sound = bytes.starts_with(&MAGIC) && size.is_multiple_of(PAGE) && lies_inside;
        is_sound.then_some(Self { secret, block, piece, size, offset, length })
    }
}
