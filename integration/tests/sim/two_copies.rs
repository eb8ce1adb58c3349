//! Two living copies of the driver in one process, each with a server of its own: what a spare stands on. The rules are
//! those that were measured on an H200, here of the simulated driver, with the daemon under test behind each copy.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::sim::{Sim, find_event};
use integration::under_test::{for_each, subjects};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn a_second_copy_with_a_server_of_its_own_goes_on_with_the_same_memory_at_once() {
    for_each(subjects(), |subject| {
        let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
        let like = benches[0].command("mps-bystander", &[]);
        let copies = benches[0].lab.dir().join("copies");
        fs::create_dir(&copies).expect("the bench's folder is ours");
        let mut command = Command::new("python3");
        command.arg(Path::new(FOLDER).join("tests/sim/two_copies.py")).arg(integration::sim::library());
        command.args(benches.each_ref().map(|bench| bench.lab.pipe_dir()));
        command.arg(Path::new(FOLDER).join("src/programs/kernels.ptx")).arg(&copies).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("PATH", "/usr/bin:/bin");
        let program = Process::start(&mut command);
        let dir = benches[0].lab.dir();
        let is_there = |event| find_event(&program.output(), event);
        wait_for(dir, dir, LIMIT, "both live", || is_there("ready").is_some());
        let ready = json!({
            "event": "ready",
            "same_name": 304,
            "without_its_place": 0,
            "late_has_the_place": false,
            "spare_has_the_place": true,
            "seen": [[2], [3], [4]],
        });
        assert_eq!(is_there("ready"), Some(ready), "{subject}");
        // Each copy has a server of its own.
        assert_ne!(benches[0].server(), benches[1].server(), "{subject}");

        let culprit = benches[0].start("mps-aggressor", &["oob"], "launched");
        wait_for(dir, dir, LIMIT, "the second goes on", || is_there("switched").is_some());
        let switched = json!({ "event": "switched", "error": 700, "at_rest": true, "again": [0, 0, 0], "right": true, "first": 700 });
        assert_eq!(is_there("switched"), Some(switched), "{subject}");
        assert_eq!(benches[0].finish(program).code, Some(0), "{subject}");
        let _its_own_error = benches[0].finish(culprit);
    });
}
