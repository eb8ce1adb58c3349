//! Records of the log FIFO.
//!
//! A record is a 48-byte header and its text: `u32 0xabcde000 | source`, `u32 pid`, eight `u32` of local time (year,
//! month, day, weekday, hour, minute, second, millisecond), `u64` text length. The FIFO is writable by every server's
//! user, so [`Decoder`] takes any bytes: it skips to the next thing that looks like a header, counts what it skipped,
//! and never holds more than one record.

use bytes::{Buf, BufMut};

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 48;
/// Longest text accepted; a longer one is taken for garbage.
pub const MAX_TEXT: usize = 64 * 1024;

const TAG: u32 = 0xabcd_e000;
const TAG_MASK: u32 = 0xffff_f000;

crate::open_enum! {
    /// Who wrote a record.
    pub struct Source: u32 {
        /// The control daemon; goes to `control.log`.
        CONTROL = 0,
        /// A server; goes to `server.log`, like all that follow.
        SERVER = 1,
        /// A client.
        CLIENT = 2,
        /// A server before it has initialised.
        OTHER = 3,
        /// A server for GPUs older than Volta.
        LEGACY_SERVER = 4,
    }
}

impl Source {
    /// The word in the log line's bracket.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::CONTROL => "Control",
            Self::SERVER => "Server",
            Self::CLIENT => "Client",
            Self::LEGACY_SERVER => "Legacy Server",
            _ => "Other",
        }
    }
}

/// Local time as the header carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalTime {
    /// Year, as 2026.
    pub year: u32,
    /// Month, 1 to 12.
    pub month: u32,
    /// Day of the month, 1 to 31.
    pub day: u32,
    /// Day of the week, 0 is Sunday.
    pub weekday: u32,
    /// Hour, 0 to 23.
    pub hour: u32,
    /// Minute, 0 to 59.
    pub minute: u32,
    /// Second, 0 to 60.
    pub second: u32,
    /// Millisecond, 0 to 999.
    pub millisecond: u32,
}

impl LocalTime {
    fn is_plausible(self) -> bool {
        self.year <= 9999
            && (1..=12).contains(&self.month)
            && (1..=31).contains(&self.day)
            && self.weekday <= 6
            && self.hour <= 23
            && self.minute <= 59
            && self.second <= 60
            && self.millisecond <= 999
    }
}

/// One log record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who wrote it.
    pub source: Source,
    /// The writer's pid, as it says itself.
    pub pid: u32,
    /// When, in local time.
    pub time: LocalTime,
    /// The text, without newline.
    pub text: Vec<u8>,
}

impl Record {
    /// The record's bytes. A text over [`MAX_TEXT`] is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let text = &self.text[..self.text.len().min(MAX_TEXT)];
        let mut bytes = Vec::with_capacity(HEADER_LENGTH + text.len());
        bytes.put_u32_le(TAG | (self.source.0 & !TAG_MASK));
        bytes.put_u32_le(self.pid);
        let LocalTime { year, month, day, weekday, hour, minute, second, millisecond } = self.time;
        for number in [year, month, day, weekday, hour, minute, second, millisecond] {
            bytes.put_u32_le(number);
        }
        bytes.put_u64_le(text.len() as u64);
        bytes.put_slice(text);
        bytes
    }

    /// The line for the log file, with control characters replaced so that one record stays one line.
    #[must_use]
    pub fn line(&self) -> String {
        let LocalTime { year, month, day, hour, minute, second, millisecond, .. } = self.time;
        let text: String = String::from_utf8_lossy(&self.text)
            .chars()
            .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
            .collect();
        format!(
            "[{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millisecond:03} {} {:>5}] {text}",
            self.source.label(),
            self.pid,
        )
    }
}

/// Takes the FIFO's bytes in pieces of any size and gives records.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// How many of its bytes are taken already.
    taken: usize,
    skipped: u64,
}

impl Decoder {
    /// Bytes that belonged to no record, since the start.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Adds bytes as read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes bytes that are half of a record for lost: call it when a writer has ended in the middle of one.
    pub fn reset(&mut self) {
        self.skipped += (self.buffer.len() - self.taken) as u64;
        self.buffer.clear();
        self.taken = 0;
    }

    fn skip(&mut self, count: usize) {
        self.skipped += count as u64;
        self.taken += count;
    }

