//! A stand-in for NVIDIA's `nvidia-cuda-mps-server` on machines without a GPU.
//!
//! It is started by a control daemon like the real one (found on `PATH`, argv `["nvidia-cuda-mps-server", ""]` or
//! `"-multiuser-server"`, `CUDA_MPS_PIPE_DIRECTORY` set, the client's uid), speaks the real wire
//! (`remps_proto::mps`), writes the real records into the log FIFO in the real order, and treats faults as a real
//! server was measured to (driver 580.159.04, one H200): everyone on the device gets the error, the log names a wrong
//! culprit, newcomers get 807 until the last affected context has gone. It ends when its control socket closes, and of
//! SIGINT at once.
//!
//! Tests script it by variables, in the environment or in the file that `MPS_SIM_SCRIPT` names
//! ([`sim_wire::script`]):
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `MPS_SIM_DEVICES` | number or comma-separated names of the GPUs | one `NVIDIA H200` |
//! | `MPS_SIM_MIG` | MIG instances, as `GPU:INSTANCE,…` | none |
//! | `CUDA_VISIBLE_DEVICES` | which of them it has | all whole GPUs |
//! | `MPS_SIM_INIT_MS` | time from the greeting to the role | 20 |
//! | `MPS_SIM_INIT_GATE` | a FIFO: the role comes when somebody has opened it for writing, however long that takes | none |
//! | `MPS_SIM_STARTS` | file that gets one line with the pid at each start | none |
//! | `MPS_SIM_STDERR` | text for standard error at start | none |
//! | `MPS_SIM_EXIT_STATUS` | exit with this status at once | lives |
//! | `MPS_SIM_EXIT_FIRST` | only the first so many starts in `MPS_SIM_STARTS` exit that way | all |
//! | `MPS_SIM_HANG` | `start`: before connecting, `role`: after the greeting, `hello`: after the role | none |
//! | `MPS_SIM_HANG_REQUEST` | number of the request that is read and never answered | none |
//! | `MPS_SIM_CRASH_AT_CLIENTS` | dies of SIGKILL when it accepts the client process of this number | never |
//! | `MPS_SIM_MAX_CLIENTS` | client processes beyond this get 808 | 60 |
//! | `MPS_SIM_FAULT_MS` | from a fault to the other clients' error | 15 |
//! | `MPS_SIM_FAULT_AFTER_CULPRIT` | 1: the other clients have the error when the culprit has gone, however long that takes | 0 |
//! | `MPS_SIM_TRAPS_UNTOLD` | 1: after a trap the other clients hear of nothing as long as the server lives, as measured for 95 to 370 ms | 0 |
//! | `MPS_SIM_FAULT_AT`, `MPS_SIM_FAULT_AT_CONNECTION` | a trap of somebody else on the first device at this step (`status`, `told`, `greeted`, `credentials`) of the client connection of this number | none |
//! | `MPS_SIM_HANG_WITH_STOPPED` | 1: a trap of which a victim is stopped hangs the server until the victim goes on or dies, as measured: it answers nothing, greets nobody and writes nothing | 0 |
//! | `MPS_SIM_BINARY_VERSION`, `MPS_SIM_DRIVER_VERSION` | as logged | 13000, 580 |

mod behaviour;
mod connection;
mod event_loop;
mod faults;
pub(crate) mod log;
mod requests;
mod startup;

use log::Log;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use sim_wire::script::Script;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// The vendor's default pipe directory.
const DEFAULT_PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";

/// Why the server can't go on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// A system call failed.
    #[error("{what}: {errno}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error.
        #[source]
        errno: nix::errno::Errno,
    },
    /// The daemon said something that is not in the protocol.
    #[error("the daemon's packet")]
    Protocol(#[from] remps_proto::mps::DecodeError),
    /// The daemon is gone.
    #[error("the control socket was closed")]
    Closed,
}

fn system(what: &'static str) -> impl Fn(nix::errno::Errno) -> Failure {
    move |errno| Failure::System { what, errno }
}

/// Sets a signal's action to the default, which a parent may have changed.
#[expect(unsafe_code, reason = "sigaction is unsafe because of handlers; here is none")]
fn default_action(signal: Signal) {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this process.
    let result = unsafe { sigaction(signal, &action) };
    result.expect("a standard signal has a default action");
}

/// The whole server.
#[must_use]
pub fn run() -> ExitCode {
    default_action(Signal::SIGINT);
    let behaviour = behaviour::Behaviour::new(&Script::load());
    if let Some(status) = behaviour.at_start() {
        return ExitCode::from(status);
    }
    let directory = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY")
        .filter(|directory| !directory.is_empty())
        .map_or_else(|| PathBuf::from(DEFAULT_PIPE_DIRECTORY), PathBuf::from);
    let log = Log::open(&directory);
    match startup::start(&directory, behaviour, log).and_then(event_loop::Server::serve) {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(failure) => {
            let cause = std::error::Error::source(&failure).map(|cause| format!(": {cause}")).unwrap_or_default();
            // Nobody may be listening; there is nobody else to tell.
            let _ = writeln!(std::io::stderr(), "nvidia-cuda-mps-server: {failure}{cause}");
            ExitCode::FAILURE
        }
    }
}
