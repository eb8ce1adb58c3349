//! The side of who has opened an event of another process: its streams wait for it, and it is asked for.
//!
//! The program's handle is an event of its own, which is never recorded: whatever does not go through here would find that
//! it has come, so all that is not here is refused, by what stands around each call.
#![expect(unsafe_code, reason = "writes the driver's result parameters")]

use std::{io, thread, time::Duration};

use super::{
    DISABLE_TIMING, Event,
    handle::{LIFELINE, Said},
    is_used_now,
    owner::{GREATER_OR_EQUAL, is_registered, register},
    shared,
    slot::{Slot, State, Wait},
    told, watch,
};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::ipc::cuIpcOpenEventHandle,
        gate, names,
        result::CUresult,
        types::{CUevent, CUipcEventHandle, CUstream, Key as _},
    },
    kept::{
        account::{self, Reason},
        objects::{current::context, keep, recipes::Recipe},
        work::progress,
    },
    process::{
        descriptors::Held,
        lifeline, log, pages,
        passing::{self, Secret},
    },
};

/// `CUDA_ERROR_INVALID_HANDLE`, `CUDA_ERROR_NOT_READY`.
const INVALID_HANDLE: CUresult = CUresult(400);
const NOT_READY: CUresult = CUresult(600);
/// Between two looks of a thread that waits, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Another process whose events are open here.
#[derive(Debug)]
pub(super) struct Owner {
    /// `None` once it has ended.
    pub(super) lifeline: Option<Held>,
}

/// An event of another process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Imported {
    pub(super) slot: Slot,
    pub(super) owner: Secret,
}

