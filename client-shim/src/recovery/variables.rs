//! Variables of modules, read while nothing runs, so that whoever is idle goes on without noticing a neighbour's fault.
//!
//! [`still`](crate::kept::objects::still) says why that is enough. They are read by [`look`]:
//!
//! - by a thread of ours, when no stream has been given any work for a while ([`watch`]);
//! - when the program says itself that it is at rest, by `mps_shim_rest`.
//!
//! A look is an ordinary call: it passes the gate and waits for nobody. It uses a stream of its own, which waits for no
//! other, and breaks nobody's capture. Modules, libraries and contexts that the program ends meanwhile wait for it
//! ([`reading`]). If any work was given meanwhile it has seen nothing. What the program has not
//! waited for may be done all the same: streams are asked, with the gate closed, since a question to a stream whose
//! capture has just begun would break it.
#![expect(unsafe_code, reason = "calls the driver, and a C function that is exported")]

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{is_armed, steps};
use crate::{
    cuda::{
        arguments::Subject,
        belongings,
        functions::Effect,
        gate, library, names,
        result::CUresult,
        threads,
        types::{CUcontext, CUlibrary, CUmodule, CUstream, Key as _},
    },
    kept::{
        self,
        code::{
            reading,
            still::{MOST_BYTES, Name, Still, Wanted},
        },
        work::progress,
    },
    process::{glibc, log, panics::unpanicked, settings},
};

/// How long no stream must have been given work before variables are read.
const QUIET: Duration = Duration::from_millis(100);
/// Between two looks at how much work there has been, and the longest time between two tries.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// How many times as long as a look takes nobody looks again, and the longest time for that.
const SHARE: u32 = 10;
const LONGEST_SHARE: Duration = Duration::from_millis(500);
/// How long a look waits for an exchange of the driver, and how long one for threads to come out of it.
const PATIENCE: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(1);
/// How long the process's end waits for a look.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// Held by whoever looks. Whether nobody may any more, since the process ends.
static LOOKING: Mutex<bool> = Mutex::new(false);
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

fn looking() -> MutexGuard<'static, bool> {
    LOOKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a variable is and how long, with its context current.
pub(super) fn find(name: &Name) -> Result<(usize, usize), CUresult> {
    let (mut address, mut bytes) = (0, 0);
    let (into, length) = (&raw mut address, &raw mut bytes);
    let answer = if name.is_of_library {
        driver!(library::cuLibraryGetGlobal(into, length, CUlibrary(name.of), name.name.as_ptr()))
    } else {
        driver!(module::cuModuleGetGlobal_v2(into, length, CUmodule(name.of), name.name.as_ptr()))
    };
    if !answer.is_success() {
        return Err(answer);
    }
    usize::try_from(address).map(|address| (address, bytes)).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
}

/// What was read, and of which modules and libraries not everything could be.
type Read = (Vec<(Name, Vec<u8>)>, Vec<(usize, String)>);

/// A variable that is to be read: its name, its module or library, its address and length.
type Found = (Name, usize, usize, usize);

/// Reads variables of the current context; `None` if the driver refuses.
fn read_in_context(found: &mut [Found]) -> Option<Vec<(Name, Vec<u8>)>> {
    found.sort_unstable_by_key(|(_, _, address, _)| *address);
    let mut stream = CUstream(0);
    if !driver!(stream::cuStreamCreate(&raw mut stream, NON_BLOCKING)).is_success() {
        return None;
    }
    let copy = |bytes: &mut [u8], address: usize| {
        let place = bytes.as_mut_ptr().cast::<c_void>();
        let given = driver!(copy::cuMemcpyDtoHAsync_v2(place, address.key(), bytes.len(), stream));
        let done = driver!(stream::cuStreamSynchronize(stream));
        given.is_success() && done.is_success()
    };
    let mut read = Vec::new();
    let mut is_read = true;
    // Those that touch in one call, since a call is what costs.
    for run in found.chunk_by(|(_, _, address, size), (_, _, next, _)| address + size == *next) {
        let Some((_, _, start, _)) = run.first() else { continue };
        let mut bytes = vec![0; run.iter().map(|(.., size)| size).sum()];
        let is_together = copy(&mut bytes, *start);
        for (name, _, address, size) in run {
            let part = &mut bytes[address - start..][..*size];
            is_read &= is_together || copy(part, *address);
            read.push((name.clone(), part.to_vec()));
        }
    }
    let is_ended = driver!(stream::cuStreamDestroy_v2(stream)).is_success();
    (is_read && is_ended).then_some(read)
}

