//! Blocks that are arrays: one row of words, which a texture object reads and a surface object writes.

use super::super::api::Answer;
use super::super::program::{BLOCK, CELL, Place};
use super::Machine;

/// `CU_MEMORYTYPE_HOST`, `…_ARRAY`, `…_UNIFIED`.
pub(super) const HOST: u64 = 1;
const ARRAY: u64 = 3;
pub(super) const UNIFIED: u64 = 4;
/// `CU_AD_FORMAT_UNSIGNED_INT32` with one channel; `CUDA_ARRAY3D_SURFACE_LDST`.
const WORDS: u64 = 3 | 1 << 32;
const SURFACE: u64 = 2;
/// `CU_TRSF_READ_AS_INTEGER`, where `CUDA_TEXTURE_DESC` has its flags.
const AS_INTEGER: u64 = 1;
const FLAGS: usize = 2;

/// The objects by which kernels see an array, and whose device's they are.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Seen {
    texture: u64,
    surface: u64,
    device: u8,
}

/// One side of a copy: the kind of memory, the address or the array's handle, and how far from there.
type Side = (u64, usize, usize);

impl Machine<'_> {
    pub(super) fn is_array(&self, place: Place) -> Answer<bool> {
        Ok(self.block(place.block)?.seen.texture != 0)
    }

    pub(super) fn make_array(&self, device: u8) -> Answer<(usize, Seen)> {
        let (mut array, mut texture, mut surface) = (0, 0, 0);
        let words = [BLOCK as u64 / 4, 0, 0, WORDS, SURFACE];
        self.api.cuArray3DCreate_v2(&raw mut array, words.as_ptr())?;
        let (mut resource, mut how) = ([0; 18], [0; 13]);
        resource[1] = array as u64;
        how[FLAGS] = AS_INTEGER;
        self.api.cuTexObjectCreate(&raw mut texture, resource.as_ptr(), how.as_ptr(), std::ptr::null())?;
        self.api.cuSurfObjectCreate(&raw mut surface, resource.as_ptr())?;
        Ok((array, Seen { texture, surface, device }))
    }

    pub(super) fn end_array(&self, array: usize, seen: Seen) -> Answer {
        self.enter(seen.device)?;
        self.api.cuSurfObjectDestroy(seen.surface)?;
        // The texture outlives its array.
        self.api.cuArrayDestroy(array)?;
        self.api.cuTexObjectDestroy(seen.texture)
    }

    /// The kernel that works on this memory with that, which may be an array, and its arguments.
    pub(super) fn mixing(&self, to: Place, from: Place, cells: u8, key: u32, device: u8) -> Answer<(usize, Vec<u64>)> {
        let (kernels, count) = (self.base.kernels(device), u64::from(cells) * CELL as u64 / 4);
        let first = |place: Place| u64::from(place.first) * CELL as u64 / 4;
        let key = u64::from(key);
        if self.is_array(to)? {
            let surface = self.block(to.block)?.seen.surface;
            return Ok((kernels.paint, vec![surface, self.at(from)? as u64, count, key, first(to)]));
        }
        if self.is_array(from)? {
            let texture = self.block(from.block)?.seen.texture;
            return Ok((kernels.look, vec![texture, self.at(to)? as u64, count, key, first(from)]));
        }
        Ok((kernels.mix, vec![self.at(to)? as u64, self.at(from)? as u64, count, key]))
    }

    pub(super) fn side(&self, place: Place) -> Answer<Side> {
        if self.is_array(place)? {
            return Ok((ARRAY, self.block(place.block)?.owner, usize::from(place.first) * CELL));
        }
        Ok((if self.is_host(place)? { HOST } else { UNIFIED }, self.at(place)?, 0))
    }

    /// Copies a row.
    pub(super) fn copy_row(
        &self,
        to: Side,
        from: Side,
        size: usize,
        (is_own, stream): (bool, usize),
        is_async: bool,
    ) -> Answer {
        let mut words = [0_u64; 16];
        for (first, (kind, place, offset)) in [(0, from), (7, to)] {
            let side = &mut words[first..first + 7];
            (side[0], side[2]) = (offset as u64, kind);
            let at = [3, 4, 5][[HOST, UNIFIED, ARRAY].iter().position(|one| *one == kind).unwrap_or_default()];
            side[at] = place as u64;
        }
        (words[14], words[15]) = (size as u64, 1);
        let words = words.as_ptr();
        match (is_async, is_own) {
            (true, true) => self.api.cuMemcpy2DAsync_v2_ptsz(words, stream),
            (true, false) => self.api.cuMemcpy2DAsync_v2(words, stream),
            (false, true) => self.api.cuMemcpy2D_v2_ptds(words),
            (false, false) => self.api.cuMemcpy2D_v2(words),
        }
    }
}
