//! The place of one run: a folder with pipes and logs, the environment of its programs, their commands.

use super::DemoError;
use super::folder::{Folder, end_all, processes_of};
use super::machine::{Control, Setting, may_look_at_others};
use super::part;
use crate::lab::process::{Finished, ended_within, run};
use remps_controld::parts::patience::patient;
use sim_wire::tools::DIRECTORY;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a command of the user interface may take.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// How long a process that should be gone may take.
const LEFT_LIMIT: Duration = Duration::from_secs(10);
/// From a memory fault to everybody's error where nothing else is scripted: an H200 takes 147 to 200 ms.
const SIMULATED_SPREAD_MS: &str = "150";
/// The release that the simulated server plays.
const SIMULATED_RELEASE: &str = "580";
/// The simulated kernel module, and the preload library.
const MODULE: &str = "libuvm_sim.so";
const SHIM: &str = "libmps_client_shim.so";
/// How long everything is kept for a next daemon, in seconds: whoever kills the demonstration has it gone then.
const SUCCESSOR_WAIT: u32 = 60;

/// The place.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    folder: &'a Folder,
    root: PathBuf,
    setting: Setting,
    environment: Vec<(OsString, OsString)>,
}

impl<'a> Stage<'a> {
    /// Makes the folders.
    pub(super) fn set(folder: &'a Folder, name: &str, setting: Setting) -> Result<Self, DemoError> {
        let root = folder.path().join(name);
        let make = || -> io::Result<()> {
            for part in ["", "uvm"] {
                fs::create_dir(root.join(part))?;
                fs::set_permissions(root.join(part), Permissions::from_mode(0o755))?;
            }
            // The machine's own configuration must not change what is shown.
            fs::write(root.join("mps-control.toml"), configuration())
        };
        make().map_err(DemoError::system(format!("fill {}", root.display())))?;
        let environment = environment(folder, &root, &setting);
        Ok(Self { folder, root, setting, environment })
    }

    /// What it is played with.
    pub(super) const fn setting(&self) -> &Setting {
        &self.setting
    }

    /// The programs.
    pub(super) const fn folder(&self) -> &Folder {
        self.folder
    }

    /// The run's own folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The pipe directory.
    pub(super) fn pipe_dir(&self) -> PathBuf {
        self.root.join("pipe")
    }

    /// The log directory.
    pub(super) fn log_dir(&self) -> PathBuf {
        self.root.join("log")
    }

    fn of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// One of the programs.
    pub(super) fn program(&self, name: &str) -> Command {
        self.of(&self.folder.program(name))
    }

    /// The same under the preload library, with these variables for it.
    pub(super) fn preloaded(&self, name: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = self.program(name);
        command.env("LD_PRELOAD", self.folder.library(SHIM)).envs(variables.iter().copied());
        self.hand_over(&mut command);
        command
    }

    /// One of the programs, under the preload library where the daemon can't look at it otherwise.
    pub(super) fn watched(&self, name: &str) -> Command {
        if self.setting.control == Control::Ours && !may_look_at_others() {
            self.preloaded(name, &[])
        } else {
            self.program(name)
        }
    }

    /// A program started by `run`, which starts it again after a fault.
    pub(super) fn wrapped(&self, name: &str) -> Command {
        let mut command = self.program(part::CONTROL);
        command.args(["run", "--name", "demo", "--restart", "on-fault", "--library"]);
        command.arg(self.folder.library(SHIM)).arg("--").arg(self.folder.program(name));
        self.hand_over(&mut command);
        command
    }

    /// Has the library give the daemon what it may not take itself.
    fn hand_over(&self, command: &mut Command) {
        if !may_look_at_others() {
            command.env("MPS_SHIM_FAULTS", "tell");
        }
    }

    /// The daemon.
    pub(super) fn daemon(&self) -> Command {
        match &self.setting.control {
            Control::Ours => {
                let mut command = self.program(part::CONTROL);
                if self.setting.server.is_none() {
                    command.env("LD_PRELOAD", self.folder.library(MODULE));
                }
                command
            }
            Control::Theirs(path) => self.of(path),
            Control::Simulated => self.program(part::VENDOR),
        }
    }

