//! Sends commands and prints answers, in one thread.
//!
//! Commands are sent ahead of their answers, as the vendor's program does; answers are taken at any time, so that
//! neither end ever waits for the other with both buffers full.

use super::Broken;
use super::lines::Lines;
use crate::cli::{help, text};
use crate::io::packets::{Received, receive};
use crate::ui::local_time::{has_times, localised};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use remps_proto::admin::{Command, Personality, Report};
use remps_proto::mps::ui::{Announcement, FromDaemon};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Room for an answer packet; the vendor's are at most 4100 bytes, a longer one is cut.
const ANSWER_ROOM: usize = 64 * 1024;

/// A session after its greeting.
pub(super) struct Session<'a> {
    socket: BorrowedFd<'a>,
    lines: Lines<'a>,
    /// Packets to send: a command's length and then the command. Filled only when empty, so it holds at most two.
    outbound: VecDeque<Vec<u8>>,
    said_end: bool,
    /// When to give up; `None` is never, because a `quit` takes as long as the clients take to leave.
    deadline: Option<Instant>,
    /// Whether the last command asked for events without an end.
    follows: bool,
    /// Whether to say on standard error what an unknown command was perhaps meant to be.
    helps: bool,
    /// Whether times are made local for a reader.
    localises: bool,
    /// Whose packets come, as this process sees it; 0 when it can't, or none has come.
    speaker: u32,
    outcome: Outcome,
}

/// What of a session decides on its exit status, beside the daemon.
struct Outcome {
    /// Whether one of the commands was ReMPS's own; the vendor's fail by what they print.
    has_ours: bool,
    has_failed: bool,
    /// Whether the answers have times that are to be made local.
    has_times: bool,
    /// How many of the packets to come are the reason of a failure.
    reasons: u32,
    /// Why an answer could not be written.
    unwritten: Option<io::Error>,
}

/// Where a session writes.
pub(super) struct Streams<'a> {
    /// The answers.
    pub out: &'a mut dyn Write,
    /// Why a command of ours has failed, and hints.
    pub err: &'a mut dyn Write,
}

impl<'a> Session<'a> {
    /// A session on a connected, non-blocking socket.
    pub(super) const fn new(socket: BorrowedFd<'a>, lines: Lines<'a>) -> Self {
        Self {
            socket,
            lines,
            outbound: VecDeque::new(),
            said_end: false,
            deadline: None,
            follows: false,
            helps: false,
            localises: false,
            speaker: 0,
            outcome: Outcome { has_ours: false, has_failed: false, has_times: false, reasons: 0, unwritten: None },
        }
    }

    /// The same, which says what an unknown command was perhaps meant to be.
    pub(super) const fn helping(mut self, helps: bool) -> Self {
        self.helps = helps;
        self
    }

    /// The same, with the times of answers in the zone of whoever reads them.
    pub(super) const fn localising(mut self) -> Self {
        self.localises = true;
        self
    }

    /// The same, given up at `deadline`.
    pub(super) fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Runs until the daemon ends the session; its exit status, or that of a failure where a command of ours failed or
    /// its answer could not be written. What `out` does not take of the vendor's answers is lost, as with the vendor.
    pub(super) fn run(mut self, streams: &mut Streams<'_>) -> Result<u8, Broken> {
        self.go_on(streams)
    }

    /// The same; the pid of who has answered, as this process sees it, and 0 when it can't.
    pub(super) fn run_with(mut self, streams: &mut Streams<'_>) -> Result<u32, Broken> {
        self.go_on(streams)?;
        Ok(self.speaker)
    }

    fn go_on(&mut self, streams: &mut Streams<'_>) -> Result<u8, Broken> {
        let mut answer = vec![0; ANSWER_ROOM];
        loop {
            self.next_command(streams);
            let input = if self.outbound.is_empty() { self.lines.wanted() } else { None };
            let mut interest = PollFlags::POLLIN;
            if !self.outbound.is_empty() {
                interest |= PollFlags::POLLOUT;
            }
            let mut waits = vec![PollFd::new(self.socket, interest)];
            waits.extend(input.map(|input| PollFd::new(input, PollFlags::POLLIN)));
            let patience = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if patience.is_some_and(|patience| patience.is_zero()) {
                return Err(Broken::Lost("it took too long"));
            }
            // Rounded up, so that the last wait ends after the deadline and not again and again just before it.
            let patience = patience.map(|patience| patience + Duration::from_millis(1));
            let timeout = patience.map_or(PollTimeout::NONE, |time| time.try_into().unwrap_or(PollTimeout::MAX));
            match poll(&mut waits, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return Err(Broken::Lost("it cannot be waited for")),
            }
            let ready = |index: usize| waits.get(index).and_then(PollFd::revents).is_some_and(|seen| !seen.is_empty());
            let (socket_ready, input_ready) = (ready(0), ready(1));
            if input_ready {
                self.lines.fill();
            }
            if socket_ready {
                let sent = self.send_ready();
                // Also when nothing could be sent: a daemon that is gone has left its last words in the socket.
                if let Some(status) = self.take_answers(&mut answer, streams)? {
                    return Ok(status);
                }
                sent?;
            }
        }
    }

