//! Copies by one call that are several, or between contexts.

use super::super::api::{Answer, Failed};
use super::super::program::{CELL, Copying, Place};
use super::{Machine, arrays};

/// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`, which `CUmemcpyAttributes` begins with.
const IN_ORDER: [u32; 6] = [1, 0, 0, 0, 0, 0];
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 801;

impl Machine<'_> {
    pub(super) fn batch(&self, copies: &[Copying], stream: u8) -> Answer {
        let side = |place: fn(&Copying) -> Place| copies.iter().map(|copy| self.at(place(copy))).collect();
        let (to, from): (Answer<Vec<usize>>, Answer<Vec<usize>>) = (side(|copy| copy.to), side(|copy| copy.from));
        let (to, from) = (to?, from?);
        let sizes: Vec<usize> = copies.iter().map(|copy| usize::from(copy.cells) * CELL).collect();
        let (sizes, count, first) = (sizes.as_ptr(), copies.len(), [0]);
        let stream = self.stream(stream)?;
        let attributes = IN_ORDER.as_ptr();
        self.api.cuMemcpyBatchAsync_v2(to.as_ptr(), from.as_ptr(), sizes, count, attributes, first.as_ptr(), 1, stream)
    }

    /// After a recovery the library refuses the one function by name, and a program goes the other way.
    pub(super) fn peer_copy(&self, to: Place, from: Place, size: usize) -> Answer {
        let (target, source) = (self.block(to.block)?, self.block(from.block)?);
        let contexts = [source, target].map(|block| self.base.context(block.device));
        let (to, from) = (self.at(to)?, self.at(from)?);
        let mut words = [0_u64; 25];
        for (first, address, context) in [(0, from, contexts[0]), (11, to, contexts[1])] {
            let side = &mut words[first..first + 11];
            (side[4], side[6], side[8]) = (arrays::UNIFIED, address as u64, context as u64);
            (side[9], side[10]) = (size as u64, 1);
        }
        (words[22], words[23], words[24]) = (size as u64, 1, 1);
        match self.api.cuMemcpy3DPeer(words.as_ptr()) {
            Err(Failed { code: NOT_SUPPORTED, .. }) if super::super::api::has_recovered() => {
                self.api.cuMemcpyPeer(to, contexts[1], from, contexts[0], size)
            }
            answer => answer,
        }
    }
}
