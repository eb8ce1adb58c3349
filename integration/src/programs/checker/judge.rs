//! What a disturbed run may show.
//!
//! The rule, of each value that a call has returned as good and that a thread then uses (bytes of a copy to the host that
//! a call has said to be done, or host memory that lost work may have written):
//!
//! 1. It is that of the undisturbed run, or
//! 2. it *may* be lost: a cell of memory is in doubt if work that writes it was not proven to be done when the driver's
//!    copy died (by a success of a wait, or of a question, or by the library, which says that no stream has lost
//!    anything), if it was to be written by the launch of a graph that the loss has made fail, of which some may be done
//!    (any other call that fails has done nothing), if it is a variable of a module and the library has said that
//!    modules began anew, or if it was made of such a cell by work that came after; and it is in doubt until all of it is
//!    written with what is not. And
//! 3. the thread that uses it *was told*: a call of its own, made after the loss, has answered with an error, and one
//!    that programs heed: those of frees, ends of handles and questions about pointers are dropped everywhere and tell
//!    nobody. Or a thread that had been told has handed over to it since ([`HandOver`](super::program::What::HandOver)):
//!    what the one knows, the other does. That the value has come by an event or another thread's stream tells nothing.
//! 4. If lost work itself wrote it, to memory that the driver knows, `mps_shim_in_doubt` has its address then, or has had
//!    it when the program asked before: what a program has been told it keeps.
//!
//! A thread that was told goes on as programs do: it makes the failed call again, since what has returned an error was
//! not done. So beside wrong values there are wrong errors:
//!
//! 5. A call fails although the library has said of all recoveries that this thread was not told of yet that nothing was
//!    lost; or it fails again and again; or there was no recovery, and nothing in the program is in the way of one.
//! 6. There are more recoveries than faults.
//!
//! But a time between events that were recorded before a recovery is there no longer, whatever was lost.
//!
//! All of it holds for every moment at which the fault may strike: what is told as lost and was done in fact is no
//! mistake, only a loss of comfort, and is counted.

use super::api::{self, Failed, Recovered};
use super::plan::{Ops, Plan, Step};
use super::program::{Memory, Place, THREADS};
use super::wrong::{Bytes, Differing, Wrong};
use std::sync::atomic::{AtomicU64, Ordering};

/// `CUDA_ERROR_INVALID_HANDLE`.
const INVALID_HANDLE: u32 = 400;

/// How a cell is in doubt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Doubt {
    /// Since which recovery of the run, from 1; 0 for not at all.
    since: u32,
    /// Lost work itself wrote it.
    is_direct: bool,
}

/// Faults that there were in this process: none of another one's neighbours may come to it.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// So many faults begin.
pub(super) fn strike(count: u64) {
    FAULTS.fetch_add(count, Ordering::SeqCst);
}

/// The judge of one run.
#[derive(Debug, Clone)]
pub(super) struct Judge {
    kinds: Vec<Memory>,
    doubt: Vec<Doubt>,
    /// Up to which recovery each thread was told.
    told: [u32; THREADS as usize],
    /// What the library says of each recovery of the run.
    pub(super) recoveries: Vec<Recovered>,
    /// How many of them went on with a spare copy.
    pub(super) by_spare: usize,
    /// Work that is not proven to be done.
    open: Ops,
    last: Recovered,
    /// Errors that were told, for the record.
    pub(super) errors: u32,
    /// What `mps_shim_in_doubt` has told so far.
    asked: Vec<[usize; 2]>,
    /// Recoveries begin by themselves, in the middle of a call or between two.
    is_sudden: bool,
    /// Other programs' neighbours are on the same server.
    has_others_neighbours: bool,
}

impl Judge {
    pub(super) fn new(plan: &Plan, (is_sudden, has_others_neighbours): (bool, bool)) -> Self {
        Self {
            kinds: plan.kinds.clone(),
            doubt: vec![Doubt::default(); plan.kinds.len()],
            told: [0; THREADS as usize],
            recoveries: Vec::new(),
            by_spare: 0,
            open: Ops::default(),
            last: api::recovered().unwrap_or_default(),
            errors: 0,
            asked: Vec::new(),
            is_sudden,
            has_others_neighbours,
        }
    }

    fn now(&self) -> u32 {
        u32::try_from(self.recoveries.len()).unwrap_or(u32::MAX)
    }

    /// Looks whether there was a recovery, which puts in doubt what was open; `under_way` is an operation whose calls
    /// it may have met, or whose call was where it was noticed.
    pub(super) fn look(&mut self, plan: &Plan, under_way: Option<usize>) {
        let recovered = api::recovered().unwrap_or_default();
        if recovered.count == self.last.count {
            return;
        }
        self.last = recovered;
        self.recoveries.push(recovered);
        self.by_spare += usize::from(api::is_by_spare());
        let since = self.now();
        let mut lost = std::mem::take(&mut self.open);
        let may_be_torn = |at: &usize| self.is_sudden || plan.steps[*at].as_ref().is_some_and(|step| step.is_many);
        under_way.filter(may_be_torn).into_iter().for_each(|at| lost.insert(at));
        // Where no stream has lost anything, the library has seen all of it done: what an earlier loss has left there is
        // still that one's, of which its threads were told.
        if recovered.lost_streams == 0 {
            lost = Ops::default();
        }
        let steps = lost.iter().filter_map(|at| plan.steps[at].as_ref());
        for cell in steps.flat_map(|step| &step.effects).flat_map(|effect| &effect.writes) {
            self.doubt[usize::from(*cell)] = Doubt { since, is_direct: true };
        }
        if recovered.modules_anew > 0 {
            let of_modules = self.doubt.iter_mut().zip(&self.kinds).filter(|(_, kind)| kind.is_of_module());
            of_modules.for_each(|(doubt, _)| *doubt = Doubt { since, is_direct: false });
        }
    }

