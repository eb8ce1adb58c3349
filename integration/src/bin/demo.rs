//! Shows what the daemon does for its clients when one of them faults; see [`integration::demo`].

use std::process::ExitCode;

fn main() -> ExitCode {
    integration::demo::run(std::env::args_os().skip(1))
}
