//! The making of a spare copy of the driver, beside the program's way.
//!
//! A copy of the driver notes at its start which addresses are taken, and never gives those. So what keeps others out of the
//! program's ranges is taken out of the maps before; the copy that lives goes on with them all the same (measured with
//! 580.159.04 on an H200). Its sockets have names of their own ([`resources`](crate::cuda::resources)).
#![expect(unsafe_code, reason = "calls the driver and marks descriptors")]

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        amputation::{self, Mapped},
        memory::{Failed, MAKES_CONTEXT, Memory, checked},
        objects::{Objects, enter},
        rest,
    },
    following::Made,
    is_stopped,
    looks::Due,
};
use remps_gpu_code::UNKNOWN_STACK;

use crate::{
    cuda::{
        belongings::Belongings,
        copies::{self, Copy},
        dead::{self, Dead},
        library,
        result::CUresult,
        second::Chosen,
        types::{CUcontext, CUdevice},
    },
    daemon::{evidence, news::SpareServer, spare::Grant},
    kept::{self, code::stacks},
    process::{failpoint::reached, settings, signals::NoBrokenPipe},
};

/// How long its server may not be ready, and the time between two questions.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(5);
/// What a copy has of `CU_LIMIT_STACK_SIZE` at first, and as long as the program has no kernel that needs more: its context
/// takes 257 MiB of the GPU and not 517 (measured with 580.159.04 on an H200).
const SMALL: usize = 16;

/// Why there is no spare copy.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotMade {
    #[error("{} answers {}", .0.call, .0.answer.0)]
    Driver(Failed),
    #[error("{0}")]
    System(String),
    #[error("a recovery is under way")]
    Stopped,
}

impl From<Failed> for NotMade {
    fn from(failed: Failed) -> Self {
        Self::Driver(failed)
    }
}

/// A spare copy that stands.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) copy: Copy,
    pub(super) grant: Grant,
    /// Beside which copy it stands.
    pub(super) generation: u64,
    pub(super) made: Made,
    /// Contexts whose stacks are small.
    stacks: Vec<Stacks>,
    /// The last recipe that was looked at, and what kernels need up to there.
    needed: (Option<u64>, u32),
}

/// The stacks of a context that are smaller than the driver makes them.
#[derive(Clone, Copy, Debug)]
struct Stacks {
    context: usize,
    /// Bytes that the driver gives them, and that they have.
    usual: usize,
    now: usize,
}

impl Spare {
    /// Makes one on the server of this grant.
    pub(super) fn make(grant: Grant) -> Result<Self, NotMade> {
        let generation = library::generation();
        let (file, _) = copies::file().map_err(|error| NotMade::System(error.to_string()))?;
        reached("spare-file");
        let copy = copies::load(&file).map_err(NotMade::System)?;
        drop(file);
        // Another one, for the way without a spare.
        dead::prepare();
        let Some(owner) = copy.owner() else {
            // It was never initialised, so it has nothing.
            return Err(NotMade::System("what the copy takes cannot be noted".to_owned()));
        };
        owner.names_sockets(grant.token);
        copy.is_spare();
        reached("spare-loaded");
        let chosen = Chosen::begin();
        let made = build();
        drop(chosen);
        match made {
            Ok((made, stacks)) => Ok(Self { copy, grant, generation, made, stacks, needed: (None, 0) }),
            Err(why) => {
                if let (NotMade::Driver(Failed { call: MAKES_CONTEXT, answer }), SpareServer::Number(server)) =
                    (&why, grant.server)
                {
                    evidence::hear_of_context(*answer, server);
                }
                discard(copy);
                Err(why)
            }
        }
    }

