//! Random numbers, the same ones for the same seed on every machine.

/// Random numbers (`SplitMix64`).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below a small number.
    pub(super) fn below(&mut self, end: u8) -> u8 {
        u8::try_from(self.next() % u64::from(end.max(1))).unwrap_or(0)
    }

    /// True so many times in a hundred.
    pub(super) fn in_hundred(&mut self, times: u8) -> bool {
        self.below(100) < times
    }
}
