//! The log FIFO, `$CUDA_MPS_PIPE_DIRECTORY/log`: servers of every user write their log records into it.
//!
//! The vendor's reader ends at the first malformed record, and then every writer blocks once 64 KiB are queued. This
//! one never stops: garbage is skipped and counted, a record that a dead writer left half written is given up after
//! [`HALF_RECORD_DEADLINE`], the pipe is as large as an ordinary user may make it, and one turn takes a bounded
//! amount, so that a flood of records starves nobody.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use remps_proto::mps::log::{Decoder, HEADER_LENGTH, Record};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::folder::Folder;
use crate::sys::polled::register;

/// Mode of the FIFO: servers run as other users and must write, nobody else needs to read.
pub const MODE: u32 = 0o622;
/// How long the rest of a half-written record is waited for.
pub const HALF_RECORD_DEADLINE: Duration = Duration::from_secs(1);
/// Bytes read in one turn.
const READ_SIZE: usize = 64 * 1024;
/// Size of the pipe: the most that the kernel grants an ordinary user by default (`/proc/sys/fs/pipe-max-size`).
const PIPE_SIZE: i32 = 1 << 20;

/// Makes the FIFO anew and opens it, non-blocking and close-on-exec. Needs no runtime.
///
/// What has the name is replaced (a reader of a dead daemon's FIFO could otherwise take our records) unless it is a
/// directory; nothing that has the name is opened, nor followed.
///
/// # Errors
/// What the kernel says.
pub fn create(folder: &Folder, name: &str, mode: u32) -> io::Result<OwnedFd> {
    Ok(folder.fifo(name, Mode::from_bits_truncate(mode))?.into())
}

/// Reads the records.
#[derive(Debug)]
pub struct LogFifo {
    fd: AsyncFd<OwnedFd>,
    decoder: Decoder,
    buffer: Box<[u8]>,
    /// Bytes given to the decoder.
    pushed: u64,
    /// Bytes of the records it gave back.
    decoded: u64,
    /// Until when the rest of a half record is waited for. Kept here, because the future of one read may be dropped.
    half_until: Option<Instant>,
}

impl LogFifo {
    /// Takes an open FIFO: from [`create`], or one that outlived another daemon.
    ///
    /// # Errors
    /// When the descriptor cannot be polled. Panics outside a tokio runtime, as every `AsyncFd` does.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        // Refused above the system's limit; the default size works too, only with less room for a burst.
        let _ = fcntl(&fd, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE));
        let fd = register(fd, Interest::READABLE)?;
        let buffer = vec![0; READ_SIZE].into_boxed_slice();
        Ok(Self { fd, decoder: Decoder::default(), buffer, pushed: 0, decoded: 0, half_until: None })
    }

    /// Waits for bytes and gives the whole records among them, at most 64 KiB worth; may be empty.
    ///
    /// May be dropped at any time without losing a record.
    ///
    /// # Errors
    /// When the descriptor cannot be read; the FIFO is then of no more use.
    pub async fn read(&mut self) -> io::Result<Vec<Record>> {
        let buffer = &mut self.buffer;
        let bytes =
            self.fd.async_io(Interest::READABLE, |fd| nix::unistd::read(fd.as_fd(), buffer).map_err(io::Error::from));
        let count = match self.half_until {
            None => bytes.await?,
            Some(deadline) => {
                let Ok(count) = tokio::time::timeout_at(deadline, bytes).await else {
                    self.half_until = None;
                    self.decoder.reset();
                    return Ok(Vec::new());
                };
                count?
            }
        };
        Ok(self.decode(count))
    }

    /// As [`read`](Self::read), without waiting: nothing when nothing is there.
    ///
    /// # Errors
    /// When the descriptor cannot be read.
    pub fn read_now(&mut self) -> io::Result<Vec<Record>> {
        match nix::unistd::read(self.fd.get_ref(), &mut self.buffer) {
            Ok(count) => Ok(self.decode(count)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    fn decode(&mut self, count: usize) -> Vec<Record> {
        self.decoder.push(&self.buffer[..count]);
        self.pushed += count as u64;
        let records: Vec<Record> = self.decoder.by_ref().collect();
        self.decoded += records.iter().map(|record| (HEADER_LENGTH + record.text.len()) as u64).sum::<u64>();
        let half = self.pushed > self.decoded + self.decoder.skipped();
        self.half_until = half.then(|| Instant::now() + HALF_RECORD_DEADLINE);
        records
    }

    /// Bytes that belonged to no record.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.decoder.skipped()
    }
}

impl AsFd for LogFifo {
    /// To give a copy to whoever keeps it when this daemon ends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.get_ref().as_fd()
    }
}
