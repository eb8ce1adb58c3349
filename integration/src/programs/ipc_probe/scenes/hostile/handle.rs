//! What a handle of an event says, and what its process gives to who has it: the page that the event is in.
#![expect(unsafe_code, reason = "maps a page of another process, and takes what it gives")]

use super::{SIZE, WORDS, WORDS_OF_PLACE, why};
use crate::programs::ipc_probe::scenes::parties::Found;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg,
    sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

/// What a handle of an event says.
#[derive(Clone)]
pub(super) struct Handle(pub(super) Vec<u8>);

impl Handle {
    pub(super) fn of(text: &str) -> Found<Self> {
        let digits = text.as_bytes().as_chunks::<2>().0.iter();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.map(byte).collect();
        bytes.filter(|bytes| bytes.starts_with(b"ReMPSevt")).map(Self).ok_or_else(|| format!("{text} is no handle"))
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn word(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    pub(super) fn page(&self) -> u64 {
        self.word(24)
    }

    fn place(&self) -> u64 {
        self.word(32)
    }

    /// The same of a process that listens elsewhere, where no other program that runs the scenes does.
    pub(super) fn at(&self, secret: u8) -> Self {
        let mut other = self.clone();
        other.0[8..24].fill(secret);
        other.0[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        other
    }

    pub(super) fn address(&self) -> Found<UnixAddr> {
        let name = self.0[8..24].iter().fold("remps-ipc-".to_owned(), |name, byte| name + &format!("{byte:02x}"));
        UnixAddr::new_abstract(name.as_bytes()).map_err(why)
    }

    /// Connected with its process.
    pub(super) fn connected(&self) -> Found<OwnedFd> {
        let own = door()?;
        connect(own.as_raw_fd(), &self.address()?).map_err(why)?;
        Ok(own)
    }

    /// What its process gives for a number.
    pub(super) fn ask(&self, number: u64) -> Found<OwnedFd> {
        let own = self.connected()?;
        setsockopt(&own, sockopt::ReceiveTimeout, &TimeVal::seconds(10)).map_err(why)?;
        send(&own, &number.to_le_bytes(), &[])?;
        let (mut word, mut control) = ([0; 8], nix::cmsg_space!([RawFd; 4]));
        let mut parts = [IoSliceMut::new(&mut word)];
        let received =
            recvmsg::<()>(own.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty()).map_err(why)?;
        for message in received.cmsgs().map_err(why)? {
            if let ControlMessageOwned::ScmRights(all) = message
                && let Some(number) = all.first()
            {
                // SAFETY: the kernel has just made it.
                return Ok(unsafe { OwnedFd::from_raw_fd(*number) });
            }
        }
        Err("nothing is given".to_owned())
    }
}

pub(super) fn door() -> Found<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(why)
}

pub(super) fn send(to: &OwnedFd, packet: &[u8], descriptors: &[RawFd]) -> Found<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &rights };
    sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(packet)], control, MsgFlags::MSG_NOSIGNAL, None).map_err(why)?;
    Ok(())
}

/// The page of an event, for the one to whom it was given.
pub(super) struct Page {
    pub(super) file: OwnedFd,
    pub(super) words: &'static [AtomicU64; WORDS],
    first: u64,
}

impl Page {
    pub(super) fn of(handle: &Handle) -> Found<Self> {
        let file = handle.ask(handle.page())?;
        let size = NonZeroUsize::new(SIZE).ok_or("no size")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let start = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, &file, 0) }.map_err(why)?;
        // SAFETY: it has so many words, and is never unmapped.
        let words = unsafe { start.cast::<[AtomicU64; WORDS]>().as_ref() };
        Ok(Self { file, words, first: handle.place() * WORDS_OF_PLACE })
    }

    pub(super) fn word(&self, at: u64) -> &'static AtomicU64 {
        &self.words[usize::try_from(self.first + at).unwrap_or_default()]
    }
}
