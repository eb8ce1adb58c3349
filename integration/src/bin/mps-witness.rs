//! See [`integration::programs::witness`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::witness::run(std::env::args().skip(1))
}