    /// Gives it as large stacks as the program's kernels need; how many contexts had less.
    pub(super) fn follow_stacks(&mut self, objects: &Objects) -> Result<u64, Failed> {
        if self.stacks.is_empty() {
            return Ok(0);
        }
        // What is no more has needed no less, so only another one is of interest.
        let last = objects.numbers.iter().max().copied();
        if last > self.needed.0 {
            self.needed = (last, stacks::need(&objects.recipes));
        }
        let most = self.needed.1;
        let mut count = 0;
        for of in &mut self.stacks {
            let usual = self.made.stack_of(of.context, objects).unwrap_or(of.usual);
            let wanted = usize::try_from(most).ok().filter(|_| most != UNKNOWN_STACK).unwrap_or(usual);
            if wanted > of.now {
                enter(of.context)?;
                checked("cuCtxSetLimit", driver!(context::cuCtxSetLimit(stacks::STACK_SIZE, wanted)))?;
                of.now = wanted;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Contexts whose stacks are smaller than the program believes, and what it does.
    pub(super) fn small_stacks(&self, objects: &Objects) -> Vec<(usize, usize)> {
        let all = self.stacks.iter().map(|of| (of, self.made.stack_of(of.context, objects).unwrap_or(of.usual)));
        all.filter(|(of, usual)| of.now < *usual).map(|(of, usual)| (of.context, usual)).collect()
    }

    /// Whether it lacks what the program is just ending.
    pub(super) fn is_waiting(&self) -> bool {
        self.made.is_waiting()
    }

    /// Follows the program; how many things it was behind.
    pub(super) fn follow(&mut self, memory: &Memory, objects: Option<&Objects>) -> Result<u64, Failed> {
        let of_memory = self.made.follow_memory(memory)?;
        Ok(of_memory + objects.map_or(Ok(0), |objects| self.made.follow_objects(objects))?)
    }

    /// Follows what is due of what was set on objects and made of them, until somebody needs the copy; how many things it was
    /// behind.
    pub(super) fn settle(&mut self, objects: &Objects, due: Due) -> Result<u64, Failed> {
        let mut count = self.follow_stacks(objects)?;
        // A graph's kernels need what was set on them.
        count += self.made.follow_settings(objects, !self.stacks.is_empty())?;
        if due.values {
            count += self.made.follow_variables(objects)?;
        }
        if let Some(last) = due.graphs {
            let changing = kept::graphs(|graphs| graphs.changed_since(last)).unwrap_or_default();
            count += self.made.follow_graphs(objects, (&changing, is_stopped))?;
        }
        Ok(count)
    }

    /// Gives it up: the GPU's memory is free when this returns, and the rest is given back beside.
    pub(super) fn discard(self) {
        // A dead server's pipe is written to, by a thread of the program's where memory is short; the spare's own takes no signals.
        let _ends_nobody = NoBrokenPipe::begin();
        let chosen = Chosen::begin();
        for device in self.made.devices() {
            // One whose server is gone has nothing there.
            let _nothing_to_do = driver!(context::cuDevicePrimaryCtxReset_v2(device));
        }
        drop(chosen);
        discard(self.copy);
    }
}

/// What was made, and stacks that are small.
type Built = (Made, Vec<Stacks>);

fn build() -> Result<Built, NotMade> {
    let (Some(memory), obstacles) = Memory::survey() else {
        return Err(NotMade::System("nothing is kept".to_owned()));
    };
    if let Some(obstacle) = obstacles.into_iter().next() {
        return Err(NotMade::System(obstacle));
    }
    rest::clear(&memory.reserved());
    reached("spare-cleared");
    patiently("cuInit", || driver!(lookup::cuInit(0)))?;
    reached("spare-initialised");
    let contexts = memory.make_contexts(|device| {
        let mut context = CUcontext(0);
        let retain = |device: CUdevice, context: &mut CUcontext| {
            driver!(context::cuDevicePrimaryCtxRetain(std::ptr::from_mut(context), device))
        };
        patiently(MAKES_CONTEXT, || retain(device, &mut context)).map_err(|why| match why {
            NotMade::Driver(failed) => failed,
            NotMade::System(_) | NotMade::Stopped => {
                Failed { call: MAKES_CONTEXT, answer: CUresult::CUDA_ERROR_UNKNOWN }
            }
        })?;
        Ok(context)
    })?;
    reached("spare-contexts");
    let mut small = Vec::new();
    for context in contexts.values().filter(|_| !settings::has_spare_full_stacks()) {
        enter(*context)?;
        let mut usual = 0;
        let has_one = driver!(context::cuCtxGetLimit(&raw mut usual, stacks::STACK_SIZE)).is_success();
        if has_one && driver!(context::cuCtxSetLimit(stacks::STACK_SIZE, SMALL)).is_success() {
            small.push(Stacks { context: *context, usual, now: SMALL });
        }
    }
    let mut made = Made::new(&memory, contexts);
    made.follow_memory(&memory)?;
    reached("spare-memory");
    if is_stopped() {
        return Err(NotMade::Stopped);
    }
    made.follow_objects(&Objects::survey())?;
    reached("spare-objects");
    Ok((made, small))
}

/// Asks again as long as a server is not ready, and nobody needs the program to be left alone.
fn patiently(call: &'static str, mut ask: impl FnMut() -> CUresult) -> Result<(), NotMade> {
    let deadline = Instant::now() + SERVER_PATIENCE;
    loop {
        if is_stopped() {
            return Err(NotMade::Stopped);
        }
        let answer = ask();
        if !super::super::exchange::NOT_READY.contains(&answer.0) || Instant::now() > deadline {
            return Ok(checked(call, answer)?);
        }
        thread::park_timeout(BETWEEN_TRIES);
    }
}

/// Cuts a spare copy off that is of no use, and has it given back.
fn discard(copy: Copy) {
    let Some(owner) = copy.owner() else { return };
    // What it opens from now on would be nobody's.
    owner.dies();
    let of = Belongings::of(owner.opened());
    let cut = amputation::perform(&of, &Mapped::Noted(owner));
    copy.is_spare_no_more();
    dead::give_back(Some(Dead::discarded(copy, cut.descriptors)));
}
