//! The holder as a real process: what it keeps when daemons die, and what it never does.
//!
//! This program is all parties. As in the product, a daemon starts its own executable as the holder, and daemons that
//! are to be killed are this program too; so it has a `main` of its own.

#[cfg(test)]
mod accept;
#[cfg(test)]
mod alone;
#[cfg(test)]
mod attack;
#[cfg(test)]
mod daemon;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod manners;
#[cfg(test)]
mod racer;
#[cfg(test)]
mod survive;

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::Arguments;
use remps_controld::parts::holder::{ARGUMENT, process};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(ARGUMENT) => return process::run(Path::new(&arguments[2])),
        Some(daemon::ARGUMENT) => return daemon::run(&arguments[2..]),
        Some(hostile::ARGUMENT) => return hostile::run(&arguments[2..]),
        Some(racer::ARGUMENT) => return racer::run(&arguments[2..]),
        Some(_) | None => {}
    }
    // The holder of a killed daemon becomes our child, so that its exit status can be seen.
    nix::sys::prctl::set_child_subreaper(true).expect("every Linux since 3.4 has it");
    let mut trials = survive::trials();
    trials.extend(accept::trials());
    trials.extend(alone::trials());
    trials.extend(attack::trials());
    trials.extend(attack::starts::trials());
    trials.extend(hostile::trials());
    trials.extend(manners::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
