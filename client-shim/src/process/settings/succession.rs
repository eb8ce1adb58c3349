//! Under which name a program's memory outlives it, and whether the program stands by.

use std::sync::atomic::{AtomicU8, Ordering};

use remps_proto::shim::{MAX_NAME_BYTES, SOCKET_NAME};

use crate::process::{log, settings};

/// Addresses that a standby begins at are this far from its predecessor's, for each number above 0.
pub(crate) const LANES: u64 = 4;

const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// The name under which a successor finds what this program has; `None` for none.
pub(crate) fn name() -> Option<String> {
    let value = settings::variable(settings::NAME).filter(|value| !value.is_empty())?;
    let name = value.to_str().filter(|name| is_name(name)).map(str::to_owned);
    if name.is_none() {
        log::complain(format_args!(
            "MPS_SHIM_NAME is not 1 to {MAX_NAME_BYTES} printable characters without blanks: nothing outlives the process"
        ));
    }
    name
}

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether there is a name. The environment is looked at once.
pub(crate) fn is_named() -> bool {
    static NAMED: AtomicU8 = AtomicU8::new(UNKNOWN);
    remembered(&NAMED, || settings::is_keeping() && name().is_some())
}

/// The lane of a standby; 0 for a program that is none. A value that is no number from 0 to 3 is 1.
pub(crate) fn lane() -> u64 {
    static LANE: AtomicU8 = AtomicU8::new(u8::MAX);
    match LANE.load(Ordering::Relaxed) {
        u8::MAX => {
            let value = settings::variable(settings::STANDBY).unwrap_or_default();
            let lane = match value.to_str() {
                Some("" | "0") => 0,
                Some("2") => 2,
                Some("3") => 3,
                _ => 1,
            };
            LANE.store(lane, Ordering::Relaxed);
            lane.into()
        }
        known => known.into(),
    }
}

/// Whether the program only stands by until its predecessor is gone.
pub(crate) fn is_standby() -> bool {
    lane() > 0
}

/// The daemon's door for this library.
pub(crate) fn socket() -> std::ffi::OsString {
    settings::socket_called(SOCKET_NAME)
}

/// The descriptor of the page on which the wrapper wants to read of a fault.
pub(crate) fn exit_page() -> Option<std::ffi::c_int> {
    settings::variable(settings::EXIT_PAGE)?.to_str()?.parse().ok().filter(|number| *number >= 0)
}

fn remembered(known: &AtomicU8, find: impl FnOnce() -> bool) -> bool {
    match known.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = find();
            known.store(if found { YES } else { NO }, Ordering::Relaxed);
            found
        }
        known => known == YES,
    }
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn a_name_is_printable_and_not_too_long() {
        assert!(is_name("llm/weights-1") && is_name(&"n".repeat(128)));
        assert!(!is_name("") && !is_name("two words") && !is_name("zwölf") && !is_name(&"n".repeat(129)));
    }
}
