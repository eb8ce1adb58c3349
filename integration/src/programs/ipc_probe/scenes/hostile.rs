//! Scenes in which somebody who was given an event does harm: this process itself, which knows what the library says to
//! others of its kind (`client-shim/src/process/passing.rs`, `client-shim/src/kept/shared`).
#![expect(unsafe_code, reason = "maps a page of another process, and becomes another user in one thread")]

use super::parties::{Found, Party, event_of, hears, pair, round};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind,
    connect, listen, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::{ftruncate, pipe};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes and words of a page, and of a place in it.
const SIZE: usize = 4096;
const WORDS: usize = SIZE / 8;
const WORDS_OF_PLACE: u64 = 16;
/// Words of a place.
const RECORDED: u64 = 1;
const LOSSES: u64 = 2;
const RINGS: u64 = 8;
/// The number by which a lifeline is asked for.
const LIFELINE: u64 = u64::MAX;
/// How long a party may take to close what it was given, and between two looks.
const PATIENCE: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// `MFD_ALLOW_SEALING`.
const SEALABLE: libc::c_uint = 2;
/// A user that is nobody.
const NOBODY: libc::uid_t = 65534;
/// Connections of one that says nothing.
const SILENT: usize = 40;

fn why(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What a handle of an event says.
#[derive(Clone)]
struct Handle(Vec<u8>);

impl Handle {
    fn of(text: &str) -> Found<Self> {
        let digits = text.as_bytes().as_chunks::<2>().0.iter();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.map(byte).collect();
        bytes.filter(|bytes| bytes.starts_with(b"ReMPSevt")).map(Self).ok_or_else(|| format!("{text} is no handle"))
    }

    fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn word(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    fn page(&self) -> u64 {
        self.word(24)
    }

    fn place(&self) -> u64 {
        self.word(32)
    }

    /// The same of a process that listens elsewhere.
    fn at(&self, secret: u8) -> Self {
        let mut other = self.clone();
        other.0[8..24].fill(secret);
        other
    }

    fn address(&self) -> Found<UnixAddr> {
        let name = self.0[8..24].iter().fold("remps-ipc-".to_owned(), |name, byte| name + &format!("{byte:02x}"));
        UnixAddr::new_abstract(name.as_bytes()).map_err(why)
    }

    /// Connected with its process.
    fn connected(&self) -> Found<OwnedFd> {
        let own = door()?;
        connect(own.as_raw_fd(), &self.address()?).map_err(why)?;
        Ok(own)
    }

    /// What its process gives for a number.
    fn ask(&self, number: u64) -> Found<OwnedFd> {
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

fn door() -> Found<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(why)
}

fn send(to: &OwnedFd, packet: &[u8], descriptors: &[RawFd]) -> Found<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &rights };
    sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(packet)], control, MsgFlags::MSG_NOSIGNAL, None).map_err(why)?;
    Ok(())
}

/// The page of an event, for the one to whom it was given.
struct Page {
    file: OwnedFd,
    words: &'static [AtomicU64; WORDS],
    first: u64,
}

impl Page {
    fn of(handle: &Handle) -> Found<Self> {
        let file = handle.ask(handle.page())?;
        let size = NonZeroUsize::new(SIZE).ok_or("no size")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let start = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, &file, 0) }.map_err(why)?;
        // SAFETY: it has so many words, and is never unmapped.
        let words = unsafe { start.cast::<[AtomicU64; WORDS]>().as_ref() };
        Ok(Self { file, words, first: handle.place() * WORDS_OF_PLACE })
    }

    fn word(&self, at: u64) -> &'static AtomicU64 {
        &self.words[usize::try_from(self.first + at).unwrap_or_default()]
    }
}

/// Writes anything anywhere in a page until it is told to stop.
fn scribble(words: &[AtomicU64; WORDS], is_over: &AtomicBool) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while !is_over.load(Ordering::Relaxed) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = match state % 5 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 62,
            3 => state >> 50,
            _ => state,
        };
        words[usize::try_from(state >> 32).unwrap_or_default() % WORDS].store(value, Ordering::SeqCst);
    }
}

/// Has nothing ever come.
fn empty(words: &[AtomicU64; WORDS], is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }
}

/// Whoever has the page may write anything there, at any time: its owner goes on as if nothing was, and who waits is let go
/// at the latest when both have ended.
pub(super) fn page_is_written_over() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    let page = Page::of(&Handle::of(event_of(&handles))?)?;
    for spoil in [scribble, empty] {
        let is_over = AtomicBool::new(false);
        let survived = thread::scope(|scope| {
            scope.spawn(|| spoil(page.words, &is_over));
            let survived = (2..30).try_for_each(|key| {
                owner.all(&[&format!("fill {key}"), "record", "elsewhere 9", "record", "finish"])?;
                // It may be lied to, and must live.
                ["take", "query", "take"].iter().try_for_each(|line| peer.does(line).map(drop))
            });
            is_over.store(true, Ordering::Relaxed);
            survived
        });
        survived?;
    }
    owner.does("harm")?;
    hears(&mut owner)?;
    owner.kill()?;
    // Whatever it has: it is not kept waiting.
    peer.does("look 29")?;
    hears(&mut peer)?;
    let (mut owner, mut peer, _) = pair()?;
    round(&mut owner, &mut peer, 5)
}

