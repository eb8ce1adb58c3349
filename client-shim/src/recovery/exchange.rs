//! A fresh copy of the driver, loaded and given all that the program has, in the dead one's place.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    amputation::{self, Mapped},
    burial::Former,
    memory::{Failed, Memory, Renamed, checked},
    objects::Objects,
    private,
    refusal::Refusal,
    report::{Clock, Recovery, Step},
    rest,
    together::{First, first_contexts},
};
use crate::{
    cuda::{
        belongings, copies,
        dead::{self, Dead},
        library, names,
        result::CUresult,
        socket_name,
        types::{CUcontext, CUdevice},
    },
    daemon::stage,
    process::failpoint::reached,
};

/// How long a server may not be ready, and the time between two questions.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(5);
/// How long memory for a context is waited for, once the daemon lets go of what it keeps of the dead, and the time between
/// two questions.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// Answers of a server that is not ready yet.
pub(super) const NOT_READY: [u32; 3] = [805, 806, 807];

/// Another copy in the dead one's place.
#[derive(Debug)]
pub(super) struct Exchanged {
    /// The handles of everything that was made again.
    pub(super) renamed: Renamed,
    pub(super) fresh: copies::Copy,
    /// The dead one, which is not cut off yet.
    pub(super) former: Former,
}

/// Puts a fresh copy in the dead one's place.
pub(super) fn exchange(
    memory: &Memory,
    objects: &Objects,
    clock: &mut Clock,
    recovery: &mut Recovery,
) -> Result<Exchanged, Refusal> {
    let given = rest::give_back(memory);
    (recovery.unmapped, recovery.not_unmapped) = (given.unmapped, given.refused);
    reached("dead-unmapped");
    clock.ended(Step::Unmap, recovery);

    let listeners =
        socket_name::free().map_err(|error| Refusal::System("the driver's socket name", error.to_string()))?;
    reached("name-freed");
    clock.ended(Step::Name, recovery);
    let (file, was_prepared) =
        copies::file().map_err(|error| Refusal::System("no copy of the driver", error.to_string()))?;
    recovery.was_prepared = u32::from(was_prepared);
    reached("copy-found");
    clock.ended(Step::File, recovery);

    let mapped = Mapped::now();
    let dead = belongings::take();
    let interval = belongings::Interval::begin_anyway();
    let loaded = copies::load(&file);
    clock.ended(Step::Load, recovery);
    let fresh = match loaded {
        Ok(fresh) => fresh,
        Err(text) => {
            belongings::put_back(dead);
            return Err(Refusal::System("the copy of the driver cannot be loaded", text));
        }
    };
    reached("copy-loaded");
    let before = fresh.take_over();
    reached("copy-leads");
    let led = private::targets();
    let made = rebuild(memory, objects, clock, recovery);
    interval.end();
    match made {
        Ok(renamed) => {
            private::ended(library::generation(), &led);
            stage::is_back();
            let former = Former::new(dead, mapped, memory.reserved(), Some(listeners));
            Ok(Exchanged { renamed, fresh, former })
        }
        Err(failed) => {
            // What the fresh copy has is given back, and the dead one answers the program as it would have.
            before.restore();
            private::restore(&led);
            let cut = amputation::perform(&belongings::take(), &Mapped::Kept);
            belongings::put_back(dead);
            std::mem::forget(listeners);
            dead::give_back(Some(Dead::discarded(fresh, cut.descriptors)));
            Err(failed.into())
        }
    }
}

