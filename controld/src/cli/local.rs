//! Commands that this program carries out itself instead of sending them to the daemon.
//!
//! They are recognised by the first word. None of them is a command or module of any release of the vendor's, so
//! nothing that a script sends today is taken away from the daemon. A further one is an entry of [`LOCAL_COMMANDS`]
//! and a variant of [`LocalCommand`].

use super::completions::Shell;
use remps_proto::admin::{Form, Output};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// How long a process may take to end after SIGTERM, unless the call says otherwise.
pub(crate) const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Which fault to explain, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExplainRequest {
    /// Its number in the fault list.
    pub fault: u64,
    /// The file for the picture of its timeline.
    pub svg: Option<PathBuf>,
    /// How the page is written.
    pub output: Output,
}

/// How often `top` looks, unless the call says otherwise.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest interval: each look is work for the daemon.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);

/// What `top` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TopForm {
    /// A screen that follows what there is; once as text where there is no terminal.
    Screen,
    /// What there is now, as text.
    Once,
    /// The same as JSON.
    Json,
}

/// How to show what there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TopRequest {
    pub form: TopForm,
    /// Between two looks.
    pub interval: Duration,
    /// Whether times are in UTC and not the local ones.
    pub utc: bool,
}

/// What to run, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunRequest {
    /// Under which name a successor finds what the program has; without one nothing outlives it.
    pub name: Option<String>,
    /// Whether it is started again when a fault has ended it.
    pub restart: bool,
    /// Whether it waits for the end of another one of its name.
    pub standby: bool,
    /// How often it is started again.
    pub limit: u32,
    /// The preload library, if it is not to be looked for.
    pub library: Option<PathBuf>,
    /// The program and its arguments; not empty.
    pub command: Vec<OsString>,
}

/// How often a program is started again, unless the call says otherwise.
pub(crate) const DEFAULT_RESTARTS: u32 = 10;

/// Whom to stop, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StopRequest {
    pub whom: Whom,
    /// How long a process may take to end after SIGTERM before it gets SIGKILL.
    pub timeout: Duration,
    /// How long a process that handles SIGTERM may take to end by itself before its work is terminated.
    pub grace: Duration,
    /// Whether to send signals at all, and not only end the work on the GPU.
    pub signals: bool,
    /// How it is told what was done.
    pub form: Form,
}

/// Which processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    /// These, clients or not.
    Pids(Vec<u32>),
    /// The clients in a cgroup and below it.
    Cgroup(PathBuf),
    /// The clients in the pid namespace of this process; `None` is the caller's own.
    NamespaceOf(Option<u32>),
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
        parse: parse_explain,
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
        parse: parse_run,
    },
    LocalSpec {
        name: "stop-client",
        arguments: "[-o table|wide|json] [--utc] [--timeout S] [--grace S] [--no-signal] PID...|--cgroup PATH|--all-of PID|self",
        help: "End clients without harm to others: terminate, then SIGTERM, then SIGKILL.",
        options: &[
            ("--cgroup PATH", "All clients in this cgroup and below it."),
            ("--all-of PID|self", "All clients in the pid namespace of this process, or of the caller."),
            ("--timeout S", "Seconds from SIGTERM to SIGKILL; 10 unless said otherwise."),
            ("--grace S", "Seconds that a program which handles SIGTERM has before its work is ended."),
            ("--no-signal", "End the work on the GPU and send no signal."),
            FORM,
            UTC,
        ],
        parse: parse_stop,
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
        parse: parse_top,
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

fn parse_explain(words: &[OsString]) -> Result<LocalCommand, String> {
    let (output, words) = output(words)?;
    let (mut fault, mut svg) = (None, None);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--svg" => svg = Some(PathBuf::from(words.next().ok_or("--svg needs a file")?)),
            [b'-', ..] => return Err(unknown(word)),
            _ => {
                let number = word.to_str().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
                let number = number.ok_or_else(|| format!("{} is no number of a fault", word.to_string_lossy()))?;
                if fault.replace(number).is_some() {
                    return Err("explains one fault at a time".to_owned());
                }
            }
        }
    }
    let fault = fault.ok_or("names no fault; get_fault_list has their numbers")?;
    Ok(LocalCommand::Explain(ExplainRequest { fault, svg, output }))
}

/// What the options of [`FORM`], [`UTC`] and [`JSON`] say, and the other words.
fn output(words: &[OsString]) -> Result<(Output, Vec<&OsString>), String> {
    let (mut output, mut asked, mut others) = (Output::default(), None, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let form = match word.as_bytes() {
            b"--utc" => {
                output.utc = true;
                continue;
            }
            b"--json" => b"json",
            b"-o" => words.next().ok_or("-o needs table, wide or json")?.as_bytes(),
            [b'-', b'o', form @ ..] => form,
            _ => {
                others.push(word);
                continue;
            }
        };
        output.form = Form::named(form)
            .ok_or_else(|| format!("-o {} is not table, wide or json", String::from_utf8_lossy(form)))?;
        if asked.replace(output.form).is_some_and(|earlier| earlier != output.form) {
            return Err("asks for two forms".to_owned());
        }
    }
    Ok((output, others))
}

