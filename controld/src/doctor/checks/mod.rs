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
mod state;
mod strangers;

use super::Outcome;
use super::machine::Machine;

/// A check: its name in every output, and how it is made.
pub(super) type Check = (&'static str, fn(&Machine) -> Outcome);

/// Every check, in the order of the output: what is asked first when nothing works comes first. What each is about is
/// told by the command line's help, and [`crate::cli::CHECKS`] names the same ones.
pub(super) const CHECKS: &[Check] = &[
    ("daemon", daemon::daemon),
    ("stale-files", daemon::stale_files),
    ("other-daemons", daemon::other_daemons),
    ("config", daemon::config),
    ("metrics", metrics::metrics),
    ("driver", driver::driver),
    ("library", driver::library),
    ("server-program", programs::server_program),
    ("path", programs::path),
    ("devices", devices::devices),
    ("uvm-tools", devices::uvm_tools),
    ("patched-module", driver::patched_module),
    ("compute-mode", devices::compute_mode),
    ("mode-records", records::mode_records),
    ("strangers", strangers::strangers),
    ("persistence", devices::persistence),
    ("user", privileges::user),
    ("ptrace", privileges::ptrace),
    ("kill", privileges::kill),
    ("kmsg", privileges::kmsg),
    ("pid-namespace", namespaces::pid_namespace),
    ("user-namespace", namespaces::user_namespace),
    ("mount-namespace", namespaces::mount_namespace),
    ("shm", namespaces::shm),
    ("open-files", limits::open_files),
    ("locked-memory", limits::locked_memory),
    ("kernel", limits::kernel),
    ("pipe-directory", folders::pipe_directory),
    ("log-directory", folders::log_directory),
    ("state-directory", state::state_directory),
];
