//! What a server writes to its standard error, as lines for the log.
//!
//! Bounded in every direction: a line of at most [`MAX_LINE`] bytes (the rest starts a new one), at most
//! [`LINES_PER_SECOND`] lines kept, the others counted; the pipe is always drained, so no server ever blocks in a write.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::time::Instant;

/// Longest line in bytes.
pub(crate) const MAX_LINE: usize = 4096;
/// Lines kept in each second.
pub(crate) const LINES_PER_SECOND: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
/// Bytes read in one turn.
const READ_SIZE: usize = 4096;

/// Lines of one turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The lines kept, without newline and never empty.
    pub lines: Vec<Vec<u8>>,
    /// Lines not kept since the last turn.
    pub dropped: u32,
}

/// Reads the lines.
#[derive(Debug)]
pub struct ServerStderr {
    pipe: ChildStderr,
    buffer: Box<[u8]>,
    splitter: Splitter,
}

#[derive(Debug)]
struct Splitter {
    rest: Vec<u8>,
    second_began: Instant,
    kept: u32,
}

impl ServerStderr {
    /// Takes the read end.
    #[must_use]
    pub fn new(pipe: ChildStderr) -> Self {
        Self {
            pipe,
            buffer: vec![0; READ_SIZE].into_boxed_slice(),
            splitter: Splitter { rest: Vec::new(), second_began: Instant::now(), kept: 0 },
        }
    }

    /// Takes the read end of a pipe that an earlier daemon had.
    ///
    /// # Errors
    /// When the descriptor can't be watched.
    pub fn from_fd(pipe: OwnedFd) -> std::io::Result<Self> {
        ChildStderr::from_std(std::process::ChildStderr::from(pipe)).map(Self::new)
    }

    /// Waits for lines; `None` at the end, which comes when the server and all that inherited from it have closed it.
    /// May be dropped at any time without losing a line.
    pub async fn read(&mut self) -> Option<Lines> {
        // A failing pipe has no more to say.
        let count = self.pipe.read(&mut self.buffer).await.unwrap_or(0);
        if count == 0 {
            let last = self.splitter.finish(Instant::now());
            return (last != Lines::default()).then_some(last);
        }
        Some(self.splitter.push(&self.buffer[..count], Instant::now()))
    }
}

impl AsFd for ServerStderr {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Splitter {
    fn push(&mut self, mut bytes: &[u8], now: Instant) -> Lines {
        let mut out = Lines::default();
        while !bytes.is_empty() {
            let newline = bytes.iter().position(|byte| *byte == b'\n');
            let room = MAX_LINE - self.rest.len();
            let take = newline.unwrap_or(bytes.len()).min(room);
            self.rest.extend_from_slice(&bytes[..take]);
            let ended = newline == Some(take);
            bytes = &bytes[take + usize::from(ended)..];
            if ended || self.rest.len() == MAX_LINE {
                self.emit(&mut out, now);
            }
        }
        out
    }

    fn finish(&mut self, now: Instant) -> Lines {
        let mut out = Lines::default();
        self.emit(&mut out, now);
        out
    }

    fn emit(&mut self, out: &mut Lines, now: Instant) {
        let line = std::mem::take(&mut self.rest);
        if line.is_empty() {
            return;
        }
        if now.duration_since(self.second_began) >= SECOND {
            self.second_began = now;
            self.kept = 0;
        }
        if self.kept < LINES_PER_SECOND {
            self.kept += 1;
            out.lines.push(line);
        } else {
            out.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splitter(now: Instant) -> Splitter {
        Splitter { rest: Vec::new(), second_began: now, kept: 0 }
    }

    #[test]
    fn lines_come_out_whole_however_the_bytes_arrive() {
        let now = Instant::now();
        for size in 1..8 {
            let mut splitter = splitter(now);
            let mut lines = Vec::new();
            for piece in b"one\n\ntwo\nend".chunks(size) {
                lines.extend(splitter.push(piece, now).lines);
            }
            lines.extend(splitter.finish(now).lines);
            assert_eq!(lines, [b"one".to_vec(), b"two".to_vec(), b"end".to_vec()]);
        }
    }

    #[test]
    fn a_line_without_end_is_cut_and_bounded() {
        let now = Instant::now();
        let mut splitter = splitter(now);
        let lines = splitter.push(&[b'x'; 2 * MAX_LINE + 5], now).lines;
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_LINE, MAX_LINE]);
        assert_eq!(splitter.rest.len(), 5);
    }

    #[test]
    fn lines_over_the_rate_are_counted_and_the_next_second_starts_afresh() {
        let now = Instant::now();
        let mut splitter = splitter(now);
        let flood = b"x\n".repeat(LINES_PER_SECOND as usize + 7);
        let out = splitter.push(&flood, now);
        assert_eq!((out.lines.len(), out.dropped), (LINES_PER_SECOND as usize, 7));
        assert_eq!(splitter.push(b"y\n", now + SECOND).lines, [b"y".to_vec()]);
    }
}
