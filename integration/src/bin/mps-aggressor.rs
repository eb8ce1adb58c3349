//! See [`integration::programs::aggressor`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::aggressor::run(std::env::args().skip(1))
}
