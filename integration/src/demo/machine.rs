//! What this machine has: a GPU with NVIDIA's driver and server, or nothing, and then the simulated ones.

use super::DemoError;
use super::programs::Programs;
use crate::lab::process::run;
use remps_controld::devices::{PROBE_ARGUMENT, ProbedDevice};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A cold driver takes seconds to initialise several GPUs.
const PROBE_LIMIT: Duration = Duration::from_secs(30);
const SERVER: &str = "nvidia-cuda-mps-server";
/// Where a server is looked for beside `PATH`.
const SERVER_FOLDERS: [&str; 3] = ["/usr/local/nvidia/bin", "/usr/bin", "/bin"];
/// From a memory fault to everybody's error where nothing else is scripted: an H200 takes 147 to 200 ms.
const SIMULATED_SPREAD_MS: &str = "150";
/// The release that the simulated server plays.
const SIMULATED_RELEASE: &str = "580";

/// Which driver and server are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// NVIDIA's.
    Real {
        /// The server program.
        server: PathBuf,
    },
    /// Ours.
    Simulated {
        /// Why not the real ones.
        reason: String,
    },
}

/// The machine as the demonstration uses it.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// Which driver and server are used.
    pub(super) kind: Kind,
    /// The GPUs' names, of real ones only.
    pub(super) devices: Vec<String>,
    /// Where cargo builds. It tells its children to look for libraries there, where the simulated driver lies under one
    /// of the real one's names.
    build_folder: PathBuf,
}

impl Machine {
    /// Looks for a GPU with a child process, so that no driver library is loaded into this one.
    pub(super) fn find(programs: &Programs, simulated: bool) -> Result<Self, DemoError> {
        let build_folder = programs.library.ancestors().nth(2).map(PathBuf::from).unwrap_or_default();
        let simulated_because = |reason: String| Self {
            kind: Kind::Simulated { reason },
            devices: Vec::new(),
            build_folder: build_folder.clone(),
        };
        if simulated {
            return Ok(simulated_because("asked for".to_owned()));
        }
        // Without the variable the probe would be a client of whatever daemon runs on this machine.
        let mut command = Command::new(&programs.control);
        command.arg(PROBE_ARGUMENT).env("CUDA_MPS_PIPE_DIRECTORY", "/proc/self/no-mps");
        let probe = run(&mut command, b"", PROBE_LIMIT).map_err(DemoError::system("look for a GPU"))?;
        if probe.code != Some(0) {
            let error = probe.stderr_text();
            return Ok(simulated_because(error.lines().next().unwrap_or("no GPU was found").to_owned()));
        }
        let devices: Vec<String> = probe
            .stdout_text()
            .lines()
            .filter_map(|line| serde_json::from_str::<ProbedDevice>(line).ok())
            .map(|device| device.name)
            .collect();
        if devices.is_empty() {
            return Ok(simulated_because("the driver lists no GPU".to_owned()));
        }
        Ok(match find_server(std::env::var_os("PATH")) {
            Some(server) => Self { kind: Kind::Real { server }, devices, build_folder },
            None => simulated_because(format!("there is a GPU but no {SERVER}")),
        })
    }

    /// Whether the driver and the server are the simulated ones.
    pub(super) const fn is_simulated(&self) -> bool {
        matches!(self.kind, Kind::Simulated { .. })
    }

    /// What programs need in their environment to find this machine's driver; `library_folder` is where the simulated
    /// one lies for them, `server` where its server does.
    pub(super) fn environment(&self, library_folder: PathBuf, server: PathBuf) -> Vec<(OsString, OsString)> {
        let mut variables: Vec<(OsString, OsString)> =
            std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on)).collect();
        match &self.kind {
            Kind::Real { server } => {
                for (_, value) in variables.iter_mut().filter(|(name, _)| name == "LD_LIBRARY_PATH") {
                    *value = without(&self.build_folder, value);
                }
                variables.push(("MPS_SERVER_BINARY".into(), server.into()));
            }
            Kind::Simulated { .. } => {
                if variables.iter().all(|(name, _)| name != "MPS_SIM_FAULT_MS") {
                    variables.push(("MPS_SIM_FAULT_MS".into(), SIMULATED_SPREAD_MS.into()));
                }
                variables.retain(|(name, _)| name != "LD_LIBRARY_PATH");
                variables.push(("LD_LIBRARY_PATH".into(), library_folder.into()));
                variables.push(("MPS_SERVER_BINARY".into(), server.into()));
                variables.push(("MPS_PERSONALITY".into(), SIMULATED_RELEASE.into()));
            }
        }
        variables
    }
}

/// Limits and daemons that somebody has set for other programs must not change what is shown.
fn is_passed_on(name: &str) -> bool {
    ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "MPS_TEST_PATIENCE"]
        .contains(&name)
        || ["NVIDIA_", "MPS_SIM_"].iter().any(|start| name.starts_with(start))
}

/// A search path without the folders in `folder`.
fn without(folder: &Path, search_path: &OsStr) -> OsString {
    let kept = std::env::split_paths(search_path).filter(|path| !path.starts_with(folder));
    std::env::join_paths(kept).expect("the parts came out of such a path")
}

fn find_server(path: Option<OsString>) -> Option<PathBuf> {
    let path = path.unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SERVER_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(SERVER))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_folder_is_taken_out_of_the_library_path() {
        let path = OsStr::new("/b/release/deps:/usr/local/nvidia/lib64:/b/release:/bb");
        assert_eq!(without(Path::new("/b"), path), OsStr::new("/usr/local/nvidia/lib64:/bb"));
        assert_eq!(without(Path::new("/b"), OsStr::new("/b/release")), OsStr::new(""));
    }
}
