//! See [`integration::programs::replay_probe`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::replay_probe::run(std::env::args().skip(1))
}
