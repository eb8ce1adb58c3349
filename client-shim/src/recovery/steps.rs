//! One recovery, from the answer that began it to the copy of the driver that stands in the dead one's place.
//!
//! | step | what is done | if it fails |
//! |---|---|---|
//! | wait | the gate closes, all threads come out | refused, and tried again when they have: a thread that is in the dead copy would stay there |
//! | wait | the program's other GPUs have done their work, see [`others`] | refused, and tried again |
//! | wait | nothing runs any more, see [`rest`](super::rest) | refused, and tried again |
//! | unmap | the dead copy unmaps the memory and frees its addresses | see [`rest`](super::rest) |
//! | name | the driver's socket name becomes free | refused |
//! | file, load | a copy of the driver's file, loaded | refused |
//! | init, context | the copy is initialised and has the same contexts; a server that is not ready is asked again | refused |
//! | map | the same memory at the same addresses | refused |
//! | objects | everything else, by its recipe | refused |
//! | init to objects | | where the copy's own context has died meanwhile another copy is begun with, a few times at most |
//! | | the gate opens | |
//! | amputate | the dead copy is cut off, see [`burial`](super::burial), which in one case comes before the gate | |
//!
//! From "unmap" to "objects" it is in [`exchange`](super::exchange). With a spare copy that is ready ([`spare`]) that is done
//! before: what it lacks is made, and it takes the place.
//!
//! A program that was refused has what it would have had without this library: a dead driver that answers each call with
//! the error. After the first step that changes something nothing is tried again.
//!
//! It begins with an answer to a call of the program's, or, where the control daemon has announced it
//! ([`announced`](super::announced)), before any call: a program that waits for nothing finds everything in its place.
//!
//! When one is begun and when it is refused is in [`attempts`], what the program is told of it in [`told`](super::told).

mod attempts;

pub(super) use attempts::{after, ahead_of_the_driver, on_the_daemons_word, settled, while_closed, with_the_living};

use std::{collections::BTreeMap, time::Duration};

use super::{
    CONSTANT_RANGES, ahead, announced,
    burial::{self, Burial},
    exchange::{Exchanged, exchange},
    memory::{Memory, Renamed},
    objects::Objects,
    others, private,
    refusal::{Refusal, obstacles},
    report::{self, Clock, Lap, Recovery, Step, Switch},
    spare, told,
};
use crate::cuda::{
    dead::{self, Ask, Dead},
    gate,
    moved::{self, Moves},
    names,
    resources::Known,
};
use crate::process::signals::NoBrokenPipe;
use crate::{
    cuda::{library, result::CUresult},
    daemon::news,
    kept::{
        self,
        code::stacks,
        shared,
        streams::callbacks,
        work::{doubt, progress},
    },
    process::{failpoint::reached, log, settings},
};
use attempts::Begun;

/// How long threads may take to come out. A call of a driver that is dead returns at once, after a memory fault within
/// 150 ms.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long they may take besides where they compile, which a dead context does not end, or wait for another GPU.
const MORE_PATIENCE: Duration = others::PATIENCE;

