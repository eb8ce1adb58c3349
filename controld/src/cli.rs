//! The command line: which program this call is, in every spelling that a release of the vendor's has ever had.
//!
//! Measured on 535 to 595, see the module [`text`] for what is printed. More is accepted than any one release accepts:
//! every option in every order and, as 595 alone does, a command as arguments, joined with blanks and sent as one.

mod checks;
pub(crate) mod completions;
pub(crate) mod help;
pub(crate) mod local;
pub(crate) mod options;
pub(crate) mod protocol;
pub(crate) mod text;

pub(crate) use checks::CHECKS;
pub use local::LOCAL_COMMANDS;
pub(crate) use local::{ExplainRequest, LocalCommand, RunRequest, StopRequest, TopForm, TopRequest, Whom};
pub(crate) use options::Flag;
pub use options::OPTIONS;
pub(crate) use protocol::Protocol;

use remps_proto::admin::Personality;
use remps_proto::admin::personality::UnknownOption;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What a call of the program asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Invocation {
    /// To be the daemon.
    Daemon(DaemonOptions),
    /// To read commands from standard input and send them to the daemon.
    Ui,
    /// To send this one command.
    Command(Vec<u8>),
    /// To carry out a command that the daemon has no part in.
    Local(LocalCommand),
    /// To check the configuration file, or this one.
    CheckConfig(Option<PathBuf>),
    /// To print something and end.
    Print(Print),
}

/// How to be the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DaemonOptions {
    /// Stay in the foreground, with all log lines on standard output.
    pub foreground: bool,
    /// One server, run by root, for all users.
    pub multiuser: bool,
    /// Ask for the devices at the start and not at the first `device_query`.
    pub ready_devices: bool,
    /// Clients must name a static SM partition.
    pub static_partitioning: bool,
    /// The interface that is expected; `None` without the option.
    pub protocol: Option<Protocol>,
    /// The file of servers that it is to have.
    pub servers: Option<PathBuf>,
    /// The daemon that it is to join, and be a thin one.
    pub join: Option<PathBuf>,
    /// As which server.
    pub join_name: Option<String>,
}

/// Texts for the two outputs and the exit status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Print {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// Exit status.
    pub status: u8,
}

impl DaemonOptions {
    /// Whether this user may start such a daemon; the text to print and the status to exit with, if not.
    ///
    /// # Errors
    /// When somebody other than root wants to serve all users.
    pub(crate) fn check_user(&self, euid: u32) -> Result<(), Print> {
        const ROOT: u32 = 0;
        if self.multiuser && euid != ROOT {
            let stdout = format!("{}\n", text::ONLY_ROOT_MULTIUSER);
            return Err(Print { stdout, stderr: String::new(), status: text::FAILURE });
        }
        Ok(())
    }
}

/// Reads the arguments, without the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>, personality: Personality) -> Invocation {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut flags = Vec::new();
    let mut values = Values::default();
    let mut rest = arguments.as_slice();
    while let Some((argument, tail)) = rest.split_first() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            rest = tail;
            break;
        }
        if bytes.len() < 2 || bytes[0] != b'-' {
            break;
        }
        rest = tail;
        let (mut known, value) = match argument.to_str().and_then(protocol::with_value) {
            Some((known, value)) => (known, Some(value.to_owned())),
            None => match argument.to_str().and_then(options::flags_of) {
                Some(known) => (known, None),
                None => return unknown_option(&argument.to_string_lossy(), personality),
            },
        };
        let takes_value = known.last().copied().filter(|flag| flag.takes_value());
        if let Some(flag) = takes_value {
            let value = value.map(OsString::from).unwrap_or_else(|| {
                let (value, behind) = rest.split_first().map_or((None, rest), |(value, tail)| (Some(value), tail));
                rest = behind;
                value.cloned().unwrap_or_default()
            });
            if let Err(error) = values.take(flag, value) {
                return usage(format!("{error}\n"));
            }
        }
        flags.append(&mut known);
    }
    interpret(&flags, values, rest, personality)
}

/// The values of options.
#[derive(Default)]
struct Values {
    protocol: Option<Protocol>,
    servers: Option<PathBuf>,
    join: Option<PathBuf>,
    join_name: Option<String>,
}

