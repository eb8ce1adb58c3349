//! What is kept of the program, and who is recovered: `MPS_SHIM_KEEP` and `MPS_SHIM_REPLAY`, and where these say nothing the
//! daemon's configuration.

use std::{
    ffi::OsStr,
    sync::atomic::{AtomicU8, Ordering},
};

use remps_proto::shim::{self, ProgramDefaults, Recover};

use super::{KEEP, REPLAY, SPARE_STACK, defaults, is_server, variable};
use crate::process::log;

/// What is kept of a program, as a number that an atomic holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Keep {
    /// Nothing.
    Nothing = 1,
    /// Its device memory.
    Memory = 2,
    /// That, and how everything else that it has can be made again.
    State = 3,
}

impl Keep {
    fn of(defaults: ProgramDefaults) -> Self {
        match defaults.keep {
            shim::Keep::Nothing => Self::Nothing,
            shim::Keep::Memory => Self::Memory,
            shim::Keep::State => Self::State,
        }
    }
}

/// The values of `MPS_SHIM_KEEP`.
const MEMORY: &str = "memory";
const STATE: &str = "state";

/// Whether `MPS_SHIM_KEEP` asks for anything.
pub(crate) fn is_keeping() -> bool {
    keep() != Keep::Nothing as u8
}

/// Whether `MPS_SHIM_KEEP` asks for more than memory.
pub(crate) fn is_recording() -> bool {
    keep() == Keep::State as u8
}

/// What `MPS_SHIM_KEEP` asks for, and where it is not set the daemon's configuration. Both are looked at once.
///
/// A value that names nothing that can be kept is complained of and keeps nothing: the program runs as it would without
/// this library, and whoever set the variable reads why.
fn keep() -> u8 {
    const UNKNOWN: u8 = 0;
    static KEEP_WHAT: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KEEP_WHAT.load(Ordering::Relaxed) {
        UNKNOWN => {
            let keep = match variable(KEEP) {
                _ if is_server() => Keep::Nothing,
                None => Keep::of(defaults::get()),
                Some(value) => parse_keep(&value).unwrap_or_else(|| {
                    log::complain(format_args!(
                        "MPS_SHIM_KEEP is not \"{MEMORY}\" or \"{STATE}\" but {value:?}: nothing is kept"
                    ));
                    Keep::Nothing
                }),
            } as u8;
            KEEP_WHAT.store(keep, Ordering::Relaxed);
            keep
        }
        known => known,
    }
}

/// What the value asks for; `None` if it says something else.
fn parse_keep(value: &OsStr) -> Option<Keep> {
    match value.to_str() {
        Some("" | "0") => Some(Keep::Nothing),
        Some(MEMORY) => Some(Keep::Memory),
        Some(STATE) => Some(Keep::State),
        _ => None,
    }
}

/// The values of `MPS_SHIM_REPLAY`.
const IN_PLACE: &str = "in-place";
const BYSTANDER: &str = "bystander";
const SPARE: &str = "spare";

/// Who is recovered, as a number that an atomic holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Replay {
    /// Nobody.
    Nobody = 1,
    /// Whoever has lost its context.
    Everybody = 2,
    /// The same, but not who has caused the fault itself.
    Bystanders = 3,
    /// Whoever has lost its context, by a spare copy of the driver where one is ready.
    BySpare = 4,
}

impl Replay {
    fn of(defaults: ProgramDefaults) -> Self {
        match defaults.recover {
            Recover::Nobody => Self::Nobody,
            Recover::InPlace => Self::Everybody,
            Recover::Bystander => Self::Bystanders,
            Recover::Spare => Self::BySpare,
        }
    }
}

/// Whether `MPS_SHIM_REPLAY` asks for recoveries.
pub(crate) fn is_replaying() -> bool {
    replay() != Replay::Nobody as u8
}

/// Whether it asks for none where the fault is the process's own.
pub(crate) fn is_sparing_culprits() -> bool {
    replay() == Replay::Bystanders as u8
}

/// Whether it asks for a spare copy of the driver.
pub(crate) fn is_with_spare() -> bool {
    replay() == Replay::BySpare as u8
}

/// Whether a spare copy has its program's stacks from the start: it is gone on with sooner, and takes more of the GPU.
pub(crate) fn has_spare_full_stacks() -> bool {
    variable(SPARE_STACK).is_some_and(|value| value == "full")
}

/// Who is recovered. The environment is looked at once, and where it says nothing the daemon's configuration. A value that is not known, and one without the state that it
/// needs, is complained of and asks for nothing.
fn replay() -> u8 {
    const UNKNOWN: u8 = 0;
    static REPLAYING: AtomicU8 = AtomicU8::new(UNKNOWN);
    match REPLAYING.load(Ordering::Relaxed) {
        UNKNOWN => {
            let said = variable(REPLAY);
            let value = said.as_deref().unwrap_or_default();
            let wanted = match parse_replay(value) {
                // Who keeps less by its own word is not recovered by another's.
                _ if said.is_none() && !is_recording() => Replay::Nobody,
                _ if said.is_none() => Replay::of(defaults::get()),
                Some(Replay::Nobody) => Replay::Nobody,
                Some(wanted) if is_recording() => wanted,
                Some(_) if is_server() => Replay::Nobody,
                Some(_) => {
                    log::complain(format_args!("MPS_SHIM_REPLAY needs MPS_SHIM_KEEP={STATE}: nothing is recovered"));
                    Replay::Nobody
                }
                None => {
                    log::complain(format_args!(
                        "MPS_SHIM_REPLAY is not \"{IN_PLACE}\", \"{SPARE}\" or \"{BYSTANDER}\" but {value:?}: nothing is \
                         recovered"
                    ));
                    Replay::Nobody
                }
            } as u8;
            REPLAYING.store(wanted, Ordering::Relaxed);
            wanted
        }
        known => known,
    }
}

/// What the value asks for; `None` if it says something else.
fn parse_replay(value: &OsStr) -> Option<Replay> {
    match value.to_str() {
        Some("" | "0") => Some(Replay::Nobody),
        Some(IN_PLACE) => Some(Replay::Everybody),
        Some(BYSTANDER) => Some(Replay::Bystanders),
        Some(SPARE) => Some(Replay::BySpare),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{Keep, Replay, parse_keep, parse_replay};

    #[test]
    fn what_is_kept_is_named_and_anything_else_is_a_mistake() {
        let parse = |text: &str| parse_keep(OsStr::new(text));
        assert_eq!([parse(""), parse("0")], [Some(Keep::Nothing); 2]);
        assert_eq!([parse("memory"), parse("state")], [Some(Keep::Memory), Some(Keep::State)]);
        assert_eq!([parse("1"), parse("Memory"), parse("memory,streams")], [None; 3]);
    }

    #[test]
    fn who_is_recovered_is_named_and_anything_else_is_a_mistake() {
        let parse = |text: &str| parse_replay(OsStr::new(text));
        assert_eq!([parse(""), parse("0")], [Some(Replay::Nobody); 2]);
        assert_eq!([parse("in-place"), parse("bystander")], [Some(Replay::Everybody), Some(Replay::Bystanders)]);
        assert_eq!(parse("spare"), Some(Replay::BySpare));
        assert_eq!([parse("1"), parse("inplace"), parse("culprit")], [None; 3]);
    }
}
