//! The descriptors that keep memory alive, in a program that knows nothing of them.
//!
//! - They lie in the upper half of the numbers that the process may use, so that a program that counts on small numbers
//!   (`select`) has them for itself, and never take more than that half.
//! - A forked child closes its copies at once: it could do nothing with them, and as long as it lived the memory would
//!   stay allocated after its parent has freed it. The handler only reads atomics and closes, as a child of a program
//!   with threads must. What is not among them yet, or no longer, is so in a [`window`], in which nobody forks.
//! - A program may close descriptors that it did not open. Whoever uses one checks that it is still the same file.
#![expect(unsafe_code, reason = "descriptors of the program's are moved, looked at and closed by number")]

use std::{
    collections::BTreeSet,
    ffi::c_int,
    io,
    mem::MaybeUninit,
    os::fd::{IntoRawFd, OwnedFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering},
    },
};

use super::window;

/// Most descriptors held at a time. With slabs that grow with what is in them this is memory without end; the limit is
/// there because the handler for forks cannot walk anything that grows.
const MOST: usize = 8192;
/// No number is asked for that is higher than that and the next free ones.
const HIGH: c_int = 1 << 14;

/// A place without a descriptor.
const NONE: c_int = -1;

static HELD: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];
/// Above the places in use.
static END: AtomicUsize = AtomicUsize::new(0);

static ON_CHANGE: OnceLock<fn()> = OnceLock::new();

/// Has a function called whenever something that keeps memory alive has come or gone. The first one stays.
pub(crate) fn on_change(told: fn()) {
    let _earlier = ON_CHANGE.set(told);
}

fn tell() {
    if let Some(told) = ON_CHANGE.get() {
        told();
    }
}

/// A number that no other piece of memory of this process has, or had.
fn new_serial() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A descriptor that keeps memory alive. It is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    place: usize,
    /// Device and inode: which file it is.
    identity: (u64, u64),
    /// A number that no other one has, or had; 0 for what is the vault's own.
    serial: u64,
}

/// Why a descriptor is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotHeld {
    /// As many as there may be, or as this module can hold.
    #[error("the process may have no more descriptors")]
    TooMany,
    /// It is none, or the handler for forks could not be set up.
    #[error("the system refused")]
    Refused,
}

impl Held {
    /// Takes a descriptor that the driver has just made, whose number becomes free.
    pub(crate) fn take(descriptor: c_int) -> Result<Self, NotHeld> {
        Self::hold(descriptor, new_serial(), true)
    }

    /// Takes a descriptor that keeps no memory of the program's alive by itself: a socket, a copy on its way.
    pub(crate) fn for_the_vault(descriptor: c_int) -> Result<Self, NotHeld> {
        Self::hold(descriptor, 0, true)
    }

    /// The same for one that is made now, by a call that waits for nothing: no child has it, not even one that is forked
    /// as soon as it is made.
    pub(crate) fn made<E>(make: impl FnOnce() -> Result<OwnedFd, E>) -> io::Result<Self>
    where
        io::Error: From<E>,
    {
        let _window = nobody_forks();
        let descriptor = make()?;
        Self::for_the_vault(descriptor.into_raw_fd()).map_err(io::Error::other)
    }

    /// The same for memory of the program's, which has come from elsewhere.
    pub(crate) fn of_memory(mut self) -> Self {
        self.serial = new_serial();
        tell();
        self
    }

    /// A copy for the vault.
    pub(crate) fn copy_for_the_vault(&self) -> Option<Self> {
        Self::hold(self.number()?, 0, false).ok()
    }

    /// A number that no other one has, or had.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Lets go of it without closing it: the driver has taken it and closes it itself.
    pub(crate) fn give_to_the_driver(self) {
        HELD[self.place].store(NONE, Ordering::Release);
        // The place may be another one's by now.
        std::mem::forget(self);
    }

    /// Holds a copy of a descriptor that stays the program's.
    pub(crate) fn copy(descriptor: c_int) -> Result<Self, NotHeld> {
        Self::hold(descriptor, new_serial(), false)
    }

    /// Holds a copy of a descriptor, which is closed if it is given away.
    fn hold(descriptor: c_int, serial: u64, is_given: bool) -> Result<Self, NotHeld> {
        let is_seen_to = closes_in_children();
        let nobody_forks = window::begin();
        let held = if is_seen_to { Self::move_up(descriptor, serial) } else { Err(NotHeld::Refused) };
        if is_given {
            // SAFETY: nobody else knows it: the caller gives it away.
            unsafe { libc::close(descriptor) };
        }
        drop(nobody_forks);
        if held.is_ok() && serial != 0 {
            tell();
        }
        held
    }