    /// What is taken goes once, when no more can be: bytes that look like the beginning of a record again and again are
    /// moved no more often than others.
    fn wait(&mut self) -> Option<Record> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        None
    }

    /// Parses a header: source, pid, time, text length; `None` when it is none.
    fn header(mut bytes: &[u8]) -> Option<(Source, u32, LocalTime, usize)> {
        let tag = bytes.get_u32_le();
        let pid = bytes.get_u32_le();
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = bytes.get_u32_le();
        }
        let [year, month, day, weekday, hour, minute, second, millisecond] = numbers;
        let time = LocalTime { year, month, day, weekday, hour, minute, second, millisecond };
        let length = usize::try_from(bytes.get_u64_le()).ok()?;
        (tag & TAG_MASK == TAG && time.is_plausible() && length <= MAX_TEXT).then_some((
            Source(tag & !TAG_MASK),
            pid,
            time,
            length,
        ))
    }
}

impl Iterator for Decoder {
    type Item = Record;

    /// The next whole record, or `None` until more bytes are pushed.
    fn next(&mut self) -> Option<Record> {
        loop {
            // The tag's upper bytes start a record; its lowest byte is the source.
            let rest = &self.buffer[self.taken..];
            let is_tag =
                |window: &[u8]| u32::from_le_bytes([window[0], window[1], window[2], window[3]]) & TAG_MASK == TAG;
            let Some(start) = rest.windows(4).position(is_tag) else {
                self.skip(rest.len() - rest.len().min(3));
                return self.wait();
            };
            self.skip(start);
            let rest = &self.buffer[self.taken..];
            if rest.len() < HEADER_LENGTH {
                return self.wait();
            }
            let Some((source, pid, time, length)) = Self::header(&rest[..HEADER_LENGTH]) else {
                self.skip(1);
                continue;
            };
            if rest.len() < HEADER_LENGTH + length {
                return self.wait();
            }
            let text = rest[HEADER_LENGTH..HEADER_LENGTH + length].to_vec();
            self.taken += HEADER_LENGTH + length;
            return Some(Record { source, pid, time, text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(text: &str) -> Record {
        let time = LocalTime {
            year: 2026,
            month: 11,
            day: 20,
            weekday: 5,
            hour: 11,
            minute: 20,
            second: 31,
            millisecond: 488,
        };
        Record { source: Source::SERVER, pid: 519, time, text: text.as_bytes().to_vec() }
    }

    #[test]
    fn the_line_is_the_vendors() {
        assert_eq!(record("Server has started").line(), "[2026-11-20 11:20:31.488 Server   519] Server has started");
        let other = Record { source: Source::OTHER, pid: 12345, ..record("Startup") };
        assert_eq!(other.line(), "[2026-11-20 11:20:31.488 Other 12345] Startup");
    }

    #[test]
    fn a_line_break_in_a_record_cannot_forge_a_second_line() {
        assert!(!record("a\nb\rc\u{1b}[2J").line().contains(['\n', '\r', '\u{1b}']));
    }

    #[test]
    fn records_come_out_whole_however_the_bytes_arrive() {
        let bytes: Vec<u8> = [record("one"), record(""), record("three")].iter().flat_map(Record::encode).collect();
        for size in [1, 3, 47, 48, 49, 200] {
            let mut decoder = Decoder::default();
            let mut texts = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                texts.extend(decoder.by_ref().map(|record| String::from_utf8(record.text).expect("ascii")));
            }
            assert_eq!(texts, ["one", "", "three"]);
            assert_eq!(decoder.skipped(), 0);
        }
    }

    /// Each is the beginning of no record; moved each time, a mebibyte of them would take minutes.
    #[test]
    fn what_begins_like_a_record_again_and_again_takes_no_longer_than_other_bytes() {
        let mut decoder = Decoder::default();
        let tags = TAG.to_le_bytes().repeat(1 << 18);
        decoder.push(&tags);
        assert_eq!(decoder.next(), None);
        decoder.push(&record("after all that").encode());
        let texts: Vec<_> = decoder.by_ref().map(|record| record.text).collect();
        assert_eq!(texts, [b"after all that"]);
        assert_eq!(decoder.skipped(), tags.len() as u64);
    }

    #[test]
    fn garbage_before_and_between_records_is_skipped_and_counted() {
        let mut bytes = b"garbage".to_vec();
        bytes.extend(record("one").encode());
        bytes.extend(TAG.to_le_bytes());
        bytes.extend([0xff; 60]);
        bytes.extend(record("two").encode());
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let texts: Vec<_> = decoder.by_ref().map(|record| record.text).collect();
        assert_eq!(texts, [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(decoder.skipped(), 7 + 4 + 60);
    }

    proptest! {
        #[test]
        fn no_bytes_can_make_it_panic_or_grow(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
            let mut decoder = Decoder::default();
            for piece in &pieces {
                decoder.push(piece);
                decoder.by_ref().for_each(drop);
                prop_assert!(decoder.buffer.len() <= HEADER_LENGTH + MAX_TEXT + 200);
            }
        }
    }
}
