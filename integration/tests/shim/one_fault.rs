//! What the GPU suite `spare` records of one fault, and the picture of it, here with the simulated driver; where there is
//! no vendor's daemon, ours without the preload library stands for it, since a program is lost with either.

use integration::lab::LIMIT;
use integration::lab::process::run;
use integration::shim;
use integration::sim::Sim;
use integration::under_test::{once, program};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gpu");

/// The suite's function with these programs, as `run` calls it.
const RECORD: &str = "
import json, pathlib, sys
import spare
from bench import Subject, prepare
control, library, programs, root = map(pathlib.Path, sys.argv[1:])
root.mkdir()
prepare(programs, root, spare.PROGRAMS)
ours, theirs = (Subject(name, control, root) for name in ('ours', 'theirs'))
try:
    print(json.dumps(spare.one_fault(ours, theirs, library)))
except Exception as error:
    sys.exit('\\n'.join([repr(error), *map(str, getattr(error, 'seen', []))]))
";

#[test]
fn one_fault_is_recorded_with_and_without_a_spare_copy_and_drawn() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let probe = program("mps-replay-probe");
        let mut command = Command::new("python3");
        command.args(["-B", "-c", RECORD]).arg(&subject.control).arg(shim::library());
        command.arg(probe.parent().expect("it is in a folder")).arg(sim.lab.dir().join("suite")).env_clear();
        let (of_driver, of_daemon) = (sim.command("mps-replay-probe", &[]), sim.lab.command(&[]));
        for environment in [of_daemon.get_envs(), of_driver.get_envs()] {
            command.envs(environment.filter_map(|(name, value)| Some((name, value?))));
        }
        let of_bench = of_daemon.get_envs().find_map(|(name, value)| value.filter(|_| name == "PATH"));
        let path = format!("{}:/usr/bin:/bin", of_bench.expect("it has the server's").display());
        command.env("PYTHONPATH", FOLDER).env("PATH", path);
        let recorded = run(&mut command, b"", LIMIT).expect("python3 is there");
        assert_eq!(recorded.code, Some(0), "{}", recorded.stderr_text());
        let result: Value = serde_json::from_str(&recorded.stdout_text()).expect("JSON");
        let ways = ["with a spare copy", "without one"].map(|way| result[way]["recovery"]["way"].as_u64());
        assert_eq!(ways, [Some(1), Some(0)], "{result:#}");
        assert_eq!(result["with the vendor's daemon"]["told"], 700, "{result:#}");
        let machine = json!({
            "gpus": ["Simulated GPU, 580.159.04, 81559 MiB, Default"], "kernel": "6.18", "cores": 2, "date": "2026-11-24",
        });
        let figures = json!({ "one_fault": { "about": "One fault.", "ok": true, "result": result, "seconds": 4.0 } });
        let report = sim.lab.dir().join("report.json");
        let text = json!({ "machine": machine, "checks": {}, "figures": figures }).to_string();
        fs::write(&report, text).expect("the bench's folder is ours");
        let picture = report.with_extension("svg");
        let drawn = draw(&report, &picture);
        assert_eq!(drawn, (Some(0), String::new()));
        let drawn = fs::read_to_string(&picture).expect("it was written");
        for words in
            ["One fault (oob)", "Simulated GPU, driver 580.159.04", "2026-11-24", "with a spare", "without one"]
        {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
    });
}

#[test]
fn a_report_without_a_fault_that_was_recorded_gives_no_picture() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let picture = sim.lab.dir().join("none.svg");
        // It has spreads of many faults, and none of them whole.
        let report = Path::new(FOLDER).join("../reports/2026-11-24-spare-stacks.json");
        let (code, said) = draw(&report, &picture);
        assert!(code == Some(1) && said.contains("no figure `one_fault`") && !picture.exists(), "{said}");
        let (code, said) = draw(&sim.lab.dir().join("nothing.json"), &picture);
        assert!(code == Some(1) && said.contains("nothing.json"), "{said}");
    });
}

/// The exit status of the generator, and what it says.
fn draw(report: &Path, picture: &Path) -> (Option<i32>, String) {
    let finished =
        run(Command::new(program("mps-fault-picture")).args([report, picture]), b"", LIMIT).expect("it is there");
    (finished.code, finished.stderr_text())
}