/// Logic of `cuIpcOpenEventHandle`.
pub(crate) fn open(
    driver: &mut Driver<cuIpcOpenEventHandle::Signature>,
    place: *mut CUevent,
    handle: CUipcEventHandle,
) -> Result<CUresult, Bypass> {
    let Some(said) = Said::read(&handle) else {
        let answer = driver.pass();
        if answer.is_success() && !place.is_null() {
            // SAFETY: the driver has just written there.
            account::counted("cuIpcOpenEventHandle", Reason::Ipc, unsafe { *place }.key());
        }
        return Ok(answer);
    };
    if !gate::is_armed() {
        log::complain(format_args!(
            "another process's event is for programs with MPS_SHIM_REPLAY alone; cuIpcOpenEventHandle fails with \
             CUDA_ERROR_NOT_SUPPORTED (801)"
        ));
        return Ok(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if place.is_null() {
        return Ok(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = context()?;
    // What the driver says to a process about what is its own.
    if passing::is_own(said.secret) {
        return Ok(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let slot = match found(&said, context) {
        Ok(slot) => slot,
        Err(why) => {
            log::complain(format_args!(
                "another process's event cannot be had: {why}; cuIpcOpenEventHandle fails with CUDA_ERROR_MAP_FAILED \
                 (205)"
            ));
            return Ok(CUresult::CUDA_ERROR_MAP_FAILED);
        }
    };
    if slot.event() != said.event {
        return Ok(INVALID_HANDLE);
    }
    let mut event = CUevent(0);
    let answer = driver!(event::cuEventCreate(&raw mut event, DISABLE_TIMING));
    if !answer.is_success() {
        return Ok(answer);
    }
    let name = names::name_of(event.0);
    progress::made_event(name);
    keep("cuEventCreate", event.0, Recipe::Event { context, flags: DISABLE_TIMING })?;
    is_used_now();
    shared(|shared| shared.events.insert(name, Event::Imported(Imported { slot, owner: said.secret })));
    // SAFETY: the program wants its result there.
    unsafe { *place = event };
    Ok(CUresult::CUDA_SUCCESS)
}

/// Why an event cannot be had.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the process that has it does not give it: {0}")]
    Owner(#[from] io::Error),
    #[error("the driver does not register its page: {0}")]
    Driver(u32),
}

/// The place of an event in its page, which is mapped, and registered, for good.
fn found(said: &Said, context: usize) -> Result<Slot, Refused> {
    let none = || io::Error::other("a handle that nobody has written");
    watched(said.secret)?;
    let key = (said.secret, said.page);
    let known = shared(|shared| shared.opened.get(&key).map(|(page, _)| *page));
    let page = match known {
        Some(page) => page,
        None => {
            let file = passing::ask(said.secret, said.page)?;
            let page = pages::map(&file)?;
            // Another thread has opened it meanwhile.
            match shared(|shared| shared.opened.insert(key, (page, file))) {
                None => page,
                Some((before, file)) => {
                    shared(|shared| shared.opened.insert(key, (before, file)));
                    pages::unmap(page);
                    before
                }
            }
        }
    };
    if !is_registered(page) {
        register(page, context).map_err(|CUresult(answer)| Refused::Driver(answer))?;
    }
    Slot::of(page, said.index).ok_or_else(|| none().into())
}

/// Watches over a process from now on.
fn watched(owner: Secret) -> io::Result<()> {
    let is_known = shared(|shared| shared.owners.get(&owner).map(|known| known.lifeline.is_some()));
    match is_known {
        Some(true) => Ok(()),
        Some(false) => Err(io::Error::other("it has ended")),
        None => {
            let lifeline = lifeline::of_another(passing::ask(owner, LIFELINE)?)?;
            watch::begin()?;
            let owner_now = Owner { lifeline: Some(lifeline) };
            shared(|shared| {
                shared.owners.entry(owner).or_insert(owner_now);
            });
            watch::look();
            Ok(())
        }
    }
}

impl Imported {
    fn has_ended(&self) -> bool {
        shared(|shared| shared.has_ended(self.owner))
    }

    /// What has become of its last record, and a wait for it.
    fn looked_at(&self) -> (State, Wait) {
        let wait = self.slot.wait(self.owner);
        let state = match self.slot.lost(wait.number) {
            Some(error) => State::Lost(error),
            None => wait.state(self.has_ended()),
        };
        (state, wait)
    }
}

impl super::Shared {
    /// Whether a process has ended.
    pub(super) fn has_ended(&self, owner: Secret) -> bool {
        self.owners.get(&owner).is_none_or(|known| known.lifeline.is_none())
    }
}

/// Has a stream of the living copy wait for an event.
///
/// # Errors
/// What is to be told in the place of an answer: the record was lost.
pub(crate) fn wait(event: &Imported, stream: CUstream, is_per_thread: bool) -> Result<CUresult, CUresult> {
    let (state, wait) = event.looked_at();
    match state {
        State::Come => return Ok(CUresult::CUDA_SUCCESS),
        State::Lost(error) => return Err(error),
        State::Open | State::Unsettled => {}
    }
    // Before the stream goes on: whoever settles a record of ours knows of it.
    told::expect(wait);
    let address = event.slot.address(wait.number);
    let answer = if is_per_thread {
        driver!(per_thread stream::cuStreamWaitValue64_v2(stream, address, wait.number, GREATER_OR_EQUAL))
    } else {
        driver!(stream::cuStreamWaitValue64_v2(stream, address, wait.number, GREATER_OR_EQUAL))
    };
    if !answer.is_success() {
        told::expect_no_more(&wait);
    }
    Ok(answer)
}

/// Answers a question, or a wait of the host.
pub(crate) fn ask(event: &Imported, waits: bool) -> CUresult {
    let (mut state, wait) = event.looked_at();
    let mut pause = FIRST_PAUSE;
    while waits && matches!(state, State::Open | State::Unsettled) {
        thread::park_timeout(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        state = wait.state(event.has_ended());
    }
    match state {
        State::Come => CUresult::CUDA_SUCCESS,
        State::Lost(error) => error,
        State::Open | State::Unsettled => NOT_READY,
    }
}
