//! Several copies of this library in one process, and what a test wants to happen in one of them.
//!
//! A copy's handles are addresses in a range of its own that cannot be read, so that a handle of another copy is found
//! in no table, and a program that follows one is found out. Which range is free tells which copy it is, so a range is
//! mapped by the system's number for it: whoever takes note of what a copy maps, to unmap it, leaves that alone.
//!
//! Like the real library, a copy takes one of 127 places for the addresses of what it manages itself, and `cuInit` answers
//! 2 when none is free (measured with 580.159.04: `OBSERVED.md`).
#![expect(unsafe_code, reason = "reserves a range of addresses, and ends the process")]

use crate::codes::{Code, Outcome};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::signal::{Signal, raise};
use sim_wire::script::Script;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Where the first copy's handles are. Nothing else of a process is near.
const FIRST: usize = 0x5200_0000_0000;
/// Bytes of a copy's range.
const LENGTH: usize = 1 << 30;
/// Copies that are told apart: as many as fit below where programs are loaded. One more fails in
/// all that it is asked, since its handles would be another copy's.
const MOST: usize = 3072;
/// Where the places are, how many there are, and the bytes of each.
const PLACES: usize = 0x5180_0000_0000;
const PLACE_LENGTH: usize = 1 << 27;
const MOST_PLACES: usize = 127;

/// One copy.
#[derive(Debug)]
struct Copy {
    /// From 1.
    number: usize,
    base: usize,
}

fn copy() -> &'static Copy {
    static COPY: OnceLock<Copy> = OnceLock::new();
    COPY.get_or_init(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE | libc::MAP_ANONYMOUS;
        let is_free = |base: &usize| {
            // SAFETY: the flag keeps it from touching anything that is mapped.
            let got = unsafe { libc::syscall(libc::SYS_mmap, *base, LENGTH, libc::PROT_NONE, flags, -1, 0) };
            usize::try_from(got).is_ok_and(|got| got == *base)
        };
        let found = (0..MOST).map(|number| FIRST + number * LENGTH).find(is_free);
        let found = found.expect("no more copies than that can be told apart in one process");
        Copy { number: (found - FIRST) / LENGTH + 1, base: found }
    })
}

/// Takes a place for this copy, if one is free.
pub(crate) fn take_place() -> Outcome {
    static IS_TAKEN: OnceLock<bool> = OnceLock::new();
    let length = NonZeroUsize::new(PLACE_LENGTH).expect("it is not 0");
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED_NOREPLACE;
    let is_free = |number| {
        let base = PLACES + number * PLACE_LENGTH;
        // SAFETY: the flag keeps it from touching anything that is mapped.
        let got = unsafe { mmap_anonymous(NonZeroUsize::new(base), length, ProtFlags::PROT_NONE, flags) };
        got.is_ok_and(|got| got.as_ptr().addr() == base)
    };
    let is_taken = IS_TAKEN.get_or_init(|| (0..MOST_PLACES).any(is_free));
    is_taken.then_some(()).ok_or(Code::OUT_OF_MEMORY)
}

/// Where this copy's handles begin.
pub(crate) fn first_handle() -> usize {
    copy().base
}

/// What makes a context.
const MAKES_CONTEXT: &str = "cuDevicePrimaryCtxRetain";

/// What a test wants: `COPY:FUNCTION`, with `:NUMBER` for another call of it than the first, and `:MILLISECONDS` for a
/// stay that ends or `:CODE` for a failure.
#[derive(Debug)]
struct Wanted {
    copy: usize,
    function: String,
    call: usize,
    more: Option<u32>,
    seen: AtomicUsize,
}

impl Wanted {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (copy, function) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let call = parts.next().map_or(Some(1), |number| number.parse().ok())?;
        let more = parts.next().map_or(Some(None), |more| more.parse().ok().map(Some))?;
        Some(Self { copy, function, call, more, seen: AtomicUsize::new(0) })
    }

    fn is_now(&self, function: &str) -> bool {
        self.function == function
            && copy().number == self.copy
            && self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.call
    }
}

/// What is wanted, each read once.
fn wanted() -> &'static [Option<Wanted>; 4] {
    static WANTED: OnceLock<[Option<Wanted>; 4]> = OnceLock::new();
    WANTED.get_or_init(|| {
        let script = Script::load();
        let names = ["MPS_SIM_END_AT", "MPS_SIM_FAIL_AT", "MPS_SIM_STAY_AT", "MPS_SIM_TEAR_AT"];
        names.map(|name| Wanted::parse(&script.text(name)?))
    })
}