/// Reads all that is wanted; `None` if the driver refuses.
fn read(wanted: &Wanted) -> Option<Read> {
    let (mut all, mut missing, mut total) = (Vec::new(), Vec::new(), 0_usize);
    let mut by_context: BTreeMap<usize, Vec<(&Name, usize)>> = BTreeMap::new();
    for (name, owner) in &wanted.variables {
        by_context.entry(name.context).or_default().push((name, *owner));
    }
    for (context, names) in by_context {
        if !driver!(context::cuCtxPushCurrent_v2(CUcontext(context))).is_success() {
            return None;
        }
        let mut found = Vec::new();
        for (name, owner) in names {
            match find(name) {
                Ok((address, size)) if size > 0 && total.saturating_add(size) <= MOST_BYTES => {
                    total += size;
                    found.push((name.clone(), owner, address, size));
                }
                Ok((_, 0)) => {}
                Ok(_) => missing.push((owner, "more variables than are read".to_owned())),
                Err(_) => missing.push((owner, format!("variable {} is not found", name.name.to_string_lossy()))),
            }
        }
        let read = read_in_context(&mut found);
        let mut popped = CUcontext(0);
        let is_popped = driver!(context::cuCtxPopCurrent_v2(&raw mut popped)).is_success();
        all.extend(read.filter(|_| is_popped)?);
    }
    Some((all, missing))
}

/// Reads variables, if nothing runs and nothing begins meanwhile. Whether a neighbour's fault would go unnoticed from now
/// on, until the next piece of work.
fn look() -> bool {
    threads::here(|here| {
        if here.passer.is_inside() {
            return false;
        }
        let Some(_pass) = gate::enter(&here.passer, PATIENCE) else { return false };
        here.arrive(library::generation());
        let given = progress::given();
        let is_at_rest =
            || progress::busy() == 0 && progress::given() == given && !kept::is_capturing().unwrap_or(true);
        let survey = || {
            let contexts = kept::objects(|objects| {
                objects.contexts.retained().filter(|(_, of)| of.count > 0).map(|(_, of)| of.context).collect::<Vec<_>>()
            });
            let found = kept::recipes(|recipes| {
                let known = recipes.still(given).filter(|_| !recipes.is_changed()).map(Still::is_whole);
                (known, if known.is_some() { Vec::new() } else { recipes.in_order() }, recipes.changes())
            });
            Some((contexts.ok()?, found.ok()?))
        };
        if !is_at_rest() {
            return false;
        }
        // What is found from here on is there until it is read.
        let Some(_all_stays) = reading::nothing_ends() else { return false };
        let Some((contexts, (known, recipes, changes))) = survey() else { return false };
        // Nothing was given, made or ended since the last look.
        if let Some(is_whole) = known {
            return is_whole;
        }
        let wanted = Wanted::of(&recipes, &contexts);
        drop(recipes);
        let mut mode = RELAXED;
        let _not_of_this_release = driver!(stream::cuThreadExchangeStreamCaptureMode(&raw mut mode));
        let read = read(&wanted);
        let _not_of_this_release = driver!(stream::cuThreadExchangeStreamCaptureMode(&raw mut mode));
        let Some((variables, missing)) = read.filter(|_| is_at_rest()) else { return false };
        let bytes: usize = variables.iter().map(|(_, bytes)| bytes.len()).sum();
        let count = variables.len();
        let still = wanted.read(given, variables, missing);
        let missing = still.missing().len();
        let is_whole = still.is_whole();
        let is_current = kept::recipes(|recipes| recipes.is_still(still, changes)).unwrap_or(false);
        if is_current && settings::lines_wanted() {
            log::complain(format_args!("at rest: {count} variables of {bytes} bytes were read, {missing} modules not"));
        }
        is_current && is_whole
    })
}

