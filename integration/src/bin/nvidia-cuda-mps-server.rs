//! The simulated `nvidia-cuda-mps-server`; see [`integration::server_sim`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::server_sim::run()
}
