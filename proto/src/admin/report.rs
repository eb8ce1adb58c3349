//! The grammar of ReMPS's own commands, which tell what the daemon knows. No release of the vendor has one of these
//! words, so nothing that the vendor answers changes.
//!
//! They are read strictly, unlike the vendor's: what can't be understood is answered with a line of usage and never
//! taken for something else.

use super::command::CommandName;
use super::module::Query;
use super::number::strtol;

/// One of ReMPS's own commands with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Report {
    /// `get_fault_list [-n COUNT] [--wide] [--json]`
    Faults {
        /// The newest so many; `None` for all that are remembered.
        count: Option<u32>,
        /// All columns, and nothing of them cut.
        wide: bool,
        /// One JSON object a line in place of a table.
        json: bool,
    },
    /// `get_client_state PID [--json]`
    Client {
        /// The client's process.
        pid: u32,
        /// A JSON object in place of text.
        json: bool,
    },
    /// `get_channel_list [PID] [--wide] [--json]`
    Channels {
        /// One client's process; `None` for all clients.
        pid: Option<u32>,
        /// Nothing of a column is cut.
        wide: bool,
        /// One JSON object a line in place of a table.
        json: bool,
    },
    /// `events [--follow] [-n COUNT] [--json]`
    Events {
        /// The newest so many; `None` for all that are remembered, or with `follow` for none.
        count: Option<u32>,
        /// Goes on with events as they come.
        follow: bool,
        /// The lines of the journal in place of text.
        json: bool,
    },
    /// `status [--wide] [--json] [--exit-code]`
    Status {
        /// Nothing of a column is cut.
        wide: bool,
        /// One JSON object in place of text.
        json: bool,
        /// Whether it fails when clients can't be served.
        exit_code: bool,
    },
    /// `vault list [--wide] [--json]`
    Vault {
        /// Nothing of a column is cut.
        wide: bool,
        /// One JSON object a line in place of a table.
        json: bool,
    },
    /// `metrics`
    Metrics,
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
    wide: bool,
    json: bool,
    exit_code: bool,
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
            let (place, value, shown) = match word {
                b"--json" => {
                    read.json = true;
                    continue;
                }
                b"--wide" => {
                    read.wide = true;
                    continue;
                }
                b"--follow" => {
                    read.follow = true;
                    continue;
                }
                b"--exit-code" => {
                    read.exit_code = true;
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
        if name == CommandName::Vault {
            match words.next() {
                Some(b"list") => {}
                other => return Self::Misused { name, word: other.map(readable) },
            }
        }
        let Words { pid, count, follow, wide, json, exit_code } = match Words::read(words) {
            Ok(read) => read,
            Err(word) => return Self::Misused { name, word },
        };
        match (name, pid, count, follow, exit_code) {
            (CommandName::GetClientState | CommandName::Events | CommandName::Metrics, ..) if wide => {
                Self::Misused { name, word: Some("--wide".to_owned()) }
            }
            (CommandName::GetFaultList, None, count, false, false) => Self::Faults { count, wide, json },
            (CommandName::GetClientState, Some(pid), None, false, false) => Self::Client { pid, json },
            (CommandName::GetChannelList, pid, None, false, false) => Self::Channels { pid, wide, json },
            (CommandName::Events, None, count, follow, false) => Self::Events { count, follow, json },
            (CommandName::Status, None, None, false, exit_code) => Self::Status { wide, json, exit_code },
            (CommandName::Vault, None, None, false, false) => Self::Vault { wide, json },
            (CommandName::Metrics, None, None, false, false) if !json => Self::Metrics,
            (name, ..) => Self::Misused { name, word: None },
        }
    }

    /// The command's name.
    #[must_use]
    pub const fn name(&self) -> CommandName {
        match self {
            Self::Faults { .. } => CommandName::GetFaultList,
            Self::Client { .. } => CommandName::GetClientState,
            Self::Channels { .. } => CommandName::GetChannelList,
            Self::Events { .. } => CommandName::Events,
            Self::Status { .. } => CommandName::Status,
            Self::Vault { .. } => CommandName::Vault,
            Self::Metrics => CommandName::Metrics,
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
mod tests {
    use super::super::{Command, Personality};
    use super::*;

    fn parse(line: &str) -> Report {
        let Command::Report(report) = Command::parse(line.as_bytes(), Personality::V580) else {
            panic!("{line} is none of ours");
        };
        report
    }

    #[test]
    fn options_come_in_any_order() {
        assert_eq!(parse("get_fault_list"), Report::Faults { count: None, wide: false, json: false });
        assert_eq!(parse("get_fault_list --json -n 3"), Report::Faults { count: Some(3), wide: false, json: true });
        assert_eq!(parse("get_fault_list -n3 --wide"), Report::Faults { count: Some(3), wide: true, json: false });
        assert_eq!(parse("get_client_state 42"), Report::Client { pid: 42, json: false });
        assert_eq!(parse("vault list"), Report::Vault { wide: false, json: false });
        assert_eq!(parse("vault list --json"), Report::Vault { wide: false, json: true });
        assert_eq!(parse("get_channel_list"), Report::Channels { pid: None, wide: false, json: false });
        assert_eq!(parse("get_channel_list --json 42"), Report::Channels { pid: Some(42), wide: false, json: true });
        assert_eq!(parse("events"), Report::Events { count: None, follow: false, json: false });
        assert_eq!(parse("events -n 5 --follow"), Report::Events { count: Some(5), follow: true, json: false });
        assert_eq!(parse("status --json\n\0"), Report::Status { wide: false, json: true, exit_code: false });
        assert_eq!(parse("status --exit-code"), Report::Status { wide: false, json: false, exit_code: true });
        assert_eq!(parse("metrics"), Report::Metrics);
    }

    #[test]
    fn what_cannot_be_understood_is_answered_with_the_usage() {
        for line in [
            "get_fault_list -n",
            "get_fault_list -n 0",
            "get_fault_list -n 1 -n 2",
            "get_fault_list -n x",
            "get_fault_list 7",
            "get_client_state",
            "get_client_state abc",
            "get_client_state -5",
            "get_client_state 99999999999",
            "get_client_state 1 2",
            "get_channel_list --follow",
            "events 7",
            "events --wide",
            "get_client_state 1 --wide",
            "status -n 1",
            "metrics --json",
            "events --exit-code",
            "metrics --wide",
            "vault",
            "vault --json",
            "vault lists",
            "vault list 7",
        ] {
            let Report::Misused { name, .. } = parse(line) else { panic!("{line} was understood") };
            assert_eq!(usage(name).split(' ').nth(1), line.split(' ').next(), "{line}");
        }
        assert_eq!(usage(CommandName::GetClientState), "Usage: get_client_state PID [--json]");
        assert_eq!(usage(CommandName::Metrics), "Usage: metrics");
    }

    #[test]
    fn the_word_that_is_not_understood_is_named() {
        let named = |line: &str| {
            let Report::Misused { word, .. } = parse(line) else { panic!("{line} was understood") };
            word
        };
        assert_eq!(named("status --jsn --json").as_deref(), Some("--jsn"));
        assert_eq!(named("get_fault_list -n x").as_deref(), Some("x"));
        assert_eq!(named("get_fault_list -nx").as_deref(), Some("-nx"));
        assert_eq!(named("get_client_state 1 2").as_deref(), Some("2"));
        assert_eq!(named("vault lists").as_deref(), Some("lists"));
        assert_eq!(named("get_fault_list -n"), None);
        assert_eq!(named("events 7"), None);
        assert_eq!(misused(CommandName::Metrics, Some("x")), ["metrics: x is not understood", "Usage: metrics"]);
        assert_eq!(misused(CommandName::Metrics, None), ["Usage: metrics"]);
        let long = format!("status {}\x1b", "x".repeat(1000));
        assert_eq!(named(&long).map(|word| word.chars().count()), Some(41));
        assert_eq!(named("status a\x1bb").as_deref(), Some("a\u{fffd}b"));
    }

    #[test]
    fn every_release_has_these_commands_and_no_other_word_changes() {
        for personality in Personality::ALL {
            for word in
                ["status", "metrics", "events", "get_fault_list", "get_channel_list", "get_client_state", "vault"]
            {
                assert!(matches!(Command::parse(word.as_bytes(), personality), Command::Report(_)), "{word}");
            }
            for word in ["Status", "server_status", "event", "metric", "get_fault", "get_channels"] {
                assert_eq!(Command::parse(word.as_bytes(), personality), Command::Unknown(word.to_owned()));
            }
        }
    }
}
