//! The tables that were given out and whose entries go with the living copy of the driver.
#![expect(unsafe_code, reason = "tables without a public declaration")]

use std::{
    ffi::c_void,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{FREE_STUBS, Id, KINDS, Kind, STUBS_OF_A_TABLE, Treatment, storage, stubs, table::Table, watched};
use crate::{
    cuda::{result::CUresult, types::CUcontext},
    process::maps,
};

/// A table.
#[derive(Clone, Copy)]
struct Given {
    id: Id,
    /// What is known of it.
    kind: Option<&'static Kind>,
    /// Its first stub.
    stubs: usize,
    /// Its length.
    entries: usize,
}

impl Given {
    /// Our function for an entry, if there is one in front.
    fn ours(&self, index: usize) -> Option<*mut c_void> {
        match self.kind?.treatment {
            Treatment::Followed { ours, .. } => ours(index),
            Treatment::Left => None,
        }
    }

    /// Whether an entry stays with the copy that gave the table out.
    fn is_left(&self, index: usize) -> bool {
        self.kind
            .is_some_and(|kind| matches!(kind.treatment, Treatment::Followed { left, .. } if left.contains(&index)))
    }

    fn is_known(&self, index: usize) -> bool {
        self.kind
            .is_some_and(|kind| matches!(kind.treatment, Treatment::Followed { known, .. } if known.contains(&index)))
    }

    /// What stands in an entry from now on.
    fn entry(&self, index: usize) -> *mut c_void {
        let stub = self.stubs + index;
        self.ours(index)
            .unwrap_or_else(|| if self.is_known(index) { stubs::address(stub) } else { watched::address(stub) })
    }
}

static GIVEN: Mutex<Vec<Given>> = Mutex::new(Vec::new());

fn given() -> MutexGuard<'static, Vec<Given>> {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes note of a table that the driver's living copy has just given to the program; whether its program can be
/// recovered all the same.
///
/// # Safety
/// The driver has given `start` for `id`.
pub(super) unsafe fn taken(id: &Id, start: *const c_void) -> bool {
    let kind = KINDS.iter().find(|kind| kind.id == *id);
    if kind.is_some_and(|kind| matches!(kind.treatment, Treatment::Left)) {
        return true;
    }
    // SAFETY: by the contract.
    let Some(table) = (unsafe { Table::at(start) }) else {
        return false;
    };
    let mut given = given();
    let known = given.iter().find(|of| of.id == *id).copied();
    let of = known.unwrap_or_else(|| {
        let free = given.iter().filter(|of| of.kind.is_none()).map(|of| of.stubs + of.entries).max();
        let stubs = match kind.map(|kind| &kind.treatment) {
            Some(Treatment::Followed { stubs, .. }) => *stubs,
            Some(Treatment::Left) | None => free.unwrap_or(FREE_STUBS),
        };
        Given { id: *id, kind, stubs, entries: table.entries() }
    });
    let has_room = table.entries() <= STUBS_OF_A_TABLE && of.stubs + table.entries() <= stubs::STUBS;
    if !has_room || table.entries() != of.entries {
        return false;
    }
    let is_replaced = |index: usize| table.get(index) == of.entry(index);
    // What is no function of the driver's is the copy's own, and stays.
    let Some(functions) = maps::functions_of(table.functions().map(|index| table.get(index).addr())) else {
        return false;
    };
    let replaced: Vec<_> = table
        .functions()
        .filter(|index| functions.contains(&table.get(*index).addr()) && !is_replaced(*index) && !of.is_left(*index))
        .map(|index| {
            stubs::lead(of.stubs + index, table.get(index));
            (index, of.entry(index))
        })
        .collect();
    if known.is_none() {
        given.push(of);
    }
    replaced.is_empty() || table.replace(&replaced).is_ok()
}

/// The name of the table that a stub belongs to, and the function's place there.
pub(super) fn place(stub: usize) -> Option<(String, usize)> {
    let given = given();
    let of = given.iter().find(|of| (of.stubs..of.stubs + of.entries).contains(&stub))?;
    let name = of.kind.map_or_else(|| format!("{:032x}", u128::from_be_bytes(of.id)), |kind| kind.name.to_owned());
    Some((name, stub - of.stubs))
}

/// Where every stub leads.
pub(crate) fn targets() -> Vec<usize> {
    (0..stubs::STUBS).map(|stub| stubs::target(stub).expose_provenance()).collect()
}

/// Leads every stub where it led before.
pub(crate) fn restore(targets: &[usize]) {
    for (stub, target) in targets.iter().enumerate() {
        stubs::lead(stub, ptr::with_exposed_provenance_mut(*target));
    }
}

/// Leads every table that was given out to the copy of the driver that the hooks are pointed at. `current` gives the
/// context that has taken the place of the one by a name.
///
/// # Errors
/// The call that failed, and its answer: that something is not found where the copy has another table. Then some are led
/// and some are not.
pub(crate) fn lead(current: impl Fn(CUcontext) -> CUcontext) -> Result<(), (&'static str, CUresult)> {
    let all = given().clone();
    for of in all {
        let mut start = ptr::null();
        let answer = driver!(query::cuGetExportTable(&raw mut start, ptr::from_ref(&of.id).cast()));
        if !answer.is_success() {
            return Err(("cuGetExportTable", answer));
        }
        // SAFETY: the copy has given this table out.
        let table = unsafe { Table::at(start) }.filter(|table| table.entries() == of.entries);
        let table = table.ok_or(("cuGetExportTable", CUresult::CUDA_ERROR_NOT_FOUND))?;
        for index in table.functions().filter(|index| !table.get(*index).is_null()) {
            stubs::lead(of.stubs + index, table.get(index));
        }
    }
    storage::put_again(current).map_err(|answer| ("context-local storage", answer))
}
