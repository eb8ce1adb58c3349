//! Commands that this program carries out itself instead of sending them to the daemon.
//!
//! They are recognised by the first word. None of them is a command or module of any release of the vendor's, so
//! nothing that a script sends today is taken away from the daemon. A further one is an entry of [`LOCAL_COMMANDS`]
//! and a variant of [`LocalCommand`]; its words are read in a file of its own.

mod explain;
mod run;
mod stop;
mod top;
mod words;

pub(crate) use explain::ExplainRequest;
pub(crate) use run::RunRequest;
pub(crate) use stop::{StopRequest, Whom};
pub(crate) use top::{TopForm, TopRequest};

use super::completions::Shell;
use remps_proto::admin::{Form, Output};
use std::ffi::{OsStr, OsString};
use words::{output, unknown};

/// What is to be done here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LocalCommand {
    /// Look for what is wrong with this machine's MPS.
    Doctor {
        /// How its findings are written.
        form: Form,
    },
    /// Tell all about one fault.
    Explain(ExplainRequest),
    /// Show domains, servers and clients on a screen.
    Top(TopRequest),
    /// Run a program whose state outlives it.
    Run(RunRequest),
    /// End clients so that nobody else is harmed.
    StopClient(StopRequest),
    /// Print what completes this program in a shell.
    Completions(Shell),
}

/// A command of this kind, for texts and for recognising it.
#[derive(Clone, Copy, Debug)]
pub struct LocalSpec {
    /// Its word.
    pub name: &'static str,
    /// What follows it.
    pub arguments: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Its options and what they do.
    pub options: &'static [(&'static str, &'static str)],
    parse: fn(&[OsString]) -> Result<LocalCommand, String>,
}

/// Options that commands have in common.
const FORM: (&str, &str) = ("-o table|wide|json", "For 80 columns, with all there is, or for programs.");
const UTC: (&str, &str) = ("--utc", "Times in UTC and not the local ones; JSON has them always so.");
const JSON: (&str, &str) = ("--json", "The same as -o json.");

/// Every one, in the order of the help text.
pub const LOCAL_COMMANDS: &[LocalSpec] = &[
    LocalSpec {
        name: "doctor",
        arguments: "[-o table|wide|json] [--utc] [--json]",
        help: "Look for what is wrong with MPS on this machine, and say what to do.",
        options: &[FORM, UTC, JSON],
        parse: parse_doctor,
    },
    LocalSpec {
        name: "explain",
        arguments: "FAULT [--svg FILE] [-o table|wide|json] [--utc] [--json]",
        help: "Tell all about one fault of the fault list, and what to do next.",
        options: &[("--svg FILE", "Draw its timeline into this file, too."), FORM, UTC, JSON],
        parse: explain::parse,
    },
    LocalSpec {
        name: "run",
        arguments: "[--name NAME] [--restart on-fault|never] [--limit N] [--standby] [--library PATH] -- COMMAND...",
        help: "Run a program whose GPU memory outlives it, and again when a fault ended it.",
        options: &[
            ("--name NAME", "Under which name the next one finds what this one had."),
            ("--restart WHEN", "on-fault: start it again when a fault has ended it (the default); never."),
            ("--limit N", "How often at most; 10 unless said otherwise."),
            ("--standby", "Wait, initialised, until the program of this name ends."),
            ("--library PATH", "The preload library, if it is not to be looked for."),
        ],
        parse: run::parse,
    },
    LocalSpec {
        name: "stop-client",
        arguments: "[-o table|wide|json] [--utc] [--json] [--timeout S] [--grace S] [--no-signal] PID...|--cgroup PATH|--all-of PID|self",
        help: "End clients without harm to others: terminate, then SIGTERM, then SIGKILL.",
        options: &[
            ("--cgroup PATH", "All clients in this cgroup and below it."),
            ("--all-of PID|self", "All clients in the pid namespace of this process, or of the caller."),
            ("--timeout S", "Seconds from SIGTERM to SIGKILL; 10 unless said otherwise."),
            ("--grace S", "Seconds that a program which handles SIGTERM has before its work is ended."),
            ("--no-signal", "End the work on the GPU and send no signal."),
            FORM,
            UTC,
            JSON,
        ],
        parse: stop::parse,
    },
    LocalSpec {
        name: "top",
        arguments: "[--once] [--json] [--interval SECONDS] [--utc]",
        help: "Show domains, servers and clients on a screen that follows them.",
        options: &[
            ("--once", "Print what there is now as text of 80 columns, and end; so without a terminal."),
            ("--json", "Print it as one object of JSON, and end."),
            ("--interval SECONDS", "Look again after so many seconds, 0.1 to 3600; 2 unless said otherwise."),
            UTC,
        ],
        parse: top::parse,
    },
    LocalSpec {
        name: "completions",
        arguments: "bash|zsh|fish",
        help: "Print what completes this program in a shell.",
        options: &[],
        parse: parse_completions,
    },
];

/// The command that these words are, or what is wrong with them; `None` when they are for the daemon.
pub(super) fn parse(words: &[OsString]) -> Option<Result<LocalCommand, String>> {
    let (first, rest) = words.split_first()?;
    let spec = LOCAL_COMMANDS.iter().find(|spec| first == OsStr::new(spec.name))?;
    let parsed = (spec.parse)(rest);
    Some(parsed.map_err(|what| format!("{name}: {what}\nUsage: {name} {}\n", spec.arguments, name = spec.name)))
}

fn parse_doctor(words: &[OsString]) -> Result<LocalCommand, String> {
    let (Output { form, .. }, others) = output(words)?;
    match others.as_slice() {
        [] => Ok(LocalCommand::Doctor { form }),
        [word, ..] => Err(unknown(word)),
    }
}

fn parse_completions(words: &[OsString]) -> Result<LocalCommand, String> {
    match words {
        [] => Err("names no shell".to_owned()),
        [word] => word.to_str().and_then(Shell::named).map(LocalCommand::Completions).ok_or_else(|| unknown(word)),
        [_, extra, ..] => Err(unknown(extra)),
    }
}
