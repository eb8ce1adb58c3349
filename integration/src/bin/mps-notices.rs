//! See [`integration::programs::notices`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::notices::run(std::env::args().skip(1))
}
