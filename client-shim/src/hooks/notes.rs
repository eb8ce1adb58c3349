//! What `MPS_SHIM_LOG=1` tells of hooks: one line when one is handed out, one when it is first reached, and one for
//! each reason for which it let a call pass, each once in a process.

use std::{
    fmt, ptr,
    sync::atomic::{AtomicU8, Ordering},
};

use crate::{
    cuda::{
        call::Bypass,
        functions::{self, Function},
    },
    process::{fork, log, settings},
};

/// Something worth a line the first time it happens to a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its address was given out by `dlsym`.
    FoundByDlsym,
    /// Its address was given out by `cuGetProcAddress` or `cuGetProcAddress_v2`.
    FoundByProcAddress,
    /// The program called it.
    Reached,
    /// It passed the call on to the driver.
    Bypassed(Bypass),
}

impl Event {
    /// The bit that stands for the event in the hook's word of the fork page.
    fn bit(self) -> u32 {
        let number = match self {
            Self::FoundByDlsym => 0,
            Self::FoundByProcAddress => 1,
            Self::Reached => 2,
            Self::Bypassed(reason) => 3 + reason as u32,
        };
        1 << number
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FoundByDlsym => f.write_str("found by dlsym"),
            Self::FoundByProcAddress => f.write_str("found by cuGetProcAddress"),
            Self::Reached => f.write_str("reached"),
            Self::Bypassed(reason) => write!(f, "passed on: {}", reason.text()),
        }
    }
}

/// Writes the line for `event`, if lines are asked for and this is its first time in this process.
pub(crate) fn note(called: &Function, event: Event) {
    if wanted() && fork::remember(word_of(called), event.bit()) & event.bit() == 0 {
        log::complain(format_args!("{}: {event}", called.text()));
    }
}

/// A function's word of the fork page.
fn word_of(called: &Function) -> usize {
    // Word 0 belongs to the process.
    1 + functions::all().position(|function| ptr::eq(function, called)).unwrap_or_default()
}

/// Whether `MPS_SHIM_LOG` asks for lines. The environment is looked at once.
fn wanted() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static WANTED: AtomicU8 = AtomicU8::new(UNKNOWN);
    match WANTED.load(Ordering::Relaxed) {
        UNKNOWN => {
            let wanted = settings::lines_wanted();
            WANTED.store(if wanted { YES } else { NO }, Ordering::Relaxed);
            wanted
        }
        known => known == YES,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Event, word_of};
    use crate::{
        cuda::{call::Bypass, functions},
        process::fork,
    };

    #[test]
    fn every_event_has_a_bit_of_its_own() {
        let mut seen = 0;
        let reasons = Bypass::ALL.map(Event::Bypassed);
        for event in [Event::FoundByDlsym, Event::FoundByProcAddress, Event::Reached].into_iter().chain(reasons) {
            assert_eq!(seen & event.bit(), 0, "{event:?}");
            seen |= event.bit();
        }
    }

    #[test]
    fn every_function_has_its_own_word_and_word_zero_is_left_free() {
        let words: HashSet<_> = functions::all().map(word_of).collect();
        assert_eq!(words.len(), functions::all().count());
        assert!(words.iter().all(|word| (1..fork::WORDS).contains(word)));
    }
}
