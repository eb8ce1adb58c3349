//! Random packets that can be had again: the seed is printed, and `REMPS_SEED` sets it.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;

/// Longest random packet, longer than any of the wire's.
const LONGEST: u32 = 2048;

/// A source of random packets (xorshift64*, from its published description).
#[derive(Debug)]
pub struct Noise(u64);

impl Noise {
    /// A source with the seed of `REMPS_SEED`, else a new one.
    ///
    /// # Panics
    /// When the variable is no number.
    #[must_use]
    pub fn new() -> Self {
        let seed = match std::env::var("REMPS_SEED") {
            Ok(text) => text.parse().expect("REMPS_SEED is a number"),
            Err(_) => RandomState::new().hash_one(std::process::id()),
        };
        // Captured by the harness, and shown when the test fails.
        let _ = writeln!(std::io::stderr(), "REMPS_SEED={seed}");
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        u32::try_from((self.next() >> 32) % u64::from(bound)).expect("a remainder is smaller than its divisor")
    }

    /// An index into something of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u32::try_from(length).unwrap_or(u32::MAX))).expect("32 bits fit")
    }

    /// A packet of random bytes, mostly short; sometimes empty.
    pub fn packet(&mut self) -> Vec<u8> {
        let most = if self.below(8) == 0 { LONGEST } else { 24 };
        (0..self.below(most)).map(|_| self.next().to_le_bytes()[7]).collect()
    }

    /// A packet with a bit flipped, cut short, lengthened or, often, as it was.
    pub fn mutated(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut packet = packet.to_vec();
        match self.below(6) {
            0 if !packet.is_empty() => {
                let at = self.index(packet.len());
                packet[at] ^= 1 << self.below(8);
            }
            1 if !packet.is_empty() => packet.truncate(self.index(packet.len())),
            2 => packet.extend(self.packet()),
            3 => packet = self.packet(),
            _ => {}
        }
        packet
    }
}

impl Default for Noise {
    fn default() -> Self {
        Self::new()
    }
}
