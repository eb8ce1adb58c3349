//! How the threads of a dead copy end.
//!
//! They wait for descriptors that nothing comes from any more, and would wait for ever. Nothing says to them that they
//! are no longer wanted, so each gets a signal, and leaves in its handler, by the system call and nothing else: no
//! destructor of the dead copy runs. It leaves only where it can hold nothing that the living need:
//!
//! - it was waiting in a system call, which the signal has ended (`EINTR`), so it is in no function of the C library that
//!   takes a lock and does something;
//! - the first code outside the C library and this one that its stack leads back to is the copy's own, so it is in
//!   no function of the program's that the driver calls (`cuLaunchHostFunc`).
//!
//! Who is elsewhere is asked again, until there is no more time, or somebody else comes first; who has left by then is not asked again when its copy's turn
//! comes once more ([`copies`](crate::cuda::copies)). `SIGURG` is the signal: its meaning is to be ignored, and
//! a program that has a handler for it has it called for all other threads.

use std::{
    ffi::{c_int, c_void},
    fs,
    mem::MaybeUninit,
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{NOT_BEGUN, Thread, locked, own_number};
use crate::process::{failpoint::fails, glibc, log, maps, settings};

/// The time between two questions, at first and at most.
const BETWEEN_TRIES: Duration = Duration::from_micros(200);
const LONGEST_BETWEEN_TRIES: Duration = Duration::from_millis(5);
pub(super) const SIGNAL: c_int = libc::SIGURG;
/// Words of a stack that are looked at.
const DEPTH: usize = 96;
/// Most threads of one copy. More than that stay, and the copy with them.
const MOST: usize = 64;

/// A thread of a dead copy is where it cannot end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a thread of the dead driver does not wait")]
pub(crate) struct NotEnded;

/// What the handler needs to know, while there is somebody to end.
struct Code {
    /// Of the dead copy.
    copy: Vec<(usize, usize)>,
    /// Of everybody but the C library.
    others: Vec<(usize, usize)>,
}

/// Who is to leave: numbers, 0 for nobody.
static LEAVING: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];
static CODE: AtomicPtr<Code> = AtomicPtr::new(ptr::null_mut());
/// The program's own handler: a function that takes three arguments, or one.
static THEIRS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// One copy's threads are ended at a time.
static ENDING: Mutex<()> = Mutex::new(());

fn holds(ranges: &[(usize, usize)], address: usize) -> bool {
    ranges.iter().any(|(start, end)| (*start..*end).contains(&address))
}

/// Where code is mapped: that of the library around an address, and of all but the C library and this one, by which the
/// copy calls it.
fn code_around(address: usize) -> Option<Code> {
    const OF_C: [&str; 4] = ["libc.so", "libc-2", "libpthread", "ld-"];
    let all = maps::read().ok()?;
    let at = u64::try_from(address).ok()?;
    let own = u64::try_from((code_around as *const ()).addr()).ok()?;
    let path_at = |at| Some(all.iter().find(|range| range.meets(at, 1))?.path().to_owned());
    let (path, own) = (path_at(at)?, path_at(own)?);
    let ends = |range: &maps::Range| Some((usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?));
    let is_of_c = |range: &maps::Range| {
        let file = range.path().rsplit('/').next().unwrap_or_default();
        OF_C.iter().any(|name| file.starts_with(name)) || range.path().starts_with("[v")
    };
    let code = all.iter().filter(|range| range.access.contains('x'));
    let (copy, others): (Vec<&maps::Range>, Vec<&maps::Range>) = code
        .filter(|range| !is_of_c(range) && range.path() != own)
        .partition(|range| range.path() == path && !path.is_empty());
    let copy: Vec<_> = copy.into_iter().filter_map(ends).collect();
    (!copy.is_empty()).then(|| Code { copy, others: others.into_iter().filter_map(ends).collect() })
}

