//! The child process that tells how much GPU memory processes have: loads `libnvidia-ml.so.1`, prints a line of JSON a
//! process and GPU, ends.
//!
//! The numbers are the driver's own account, as `nvidia-smi` shows it; under MPS it books a client's memory to the
//! client and a server's own to the server.

use super::ProbedUsage;
use super::nvml::{Nvml, NvmlError};
use super::print_rows;

fn usage() -> Result<Vec<ProbedUsage>, NvmlError> {
    let nvml = Nvml::open(None)?;
    let mut rows = Vec::new();
    for gpu in nvml.gpus()? {
        let processes = gpu.processes().unwrap_or_default();
        let told = processes.iter().filter_map(|row| Some(ProbedUsage { pid: row.pid, bytes: row.bytes? }));
        rows.extend(told);
    }
    Ok(rows)
}

/// Prints the account on standard output, or the reason why there is none on standard error; returns the exit status.
#[must_use]
pub(crate) fn run() -> u8 {
    print_rows(usage())
}