fn parse_top(words: &[OsString]) -> Result<LocalCommand, String> {
    let mut request = TopRequest { form: TopForm::Screen, interval: DEFAULT_INTERVAL, utc: false };
    let mut interval = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let form = match word.as_bytes() {
            b"--once" => TopForm::Once,
            b"--json" => TopForm::Json,
            b"--utc" => {
                request.utc = true;
                continue;
            }
            b"--interval" => {
                interval = Some(seconds(words.next().ok_or("--interval needs a number of seconds")?)?);
                continue;
            }
            _ => return Err(unknown(word)),
        };
        if request.form != TopForm::Screen && request.form != form {
            return Err("asks for two forms".to_owned());
        }
        request.form = form;
    }
    if let Some(interval) = interval {
        if request.form != TopForm::Screen {
            return Err("--interval is for the screen; --once and --json look once".to_owned());
        }
        if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
            return Err("--interval is from 0.1 to 3600 seconds".to_owned());
        }
        request.interval = interval;
    }
    Ok(LocalCommand::Top(request))
}

fn parse_run(words: &[OsString]) -> Result<LocalCommand, String> {
    let command = Vec::new();
    let limit = DEFAULT_RESTARTS;
    let mut request = RunRequest { name: None, restart: true, standby: false, limit, library: None, command };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{} needs a value", word.to_string_lossy()));
        match word.as_bytes() {
            b"--name" => {
                let name = value()?.to_str().filter(|name| is_name(name)).map(str::to_owned);
                let most = remps_proto::shim::MAX_NAME_BYTES;
                request.name =
                    Some(name.ok_or_else(|| format!("--name is 1 to {most} printable characters without blanks"))?);
            }
            b"--restart" => match value()?.as_bytes() {
                b"on-fault" => request.restart = true,
                b"never" => request.restart = false,
                _ => return Err("--restart is on-fault or never".to_owned()),
            },
            b"--limit" => {
                let limit = value()?.to_str().and_then(|text| text.parse().ok());
                request.limit = limit.ok_or_else(|| "--limit needs a number".to_owned())?;
            }
            b"--standby" => request.standby = true,
            b"--library" => request.library = Some(PathBuf::from(value()?)),
            b"--" => {
                request.command = words.cloned().collect();
                break;
            }
            _ => return Err(unknown(word)),
        }
    }
    if request.command.is_empty() {
        return Err("names no command, after --".to_owned());
    }
    if request.standby && request.name.is_none() {
        return Err("--standby needs the --name that it stands by for".to_owned());
    }
    Ok(LocalCommand::Run(request))
}

fn is_name(text: &str) -> bool {
    (1..=remps_proto::shim::MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn parse_stop(words: &[OsString]) -> Result<LocalCommand, String> {
    let (Output { form, .. }, words) = output(words)?;
    let mut request = StopRequest {
        whom: Whom::Pids(Vec::new()),
        timeout: DEFAULT_STOP_TIMEOUT,
        grace: Duration::ZERO,
        signals: true,
        form,
    };
    let mut pids = Vec::new();
    let mut groups = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{} needs a value", word.to_string_lossy()));
        match word.as_bytes() {
            b"--timeout" => request.timeout = seconds(value()?)?,
            b"--grace" => request.grace = seconds(value()?)?,
            b"--no-signal" => request.signals = false,
            b"--cgroup" => match value()? {
                path if path.is_empty() => return Err("--cgroup needs a path".to_owned()),
                path => groups.push(Whom::Cgroup(PathBuf::from(path))),
            },
            b"--all-of" => match value()? {
                who if *who == OsStr::new("self") => groups.push(Whom::NamespaceOf(None)),
                who => groups.push(Whom::NamespaceOf(Some(pid(who)?))),
            },
            [b'-', ..] => return Err(unknown(word)),
            _ => pids.push(pid(word)?),
        }
    }
    if !request.signals && !request.grace.is_zero() {
        return Err("--grace is the time after a signal, which --no-signal forbids".to_owned());
    }
    request.whom = match (pids.is_empty(), groups.len()) {
        (false, 0) => Whom::Pids(pids),
        (true, 1) => groups.remove(0),
        (true, 0) => return Err("names no process".to_owned()),
        _ => return Err("PIDs, --cgroup and --all-of exclude each other".to_owned()),
    };
    Ok(LocalCommand::StopClient(request))
}

fn parse_completions(words: &[OsString]) -> Result<LocalCommand, String> {
    match words {
        [] => Err("names no shell".to_owned()),
        [word] => word.to_str().and_then(Shell::named).map(LocalCommand::Completions).ok_or_else(|| unknown(word)),
        [_, extra, ..] => Err(unknown(extra)),
    }
}

fn unknown(word: &OsStr) -> String {
    format!("{} is not understood", word.to_string_lossy())
}

fn pid(word: &OsStr) -> Result<u32, String> {
    let number = word.to_str().and_then(|text| text.parse::<i32>().ok()).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number != 0).ok_or_else(|| format!("{} is no pid", word.to_string_lossy()))
}

fn seconds(word: &OsStr) -> Result<Duration, String> {
    let time = word.to_str().and_then(|text| text.parse().ok()).and_then(|time| Duration::try_from_secs_f64(time).ok());
    time.ok_or_else(|| format!("{} is no number of seconds", word.to_string_lossy()))
}
