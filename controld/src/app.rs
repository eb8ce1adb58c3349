//! The program from its first to its last line: which of its parts this call is, and how the daemon comes up.

use crate::cli::{self, DaemonOptions, Invocation, LocalCommand, Print, Protocol, protocol};
use crate::devices;
use crate::doctor;
use crate::driver::{Driver, StartError};
use crate::explain;
use crate::holder;
use crate::io::blocking;
use crate::io::daemonize::{Process, Readiness, Report, daemonize};
use crate::io::notify::notify;
use crate::io::runtime_dir::{RuntimeDir, RuntimeDirError};
use crate::io::server_version;
use crate::observe::log::{Format, Limits, LogSink};
use crate::observe::rate::Rate;
use crate::observe::trace;
use crate::run;
use crate::settings::servers_file::Plan;
use crate::settings::{self, Settings};
use crate::stop;
use crate::sys::allocator;
use crate::thin::{self, Thin, ThinError};
use crate::top;
use crate::ui::{self, Commands};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use remps_proto::admin::Personality;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The release whose answers are given when no driver says which one is installed.
const DEFAULT_PERSONALITY: Personality = Personality::V580;
/// Exit status when the daemon can't start.
const FAILURE: u8 = 1;

/// Runs the program with the process's arguments and environment; returns its exit status.
#[must_use]
pub fn run() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|word| word.to_str()) {
        Some(holder::ARGUMENT) => return hold(&arguments),
        Some(devices::PROBE_ARGUMENT) => return devices::probe::run().into(),
        Some(devices::USAGE_ARGUMENT) => return devices::usage::run().into(),
        Some(devices::gpus::LOOK_ARGUMENT) => return devices::gpus::run_look(&arguments[1..]).into(),
        Some(devices::gpus::CHANGE_ARGUMENT) => return devices::gpus::run_change(&arguments[1..]).into(),
        _ => {}
    }
    let environment = |name: &str| std::env::var_os(name);
    let personality = personality();
    let status = match cli::parse(arguments, personality) {
        Invocation::Print(print) => show_all(&print),
        Invocation::Ui => ui::run(&Settings::pipe_directory(environment), &Commands::Stdin, personality),
        Invocation::Command(line) => ui::run(&Settings::pipe_directory(environment), &Commands::One(line), personality),
        Invocation::Daemon(options) => daemon(options, personality),
        Invocation::CheckConfig(file) => {
            let (stdout, stderr, status) = settings::show::check_config(file.as_deref(), environment);
            show_all(&Print { stdout, stderr, status })
        }
        Invocation::Local(LocalCommand::Doctor { form }) => {
            let (stdout, status) = doctor::run(form, environment);
            show_all(&Print { stdout, stderr: String::new(), status })
        }
        Invocation::Local(LocalCommand::Explain(request)) => {
            explain::run(&Settings::pipe_directory(environment), &request)
        }
        Invocation::Local(LocalCommand::Top(request)) => {
            top::run(&Settings::pipe_directory(environment), &request, environment)
        }
        Invocation::Local(LocalCommand::Run(request)) => {
            run::run(&Settings::pipe_directory(environment), &request, environment)
        }
        Invocation::Local(LocalCommand::StopClient(request)) => {
            stop::run(&Settings::pipe_directory(environment), &request)
        }
        Invocation::Local(LocalCommand::Completions(shell)) => {
            show_all(&Print { stdout: shell.completions(), stderr: String::new(), status: 0 })
        }
    };
    status.into()
}

/// The holder process, for the pipe directory that is the second argument.
fn hold(arguments: &[OsString]) -> ExitCode {
    allocator::share_one_arena();
    holder::process::run(Path::new(arguments.get(1).map_or(OsStr::new(""), OsString::as_os_str)))
}

/// Which release's answers to give: that of the installed server.
fn personality() -> Personality {
    let chosen = std::env::var("MPS_PERSONALITY").ok();
    let library_path = std::env::var_os("LD_LIBRARY_PATH");
    server_version::find(chosen.as_deref(), library_path.as_deref())
        .and_then(|found| found.version.parse().ok())
        .unwrap_or(DEFAULT_PERSONALITY)
}

/// Prints what was asked for. A text that can't be written is a failure, unless its reader has closed a pipe.
fn show_all(print: &Print) -> u8 {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(print.stdout.as_bytes()).and_then(|()| out.flush());
    let mut failure = String::new();
    let mut status = print.status;
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        failure = format!("The text can't be written: {error}\n");
        status = status.max(FAILURE);
    }
    // Nobody is left to tell when standard error is closed too.
    let _ = std::io::stderr().write_all([print.stderr.as_str(), &failure].concat().as_bytes());
    status
}

