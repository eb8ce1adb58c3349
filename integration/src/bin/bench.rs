//! Measures what the daemon, its holder and the preload library cost; see [`integration::bench`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::bench::run(std::env::args_os())
}
