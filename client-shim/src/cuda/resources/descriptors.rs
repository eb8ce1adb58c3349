//! The descriptors that a copy has opened itself, in whatever way.
//!
//! They are its own if they were opened while it initialised or made a context
//! ([`belongings`](crate::cuda::belongings)); those that it makes for the program at other times, of memory to be shared,
//! are not, and the program closes them behind the copy's back. So a number is noted with its file, and forgotten when
//! such a time begins.
//!
//! A copy that is cut off opens nothing any more ([`Owner::dies`](super::Owner::dies)). A thread of its own may just have been
//! woken then, takes what stands in its descriptors' places for something that is ready, and opens pipes in each round, until
//! the process has no descriptors left for a fresh copy (580.159.04 on an H100 whose machine was busy: 20,000 in 0.4 s). So such
//! a thread ends where it next opens something or waits for it, and a pipe for such a copy is refused to whoever asks.

use std::{
    collections::BTreeMap,
    ffi::{c_char, c_int, c_long, c_uint},
    ops::RangeInclusive,
    sync::{MutexGuard, Once, atomic::Ordering},
    thread,
    time::Duration,
};

use nix::errno::Errno;

use super::{Lead, RESOURCES, locked, threads};
use crate::{
    cuda::belongings,
    process::{descriptors::identity_of, log},
};

/// Descriptors, and which file each is of: device and inode.
pub(crate) type Opened = BTreeMap<c_int, (u64, u64)>;

/// Standard input, output and error.
const STANDARD: RangeInclusive<c_int> = 0..=2;
/// Who asks a dead copy for a pipe waits so long for the refusal: a thread in a hurry asks again.
const BEFORE_REFUSAL: Duration = Duration::from_millis(10);

/// Whether this copy is cut off, or just about to be. A thread of its own ends here.
fn is_dead(owner: usize) -> bool {
    let is_dead = RESOURCES[owner].is_dead.load(Ordering::Acquire);
    if is_dead {
        threads::leave_if_of(owner);
    }
    is_dead
}

/// Notes what was opened; a thread of the copy's own that comes too late for whoever has cut the copy off closes it and ends.
fn note_all(owner: usize, numbers: &[c_int]) {
    let mut noted = locked(&RESOURCES[owner].descriptors);
    if RESOURCES[owner].is_dead.load(Ordering::Acquire) {
        drop(noted);
        if threads::is_in_one_of(owner) {
            for number in numbers {
                // SAFETY: opened by this thread for itself, and known to nobody.
                unsafe { libc::close(*number) };
            }
        }
        threads::leave_if_of(owner);
    } else {
        noted.extend(numbers.iter().filter_map(|number| Some((*number, identity_of(*number)?))));
    }
}

fn note(owner: usize, number: c_int) -> c_int {
    if number >= 0 {
        note_all(owner, &[number]);
    }
    number
}

/// Makes a pair of descriptors, for a copy that lives.
fn pair_of(owner: usize, place: *const c_int, make: impl FnOnce() -> c_int) -> c_int {
    if is_dead(owner) {
        thread::park_timeout(BEFORE_REFUSAL);
        Errno::EMFILE.set();
        return -1;
    }
    let failed = make();
    if failed == 0 {
        // SAFETY: the system has written two numbers there.
        note_all(owner, &[0, 1].map(|at| unsafe { place.wrapping_add(at).read() }));
    }
    failed
}

/// What the copy that lives has opened and not closed since it was forgotten; `None` if nobody takes note of that.
pub(crate) fn opened() -> Option<Opened> {
    noted().map(|noted| noted.clone())
}

/// The same, which nobody changes as long as it is held.
pub(crate) fn noted() -> Option<MutexGuard<'static, Opened>> {
    super::noting().map(|owner| locked(&owner.resources().descriptors))
}

/// What the spare copy has opened, which nobody changes as long as it is held.
pub(crate) fn of_the_spare() -> Option<MutexGuard<'static, Opened>> {
    super::spare().map(|owner| locked(&owner.resources().descriptors))
}

/// What copies have opened that are not the one that lives.
pub(crate) fn opened_by_others() -> Opened {
    let living = super::noting();
    let others = RESOURCES.iter().enumerate().filter(|(at, _)| living != Some(super::Owner(*at)));
    others.flat_map(|(_, of)| locked(&of.descriptors).clone()).collect()
}

/// From now on only what is opened now is of interest, but for a spare copy: all that it opens is its own.
pub(crate) fn forget_opened() {
    let spare = super::spare();
    let others = RESOURCES.iter().enumerate().filter(|(at, _)| spare != Some(super::Owner(*at)));
    others.for_each(|(_, of)| locked(&of.descriptors).clear());
}

/// Functions that give a new descriptor.
macro_rules! openers {
    ($($name:ident($($argument:ident: $type:ty),*);)+) => {
        $(
            unsafe extern "C" fn $name<const OWNER: usize>($($argument: $type),*) -> c_int {
                let _answered_as_ever = is_dead(OWNER);
                // SAFETY: as the caller asks.
                note(OWNER, unsafe { libc::$name($($argument),*) })
            }
        )+

        fn opening<const OWNER: usize>() -> Vec<Lead> {
            vec![$((text(concat!(stringify!($name), "\0")), $name::<OWNER> as *const std::ffi::c_void)),+]
        }
    };
}

