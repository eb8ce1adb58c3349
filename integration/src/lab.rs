//! A lab bench for one daemon: private folders, processes that end with the test, waits with deadlines.
//!
//! The folders lie in `/tmp`, because the path of a socket must be short. Everything a bench started is killed when it
//! is dropped, and its logs are printed when the test has failed.

pub mod as_user;
pub mod claim;
pub mod client;
pub mod commands;
pub mod crowd;
pub mod escrow;
pub mod golden;
pub mod half_dead;
pub mod noise;
pub mod pace;
pub mod peer;
pub mod place;
pub mod pod;
pub mod process;
pub mod program;
pub mod stage;
pub mod sudden_death;
pub mod watch;

use crate::under_test::Subject;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::{Finished, Process, run};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Whatever takes longer than this has hung. A virtual machine has been seen to stand still for half a minute.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How many times its own deadlines our daemon waits for peers that are only slow: [`remps_controld::parts::patience`].
pub(crate) const PATIENCE: (&str, &str) = ("MPS_TEST_PATIENCE", "60");
/// The same for a daemon that also waits a minute for what tells of a fault for certain, and half of one for a server
/// that may have a fault.
pub const VERY_PATIENT: (&str, &str) = (PATIENCE.0, "60,120");

/// A bench.
#[derive(Debug)]
pub struct Lab {
    subject: Subject,
    dir: TempDir,
    pipe_dir: PathBuf,
    log_dir: PathBuf,
    environment: Vec<(OsString, OsString)>,
    foreground: Option<Process>,
}

impl Lab {
    /// A bench without a daemon.
    #[must_use]
    pub fn new(subject: &Subject) -> Self {
        let dir = tempfile::Builder::new().prefix("mps-lab-").tempdir_in("/tmp").expect("a folder in /tmp");
        // Other users must be able to reach the sockets.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("the folder is ours");
        let (pipe_dir, log_dir) = (dir.path().join("pipe"), dir.path().join("log"));
        let mut environment = subject.environment();
        if subject.ours {
            environment.push((PATIENCE.0.into(), PATIENCE.1.into()));
        }
        Self { subject: subject.clone(), dir, pipe_dir, log_dir, environment, foreground: None }
    }

    /// The same with the pipe directory as log directory.
    #[must_use]
    pub fn with_one_directory(mut self) -> Self {
        self.log_dir.clone_from(&self.pipe_dir);
        self
    }

    /// The same with one more variable for every program.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Who is tested.
    #[must_use]
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The folder that is the bench's own.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `CUDA_MPS_PIPE_DIRECTORY`.
    #[must_use]
    pub fn pipe_dir(&self) -> &Path {
        &self.pipe_dir
    }

