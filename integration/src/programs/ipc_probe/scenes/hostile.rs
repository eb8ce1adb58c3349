//! Scenes in which somebody who was given an event does harm: this process itself, which knows what the library says to
//! others of its kind (`client-shim/src/process/passing.rs`, `client-shim/src/kept/shared`).
#![expect(unsafe_code, reason = "becomes another user in one thread")]

mod gifts;
mod handle;

pub(super) use gifts::handles_are_made_up;

use super::parties::{Found, event_of, hears, pair, round};
use handle::{Handle, Page};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::unistd::ftruncate;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

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
/// A user that is nobody.
const NOBODY: libc::uid_t = 65534;
/// Connections of one that says nothing.
const SILENT: usize = 40;

fn why(error: impl std::fmt::Display) -> String {
    error.to_string()
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
