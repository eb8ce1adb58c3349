//! See [`integration::programs::cost`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::cost::run(std::env::args().skip(1))
}
