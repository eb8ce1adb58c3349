//! See [`integration::programs::bystander`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::bystander::run(std::env::args().skip(1))
}
