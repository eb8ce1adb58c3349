//! Completions for shells, made from the tables of options and commands: a new entry of a table is completed without a
//! line here.
//!
//! | part | does |
//! |---|---|
//! | this file | what can stand where: options, commands, their options and operands |
//! | `synopsis` | reads the arguments of a command as help texts show them |
//! | `bash`, `zsh`, `fish` | the same as a script of one shell |
//!
//! The texts name every command, whichever release is played: they are made once, when a package is.

mod bash;
mod fish;
mod synopsis;
mod zsh;

use super::help::{REPORT_OPTIONS, reports, takes};
use super::local::LOCAL_COMMANDS;
use super::options::{Flag, OPTIONS};
use remps_proto::admin::CommandName;

/// The program that is completed.
const PROGRAM: &str = "nvidia-cuda-mps-control";

/// A shell that completions are made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shell {
    /// GNU bash, 4 or later; it needs no `bash-completion`.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
}

impl Shell {
    /// The shell of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "bash" => Some(Self::Bash),
            "zsh" => Some(Self::Zsh),
            "fish" => Some(Self::Fish),
            _ => None,
        }
    }

    /// The script that its completion is.
    pub(crate) fn completions(self) -> String {
        let topics = topics();
        match self {
            Self::Bash => bash::script(&topics),
            Self::Zsh => zsh::script(&topics),
            Self::Fish => fish::script(&topics),
        }
    }
}

/// What a word can be.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    /// Something that no shell can know.
    Text,
    /// One of these words.
    OneOf(Vec<&'static str>),
    /// A file.
    File,
    /// A folder.
    Folder,
    /// The pid of a server.
    Servers,
    /// The pid of a client.
    Clients,
    /// A command of this program.
    Topics,
    /// A program with its arguments.
    Program,
}

/// An option and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Choice {
    name: &'static str,
    value: Option<Value>,
    /// Empty where no table says what it does.
    help: &'static str,
}

/// A command, and what can follow it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Topic {
    name: &'static str,
    help: &'static str,
    options: Vec<Choice>,
    operands: Vec<Value>,
    /// Whether the last operand can be there more than once.
    repeats: bool,
}

/// What follows an option without a command.
fn value_of(flag: Flag) -> Option<Value> {
    match flag {
        Flag::CheckConfig | Flag::Apply | Flag::Join => Some(Value::File),
        Flag::Protocol => Some(Value::OneOf(vec!["2", "3"])),
        Flag::Daemon
        | Flag::Foreground
        | Flag::Help
        | Flag::Version
        | Flag::Multiuser
        | Flag::StaticPartitioning
        | Flag::ReadyDevices
        | Flag::Quit
        | Flag::JoinName
        | Flag::QuitOrReadyDevices => None,
    }
}

/// The options without a command, each spelling as one.
fn options() -> impl Iterator<Item = (String, &'static str, Option<Value>)> {
    OPTIONS.iter().flat_map(|spec| {
        let letters = spec.letters.iter().map(|letter| format!("-{letter}"));
        let value = value_of(spec.flag);
        let spellings = letters.chain(spec.words.iter().map(|word| (*word).to_owned()));
        spellings.map(move |spelling| (spelling, spec.help, value.clone()))
    })
}

/// Every command: those without the daemon, those of ours, the vendor's.
fn topics() -> Vec<Topic> {
    let ours: Vec<CommandName> = reports().collect();
    let help_of = |options: &'static [(&'static str, &'static str)], name: &str| {
        options.iter().find(|(option, _)| option.split(' ').next() == Some(name)).map_or("", |(_, help)| *help)
    };
    let mut topics = vec![Topic {
        name: "help",
        help: "Show all options and commands, or what one command takes.",
        options: Vec::new(),
        operands: vec![Value::Topics],
        repeats: false,
    }];
    for spec in LOCAL_COMMANDS {
        let mut topic = synopsis::read(spec.name, spec.help, spec.arguments, true);
        topic.options.iter_mut().for_each(|choice| choice.help = help_of(spec.options, choice.name));
        topics.push(topic);
    }
    let vendors = CommandName::ALL.iter().filter(|name| !ours.contains(name));
    for name in ours.iter().chain(vendors) {
        let is_ours = ours.contains(name);
        let mut topic = synopsis::read(name.spelling(), name.help(), name.arguments(), is_ours);
        for choice in topic.options.iter_mut().filter(|_| is_ours) {
            let is_it = |option: &str| option.split(' ').next() == Some(choice.name) && takes(name.arguments(), option);
            if let Some((_, help)) = REPORT_OPTIONS.iter().find(|(option, _)| is_it(option)) {
                choice.help = help;
            }
        }
        topics.push(topic);
    }
    topics
}

#[cfg(test)]
mod tests;