/// Prints; a closed standard output or error leaves nobody to tell.
fn show(Report { status, stdout, stderr }: &Report) -> u8 {
    let _ = std::io::stdout().write_all(stdout.as_bytes());
    let _ = std::io::stderr().write_all(stderr.as_bytes());
    *status
}

fn failed(error: &StartError, pipe_directory: &Path) -> Report {
    match error {
        // Whoever may not look at the lock, or would not use the directory, is told of the daemon in the vendor's words,
        // too: that it runs is why no other one starts.
        StartError::Directory(
            RuntimeDirError::File { .. } | RuntimeDirError::Foreign { .. } | RuntimeDirError::Unclosed { .. },
        ) if ui::finds_a_daemon(pipe_directory) => {
            failed(&StartError::Directory(RuntimeDirError::AlreadyRunning), pipe_directory)
        }
        // The vendor says these on standard output.
        StartError::Directory(error @ (RuntimeDirError::AlreadyRunning | RuntimeDirError::Access { .. })) => {
            Report { status: FAILURE, stdout: format!("{error}\n"), stderr: String::new() }
        }
        StartError::Directory(_)
        | StartError::Fifo { .. }
        | StartError::Holder(_)
        | StartError::Servers(_)
        | StartError::Io(_) => Report { status: FAILURE, stdout: String::new(), stderr: format!("{error}\n") },
    }
}

fn daemon(options: DaemonOptions, personality: Personality) -> u8 {
    let owner = nix::unistd::geteuid().as_raw();
    if let Err(Print { status, stdout, stderr }) = options.check_user(owner) {
        return show(&Report { status, stdout, stderr });
    }
    let settings = match Settings::read(|name| std::env::var_os(name)) {
        Ok(settings) => settings,
        Err(error) => {
            return show(&Report { stdout: String::new(), stderr: format!("{error}\n"), status: FAILURE });
        }
    };
    let variable = std::env::var_os(protocol::VARIABLE).map(|value| value.to_string_lossy().into_owned());
    let protocol = match Protocol::chosen(options.protocol, variable.as_deref()) {
        Ok(protocol) => protocol,
        Err(error) => {
            return show(&Report { stdout: String::new(), stderr: format!("{error}\n"), status: FAILURE });
        }
    };
    let options = DaemonOptions { protocol: Some(protocol), ..options };
    if let Some(socket) = options.join.clone() {
        return join(&options, settings, socket);
    }
    let plan = options.servers.as_ref().map(|file| settings::read_servers(file, personality.to_string().parse().ok()));
    let plan = match plan.transpose() {
        Ok(plan) => plan,
        Err(error) => {
            return show(&Report { stdout: String::new(), stderr: format!("{error}\n"), status: FAILURE });
        }
    };
    if options.foreground {
        return serve(options, personality, settings, plan, None);
    }
    match daemonize() {
        Ok(Process::Started(report)) => show(&report),
        Ok(Process::Daemon(readiness)) => serve(options, personality, settings, plan, Some(readiness)),
        Err(error) => {
            let stderr = format!("cannot go into the background: {error}\n");
            show(&Report { stdout: String::new(), stderr, status: FAILURE })
        }
    }
}

/// Is a thin daemon of the one at `socket`.
fn join(options: &DaemonOptions, settings: Settings, socket: PathBuf) -> u8 {
    if options.foreground {
        return serve_thin(options, settings, socket, None);
    }
    match daemonize() {
        Ok(Process::Started(report)) => show(&report),
        Ok(Process::Daemon(readiness)) => serve_thin(options, settings, socket, Some(readiness)),
        Err(error) => {
            let stderr = format!("cannot go into the background: {error}\n");
            show(&Report { stdout: String::new(), stderr, status: FAILURE })
        }
    }
}