/// Whether a thread with these registers waits in a system call that the copy has made.
///
/// # Safety
/// They are those of this thread where a signal has met it.
unsafe fn waits(code: &Code, registers: &[libc::greg_t]) -> bool {
    let register = |which: c_int| registers[usize::try_from(which).unwrap_or(0)];
    // Addresses are below the half of all numbers.
    let address = |which| usize::try_from(register(which)).unwrap_or(0);
    if register(libc::REG_RAX) != -libc::greg_t::from(libc::EINTR) {
        return false;
    }
    // `syscall`, which the thread has just come out of.
    let before = ptr::with_exposed_provenance::<[u8; 2]>(address(libc::REG_RIP).wrapping_sub(2));
    // SAFETY: code before the one that runs next.
    if unsafe { before.read() } != [0x0f, 0x05] {
        return false;
    }
    let top = ptr::with_exposed_provenance::<usize>(address(libc::REG_RSP));
    let words = (0..DEPTH).map(|at| {
        // SAFETY: below the top of a thread's stack lies more than that: what the C library needs for the thread.
        unsafe { top.wrapping_add(at).read() }
    });
    let calls = std::iter::once(address(libc::REG_RIP)).chain(words);
    let first = { calls }.find(|word| holds(&code.copy, *word) || holds(&code.others, *word));
    first.is_some_and(|caller| holds(&code.copy, caller))
}