/// Asks streams with work that nobody has waited for whether it is done.
fn ask_streams() {
    if progress::busy() > 0 {
        steps::while_closed(MOMENT, ask_busy_streams);
    }
}

/// The same while the gate is closed and nobody is inside.
pub(super) fn ask_busy_streams() {
    if kept::is_capturing().unwrap_or(true) {
        return;
    }
    for (stream, context) in progress::busy_streams() {
        let current = CUcontext(names::current_of(context));
        if !driver!(context::cuCtxPushCurrent_v2(current)).is_success() {
            return;
        }
        let subject = Subject { stream: Some(stream), ..Subject::default() };
        let call = progress::begin(Effect::FinishesStream, &subject, false, context, 0);
        call.end(driver!(stream::cuStreamQuery(CUstream(names::current_of(stream)))), false);
        let mut popped = CUcontext(0);
        let _nothing_to_do = driver!(context::cuCtxPopCurrent_v2(&raw mut popped));
    }
}

/// The same, where streams have been asked before.
fn rest() -> bool {
    let is_over = looking();
    if *is_over || !is_armed() {
        return false;
    }
    ask_streams();
    look()
}

/// From now on variables are read whenever the program has given no work for a while.
pub(super) fn watch() {
    if IS_WATCHED.swap(true, Ordering::SeqCst) {
        return;
    }
    // After the driver's own, so before them.
    // SAFETY: the handler is a function of ours in a library that is never unloaded.
    let _read_to_the_end = unsafe { libc::atexit(at_exit) };
    // Without the thread the program is told more often.
    let _is_watched = glibc::detached_thread(Box::new(|| {
        let _ended = unpanicked(look_again_and_again);
    }));
}

extern "C" fn at_exit() {
    // A forked child has no such thread.
    if !is_armed() {
        return;
    }
    let deadline = Instant::now() + LAST_PATIENCE;
    while Instant::now() < deadline {
        match LOOKING.try_lock() {
            Ok(mut is_over) => {
                *is_over = true;
                return;
            }
            Err(TryLockError::Poisoned(_)) => return,
            Err(TryLockError::WouldBlock) => thread::park_timeout(MOMENT),
        }
    }
}

fn look_again_and_again() {
    let _as_long_as_it_takes = belongings::Ours::begin();
    let seen = || (progress::given(), library::generation());
    let (mut last, mut since) = (seen(), Instant::now());
    let (mut pause, mut looked_at) = (BETWEEN_LOOKS, None);
    while is_armed() && !*looking() {
        thread::park_timeout(pause);
        let now = seen();
        let changes = kept::recipes(|recipes| recipes.changes()).unwrap_or(0);
        if now != last {
            // Whoever has just been recovered may have a call to make again.
            (last, since, pause) = (now, Instant::now(), BETWEEN_LOOKS);
        } else if looked_at != Some((now, changes)) && since.elapsed() >= QUIET {
            let begun = Instant::now();
            let is_done = rest();
            // One that has done nothing is tried again, ever later.
            looked_at = is_done.then_some((now, changes));
            let longest = if is_done { BETWEEN_LOOKS } else { (pause * 2).min(LONGEST) };
            pause = longest.max(begun.elapsed().saturating_mul(SHARE).min(LONGEST_SHARE));
        }
    }
    // What the driver has of this thread must not be ended beside the process's own end.
    loop {
        thread::park();
    }
}

/// Takes note of all that a neighbour's fault would take from this program. Returns 1 if such a fault would go unnoticed
/// until the next piece of work, 0 if it would be told.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "called from outside"))]
extern "C" fn mps_shim_rest() -> c_int {
    c_int::from(is_armed() && unpanicked(rest).unwrap_or(false))
}
