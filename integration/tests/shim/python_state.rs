//! The Python module `mps_state` on the simulated driver, with nothing but ctypes; it is installed as users do.

use integration::lab::LIMIT;
use integration::lab::escrow::TAKES_MEMORY_FILES;
use integration::lab::process::{Finished, run};
use integration::shim;
use integration::sim::Sim;
use integration::under_test::{Skipped, once};
use std::path::Path;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-shim/python");

/// The program with the module in its path.
fn program(sim: &Sim, what: &str, is_preloaded: bool) -> Finished {
    let like = sim.command("mps-heir", &[]);
    let mut command = Command::new("python3");
    command.arg(Path::new(FOLDER).join("tests/program.py")).arg(what).env_clear();
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1").env("PATH", "/usr/bin:/bin");
    if is_preloaded {
        command = shim::keeping(command);
        command.env("MPS_SHIM_NAME", "python").env_remove("MPS_SHIM_REPORT");
    }
    run(&mut command, b"", LIMIT).expect("python3 is there")
}

#[test]
fn a_python_program_commits_and_its_successor_adopts() {
    once(|subject| {
        let sim = Sim::new(subject, &[TAKES_MEMORY_FILES]);
        sim.lab.start(&[]);
        let plain = program(&sim, "plain", false);
        assert_eq!((plain.stdout_text().as_str(), plain.code), ("NotPreloaded False\n", Some(0)), "{plain:?}");
        let first = program(&sim, "first", true);
        assert_eq!((first.stdout_text().split(' ').next(), first.signal), (Some("committed"), Some(9)), "{first:?}");
        let next = program(&sim, "next", true);
        assert_eq!(next.code, Some(0), "{next:?}");
        let address = |text: String| text.split_whitespace().nth(1).map(str::to_owned);
        assert_eq!(address(next.stdout_text()), address(first.stdout_text()), "{next:?}");
    });
}

#[test]
fn the_helpers_for_pytorch_are_sound_where_it_is_installed() {
    let check = "import torch";
    let has_torch = Command::new("python3").args(["-c", check]).output().is_ok_and(|output| output.status.success());
    if !has_torch {
        return Skipped("there is no torch".to_owned()).report();
    }
    let mut command = Command::new("python3");
    command.args(["-c", "import mps_state.torch"]).env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1");
    let finished = run(&mut command, b"", LIMIT).expect("python3 is there");
    assert_eq!(finished.code, Some(0), "{finished:?}");
}
