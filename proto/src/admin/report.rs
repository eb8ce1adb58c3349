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
mod tests {
    use super::super::{Command, Form, Personality};
    use super::*;

    fn parse(line: &str) -> Report {
        let Command::Report(report) = Command::parse(line.as_bytes(), Personality::V580) else {
            panic!("{line} is none of ours");
        };
        report
    }

    const TABLE: Output = Output { form: Form::Table, utc: false };
    const WIDE: Output = Output { form: Form::Wide, utc: false };
    const JSON: Output = Output { form: Form::Json, utc: false };

    #[test]
    fn options_come_in_any_order() {
        assert_eq!(parse("get_fault_list"), Report::Faults { count: None, output: TABLE });
        assert_eq!(parse("get_fault_list --json -n 3"), Report::Faults { count: Some(3), output: JSON });
        assert_eq!(parse("get_fault_list -n3 --wide"), Report::Faults { count: Some(3), output: WIDE });
        assert_eq!(parse("get_client_state 42"), Report::Client { pid: 42, output: TABLE });
        assert_eq!(parse("vault list"), Report::Vault { output: TABLE });
        assert_eq!(parse("vault list --json"), Report::Vault { output: JSON });
        assert_eq!(parse("get_channel_list"), Report::Channels { pid: None, output: TABLE });
        assert_eq!(parse("get_channel_list --json 42"), Report::Channels { pid: Some(42), output: JSON });
        assert_eq!(parse("events"), Report::Events { count: None, follow: false, output: TABLE });
        assert_eq!(parse("events -n 5 --follow"), Report::Events { count: Some(5), follow: true, output: TABLE });
        assert_eq!(parse("status --json\n\0"), Report::Status { output: JSON, exit_code: false, memory: false });
        assert_eq!(parse("status --exit-code"), Report::Status { output: TABLE, exit_code: true, memory: false });
        assert_eq!(parse("status --memory --json"), Report::Status { output: JSON, exit_code: false, memory: true });
        assert_eq!(parse("metrics"), Report::Metrics { output: None });
    }

    #[test]
    fn every_command_takes_the_three_forms_and_utc() {
        for command in [
            "status",
            "get_fault_list",
            "get_fault_events 1",
            "get_client_state 1",
            "get_channel_list",
            "events",
            "vault list",
            "at-rest 1",
            "metrics",
        ] {
            let output = |options: &str| match parse(&format!("{command} {options}")) {
                Report::Faults { output, .. }
                | Report::FaultEvents { output, .. }
                | Report::Client { output, .. }
                | Report::Channels { output, .. }
                | Report::Events { output, .. }
                | Report::Status { output, .. }
                | Report::Vault { output }
                | Report::AtRest(RestQuery { output, .. })
                | Report::Metrics { output: Some(output) } => output,
                other @ (Report::Metrics { .. } | Report::Module(_) | Report::Misused { .. }) => {
                    panic!("{command} {options}: {other:?}")
                }
            };
            assert_eq!(output("-o table"), TABLE);
            assert_eq!(output("-o wide"), WIDE);
            assert_eq!(output("-ojson"), JSON);
            assert_eq!(output("--utc"), Output { utc: true, ..TABLE });
            assert_eq!(output("--utc -o wide"), Output { utc: true, ..WIDE });
        }
        assert_eq!(parse("status -o json --json"), parse("status --json"));
        assert_eq!(parse("status --wide --json"), parse("status --json"));
    }

    #[test]
    fn what_cannot_be_understood_is_answered_with_the_usage() {
        for line in [
            "get_fault_list -n",
            "get_fault_list -n 0",
            "get_fault_list -n 1 -n 2",
            "get_fault_list -n x",
            "get_fault_list 7",
            "get_fault_events",
            "get_fault_events 1 2",
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
            "events --memory",
            "metrics --wide",
            "vault",
            "vault --json",
            "vault lists",
            "vault list 7",
            "status -o",
            "status -o yaml",
            "status -o json -o json",
            "status -o table --json",
            "status -o json --wide",
            "status -oJSON",
            "server list -o json",
        ] {
            let Report::Misused { name, .. } = parse(line) else { panic!("{line} was understood") };
            assert_eq!(usage(name).split(' ').nth(1), line.split(' ').next(), "{line}");
        }
        assert_eq!(
            usage(CommandName::GetClientState),
            "Usage: get_client_state PID [-o table|wide|json] [--utc] [--json]"
        );
        assert_eq!(usage(CommandName::Metrics), "Usage: metrics [-o table|wide|json] [--utc]");
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
        assert_eq!(named("status -o yaml").as_deref(), Some("-o yaml"));
        assert_eq!(named("status -oyaml").as_deref(), Some("-o yaml"));
        const USAGE: &str = "Usage: metrics [-o table|wide|json] [--utc]";
        assert_eq!(misused(CommandName::Metrics, Some("x")), ["metrics: x is not understood", USAGE]);
        assert_eq!(misused(CommandName::Metrics, None), [USAGE]);
        let long = format!("status {}\x1b", "x".repeat(1000));
        assert_eq!(named(&long).map(|word| word.chars().count()), Some(41));
        assert_eq!(named("status a\x1bb").as_deref(), Some("a\u{fffd}b"));
    }

    #[test]
    fn every_release_has_these_commands_and_no_other_word_changes() {
        for personality in Personality::ALL {
            for word in [
                "status",
                "metrics",
                "events",
                "get_fault_list",
                "get_channel_list",
                "get_client_state",
                "vault",
                "at-rest",
            ] {
                assert!(matches!(Command::parse(word.as_bytes(), personality), Command::Report(_)), "{word}");
            }
            for word in ["Status", "server_status", "event", "metric", "get_fault", "get_channels"] {
                assert_eq!(Command::parse(word.as_bytes(), personality), Command::Unknown(word.to_owned()));
            }
        }
    }
}
