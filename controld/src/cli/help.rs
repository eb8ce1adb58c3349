//! Help that needs no daemon: the whole text, one command, and what a word was perhaps meant to be.
//!
//! `help [COMMAND]` is answered here, and so is `--help` behind a command of ours. The vendor's commands take no such
//! option, and their releases answer `help` on standard input with an error, which stays so: what is printed for a
//! script is the vendor's to the byte.

use super::local::LOCAL_COMMANDS;
use super::options::OPTIONS;
use super::text;
use remps_proto::admin::{Command, CommandName, Personality};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

/// The program's name in synopses.
const PROGRAM: &str = "nvidia-cuda-mps-control";
/// The width of a terminal nobody has widened.
const WIDTH: usize = 80;

/// What the options of our commands to the daemon do.
pub(super) const REPORT_OPTIONS: &[(&str, &str)] = &[
    ("-o table|wide|json", "For 80 columns, with all there is, or for programs."),
    ("--utc", "Times in UTC and not the local ones; JSON has them always so."),
    ("--json", "The same as -o json."),
    ("--follow", "Go on with events as they come."),
    ("-n COUNT", "The latest so many."),
    ("--exit-code", "End with status 1 when clients can't be served."),
    ("--memory", "Ask the driver how much GPU memory each client has."),
    ("--wide", "The same as -o wide."),
    ("--format FORMAT", "table or csv; with ,noheader behind it without the names of the columns."),
    ("--server NAME", "Only what belongs to this server."),
    ("--all", "The clients of every server, as without it."),
    ("--user UID", "All clients of this user."),
    ("--server PID", "All clients of this server."),
    ("--wait SECONDS", "Answer when there is proof, or after so long."),
];

/// A text to print and whether it is an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Help {
    /// For standard output.
    Text(String),
    /// For standard error: there is no such command.
    Unknown(String),
}

/// The help that these words ask for, if they do.
pub(super) fn asked(words: &[OsString], personality: Personality) -> Option<Help> {
    let (first, rest) = words.split_first()?;
    if first == OsStr::new("help") {
        return Some(match rest.first() {
            None => Help::Text(whole(personality)),
            Some(topic) => of_command(&topic.to_string_lossy()),
        });
    }
    let name = first.to_str().filter(|name| is_ours(name))?;
    let asks = |word: &OsString| word == OsStr::new("--help") || word == OsStr::new("-h");
    let own = rest.iter().position(|word| word == OsStr::new("--")).map_or(rest, |end| &rest[..end]);
    own.iter().any(asks).then(|| of_command(name))
}

/// Whether no release of the vendor's has this command.
fn is_ours(name: &str) -> bool {
    LOCAL_COMMANDS.iter().any(|spec| spec.name == name) || reports().any(|report| report.spelling() == name)
}

/// The commands of ours that are sent to the daemon.
pub(super) fn reports() -> impl Iterator<Item = CommandName> {
    let is_report = |name: &CommandName| {
        matches!(Command::parse(name.spelling().as_bytes(), Personality::ALL[0]), Command::Report(_))
    };
    CommandName::ALL.iter().copied().filter(is_report)
}

fn of_command(name: &str) -> Help {
    let local = LOCAL_COMMANDS.iter().find(|spec| spec.name == name);
    let sent = CommandName::ALL.iter().find(|command| command.spelling() == name);
    let (arguments, help) = match (local, sent) {
        (Some(spec), _) => (spec.arguments, spec.help),
        (None, Some(command)) => (command.arguments(), command.help()),
        (None, None) => {
            let meant = nearest(name).map(|nearest| format!(", did you mean \"{nearest}\"?")).unwrap_or_default();
            return Help::Unknown(format!("help: there is no command \"{name}\"{meant}\n"));
        }
    };
    let mut text = String::new();
    synopsis(&mut text, "Usage: ", &format!("{PROGRAM} {name}"), arguments);
    text.push('\n');
    wrapped(&mut text, "", 0, help);
    let options = local.map_or(REPORT_OPTIONS, |spec| spec.options);
    let taken = options.iter().filter(|(option, _)| local.is_some() || takes(arguments, option)).collect::<Vec<_>>();
    if !taken.is_empty() {
        text.push_str("\nOptions:\n");
    }
    for (option, help) in taken {
        explained(&mut text, option, help);
    }
    if name == "doctor" {
        text.push_str("\nWhat it looks at:\n");
        for (check, about) in super::CHECKS {
            explained(&mut text, check, about);
        }
    }
    if sent.is_some() {
        writeln!(text, "\nOr on standard input: echo COMMAND | {PROGRAM}").expect("a String takes every text");
    }
    Help::Text(text)
}