/// Before each function: the process ends, the function fails, or never returns, if that is wanted here.
pub(crate) fn before(function: &str) -> Outcome {
    let [end, fail, stay, _] = wanted();
    if end.as_ref().is_some_and(|wanted| wanted.is_now(function)) {
        // It cannot fail for this process itself.
        let _ended = raise(Signal::SIGKILL);
    }
    if let Some(stay) = stay.as_ref().filter(|wanted| wanted.is_now(function)) {
        let end = stay.more.map(|time| Instant::now() + Duration::from_millis(time.into()));
        while end.is_none_or(|end| Instant::now() < end) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
    if let Some(fail) = fail.as_ref().filter(|wanted| wanted.is_now(function)) {
        if function == MAKES_CONTEXT {
            // As NVIDIA's does where it has got none (580.159.04): fields of a structure that nobody has filled in.
            // SAFETY: nobody's but the program's.
            unsafe { libc::close(libc::STDIN_FILENO) };
        }
        return Err(fail.more.map_or(Code::UNKNOWN, Code));
    }
    call_back(function)
}

/// The value of the first texture object of a context, which a test may have another in one copy: `COPY:VALUE`.
pub(crate) fn first_texture() -> u64 {
    static WANTED: OnceLock<u64> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let text = Script::load().text("MPS_SIM_FIRST_TEXTURE").unwrap_or_default();
        let wanted = text.split_once(':').filter(|(of, _)| *of == copy().number.to_string());
        wanted.and_then(|(_, value)| value.parse().ok()).unwrap_or(1)
    })
}

/// How long a stream takes to write this value, where a test wants that: `VALUE:NUMBER:TIME`.
pub(crate) fn time_to_write(value: u64) -> Option<Duration> {
    static WANTED: OnceLock<Option<[u64; 3]>> = OnceLock::new();
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let wanted = WANTED.get_or_init(|| {
        let text = Script::load().text("MPS_SIM_SLOW_WRITE")?;
        let parts: Vec<u64> = text.split(':').map_while(|part| part.parse().ok()).collect();
        parts.try_into().ok()
    });
    let [of, number, time] = (*wanted)?;
    let is_it = value == of && SEEN.fetch_add(1, Ordering::SeqCst) + 1 == number;
    is_it.then(|| Duration::from_millis(time))
}

/// What arrays without memory are said to begin at multiples of, and how many of them there can be.
pub(crate) fn deferred_arrays() -> &'static (Option<u64>, Option<usize>) {
    static WANTED: OnceLock<(Option<u64>, Option<usize>)> = OnceLock::new();
    WANTED.get_or_init(|| {
        let script = Script::load();
        let said = |name| script.text(name);
        let alignment = said("MPS_SIM_ARRAY_ALIGNMENT").and_then(|text| text.parse().ok());
        (alignment, said("MPS_SIM_MOST_DEFERRED").and_then(|text| text.parse().ok()))
    })
}

/// What a profiler does in its callback, if the test wants one for this function.
fn call_back(function: &str) -> Outcome {
    static SUBSCRIBED: OnceLock<Option<String>> = OnceLock::new();
    let subscribed = SUBSCRIBED.get_or_init(|| Script::load().text("MPS_SIM_CALLS_BACK"));
    if subscribed.as_deref() != Some(function) {
        return Ok(());
    }
    type Ask = unsafe extern "C" fn(*mut usize) -> u32;
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuCtxGetCurrent".as_ptr()) };
    // SAFETY: the function of this name has this type.
    let ask = unsafe { std::mem::transmute::<*mut libc::c_void, Option<Ask>>(found) }.ok_or(Code::UNKNOWN)?;
    let mut context = 0;
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { ask(&raw mut context) };
    // A context that is dead, or none yet, is no reason.
    if answer == Code::UNKNOWN.0 { Err(Code::UNKNOWN) } else { Ok(()) }
}

/// In the middle of a function that does several things: whether the context dies between them.
pub(crate) fn is_torn(function: &str) -> bool {
    let [_, _, _, tear] = wanted();
    tear.as_ref().is_some_and(|wanted| wanted.is_now(function))
}

#[cfg(test)]
mod tests {
    use super::{Wanted, copy};

    #[test]
    fn a_test_names_a_copy_a_function_and_a_call() {
        let wanted = Wanted::parse("1:cuMemMap:2").expect("it is sound");
        assert_eq!(copy().number, 1);
        let seen = ["cuMemMap", "cuInit", "cuMemMap", "cuMemMap"].map(|function| wanted.is_now(function));
        assert_eq!(seen, [false, false, true, false]);
        assert!(!Wanted::parse("2:cuMemMap").expect("it is sound").is_now("cuMemMap"));
        assert!(Wanted::parse("cuMemMap").is_none());
    }
}
