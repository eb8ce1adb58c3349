//! See [`integration::programs::memory_probe`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::memory_probe::run(std::env::args().skip(1))
}