/// Whether an option is among the arguments of a synopsis.
pub(super) fn takes(arguments: &str, option: &str) -> bool {
    let is_alone = arguments.contains(&format!("[{option}]"));
    is_alone || arguments.split(['[', ']', '|']).any(|argument| argument.trim() == option)
}

/// An option, and what it does in a column beside it.
fn explained(text: &mut String, option: &str, help: &str) {
    const COLUMN: usize = 28;
    wrapped(text, &format!("  {option:<width$}", width = COLUMN - 2), COLUMN, help);
}

/// Words behind the beginning of a line, and on further lines that begin with so many blanks.
fn wrapped(text: &mut String, begin: &str, indent: usize, words: &str) {
    let mut line = begin.to_owned();
    for word in words.split(' ') {
        if line.len() + word.len() > WIDTH {
            writeln!(text, "{}", line.trim_end()).expect("a String takes every text");
            line = " ".repeat(indent);
        }
        line.push_str(word);
        line.push(' ');
    }
    writeln!(text, "{}", line.trim_end()).expect("a String takes every text");
}

/// A command with its arguments, on as many lines as it needs. What stands in brackets stays on one line.
fn synopsis(text: &mut String, before: &str, name: &str, arguments: &str) {
    const DEEPER: usize = 4;
    let indent = before.len() + DEEPER;
    let mut line = format!("{before}{name}");
    for group in groups(arguments) {
        if line.len() + 1 + group.len() > WIDTH {
            writeln!(text, "{line}").expect("a String takes every text");
            line = " ".repeat(indent - 1);
        }
        line.push(' ');
        line.push_str(group);
    }
    writeln!(text, "{line}").expect("a String takes every text");
}