extern "C" fn met(signal: c_int, facts: *mut libc::siginfo_t, context: *mut c_void) {
    let own = own_number();
    let Some(place) = LEAVING.iter().find(|number| number.load(Ordering::Acquire) == own) else {
        return theirs(signal, facts, context);
    };
    // SAFETY: the system gives the thread's registers.
    let registers = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    // SAFETY: published before the signal was sent, and freed when nobody is leaving any more.
    let Some(code) = (unsafe { CODE.load(Ordering::Acquire).as_ref() }) else { return };
    // SAFETY: they are this thread's.
    if unsafe { waits(code, &registers) } {
        place.store(0, Ordering::Release);
        // SAFETY: ends this thread, which holds nothing.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// The signal was for the program.
fn theirs(signal: c_int, facts: *mut libc::siginfo_t, context: *mut c_void) {
    let [with_facts, plain] = THEIRS.each_ref().map(|of| of.load(Ordering::Acquire));
    if with_facts != 0 {
        // SAFETY: the program has set a handler of this type.
        let handler = unsafe {
            std::mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(with_facts)
        };
        handler(signal, facts, context);
    } else if plain != 0 {
        // SAFETY: the program has set a handler of this type.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(plain) };
        handler(signal);
    }
}

/// Our handler, as long as this lives.
struct Handler(libc::sigaction);

impl Handler {
    fn set() -> Option<Self> {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only asks.
        let failed = unsafe { libc::sigaction(SIGNAL, ptr::null(), before.as_mut_ptr()) } != 0;
        // SAFETY: zeroes are a valid value.
        let before = unsafe { before.assume_init() };
        let is_own = !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        let has_facts = before.sa_flags & libc::SA_SIGINFO != 0;
        THEIRS[0].store(if is_own && has_facts { before.sa_sigaction } else { 0 }, Ordering::Release);
        THEIRS[1].store(if is_own && !has_facts { before.sa_sigaction } else { 0 }, Ordering::Release);
        let mut ours = before;
        ours.sa_sigaction = met as *const c_void as usize;
        // Without SA_RESTART: the end of the wait is what the handler looks for.
        ours.sa_flags = libc::SA_SIGINFO | (before.sa_flags & libc::SA_ONSTACK);
        // SAFETY: the handler only reads atomics and memory that is there.
        let is_set = !failed && unsafe { libc::sigaction(SIGNAL, &raw const ours, ptr::null_mut()) } == 0;
        is_set.then_some(Self(before))
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: what was set before.
        unsafe { libc::sigaction(SIGNAL, &raw const self.0, ptr::null_mut()) };
    }
}

/// Sends the signal to a thread; whether there is such a thread.
fn is_there(number: i32, signal: c_int) -> bool {
    // SAFETY: asks for this process's number.
    let process = unsafe { libc::getpid() };
    // SAFETY: a signal to a thread of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, process, number, signal) == 0 }
}

/// Those that have not ended, each with its number. One that was made just before the copy died begins when the machine comes to
/// it; `None` if that takes too long.
fn begun(threads: &[Thread], is_over: impl Fn() -> bool) -> Option<Vec<(&Thread, i32)>> {
    loop {
        let is_there = |of: &&Thread| !locked(&of.state).has_left;
        let numbers = threads.iter().filter(is_there).map(|of| (of, locked(&of.state).number));
        let numbers: Vec<_> = numbers.filter(|(_, number)| *number != 0).collect();
        if !numbers.iter().any(|(_, number)| *number == NOT_BEGUN) {
            return Some(numbers);
        }
        if is_over() {
            return None;
        }
        thread::park_timeout(BETWEEN_TRIES);
    }
}

/// What the kernel says of a thread: its name, what it does, and the system call that it is in.
fn facts(number: i32) -> String {
    let read = |name| fs::read_to_string(format!("/proc/self/task/{number}/{name}")).unwrap_or_default();
    let state = read("status")
        .lines()
        .filter(|line| line.starts_with("State:") || line.starts_with("Sig"))
        .collect::<Vec<_>>()
        .join(" ");
    format!("{} {state} syscall {}", read("comm").trim(), read("syscall").trim())
}

/// Ends these threads, whose code is around the address `copy`, within a time or until somebody else comes first.
pub(in crate::cuda::resources) fn end(
    threads: &[Thread],
    copy: *mut c_void,
    patience: Duration,
    gives_way: fn() -> bool,
) -> Result<(), NotEnded> {
    let _one_at_a_time = locked(&ENDING);
    if fails("dead-threads-end") {
        return Err(NotEnded);
    }
    let deadline = Instant::now() + patience;
    let is_over = || gives_way() || Instant::now() > deadline;
    let begun = begun(threads, is_over).filter(|begun| begun.len() <= MOST).ok_or(NotEnded)?;
    let numbers: Vec<i32> = begun.iter().map(|(_, number)| *number).collect();
    let code = Box::into_raw(Box::new(code_around(copy.addr()).ok_or(NotEnded)?));
    CODE.store(code, Ordering::Release);
    let all_ended = Handler::set().is_some_and(|_handler| {
        for (place, number) in LEAVING.iter().zip(&numbers) {
            place.store(*number, Ordering::Release);
        }
        let mut between = BETWEEN_TRIES;
        // A thread that has left is one that cannot be signalled.
        let is_left = |numbers: &[i32], signal| numbers.iter().filter(|number| is_there(**number, signal)).count();
        while is_left(&numbers, SIGNAL) > 0 && !is_over() {
            thread::park_timeout(between);
            between = (between * 2).min(LONGEST_BETWEEN_TRIES);
        }
        for place in &LEAVING {
            place.store(0, Ordering::Release);
        }
        for (thread, number) in &begun {
            let mut state = locked(&thread.state);
            state.has_left |= state.number == *number && !is_there(*number, 0);
        }
        is_left(&numbers, 0) == 0
    });
    CODE.store(ptr::null_mut(), Ordering::Release);
    if !all_ended && settings::lines_wanted() {
        let left = numbers.iter().filter(|number| is_there(**number, 0));
        left.for_each(|number| {
            log::complain(format_args!("a thread of the dead driver does not end: {}", facts(*number)));
        });
    }
    if !all_ended {
        // A thread may just be in the handler: the table stays.
        return Err(NotEnded);
    }
    // SAFETY: made above; whoever read it has left.
    drop(unsafe { Box::from_raw(code) });
    // One that has ended by itself and was detached is nobody's any more.
    for thread in threads.iter().filter(|of| !of.has_gone()) {
        // SAFETY: the thread has ended, and nobody else joins it.
        unsafe { glibc::pthread_join(thread.handle, ptr::null_mut()) };
    }
    Ok(())
}
