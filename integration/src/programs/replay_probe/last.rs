//! What the preloaded library says of the last recovery.
#![expect(unsafe_code, reason = "the library's function is found by name")]

use remps_proto::shim::{RECOVERY_STEPS as STEPS, SWITCH_STEPS as SWITCH};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Bytes of a reason.
const REASON: usize = 160;

/// `struct mps_shim_recovery`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Recovery {
    count: u64,
    refused: u64,
    error: u32,
    lost_streams: u32,
    ranges_in_doubt: u64,
    bytes_in_doubt: u64,
    modules_anew: u64,
    objects: u64,
    total_us: u64,
    step_us: [u64; STEPS.len()],
    descriptors: u32,
    mappings: u32,
    unmapped: u32,
    not_unmapped: u32,
    tries: u32,
    was_prepared: u32,
    reason: [u8; REASON],
    begun_by: u32,
    part: u32,
    lost_work: u64,
    way: u32,
    behind: u32,
    switch_us: [u64; SWITCH.len()],
    calls: u32,
    begun_again: u32,
    at_us: u64,
    cut_off_us: u64,
}

/// What it says; `None` if it is not preloaded.
pub(super) fn get() -> Option<Recovery> {
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mps_shim_last_recovery".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function of this name has this type, by the library's header.
    let ask =
        unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(*mut Recovery, usize) -> u64>(found) };
    // SAFETY: zeros are a valid value.
    let mut recovery: Recovery = unsafe { std::mem::zeroed() };
    // SAFETY: there is as much room as is said.
    unsafe { ask(&raw mut recovery, size_of::<Recovery>()) };
    Some(recovery)
}

/// How long a dead copy may take to be cut off, and the time between two looks.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_micros(200);

/// How many ranges the library says are in doubt. They are not read.
fn count_in_doubt() -> usize {
    ask_in_doubt().map_or(0, |ask| {
        // SAFETY: it writes nothing where there is no room.
        unsafe { ask(std::ptr::null_mut(), 0) }
    })
}

/// `mps_shim_in_doubt`.
type InDoubt = unsafe extern "C" fn(*mut [u64; 2], usize) -> usize;

fn ask_in_doubt() -> Option<InDoubt> {
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mps_shim_in_doubt".as_ptr()) };
    // SAFETY: the function of this name has this type, by the library's header.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut libc::c_void, InDoubt>(found) })
}

/// Tells the library that the program waits for nothing; whether a neighbour's fault would go unnoticed now.
pub(super) fn rest() -> bool {
    type Rest = extern "C" fn() -> libc::c_int;
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mps_shim_rest".as_ptr()) };
    // SAFETY: the function of this name has this type, by the library's header.
    !found.is_null() && unsafe { std::mem::transmute::<*mut libc::c_void, Rest>(found) }() == 1
}

/// The ranges that the library says are in doubt, address and size.
pub(super) fn in_doubt() -> Vec<[u64; 2]> {
    let Some(ask) = ask_in_doubt() else { return Vec::new() };
    let mut ranges = vec![[0; 2]; count_in_doubt()];
    // SAFETY: there is as much room as is said.
    let now = unsafe { ask(ranges.as_mut_ptr(), ranges.len()) };
    ranges.truncate(now);
    ranges
}

impl Recovery {
    /// Recoveries so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether the last one was with a spare copy.
    pub(super) fn is_by_a_spare(&self) -> bool {
        self.way == 1
    }

    /// The same once its dead copy is cut off, which is done beside the program; as it was where that is not seen, since
    /// another one has come, or it takes too long.
    pub(super) fn when_cut_off(self) -> Self {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match get().filter(|now| now.count == self.count && self.count > 0) {
                Some(now) if now.cut_off_us > 0 => {
                    let (step_us, cut_off_us) = (now.step_us, now.cut_off_us);
                    return Self { step_us, cut_off_us, descriptors: now.descriptors, mappings: now.mappings, ..self };
                }
                Some(_) => std::thread::park_timeout(BETWEEN_LOOKS),
                None => break,
            }
        }
        self
    }

    /// Whether the program has to be told.
    pub(super) fn is_lossy(&self) -> bool {
        self.lost_streams > 0 || self.modules_anew > 0
    }

    /// All of it.
    pub(super) fn describe(&self) -> Value {
        let named = |names: &[&str], times: &[u64]| -> Map<String, Value> {
            names.iter().zip(times).map(|(name, time)| ((*name).to_owned(), json!(time))).collect()
        };
        let (steps, switch) = (named(&STEPS, &self.step_us), named(&SWITCH, &self.switch_us));
        let end = self.reason.iter().position(|byte| *byte == 0).unwrap_or(REASON);
        json!({
            "count": self.count, "refused": self.refused, "error": self.error, "lost_streams": self.lost_streams,
            "ranges_in_doubt": self.ranges_in_doubt, "bytes_in_doubt": self.bytes_in_doubt,
            "modules_anew": self.modules_anew, "objects": self.objects, "total_us": self.total_us, "steps_us": steps,
            "descriptors": self.descriptors, "mappings": self.mappings, "unmapped": self.unmapped,
            "not_unmapped": self.not_unmapped, "tries": self.tries, "begun_again": self.begun_again, "was_prepared": self.was_prepared,
            "reason": String::from_utf8_lossy(&self.reason[..end]), "begun_by": self.begun_by, "part": self.part,
            "lost_work": self.lost_work, "way": self.way, "behind": self.behind, "switch_us": switch,
            "calls": self.calls, "at_us": self.at_us, "cut_off_us": self.cut_off_us,
            "in_doubt": count_in_doubt(),
        })
    }
}
