//! Whether a fault is one whose server may be ended at once: an exception of a kernel, and no memory fault.
//!
//! Measured on an H200 with 580: after a trap the clients of its server hear of it 95 to 370 ms later, and memory is at
//! rest within a millisecond; a server that is killed at once tells them after 3 ms and is reaped after 43 ms. After an
//! illegal access the GPU itself stands still for 110 to 150 ms, for everybody, and the killed server is reaped after
//! 190 to 215 ms: its end gains nothing.
//!
//! That there was a fault at all is the server's to say, by its own status. A server that says nothing may be lost, and is
//! taken for that (`silence`), or may be slow, and then a client's lie would end it.
//!
//! Of which kind it was the kernel's line says, and so do clients of themselves. Theirs can be a lie, so it decides nothing
//! but how soon a server ends that is lost; where anything speaks of a memory fault it is taken for one.

use super::Faults;
use super::incident::ASKED_AGAIN;
use super::statement::Statement;
use crate::core::ids::ServerEpoch;
use core::time::Duration;

/// Answers of the driver after an exception of a kernel: a failed assertion, its stack, instruction, alignment, address
/// space, program counter and launch.
const EXCEPTIONS: [u32; 7] = [710, 714, 715, 716, 717, 718, 719];
/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
const ILLEGAL_ADDRESS: u32 = 700;
/// The kernel's numbers of exceptions, and of a memory fault.
const XIDS_OF_EXCEPTIONS: [u32; 2] = [13, 43];
const XID_OF_MEMORY_FAULT: u32 = 31;

/// How long after the answer to the first word of an exception, which may come a moment before the server knows, its server
/// is asked again; twice as long each time, until it is longer than [`ASKED_AGAIN`].
pub(super) const ASKED_SOON: Duration = Duration::from_millis(2);

/// What the signs of an incident say of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::core) struct Nature {
    speaks_of_exception: bool,
    speaks_of_memory: bool,
    is_admitted: bool,
}

impl Nature {
    /// Takes a sign in.
    pub(super) fn hear(&mut self, statement: &Statement) {
        let said = statement.self_report.map(|word| word.error);
        // A line that names nobody may be of another server.
        let named = statement.xid.filter(|_| statement.is_kernels_word || statement.is_kernels_fault);
        self.speaks_of_exception |= said.is_some_and(|error| EXCEPTIONS.contains(&error))
            || named.is_some_and(|number| XIDS_OF_EXCEPTIONS.contains(&number));
        self.speaks_of_memory |=
            said == Some(ILLEGAL_ADDRESS) || statement.is_of_memory() || statement.xid == Some(XID_OF_MEMORY_FAULT);
    }

    /// The server itself says that it is in a fault.
    pub(super) fn is_admitted(&mut self) {
        self.is_admitted = true;
    }

    /// Whether it was an exception, if there was a fault.
    pub(super) fn is_exception(self) -> bool {
        self.speaks_of_exception && !self.speaks_of_memory
    }

    /// Whether there was one, and nothing else, as far as anybody knows.
    pub(super) fn is_proven_exception(self) -> bool {
        self.is_admitted && self.is_exception()
    }
}

impl Faults {
    /// A server has answered that it is in no fault, and may not know yet.
    pub(super) fn may_not_know_yet(&mut self, now: Duration, epoch: ServerEpoch) {
        if let Some(incident) = self.incidents.get_mut(&epoch).filter(|incident| !incident.is_confirmed)
            && let Some(pause) = incident.asked_soon.take()
        {
            let at = now + pause;
            incident.ask_at = Some(incident.ask_at.map_or(at, |sooner| sooner.min(at)));
            incident.asked_soon = Some(pause * 2).filter(|next| *next <= ASKED_AGAIN);
        }
    }

    /// The incident of a server that an exception has spoilt, as it says itself.
    pub(in crate::core) fn exception_of(&self, server: ServerEpoch) -> Option<u64> {
        let incident = self.incidents.get(&server).filter(|incident| incident.is_confirmed);
        incident.filter(|incident| incident.nature.is_proven_exception()).map(|incident| incident.id)
    }
}
