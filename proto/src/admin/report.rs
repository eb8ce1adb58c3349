//! The grammar of ReMPS's own commands, which tell what the daemon knows. No release of the vendor has one of these
//! words, so nothing that the vendor answers changes.
//!
//! They are read strictly, unlike the vendor's: what can't be understood is answered with a line of usage and never
//! taken for something else.

use super::command::CommandName;
use super::number::strtol;

/// One of ReMPS's own commands with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Report {
    /// `get_fault_list [-n COUNT] [--json]`
    Faults {
        /// The newest so many; `None` for all that are remembered.
        count: Option<u32>,
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
    /// `get_channel_list [PID] [--json]`
    Channels {
        /// One client's process; `None` for all clients.
        pid: Option<u32>,
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
    /// `status [--json]`
    Status {
        /// One JSON object in place of text.
        json: bool,
    },
    /// `vault list [--json]`
    Vault {
        /// One JSON object a line in place of a table.
        json: bool,
    },
    /// `metrics`
    Metrics,
    /// One of these with arguments that it does not take.
    Misused(CommandName),
}

/// The words after a command.
#[derive(Debug, Default)]
struct Words {
    pid: Option<u32>,
    count: Option<u32>,
    follow: bool,
    json: bool,
}

impl Words {
    /// Reads all words; `None` when one is not known, has no sense, or comes twice where it may come once.
    fn read<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut read = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            match word {
                b"--json" => read.json = true,
                b"--follow" => read.follow = true,
                b"-n" => set(&mut read.count, number(words.next()?)?)?,
                _ => match word.strip_prefix(b"-n") {
                    Some(rest) => set(&mut read.count, number(rest)?)?,
                    None => set(&mut read.pid, number(word)?)?,
                },
            }
        }
        Some(read)
    }
}

fn set(place: &mut Option<u32>, value: u32) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// A whole decimal number from 1.
fn number(word: &[u8]) -> Option<u32> {
    let whole = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let value = strtol(word).filter(|_| whole)?;
    u32::try_from(value).ok().filter(|value| *value > 0)
}

impl Report {
    /// Reads the words after the name of one of ReMPS's own commands. A name of the vendor's takes no words here.
    #[must_use]
    pub fn parse<'a>(name: CommandName, words: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut words = words;
        if name == CommandName::Vault && words.next() != Some(b"list".as_slice()) {
            return Self::Misused(name);
        }
        let Some(Words { pid, count, follow, json }) = Words::read(words) else {
            return Self::Misused(name);
        };
        match (name, pid, count, follow) {
            (CommandName::GetFaultList, None, count, false) => Self::Faults { count, json },
            (CommandName::GetClientState, Some(pid), None, false) => Self::Client { pid, json },
            (CommandName::GetChannelList, pid, None, false) => Self::Channels { pid, json },
            (CommandName::Events, None, count, follow) => Self::Events { count, follow, json },
            (CommandName::Status, None, None, false) => Self::Status { json },
            (CommandName::Vault, None, None, false) => Self::Vault { json },
            (CommandName::Metrics, None, None, false) if !json => Self::Metrics,
            (name, ..) => Self::Misused(name),
        }
    }

    /// The command's name.
    #[must_use]
    pub const fn name(self) -> CommandName {
        match self {
            Self::Faults { .. } => CommandName::GetFaultList,
            Self::Client { .. } => CommandName::GetClientState,
            Self::Channels { .. } => CommandName::GetChannelList,
            Self::Events { .. } => CommandName::Events,
            Self::Status { .. } => CommandName::Status,
            Self::Vault { .. } => CommandName::Vault,
            Self::Metrics => CommandName::Metrics,
            Self::Misused(name) => name,
        }
    }
}

/// The answer to arguments that a command of ReMPS's own does not take.
#[must_use]
pub fn usage(name: CommandName) -> String {
    format!("Usage: {name} {}", name.arguments()).trim_end().to_owned()
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
        assert_eq!(parse("get_fault_list"), Report::Faults { count: None, json: false });
        assert_eq!(parse("get_fault_list --json -n 3"), Report::Faults { count: Some(3), json: true });
        assert_eq!(parse("get_fault_list -n3"), Report::Faults { count: Some(3), json: false });
        assert_eq!(parse("get_client_state 42"), Report::Client { pid: 42, json: false });
        assert_eq!(parse("vault list"), Report::Vault { json: false });
        assert_eq!(parse("vault list --json"), Report::Vault { json: true });
        assert_eq!(parse("get_channel_list"), Report::Channels { pid: None, json: false });
        assert_eq!(parse("get_channel_list --json 42"), Report::Channels { pid: Some(42), json: true });
        assert_eq!(parse("events"), Report::Events { count: None, follow: false, json: false });
        assert_eq!(parse("events -n 5 --follow"), Report::Events { count: Some(5), follow: true, json: false });
        assert_eq!(parse("status --json\n\0"), Report::Status { json: true });
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
            "status -n 1",
            "metrics --json",
            "vault",
            "vault --json",
            "vault lists",
            "vault list 7",
        ] {
            let Report::Misused(name) = parse(line) else { panic!("{line} was understood") };
            assert_eq!(usage(name).split(' ').nth(1), line.split(' ').next(), "{line}");
        }
        assert_eq!(usage(CommandName::GetClientState), "Usage: get_client_state PID [--json]");
        assert_eq!(usage(CommandName::Metrics), "Usage: metrics");
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