fn rebuild(memory: &Memory, objects: &Objects, clock: &mut Clock, recovery: &mut Recovery) -> Result<Renamed, Failed> {
    let deadline = Instant::now() + SERVER_PATIENCE;
    patiently(deadline, &mut recovery.tries, "cuInit", || driver!(lookup::cuInit(0)))?;
    reached("copy-initialised");
    clock.ended(Step::Init, recovery);
    let mut firsts = None;
    let contexts = memory.make_contexts(|device| {
        let make = move |device| retained(device, deadline);
        let firsts = firsts.get_or_insert_with(|| first_contexts(&memory.devices_in_use(), make));
        let (made, tries) = firsts.remove(&device).unwrap_or_else(|| make(device));
        recovery.tries += tries;
        made
    })?;
    reached("contexts-again");
    clock.ended(Step::Context, recovery);
    let mut renamed = memory.map(&contexts)?;
    reached("memory-again");
    clock.ended(Step::Map, recovery);
    objects.make(&mut renamed)?;
    memory.name_contexts(&mut renamed)?;
    reached("objects-again");
    private::lead(|name| CUcontext(renamed.get(&names::current_of(name.0)).copied().unwrap_or(0)))
        .map_err(|(call, answer)| Failed { call, answer })?;
    reached("private-led");
    // This thread's own stack is put in place when it goes in again.
    checked("cuCtxSetCurrent", driver!(context::cuCtxSetCurrent(CUcontext(0))))?;
    clock.ended(Step::Objects, recovery);
    Ok(renamed)
}

/// A device's context, and how often its server was not ready.
fn retained(device: CUdevice, deadline: Instant) -> First {
    let (mut context, mut tries) = (CUcontext(0), 0);
    let mut retain = || driver!(context::cuDevicePrimaryCtxRetain(&raw mut context, device));
    let mut make = || patiently(deadline, &mut tries, "cuDevicePrimaryCtxRetain", &mut retain);
    let made = roomily(&mut make, stage::is_short);
    (made.map(|()| context), tries)
}

/// Asks again as long as a server is not ready, and counts that.
fn patiently(
    deadline: Instant,
    tries: &mut u32,
    call: &'static str,
    mut ask: impl FnMut() -> CUresult,
) -> Result<(), Failed> {
    loop {
        let answer = ask();
        if !NOT_READY.contains(&answer.0) || Instant::now() > deadline {
            return checked(call, answer);
        }
        *tries += 1;
        thread::park_timeout(BETWEEN_TRIES);
    }
}

/// Has something made that needs memory. Where there is none, and who keeps what the dead have lets go of it then, it is
/// tried again.
fn roomily(make: &mut dyn FnMut() -> Result<(), Failed>, is_told: impl FnOnce() -> bool) -> Result<(), Failed> {
    let is_short = |made: &Result<(), Failed>| {
        made.as_ref().is_err_and(|failed| failed.answer == CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    };
    let mut made = make();
    if !is_short(&made) || !is_told() {
        return made;
    }
    let deadline = Instant::now() + ROOM_PATIENCE;
    while is_short(&made) && Instant::now() < deadline {
        thread::park_timeout(BETWEEN_LOOKS);
        made = make();
    }
    made
}

#[cfg(test)]
mod tests {
    use super::{CUresult, Failed, roomily};

    /// What comes of it where so many tries find no memory, how often it is tried, and whether anybody was told.
    fn tried(answers: &[CUresult], is_heard: bool) -> (CUresult, usize, bool) {
        let (mut count, mut is_told) = (0, false);
        let mut make = || {
            let answer = answers.get(count).copied().unwrap_or(CUresult::CUDA_SUCCESS);
            count += 1;
            if answer.is_success() { Ok(()) } else { Err(Failed { call: "cuDevicePrimaryCtxRetain", answer }) }
        };
        let tell = || {
            is_told = true;
            is_heard
        };
        let made = roomily(&mut make, tell).map_or_else(|failed| failed.answer, |()| CUresult::CUDA_SUCCESS);
        (made, count, is_told)
    }

    #[test]
    fn memory_that_the_dead_have_is_waited_for_where_somebody_lets_go_of_it() {
        const SHORT: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        assert_eq!(tried(&[], true), (CUresult::CUDA_SUCCESS, 1, false));
        assert_eq!(tried(&[SHORT; 3], true), (CUresult::CUDA_SUCCESS, 4, true));
        assert_eq!(tried(&[SHORT; 3], false), (SHORT, 1, true), "nobody lets go of anything");
        let other = CUresult::CUDA_ERROR_UNKNOWN;
        assert_eq!(tried(&[other], true), (other, 1, false));
        assert_eq!(tried(&[SHORT, other], true), (other, 2, true));
        let (answer, count, _) = tried(&[SHORT; 1000], true);
        assert!(answer == SHORT && count > 1, "not for ever");
    }
}