/// Numbers that no record has, and losses that there were not: no stream waits for them longer than their owner lives.
pub(super) fn records_are_made_up() -> Found<()> {
    for (number, losses) in [(1 << 61, 0), ((1 << 62) - 1, 0), (4711, 1), (4711, 0)] {
        for come in [0, number - 1, number | 1 << 63] {
            let (mut owner, mut peer, handles) = pair()?;
            round(&mut owner, &mut peer, 1)?;
            let page = Page::of(&Handle::of(event_of(&handles))?)?;
            page.word(RECORDED).store(number, Ordering::SeqCst);
            // Its stream waits for that now, and the page says otherwise.
            peer.ok("take")?;
            page.word(LOSSES).fetch_add(losses, Ordering::SeqCst);
            peer.does("query")?;
            page.word(RECORDED).store(0, Ordering::SeqCst);
            (RINGS..WORDS_OF_PLACE).for_each(|at| page.word(at).store(come, Ordering::SeqCst));
            owner.all(&["fill 2", "finish"])?;
            owner.kill()?;
            peer.does("look 1")?;
            hears(&mut peer)?;
        }
    }
    let (mut owner, mut peer, handles) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    let page = Page::of(&Handle::of(event_of(&handles))?)?;
    for number in [1 << 62, 1 << 63, u64::MAX] {
        page.word(RECORDED).store(number, Ordering::SeqCst);
        peer.fails("take")?;
        peer.fails("wait")?;
    }
    owner.all(&["fill 2", "record", "finish"])
}

/// What one gives who was never given anything.
#[derive(Clone, Copy, Debug)]
enum Gift {
    Nothing,
    Hangup,
    Short,
    Long,
    Many,
    File,
    Folder,
    Zeroes,
    Pipe,
    Small,
    Large,
    Unsealed,
    DeadLifeline,
    NoLifeline,
    Silence,
}

const GIFTS: [Gift; 15] = [
    Gift::Nothing,
    Gift::Hangup,
    Gift::Short,
    Gift::Long,
    Gift::Many,
    Gift::File,
    Gift::Folder,
    Gift::Zeroes,
    Gift::Pipe,
    Gift::Small,
    Gift::Large,
    Gift::Unsealed,
    Gift::DeadLifeline,
    Gift::NoLifeline,
    Gift::Silence,
];

fn memory(size: usize, seals: SealFlag) -> Found<OwnedFd> {
    // SAFETY: the name is a C string.
    let made = unsafe { libc::syscall(libc::SYS_memfd_create, c"remps-shared-events".as_ptr(), SEALABLE) };
    let number = RawFd::try_from(made).map_err(why)?;
    Errno::result(number).map_err(why)?;
    // SAFETY: it was just made.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    ftruncate(&file, i64::try_from(size).map_err(why)?).map_err(why)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(why)?;
    Ok(file)
}

/// Answers whoever asks, until nobody does.
fn give(listener: &OwnedFd, gift: Gift) -> Found<()> {
    let (lifeline, holder) = pipe().map_err(why)?;
    let sealed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    loop {
        let peer = accept(listener.as_raw_fd()).map_err(why)?;
        // SAFETY: it was just made.
        let peer = unsafe { OwnedFd::from_raw_fd(peer) };
        let mut asked = [0; 8];
        let read = nix::unistd::read(&peer, &mut asked).map_err(why)?;
        if read < 8 {
            return Ok(());
        }
        let is_lifeline = u64::from_le_bytes(asked) == LIFELINE;
        let word = 1_u64.to_le_bytes();
        let one = |file: OwnedFd| send(&peer, &word, &[file.as_raw_fd()]);
        match (gift, is_lifeline) {
            (Gift::DeadLifeline, _) => one(pipe().map_err(why)?.0)?,
            (Gift::NoLifeline, _) => one(File::open("/dev/zero").map_err(why)?.into())?,
            (Gift::Silence, _) => {
                // Until it gives up.
                let _left = nix::unistd::read(&peer, &mut asked).map_err(why)?;
            }
            (_, true) => send(&peer, &word, &[lifeline.as_raw_fd()])?,
            (Gift::Nothing, _) => send(&peer, &0_u64.to_le_bytes(), &[])?,
            (Gift::Hangup, _) => {}
            (Gift::Short, _) => send(&peer, &word[..3], &[memory(SIZE, sealed)?.as_raw_fd()])?,
            (Gift::Long, _) => send(&peer, &[1; 900], &[memory(SIZE, sealed)?.as_raw_fd()])?,
            (Gift::Many, _) => send(&peer, &word, &[holder.as_raw_fd(); 250])?,
            (Gift::File, _) => {
                let file = tempfile::tempfile().map_err(why)?;
                file.set_len(SIZE as u64).map_err(why)?;
                one(file.into())?;
            }
            (Gift::Folder, _) => one(File::open("/").map_err(why)?.into())?,
            (Gift::Zeroes, _) => one(File::open("/dev/zero").map_err(why)?.into())?,
            (Gift::Pipe, _) => send(&peer, &word, &[lifeline.as_raw_fd()])?,
            (Gift::Small, _) => one(memory(SIZE / 2, sealed)?)?,
            (Gift::Large, _) => one(memory(2 * SIZE, sealed)?)?,
            (Gift::Unsealed, _) => one(memory(SIZE, SealFlag::F_SEAL_GROW)?)?,
        }
    }
}

