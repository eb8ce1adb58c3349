//! What a word may mean that a program passes to a private function, or gets from one.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    ptr::NonNull,
    sync::{Mutex, PoisonError},
};

use crate::{
    cuda::{functions::lookup::cuInit, library, moved, names},
    kept,
    process::maps::{self, Range},
};

/// Answers about addresses in libraries that are kept: more are asked for again.
const MOST_ANSWERS: usize = 4096;

/// What lies at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Code of the driver's.
    DriversCode,
    /// What the driver itself writes.
    DriversVariable,
    /// Registers or memory of a device.
    Device,
    /// Code of anybody else's.
    Code,
    /// What was handed out and is the same for everybody: constants, variables of other libraries.
    Other,
    /// Memory that nobody's file stands behind: heap, stacks.
    Memory,
    /// Nothing.
    Nothing,
}

/// What an object is by the program's name, if it is one that is made again.
pub(super) fn handle(name: u64) -> Option<&'static str> {
    let current = names::current_of(usize::try_from(name).ok()?);
    if current < 0x10 {
        // The default streams, and numbers.
        return None;
    }
    kept::kind_of(current)
}

/// The same word for the copy of the driver that lives.
pub(super) fn to_driver(word: u64) -> u64 {
    let Ok(name) = usize::try_from(word) else { return word };
    match names::current_of(name) {
        same if same == name => moved::current_of(word),
        current => current as u64,
    }
}

/// The same word for the program.
pub(super) fn to_program(word: u64) -> u64 {
    let Ok(current) = usize::try_from(word) else { return word };
    match names::name_of(current) {
        same if same == current => moved::name_of(word),
        name => name as u64,
    }
}

/// Whether a word of the driver's that the program knows by this name is nothing of which anybody has taken note. It may have
/// the name of something else, which has ended in the copy that lives: the driver gives addresses again, and names stay
/// until the next recovery.
pub(super) fn is_new(name: u64, word: u64) -> bool {
    let is_a_handles = |word: usize| Some(names::name_of(word)) == usize::try_from(name).ok();
    handle(name).is_none() && (name == word || usize::try_from(word).is_ok_and(is_a_handles))
}

/// The library around an address by its file's name.
pub(super) fn library_around(address: u64) -> Option<String> {
    let address = NonNull::new(std::ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(address).ok()?))?;
    let path = library::library_of(address)?.to_string_lossy();
    path.rsplit('/').next().map(str::to_owned)
}

/// Whether an address lies in the copy of the driver that the program has loaded, or in one of ours.
pub(super) fn is_drivers(address: u64) -> bool {
    let Ok(address) = usize::try_from(address) else { return false };
    let Some(address) = NonNull::new(std::ptr::with_exposed_provenance_mut::<c_void>(address)) else { return false };
    library::is_former(address)
        || cuInit::FUNCTION.driver().is_some_and(|driver| library::is_of_the_same_library(address, driver))
}

static ANSWERS: Mutex<BTreeMap<u64, Place>> = Mutex::new(BTreeMap::new());

/// What lies at an address. For libraries, which stay, the answer is kept.
pub(super) fn place(address: u64) -> Place {
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = answers.get(&address) {
        return *place;
    }
    let Some(range) = maps::read().ok().and_then(|all| all.into_iter().find(|range| range.meets(address, 1))) else {
        return Place::Nothing;
    };
    let place = in_range(&range, address);
    if answers.len() < MOST_ANSWERS && !matches!(place, Place::Memory) {
        answers.insert(address, place);
    }
    place
}

fn in_range(range: &Range, address: u64) -> Place {
    let how = range.protection();
    let (is_code, is_variable) = (how & libc::PROT_EXEC != 0, how & libc::PROT_WRITE != 0);
    if range.path().starts_with("/dev/nvidia") {
        Place::Device
    } else if is_drivers(address) && (is_code || is_variable) {
        if is_code { Place::DriversCode } else { Place::DriversVariable }
    } else if is_code {
        Place::Code
    } else if range.path().starts_with('/') {
        Place::Other
    } else {
        Place::Memory
    }
}
