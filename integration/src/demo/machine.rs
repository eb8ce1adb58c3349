//! What this machine has: a GPU with NVIDIA's driver, server and daemon, or nothing, and then the simulated ones.

use super::DemoError;
use super::folder::Folder;
use super::part;
use super::story::Side;
use crate::lab::process::run;
use remps_controld::parts::devices::LOOK_ARGUMENT;
use remps_controld::parts::devices::{PROBE_ARGUMENT, ProbedDevice};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A cold driver takes seconds to initialise several GPUs.
const PROBE_LIMIT: Duration = Duration::from_secs(30);
/// Where NVIDIA's programs are looked for beside `PATH`.
const FOLDERS: [&str; 4] = ["/usr/local/nvidia/bin", "/usr/bin", "/usr/sbin", "/bin"];
/// What our daemon is found beside when it has taken the vendor's place, as README has it.
const KEPT_SUFFIX: &str = ".nvidia";
/// A word that our program has in it and NVIDIA's has not.
const OURS: &[u8] = b"events.jsonl";
/// Names NVIDIA's control program, where it lies elsewhere.
const THEIRS: &str = "MPS_THEIRS";
/// Where tests have put what they fetched of NVIDIA's, beside the folder of cargo's profile.
const FETCHED: &str = "vendor/550/usr/bin/nvidia-cuda-mps-control";
/// Needed to read another process's descriptors (`capability.h`).
const SYS_PTRACE: u32 = 19;

/// Which daemon is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    /// Ours.
    Ours,
    /// NVIDIA's own.
    Theirs(PathBuf),
    /// What stands in for NVIDIA's.
    Simulated,
}

/// What one run is played with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The daemon.
    pub(super) control: Control,
    /// NVIDIA's server, or `None` for the simulated driver and server.
    pub(super) server: Option<PathBuf>,
    /// Both in words.
    pub(super) words: String,
}

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    /// The names of the real GPUs and NVIDIA's server for them; or why they are not used.
    pub(super) real: Result<(Vec<String>, PathBuf), String>,
    /// NVIDIA's control program, or why it is not used.
    theirs: Result<PathBuf, String>,
}

impl Machine {
    /// Looks around; child processes do it, so that no driver library is loaded into this one. `simulated` leaves a GPU
    /// alone, `regardless` uses one that others use, too.
    pub(super) fn find(folder: &Folder, simulated: bool, regardless: bool) -> Result<Self, DemoError> {
        let real = if simulated { Err("asked for".to_owned()) } else { find_gpu(folder, regardless)? };
        let fetched = folder.build().parent().map(|target| target.join(FETCHED));
        let named = std::env::var_os(THEIRS).map(PathBuf::from);
        let on_path = [part::CONTROL.to_owned(), format!("{}{KEPT_SUFFIX}", part::CONTROL)];
        let on_path = on_path.iter().flat_map(|name| places().into_iter().map(move |place| place.join(name)));
        let theirs = named.into_iter().chain(on_path).chain(fetched).find(|path| is_theirs(path));
        Ok(Self { real, theirs: theirs.ok_or_else(|| "it is not on this machine".to_owned()) })
    }

    /// Whether NVIDIA's daemon plays itself.
    pub(super) const fn has_theirs(&self) -> bool {
        self.theirs.is_ok()
    }

    /// NVIDIA's daemon could not be played with: what stands in for it plays its part.
    pub(super) fn without_theirs(self, reason: &str) -> Self {
        Self { theirs: Err(format!("NVIDIA's own could not be played with ({reason})")), ..self }
    }

    /// What a side is played with.
    pub(super) fn setting(&self, side: Side) -> Setting {
        let gpus = match &self.real {
            Ok((gpus, _)) => format!("NVIDIA's driver and servers on {}", gpus.join(", ")),
            Err(reason) => format!("simulated driver and servers ({reason})"),
        };
        let server = self.real.as_ref().ok().map(|(_, server)| server.clone());
        match (side, &self.theirs) {
            (Side::Remps, _) => Setting { control: Control::Ours, server, words: gpus },
            (Side::Nvidia, Ok(path)) => {
                let words = format!("NVIDIA's own {}, {gpus}", path.display());
                Setting { control: Control::Theirs(path.clone()), server, words }
            }
            (Side::Nvidia, Err(reason)) => {
                let words = format!("a simulation of it, since {reason}, and of driver and servers");
                Setting { control: Control::Simulated, server: None, words }
            }
        }
    }

    /// Why nobody can be named with proof on this machine.
    pub(super) fn no_proof(&self) -> Option<&'static str> {
        let tools = fs::OpenOptions::new().read(true).open("/dev/nvidia-uvm-tools");
        (self.real.is_ok() && tools.is_err()).then_some("/dev/nvidia-uvm-tools can't be opened here")
    }
}

