//! The side of who has made an event: it is given away, and recorded for others too.
#![expect(unsafe_code, reason = "calls the driver, and writes its result parameters")]

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    Event, Shared, events,
    handle::{LIFELINE, Said},
    is_used_now, loss, shared,
    slot::{COUNT, RING, Slot},
    watch,
};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::ipc::cuIpcGetEventHandle,
        gate, names,
        result::CUresult,
        types::{CUevent, CUipcEventHandle, CUstream, Key as _},
    },
    kept::{
        account::{self, Reason},
        memory::pinned,
        objects::{current::context, recipes, recipes::Recipe},
    },
    process::{
        descriptors::Held,
        lifeline, log, pages,
        passing::{self, EVENTS, Kind},
    },
};

/// `CU_STREAM_NON_BLOCKING`, `CU_STREAM_WAIT_VALUE_GEQ`; the write is behind all that its stream has written before.
const NON_BLOCKING: u32 = 1;
pub(super) const GREATER_OR_EQUAL: u32 = 0;
const BEHIND_ALL: u32 = 0;
/// As memory of the program's that is registered: for all contexts, and mapped.
const REGISTERED_AS: u32 = 3;

/// A page of this process's events, and two with the same places that no other process has: what others write in the first
/// one neither keeps a record waiting nor says what was lost.
#[derive(Debug)]
pub(super) struct OwnPage {
    start: usize,
    private: [usize; 2],
    file: Held,
    number: u64,
    /// By place: which event has it, or 0, the context of the last one that had, and the last record.
    taken: [u64; COUNT],
    contexts: [usize; COUNT],
    last: &'static [AtomicU64; COUNT],
}

/// A place in which there may be records that have not come, whether its event has ended or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: Slot,
    /// The same in the pages that are ours alone: what has come, and what others see of it, too.
    pub(super) own: Slot,
    seen: Slot,
    last: &'static AtomicU64,
}

impl Place {
    /// The number of its last record.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// All its records have come, or never will.
    pub(super) fn release(&self) {
        [self.slot, self.own, self.seen].into_iter().for_each(|slot| slot.release(self.last()));
    }
}

impl OwnPage {
    pub(super) fn starts(&self) -> [usize; 3] {
        let [own, seen] = self.private;
        [self.start, own, seen]
    }

    /// Whether the driver reaches it still.
    fn is_registered(&self) -> bool {
        self.starts().into_iter().all(is_registered)
    }

    /// The places of events of this context by name, or of all.
    pub(super) fn places(&self, context: Option<usize>) -> impl Iterator<Item = Place> {
        let of = self.contexts.iter().zip(self.last).enumerate();
        let used = of.filter(move |(_, (of, _))| **of != 0 && context.is_none_or(|context| context == **of));
        used.filter_map(|(index, (_, last))| {
            let [slot, own, seen] = self.starts().map(|start| Slot::of(start, index.key()));
            Some(Place { slot: slot?, own: own?, seen: seen?, last })
        })
    }
}

/// An event of this process that another one may wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exported {
    pub(super) slot: Slot,
    /// The same in the pages that are ours alone.
    own: Slot,
    seen: Slot,
    /// Its context, by name.
    pub(super) context: usize,
    page: usize,
    index: usize,
    /// Which of all events that had a place.
    event: u64,
    last: &'static AtomicU64,
}

/// For who listens: a page's file, or the lifeline.
fn find(number: u64) -> Option<Held> {
    if number == LIFELINE {
        return lifeline::own().ok();
    }
    shared(|shared| shared.own.iter().find(|page| page.number == number)?.file.copy_for_the_vault())
}

impl Shared {
    /// The place of an event that has ended is another one's.
    pub(super) fn free(&mut self, event: &Exported) {
        if let Some(page) = self.own.iter_mut().find(|page| page.start == event.page)
            && page.taken[event.index] == event.event
        {
            page.taken[event.index] = 0;
        }
    }

