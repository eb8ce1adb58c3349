//! `mps_shim_last_recovery`: what a program can learn about what happened to it. The declaration is in
//! `include/mps_shim.h`.
#![expect(unsafe_code, reason = "a C function that is exported and writes where its caller says")]

mod clock;
mod last;

pub(super) use clock::{Clock, Lap, microseconds};
pub(super) use last::{cut_off, get, refused, set};

use std::{mem::offset_of, ptr};

use remps_proto::shim;

use super::amputation::Cut;
use crate::process::panics::unpanicked;

/// Bytes of a reason with its NUL.
const REASON: usize = 160;

/// `struct mps_shim_recovery`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    /// Recoveries of this process.
    pub(super) count: u64,
    /// Times that one was begun, or would have been, and was refused or failed.
    pub(super) refused: u64,
    /// The answer of the driver that began the last one.
    pub(super) error: u32,
    /// Streams with work that is not known to have been done.
    pub(super) lost_streams: u32,
    /// Kept ranges that lost work may have written.
    pub(super) ranges_in_doubt: u64,
    /// Bytes of these.
    pub(super) bytes_in_doubt: u64,
    /// Modules whose variables began anew.
    pub(super) modules_anew: u64,
    /// Objects that were made again.
    pub(super) objects: u64,
    /// Microseconds until the gate was open, and of each step. The last one is mostly not among the first of them: it is
    /// done afterwards.
    pub(super) total: u64,
    pub(super) steps: [u64; STEPS.len()],
    /// Descriptors and mappings of the dead copy that were cut off by now.
    pub(super) descriptors: u32,
    pub(super) mappings: u32,
    /// Ranges that the dead copy has unmapped, and that it has refused to.
    pub(super) unmapped: u32,
    pub(super) not_unmapped: u32,
    /// Times that the fresh copy was refused by a server that was not ready.
    pub(super) tries: u32,
    /// Whether the copy's file was made in advance.
    pub(super) was_prepared: u32,
    /// Why the last one was refused, or empty.
    pub(super) reason: [u8; REASON],
    /// What has begun it: 0 for a call of the program's, 1 for the daemon's announcement.
    pub(super) begun: u32,
    /// What the daemon says that the process has to do with the fault: one of the constants of
    /// [`Part`](remps_proto::shim::Part).
    pub(super) part: u32,
    /// Pieces of work that are not known to have been done.
    pub(super) lost_work: u64,
    /// In which way: one of [`Way`].
    pub(super) way: u32,
    /// How many things a spare copy had not, or not as they were by then.
    pub(super) behind: u32,
    /// Microseconds of what was done with a spare copy, in the steps "map" and "objects".
    pub(super) switch: [u64; SWITCH.len()],
    /// Calls of a spare copy's functions meanwhile, until it led.
    pub(super) calls: u32,
    /// Fresh copies that were hit themselves before they had everything, each of which another one was begun after.
    pub(super) begun_again: u32,
    /// The time of day at which the error was noticed, in microseconds.
    pub(super) at: u64,
    /// Microseconds until the dead copy was cut off, 0 before that.
    pub(super) cut_off: u64,
}

/// In which way the last recovery was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// With a copy that was made then, as no spare was asked for.
    Cold = 0,
    /// By the spare copy.
    Spare = 1,
    /// As the first, since no spare copy was ready.
    NoSpare = 2,
    /// As the first, since the spare copy failed.
    SpareFailed = 3,
}

impl Way {
    /// In words, behind "recovered"; nothing where there is nothing to say.
    pub(super) const fn text(of: u32) -> &'static str {
        match of {
            1 => " by the spare copy",
            2 => " without a spare copy, as none was ready",
            3 => " without the spare copy, which failed",
            _ => "",
        }
    }
}

/// The steps in their order.
pub(super) const STEPS: [&str; 10] = shim::RECOVERY_STEPS;

/// What is done when a program goes on with its spare copy, in order.
pub(super) const SWITCH: [&str; 10] = shim::SWITCH_STEPS;

/// The same, by its place in [`SWITCH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    Held,
    Alive,
    Memory,
    Objects,
    Stack,
    Settings,
    Variables,
    Graphs,
    Names,
    Lead,
}

/// A step, by its place in [`STEPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait,
    Unmap,
    Name,
    File,
    Load,
    Init,
    Context,
    Map,
    Objects,
    Amputate,
}

