//! What several messages are made of: how it is written, and what may be in it.

use super::{DecodeError, limited, name, word};
use crate::shim::message::{Commit, Inherited, Range, Region};
use crate::shim::wire;
use crate::shim::{MAX_COMMIT_BYTES, MAX_GPU_BYTES, MAX_LABEL_BYTES, MAX_RANGES, Rest};

impl Region {
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        name(&self.name)?;
        word("GPU", &self.gpu, MAX_GPU_BYTES, "a GPU has characters that are not printable ASCII")?;
        if self.bytes == 0 { Err(DecodeError::Value("a region has no bytes")) } else { Ok(()) }
    }

    pub(super) fn read(region: Option<wire::Region>) -> Result<Self, DecodeError> {
        let region = region.ok_or(DecodeError::Value("an escrow has no region"))?;
        let wire::Region { key, name, gpu, bytes, address, handle_type, flags, owner, left_ms } = region;
        let region = Self { key, name, gpu, bytes, address, handle_type, flags, owner, left_ms };
        region.check()?;
        Ok(region)
    }

    pub(super) fn write(self) -> wire::Region {
        let Self { key, name, gpu, bytes, address, handle_type, flags, owner, left_ms } = self;
        wire::Region { key, name, gpu, bytes, address, handle_type, flags, owner, left_ms }
    }
}

impl Commit {
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        limited("commit", self.data.len(), MAX_COMMIT_BYTES)?;
        limited("ranges", self.ranges.len(), MAX_RANGES)?;
        for range in &self.ranges {
            word("label", &range.label, MAX_LABEL_BYTES, "a label has characters that are not printable ASCII")?;
            if range.label.is_empty() || range.address.checked_add(range.bytes).is_none() {
                return Err(DecodeError::Value("a range has no label or no end"));
            }
        }
        Ok(())
    }

    pub(super) fn read(generation: u64, data: Vec<u8>, ranges: Vec<wire::Range>) -> Self {
        let range = |wire::Range { label, address, bytes, flags }| Range { label, address, bytes, flags };
        Self { generation, data, ranges: ranges.into_iter().map(range).collect() }
    }

    pub(super) fn write(self) -> (u64, Vec<u8>, Vec<wire::Range>) {
        let range = |Range { label, address, bytes, flags }| wire::Range { label, address, bytes, flags };
        (self.generation, self.data, self.ranges.into_iter().map(range).collect())
    }
}

impl Inherited {
    pub(super) fn read(inherited: wire::Inherited) -> Result<Self, DecodeError> {
        let wire::Inherited { is_committed, generation, data, ranges, predecessor, server, rest } = inherited;
        let commit = is_committed.then(|| Commit::read(generation, data, ranges));
        commit.as_ref().map_or(Ok(()), Commit::check)?;
        Ok(Self { commit, predecessor, server, rest: Rest(rest) })
    }

    pub(super) fn write(self) -> wire::Inherited {
        let Self { commit, predecessor, server, rest } = self;
        let is_committed = commit.is_some();
        let (generation, data, ranges) = commit.unwrap_or_default().write();
        wire::Inherited { is_committed, generation, data, ranges, predecessor, server, rest: rest.0 }
    }
}