    /// A free place in a page that is registered.
    fn take(&mut self, pages: &[usize], context: usize) -> Option<Exported> {
        let page = self.own.iter_mut().find(|page| pages.contains(&page.start) && page.taken.contains(&0))?;
        let index = page.taken.iter().position(|event| *event == 0)?;
        let [slot, own, seen] = page.starts().map(|start| Slot::of(start, index.key()));
        let (slot, own, seen) = (slot?, own?, seen?);
        self.exported += 1;
        let event = self.exported;
        slot.is_of(event);
        page.taken[index] = event;
        page.contexts[index] = context;
        Some(Exported { slot, own, seen, context, page: page.start, index, event, last: &page.last[index] })
    }

    fn number_of(&self, page: usize) -> Option<u64> {
        self.own.iter().find(|own| own.start == page).map(|own| own.number)
    }
}

/// Why an event stays the driver's.
#[derive(Debug, thiserror::Error)]
enum NotOurs {
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("{0} answers {1}")]
    Driver(&'static str, u32),
}

fn checked(call: &'static str, CUresult(answer): CUresult) -> Result<(), NotOurs> {
    if answer == 0 { Ok(()) } else { Err(NotOurs::Driver(call, answer)) }
}

/// Has the driver reach a page, in all contexts, and each copy after it.
pub(super) fn register(page: usize, context: usize) -> Result<(), CUresult> {
    pinned::register(page, pages::SIZE)?;
    let recipe = Recipe::HostRange { context, size: pages::SIZE, flags: REGISTERED_AS };
    // Nothing is kept of it where nothing is recovered.
    let _kept = recipes(|recipes| recipes.keep(page, recipe));
    Ok(())
}

/// Whether the driver reaches a page still: that ends with the context it was registered in.
pub(super) fn is_registered(page: usize) -> bool {
    recipes(|recipes| recipes.is_kept(page)).unwrap_or(false)
}

/// Logic of `cuIpcGetEventHandle`.
pub(crate) fn export(
    driver: &mut Driver<cuIpcGetEventHandle::Signature>,
    handle: *mut CUipcEventHandle,
    event: CUevent,
) -> Result<CUresult, Bypass> {
    let name = names::name_of(event.0);
    let exported = match events::kind(name).filter(|_| gate::is_armed() && !handle.is_null()) {
        Some(events::Kind::Exported(exported)) => Ok(exported),
        Some(events::Kind::Made) => given_away(name, event, context()?),
        Some(events::Kind::Imported(_)) | None => return Ok(by_driver(driver, event)),
    };
    let said = exported.and_then(|exported| {
        let secret = passing::listening(Kind::Events, find)?;
        let page = shared(|shared| shared.number_of(exported.page)).ok_or_else(|| io::Error::other("no page"))?;
        Ok(Said { secret, page, index: exported.index.key(), event: exported.event })
    });
    match said {
        Ok(said) => {
            // SAFETY: the program wants it there.
            unsafe { handle.write_unaligned(said.write()) };
            Ok(CUresult::CUDA_SUCCESS)
        }
        Err(error) => {
            log::complain(format_args!("an event for other processes stays the driver's: {error}"));
            Ok(by_driver(driver, event))
        }
    }
}

fn by_driver(driver: &mut Driver<cuIpcGetEventHandle::Signature>, event: CUevent) -> CUresult {
    let answer = driver.pass();
    if answer.is_success() {
        account::counted("cuIpcGetEventHandle", Reason::Ipc, event.key());
    }
    answer
}

/// Gives an event a place, whose first record is the event's last one.
fn given_away(name: usize, event: CUevent, context: usize) -> Result<Exported, NotOurs> {
    // Before the last record is looked at: none that comes later goes the short way.
    is_used_now();
    let exported = place(context)?;
    let recorded = record_behind(&exported, event);
    if let Err(error) = recorded {
        shared(|shared| shared.free(&exported));
        return Err(error);
    }
    shared(|shared| shared.events.insert(name, Event::Exported(exported)));
    Ok(exported)
}

