//! A bench with the simulated server on the daemon's `PATH` and the simulated driver for the programs.

pub mod bearer;
pub mod held;
pub mod mute_fs;

use crate::lab::process::{Finished, Process, run};
use crate::lab::watch::wait_for;
use crate::lab::{LIMIT, Lab, PATIENCE, install};
use crate::under_test::{Subject, built_library, program};
use serde_json::Value;
use sim_wire::script::Script;
use sim_wire::tools::DIRECTORY;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the daemon looks for.
const SERVER: &str = "nvidia-cuda-mps-server";
/// What the loader looks for: the second name is what `cudarc` tries first.
const LIBRARY_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// The daemon's configuration file.
const CONFIG: &str = "mps-control.toml";
/// Folder of the bench that the simulated kernel module uses.
const UVM_DIR: &str = "uvm";

/// A bench with pretended hardware.
#[derive(Debug)]
pub struct Sim {
    /// The daemon's bench.
    pub lab: Lab,
    library_dir: PathBuf,
    variables: Vec<(String, String)>,
}

/// The simulated driver.
#[must_use]
pub fn library() -> PathBuf {
    built_library("libcuda.so")
}

/// The simulated kernel module.
fn module() -> PathBuf {
    built_library("libuvm_sim.so")
}

impl Sim {
    /// A bench; the daemon is not started yet. `variables` script the server and the driver.
    #[must_use]
    pub fn new(subject: &Subject, variables: &[(&str, &str)]) -> Self {
        Self::on(Lab::new(subject), variables)
    }

    /// The same with the simulated kernel module in the daemon: to it, clients have UVM descriptors and there is a tools
    /// device. The module is put there for it, so that a daemon of any user can load it.
    #[must_use]
    pub fn watched(subject: &Subject, variables: &[(&str, &str)]) -> Self {
        let lab = Lab::new(subject);
        let (directory, library) = (lab.dir().join(UVM_DIR), lab.dir().join("libuvm_sim.so"));
        fs::create_dir(&directory).expect("the bench's folder is ours");
        install(&module(), &library);
        // Clients and servers of any user tell of faults here, and daemons of any user listen.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).expect("the bench's folder is ours");
        let name = directory.to_str().expect("the bench's name is plain").to_owned();
        let lab = lab.with("LD_PRELOAD", &library);
        Self::on(lab, &[variables, &[(DIRECTORY, name.as_str())]].concat())
    }

    fn on(mut lab: Lab, variables: &[(&str, &str)]) -> Self {
        let path = lab.bin_dir(&[(SERVER, &program(SERVER))]);
        let config = lab.dir().join(CONFIG);
        fs::write(&config, "").expect("the bench's folder is ours");
        lab = lab.with("PATH", path).with("MPS_CONTROL_CONFIG", config);
        for (name, value) in variables {
            lab = lab.with(name, value);
        }
        let library_dir = lab.dir().join("lib");
        fs::create_dir(&library_dir).expect("the bench's folder is ours");
        for name in LIBRARY_NAMES {
            symlink(library(), library_dir.join(name)).expect("the bench's folder is ours");
        }
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { lab, library_dir, variables: variables.iter().map(own).collect() }
    }

    /// The same with the daemon running in the background.
    #[must_use]
    pub fn started(subject: &Subject, variables: &[(&str, &str)]) -> Self {
        let sim = Self::new(subject, variables);
        sim.lab.start(&[]);
        sim
    }

    /// The configuration file of the next daemon.
    pub fn config(&self, text: &str) {
        fs::write(self.lab.dir().join(CONFIG), text).expect("the bench's folder is ours");
    }

    /// Where the simulated driver tells of faults, on a bench with [`Sim::watched`].
    #[must_use]
    pub fn uvm_dir(&self) -> PathBuf {
        self.lab.dir().join(UVM_DIR)
    }

    /// `mps-witness` with the simulated kernel module, on any bench.
    #[must_use]
    pub fn witness(&self, arguments: &[&str]) -> Command {
        let directory = self.uvm_dir();
        fs::create_dir_all(&directory).expect("the bench's folder is ours");
        let mut command = self.command("mps-witness", arguments);
        command.env("LD_PRELOAD", module()).env(DIRECTORY, directory);
        // It waits for the driver's answers as long as our daemon does on a bench.
        command.env(PATIENCE.0, PATIENCE.1);
        command
    }

