//! See [`integration::fault_picture`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::fault_picture::run(std::env::args().skip(1))
}
