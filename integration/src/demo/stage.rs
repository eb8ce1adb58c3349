//! The folders of one demonstration and the daemon in them; nothing is left when it is dropped.

use super::DemoError;
use super::machine::Machine;
use super::programs::Programs;
use crate::lab::client::can_connect;
use crate::lab::process::{Finished, ended_within, run};
use crate::lab::watch::became_true;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long the daemon may take to listen; with a cold driver it waits for the GPU.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a command of the user interface may take.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// How long whatever is left may take to go.
const LEFT_LIMIT: Duration = Duration::from_secs(20);
/// Most bytes of the daemon's output that are kept.
const MOST_OUTPUT: u64 = 4 << 20;
/// Other users must enter the folder and read what is in it.
const OPEN_MODE: u32 = 0o755;

/// Folders, programs and daemon.
#[derive(Debug)]
pub(super) struct Stage {
    dir: TempDir,
    launcher: Launcher,
    daemon: Option<Daemon>,
}

/// Makes commands of the programs.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Launcher {
    /// One of the programs, by the file that it was copied from, with the environment of the demonstration.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(self.folder.join(name_of(program)));
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

#[derive(Debug)]
struct Daemon {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

/// How the daemon ended.
#[derive(Debug)]
pub(super) struct DaemonEnd {
    /// Its exit status; `None` when it had to be killed.
    pub(super) status: Option<i32>,
    /// Its lines on standard output: its log and its servers'.
    pub(super) log: Vec<String>,
    /// Its lines on standard error.
    pub(super) complaints: Vec<String>,
}

impl Stage {
    /// Makes the folders and puts copies of the programs where every user can run them: the build folder may be closed
    /// to others.
    pub(super) fn set(machine: &Machine, programs: &Programs) -> Result<Self, DemoError> {
        // In /tmp, because the path of a socket must be short.
        let dir = tempfile::Builder::new().prefix("mps-demo-").tempdir_in("/tmp");
        let dir = dir.map_err(DemoError::system("make a folder in /tmp"))?;
        let root = dir.path();
        let place = || -> io::Result<()> {
            fs::set_permissions(root, Permissions::from_mode(OPEN_MODE))?;
            for folder in ["bin", "lib"] {
                fs::create_dir(root.join(folder))?;
                fs::set_permissions(root.join(folder), Permissions::from_mode(OPEN_MODE))?;
            }
            for program in [
                &programs.control,
                &programs.server,
                &programs.bystander,
                &programs.aggressor,
                &programs.first_allocation,
            ] {
                copy(program, &root.join("bin").join(name_of(program)))?;
            }
            // Programs ask for either name.
            copy(&programs.library, &root.join("lib/libcuda.so.1"))?;
            std::os::unix::fs::symlink("libcuda.so.1", root.join("lib/libcuda.so"))?;
            // The machine's own configuration must not change what is shown.
            fs::write(root.join("mps-control.toml"), "")
        };
        place().map_err(DemoError::system(format!("fill {}", root.display())))?;
        let mut environment = machine.environment(root.join("lib"), root.join("bin").join(name_of(&programs.server)));
        environment.extend([
            ("CUDA_MPS_PIPE_DIRECTORY".into(), root.join("pipe").into()),
            ("CUDA_MPS_LOG_DIRECTORY".into(), root.join("log").into()),
            ("MPS_CONTROL_CONFIG".into(), root.join("mps-control.toml").into()),
            ("TZ".into(), "UTC0".into()),
        ]);
        let launcher = Launcher { folder: root.join("bin"), environment };
        Ok(Self { dir, launcher, daemon: None })
    }

    /// The pipe directory.
    pub(super) fn pipe_dir(&self) -> PathBuf {
        self.dir.path().join("pipe")
    }

