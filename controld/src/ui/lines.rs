//! Cuts standard input into commands as the vendor's program does.

use nix::errno::Errno;
use nix::unistd::read;
use remps_proto::admin::Personality;
use remps_proto::mps::ui::MAX_COMMAND;
use std::os::fd::BorrowedFd;

/// The longest line of a release in bytes, its line end counted; the rest of a longer one is the next line.
///
/// Measured: up to 555 the vendor reads pieces of 4095 bytes, 580 reads the whole line.
pub(super) fn longest(personality: Personality) -> usize {
    const UP_TO_555: usize = 4095;
    // A NUL goes with it.
    let since_580 = usize::try_from(MAX_COMMAND).expect("a command fits into memory") - 1;
    if personality >= Personality::V580 { since_580 } else { UP_TO_555 }
}

/// Commands still to be sent.
pub(super) struct Lines<'a> {
    /// `None` once it has ended.
    input: Option<BorrowedFd<'a>>,
    longest: usize,
    read: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// Lines of `input`, each with its line end.
    pub(super) const fn reading(input: BorrowedFd<'a>, longest: usize) -> Self {
        Self { input: Some(input), longest, read: Vec::new() }
    }

    /// One command, sent without a line end as 595 does.
    pub(super) fn one(command: &[u8]) -> Self {
        Self { input: None, longest: usize::MAX, read: command.to_vec() }
    }

    /// The input to wait for; `None` when there is nothing to wait for, because a command is there or none will come.
    pub(super) fn wanted(&self) -> Option<BorrowedFd<'a>> {
        if self.cut().is_some() { None } else { self.input }
    }

    /// Reads once. An input that cannot be read has ended.
    pub(super) fn fill(&mut self) {
        const PIECE: usize = 4096;
        let Some(input) = self.input else { return };
        let mut piece = [0; PIECE];
        match read(input, &mut piece) {
            Ok(0) => self.input = None,
            Ok(length) => self.read.extend_from_slice(&piece[..length]),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => self.input = None,
        }
    }

    /// The next command; `None` when more must be read first or everything has been taken.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.cut()?;
        let rest = self.read.split_off(end);
        let mut line = std::mem::replace(&mut self.read, rest);
        // The vendor's program keeps lines as C strings.
        if let Some(nul) = line.iter().position(|byte| *byte == 0) {
            line.truncate(nul);
        }
        Some(line)
    }

    /// Whether everything has been taken and nothing more will come.
    pub(super) const fn ended(&self) -> bool {
        self.input.is_none() && self.read.is_empty()
    }

    /// Where the next command ends.
    fn cut(&self) -> Option<usize> {
        let end = self.read.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        match end {
            Some(end) => Some(end.min(self.longest)),
            None if self.read.len() >= self.longest => Some(self.longest),
            None if self.input.is_none() && !self.read.is_empty() => Some(self.read.len()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn cut(input: &[u8], longest: usize) -> Vec<String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(input).unwrap();
        nix::unistd::lseek(&file, 0, nix::unistd::Whence::SeekSet).unwrap();
        let mut lines = Lines::reading(file.as_fd(), longest);
        let mut all = Vec::new();
        while !lines.ended() {
            match lines.next() {
                Some(line) => all.push(String::from_utf8(line).unwrap()),
                None => lines.fill(),
            }
        }
        all
    }

    #[test]
    fn a_line_keeps_its_end_and_the_last_one_needs_none() {
        assert_eq!(cut(b"a\n\n b \r\nc", 100), ["a\n", "\n", " b \r\n", "c"]);
        assert!(cut(b"", 100).is_empty());
    }

    #[test]
    fn a_line_ends_for_the_daemon_at_its_nul() {
        assert_eq!(cut(b"x\0y\nps\n", 100), ["x", "ps\n"]);
    }

    #[test]
    fn a_long_line_goes_in_the_pieces_of_its_release() {
        let long = [vec![b'a'; 5000], b"\nps\n".to_vec()].concat();
        let lengths = |personality| cut(&long, longest(personality)).iter().map(String::len).collect::<Vec<_>>();
        assert_eq!(lengths(Personality::V550), [4095, 906, 3]);
        assert_eq!(lengths(Personality::V580), [5001, 3]);
    }

    #[test]
    fn what_cannot_be_read_has_ended() {
        let directory = std::fs::File::open("/").unwrap();
        let mut lines = Lines::reading(directory.as_fd(), 100);
        lines.fill();
        assert!(lines.ended());
    }
}