    /// Lines of commands through our user interface.
    pub(super) fn ask(&self, lines: &str) -> io::Result<Finished> {
        run(&mut self.program(part::CONTROL), lines.as_bytes(), COMMAND_LIMIT)
    }

    /// Files in the pipe directory.
    pub(super) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.pipe_dir()).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Processes of this run that do not end in time, each as pid and command line.
    pub(super) fn processes_left(&self) -> Vec<String> {
        let deadline = Instant::now() + patient(LEFT_LIMIT);
        let left = processes_of(&self.root)
            .into_iter()
            .filter(|(pid, _)| !ended_within(*pid, deadline.saturating_duration_since(Instant::now())));
        left.map(|(pid, command)| format!("{pid} {command}")).collect()
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        end_all(&self.root);
    }
}

/// What our daemon is told: programs say themselves with whom they share a server.
fn configuration() -> String {
    format!("successor_wait = {SUCCESSOR_WAIT}\n[domains]\nby = \"label\"\n")
}

/// What programs need in their environment, and nothing else: limits and daemons that somebody has set for other
/// programs must not change what is shown.
fn environment(folder: &Folder, root: &Path, setting: &Setting) -> Vec<(OsString, OsString)> {
    let is_passed_on = |name: &str| {
        ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "MPS_TEST_PATIENCE"]
            .contains(&name)
            || ["NVIDIA_", "MPS_SIM_"].iter().any(|start| name.starts_with(start))
    };
    let mut variables: Vec<(OsString, OsString)> =
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on)).collect();
    let mut set = |name: &str, value: OsString| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.into(), value));
    };
    if let Some(server) = &setting.server {
        set("MPS_SERVER_BINARY", server.into());
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            set("LD_LIBRARY_PATH", without(folder.build(), &path));
        }
    } else {
        if std::env::var_os("MPS_SIM_FAULT_MS").is_none() {
            set("MPS_SIM_FAULT_MS", SIMULATED_SPREAD_MS.into());
        }
        let mut path = folder.path().join("bin").into_os_string();
        path.push(":/usr/bin:/bin");
        set("PATH", path);
        set("LD_LIBRARY_PATH", folder.path().join("lib").into());
        set("MPS_SERVER_BINARY", folder.program(part::SERVER).into());
        set("MPS_PERSONALITY", SIMULATED_RELEASE.into());
        set(DIRECTORY, root.join("uvm").into());
        // The real driver may be the machine's; nobody may see the pretended GPU as a choice of real ones.
        set("CUDA_VISIBLE_DEVICES", "0".into());
    }
    set("CUDA_MPS_PIPE_DIRECTORY", root.join("pipe").into());
    set("CUDA_MPS_LOG_DIRECTORY", root.join("log").into());
    set("MPS_CONTROL_CONFIG", root.join("mps-control.toml").into());
    set("TZ", "UTC0".into());
    variables
}

/// Cargo tells its children to look for libraries where it builds; the simulated driver lies there under one of the
/// real one's names.
pub(super) fn without_build_folder(command: &mut Command, build: &Path) {
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", without(build, &path));
    }
}

/// A search path without the folders in `folder`.
fn without(folder: &Path, search_path: &OsStr) -> OsString {
    let kept = std::env::split_paths(search_path).filter(|path| !path.starts_with(folder));
    std::env::join_paths(kept).expect("the parts came out of such a path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_folder_is_taken_out_of_the_library_path() {
        let path = OsStr::new("/b/release/deps:/usr/local/nvidia/lib64:/b/release:/bb");
        assert_eq!(without(Path::new("/b/release"), path), OsStr::new("/usr/local/nvidia/lib64:/bb"));
        assert_eq!(without(Path::new("/b"), OsStr::new("/b/release")), OsStr::new(""));
    }
}