    /// The error of the last recovery, if there were more than faults. With `--jobs` others' neighbours are this one's too.
    pub(super) fn unprovoked(&self) -> Option<u32> {
        let is_more = !self.has_others_neighbours && self.last.count > FAULTS.load(Ordering::SeqCst);
        is_more.then_some(self.last.error)
    }

    /// Whether the library has refused a recovery since the last look.
    pub(super) fn is_refused(&mut self) -> bool {
        let recovered = api::recovered().unwrap_or_default();
        let is_more = recovered.refused > self.last.refused;
        self.last.refused = recovered.refused;
        is_more
    }

    /// A call of a thread has failed.
    pub(super) fn failed(&mut self, thread: u8, failed: Failed, is_ignored: bool) -> Result<(), Wrong> {
        if is_ignored {
            return Ok(());
        }
        if self.recoveries.is_empty() {
            return Err(Wrong::Refused(failed, api::reason()));
        }
        let unknown = self.recoveries.iter().skip(self.told[usize::from(thread)] as usize);
        let is_right = unknown.clone().any(Recovered::is_lossy);
        self.errors += 1;
        // A second error after the same loss is a repetition, and judged by how often it comes.
        if !is_right && !self.recoveries.iter().any(Recovered::is_lossy) {
            return Err(Wrong::NothingWasLost(failed));
        }
        self.told[usize::from(thread)] = self.now();
        Ok(())
    }

    /// A thread was told by a call that may fail after any recovery.
    pub(super) fn is_told(&mut self, thread: u8, failed: Failed) {
        // This one says that there is no such time, and nothing of what was lost.
        if failed.code != INVALID_HANDLE {
            self.errors += 1;
            self.told[usize::from(thread)] = self.now();
        }
    }

    /// An operation has succeeded.
    pub(super) fn done(&mut self, at: usize, step: &Step) {
        for effect in &step.effects {
            let worst = effect.reads.iter().map(|cell| self.doubt[usize::from(*cell)].since).max().unwrap_or(0);
            for cell in &effect.writes {
                self.doubt[usize::from(*cell)] = Doubt { since: worst, is_direct: false };
            }
        }
        self.open = self.open.without(&step.proves);
        if step.is_work {
            self.open.insert(at);
        }
        if step.proves.contains(at) {
            self.open = self.open.without(&step.proves);
        }
    }

    /// A wait inside an operation has succeeded.
    pub(super) fn proved(&mut self, work: &Ops) {
        self.open = self.open.without(work);
    }

    /// It was given up: what it should have written is not there.
    pub(super) fn given_up(&mut self, step: &Step) {
        let since = self.now();
        for cell in step.effects.iter().flat_map(|effect| &effect.writes) {
            self.doubt[usize::from(*cell)] = Doubt { since, is_direct: false };
        }
    }

    /// A thread tells another one what it knows.
    pub(super) fn hand_over(&mut self, from: u8, to: u8) {
        let told = self.told[usize::from(from)];
        let other = &mut self.told[usize::from(to)];
        *other = told.max(*other);
    }

    /// What is known of a cell that differs.
    pub(super) fn differing(
        &self,
        place: Place,
        cell: u16,
        known_as: Result<u32, u32>,
        found: &Bytes,
        expected: &Bytes,
    ) -> Differing {
        let (memory, is_in_doubt) = (self.kinds[usize::from(cell)], self.doubt[usize::from(cell)].since > 0);
        Differing::new((place, memory), is_in_doubt, known_as, found, expected)
    }

    /// A thread uses a value.
    pub(super) fn used(
        &mut self,
        thread: u8,
        cell: u16,
        address: usize,
        found: &Bytes,
        expected: &Bytes,
    ) -> Result<(), Wrong> {
        if found == expected {
            return Ok(());
        }
        let (memory, found, expected) = (self.kinds[usize::from(cell)], *found, *expected);
        let doubt = self.doubt[usize::from(cell)];
        if doubt.since == 0 {
            return Err(Wrong::Value { memory, found, expected });
        }
        if self.told[usize::from(thread)] < doubt.since {
            return Err(Wrong::Untold { memory, found, expected });
        }
        // An array has no address that a program could look for.
        let is_known = !memory.is_of_module() && !matches!(memory, Memory::Pageable | Memory::Array);
        if doubt.is_direct && is_known {
            self.asked.extend(api::in_doubt());
            if !self.asked.iter().any(|[start, size]| (*start..start + size).contains(&address)) {
                return Err(Wrong::NotInDoubt { memory });
            }
        }
        Ok(())
    }
}
