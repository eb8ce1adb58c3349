//! Lines on standard error, each written by one `write(2)`.
//!
//! `MPS_SHIM_LOG=1` asks for one line when a hook is handed out, one when it is first reached, and one for each reason
//! for which it let a call pass, each once in a process. Complaints are written whether asked for or not. A line is
//! put together in a fixed buffer and cut at its end: nothing here allocates, locks or panics.
#![expect(unsafe_code, reason = "writes to a descriptor that belongs to the program")]

use std::{
    ffi::CStr,
    fmt::{self, Write},
    process,
    sync::atomic::{AtomicU8, Ordering},
};

use crate::{fork, guard::Bypass, settings, table::Hook};

/// Bytes of a line at most: room for the longest pipe directory and a sentence. Below `PIPE_BUF`, so that the lines of
/// several processes do not mix.
const LINE: usize = 512;

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
pub(crate) fn note(hook: &Hook, event: Event) {
    if wanted() && fork::remember(hook.word(), event.bit()) & event.bit() == 0 {
        write_line(format_args!("{}: {event}", Name(hook.name)));
    }
}

/// Writes a line that a person must see.
pub(crate) fn complain(message: fmt::Arguments<'_>) {
    write_line(message);
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

fn write_line(message: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LINE], length: 0 };
    // The only error is a full buffer, and then the line is cut.
    let _cut = write!(line, "mps-client-shim[{}]: {message}", process::id());
    let end = line.length.min(LINE - 1);
    line.bytes[end] = b'\n';
    // SAFETY: the buffer is ours and `end` lies in it. A failed or short write has nobody to be reported to.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), end + 1) };
}

/// A function's name: plain ASCII, written without an allocation.
struct Name(&'static CStr);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or("?"))
    }
}

struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let taken = text.len().min(LINE - self.length);
        self.bytes[self.length..self.length + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::{Event, LINE, Line};
    use crate::guard::Bypass;

    #[test]
    fn a_long_line_is_cut_and_never_overruns() {
        let mut line = Line { bytes: [0; LINE], length: 0 };
        assert!(write!(line, "{}", "x".repeat(LINE - 1)).is_ok());
        assert!(write!(line, "yz").is_err());
        assert_eq!(line.length, LINE);
        assert_eq!(line.bytes[LINE - 1], b'y');
    }

    #[test]
    fn every_event_has_a_bit_of_its_own() {
        let mut seen = 0;
        let reasons = Bypass::ALL.map(Event::Bypassed);
        for event in [Event::FoundByDlsym, Event::FoundByProcAddress, Event::Reached].into_iter().chain(reasons) {
            assert_eq!(seen & event.bit(), 0, "{event:?}");
            seen |= event.bit();
        }
    }
}
