//! The latest bytes of the log FIFO, kept while there is no daemon to write them down.

use std::collections::VecDeque;

use remps_proto::holder::MAX_STATE_BYTES;

/// Bytes kept unless the daemon says otherwise.
pub(super) const DEFAULT_LIMIT_BYTES: usize = 256 * 1024;
/// Small reads are counted together up to this size, so that a writer of single bytes costs no more than any other.
const BLOCK_BYTES: usize = 4096;

/// A queue of whole reads with a limit; the oldest are dropped and counted.
#[derive(Debug)]
pub(super) struct Backlog {
    bytes: VecDeque<u8>,
    /// Lengths of the blocks that are dropped as one, oldest first.
    blocks: VecDeque<usize>,
    dropped: u64,
    limit: usize,
}

impl Backlog {
    pub(super) fn new() -> Self {
        Self { bytes: VecDeque::new(), blocks: VecDeque::new(), dropped: 0, limit: DEFAULT_LIMIT_BYTES }
    }

    /// Sets the limit; what is beyond it is dropped at once.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.shorten();
    }

    /// Adds what one read returned.
    pub(super) fn push(&mut self, read: &[u8]) {
        if read.is_empty() {
            return;
        }
        match self.blocks.back_mut() {
            Some(block) if *block + read.len() <= BLOCK_BYTES => *block += read.len(),
            Some(_) | None => self.blocks.push_back(read.len()),
        }
        self.bytes.extend(read);
        self.shorten();
    }

    fn shorten(&mut self) {
        while self.bytes.len() > self.limit {
            let Some(block) = self.blocks.pop_front() else { break };
            self.bytes.drain(..block);
            self.dropped += u64::try_from(block).unwrap_or(u64::MAX);
        }
    }

    /// Whether there is nothing to tell a successor.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.dropped == 0
    }

    /// Bytes kept.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes lost since the last [`clear`](Self::clear).
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The piece that begins at an offset, no longer than a state may be.
    pub(super) fn piece(&self, offset: usize) -> Vec<u8> {
        self.bytes.iter().skip(offset).take(MAX_STATE_BYTES).copied().collect()
    }

    /// Forgets everything: a daemon has written it down.
    pub(super) fn clear(&mut self) {
        self.bytes = VecDeque::new();
        self.blocks = VecDeque::new();
        self.dropped = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_reads_are_kept_whole_and_the_rest_is_counted() {
        let mut backlog = Backlog::new();
        backlog.set_limit(3 * BLOCK_BYTES);
        for letter in b"abcde" {
            backlog.push(&[*letter; BLOCK_BYTES]);
        }
        assert_eq!((backlog.len(), backlog.dropped()), (3 * BLOCK_BYTES, 2 * 4096));
        let kept = backlog.piece(0);
        assert_eq!((kept[0], kept[BLOCK_BYTES], kept[3 * BLOCK_BYTES - 1]), (b'c', b'd', b'e'));
        assert_eq!(backlog.piece(2 * BLOCK_BYTES), vec![b'e'; BLOCK_BYTES]);

        backlog.set_limit(BLOCK_BYTES);
        assert_eq!((backlog.len(), backlog.dropped()), (BLOCK_BYTES, 4 * 4096));
        backlog.clear();
        assert!(backlog.is_empty());
    }

    #[test]
    fn single_bytes_cost_no_more_than_blocks() {
        let mut backlog = Backlog::new();
        for _ in 0..2 * DEFAULT_LIMIT_BYTES {
            backlog.push(b"x");
        }
        assert!(backlog.len() <= DEFAULT_LIMIT_BYTES && backlog.len() > DEFAULT_LIMIT_BYTES - 2 * BLOCK_BYTES);
        assert_eq!(backlog.dropped() + u64::try_from(backlog.len()).unwrap(), 2 * 256 * 1024);
        assert!(backlog.blocks.len() <= DEFAULT_LIMIT_BYTES / BLOCK_BYTES + 1);
    }
}
