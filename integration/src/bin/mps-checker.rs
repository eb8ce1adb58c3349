//! See [`integration::programs::checker`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::checker::run(std::env::args().skip(1))
}
