//! A handle may name anybody's socket, and that give anything.
#![expect(unsafe_code, reason = "takes over descriptors that were just made")]

use super::handle::{Handle, door, send};
use super::{LIFELINE, SIZE, why};
use crate::programs::ipc_probe::scenes::parties::{Found, Party, event_of, pair, round};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::socket::{Backlog, accept, bind, listen};
use nix::unistd::{ftruncate, pipe};
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

/// How long a party may take to close what it was given, and between two looks.
const PATIENCE: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// `MFD_ALLOW_SEALING`.
const SEALABLE: libc::c_uint = 2;

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
pub(in crate::programs::ipc_probe::scenes) fn handles_are_made_up() -> Found<()> {
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
