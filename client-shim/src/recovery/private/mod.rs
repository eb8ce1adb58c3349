//! The driver's private tables, by which cudart and NVIDIA's libraries reach what has no public function.
//!
//! A program keeps the tables' addresses for good, so after a recovery their entries must lead to the copy of the driver
//! that has taken the lost one's place. Each entry that is followed is replaced, where it stands ([`table`]), by a stub
//! that can be led elsewhere ([`stubs`]); where arguments are known and name a context or a module there is a function
//! of ours in front ([`storage`], [`cudart`], [`current`]). Which tables are followed and which are left to the first copy, and why,
//! is in [`KINDS`]. A table that is not listed is followed too ([`followed`]). Calls of functions of which nobody knows
//! what they take go through [`watched`] entries: they are looked at and translated ([`call`]) by what they are passed
//! ([`meaning`]), and each function is judged by all that was seen of it ([`evidence`]).
#![expect(unsafe_code, reason = "tables without a public declaration")]

mod call;
mod cudart;
mod current;
mod evidence;
mod followed;
mod made;
mod meaning;
mod storage;
mod stubs;
mod swapped;
mod table;
mod watched;

use std::{ffi::c_void, mem};

use crate::{
    cuda::{
        arguments::Subject,
        call::{Bypass, Driver},
        copies, errors,
        functions::{Effect, query::cuGetExportTable},
        names,
        result::CUresult,
        types::{CUcontext, CUuuid, Key as _},
    },
    kept::account::{self, Reason},
    process::{log, settings},
    recovery,
};

pub(super) use cudart::primary_of;
pub(crate) use evidence::{obstacle, report};
pub(crate) use followed::{lead, restore, targets};
pub(crate) use made::{ended, is_freed, lets_go};

/// A private table's name.
type Id = [u8; 16];

/// What becomes of a table.
enum Treatment {
    /// Its entries go with the driver's living copy. `known` are those whose arguments hold nothing that another copy
    /// would not understand, besides those that `ours` stands in front of; `left` are those that stay with the copy that
    /// gave the table out, all the same; `stubs` is the first one's number.
    Followed { stubs: usize, known: &'static [usize], left: &'static [usize], ours: fn(usize) -> Option<*mut c_void> },
    /// Its entries stay with the copy that gave it out.
    Left,
}

/// A table that is known.
struct Kind {
    id: Id,
    name: &'static str,
    treatment: Treatment,
}

const fn none(_index: usize) -> Option<*mut c_void> {
    None
}

/// Places in [`KINDS`].
const CUDART: usize = 0;
const STORAGE: usize = 1;
const CHECKS: usize = 2;
const QUERIES: usize = 3;
const CURRENT: usize = 9;

/// The tables that cudart 13.0 asks for, and those that other libraries of NVIDIA's were seen to ask for.
static KINDS: [Kind; 11] = [
    Kind {
        id: *b"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9",
        name: "cudart interface",
        treatment: Treatment::Followed { stubs: 0, known: &[7, 12], left: &[], ours: cudart::ours },
    },
    Kind {
        id: *b"\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93",
        name: "context-local storage",
        treatment: Treatment::Followed { stubs: STUBS_OF_A_TABLE, known: &[], left: &[], ours: storage::ours },
    },
    Kind {
        id: *b"\x26\x3e\x88\x60\x7c\xd2\x61\x43\x92\xf6\xbb\xd5\x00\x6d\xfa\x7e",
        name: "context checks",
        treatment: Treatment::Followed {
            stubs: 2 * STUBS_OF_A_TABLE,
            known: &[3],
            left: &[],
            ours: cudart::our_checks,
        },
    },
    // cuBLASLt 13 asks [4] for a number about a context, which is written in 64 bits (seen with 580.159.04 and PyTorch; 1 on
    // an H200). Of the others nothing is known.
    Kind {
        id: *b"\x21\x31\x8c\x60\x97\x14\x32\x48\x8c\xa6\x41\xff\x73\x24\xc8\xf2",
        name: "context queries",
        treatment: Treatment::Followed {
            stubs: 5 * STUBS_OF_A_TABLE,
            known: &[],
            left: &[],
            ours: cudart::our_queries,
        },
    },
    Kind {
        id: *b"\xb1\x05\x41\xe1\xf7\xc7\xc7\x4a\x9f\x64\xf2\x23\xbe\x99\xf1\xe2",
        name: "device attributes",
        treatment: Treatment::Followed { stubs: 3 * STUBS_OF_A_TABLE, known: &[5, 13], left: &[], ours: none },
    },
    // Locks, queues and memory of the host, which NVML 580 uses for itself: with 580.159.04 it calls [24] and [25] with the
    // addresses of words of its own, [19] with places for a result, [21] with that result, and none with a handle or a device
    // (seen once, with PyTorch). Whoever made something there must go on with it. Of the others nothing is known.
    Kind {
        id: *b"\x69\xa2\x8e\x9f\x24\x49\x8b\x47\xb0\x30\xc5\xda\x33\x0e\xa4\xe9",
        name: "host services",
        treatment: Treatment::Followed { stubs: 4 * STUBS_OF_A_TABLE, known: &[], left: &[19, 21, 24, 25], ours: none },
    },
    // A check of the addresses of tables and functions, which must be answered by whoever gave them out.
    Kind {
        id: *b"\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2",
        name: "integrity check",
        treatment: Treatment::Left,
    },
    // Memory of the host: whoever gave it out must take it back.
    Kind {
        id: *b"\x19\x5b\xcb\xf4\xd6\x7d\x02\x4a\xac\xc5\x1d\x29\xce\xa6\x31\xae",
        name: "host heap",
        treatment: Treatment::Left,
    },
    // What a debugger or profiler that is attached has set; there is none where a program is to be recovered.
    Kind {
        id: *b"\xa0\x94\x79\x8c\x2e\x74\x2e\x74\x93\xf2\x08\x00\x20\x0c\x0a\x66",
        name: "tools' callback hooks",
        treatment: Treatment::Left,
    },
    Kind {
        id: *b"\x42\xd8\x5a\x81\x23\xf6\xcb\x47\x82\x98\xf6\xe7\x8a\x3a\xec\xdc",
        name: "threads' contexts",
        treatment: Treatment::Followed { stubs: 6 * STUBS_OF_A_TABLE, known: &[], left: &[], ours: current::ours },
    },
    Kind {
        id: *b"\xf8\xcf\xf9\x51\x21\x46\x8b\x4e\xb9\xe2\xfb\x46\x9e\x7c\x0d\xd9",
        name: "tools' state",
        treatment: Treatment::Left,
    },
];