    fn next_command(&mut self, streams: &mut Streams<'_>) {
        if !self.outbound.is_empty() || self.said_end {
            return;
        }
        if let Some(mut command) = self.lines.next() {
            let parsed = Command::parse(&command, Personality::ALL[0]);
            self.follows = matches!(parsed, Command::Report(Report::Events { follow: true, .. }));
            if let Command::Report(report) = &parsed {
                self.outcome.has_ours = true;
                self.outcome.has_times |= self.localises && has_times(report);
            }
            if let Some(hint) = self.helps.then(|| help::hint(&command)).flatten() {
                // Nobody is left to tell when standard error is closed.
                let _ = writeln!(streams.err, "{hint}");
            }
            command.push(0);
            self.outbound.push_back(Announcement::Command(command.len()).encode().to_vec());
            self.outbound.push_back(command);
        } else if self.lines.ended() {
            self.outbound.push_back(Announcement::End.encode().to_vec());
            self.said_end = true;
        }
    }

    fn send_ready(&mut self) -> Result<(), Broken> {
        while let Some(packet) = self.outbound.front() {
            match send(self.socket.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL) {
                Ok(_) => self.outbound.pop_front(),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(_) => return Err(Broken::Lost("a command could not be sent")),
            };
        }
        Ok(())
    }

    fn take_answers(&mut self, answer: &mut [u8], streams: &mut Streams<'_>) -> Result<Option<u8>, Broken> {
        loop {
            let length = match receive(self.socket, answer) {
                Ok(Received { bytes: 0, .. }) => return Err(Broken::Lost("it closed without an exit status")),
                Ok(Received { bytes, sender, .. }) => {
                    self.speaker = sender.map_or(self.speaker, |sender| sender.pid);
                    bytes
                }
                // A daemon that closes before it has read everything makes one reset, in front of its last packets.
                Err(Errno::EINTR | Errno::ECONNRESET) => continue,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(_) => return Err(Broken::Lost("its answer could not be read")),
            };
            match FromDaemon::decode(&answer[..length]) {
                Ok(FromDaemon::Output(text)) => {
                    let mut text = if self.outcome.has_times { localised(text) } else { text };
                    text.push(b'\n');
                    if let Err(error) = self.outcome.write(&text, streams) {
                        // An answer without an end ends when nobody is left to read it.
                        if self.follows {
                            return Ok(Some(text::SUCCESS));
                        }
                        self.outcome.unwritten.get_or_insert(error);
                    }
                }
                Ok(FromDaemon::Failed(reasons)) => {
                    self.outcome.has_failed = true;
                    self.outcome.reasons = reasons;
                }
                Ok(FromDaemon::End(status)) => {
                    let [low, ..] = status.to_le_bytes();
                    return Ok(Some(self.outcome.status(low, streams)));
                }
                // The vendor's program passes over packets it does not know, so a newer daemon may send some.
                Err(_) => {}
            }
        }
    }
}

impl Outcome {
    fn write(&mut self, text: &[u8], streams: &mut Streams<'_>) -> io::Result<()> {
        if self.reasons > 0 {
            self.reasons -= 1;
            // Nobody is left to tell when standard error is closed.
            let _ = streams.err.write_all(text);
            return Ok(());
        }
        streams.out.write_all(text).and_then(|()| streams.out.flush())
    }

    /// The exit status of a session that the daemon ends with this one.
    fn status(&self, daemons: u8, streams: &mut Streams<'_>) -> u8 {
        let mut has_failed = self.has_failed;
        // Whoever closes the other end of a pipe has read enough.
        let unwritten = self.unwritten.as_ref().filter(|error| error.kind() != ErrorKind::BrokenPipe);
        if let Some(error) = unwritten.filter(|_| self.has_ours) {
            let _ = writeln!(streams.err, "The answer can't be written: {error}");
            has_failed = true;
        }
        if has_failed && daemons == text::SUCCESS { text::FAILURE } else { daemons }
    }
}
