//! See [`integration::programs::first_alloc`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::programs::first_alloc::run(std::env::args().skip(1))
}