/// All of it, and what has begun anew. Nobody else recovers.
fn recover(error: CUresult, begun: Begun) -> Result<(Recovery, BTreeMap<usize, String>), Refusal> {
    let (count, refused) = (report::get().count + 1, report::get().refused);
    let mut recovery = Recovery { count, refused, error: error.0, begun: begun as u32, ..Recovery::none() };
    let is_ahead = begun == Begun::Ahead;
    let mut clock = Clock::begin(&mut recovery);
    // As soon as another copy has a server the daemon speaks of that one.
    let (server, _) = news::said();
    obstacles(Memory::survey().1)?;
    // The answer is on its way meanwhile: a daemon that has much to do, or is stopped, keeps nobody from going on.
    let mut part = news::ask_part();
    if settings::is_sparing_culprits() && announced::is_own_fault(error.0, part.answer().0) {
        return Err(Refusal::OwnFault);
    }
    let closed = gate::close();
    reached("gate-closed");
    let mut inside = closed.wait(if is_ahead { ahead::PATIENCE } else { PATIENCE });
    if is_ahead && (inside > 0 || !ahead::is_all_done()) {
        return Err(Refusal::AtWork);
    }
    if closed.are_all_compiling(inside) || (inside > 0 && others::are_there()) {
        inside = closed.wait(MORE_PATIENCE);
    }
    if inside > 0 {
        return Err(Refusal::Stuck(closed.late()));
    }
    reached("threads-out");
    // Where all is done nobody need be asked.
    let unsure = if is_ahead { None } else { others::wait(error)? };
    let are_at_rest = unsure.is_none();
    let busy = progress::busy();
    // Nothing is changed before nothing runs any more.
    if busy > 0
        && let Some(refusal) = unsure
        && !news::is_server_reaped()
    {
        return Err(refusal);
    }
    // What waited for work to be freed waits no longer: the dead copy gives it back.
    let pending = kept::memory(|memory| memory.slabs.free_all_pending()).unwrap_or_default();
    for emptied in pending {
        let _as_good_as_kept = kept::memory::freeing::give_back(emptied);
    }
    // A thread may have made something until the gate was closed.
    let (memory, of_memory) = Memory::survey();
    obstacles(of_memory)?;
    let Some(memory) = memory else { return Err(Refusal::Obstacle("nothing is kept".to_owned())) };
    let mut objects = Objects::survey();
    if is_ahead && ahead::would_be_told(&objects) {
        return Err(Refusal::AtWork);
    }
    if settings::lines_wanted() && !dead::are_cut_off(Duration::ZERO) {
        log::complain(format_args!("a recovery waits until the dead copy of the driver before is cut off"));
    }
    let none_is_given_back = dead::none_is_given_back();
    clock.ended(Step::Wait, &mut recovery);

    let is_blocking = settings::are_launches_blocking();
    let anew = objects.anew();
    recovery.modules_anew = u64::try_from(anew.len()).unwrap_or(u64::MAX);
    recovery.objects = u64::try_from(objects.count()).unwrap_or(u64::MAX);

    let quiet = NoBrokenPipe::begin();
    let mut lap = Lap::begin();
    let patience = if is_ahead { ahead::PATIENCE } else { spare::PATIENCE };
    let (switched, held) = match spare::hold(patience)? {
        Some(held) => {
            lap.ended(Switch::Held, &mut recovery);
            let (switched, held) = held.switch(&memory, &objects, &mut clock, &mut recovery);
            (switched, Some(held))
        }
        None => (None, None),
    };
    // Looked at before and after, when the daemon may have spoken of another server since. A switch takes no time in which
    // something could be closed.
    let mut is_proven = are_at_rest || news::is_known_to_be_reaped(server);
    let Exchanged { renamed, fresh, former, spare } = match switched {
        Some(switched) => {
            is_proven = true;
            switched
        }
        // The copy that the program has may live on.
        None if is_ahead => return Err(Refusal::AtWork),
        None => {
            let exchanged = exchange(&memory, &objects, &mut clock, &mut recovery)?;
            stacks::are_small(Vec::new());
            is_proven |= news::is_known_to_be_reaped(server);
            exchanged
        }
    };
    // So that the only one is renamed, and not another one made for that.
    objects.still = None;
    let renamed = rename(&renamed, &objects);
    let ask = Ask { generation: library::generation(), lets_go: private::lets_go };
    let (dead, burial) = if is_proven {
        let burial = Burial::new(former, recovery.count, clock.begun(), quiet);
        (Dead::take(Vec::new(), renamed, ask), Some(burial))
    } else {
        let cut = former.cut_off();
        reached("dead-cut-early");
        clock.ended(Step::Amputate, &mut recovery);
        recovery.cut_early(&cut);
        burial::is_cut_off(recovery.count, &cut, Duration::from_micros(recovery.steps[Step::Amputate as usize]));
        (Dead::take(cut.descriptors, renamed, ask), None)
    };
    fresh.lives();
    reached("handles-renamed");
    let is_lost = busy > 0 || is_blocking;
    let mut in_doubt = Vec::new();
    if is_lost {
        recovery.lost_streams = u32::try_from(busy).unwrap_or(u32::MAX);
        recovery.lost_work = progress::lost();
        let constant_ranges = CONSTANT_RANGES.get().map_or_else(Vec::new, |tell| tell());
        in_doubt = doubt::without(&[memory.ranges(), objects.host_ranges()].concat(), &constant_ranges);
        recovery.ranges_in_doubt = u64::try_from(in_doubt.len()).unwrap_or(u64::MAX);
        recovery.bytes_in_doubt = in_doubt.iter().map(|(_, size)| size).sum();
    }
    doubt::add(&in_doubt);
    let is_lossy = is_lost || recovery.modules_anew > 0;
    if is_lossy {
        progress::lose(recovery.count);
        told::lost(recovery.count, error);
        callbacks::lose(library::generation(), error);
    } else {
        progress::lose(0);
    }
    shared::recovered(is_lossy.then_some(error));
    library::lives(recovery.count);
    gate::changed();
    news::forget(recovery.count, server, spare);
    clock.stopped(&mut recovery);
    report::set(recovery, part);
    reached("generation-known");
    drop((closed, none_is_given_back));
    reached("gate-open");
    callbacks::call_lost();
    match burial {
        Some(burial) => burial.begin(dead),
        None => dead::give_back(dead),
    }
    drop(held);
    Ok((recovery, anew))
}

/// Everything has other handles now. The addresses at which nothing else may be found from now on: what the program calls
/// its objects, and where it knows its variables.
fn rename(renamed: &Renamed, objects: &Objects) -> Known {
    let (moves, of_program) = (objects.moves(renamed, |address| address), objects.moves(renamed, names::name_of));
    let current = |handle: usize| renamed.get(&handle).copied().unwrap_or(handle);
    let pairs: Vec<_> = renamed.iter().map(|(&before, &now)| (names::name_of(before), now)).collect();
    // What is not kept has no handles here.
    let _nothing = kept::memory(|memory| memory.rename(current));
    let _nothing = kept::objects(|objects| objects.contexts.rename(current));
    let _nothing = kept::recipes(|recipes| {
        recipes.rename(current);
        recipes.move_windows(&moves);
    });
    let _nothing = kept::graphs(|graphs| graphs.rename(current, &moves));
    let known = pairs.iter().map(|(name, _)| (*name, 1)).chain(of_program.sources()).collect();
    publish(pairs, of_program);
    known
}

#[expect(unsafe_code, reason = "the tables may only be changed while nobody reads it")]
fn publish(pairs: Vec<(usize, usize)>, moves: Moves) {
    // SAFETY: called by `recover` alone, while the gate is closed and nobody is inside.
    unsafe { names::publish(pairs.into_iter()) };
    // SAFETY: as above.
    unsafe { moved::publish(moves) };
}