impl Recovery {
    /// Nothing has happened.
    pub(super) const fn none() -> Self {
        Self {
            count: 0,
            refused: 0,
            error: 0,
            lost_streams: 0,
            ranges_in_doubt: 0,
            bytes_in_doubt: 0,
            modules_anew: 0,
            objects: 0,
            total: 0,
            steps: [0; STEPS.len()],
            descriptors: 0,
            mappings: 0,
            unmapped: 0,
            not_unmapped: 0,
            tries: 0,
            was_prepared: 0,
            reason: [0; REASON],
            begun: 0,
            part: 0,
            lost_work: 0,
            way: Way::Cold as u32,
            behind: 0,
            switch: [0; SWITCH.len()],
            calls: 0,
            begun_again: 0,
            at: 0,
            cut_off: 0,
        }
    }

    /// What the daemon is told of it.
    pub(super) fn said(&self) -> shim::Recovered {
        shim::Recovered {
            number: self.count,
            way: shim::Way(self.way),
            error: self.error,
            total_us: self.total,
            steps_us: self.steps.to_vec(),
            switch_us: self.switch.to_vec(),
        }
    }

    /// The dead copy was cut off, with all that was done until now.
    pub(super) fn cut_early(&mut self, cut: &Cut) {
        self.cut(cut);
        self.cut_off = self.total.max(1);
    }

    /// What was cut off.
    fn cut(&mut self, cut: &Cut) {
        self.descriptors = u32::try_from(cut.descriptors.len()).unwrap_or(u32::MAX);
        self.mappings = cut.mappings;
    }

    /// A text as C has it, cut if it is too long.
    pub(super) fn set_reason(&mut self, text: &str) {
        self.reason = [0; REASON];
        let length = text.len().min(REASON - 1);
        self.reason[..length].copy_from_slice(&text.as_bytes()[..length]);
    }
}

/// Writes what is known of the last recovery, `size` bytes of it at most, and returns how many recoveries there were.
///
/// # Safety
/// `recovery` has room for `size` bytes, or is null.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "called from outside"))]
unsafe extern "C" fn mps_shim_last_recovery(recovery: *mut Recovery, size: usize) -> u64 {
    // In a forked child another thread may have held the lock.
    let has_part = !recovery.is_null() && size > offset_of!(Recovery, part);
    let read = if has_part { last::whole } else { get };
    let last = if crate::kept::is_on() { unpanicked(read) } else { None }.unwrap_or(Recovery::none());
    if !recovery.is_null() {
        let length = size.min(size_of::<Recovery>());
        // SAFETY: by the contract there is room for as much.
        unsafe { ptr::copy_nonoverlapping((&raw const last).cast::<u8>(), recovery.cast::<u8>(), length) };
    }
    last.count
}

#[cfg(test)]
mod tests {
    use remps_proto::shim;

    use super::{REASON, Recovery, STEPS, SWITCH, Step, Switch, Way};

    #[test]
    fn the_daemon_has_the_same_words_for_the_ways() {
        let ways = [Way::Cold, Way::Spare, Way::NoSpare, Way::SpareFailed].map(|way| shim::Way(way as u32));
        assert_eq!(ways, [shim::Way::COLD, shim::Way::SPARE, shim::Way::NO_SPARE, shim::Way::SPARE_FAILED]);
    }

    #[test]
    fn the_structure_is_as_the_header_says() {
        let header = include_str!("../../include/mps_shim.h");
        assert!(header.contains(&format!("uint64_t step_us[{}];", STEPS.len())));
        assert!(header.contains(&format!("char reason[{REASON}];")));
        let order = STEPS.join(", ");
        assert!(header.contains(&order), "{order}");
        assert_eq!(Step::Amputate as usize, STEPS.len() - 1);
        assert!(header.contains(&format!("uint64_t switch_us[{}];", SWITCH.len())));
        let order = SWITCH.join(", ");
        assert!(header.contains(&order), "{order}");
        assert_eq!(Switch::Lead as usize, SWITCH.len() - 1);
        assert_eq!(
            size_of::<Recovery>(),
            8 * 2
                + 4 * 2
                + 8 * 4
                + 8 * (1 + STEPS.len())
                + 4 * 6
                + REASON
                + 4 * 2
                + 8
                + 4 * 2
                + 8 * SWITCH.len()
                + 4 * 2
                + 8 * 2
        );
        let at = |field: &str| header.find(field).unwrap();
        assert!(at("uint32_t calls;") < at("uint32_t begun_again;"), "fields are added at the end alone");
        assert!(at("uint32_t begun_again;") < at("uint64_t at_us;"), "where there was room");
        assert!(header[header.find("uint64_t at_us;").unwrap()..].contains("uint64_t cut_off_us;"), "behind that one");
        let mut recovery = Recovery::none();
        recovery.set_reason(&"x".repeat(1000));
        assert_eq!(recovery.reason[REASON - 2..], *b"x\0");
    }
}
