//! See [`integration::programs::ipc_probe`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::ipc_probe::run(std::env::args().skip(1))
}