fn serve_thin(options: &DaemonOptions, settings: Settings, socket: PathBuf, readiness: Option<Readiness>) -> u8 {
    let (log, warning) = log_sink(options, &settings);
    let level = trace::level(std::env::var("MPS_LOG_LEVEL").ok().as_deref()).unwrap_or(trace::DEFAULT_LEVEL);
    let _ = tracing::subscriber::set_global_default(trace::subscriber(log.clone(), level));
    let devices = std::env::var_os("CUDA_VISIBLE_DEVICES").unwrap_or_default().to_string_lossy().into_owned();
    let name = options.join_name.clone();
    let request = thin::Request { socket, name, pipe_directory: settings.pipe_directory.clone(), devices };
    let (first, path) = (settings.said_to_programs(), settings.source.path.clone());
    let replay = Box::new(move || {
        // A file that can't be used any more says what it said.
        let again = Settings::read_with(Some(&path), |_| None);
        again.map_or(first, |settings| settings.said_to_programs())
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let started = runtime.map_err(ThinError::from).and_then(|runtime| {
        let thin = runtime.block_on(Thin::start(request, replay, log.clone()))?;
        Ok((runtime, thin))
    });
    let (runtime, thin) = match started {
        Ok(started) => started,
        Err(error) => {
            let report = match error {
                ThinError::Directory(error) => failed(&StartError::Directory(error), &settings.pipe_directory),
                error @ (ThinError::Node(_) | ThinError::Io(_)) => {
                    log.control(std::process::id(), &error.to_string());
                    Report { status: FAILURE, stdout: String::new(), stderr: format!("{error}\n") }
                }
            };
            tell(readiness, &report);
            return report.status;
        }
    };
    let stdout = warning.map(|warning| format!("{warning}\n")).unwrap_or_default();
    tell(readiness, &Report { status: 0, stdout, stderr: String::new() });
    notify(settings.notify_socket.as_deref(), "READY=1\nSTATUS=Joined\n");
    runtime.block_on(thin.run())
}

fn serve(
    options: DaemonOptions,
    personality: Personality,
    settings: Settings,
    plan: Option<Plan>,
    readiness: Option<Readiness>,
) -> u8 {
    allocator::share_one_arena();
    raise_descriptor_limit();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(blocking::most()).build();
    let started = runtime.map_err(StartError::from).and_then(|runtime| {
        let directory = RuntimeDir::open(&settings.pipe_directory)?;
        let (log, warning) = log_sink(&options, &settings);
        // Only one subscriber is ever set, here.
        let level = trace::level(std::env::var("MPS_LOG_LEVEL").ok().as_deref()).unwrap_or(trace::DEFAULT_LEVEL);
        let _ = tracing::subscriber::set_global_default(trace::subscriber(log.clone(), level));
        let mut policy = settings.policy(options.multiuser);
        policy.owner = nix::unistd::geteuid().as_raw();
        policy.owner_gid = nix::unistd::getegid().as_raw();
        policy.personality = personality;
        let mut driver = runtime.block_on(Driver::start(settings.clone(), plan, policy, log.clone(), directory))?;
        if options.ready_devices {
            let _within = runtime.enter();
            driver.ready_devices();
        }
        if options.static_partitioning {
            driver.makes_no_partitions();
        }
        Ok((runtime, driver, warning))
    });
    let (runtime, driver, warning) = match started {
        Ok(started) => started,
        Err(error) => {
            let report = failed(&error, &settings.pipe_directory);
            tell(readiness, &report);
            return report.status;
        }
    };
    let greeting = options.protocol.unwrap_or_default().greeting(&settings.pipe_directory.to_string_lossy());
    let stdout = warning.map(|warning| format!("{warning}\n")).into_iter().chain(greeting).collect();
    // There are scripts that take any text on standard error for a failure; the vendor's has none there.
    driver.log_obstacles();
    tell(readiness, &Report { status: 0, stdout, stderr: String::new() });
    notify(settings.notify_socket.as_deref(), "READY=1\nSTATUS=Listening for clients\n");
    runtime.block_on(driver.run())
}

/// Tells whoever has started the daemon how that went.
fn tell(readiness: Option<Readiness>, report: &Report) {
    match readiness {
        Some(readiness) => readiness.tell(report),
        None => drop(show(report)),
    }
}

fn log_sink(options: &DaemonOptions, settings: &Settings) -> (LogSink, Option<String>) {
    let format = match std::env::var("MPS_LOG_FORMAT").as_deref() {
        Ok("json") => Format::Json,
        _ => Format::Vendor,
    };
    let rate = Rate::default();
    if options.foreground {
        return (LogSink::stdout(rate, format), None);
    }
    let file_bytes = match settings.file.log_size_mib {
        0 => u64::MAX,
        size => size.saturating_mul(1 << 20),
    };
    let (sink, warning) = LogSink::files(&settings.log_directory, Limits { file_bytes, rate }, format);
    (sink, warning.map(|warning| warning.to_string()))
}

/// Every client costs descriptors here; the soft limit is often 1024.
fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // A limit that can't be raised only lowers how many clients can wait at once.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