impl Values {
    fn take(&mut self, flag: Flag, value: OsString) -> Result<(), String> {
        match flag {
            Flag::Apply if value.is_empty() => return Err("--apply: which file?".to_owned()),
            Flag::Join if value.is_empty() => return Err("--join: which daemon's pipe directory?".to_owned()),
            Flag::JoinName if value.is_empty() => return Err("--join-name: which name?".to_owned()),
            Flag::Apply => self.servers = Some(PathBuf::from(value)),
            Flag::Join => self.join = Some(PathBuf::from(value)),
            Flag::JoinName => self.join_name = Some(value.to_string_lossy().into_owned()),
            Flag::Protocol => {
                let protocol = Protocol::of_option(&value.to_string_lossy()).map_err(|error| error.to_string())?;
                self.protocol = Some(protocol);
            }
            Flag::Daemon
            | Flag::Foreground
            | Flag::Help
            | Flag::Version
            | Flag::Multiuser
            | Flag::StaticPartitioning
            | Flag::ReadyDevices
            | Flag::Quit
            | Flag::QuitOrReadyDevices
            | Flag::CheckConfig => {}
        }
        Ok(())
    }

    /// What is wrong with them together.
    fn fault(&self, is_daemon: bool, is_multiuser: bool) -> Option<&'static str> {
        if self.join_name.is_some() && self.join.is_none() {
            return Some("--join-name: with --join only");
        }
        if !is_daemon && self.join.is_some() {
            return Some("--join: with -d or -f only");
        }
        if !is_daemon && self.servers.is_some() {
            return Some("--apply: a file of servers is read when the daemon starts, with -d or -f");
        }
        let is_both = self.join.is_some() && (self.servers.is_some() || is_multiuser);
        is_both.then_some("--join: whose servers there are, the daemon that is joined decides")
    }
}

fn interpret(flags: &[Flag], values: Values, words: &[OsString], personality: Personality) -> Invocation {
    let has = |flag: Flag| flags.contains(&flag);
    if has(Flag::Help) {
        return print(help::whole(personality));
    }
    if has(Flag::Version) {
        return print(text::version(personality));
    }
    if has(Flag::CheckConfig) {
        return match words {
            [] => Invocation::CheckConfig(None),
            [file] => Invocation::CheckConfig(Some(PathBuf::from(file))),
            [_, extra, ..] => usage(format!("--check-config takes one file, not {} too\n", extra.to_string_lossy())),
        };
    }
    let daemon = DaemonOptions {
        foreground: has(Flag::Foreground),
        multiuser: has(Flag::Multiuser),
        ready_devices: has(Flag::QuitOrReadyDevices) || has(Flag::ReadyDevices),
        static_partitioning: has(Flag::StaticPartitioning),
        protocol: values.protocol,
        servers: values.servers.clone(),
        join: values.join.clone(),
        join_name: values.join_name.clone(),
    };
    // The documentation starts a daemon with `-S` and nothing else; `-M` makes no more sense without one.
    let is_daemon = has(Flag::Daemon) || daemon.foreground || daemon.multiuser || daemon.static_partitioning;
    if let Some(fault) = values.fault(is_daemon, daemon.multiuser) {
        return usage(format!("{fault}\n"));
    }
    if is_daemon {
        return Invocation::Daemon(daemon);
    }
    match help::asked(words, personality) {
        Some(help::Help::Text(text)) => return print(text),
        Some(help::Help::Unknown(text)) => return usage(text),
        None => {}
    }
    match local::parse(words) {
        Some(Ok(command)) => return Invocation::Local(command),
        Some(Err(text)) => return usage(text),
        None => {}
    }
    if !words.is_empty() {
        return Invocation::Command(words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&b' '));
    }
    if has(Flag::Quit) || has(Flag::QuitOrReadyDevices) {
        return Invocation::Command(b"quit".to_vec());
    }
    Invocation::Ui
}

fn print(stdout: String) -> Invocation {
    Invocation::Print(Print { stdout, stderr: String::new(), status: text::SUCCESS })
}

fn usage(stderr: String) -> Invocation {
    Invocation::Print(Print { stdout: String::new(), stderr, status: text::USAGE })
}

fn unknown_option(option: &str, personality: Personality) -> Invocation {
    match personality.unknown_option() {
        UnknownOption::StartsUi => Invocation::Ui,
        UnknownOption::Usage => {
            Invocation::Print(Print { stdout: help::whole(personality), stderr: String::new(), status: text::FAILURE })
        }
        UnknownOption::Help => Invocation::Print(Print {
            stdout: format!("{}\n{}", text::UNRECOGNIZED_OPTION, help::whole(personality)),
            // Standard output names no option and the status is 0, so the reason goes where people look for it.
            stderr: format!("{}{option}\n", text::UNRECOGNIZED_OPTION),
            status: text::SUCCESS,
        }),
    }
}

#[cfg(test)]
mod tests;
