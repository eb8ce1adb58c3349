//! A state of any size in pieces that a message has room for.
//!
//! It is cut where its bytes say, and not at fixed distances: where something is put in or taken out, the pieces around
//! it change and all others stay as they were, so that they need not be sent again. No piece is parsed on its own.

use crate::holder::MAX_STATE_BYTES;

/// Most bytes of a state. A server has some hundred bytes in it and a few thousand where its cgroup's path is long, and
/// what the holder keeps of all kinds may have four times as much.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// Least bytes of a piece that is not the last.
const LEAST_BYTES: usize = 8 * 1024;
/// A cut is made where these bits of the hash are not set: in one of 8192 places.
const MASK: u64 = ((1 << 13) - 1) << 32;

/// Most bytes of a state that is kept.
#[cfg(not(debug_assertions))]
pub(super) const fn most_bytes() -> usize {
    MOST_BYTES
}

/// Most bytes of a state that is kept, or what `MPS_TEST_MOST_STATE` says for a test that has no time for so many.
///
/// # Panics
/// When the variable is no number.
#[cfg(debug_assertions)]
pub(super) fn most_bytes() -> usize {
    static MOST: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *MOST.get_or_init(|| {
        std::env::var("MPS_TEST_MOST_STATE").map_or(MOST_BYTES, |text| text.parse().expect("it is a number of bytes"))
    })
}

/// A number for each byte, in no order that anything else has.
const fn numbers() -> [u64; 256] {
    let mut all = [0; 256];
    let (mut at, mut seed) = (0, 0_u64);
    while at < all.len() {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        all[at] = mixed ^ (mixed >> 31);
        at += 1;
    }
    all
}

static NUMBERS: [u64; 256] = numbers();

/// Where the first piece ends.
fn end_of_first(state: &[u8]) -> usize {
    let most = state.len().min(MAX_STATE_BYTES);
    let mut hash = 0_u64;
    for (at, byte) in state[..most].iter().enumerate() {
        // What came 64 bytes ago has left it.
        hash = (hash << 1).wrapping_add(NUMBERS[usize::from(*byte)]);
        if at + 1 >= LEAST_BYTES && hash & MASK == 0 {
            return at + 1;
        }
    }
    most
}

/// The pieces, which are the state again one after the other.
pub(super) fn cut(mut state: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !state.is_empty() {
        let (piece, rest) = state.split_at(end_of_first(state));
        pieces.push(piece);
        state = rest;
    }
    pieces
}

/// A sum that tells a state from another one; against mistakes, since who could forge it is the daemon itself.
pub(super) fn checksum(state: &[u8]) -> u64 {
    state.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn some(bytes: usize, mut seed: u64) -> Vec<u8> {
        let next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed.to_le_bytes()[7]
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    #[test]
    fn a_state_is_its_pieces_one_after_the_other_and_each_fits_into_a_message() {
        for state in [some(0, 1), some(1, 1), some(MAX_STATE_BYTES + 1, 2), some(1 << 20, 3), vec![7; 1 << 20]] {
            let pieces = cut(&state);
            assert_eq!(pieces.concat(), state);
            assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= MAX_STATE_BYTES));
            assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() >= LEAST_BYTES));
        }
    }

    #[test]
    fn what_is_put_in_changes_the_pieces_around_it_alone() {
        let before = some(1 << 20, 4);
        let known: HashSet<&[u8]> = cut(&before).into_iter().collect();
        for at in [0, 300_000, 1 << 20] {
            let mut after = before.clone();
            after.splice(at..at, some(150, 5));
            let new = cut(&after).into_iter().filter(|piece| !known.contains(piece)).count();
            assert!((1..=4).contains(&new), "{new} new pieces for something put in at {at}");
        }
    }

    #[test]
    fn a_byte_more_less_or_other_gives_another_sum() {
        assert_ne!(checksum(b"ab"), checksum(b"ba"));
        assert_ne!(checksum(b""), checksum(b"\0"));
    }
}
