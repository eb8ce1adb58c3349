//! The patched module's notices: the reader of `/dev/nvidia-uvm-mps`.
//!
//! The device may be absent, closed to us, of another version, or come and go with its module. Each is a [`Presence`],
//! and each costs the notices alone. Nothing here looks again by itself and nothing wakes up when nothing happens:
//!
//! - Call [`Notices::look`] when something hints at the module: at the daemon's start, and when a server is started.
//! - Call [`Notices::close`] when the last server has ended. An open descriptor keeps the module loaded, and an operator
//!   who has stopped all MPS work expects to be able to replace it.
//! - Await [`Notices::next`] in the driver's select; it is for ever pending while there is nothing to read, and may be
//!   dropped at any time.
//!
//! ```text
//!  absent ──look──► snapshot ──► events ──reader too slow──► Lost(n), snapshot ──► events …
//!                                  └──device fails──► Gone, absent
//! ```
//! What was lost is counted exactly: the module says how many records it overwrote, and its numbers show any other gap.
//! After a loss a second descriptor is opened; the first is read up to the record where the second begins, so that taking
//! the state anew loses nothing more.
//!
//! While the module's mode is `off` it writes no records, not even of channels. A change of the mode by
//! [`Notices::set_policy`] therefore takes the state anew; one by another program shows only at the next look.

mod device;
mod event;
mod follow;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use remps_proto::notice::control::{self, Claim, Info, Policy, Stats};
use remps_proto::notice::{Mode, Notice, RECORD_SIZE, flag, records};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use device::{DEVICE, DeviceFile, NoticeSource, Presence};
pub use event::{FaultNotice, NoticeClient, NoticeEvent};

use crate::core::Pid;
use crate::io::process;
use crate::sys::polled::register;
use follow::Follower;

/// Records read in one turn.
const RECORDS_PER_READ: usize = 256;

/// Reads the notices.
#[derive(Debug)]
pub struct Notices {
    source: Box<dyn NoticeSource>,
    presence: Presence,
    open: Option<Open>,
    lost_before: u64,
}

#[derive(Debug)]
struct Open {
    fd: AsyncFd<OwnedFd>,
    follower: Follower,
    buffer: Box<[u8]>,
}

impl Notices {
    /// A reader that has not looked yet.
    #[must_use]
    pub fn new(source: impl NoticeSource + 'static) -> Self {
        Self { source: Box::new(source), presence: Presence::Closed, open: None, lost_before: 0 }
    }

    /// Looks for the device, unless it is being read already. Panics outside a tokio runtime.
    pub fn look(&mut self) -> &Presence {
        if self.open.is_none() {
            self.presence = match device::open(&*self.source) {
                Ok((fd, info)) => match Open::new(fd) {
                    Ok(open) => {
                        self.open = Some(open);
                        Presence::Present(info)
                    }
                    Err(error) => Presence::Failed(error.to_string()),
                },
                Err(presence) => presence,
            };
        }
        &self.presence
    }

    /// Gives the device back, so that its module may be unloaded.
    pub fn close(&mut self) {
        self.shut(Presence::Closed);
    }

    fn shut(&mut self, presence: Presence) {
        if let Some(open) = self.open.take() {
            self.lost_before = self.lost_before.saturating_add(open.follower.lost());
        }
        self.presence = presence;
    }

