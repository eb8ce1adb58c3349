//! Records of the log FIFO that speak of a fault.
//!
//! Seen of 580 on an H200, in this order; what 535 and 550 say differently was read in public logs:
//!
//! | text | says |
//! |---|---|
//! | `Client {PID: 649, Context: 1} encountered a fatal GPU error.` | accuses, wrongly in every run; missing for exceptions |
//! | `Server is handling a fatal GPU error.` | a fault |
//! | `Client {PID: 649, Context ID: 1} on device 0 to be torn down` | a victim |
//! | `All clients belonging to error trigging process 649 will be torn down` | said of every victim |
//! | `Client {PID: 649, Context ID: 1} on the error-trigging process 649 to be torn down` | the same |
//! | `The following devices will be reset:`, then a record for each ordinal | a fault |
//! | `The following client process have a sticky error set:`, then a record for each pid | a fault |
//! | `Server teardown in progress. Refusing to accept new client {PID: 607, Context ID: 0}` | the fault goes on |
//! | `Client {PID: 661, Context ID: 1} exiting. Worker is in reset. Number of …` | blames, rightly whenever it was seen |
//!
//! The last one comes after `trap` and `assert`, the first one after a memory fault alone. After a misaligned access
//! there is neither, and the one who did it may have ended without an error, 8 ms after the launch, before the first of
//! these records (2 of 2 runs); who is listed then are victims only.
//!
//! The vendor writes `trigging`. Spellings that a later release may correct are understood too. The FIFO is open to every
//! server's user, so a record is what somebody wrote, and no proof of anything.

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phrase {
    /// A client has met a fatal error.
    Encountered,
    /// The server handles a fatal error.
    Handling,
    /// A client is lost with a device.
    TornDown,
    /// The clients of a process are lost; the text calls it the one that triggered the error, and says so of each.
    Triggering,
    /// Devices are reset; their ordinals follow.
    DevicesReset,
    /// Processes have a sticky error; their pids follow.
    StickyErrors,
    /// A newcomer is refused, because the server still has victims.
    Refused,
    /// A client leaves whose own worker was reset.
    WorkerReset,
    /// The server ends because of a fatal exception.
    FatalException,
}

/// A record that speaks of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultLine {
    /// What it says.
    pub phrase: Phrase,
    /// The process that it speaks of, in whatever part.
    pub pid: Option<u32>,
    /// That client's context.
    pub context: Option<u32>,
}

impl FaultLine {
    /// Reads a record's text; `None` when it is about something else.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?.trim();
        let (pid, context) = client(text).unwrap_or((None, None));
        let of = |phrase| Some(Self { phrase, pid, context });
        let without = |phrase| Some(Self { phrase, pid: None, context: None });
        let is_clients = text.starts_with("Client ");
        if is_clients && text.contains("encountered a fatal GPU") {
            return of(Phrase::Encountered);
        }
        if is_clients && text.contains("Worker is in reset") {
            return of(Phrase::WorkerReset);
        }
        if text.starts_with("Server is handling a fatal GPU") {
            return without(Phrase::Handling);
        }
        if text.starts_with("Server encountered a fatal exception") {
            return without(Phrase::FatalException);
        }
        if let Some(process) = triggering(text) {
            return Some(Self { phrase: Phrase::Triggering, pid: pid.or(process), context });
        }
        if is_clients && text.ends_with("to be torn down") {
            return of(Phrase::TornDown);
        }
        if text.starts_with("The following device") && text.contains("reset") {
            return without(Phrase::DevicesReset);
        }
        if text.starts_with("The following client") && text.contains("sticky error") {
            return without(Phrase::StickyErrors);
        }
        if text.starts_with("Server teardown in progress") {
            return of(Phrase::Refused);
        }
        None
    }

    /// Whom the record calls the culprit. Wrong more often than not, unless it [`blames`](Self::blames).
    #[must_use]
    pub const fn accused(&self) -> Option<u32> {
        match self.phrase {
            Phrase::Encountered | Phrase::Triggering | Phrase::WorkerReset => self.pid,
            Phrase::Handling
            | Phrase::TornDown
            | Phrase::DevicesReset
            | Phrase::StickyErrors
            | Phrase::Refused
            | Phrase::FatalException => None,
        }
    }

    /// Whether it is the one phrase that was right whenever it was seen.
    #[must_use]
    pub const fn blames(&self) -> bool {
        matches!(self.phrase, Phrase::WorkerReset) && self.pid.is_some()
    }

    /// Whether a fault has just begun, and not only goes on or comes to its end.
    #[must_use]
    pub const fn begins(&self) -> bool {
        matches!(self.phrase, Phrase::Encountered | Phrase::Handling | Phrase::FatalException)
    }
}

/// The pid and the context of the first `{PID: N, Context ID: N}`, also without its words. A pid that the server does not
/// know yet is any number, negative ones included, which is none.
fn client(text: &str) -> Option<(Option<u32>, Option<u32>)> {
    let inside = text.split_once('{')?.1.split_once('}')?.0;
    let mut fields = inside.split(',').map(|field| {
        let number = field.rsplit(':').next().unwrap_or_default().trim();
        number.parse::<u32>().ok()
    });
    Some((fields.next().flatten().filter(|pid| *pid != 0), fields.next().flatten()))
}

/// The process after `error trigging process`; `None` when the text has no such words.
fn triggering(text: &str) -> Option<Option<u32>> {
    let rest = ["error trig", "error-trig"].iter().find_map(|words| text.split_once(words))?.1;
    let (spelling, number) = rest.split_once(" process ")?;
    if !matches!(spelling, "ging" | "gering" | "erring" | "gerring") || !text.contains("torn down") {
        return None;
    }
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    Some(number[..end].parse().ok().filter(|pid| *pid != 0))
}

#[cfg(test)]
mod tests;
