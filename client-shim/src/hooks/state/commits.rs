//! What a program that knows of its successors can ask for: what it has registered and committed, and how it takes over
//! what a predecessor left ([`taking_over`]). [`exports`] has the C functions.
#![expect(unsafe_code, reason = "C functions that are exported and read and write where their caller says")]

mod exports;
mod taking_over;

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int},
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use remps_proto::shim::{Answer, Ask, Commit, Failure, MAX_COMMIT_BYTES, MAX_LABEL_BYTES, MAX_RANGES, Range};

use super::{
    linked,
    shadow::{self, Outcome, Shadows},
};
use crate::process::panics::unpanicked;
use crate::process::settings::succession;
use crate::{cuda::types::CUcontext, kept, process::failpoint::reached};

/// What is not written any more.
const CONSTANT: u32 = 1;
/// What a commit keeps a copy of.
const SHADOWED: u32 = 2;

/// The answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Code {
    Ok = 0,
    Nothing = 1,
    NotYet = 2,
    Off = 3,
    NoDaemon = 4,
    OldDaemon = 5,
    Refused = 6,
    Address = 7,
    Driver = 8,
    Invalid = 9,
    NotKept = 10,
    Taken = 11,
    Lost = 12,
}

impl Code {
    const ALL: [(Self, &'static CStr); 13] = [
        (Self::Ok, c"done"),
        (Self::Nothing, c"nobody has left anything under this name"),
        (Self::NotYet, c"the time is over"),
        (Self::Off, c"MPS_SHIM_NAME or MPS_SHIM_KEEP is not set, or CUDA is not initialised in this process"),
        (Self::NoDaemon, c"there is no daemon"),
        (Self::OldDaemon, c"the daemon does not know commits"),
        (Self::Refused, c"the daemon refuses"),
        (Self::Address, c"an address of the predecessor's memory is in use"),
        (Self::Driver, c"the driver refuses, or no context is current"),
        (Self::Invalid, c"an argument is wrong, or a range is not in kept memory"),
        (Self::NotKept, c"the vault does not have all of the memory"),
        (Self::Taken, c"another living process has this name"),
        (Self::Lost, c"this process is itself on the server that a fault has spoilt: end, and be started again"),
    ];
}

/// What is known of the program's state.
#[derive(Debug, Default)]
struct State {
    ranges: BTreeMap<String, Range>,
    recovery: Option<Recovery>,
    data: Vec<u8>,
}

/// `struct mps_state_recovery`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    generation: u64,
    server: u64,
    region_bytes: u64,
    wait_us: u64,
    map_us: u64,
    is_committed: u32,
    data_bytes: u32,
    predecessor: u32,
    rest: u32,
    regions: u32,
    ranges: u32,
    ranges_in_doubt: u32,
    was_standby: u32,
    offered_us: u64,
    mapped_us: u64,
}

/// `struct mps_state_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    address: u64,
    bytes: u64,
    flags: u32,
    is_in_doubt: u32,
}

static STATE: Mutex<State> = Mutex::new(State { ranges: BTreeMap::new(), recovery: None, data: Vec::new() });

static SHADOWS: Mutex<Shadows> = Mutex::new(Shadows::new());

/// Held during a whole commit: nobody but these functions waits for it.
fn shadows() -> MutexGuard<'static, Shadows> {
    SHADOWS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answered(work: impl FnOnce() -> Result<(), Code>) -> c_int {
    let code = unpanicked(work).map_or(Code::Refused, |result| result.err().unwrap_or(Code::Ok));
    code as c_int
}

