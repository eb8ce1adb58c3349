//! Which of the process's descriptors the driver has opened.
//!
//! The driver opens files when it is initialised and when it makes a context. What is there after such a call and was
//! not there before it, is the driver's, if the process had no other thread that could have opened it, or if the copy
//! has opened it by a function that takes note ([`resources`]).
//!
//! Where there were other threads, and nobody could take note, only such files count as no program opens in passing:
//!
//! | file | |
//! |---|---|
//! | `/dev/nvidia…` | the driver's |
//! | a socket of the kind that MPS speaks over (local, `SOCK_SEQPACKET`), or with the driver's name | the driver's |
//! | a pipe of which this process has one end: the other one is a server's | the driver's |
//! | anything else | nobody's, and stays open |
//!
//! What a spare copy opens is its own, whenever that is, and nobody else's.
//!
//! A descriptor is remembered with its file, and is not touched once another file has its number. None of them goes to a
//! program that this one begins, and none to a forked child ([`children`]).
#![expect(unsafe_code, reason = "descriptors of the process are looked at by number")]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{c_int, c_void},
    fs, mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{children, resources};
use crate::process::{descriptors, silent};

/// Which file a descriptor is of: device and inode.
pub(crate) type Identity = (u64, u64);

/// An open descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Open {
    identity: Identity,
    /// What `/proc` says that it is.
    link: String,
}

type Snapshot = BTreeMap<c_int, Open>;

/// What the copy of the driver that lives now has.
#[derive(Debug, Default)]
pub(crate) struct Belongings {
    /// Its descriptors.
    pub(crate) descriptors: BTreeMap<c_int, Identity>,
    /// Threads that there were when it had last opened something: its own, and one of the program's.
    threads: BTreeSet<c_int>,
    /// It is what the last copy that has died had.
    is_deads: bool,
}

impl Belongings {
    /// What a spare copy has.
    pub(crate) fn of(descriptors: BTreeMap<c_int, Identity>) -> Self {
        Self { descriptors, ..Self::default() }
    }

    /// Does something to each of its descriptors that is its own still, and not the program's or another copy's by now:
    /// meanwhile no copy closes it, nor is a child forked.
    pub(crate) fn each(&self, mut work: impl FnMut(c_int)) {
        for (number, identity) in &self.descriptors {
            let living = living();
            let is_anothers = living.living.descriptors.contains_key(number)
                || resources::noted().is_some_and(|noted| noted.contains_key(number));
            let identity = if self.is_deads { living.dead.get(number) } else { Some(identity) };
            if !is_anothers && identity.is_some() && descriptors::identity_of(*number) == identity.copied() {
                work(*number);
            }
        }
    }
}

/// Threads of this library, which open nothing in passing but what they move up at once
/// ([`descriptors`](crate::process::descriptors)).
static OURS: Mutex<BTreeSet<c_int>> = Mutex::new(BTreeSet::new());

fn ours() -> MutexGuard<'static, BTreeSet<c_int>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's number.
fn own_number() -> c_int {
    // SAFETY: asks for this thread's number.
    c_int::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0)
}

/// As long as this lasts, the thread that has begun it is one of this library's own.
#[derive(Debug)]
pub(crate) struct Ours(c_int);

impl Ours {
    pub(crate) fn begin() -> Self {
        let number = own_number();
        ours().insert(number);
        Self(number)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // The number may be another thread's next.
        ours().remove(&self.0);
    }
}

/// What the copies have.
#[derive(Debug)]
pub(crate) struct Living {
    living: Belongings,
    /// What the last one that has died had, whether it is cut off yet or not.
    dead: BTreeMap<c_int, Identity>,
    /// Calls under way that open files.
    intervals: usize,
}

impl Living {
    /// All descriptors that the driver has, or had.
    pub(super) fn all(&self) -> impl Iterator<Item = (c_int, Identity)> {
        let all = self.living.descriptors.iter().chain(&self.dead);
        all.map(|(number, identity)| (*number, *identity))
    }

    /// Whether a copy is opening files now.
    pub(super) fn is_in_an_interval(&self) -> bool {
        self.intervals > 0
    }
}

static LIVING: Mutex<Living> = Mutex::new(Living {
    living: Belongings { descriptors: BTreeMap::new(), threads: BTreeSet::new(), is_deads: false },
    dead: BTreeMap::new(),
    intervals: 0,
});

/// What the copies have, which nobody changes as long as it is held.
pub(super) fn living() -> MutexGuard<'static, Living> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbers(folder: &str) -> BTreeSet<c_int> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn snapshot() -> Snapshot {
    let held = descriptors::numbers();
    let open = numbers("/proc/self/fd").into_iter().filter(|number| !held.contains(number));
    open.filter_map(|number| {
        let identity = descriptors::identity_of(number)?;
        let link = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        Some((number, Open { identity, link: link.to_string_lossy().into_owned() }))
    })
    .collect()
}

