//! How the answers to this daemon are told from those to the ones that died before it.

use remps_proto::mps::server::Request;
use std::collections::VecDeque;

/// Bits of the number in a [`Marker`].
const MARKER_BITS: u32 = 24;
/// Bits between two short packets; fewer than the long ones at the start of a row.
const MARKER_GROUP: usize = 3;
/// Long packets at the start of a row.
const MARKER_START: usize = 6;

/// A row of requests whose answers have lengths that mark the end of what earlier daemons asked.
///
/// Six long ones, which come nowhere else in the row, then the number's bits, long for one, with a short one before
/// every three of them and at the end: no row ends within another one of the same number, and what a dead daemon asked
/// looks like it once in sixteen million times.
#[derive(Debug)]
pub(super) struct Marker {
    /// Whether the answer is long, in order.
    pub(super) row: Vec<bool>,
    /// The last answers, as many as the row is long; `None` for one of another length.
    seen: VecDeque<Option<bool>>,
}

impl Marker {
    fn new(number: u32) -> Self {
        let mut row = vec![true; MARKER_START];
        let bits: Vec<bool> = (0..MARKER_BITS).map(|bit| number >> bit & 1 == 1).collect();
        for group in bits.chunks(MARKER_GROUP) {
            row.push(false);
            row.extend(group);
        }
        row.push(false);
        Self { seen: VecDeque::with_capacity(row.len()), row }
    }

    /// A number that no other daemon has used, as far as chance allows.
    pub(super) fn any() -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        let random = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        Self::new(u32::from_le_bytes([random[0], random[1], random[2], random[3]]))
    }

    /// What is asked, in order.
    pub(super) fn requests(&self) -> Vec<Vec<u8>> {
        let request = |long: &bool| if *long { Request::GetThreadPercentage } else { Request::Status };
        self.row.iter().flat_map(|long| request(long).packets()).collect()
    }

    /// Takes the length of a packet; whether the row ends with it.
    pub(super) fn is_end(&mut self, length: usize) -> bool {
        if self.seen.len() == self.row.len() {
            self.seen.pop_front();
        }
        self.seen.push_back(match length {
            8 => Some(true),
            4 => Some(false),
            _ => None,
        });
        self.seen.len() == self.row.len() && self.seen.iter().zip(&self.row).all(|(seen, row)| *seen == Some(*row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_of_answers_ends_within_another() {
        let numbers = [0, 1, 0b1010_1010, 0xff_ffff, 0x80_0000, 0x12_3456];
        for first in numbers {
            for second in numbers.into_iter().filter(|second| *second != first) {
                let mut waits = Marker::new(second);
                let length = |long: &bool| if *long { 8 } else { 4 };
                let stream: Vec<usize> =
                    Marker::new(first).row.iter().chain(&Marker::new(second).row).map(length).collect();
                let ends: Vec<usize> = (0..stream.len()).filter(|&index| waits.is_end(stream[index])).collect();
                assert_eq!(ends, [stream.len() - 1], "{first:x} before {second:x}");
            }
        }
    }
}