/// # Safety
/// A C string, or null.
unsafe fn label_of(label: *const c_char) -> Result<String, Code> {
    if label.is_null() {
        return Err(Code::Invalid);
    }
    // SAFETY: by the contract.
    let text = unsafe { CStr::from_ptr(label) }.to_str().map_err(|_| Code::Invalid)?;
    let is_word = (1..=MAX_LABEL_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_sound = is_word && !text.starts_with(shadow::MARK);
    if is_sound { Ok(text.to_owned()) } else { Err(Code::Invalid) }
}

fn code_of(failure: Failure) -> Code {
    match failure {
        Failure::NOT_FOUND => Code::Nothing,
        Failure::NOT_YET => Code::NotYet,
        Failure::NAME_IN_USE | Failure::NAME_TAKEN | Failure::OWNER_LIVES => Code::Taken,
        Failure::UNKNOWN_REQUEST | Failure::MALFORMED => Code::OldDaemon,
        Failure::QUOTA => Code::NotKept,
        Failure::OWN_SERVER_LOST => Code::Lost,
        _ => Code::Refused,
    }
}

fn is_in_doubt(range: &Range) -> bool {
    range.flags & u64::from(CONSTANT) == 0
}

/// What is registered as constant, address and size.
pub(super) fn constant_ranges() -> Vec<(u64, u64)> {
    state().ranges.values().filter(|range| !is_in_doubt(range)).map(|range| (range.address, range.bytes)).collect()
}

fn commit(generation: u64, data: Vec<u8>, timeout_ms: u32) -> Result<(), Code> {
    let link = linked().ok_or(Code::Off)?;
    if data.len() > MAX_COMMIT_BYTES {
        return Err(Code::Invalid);
    }
    let mut context = CUcontext(0);
    let has_context = driver!(context::cuCtxGetCurrent(&raw mut context)).is_success() && context.0 != 0;
    // What is committed has happened.
    if has_context && !driver!(context::cuCtxSynchronize()).is_success() {
        return Err(Code::Driver);
    }
    if !link.may_escrow.load(Ordering::Acquire) {
        return Err(Code::NotYet);
    }
    let mut ranges: Vec<Range> = state().ranges.values().cloned().collect();
    if !ranges.iter().all(|range| kept::is_kept(range.address, range.bytes)) {
        return Err(Code::Invalid);
    }
    let (begin, limit) = (Instant::now(), Duration::from_millis(timeout_ms.into()));
    let name = succession::name().ok_or(Code::Off)?;
    let shadowed: Vec<Range> = ranges.iter().filter(|range| range.flags & u64::from(SHADOWED) != 0).cloned().collect();
    let mut shadows = shadows();
    ranges.extend(shadows.copy(&shadowed).map_err(|trouble| match trouble {
        shadow::Trouble::NoMemory => Code::NotKept,
        shadow::Trouble::Driver => Code::Driver,
        shadow::Trouble::NoWord => Code::NoDaemon,
    })?);
    reached("shadow-copied");
    if ranges.len() > MAX_RANGES {
        return Err(Code::Invalid);
    }
    let (is_settled, progress) = link.settle(limit);
    match () {
        () if !progress.is_connected || !is_settled => return Err(Code::NoDaemon),
        () if !progress.has_state => return Err(Code::OldDaemon),
        () if progress.refused > 0 && progress.why == Some(Failure::NAME_IN_USE) => return Err(Code::Taken),
        () if progress.refused > 0 => return Err(Code::NotKept),
        () => {}
    }
    reached("commit-settled");
    let ask = Ask::Commit { name, commit: Commit { generation, data, ranges } };
    let told = link.ask(ask, limit.saturating_sub(begin.elapsed()));
    reached("commit-answered");
    let (outcome, answer) = match told.and_then(|mut told| told.pop()) {
        Some((Answer::Done { .. }, _)) => (Outcome::Done, Ok(())),
        Some((Answer::Failed(failure), _)) => (Outcome::Refused, Err(code_of(failure))),
        _ => (Outcome::Unknown, Err(Code::NoDaemon)),
    };
    shadows.end(outcome);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../include/mps_shim.h");

    #[test]
    fn the_header_has_every_code_with_its_number() {
        for (code, text) in Code::ALL {
            let line = HEADER.lines().find(|line| line.contains(&format!("= {},", code as c_int))).unwrap();
            assert!(line.trim_start().starts_with("MPS_STATE_"), "{line}");
            assert!(!text.is_empty());
        }
        for (name, limit) in
            [("COMMIT_BYTES", MAX_COMMIT_BYTES), ("RANGES", MAX_RANGES), ("LABEL_BYTES", MAX_LABEL_BYTES)]
        {
            assert!(HEADER.contains(&format!("#define MPS_STATE_MAX_{name} {limit}\n")), "{name}");
        }
    }
}
