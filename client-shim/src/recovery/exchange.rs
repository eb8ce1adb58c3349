//! A fresh copy of the driver, loaded and given all that the program has, in the dead one's place.

mod patience;

pub(super) use patience::NOT_READY;

use std::{
    thread,
    time::{Duration, Instant},
};

use self::patience::{Deadline, patiently, retained};
use super::{
    amputation::{self, Mapped},
    burial::Former,
    memory::{Failed, MAKES_CONTEXT, Memory, Renamed, checked},
    objects::Objects,
    private,
    refusal::Refusal,
    report::{Clock, Recovery, Step},
    rest,
};
use crate::{
    cuda::{
        belongings::{self, Belongings},
        copies,
        dead::{self, Dead},
        errors::{self, Meaning},
        library, names,
        result::CUresult,
        socket_name,
        types::CUcontext,
    },
    daemon::{evidence, news::SpareServer, stage},
    process::{
        failpoint::{fails, reached},
        log,
    },
};

/// How long a server may not be ready.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);
/// Calls of a copy that may have no context yet. There another copy may have one whatever this one is answered, since the
/// dead one had one: 46 where the process's last one has died, 719 or 999 where its server meets a fault meanwhile (an H100
/// and an H200 with 580.159.04). Memory that is short has been waited for.
const BEFORE_CONTEXTS: [&str; 2] = ["cuInit", MAKES_CONTEXT];

/// Fresh copies that one recovery tries at most, each of those before having been hit itself before it had everything, and
/// how long it may begin again; the time before the second one, which doubles. So a neighbour has to do wrong for some seconds
/// on end to keep a program from going on, and not just while its first copies are made.
const MOST_COPIES: u32 = 8;
const ALL_PATIENCE: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Another copy in the dead one's place.
#[derive(Debug)]
pub(super) struct Exchanged {
    /// The handles of everything that was made again.
    pub(super) renamed: Renamed,
    pub(super) fresh: copies::Copy,
    /// The dead one, which is not cut off yet.
    pub(super) former: Former,
    /// The server that it is on, if it stood by.
    pub(super) spare: Option<SpareServer>,
}

/// Puts a fresh copy in the dead one's place. One that is hit meanwhile, as by a neighbour on its new server or with that
/// server, is a dead copy as well, from which nothing was taken: another one is begun with.
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

    let mapped = Mapped::now();
    let dead = belongings::take();
    let until = Instant::now() + ALL_PATIENCE;
    loop {
        match fresh_copy(memory, objects, until, clock, recovery) {
            Ok((renamed, fresh)) => {
                stage::is_back();
                let former = Former::new(dead, mapped, memory.reserved(), Some(listeners));
                return Ok(Exchanged { renamed, fresh, former, spare: None });
            }
            Err(NotMade::Hit(Failed { call, answer })) if is_another_tried(recovery.begun_again, until) => {
                recovery.begun_again += 1;
                let next = recovery.begun_again + 1;
                log::complain(format_args!(
                    "the fresh copy of the driver was hit itself, {call} answers {}: begun again, copy {next} of \
                     {MOST_COPIES}",
                    answer.0
                ));
                thread::park_timeout(FIRST_PAUSE * (1 << (next - 2)));
            }
            Err(NotMade::Hit(failed) | NotMade::Failed(failed)) => {
                return Err(given_up(dead, listeners, failed.into()));
            }
            Err(NotMade::System(refusal)) => return Err(given_up(dead, listeners, refusal)),
        }
    }
}

/// Whether another copy is tried where so many were tried again already.
fn is_another_tried(begun_again: u32, until: Instant) -> bool {
    begun_again + 1 < MOST_COPIES && Instant::now() < until
}

/// There is no other copy: the dead one answers the program as it would have.
fn given_up(dead: Belongings, listeners: Vec<socket_name::Exchanged>, refusal: Refusal) -> Refusal {
    belongings::put_back(dead);
    std::mem::forget(listeners);
    refusal
}

