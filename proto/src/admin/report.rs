//! The grammar of ReMPS's own commands, which tell what the daemon knows. No release of the vendor has one of these
//! words, so nothing that the vendor answers changes.
//!
//! They are read strictly, unlike the vendor's: what can't be understood is answered with a line of usage and never
//! taken for something else.

use super::command::CommandName;
use super::form::{Asked, Output};
use super::module::Query;
use super::number::strtol;
use super::rest::RestQuery;

/// One of ReMPS's own commands with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Report {
    /// `get_fault_list [-n COUNT]`
    Faults {
        /// The newest so many; `None` for all that are remembered.
        count: Option<u32>,
        /// As JSON it is one object a line.
        output: Output,
    },
    /// `get_fault_events FAULT`
    FaultEvents {
        /// The number of one of its verdicts.
        fault: u32,
        /// As JSON it is the lines of the journal.
        output: Output,
    },
    /// `get_client_state PID`
    Client {
        /// The client's process.
        pid: u32,
        /// As JSON it is one object.
        output: Output,
    },
    /// `get_channel_list [PID]`
    Channels {
        /// One client's process; `None` for all clients.
        pid: Option<u32>,
        /// As JSON it is one object a line.
        output: Output,
    },
    /// `events [--follow] [-n COUNT]`
    Events {
        /// The newest so many; `None` for all that are remembered, or with `follow` for none.
        count: Option<u32>,
        /// Goes on with events as they come.
        follow: bool,
        /// As JSON it is the lines of the journal.
        output: Output,
    },
    /// `status [--exit-code] [--memory]`
    Status {
        /// As JSON it is one object over several lines.
        output: Output,
        /// Whether it fails when clients can't be served.
        exit_code: bool,
        /// Whether the driver is asked how much GPU memory each client has.
        memory: bool,
    },
    /// `vault list`
    Vault {
        /// As JSON it is one object a line.
        output: Output,
    },
    /// `at-rest PID|--user UID|--server PID [--wait SECONDS]`
    AtRest(RestQuery),
    /// `metrics`
    Metrics {
        /// As JSON it is one object a sample and line; `None` for Prometheus' own format.
        output: Option<Output>,
    },
    /// A question of the third interface: `server …`, `client …`
    Module(Query),
    /// One of these with arguments that it does not take.
    Misused {
        /// Which one.
        name: CommandName,
        /// The first word that is not understood, cut when it is long; `None` where one is missing or has no sense beside
        /// the others.
        word: Option<String>,
    },
}

/// The words after a command.
#[derive(Debug, Default)]
struct Words {
    pid: Option<u32>,
    count: Option<u32>,
    follow: bool,
    exit_code: bool,
    memory: bool,
    asked: Asked,
}

impl Words {
    /// Reads all words.
    ///
    /// # Errors
    /// The first word that is not known or comes once more than it may; `None` where one is missing.
    fn read<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Option<String>> {
        let mut read = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            if read.asked.take(word, &mut words)? {
                continue;
            }
            let (place, value, shown) = match word {
                b"--follow" => {
                    read.follow = true;
                    continue;
                }
                b"--exit-code" => {
                    read.exit_code = true;
                    continue;
                }
                b"--memory" => {
                    read.memory = true;
                    continue;
                }
                b"-n" => {
                    let value = words.next().ok_or(None)?;
                    (&mut read.count, value, value)
                }
                _ => match word.strip_prefix(b"-n") {
                    Some(rest) => (&mut read.count, rest, word),
                    None => (&mut read.pid, word, word),
                },
            };
            let value = number(value).ok_or_else(|| Some(readable(shown)))?;
            if place.replace(value).is_some() {
                return Err(Some(readable(shown)));
            }
        }
        Ok(read)
    }
}

/// A word of the user's for an answer: printable, and short.
pub(super) fn readable(word: &[u8]) -> String {
    const LONGEST: usize = 40;
    let text = String::from_utf8_lossy(word);
    let mut shown: String = text.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// A whole decimal number from 1.
pub(super) fn number(word: &[u8]) -> Option<u32> {
    let whole = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let value = strtol(word).filter(|_| whole)?;
    u32::try_from(value).ok().filter(|value| *value > 0)
}

impl Report {
    /// Reads the words after the name of one of ReMPS's own commands. A name of the vendor's takes no words here.
    #[must_use]
    pub fn parse<'a>(name: CommandName, words: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut words = words;
        if name == CommandName::AtRest {
            return RestQuery::parse(words).map_or_else(|word| Self::Misused { name, word }, Self::AtRest);
        }
        if name == CommandName::Vault {
            match words.next() {
                Some(b"list") => {}
                other => return Self::Misused { name, word: other.map(readable) },
            }
        }
        let read = Words::read(words).and_then(|read| Ok((read.asked.output()?, read)));
        let (asked, Words { pid, count, follow, exit_code, memory, asked: Asked { wide, json, .. } }) = match read {
            Ok(read) => read,
            Err(word) => return Self::Misused { name, word },
        };
        let output = asked.unwrap_or_default();
        match (name, pid, count, follow, exit_code) {
            (name, ..) if memory && name != CommandName::Status => {
                Self::Misused { name, word: Some("--memory".to_owned()) }
            }
            (
                CommandName::GetFaultEvents | CommandName::GetClientState | CommandName::Events | CommandName::Metrics,
                ..,
            ) if wide => Self::Misused { name, word: Some("--wide".to_owned()) },
            (CommandName::GetFaultList, None, count, false, false) => Self::Faults { count, output },
            (CommandName::GetFaultEvents, Some(fault), None, false, false) => Self::FaultEvents { fault, output },
            (CommandName::GetClientState, Some(pid), None, false, false) => Self::Client { pid, output },
            (CommandName::GetChannelList, pid, None, false, false) => Self::Channels { pid, output },
            (CommandName::Events, None, count, follow, false) => Self::Events { count, follow, output },
            (CommandName::Status, None, None, false, exit_code) => Self::Status { output, exit_code, memory },
            (CommandName::Vault, None, None, false, false) => Self::Vault { output },
            (CommandName::Metrics, None, None, false, false) if !json => Self::Metrics { output: asked },
            (name, ..) => Self::Misused { name, word: None },
        }
    }

    /// The command's name.
    #[must_use]
    pub const fn name(&self) -> CommandName {
        match self {
            Self::Faults { .. } => CommandName::GetFaultList,
            Self::FaultEvents { .. } => CommandName::GetFaultEvents,
            Self::Client { .. } => CommandName::GetClientState,
            Self::Channels { .. } => CommandName::GetChannelList,
            Self::Events { .. } => CommandName::Events,
            Self::Status { .. } => CommandName::Status,
            Self::Vault { .. } => CommandName::Vault,
            Self::AtRest(_) => CommandName::AtRest,
            Self::Metrics { .. } => CommandName::Metrics,
            Self::Module(query) => query.module(),
            Self::Misused { name, .. } => *name,
        }
    }
}

/// How a command is written.
#[must_use]
pub fn usage(name: CommandName) -> String {
    format!("Usage: {name} {}", name.arguments()).trim_end().to_owned()
}

/// The answer to arguments that a command of ReMPS's own does not take: the word it does not understand, if it is one, and
/// the usage.
#[must_use]
pub fn misused(name: CommandName, word: Option<&str>) -> Vec<String> {
    let word = word.map(|word| format!("{name}: {word} is not understood"));
    word.into_iter().chain([usage(name)]).collect()
}

#[cfg(test)]
mod tests;