/// Stubs from one listed table to the next.
const STUBS_OF_A_TABLE: usize = table::MOST_ENTRIES;
/// The number of the first stub that is no listed table's.
const FREE_STUBS: usize = 7 * STUBS_OF_A_TABLE;

/// The number of the stub for an entry of a followed table.
fn stub_of(kind: &Kind, index: usize) -> usize {
    match kind.treatment {
        Treatment::Followed { stubs, .. } => stubs + index,
        Treatment::Left => unreachable!("only followed tables have stubs"),
    }
}

/// Logic of `cuGetExportTable`.
pub(crate) fn hand_out(
    driver: &mut Driver<cuGetExportTable::Signature>,
    table: *mut *const c_void,
    id: *const CUuuid,
) -> Result<CUresult, Bypass> {
    let answer = driver.pass();
    if answer.is_success() && settings::is_recording() {
        // SAFETY: the driver has just read it.
        let id = unsafe { id.cast::<Id>().read() };
        copies::is_shown(format_args!("the private table {:032x}", u128::from_be_bytes(id)));
        // SAFETY: the driver has just written there.
        let start = unsafe { table.read() };
        // SAFETY: as it has answered.
        if !unsafe { followed::taken(&id, start) } {
            log::complain(format_args!(
                "the private table {:032x} cannot be led to another copy of the driver",
                u128::from_be_bytes(id)
            ));
            account::made("cuGetExportTable", Reason::PrivateTable, start.addr().key());
        }
    }
    Ok(answer)
}

/// One call of a private function by the program, which gives no work and waits for none.
#[inline(always)]
fn passing(call: impl FnMut() -> CUresult + Copy) -> CUresult {
    let (function, subject) = (&cuGetExportTable::FUNCTION, Subject::default());
    let Some((_, quick)) = recovery::quickly(function, Effect::None, false, false, &subject) else {
        return through(None, call);
    };
    let mut own = call;
    let answer = own();
    quick.end(answer);
    if errors::meaning(answer).is_none() { answer } else { through(Some(answer), call) }
}

/// The same by another way than the shortest, by which it may have had this answer.
#[cold]
#[inline(never)]
fn through(answer: Option<CUresult>, mut call: impl FnMut() -> CUresult) -> CUresult {
    if !recovery::is_armed() {
        return call();
    }
    recovery::through(&cuGetExportTable::FUNCTION, &Subject::default(), answer, &mut |_| call())
}

/// The driver's function in a place of a table.
///
/// # Safety
/// `F` is its type.
unsafe fn theirs<F: Copy>(kind: usize, index: usize) -> F {
    let address = stubs::target(stub_of(&KINDS[kind], index));
    // SAFETY: by the contract; the program has reached ours through the same place, so the slot is filled.
    unsafe { mem::transmute_copy::<*mut c_void, F>(&address) }
}

/// The driver's handle of a context by the program's name.
fn to_driver(context: CUcontext) -> CUcontext {
    CUcontext(names::current_of(context.0))
}

/// The program's name of a context by the driver's handle.
fn to_program(context: CUcontext) -> CUcontext {
    CUcontext(names::name_of(context.0))
}