/// Why a fresh copy has not got everything.
#[derive(Debug)]
enum NotMade {
    /// Its context has died meanwhile.
    Hit(Failed),
    /// A sound copy has refused something.
    Failed(Failed),
    System(Refusal),
}

/// A fresh copy that leads and has everything. Of one that has not nothing is left that another one could meet.
fn fresh_copy(
    memory: &Memory,
    objects: &Objects,
    until: Instant,
    clock: &mut Clock,
    recovery: &mut Recovery,
) -> Result<(Renamed, copies::Copy), NotMade> {
    let system = |what, why| NotMade::System(Refusal::System(what, why));
    let (file, was_prepared) = copies::file().map_err(|error| system("no copy of the driver", error.to_string()))?;
    recovery.was_prepared = u32::from(was_prepared);
    reached("copy-found");
    clock.ended(Step::File, recovery);

    let interval = belongings::Interval::begin_anyway();
    let loaded = copies::load(&file);
    clock.ended(Step::Load, recovery);
    let fresh = loaded.map_err(|text| system("the copy of the driver cannot be loaded", text))?;
    reached("copy-loaded");
    let before = fresh.take_over();
    reached("copy-leads");
    let led = private::targets();
    let made = rebuild(memory, objects, until, clock, recovery);
    let made = made.map_err(|failed| if is_hit(failed) { NotMade::Hit(failed) } else { NotMade::Failed(failed) });
    interval.end();
    match made {
        Ok(renamed) => {
            private::ended(library::generation(), &led);
            Ok((renamed, fresh))
        }
        Err(why) => {
            if let NotMade::Hit(Failed { call: MAKES_CONTEXT, answer }) = why {
                evidence::hear_of_context(answer, 0);
            }
            // What the fresh copy has is given back, its addresses and its name at once: the next one needs them.
            let _what_it_had_by_then = rest::give_back(memory);
            before.restore();
            private::restore(&led);
            let listeners = socket_name::free().unwrap_or_default();
            let cut = amputation::silence(&belongings::take_discarded(), fresh.owner(), &listeners);
            dead::give_back(Some(Dead::discarded(fresh, cut.descriptors)));
            Err(why)
        }
    }
}

/// Whether a copy that leads, and has answered so, is one whose context has died, or that has got none.
fn is_hit(Failed { call, answer }: Failed) -> bool {
    match errors::meaning(answer) {
        Some(Meaning::ForGood(_)) => false,
        Some(Meaning::Dead) => true,
        // There is no context yet that could be asked.
        _ if BEFORE_CONTEXTS.contains(&call) => answer != CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        Some(Meaning::Perhaps) => errors::is_confirmed(Meaning::Perhaps),
        None => false,
    }
}

fn rebuild(
    memory: &Memory,
    objects: &Objects,
    until: Instant,
    clock: &mut Clock,
    recovery: &mut Recovery,
) -> Result<Renamed, Failed> {
    let now = Instant::now();
    let deadline = Deadline::new(until.min(now + SERVER_PATIENCE), is_another_tried(recovery.begun_again, until), now);
    patiently(deadline, &mut recovery.tries, "cuInit", || driver!(lookup::cuInit(0)))?;
    reached("copy-initialised");
    clock.ended(Step::Init, recovery);
    hit_if_told("copy-hit-early")?;
    let contexts = memory.make_contexts(|device| retained(device, deadline, &mut recovery.tries))?;
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
    hit_if_told("copy-hit-late")?;
    // This thread's own stack is put in place when it goes in again.
    checked("cuCtxSetCurrent", driver!(context::cuCtxSetCurrent(CUcontext(0))))?;
    clock.ended(Step::Objects, recovery);
    Ok(renamed)
}

/// A test has the copy hit here: another fault, of which the driver hears at this moment.
fn hit_if_told(name: &'static str) -> Result<(), Failed> {
    if fails(name) { Err(Failed { call: "a test", answer: CUresult(719) }) } else { Ok(()) }
}