/// The words of a synopsis, those in one pair of brackets together.
fn groups(arguments: &str) -> Vec<&str> {
    let mut groups = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in arguments.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => {
                groups.push(&arguments[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    groups.push(&arguments[start..]);
    groups.retain(|group| !group.is_empty());
    groups
}

/// The whole help text; also what 555 answers to an option it does not know.
pub(crate) fn whole(personality: Personality) -> String {
    let mut text = format!(
        "{}\n{}\n\n  Lets CUDA programs share a GPU through the Multi-Process Service. Without\n  options, commands are \
         read from standard input and sent to the daemon.\n\n  {PROGRAM} [options] [command]\n  {PROGRAM} help \
         COMMAND\n\nOPTIONS:\n",
        text::title(personality),
        text::WHO,
    );
    for spec in OPTIONS.iter().filter(|spec| spec.since <= personality) {
        let letter = spec.letters.first().map(|letter| format!("-{letter}"));
        let word = spec.words.first().map(|word| (*word).to_owned());
        let spelling = letter.into_iter().chain(word).collect::<Vec<_>>().join(",");
        explained(&mut text, &spelling, spec.help);
    }
    let ours: Vec<CommandName> = reports().collect();
    text.push_str("\nCOMMANDS OF REMPS, WITHOUT THE DAEMON:\n");
    for spec in LOCAL_COMMANDS {
        listed(&mut text, spec.name, spec.arguments, spec.help);
    }
    text.push_str("\nCOMMANDS OF REMPS:\n");
    for name in &ours {
        listed(&mut text, name.spelling(), name.arguments(), name.help());
    }
    text.push_str("\nCOMMANDS, AS NVIDIA'S:\n");
    for name in CommandName::ALL.iter().filter(|name| personality.knows(**name) && !ours.contains(name)) {
        listed(&mut text, name.spelling(), name.arguments(), name.help());
    }
    text.push_str("\nSee nvidia-cuda-mps-control(1).\n\n");
    text
}

fn listed(text: &mut String, name: &str, arguments: &str, help: &str) {
    const DEEPER: usize = 6;
    synopsis(text, "  ", name, arguments);
    wrapped(text, &" ".repeat(DEEPER), DEEPER, help);
}

/// What to tell somebody on standard error whose command nobody knows: what it was perhaps meant to be.
pub(crate) fn hint(line: &[u8]) -> Option<String> {
    let Command::Unknown(word) = Command::parse(line, *Personality::ALL.last()?) else {
        return None;
    };
    if word == "help" || word == "?" {
        return Some(format!("See \"{PROGRAM} help\""));
    }
    if LOCAL_COMMANDS.iter().any(|spec| spec.name == word) {
        return Some(format!("\"{word}\" is no command of the daemon's: {PROGRAM} {word}"));
    }
    nearest(&word).map(|nearest| format!("Did you mean \"{nearest}\"?"))
}

/// The command that a word is nearest to, if it is near any.
fn nearest(word: &str) -> Option<&'static str> {
    let sent = CommandName::ALL.iter().map(|name| name.spelling());
    let all: Vec<&'static str> = sent.chain(LOCAL_COMMANDS.iter().map(|spec| spec.name)).collect();
    crate::nearest::nearest(&word.to_ascii_lowercase(), &all).first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &str) -> String {
        match asked(&words.split(' ').map(OsString::from).collect::<Vec<_>>(), Personality::V580) {
            Some(Help::Text(text)) => text,
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn every_command_has_its_help_in_80_columns() {
        let names = CommandName::ALL.iter().map(|name| name.spelling());
        for name in names.chain(LOCAL_COMMANDS.iter().map(|spec| spec.name)) {
            let text = text(&format!("help {name}"));
            assert!(text.starts_with(&format!("Usage: {PROGRAM} {name}")), "{text}");
            let long = text.lines().filter(|line| line.chars().count() > WIDTH).collect::<Vec<_>>();
            assert!(long.is_empty(), "{long:?}");
        }
        for personality in Personality::ALL {
            let text = whole(personality);
            let long = text.lines().filter(|line| line.chars().count() > WIDTH).collect::<Vec<_>>();
            assert!(long.is_empty(), "{long:?}");
        }
    }

    #[test]
    fn help_behind_a_command_of_ours_is_that_commands() {
        assert_eq!(text("help"), whole(Personality::V580));
        for (asked, same) in [
            ("status --help", "help status"),
            ("run --name x -h", "help run"),
            ("stop-client -h", "help stop-client"),
            ("doctor --json --help", "help doctor"),
        ] {
            assert_eq!(text(asked), text(same), "{asked}");
        }
        assert!(text("help status").contains("--exit-code"));
        assert!(!text("help events").contains("--exit-code"));
        assert!(text("help at-rest").contains("--server PID") && !text("help at-rest").contains("--server NAME"));
        assert!(text("help run").contains("--standby"));
        for other in ["ps --help", "status", "run -- serve --help", "--help"] {
            let words: Vec<OsString> = other.split(' ').map(OsString::from).collect();
            assert_eq!(asked(&words, Personality::V580), None, "{other}");
        }
    }

    #[test]
    fn what_a_word_was_meant_to_be_is_said_when_it_is_near_one() {
        for (word, meant) in [
            ("staus", "status"),
            ("get_fault_lst", "get_fault_list"),
            ("QUIT", "quit"),
            ("quti", "quit"),
            ("get_server_lists", "get_server_list"),
        ] {
            assert_eq!(hint(word.as_bytes()), Some(format!("Did you mean \"{meant}\"?")), "{word}");
        }
        for word in ["", "x", "nonsense", "lspart", "status", "get_server_list"] {
            assert_eq!(hint(word.as_bytes()), None, "{word}");
        }
        assert!(hint(b"help\n").is_some_and(|hint| hint.contains("help")));
        assert!(hint(b"doctor\n\0").is_some_and(|hint| hint.contains("nvidia-cuda-mps-control doctor")));
        let unknown = asked(&["help".into(), "staus".into()], Personality::V580);
        let said = "help: there is no command \"staus\", did you mean \"status\"?\n";
        assert_eq!(unknown, Some(Help::Unknown(said.to_owned())));
    }
}
