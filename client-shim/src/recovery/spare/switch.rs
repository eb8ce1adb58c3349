//! The program goes on with the spare copy: what it lacks is made, and it takes the dead one's place.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::BTreeSet;

use super::{
    super::{
        amputation::Mapped,
        burial::Former,
        exchange::Exchanged,
        memory::{Failed, Memory, checked},
        objects::Objects,
        report::{Clock, Lap, Recovery, Step, Switch, Way},
    },
    Held,
    making::Spare,
    told,
};
use crate::{
    cuda::{belongings, library, names, result::CUresult, second, types::CUcontext},
    daemon::spare::is_void,
    kept::code::stacks,
    process::{failpoint::reached, log},
    recovery::private,
};

impl Held {
    /// Goes on with the spare copy, if there is one that can. The gate is closed and nobody is inside. Where there is none,
    /// nothing of it is left that another copy could meet.
    pub(in super::super) fn switch(
        mut self,
        memory: &Memory,
        objects: &Objects,
        clock: &mut Clock,
        recovery: &mut Recovery,
    ) -> (Option<Exchanged>, Self) {
        recovery.way = Way::NoSpare as u32;
        let Some(mut spare) = self.work.spare.take() else { return (None, self) };
        let grant = spare.grant;
        let switched = if is_void(grant) || spare.generation != library::generation() {
            Err(Failed { call: "a server that is sound", answer: CUresult(806) })
        } else {
            exchange(&mut spare, memory, objects, clock, recovery)
        };
        match switched {
            Ok(switched) => {
                recovery.way = Way::Spare as u32;
                told::goes_on(grant.token);
                (self.work.next, self.work.pause) = (None, super::FIRST_PAUSE);
                self.work.left = Some(spare);
                (Some(switched), self)
            }
            Err(Failed { call, answer }) => {
                recovery.way = Way::SpareFailed as u32;
                log::complain(format_args!("the spare copy of the driver is of no use: {call} answers {}", answer.0));
                spare.discard();
                told::goes(grant.token);
                (None, self)
            }
        }
    }
}

fn exchange(
    spare: &mut Spare,
    memory: &Memory,
    objects: &Objects,
    clock: &mut Clock,
    recovery: &mut Recovery,
) -> Result<Exchanged, Failed> {
    let chosen = second::Chosen::begin();
    let mut lap = Lap::begin();
    spare.made.lives()?;
    lap.ended(Switch::Alive, recovery);
    let mut behind = spare.made.follow_memory(memory)?;
    lap.ended(Switch::Memory, recovery);
    reached("spare-memory-again");
    clock.ended(Step::Map, recovery);
    behind += spare.made.follow_objects(objects)?;
    if spare.made.is_waiting() {
        return Err(Failed { call: "a look at arrays of which none is being destroyed", answer: CUresult(400) });
    }
    lap.ended(Switch::Objects, recovery);
    behind += spare.follow_stacks(objects)?;
    lap.ended(Switch::Stack, recovery);
    let small = spare.small_stacks(objects);
    behind += spare.made.follow_settings(objects, !small.is_empty())?;
    lap.ended(Switch::Settings, recovery);
    behind += spare.made.follow_variables(objects)?;
    lap.ended(Switch::Variables, recovery);
    behind += spare.made.follow_graphs(objects, (&BTreeSet::new(), || false))?;
    lap.ended(Switch::Graphs, recovery);
    let mut renamed = spare.made.handed_over(memory);
    memory.name_contexts(&mut renamed)?;
    lap.ended(Switch::Names, recovery);
    recovery.behind = u32::try_from(behind).unwrap_or(u32::MAX);
    recovery.calls = chosen.calls();
    reached("spare-objects-again");
    drop(chosen);
    let mapped = Mapped::now();
    let before = spare.copy.takes_the_place();
    let led = private::targets();
    let current = |name: CUcontext| CUcontext(renamed.get(&names::current_of(name.0)).copied().unwrap_or(0));
    let led_over = private::lead(current).map_err(|(call, answer)| Failed { call, answer });
    // This thread's own stack is put in place when it goes in again.
    let led_over = led_over.and_then(|()| checked("cuCtxSetCurrent", driver!(context::cuCtxSetCurrent(CUcontext(0)))));
    if let Err(failed) = led_over {
        before.restore();
        private::restore(&led);
        return Err(failed);
    }
    private::ended(library::generation(), &led);
    stacks::are_small(small);
    reached("spare-leads");
    let opened = spare.copy.owner().map(|owner| {
        owner.is_spare_no_more();
        owner.opened()
    });
    let belongings = belongings::exchange(opened.unwrap_or_default());
    spare.copy.is_spare_no_more();
    lap.ended(Switch::Lead, recovery);
    clock.ended(Step::Objects, recovery);
    let former = Former::new(belongings, mapped, memory.reserved(), None);
    Ok(Exchanged { renamed, fresh: spare.copy, former, spare: Some(spare.grant.server) })
}
