//! The log FIFO, `$CUDA_MPS_PIPE_DIRECTORY/log`: servers of every user write their log records into it.
//!
//! The vendor's reader ends at the first malformed record, and then every writer blocks once 64 KiB are queued. This
//! one never stops: garbage is skipped and counted, a record that a dead writer left half written is given up after
//! [`HALF_RECORD_DEADLINE`], the pipe is as large as an ordinary user may make it, and one turn takes a bounded
//! amount, so that a flood of records starves nobody.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use remps_proto::mps::log::{Decoder, HEADER_LENGTH, Record};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::sys::polled::register;

/// Mode of the FIFO: servers run as other users and must write, nobody else needs to read.
pub const MODE: u32 = 0o622;
/// How long the rest of a half-written record is waited for.
pub const HALF_RECORD_DEADLINE: Duration = Duration::from_secs(1);
/// Bytes read in one turn.
const READ_SIZE: usize = 64 * 1024;
/// Size of the pipe: the most that the kernel grants an ordinary user by default (`/proc/sys/fs/pipe-max-size`).
const PIPE_SIZE: i32 = 1 << 20;

/// Why there is no log FIFO.
#[derive(Debug, thiserror::Error)]
pub enum FifoError {
    /// Something that is neither a FIFO nor absent has the name.
    #[error("{} is in the way: it is no FIFO", .0.display())]
    InTheWay(PathBuf),
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The FIFO.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Makes the FIFO anew and opens it, non-blocking and close-on-exec. Needs no runtime.
///
/// A FIFO that has the name is replaced (a reader of a dead daemon's FIFO could otherwise take our records); a symbolic
/// link is not followed.
///
/// # Errors
/// See [`FifoError`].
pub fn create(path: &Path, mode: u32) -> Result<OwnedFd, FifoError> {
    let failed = |action| move |source: io::Error| FifoError::Io { action, path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_fifo() => fs::remove_file(path).map_err(failed("replace"))?,
        Ok(_) => return Err(FifoError::InTheWay(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("examine")(error)),
    }
    nix::unistd::mkfifo(path, Mode::from_bits_truncate(mode)).map_err(|error| failed("make")(error.into()))?;
    // Read and write: with a writer of our own the pipe never reports its end when the last server leaves.
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(path)
        .map_err(failed("open"))?;
    let opened = file.metadata().map_err(failed("examine"))?;
    if !opened.file_type().is_fifo() {
        return Err(FifoError::InTheWay(path.to_owned()));
    }
    // The umask took bits away.
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(failed("set the mode of"))?;
    Ok(file.into())
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
