//! Standard output as a log: a pipe, a terminal, a socket of the journal, or a file.
//!
//! It is shared with others, so its flags are left alone; whatever can block is written in a way that does not. A line
//! that was written in part is finished before the next one begins; while that does not work, lines are lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use crate::sys::proc::path_of;

/// Bytes that a pipe takes without blocking whenever it polls writable (`PIPE_BUF`).
const PIECE: usize = 4096;

#[derive(Debug)]
enum Way {
    /// Cannot block, or has a non-blocking description of its own.
    Write(File),
    /// A socket: each send says that it must not block.
    Send(OwnedFd),
    /// Polled before each small piece.
    Poll(File),
}

/// An open stream.
#[derive(Debug)]
pub(super) struct LogStream {
    way: Way,
    /// The rest of a line that was written in part.
    rest: Vec<u8>,
}

impl LogStream {
    /// Takes a duplicate of a descriptor.
    ///
    /// # Errors
    /// When it is closed.
    pub(super) fn new(fd: impl AsFd) -> io::Result<Self> {
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        let kind = file.metadata()?.file_type();
        let way = if kind.is_socket() {
            Way::Send(file.into())
        } else if kind.is_fifo() || kind.is_char_device() {
            // A second description of the same pipe or terminal can be non-blocking for us alone. A terminal of another
            // user cannot be opened again.
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            match OpenOptions::new().write(true).custom_flags(flags).open(path_of(&file)) {
                Ok(own) => Way::Write(own),
                Err(_) => Way::Poll(file),
            }
        } else {
            Way::Write(file)
        };
        Ok(Self { way, rest: Vec::new() })
    }

    /// Writes whole lines. Success means that they will come out whole, the last one perhaps with the next call.
    ///
    /// # Errors
    /// `WouldBlock` when the reader is stuck, `BrokenPipe` when there is none; nothing was written then.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        while !self.rest.is_empty() {
            let count = self.way.write(&self.rest)?;
            self.rest.drain(..count);
        }
        let mut written = 0;
        while written < lines.len() {
            match self.way.write(&lines[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if written == 0 => return Err(error),
                Err(_) => {
                    self.rest.extend_from_slice(&lines[written..]);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Way {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = match self {
            Self::Write(file) => file.write(bytes)?,
            Self::Send(socket) => send(socket.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)?,
            Self::Poll(file) => {
                let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut fds, PollTimeout::ZERO)? == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                file.write(&bytes[..bytes.len().min(PIECE)])?
            }
        };
        if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests;