    fn move_up(descriptor: c_int, serial: u64) -> Result<Self, NotHeld> {
        let identity = identity_of(descriptor).ok_or(NotHeld::Refused)?;
        // SAFETY: only makes a new descriptor for the same file.
        let moved = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, upper_half()) };
        if moved < 0 {
            return Err(NotHeld::TooMany);
        }
        let free = HELD
            .iter()
            .position(|place| place.compare_exchange(NONE, moved, Ordering::AcqRel, Ordering::Relaxed).is_ok());
        let Some(place) = free else {
            // SAFETY: made above, known to nobody.
            unsafe { libc::close(moved) };
            return Err(NotHeld::TooMany);
        };
        END.fetch_max(place + 1, Ordering::AcqRel);
        Ok(Self { place, identity, serial })
    }

    /// The descriptor's number, if it is still the same file.
    pub(crate) fn number(&self) -> Option<c_int> {
        let number = HELD[self.place].load(Ordering::Acquire);
        (number != NONE && identity_of(number) == Some(self.identity)).then_some(number)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let nobody_forks = window::begin();
        let number = self.number();
        HELD[self.place].store(NONE, Ordering::Release);
        if let Some(number) = number {
            // SAFETY: it is the file that was put there, so it was not closed and given to somebody else.
            unsafe { libc::close(number) };
        }
        drop(nobody_forks);
        if self.serial != 0 {
            tell();
        }
    }
}

/// As long as this lives nobody forks: for what makes descriptors, waits for nothing and holds them before it ends.
pub(super) fn nobody_forks() -> window::Window {
    let _is_seen_to = closes_in_children();
    window::begin()
}

/// Which file a descriptor is of: device and inode.
pub(crate) fn identity_of(descriptor: c_int) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat64>::zeroed();
    // `glibc.rs` has this one under an old version, and not `fstat`.
    // SAFETY: the kernel writes to the structure, whatever the number is.
    let failed = unsafe { libc::fstat64(descriptor, status.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is a valid value, filled in or not.
    let status = unsafe { status.assume_init() };
    (!failed).then_some((status.st_dev, status.st_ino))
}

/// The numbers of all that are held.
pub(crate) fn numbers() -> BTreeSet<c_int> {
    let held = HELD[..END.load(Ordering::Acquire)].iter().map(|place| place.load(Ordering::Acquire));
    held.filter(|number| *number != NONE).collect()
}

/// The first number of the upper half, but no higher than [`HIGH`]: the kernel has a table as long as the highest number, which
/// each child copies, and refuses one for the limits of some container runtimes. Read each time: a program may change its
/// limit.
fn upper_half() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to the structure.
    let _zero_if_refused = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    c_int::try_from(limit.rlim_cur / 2).map_or(HIGH, |half| half.min(HIGH))
}

/// Sets up the handlers for forks; whether they are.
fn closes_in_children() -> bool {
    static IS_SET_UP: AtomicBool = AtomicBool::new(false);
    if IS_SET_UP.load(Ordering::Acquire) {
        return true;
    }
    let (before, after) = (window::before_a_fork, window::after_a_fork);
    // Set up twice by two threads it closes twice what is closed already, in a child with one thread.
    // SAFETY: the handlers are functions of ours in a library that is never unloaded.
    let is_set_up = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_a_child)) } == 0;
    IS_SET_UP.store(is_set_up, Ordering::Release);
    is_set_up
}

/// Runs in a forked child before anything else does.
extern "C" fn in_a_child() {
    for place in &HELD[..END.load(Ordering::Relaxed)] {
        let number = place.swap(NONE, Ordering::Relaxed);
        if number != NONE {
            // SAFETY: the child's copy of a descriptor of ours; the memory it names is its parent's.
            unsafe { libc::close(number) };
        }
    }
    window::in_a_child();
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::IntoRawFd};

    use nix::{
        sys::wait::{WaitStatus, waitpid},
        unistd::{ForkResult, fork},
    };

    use super::{Held, NotHeld, upper_half};

    fn a_file() -> i32 {
        File::open("/proc/self/status").unwrap().into_raw_fd()
    }

    #[test]
    fn a_descriptor_moves_out_of_the_programs_way_and_is_closed_with_its_holder() {
        let low = a_file();
        let held = Held::take(low).unwrap();
        let number = held.number().unwrap();
        assert!(number >= upper_half());
        // SAFETY: asks for flags.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        drop(held);
        // SAFETY: as above.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        assert_eq!(flags, -1);
        assert_eq!(Held::take(-1).err(), Some(NotHeld::Refused));
    }

    #[test]
    fn one_that_the_program_has_closed_is_known_to_be_gone() {
        let held = Held::take(a_file()).unwrap();
        let other = File::open("/").unwrap().into_raw_fd();
        // SAFETY: puts another file in the place, as a careless program would.
        unsafe { libc::dup2(other, held.number().unwrap()) };
        assert_eq!(held.number(), None);
    }

    #[test]
    fn a_forked_child_has_none_of_them() {
        let held = Held::take(a_file()).unwrap();
        let number = held.number().unwrap();
        // SAFETY: the child asks for a descriptor's flags and leaves.
        match unsafe { fork() }.expect("a test may fork") {
            ForkResult::Child => {
                // SAFETY: asks for flags.
                let is_closed = unsafe { libc::fcntl(number, libc::F_GETFD) } == -1;
                // SAFETY: leaves the child at once, without the test harness's handlers.
                unsafe { libc::_exit(i32::from(!is_closed)) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).expect("the child is ours"), WaitStatus::Exited(child, 0));
                assert_eq!(held.number(), Some(number));
            }
        }
    }
}
