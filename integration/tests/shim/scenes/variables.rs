//! Variables of modules, of programs at rest and of those that say nothing.

use super::*;

#[test]
fn what_kernels_have_written_to_variables_and_constants_of_a_program_at_rest_is_there_without_a_word() {
    for name in ["constants", "variables"] {
        once(|subject| {
            let line = play(subject, name, 1, &[]);
            assert_eq!(line["heard"], json!({ "rest": true, "told": [0, 0], "first": 2 }), "{subject}: {name}: {line}");
            assert_eq!(line["recovery"]["modules_anew"], 0, "{subject}: {name}: {line}");
        });
    }
    is_unaware("untouched-constants");
}

#[test]
fn a_program_that_says_nothing_is_looked_at_when_it_gives_no_work() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let mut command = shim::recording(sim.command("mps-replay-probe", &["--scene", "variables-watched"]));
        let probe = Process::start(command.env("MPS_SHIM_REPLAY", "in-place").env("MPS_SHIM_LOG", "1"));
        let dir = sim.lab.dir();
        wait_for(dir, dir, LIMIT, "a look", || probe.errors().contains("at rest: 2 variables of 2048 bytes were read"));
        kill(Pid::from_raw(sim.server()), Signal::SIGKILL).expect("it runs");
        let finished = probe.finish(LIMIT).expect("it ends");
        let line = find_event(&finished.stdout_text(), "scene").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!(line["heard"], json!({ "told": [0, 0], "first": 2 }), "{subject}: {line}");
        assert_eq!(line["recovery"]["modules_anew"], 0, "{subject}: {line}");
    });
}

/// The driver refuses to read the first one the first time.
#[test]
fn why_variables_were_not_read_is_said_and_how_long_it_took() {
    /// How long the driver takes to copy a variable, of which there are two.
    const COPY_MS: u128 = 30;
    once(|subject| {
        let (copy, fails) = (COPY_MS.to_string(), "1:cuMemcpyDtoHAsync_v2");
        let sim = Sim::started(subject, &[("MPS_SIM_COPY_MS", &copy), ("MPS_SIM_FAIL_AT", fails)]);
        let mut command = shim::recording(sim.command("mps-replay-probe", &["--scene", "variables-watched"]));
        let probe = Process::start(command.env("MPS_SHIM_REPLAY", "in-place").env("MPS_SHIM_LOG", "1"));
        // Between these texts of one line.
        let time_of = |before: &str, behind: &str| {
            let said = probe.errors();
            let line = said.lines().find_map(|line| line.split_once(before))?.1;
            line.strip_suffix(behind)?.parse::<u128>().ok()
        };
        let not_read = || time_of("variables not read: the driver has refused (", " ms)");
        let read = || time_of("at rest: 2 variables of 2048 bytes were read in ", " ms, 0 modules not");
        let dir = sim.lab.dir();
        wait_for(dir, dir, LIMIT, "a look that fails, and one that does not", || {
            not_read().is_some() && read().is_some()
        });
        assert!(read() >= Some(2 * COPY_MS), "{subject}: {}", probe.errors());
        assert!(not_read() >= Some(COPY_MS), "{subject}: {}", probe.errors());
        kill(Pid::from_raw(sim.server()), Signal::SIGKILL).expect("it runs");
        let finished = probe.finish(LIMIT).expect("it ends");
        let line = find_event(&finished.stdout_text(), "scene").unwrap_or_else(|| panic!("{subject}: {finished:?}"));
        assert_eq!(line["heard"], json!({ "told": [0, 0], "first": 2 }), "{subject}: {line}");
    });
}

#[test]
fn a_module_does_not_end_while_its_variables_are_read() {
    once(|subject| {
        let line = play(subject, "unloaded-while-read", 0, &[("MPS_SIM_COPY_MS", "20")]);
        assert_eq!(line["heard"]["answers"], json!([0]), "{subject}: {line}");
        assert!(line["heard"]["met"].as_u64() > Some(0), "{subject}: nobody was in the way: {line}");
    });
}

#[test]
fn variables_that_nobody_can_look_for_are_told() {
    once(|subject| {
        let line = play(subject, "variables-unread", 1, &[]);
        let expected = json!({ "rest": false, "told": [DIED, 0], "first": 1 });
        assert_eq!(line["heard"], expected, "{subject}: {line}");
        assert_eq!(line["recovery"]["modules_anew"], 1, "{subject}: {line}");
    });
}