/// Whether one process of a user may look at another: else programs hand over what is needed for a proof.
pub(super) fn may_look_at_others() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let restriction = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    mask.is_some_and(|mask| mask & (1 << SYS_PTRACE) != 0) || matches!(restriction.trim(), "" | "0")
}

/// The GPUs and the server, or why they are not to be used.
fn find_gpu(folder: &Folder, regardless: bool) -> Result<Result<(Vec<String>, PathBuf), String>, DemoError> {
    let ask = |argument: &str| {
        let mut command = Command::new(folder.program(part::CONTROL));
        // Without the variable the probe would be a client of whatever daemon runs on this machine.
        command.arg(argument).env("CUDA_MPS_PIPE_DIRECTORY", "/proc/self/no-mps");
        super::stage::without_build_folder(&mut command, folder.build());
        run(&mut command, b"", PROBE_LIMIT).map_err(DemoError::system("look for a GPU"))
    };
    let probe = ask(PROBE_ARGUMENT)?;
    if probe.code != Some(0) {
        let error = probe.stderr_text();
        return Ok(Err(error.lines().next().unwrap_or("no GPU was found").to_owned()));
    }
    let devices = probe.stdout_text();
    let devices = devices.lines().filter_map(|line| serde_json::from_str::<ProbedDevice>(line).ok());
    let devices: Vec<String> = devices.map(|device| device.name).collect();
    if devices.is_empty() {
        return Ok(Err("the driver lists no GPU".to_owned()));
    }
    let Some(server) = places().into_iter().map(|place| place.join(part::SERVER)).find(|file| file.is_file()) else {
        return Ok(Err(format!("there is a GPU but no {}", part::SERVER)));
    };
    let rows = ask(LOOK_ARGUMENT)?.stdout_text();
    let rows: Vec<Value> = rows.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let in_the_way = in_the_way(&rows, regardless).or_else(|| (!regardless).then(other_daemon).flatten());
    Ok(in_the_way.map_or(Ok((devices, server)), Err))
}

/// What of these GPUs forbids a play with faults.
fn in_the_way(rows: &[Value], regardless: bool) -> Option<String> {
    let exclusive = rows.iter().find(|row| row["mode"].as_u64().is_some_and(|mode| mode != 0));
    if let Some(row) = exclusive {
        return Some(format!("GPU {} is in an exclusive compute mode, with one server at a time", row["index"]));
    }
    let user = rows.iter().find_map(|row| Some((row, row["outside"].as_array()?.first()?)));
    user.filter(|_| !regardless).map(|(row, user)| {
        let command = user["command"].as_str().unwrap_or("somebody");
        format!("{command} uses GPU {}, and a fault would slow it down; --real uses the GPU all the same", row["index"])
    })
}

/// An MPS daemon or server of somebody else's.
fn other_daemon() -> Option<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_mps = |path: &Path| {
        // The kernel has the first 15 letters of a name.
        let is_named = fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == &part::CONTROL[..15]);
        // One that has ended, and that nobody has waited for, has no command line: containers are full of them.
        is_named && fs::read(path.join("cmdline")).is_ok_and(|words| !words.is_empty())
    };
    let found = entries.map(|entry| entry.path()).find(|path| is_mps(path))?;
    let pid = found.file_name()?.to_string_lossy().into_owned();
    Some(format!("MPS runs here (pid {pid}), whose programs a fault would slow down; --real uses the GPU all the same"))
}

fn places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from)).collect()
}

/// Whether a file is a program, and not ours under NVIDIA's name.
fn is_theirs(path: &Path) -> bool {
    path.is_file()
        && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
        && fs::read(path).is_ok_and(|bytes| !bytes.windows(OURS.len()).any(|window| window == OURS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_gpu_that_others_use_or_that_is_exclusive_is_left_alone() {
        let free = json!({ "index": 0, "mode": 0, "outside": [] });
        let used = json!({ "index": 1, "mode": 0, "outside": [{ "command": "train" }] });
        let exclusive = json!({ "index": 2, "mode": 3, "outside": null });
        assert_eq!(in_the_way(std::slice::from_ref(&free), false), None);
        let reason = in_the_way(&[free, used.clone()], false).expect("it is used");
        assert!(reason.starts_with("train uses GPU 1"), "{reason}");
        assert_eq!(in_the_way(std::slice::from_ref(&used), true), None);
        assert!(in_the_way(&[used, exclusive], true).is_some_and(|reason| reason.starts_with("GPU 2")));
    }

    #[test]
    fn our_own_program_is_not_taken_for_the_vendors() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str, mode| {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.path().join(name);
            fs::write(&path, text).expect("it is ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            path
        };
        assert!(is_theirs(&put("theirs", "\u{7f}ELF and so on", 0o755)));
        assert!(!is_theirs(&put("ours", "\u{7f}ELF … events.jsonl …", 0o755)));
        assert!(!is_theirs(&put("text", "\u{7f}ELF", 0o644)));
        assert!(!is_theirs(&folder.path().join("none")));
    }
}