/// A call of the driver that opens files.
#[derive(Debug)]
pub(crate) struct Interval {
    before: Snapshot,
    is_alone: bool,
}

impl Interval {
    /// Begins before the call. `None` if nobody will ask.
    pub(crate) fn begin() -> Option<Self> {
        crate::process::settings::is_replaying().then(|| {
            resources::lead_first();
            children::have_nothing();
            Self::begin_anyway()
        })
    }

    pub(crate) fn begin_anyway() -> Self {
        let threads = numbers("/proc/self/task");
        let known = {
            let mut living = living();
            living.intervals += 1;
            living.living.threads.clone()
        };
        let (own, ours) = (own_number(), ours().clone());
        let is_known = |thread: &c_int| *thread == own || known.contains(thread) || ours.contains(thread);
        let is_alone = threads.iter().all(is_known);
        resources::forget_opened();
        Self { before: snapshot(), is_alone }
    }

    /// Ends after the call: what has come is the driver's.
    pub(crate) fn end(self) {
        let after = snapshot();
        let new: Vec<(c_int, &Open)> = after
            .iter()
            .filter(|(number, open)| self.before.get(number).is_none_or(|before| before.identity != open.identity))
            .map(|(number, open)| (*number, open))
            .collect();
        let (opened, others) = (resources::opened(), resources::opened_by_others());
        let mut living = living();
        for (number, open) in &new {
            if others.get(number) == Some(&open.identity) || silent::is_in_the_place(*number) {
                continue;
            }
            let ends = || after.values().filter(|other| other.identity == open.identity).count();
            let is_opened = match &opened {
                Some(opened) => opened.get(number) == Some(&open.identity),
                None => is_drivers(*number, open, ends()),
            };
            if is_opened || self.is_alone {
                living.living.descriptors.insert(*number, open.identity);
                // SAFETY: the driver's number, for a file that another program has no use for.
                unsafe { libc::fcntl(*number, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        living.living.threads = if self.is_alone { numbers("/proc/self/task") } else { BTreeSet::new() };
    }
}

impl Drop for Interval {
    fn drop(&mut self) {
        living().intervals -= 1;
    }
}

fn is_drivers(number: c_int, open: &Open, ends: usize) -> bool {
    let link = open.link.as_str();
    link.starts_with("/dev/nvidia")
        || (link.starts_with("pipe:") && ends == 1)
        || (link.starts_with("socket:") && is_drivers_socket(number))
}

pub(crate) fn option(socket: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<c_int>()).ok()?;
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: there is room for as much as is said.
    let failed = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, name, place, &raw mut length) } != 0;
    (!failed).then_some(value)
}

fn is_drivers_socket(number: c_int) -> bool {
    let is_local = option(number, libc::SO_DOMAIN) == Some(libc::AF_UNIX);
    is_local
        && (option(number, libc::SO_TYPE) == Some(libc::SOCK_SEQPACKET) || super::socket_name::of(number).is_some())
}

/// A copy has closed one of its descriptors, or is about to: another one of the same file may get the number.
pub(crate) fn is_closed(number: c_int) {
    let mut living = living();
    living.living.descriptors.remove(&number);
    living.dead.remove(&number);
}

/// Whether this number is that of a file which a copy has opened, the living one or the last that has died.
pub(crate) fn has_a_copy(number: c_int) -> bool {
    let identity = descriptors::identity_of(number);
    living().all().any(|(of, opened)| of == number && Some(opened) == identity)
}

/// Another file lies in the place of a copy's descriptor.
pub(super) fn is_exchanged(number: c_int) {
    let mut all = living();
    let Living { living, dead, .. } = &mut *all;
    let Some(identity) = descriptors::identity_of(number) else { return };
    for known in [living.descriptors.get_mut(&number), dead.get_mut(&number)].into_iter().flatten() {
        *known = identity;
    }
}

/// The last copy that has died is cut off: nothing is its own any more.
pub(crate) fn are_cut_off() {
    living().dead.clear();
}

/// The living copy is dead: what it had.
pub(crate) fn take() -> Belongings {
    let mut living = living();
    living.dead = living.living.descriptors.clone();
    Belongings { is_deads: true, ..mem::take(&mut living.living) }
}

/// What a copy had that has led and never lived: who is dead still is the one before.
pub(crate) fn take_discarded() -> Belongings {
    mem::take(&mut living().living)
}

/// The spare copy lives from now on, with what it has opened; what the one before had.
pub(crate) fn exchange(spare: BTreeMap<c_int, Identity>) -> Belongings {
    let before = take();
    living().living.descriptors = spare;
    before
}

/// The copy of before lives on.
pub(crate) fn put_back(belongings: Belongings) {
    living().living = Belongings { is_deads: false, ..belongings };
}