    /// What the last look has found, and what has become of it.
    #[must_use]
    pub fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Records lost since the reader was made.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_before.saturating_add(self.open.as_ref().map_or(0, |open| open.follower.lost()))
    }

    /// Waits for notices; at most [`RECORDS_PER_READ`] records' events, and those of a whole snapshot after a loss. The
    /// last ones of a device that fails are [`NoticeEvent::Gone`].
    pub async fn next(&mut self) -> Vec<NoticeEvent> {
        let Some(open) = &mut self.open else {
            return std::future::pending().await;
        };
        let mut events = Vec::new();
        if let Err(error) = open.turn(&*self.source, &mut events).await {
            let reason = error.to_string();
            self.shut(Presence::Failed(reason.clone()));
            events.push(NoticeEvent::Gone(reason));
        }
        events
    }

    fn request<const N: usize>(&self, request: u32, mut argument: [u8; N]) -> io::Result<[u8; N]> {
        let open = self.open.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        self.source.control(open.fd.get_ref().as_fd(), request, &mut argument)?;
        Ok(argument)
    }

    /// What the module does about faults.
    ///
    /// # Errors
    /// `ENODEV` when the device is not open.
    pub fn policy(&self) -> io::Result<Policy> {
        self.request(control::GET_POLICY, [0; Policy::SIZE]).map(|bytes| Policy::decode(&bytes))
    }

    /// Tells the module what to do about faults, and takes its state anew when it was told nothing while it was off.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` or when the device could only be opened for reading; `EOPNOTSUPP` for isolation
    /// on a driver that it was not tested on; `EINVAL` for a value out of range; `ENODEV` when the device is not open.
    pub fn set_policy(&mut self, policy: &Policy) -> io::Result<()> {
        let before = self.policy()?;
        self.request(control::SET_POLICY, policy.encode())?;
        if let Some(open) = self.open.as_mut().filter(|_| before.mode == Mode::OFF && policy.mode != Mode::OFF) {
            open.follower.mark_stale();
        }
        Ok(())
    }

    /// Promises to end a condemned client; the kernel does it after `kill_ms`.
    ///
    /// # Errors
    /// `ESRCH` when there is no such client, `EINVAL` when it is not condemned, and as [`Self::set_policy`].
    pub fn claim(&self, va_space: u64, kill_ms: u32) -> io::Result<()> {
        self.request(control::CLAIM, Claim { va_space_id: va_space, kill_ms, reserved: 0 }.encode()).map(drop)
    }

    /// Gives up the page tables of a suddenly dead client.
    ///
    /// # Errors
    /// `ESRCH` when there is no such client or it is not held, and as [`Self::set_policy`].
    pub fn release(&self, va_space: u64) -> io::Result<()> {
        self.request(control::RELEASE, Claim { va_space_id: va_space, kill_ms: 0, reserved: 0 }.encode()).map(drop)
    }

    /// What the module has counted.
    ///
    /// # Errors
    /// `ENODEV` when the device is not open.
    pub fn stats(&self) -> io::Result<Stats> {
        self.request(control::GET_STATS, [0; Stats::SIZE]).map(|bytes| Stats::decode(&bytes))
    }

    /// What the module is, while it is being read.
    #[must_use]
    pub fn info(&self) -> Option<&Info> {
        if let Presence::Present(info) = &self.presence { Some(info) } else { None }
    }
}

fn start_time(pid: Pid) -> Option<u64> {
    process::start_time(nix::unistd::Pid::from_raw(i32::try_from(pid).ok()?))
}

impl Open {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        let fd = register(fd, Interest::READABLE)?;
        let buffer = vec![0; RECORDS_PER_READ * RECORD_SIZE].into_boxed_slice();
        Ok(Self { fd, follower: Follower::default(), buffer })
    }

    /// One read and what follows from it; the state anew, at once, if that is due.
    async fn turn(&mut self, source: &dyn NoticeSource, events: &mut Vec<NoticeEvent>) -> io::Result<()> {
        if !self.follower.is_stale() {
            let notices = self.read().await?;
            self.follow(&notices, events);
        }
        if self.follower.is_stale() { self.start_anew(source, events) } else { Ok(()) }
    }

    async fn read(&mut self) -> io::Result<Vec<Notice>> {
        let buffer = &mut self.buffer;
        let read = |fd: &OwnedFd| nix::unistd::read(fd, buffer).map_err(io::Error::from);
        let count = self.fd.async_io(Interest::READABLE, read).await?;
        decode(&self.buffer[..count])
    }

    /// What can be read without waiting; `None` when there is nothing.
    fn read_now(&mut self) -> io::Result<Option<Vec<Notice>>> {
        match nix::unistd::read(self.fd.get_ref(), &mut self.buffer) {
            Ok(count) => decode(&self.buffer[..count]).map(Some),
            Err(nix::Error::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn follow(&mut self, notices: &[Notice], events: &mut Vec<NoticeEvent>) {
        for notice in notices {
            events.extend(self.follower.record(notice, start_time));
        }
    }

    /// Takes the state anew through a second descriptor, once the first has told everything before it.
    fn start_anew(&mut self, source: &dyn NoticeSource, events: &mut Vec<NoticeEvent>) -> io::Result<()> {
        let Ok((fd, _)) = device::open(source) else {
            // Perhaps the name is gone and the device is not. What is unread is lost then, and counted.
            return source.control(self.fd.get_ref().as_fd(), control::SNAPSHOT, &mut []);
        };
        let mut successor = Self::new(fd)?;
        let first = successor.read_now()?.unwrap_or_default();
        let Some(end) = first.first().filter(|notice| notice.has(flag::SNAPSHOT)).map(|notice| notice.seq) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a new descriptor does not begin with a snapshot"));
        };
        while let Some(notices) = self.read_now()? {
            for notice in &notices {
                events.extend(self.follower.record_before(end, notice, start_time));
            }
            if notices.last().is_none_or(|last| last.seq >= end) {
                break;
            }
        }
        self.fd = successor.fd;
        self.follow(&first, events);
        Ok(())
    }
}

/// The records of one read. None at all is the end of a stream that has no end.
fn decode(bytes: &[u8]) -> io::Result<Vec<Notice>> {
    if bytes.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    records(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
