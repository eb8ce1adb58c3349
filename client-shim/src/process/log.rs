//! Lines on standard error, each written by one `write(2)`.
//!
//! A line is put together in a fixed buffer and cut at its end: nothing here allocates, locks or panics.
#![expect(unsafe_code, reason = "writes to a descriptor that belongs to the program")]

use std::{
    fmt::{self, Write},
    process,
};

/// Bytes of a line at most: room for the longest pipe directory and a sentence. Below `PIPE_BUF`, so that the lines of
/// several processes do not mix.
const LINE: usize = 512;

/// Writes a line, of which a person will see the beginning at least.
pub(crate) fn complain(message: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LINE], length: 0 };
    // The only error is a full buffer, and then the line is cut.
    let _cut = write!(line, "mps-client-shim[{}]: {message}", process::id());
    let end = line.length.min(LINE - 1);
    line.bytes[end] = b'\n';
    // SAFETY: the buffer is ours and `end` lies in it. A failed or short write has nobody to be reported to.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), end + 1) };
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

    use super::{LINE, Line};

    #[test]
    fn a_long_line_is_cut_and_never_overruns() {
        let mut line = Line { bytes: [0; LINE], length: 0 };
        assert!(write!(line, "{}", "x".repeat(LINE - 1)).is_ok());
        assert!(write!(line, "yz").is_err());
        assert_eq!(line.length, LINE);
        assert_eq!(line.bytes[LINE - 1], b'y');
    }
}