fn place(context: usize) -> Result<Exported, NotOurs> {
    let name = names::name_of(context);
    // Those that are not are registered again when nothing else is left.
    let (registered, left): (Vec<_>, Vec<_>) =
        shared(|shared| shared.own.iter().map(|page| (page.starts(), page.is_registered())).collect::<Vec<_>>())
            .into_iter()
            .partition(|(_, is_registered)| *is_registered);
    let registered: Vec<usize> = registered.into_iter().map(|([start, ..], _)| start).collect();
    if let Some(exported) = shared(|shared| shared.take(&registered, name)) {
        return Ok(exported);
    }
    for (starts, _) in left {
        for start in starts.into_iter().filter(|start| !is_registered(*start)) {
            let answer = register(start, context).err().unwrap_or(CUresult::CUDA_SUCCESS);
            checked("cuMemHostRegister", answer)?;
        }
        if let Some(exported) = shared(|shared| shared.take(&starts[..1], name)) {
            return Ok(exported);
        }
    }
    let (file, start) = pages::new()?;
    let own = pages::private().inspect_err(|_| pages::unmap(start))?;
    let seen = pages::private().inspect_err(|_| [start, own].into_iter().for_each(pages::unmap))?;
    let starts = [start, own, seen];
    for page in starts {
        (0..COUNT.key()).filter_map(|index| Slot::of(page, index)).for_each(Slot::begin);
    }
    for (at, page) in starts.into_iter().enumerate() {
        if let Err(answer) = register(page, context) {
            // The driver has those before it.
            starts.into_iter().skip(at).for_each(pages::unmap);
            return Err(NotOurs::Driver("cuMemHostRegister", answer.0));
        }
    }
    // As long as the page, which is as long as the process.
    let last: &'static _ = Box::leak(Box::new([const { AtomicU64::new(RING - 1) }; COUNT]));
    let taken = shared(|shared| {
        let number = EVENTS + shared.own.len().key();
        shared.own.push(OwnPage {
            start,
            private: [own, seen],
            file,
            number,
            taken: [0; COUNT],
            contexts: [0; COUNT],
            last,
        });
        shared.take(&[start], name)
    });
    taken.ok_or_else(|| NotOurs::System(io::Error::other("the page is full")))
}

/// A record that comes when the event has.
fn record_behind(exported: &Exported, event: CUevent) -> Result<(), NotOurs> {
    let mut stream = CUstream(0);
    checked("cuStreamCreate", driver!(stream::cuStreamCreate(&raw mut stream, NON_BLOCKING)))?;
    let waits = driver!(stream::cuStreamWaitEvent(stream, event, 0));
    let recorded = checked("cuStreamWaitEvent", waits)
        .and_then(|()| checked("cuStreamWriteValue64", record(exported, stream, false)));
    // Its work goes on.
    let _nothing_to_do = driver!(stream::cuStreamDestroy_v2(stream));
    recorded
}

/// Writes the number of a new record behind what a stream has, of the living copy; the driver's answer.
pub(crate) fn record(exported: &Exported, stream: CUstream, is_per_thread: bool) -> CUresult {
    let Exported { slot, own, seen, .. } = *exported;
    let number = exported.last.fetch_add(1, Ordering::AcqRel) + 1;
    let mut answer = CUresult::CUDA_SUCCESS;
    if !seen.has_room(number) {
        let (address, before) = (seen.address(number), number.saturating_sub(RING));
        answer = if is_per_thread {
            driver!(per_thread stream::cuStreamWaitValue64_v2(stream, address, before, GREATER_OR_EQUAL))
        } else {
            driver!(stream::cuStreamWaitValue64_v2(stream, address, before, GREATER_OR_EQUAL))
        };
    }
    // Ours first: of what others see we know. And last: another stream has the word when others see what it had before, or that
    // would come later than its own number and take it back.
    for address in [own, slot, seen].map(|slot| slot.address(number)) {
        if answer.is_success() {
            answer = if is_per_thread {
                driver!(per_thread stream::cuStreamWriteValue64_v2(stream, address, number, BEHIND_ALL))
            } else {
                driver!(stream::cuStreamWriteValue64_v2(stream, address, number, BEHIND_ALL))
            };
        }
    }
    if answer.is_success() {
        watch::settle_later(slot, number);
        slot.publish(number);
        loss::published();
    } else if exported.last.compare_exchange(number, number - 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // Another thread has the next number, and nobody will write this one.
        loss::skip(own, [slot, own, seen], number, answer);
    }
    answer
}
