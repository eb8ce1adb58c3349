//! The checks: each looks at one thing and gives one finding.

mod daemon;
mod devices;
mod driver;
mod folders;
mod limits;
mod metrics;
mod namespaces;
mod privileges;
mod programs;
mod records;
mod strangers;

use super::Outcome;
use super::machine::Machine;

/// A check.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    /// Its name in every output.
    pub id: &'static str,
    /// What it looks at.
    pub about: &'static str,
    pub(super) examine: fn(&Machine) -> Outcome,
}

const fn check(id: &'static str, about: &'static str, examine: fn(&Machine) -> Outcome) -> Check {
    Check { id, about, examine }
}

/// Every check, in the order of the output: what is asked first when nothing works comes first.
pub(crate) const CHECKS: &[Check] = &[
    check("daemon", "whether a daemon answers, and how its servers are", daemon::daemon),
    check("stale-files", "sockets and pid files that nobody stands behind", daemon::stale_files),
    check("other-daemons", "other control daemons on this machine", daemon::other_daemons),
    check("config", "mps-control.toml and the environment", daemon::config),
    check("metrics", "whether metrics are served where they are to be", metrics::metrics),
    check("driver", "the kernel module", driver::driver),
    check("library", "libcuda.so.1 against the kernel module", driver::library),
    check("server-program", "nvidia-cuda-mps-server", programs::server_program),
    check("path", "which nvidia-cuda-mps-control PATH leads to", programs::path),
    check("devices", "the device files that every client needs", devices::devices),
    check("uvm-tools", "the device file of the witness that names culprits", devices::uvm_tools),
    check("patched-module", "fault isolation in the kernel", driver::patched_module),
    check("compute-mode", "who may use the GPUs", devices::compute_mode),
    check("mode-records", "compute modes that wait to be given back", records::mode_records),
    check("strangers", "who uses the GPUs without MPS", strangers::strangers),
    check("persistence", "whether GPUs stay initialised", devices::persistence),
    check("user", "the daemon's user", privileges::user),
    check("ptrace", "the right to look into clients", privileges::ptrace),
    check("kill", "the right to end clients of other users", privileges::kill),
    check("kmsg", "the right to read the kernel's messages", privileges::kmsg),
    check("pid-namespace", "whether clients can be named", namespaces::pid_namespace),
    check("user-namespace", "whether users are who they are", namespaces::user_namespace),
    check("mount-namespace", "whether this is the daemon's pipe directory", namespaces::mount_namespace),
    check("shm", "/dev/shm, where server and clients meet", namespaces::shm),
    check("open-files", "the limit of descriptors", limits::open_files),
    check("locked-memory", "the limit of locked memory", limits::locked_memory),
    check("kernel", "what this kernel can tell of processes", limits::kernel),
    check("pipe-directory", "the folder of the sockets", folders::pipe_directory),
    check("log-directory", "the folder of the logs, and its room", folders::log_directory),
];