    /// Has the machine's GPUs told of where NVIDIA's driver would, and gives the lines of the configuration that say
    /// where. `variables` are those of the bench.
    #[must_use]
    pub fn machine(&self) -> String {
        let lines: String = self.variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let root = self.lab.dir().join("driver");
        sim_wire::hardware::tell(&Script::parse(&lines), &root).expect("the bench's folder is ours");
        format!("[witness]\ngpus = \"{}\"\n", root.display())
    }

    /// A program on the simulated driver.
    #[must_use]
    pub fn command(&self, name: &str, arguments: &[&str]) -> Command {
        self.command_on(&self.library_dir, name, arguments)
    }

    /// A program on the driver in this folder.
    #[must_use]
    pub fn command_on(&self, library_dir: &Path, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program(name));
        command.args(arguments).env_clear();
        command.env("LD_LIBRARY_PATH", library_dir).env("CUDA_MPS_PIPE_DIRECTORY", self.lab.pipe_dir());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a program on the simulated driver to its end.
    #[must_use]
    pub fn run(&self, name: &str, arguments: &[&str]) -> Finished {
        let mut command = self.command(name, arguments);
        run(&mut command, b"", LIMIT).unwrap_or_else(|error| panic!("{}: {command:?}: {error}", self.lab.subject()))
    }

    /// Starts a program on the simulated driver, and waits for its line of this event.
    #[must_use]
    pub fn start(&self, name: &str, arguments: &[&str], event: &str) -> Process {
        let process = Process::start(&mut self.command(name, arguments));
        self.wait_event(&process, event);
        process
    }

    /// The same with a standard input that is open until [`Self::finish`] closes it.
    #[must_use]
    pub fn start_with_input(&self, name: &str, arguments: &[&str], event: &str) -> Process {
        let process = Process::start_with_input(&mut self.command(name, arguments));
        self.wait_event(&process, event);
        process
    }

    /// Waits until a program has written a line of this event.
    pub fn wait_event(&self, process: &Process, event: &str) {
        let dir = self.lab.dir();
        wait_for(dir, dir, LIMIT, event, || find_event(&process.output(), event).is_some());
    }

    /// Closes a program's standard input, if that is open, and waits for its end.
    #[must_use]
    pub fn finish(&self, process: Process) -> Finished {
        process.finish(LIMIT).unwrap_or_else(|error| panic!("{}: {error}", self.lab.subject()))
    }

    /// The pid of the one server, once it is ready.
    #[must_use]
    pub fn server(&self) -> i32 {
        let dir = self.lab.dir();
        wait_for(dir, dir, LIMIT, "a server", || self.servers().len() == 1);
        self.servers()[0]
    }

    /// The pids of the servers that are ready.
    #[must_use]
    pub fn servers(&self) -> Vec<i32> {
        self.lab.ask("get_server_list\n").lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// The texts of a server's log, without the brackets.
    #[must_use]
    pub fn server_log(&self) -> Vec<String> {
        let log = self.lab.log("server.log");
        log.lines().filter_map(|line| line.split_once("] ")).map(|(_, text)| text.to_owned()).collect()
    }
}

/// The first line of this event in a program's output.
#[must_use]
pub fn find_event(output: &str, event: &str) -> Option<Value> {
    output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line.get("event").and_then(Value::as_str) == Some(event))
}

/// The driver's error that a program ended with; `None` when it ended well.
#[must_use]
pub fn error_of(finished: &Finished) -> Option<u64> {
    find_event(&finished.stdout_text(), "error")?.get("code")?.as_u64()
}

/// Waits until this is so on a bench.
///
/// # Panics
/// When it does not become so in time.
pub fn wait(sim: &Sim, what: &str, fact: impl Fn() -> bool) {
    wait_for(sim.lab.dir(), sim.lab.log_dir(), LIMIT, what, fact);
}

/// The driver's error that a program has told of so far.
#[must_use]
pub fn error_so_far(process: &Process) -> Option<u64> {
    find_event(&process.output(), "error")?.get("code")?.as_u64()
}

/// Waits until a bystander has worked on for longer than a fault takes to reach it.
///
/// # Panics
/// When it meets an error.
pub fn is_unharmed(sim: &Sim, bystander: &Process) {
    let lines = || bystander.output().matches("progress").count();
    let before = lines();
    wait(sim, "the bystander goes on", || lines() >= before + 3 || error_so_far(bystander).is_some());
    assert_eq!(error_so_far(bystander), None, "{}\n{}", bystander.output(), sim.lab.log("control.log"));
}