/// Waits until a party has no more files open than it had: what was given is closed when its giver is seen to have ended.
fn settles(party: &Party, before: usize) -> Found<()> {
    let begun = Instant::now();
    loop {
        let now = party.descriptors()?;
        if now <= before {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{now} files are open where there were {before}"));
        }
        thread::park_timeout(BETWEEN_LOOKS);
    }
}

/// A handle may name anybody's socket, and that give anything: opening it fails, and nothing of it stays.
pub(super) fn handles_are_made_up() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    let (handle, before) = (Handle::of(event_of(&handles))?, peer.descriptors()?);
    for (number, gift) in (1..).zip(GIFTS) {
        let forged = handle.at(number);
        let listener = door()?;
        bind(listener.as_raw_fd(), &forged.address()?).map_err(why)?;
        listen(&listener, Backlog::new(8).map_err(why)?).map_err(why)?;
        thread::scope(|scope| {
            let gives = scope.spawn(|| give(&listener, gift));
            let found = peer.fails(&format!("more {}", forged.text()));
            // Wakes who gives, which ends with a connection that asks for nothing.
            drop(forged.connected()?);
            let given = gives.join().map_err(|_| "it has panicked".to_owned())?;
            found.and(given).map_err(|error| format!("{gift:?}: {error}"))
        })?;
        // Who asks whether the giver lives finds nobody.
        drop(listener);
        settles(&peer, before).map_err(|error| format!("{gift:?}: {error}"))?;
        round(&mut owner, &mut peer, number).map_err(|error| format!("{gift:?}: {error}"))?;
    }
    // Words that nobody has written.
    let mut wrong = handle.clone();
    for at in [24, 32, 40] {
        wrong.0[at..at + 8].fill(0xff);
        peer.fails(&format!("more {}", wrong.text()))?;
    }
    round(&mut owner, &mut peer, 77)
}

/// Nobody can take a page from those who map it, nor make one larger than it is.
pub(super) fn page_cannot_be_made_smaller() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    let page = Page::of(&Handle::of(event_of(&handles))?)?;
    for size in [0, 1, 4095, 8192] {
        if ftruncate(&page.file, size) != Err(Errno::EPERM) {
            return Err(format!("it can be made {size} bytes long"));
        }
    }
    let more = fcntl(page.file.as_fd(), FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE));
    if more != Err(Errno::EPERM) && more != Err(Errno::EBUSY) {
        return Err(format!("it can be sealed: {more:?}"));
    }
    round(&mut owner, &mut peer, 9)
}

/// Who is another user is not asked what he wants, and keeps nobody waiting.
pub(super) fn another_user_has_nothing() -> Found<()> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let (mut owner, mut peer, handles) = pair()?;
    let handle = Handle::of(event_of(&handles))?;
    let of_another = thread::scope(|scope| {
        let asks = scope.spawn(|| {
            // SAFETY: changes this thread alone, which ends then.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
            if changed != 0 {
                return Err("it is not another user".to_owned());
            }
            let silent: Vec<OwnedFd> = (0..SILENT).map(|_| handle.connected()).collect::<Found<_>>()?;
            let given = [handle.page(), LIFELINE, 0, 1].map(|number| handle.ask(number).is_ok());
            Ok((silent, given))
        });
        asks.join().map_err(|_| "it has panicked".to_owned())
    })?;
    let (silent, given) = of_another?;
    if given != [false; 4] {
        return Err(format!("another user is given something: {given:?}"));
    }
    peer.ok(&format!("more {}", event_of(&handles)))?;
    drop(silent);
    round(&mut owner, &mut peer, 4)
}