const fn text(name: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

openers! {
    open(path: *const c_char, flags: c_int, mode: c_uint);
    open64(path: *const c_char, flags: c_int, mode: c_uint);
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint);
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint);
    socket(domain: c_int, kind: c_int, protocol: c_int);
    accept(number: c_int, address: *mut libc::sockaddr, length: *mut libc::socklen_t);
    accept4(number: c_int, address: *mut libc::sockaddr, length: *mut libc::socklen_t, flags: c_int);
    eventfd(value: c_uint, flags: c_int);
    epoll_create(size: c_int);
    epoll_create1(flags: c_int);
    timerfd_create(clock: c_int, flags: c_int);
    inotify_init1(flags: c_int);
    dup(number: c_int);
    dup2(from: c_int, to: c_int);
    dup3(from: c_int, to: c_int, flags: c_int);
}

unsafe extern "C" fn pipe<const OWNER: usize>(pair: *mut c_int) -> c_int {
    // SAFETY: as the caller asks.
    pair_of(OWNER, pair, || unsafe { libc::pipe(pair) })
}

unsafe extern "C" fn pipe2<const OWNER: usize>(pair: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller asks.
    pair_of(OWNER, pair, || unsafe { libc::pipe2(pair, flags) })
}

unsafe extern "C" fn socketpair<const OWNER: usize>(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    // SAFETY: as the caller asks.
    pair_of(OWNER, pair, || unsafe { libc::socketpair(domain, kind, protocol, pair) })
}

unsafe extern "C" fn fcntl<const OWNER: usize>(number: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller asks; where there is no third argument the system looks at none.
    let answer = unsafe { libc::fcntl(number, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { note(OWNER, answer) } else { answer }
}

unsafe extern "C" fn memfd_create<const OWNER: usize>(name: *const c_char, flags: c_uint) -> c_int {
    // SAFETY: as the caller asks. By its number, since glibc has the function since 2.27 only.
    let number = unsafe { libc::syscall(libc::SYS_memfd_create, name, flags) };
    note(OWNER, c_int::try_from(number).unwrap_or(-1))
}

/// `syscall(2)`, with all the registers that it can have.
unsafe extern "C" fn syscall<const OWNER: usize>(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: as the caller asks; the system looks at no more than it takes.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if number == libc::SYS_memfd_create {
        note(OWNER, c_int::try_from(answer).unwrap_or(-1));
    }
    answer
}

/// `poll(2)`, for which a thread of a dead copy's would wait for nothing.
unsafe extern "C" fn poll<const OWNER: usize>(
    all: *mut libc::pollfd,
    count: libc::nfds_t,
    milliseconds: c_int,
) -> c_int {
    let _answered_as_ever = is_dead(OWNER);
    // SAFETY: as the caller asks.
    unsafe { libc::poll(all, count, milliseconds) }
}

unsafe extern "C" fn recvmsg<const OWNER: usize>(number: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
    let _answered_as_ever = is_dead(OWNER);
    // SAFETY: as the caller asks.
    let received = unsafe { libc::recvmsg(number, message, flags) };
    if received >= 0 {
        // SAFETY: the system has filled in the message.
        let mut part = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: null, or in the message.
        while let Some(head) = unsafe { part.as_ref() } {
            if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
                // SAFETY: in the message.
                let numbers = unsafe { libc::CMSG_DATA(part) }.cast::<c_int>();
                // SAFETY: asks for the length of a head.
                let bytes = head.cmsg_len.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
                for at in 0..bytes / size_of::<c_int>() {
                    // SAFETY: as many numbers are there.
                    note(OWNER, unsafe { numbers.wrapping_add(at).read_unaligned() });
                }
            }
            // SAFETY: as above.
            part = unsafe { libc::CMSG_NXTHDR(message, part) };
        }
    }
    received
}

/// Whether a number is the program's standard input, output or error, which this copy has not opened. Where it gets no context,
/// as on a server that meets a fault just then, the driver closes number 0, from five places for each try (580.159.04 on an
/// H100): a program would find its input closed, and whoever opens something next would get that number.
fn is_a_standard_one(owner: usize, number: c_int) -> bool {
    STANDARD.contains(&number)
        && !locked(&RESOURCES[owner].descriptors).contains_key(&number)
        && !belongings::has_a_copy(number)
}

unsafe extern "C" fn close<const OWNER: usize>(number: c_int) -> c_int {
    if is_a_standard_one(OWNER, number) {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            log::complain(format_args!(
                "the driver would close descriptor {number}, which it has not opened: not closed"
            ));
        });
        Errno::EBADF.set();
        return -1;
    }
    // Before: another thread may get the number at once.
    locked(&RESOURCES[OWNER].descriptors).remove(&number);
    belongings::is_closed(number);
    // SAFETY: as the caller asks.
    unsafe { libc::close(number) }
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> Vec<Lead> {
    let others: [Lead; 10] = [
        (c"poll", poll::<OWNER> as *const std::ffi::c_void),
        (c"pipe", pipe::<OWNER> as *const std::ffi::c_void),
        (c"pipe2", pipe2::<OWNER> as *const std::ffi::c_void),
        (c"socketpair", socketpair::<OWNER> as *const std::ffi::c_void),
        (c"fcntl", fcntl::<OWNER> as *const std::ffi::c_void),
        (c"fcntl64", fcntl::<OWNER> as *const std::ffi::c_void),
        (c"memfd_create", memfd_create::<OWNER> as *const std::ffi::c_void),
        (c"syscall", syscall::<OWNER> as *const std::ffi::c_void),
        (c"recvmsg", recvmsg::<OWNER> as *const std::ffi::c_void),
        (c"close", close::<OWNER> as *const std::ffi::c_void),
    ];
    [opening::<OWNER>(), others.to_vec()].concat()
}
