//! See [`integration::programs::heir`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::heir::run(std::env::args().skip(1))
}
