//! See [`integration::programs::survivor`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::survivor::run(std::env::args().skip(1))
}