    /// `CUDA_MPS_LOG_DIRECTORY`.
    #[must_use]
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// The subject's program with these arguments, and nothing in its environment but what it needs.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(&self.subject, arguments)
    }

    /// Another subject's program on this bench's folders.
    #[must_use]
    pub fn command_of(&self, subject: &Subject, arguments: &[&str]) -> Command {
        let mut command = Command::new(&subject.control);
        command.args(arguments).env_clear();
        command.env("CUDA_MPS_PIPE_DIRECTORY", &self.pipe_dir).env("CUDA_MPS_LOG_DIRECTORY", &self.log_dir);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.envs(subject.environment());
        command
    }

    /// Starts the daemon with `-d` and these further arguments; fails the test when it does not start.
    pub fn start(&self, arguments: &[&str]) {
        let started = self.run(&[&["-d"], arguments].concat(), b"");
        assert_eq!(started.code, Some(0), "{}: {:?} does not start", self.subject, started);
    }

    /// Starts the daemon with `-f` and these further arguments, and waits until it takes connections.
    pub fn start_foreground(&mut self, arguments: &[&str]) {
        self.foreground = Some(Process::start(&mut self.command(&[&["-f"], arguments].concat())));
        watch::wait_for(self.dir.path(), &self.pipe_dir, LIMIT, "the daemon's socket", || {
            client::can_connect(&self.pipe_dir)
        });
    }

    /// The daemon of [`Self::start_foreground`].
    pub const fn foreground(&mut self) -> Option<&mut Process> {
        self.foreground.as_mut()
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// When it takes longer than [`LIMIT`].
    #[must_use]
    pub fn run(&self, arguments: &[&str], stdin: &[u8]) -> Finished {
        self.finish(&mut self.command(arguments), stdin)
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it takes longer than [`LIMIT`].
    #[must_use]
    pub fn finish(&self, command: &mut Command, stdin: &[u8]) -> Finished {
        run(command, stdin, LIMIT).unwrap_or_else(|error| panic!("{}: {command:?}: {error}", self.subject))
    }

    /// What the user interface prints for these lines. Fails the test when its status is not 0 or it complains.
    #[must_use]
    pub fn ask(&self, lines: &str) -> String {
        let finished = self.run(&[], lines.as_bytes());
        assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{}: {lines:?}", self.subject);
        finished.stdout_text()
    }

    /// The daemon's pid: whoever holds its lock. `None` when nobody does.
    #[must_use]
    pub fn daemon(&self) -> Option<Pid> {
        lock_holder(&self.pipe_dir)
    }

    /// The daemon's pid.
    ///
    /// # Panics
    /// When there is no daemon.
    #[must_use]
    pub fn running_daemon(&self) -> Pid {
        self.daemon().unwrap_or_else(|| panic!("{}: no daemon holds the lock", self.subject))
    }

    /// Every process that runs on this bench's folders, whoever started it: its arguments or its environment say so.
    ///
    /// Zombies have neither, and processes of other users can't be read by an unprivileged test.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        let mark = self.dir.path().to_str().expect("the bench's path is text").as_bytes();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid: &u32| *pid != std::process::id())
            .filter(|pid| {
                let says = |name: &str| {
                    let text = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
                    text.windows(mark.len()).any(|window| window == mark)
                };
                says("cmdline") || says("environ")
            })
            .filter_map(|pid| Some(Pid::from_raw(i32::try_from(pid).ok()?)))
            .collect()
    }

    /// Waits until a process that need not be a child of ours has ended.
    ///
    /// # Panics
    /// When it lives longer than [`LIMIT`].
    pub fn wait_gone(&self, pid: Pid) {
        assert!(process::ended_within(pid, LIMIT), "{}: process {pid} lives on", self.subject);
    }

    /// Puts programs into a folder that can be the `PATH`, by name and file to link to.
    #[must_use]
    pub fn bin_dir(&self, programs: &[(&str, &Path)]) -> PathBuf {
        let dir = self.dir.path().join("bin");
        fs::create_dir_all(&dir).expect("the bench's folder is ours");
        for (name, target) in programs {
            install(target, &dir.join(name));
        }
        dir
    }

    /// A log file's text, empty when there is none.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        fs::read(self.log_dir.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until a log file has a line with this text.
    pub fn wait_log(&self, name: &str, text: &str) {
        watch::wait_for(&self.log_dir, &self.log_dir, LIMIT, text, || self.log(name).contains(text));
    }
}

/// The process that holds the lock of the daemon of this pipe directory.
#[must_use]
pub fn lock_holder(pipe_dir: &Path) -> Option<Pid> {
    let file = fs::File::open(pipe_dir.join("control_lock")).ok()?;
    let mut lock = libc::flock {
        l_type: libc::c_short::try_from(libc::F_WRLCK).expect("a small number"),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).expect("a small number"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    (lock.l_pid > 0).then(|| Pid::from_raw(lock.l_pid))
}

/// Puts a file of cargo's where other users reach it, who may not be able to enter the build folder: the same file under
/// another name where that can be, for a copy of every program takes a test longer than all else that it does.
///
/// # Panics
/// When it can be neither linked nor copied.
pub fn install(from: &Path, to: &Path) {
    // Never written over: what is there may be cargo's own file.
    let _ = fs::remove_file(to);
    if fs::hard_link(from, to).is_err() {
        copy_program(from, to);
    }
}

/// Copies a program, in another process: a child that a test forks meanwhile would else hold the copy open for writing,
/// and the copy could not be executed ("text file busy").
///
/// # Panics
/// When it can't be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} can't be copied", from.display());
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut report = format!("--- {} in {}\n", self.subject, self.dir.path().display());
            for name in ["control.log", "server.log"] {
                report.push_str(&format!("--- {name}\n{}", self.log(name)));
            }
            if let Some(process) = &self.foreground {
                report.push_str(&format!("--- standard output\n{}", process.output()));
            }
            let _ = std::io::stderr().write_all(report.as_bytes());
        }
        // One that dies may leave a successor of its own behind, so the table is read until nothing is left.
        let deadline = Instant::now() + LIMIT;
        loop {
            let processes = self.processes();
            if processes.is_empty() || Instant::now() > deadline {
                return;
            }
            for pid in processes {
                let _ = kill(pid, Signal::SIGKILL);
                let _ = process::ended_within(pid, LIMIT);
            }
        }
    }
}