    /// What starts programs here.
    pub(super) const fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// Starts the daemon in the foreground and waits until it takes connections.
    pub(super) fn start_daemon(&mut self, programs: &Programs) -> Result<(), DemoError> {
        let mut command = self.launcher.command(&programs.control);
        command.arg("-f").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(DemoError::system("start the daemon"))?;
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let daemon = Daemon { child, stdout: lines(stdout), stderr: lines(stderr) };
        let pid = daemon.pid();
        self.daemon = Some(daemon);
        let pipe_dir = self.pipe_dir();
        let listens = || can_connect(&pipe_dir) || ended_within(pid, Duration::ZERO);
        if became_true(self.dir.path(), &pipe_dir, START_LIMIT, listens) && !ended_within(pid, Duration::ZERO) {
            return Ok(());
        }
        let end = self.end_daemon(Duration::ZERO);
        Err(DemoError::Daemon([end.complaints, end.log].concat().join("\n")))
    }

    /// Whether the daemon runs.
    pub(super) fn is_daemon_alive(&self) -> bool {
        self.daemon.as_ref().is_some_and(|daemon| !ended_within(daemon.pid(), Duration::ZERO))
    }

    /// Lines of commands through the user interface.
    pub(super) fn ask(&self, programs: &Programs, lines: &str) -> io::Result<Finished> {
        run(&mut self.launcher.command(&programs.control), lines.as_bytes(), COMMAND_LIMIT)
    }

    /// Waits for the daemon's end and takes what it wrote.
    pub(super) fn end_daemon(&mut self, limit: Duration) -> DaemonEnd {
        let Some(mut daemon) = self.daemon.take() else {
            return DaemonEnd { status: None, log: Vec::new(), complaints: Vec::new() };
        };
        let ended = ended_within(daemon.pid(), limit);
        if !ended {
            // Its end is not waited for: it is what is being looked for here.
            let _ = daemon.child.kill();
        }
        let status = daemon.child.wait().ok().and_then(|status| status.code()).filter(|_| ended);
        // The outputs end with their last writer; should the daemon have given them to somebody, that is not waited for.
        let deadline = Instant::now() + LEFT_LIMIT;
        DaemonEnd { status, log: all(&daemon.stdout, deadline), complaints: all(&daemon.stderr, deadline) }
    }

    /// Files in the pipe directory.
    pub(super) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.pipe_dir()).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Processes of this demonstration that do not end in time, each as pid and command line.
    pub(super) fn processes_left(&self) -> Vec<String> {
        let deadline = Instant::now() + LEFT_LIMIT;
        let left = self
            .processes()
            .into_iter()
            .filter(|(pid, _)| !ended_within(*pid, deadline.saturating_duration_since(Instant::now())));
        left.map(|(pid, command)| format!("{pid} {command}")).collect()
    }

    /// Processes whose command line or environment names the folder, which nobody else's does.
    fn processes(&self) -> Vec<(Pid, String)> {
        let own = std::process::id().to_string();
        let mark = self.dir.path().as_os_str().as_bytes();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let pid = Pid::from_raw(name.parse().ok().filter(|_| name != own)?);
            let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
            let command = read("cmdline");
            let has = |bytes: &[u8]| bytes.windows(mark.len()).any(|window| window == mark);
            (has(&command) || has(&read("environ")))
                .then(|| (pid, String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned()))
        });
        found.collect()
    }
}

impl Daemon {
    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid is a positive i32"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.end_daemon(Duration::ZERO);
        }
        for (pid, _) in self.processes() {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = ended_within(pid, LEFT_LIMIT);
        }
    }
}

fn name_of(program: &Path) -> &std::ffi::OsStr {
    program.file_name().expect("a program has a name")
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, Permissions::from_mode(OPEN_MODE))
}

/// Reads lines in the background, so that a full pipe never stops the writer.
fn lines(source: impl Read + Send + 'static) -> Receiver<String> {
    let (lines_tx, lines_rx) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(source);
        for line in (&mut reader).take(MOST_OUTPUT).split(b'\n').map_while(Result::ok) {
            let _ = lines_tx.send(String::from_utf8_lossy(&line).into_owned());
        }
        // Whatever is beyond is thrown away.
        let _ = io::copy(&mut reader, &mut io::sink());
    });
    lines_rx
}

/// All lines until the source's end or the deadline.
fn all(lines_rx: &Receiver<String>, deadline: Instant) -> Vec<String> {
    std::iter::from_fn(|| lines_rx.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()).collect()
}
