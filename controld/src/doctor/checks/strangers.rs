//! Who uses the GPUs without MPS.

use crate::devices::gpus::{ProbedGpu, ProbedProcess};
use crate::doctor::Outcome;
use crate::doctor::machine::{Daemon, Machine, read};

/// The name of a server of MPS as the kernel keeps it.
const SERVER: &str = "nvidia-cuda-mps";

pub(super) fn strangers(machine: &Machine) -> Outcome {
    let gpus = match &machine.look {
        Ok(gpus) => gpus,
        Err(why) => return Outcome::unknown(why),
    };
    let of_gpu = |gpu: &ProbedGpu| -> Vec<String> {
        let outside = gpu.outside.as_deref().unwrap_or_default();
        outside.iter().filter_map(|process| stranger(machine, gpu, process)).collect()
    };
    let found: Vec<String> = gpus.iter().flat_map(of_gpu).collect();
    if !found.is_empty() {
        return Outcome::warning(
            format!("contexts outside MPS: {}", found.join(", ")),
            "they take turns with the servers, and in an exclusive compute mode no server starts beside them",
            "start them with CUDA_MPS_PIPE_DIRECTORY of the daemon; with compute_mode = \"manage\", \
             [gpu] strangers = \"end\" ends them",
        );
    }
    if gpus.iter().all(|gpu| gpu.outside.is_none()) {
        return Outcome::unknown("this driver does not tell who is a client of MPS");
    }
    Outcome::ok("nobody")
}

/// What is said of a process; `None` of a server, which is no client and no stranger.
fn stranger(machine: &Machine, gpu: &ProbedGpu, process: &ProbedProcess) -> Option<String> {
    let pid = process.pid;
    let is_known = match &machine.daemon {
        Daemon::Answers { servers, .. } => servers.iter().any(|(server, _)| *server == pid),
        Daemon::Absent | Daemon::StaleSocket | Daemon::Awaited | Daemon::Silent(_) => false,
    };
    let name = read(&machine.proc(format!("{pid}/comm"))).unwrap_or_default();
    let name: String = name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    (!is_known && name != SERVER).then(|| format!("{pid} ({name}) on GPU {}", gpu.index))
}
