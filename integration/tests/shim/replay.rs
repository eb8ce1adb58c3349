//! A program whose driver has died goes on with a fresh copy of it, to the last byte, or is told why it cannot.

mod fresh_copy;

use integration::lab::LIMIT;
use integration::lab::process::{Finished, Process, run};
use integration::shim;
use integration::sim::{Sim, error_of};
use integration::under_test::once;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::process::Command;

/// The probe with everything kept and recovered.
pub(super) fn replaying(sim: &Sim, arguments: &[&str]) -> Command {
    let mut command = shim::recording(sim.command("mps-replay-probe", arguments));
    command.env("MPS_SHIM_REPLAY", "in-place");
    command
}

pub(super) fn finished(command: &mut Command) -> Finished {
    run(command, b"", LIMIT).expect("the probe runs")
}

/// All lines of this event.
pub(super) fn events(finished: &Finished, event: &str) -> Vec<Value> {
    let lines = finished.stdout_text();
    let parsed = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["event"] == event).collect()
}

/// What the library says on standard error about a program that it has not recovered.
pub(super) fn reason(finished: &Finished) -> String {
    let text = finished.stderr_text();
    text.lines()
        .find_map(|line| line.split_once("not recovered from CUDA error "))
        .map(|(_, why)| why.to_owned())
        .unwrap_or_default()
}

pub(super) fn is_whole(finished: &Finished, recoveries: u64, context: &str) {
    assert_eq!(error_of(finished), None, "{context}: {}\n{}", finished.stdout_text(), finished.stderr_text());
    let ends = events(finished, "end");
    let [end] = ends.as_slice() else {
        panic!("{context}: {}\n{}", finished.stdout_text(), finished.stderr_text());
    };
    let said = (&end["is_intact"], end["recoveries"].as_u64());
    assert_eq!(said, (&true.into(), Some(recoveries)), "{context}: {end}\n{}", finished.stderr_text());
}

/// Four faults of its own in a row.
fn own_faults(sim: &Sim, more: &[&str], context: &str) {
    let arguments = [&["--faults", "oob,trap,misaligned,assert"], more].concat();
    let finished = finished(&mut replaying(sim, &arguments));
    is_whole(&finished, 4, context);
    for (fault, code) in events(&finished, "fault").iter().zip([700, 719, 716, 710]) {
        // The call that finds out, and each thread, is told once.
        assert_eq!((fault["answer"].as_u64(), fault["next"].as_u64()), (Some(code), Some(0)), "{context}: {fault}");
        assert_eq!(fault["threads"], serde_json::json!([[code, 0], [code, 0]]), "{context}: {fault}");
        assert_eq!(fault["recovery"]["lost_streams"], 1, "{context}: {fault}");
        assert_eq!(fault["recovery"]["error"], code, "{context}: {fault}");
    }
}

#[test]
fn a_program_goes_on_after_four_faults_of_its_own() {
    once(|subject| own_faults(&Sim::new(subject, &[]), &[], &format!("{subject} without MPS")));
}

#[test]
fn a_program_without_faults_sees_no_difference_and_neither_do_its_children() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        for arguments in [&[][..], &["--fork"]] {
            let facts = |mut command: Command| {
                let finished = finished(&mut command);
                assert_eq!(error_of(&finished), None, "{subject}: {finished:?}");
                let mut facts = events(&finished, "facts").remove(0);
                for varying in ["pid", "t_ms"] {
                    facts.as_object_mut().expect("a line is an object").remove(varying);
                }
                facts
            };
            let native = facts(sim.command("mps-memory-probe", arguments));
            let mut command = shim::recording(sim.command("mps-memory-probe", arguments));
            command.env("MPS_SHIM_REPLAY", "in-place");
            assert_eq!(facts(command), native, "{subject}: {arguments:?}");
        }
    });
}

#[test]
fn without_the_setting_a_fault_is_for_good() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let finished = finished(&mut shim::recording(sim.command("mps-replay-probe", &["--faults", "trap"])));
        assert_eq!(error_of(&finished), Some(719), "{subject}: {finished:?}");
        assert_eq!(reason(&finished), "", "{subject}");
    });
}

/// Faults of a neighbour, one after the other, each on a server of its own.
fn others_faults(subject: &integration::under_test::Subject, arguments: &[&str], is_unaware: bool) {
    let sim = Sim::started(subject, &[]);
    let kinds = [("oob", 700), ("trap", 719)];
    let count = kinds.len().to_string();
    let arguments = [&["--recoveries", count.as_str(), "--seconds", "600"], arguments].concat();
    let probe = Process::start(&mut replaying(&sim, &arguments));
    sim.wait_event(&probe, "ready");
    for (done, (kind, code)) in kinds.into_iter().enumerate() {
        assert_eq!(error_of(&sim.run("mps-aggressor", &[kind])), Some(code), "{subject}");
        let dir = sim.lab.dir();
        let recovered = || {
            let output = probe.output();
            let count = |event: &str| output.matches(&format!("\"event\":\"{event}\"")).count();
            count("recovered") > done || count("error") > 0
        };
        integration::lab::watch::wait_for(dir, dir, LIMIT, "a recovery", recovered);
    }
    let finished = probe.finish(LIMIT).expect("it ends");
    is_whole(&finished, 2, &subject.to_string());
    for recovered in events(&finished, "recovered") {
        assert_eq!(recovered["is_told_right"], true, "{subject}: {recovered}");
        if is_unaware {
            assert_eq!(recovered["recovery"]["lost_streams"], 0, "{subject}: {recovered}");
        }
    }
}

#[test]
fn pinned_memory_is_there_with_every_byte_after_faults() {
    once(|subject| {
        own_faults(&Sim::new(subject, &[]), &["--light", "--pinned"], &format!("{subject} without MPS"));
        others_faults(subject, &["--pinned"], false);
        others_faults(subject, &["--pinned", "--busy"], false);
    });
}

#[test]
fn arrays_are_there_with_every_byte_and_textures_with_their_values_after_faults() {
    once(|subject| {
        own_faults(&Sim::new(subject, &[]), &["--light", "--arrays"], &format!("{subject} without MPS"));
        others_faults(subject, &["--light", "--arrays"], false);
        others_faults(subject, &["--light", "--arrays", "--idle"], true);
        others_faults(subject, &["--light", "--arrays", "--busy"], false);
    });
}

#[test]
fn what_a_program_has_written_to_variables_is_there_after_faults() {
    once(|subject| {
        let arguments = ["--light", "--variable", "--library"];
        own_faults(&Sim::new(subject, &[]), &arguments, &format!("{subject} without MPS"));
        others_faults(subject, &arguments, false);
        others_faults(subject, &["--variable", "--busy"], false);
    });
}

#[test]
fn memory_pools_and_what_was_set_on_them_are_there_after_faults() {
    once(|subject| {
        own_faults(&Sim::new(subject, &[]), &["--light", "--pools"], &format!("{subject} without MPS"));
        others_faults(subject, &["--pools"], false);
    });
}

#[test]
fn kernels_and_functions_that_were_enumerated_are_there_after_faults() {
    once(|subject| {
        own_faults(&Sim::new(subject, &[]), &["--light", "--enumerated"], &format!("{subject} without MPS"));
        others_faults(subject, &["--light", "--enumerated"], false);
    });
}

#[test]
fn a_range_that_the_driver_does_not_put_where_it_is_wished_is_made_larger_and_had_again() {
    once(|subject| {
        let sim = Sim::new(subject, &[("MPS_SIM_WISHED_MIB", "64")]);
        own_faults(&sim, &["--light"], &format!("{subject} without MPS"));
    });
}

#[test]
fn a_linker_at_work_is_in_the_way_and_named() {
    once(|subject| {
        let refused = finished(&mut replaying(&Sim::new(subject, &[]), &["--faults", "trap", "--light", "--linker"]));
        assert_eq!(error_of(&refused), Some(719), "{subject}: {refused:?}");
        let told = "cuLinkCreate_v2: a linker at work is not begun again";
        assert!(reason(&refused).contains(told), "{subject}: {refused:?}");
    });
}

#[test]
fn an_event_for_other_processes_is_there_after_faults() {
    once(|subject| {
        own_faults(&Sim::new(subject, &[]), &["--light", "--shared-event"], &format!("{subject} without MPS"));
        others_faults(subject, &["--shared-event"], false);
    });
}

#[test]
fn what_is_set_on_contexts_and_streams_is_set_again_after_faults() {
    once(|subject| {
        own_faults(&Sim::new(subject, &[]), &["--light", "--settings"], &format!("{subject} without MPS"));
        others_faults(subject, &["--settings"], false);
    });
}

#[test]
fn graphs_do_after_faults_what_they_did_before() {
    once(|subject| {
        let all = ["--graph", "--pinned", "--variable", "--library"];
        own_faults(&Sim::new(subject, &[]), &all, &format!("{subject} without MPS"));
        others_faults(subject, &["--graph"], false);
        others_faults(subject, &["--graph", "--busy"], false);
    });
}

#[test]
fn a_graph_of_which_part_was_done_when_its_launch_failed_is_not_done_twice_in_silence() {
    once(|subject| {
        // In the second round, each of whose three graphs does several things.
        for launch in 4..=6 {
            let sim = Sim::new(subject, &[("MPS_SIM_TEAR_AT", &format!("1:cuGraphLaunch:{launch}"))]);
            let finished = finished(&mut replaying(&sim, &["--recoveries", "1", "--light", "--graph"]));
            is_whole(&finished, 1, &format!("{subject}: launch {launch}"));
            let recovered = events(&finished, "recovered");
            assert_eq!(
                (&recovered[0]["told"], &recovered[0]["is_told_right"]),
                (&719.into(), &true.into()),
                "{launch}"
            );
        }
    });
}

#[test]
fn a_program_goes_on_after_its_neighbours_faults() {
    once(|subject| others_faults(subject, &[], false));
}

#[test]
fn a_program_with_work_on_its_way_is_told_and_goes_on() {
    once(|subject| others_faults(subject, &["--busy"], false));
}

#[test]
fn a_program_goes_on_after_its_servers_death() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let probe = Process::start(&mut replaying(&sim, &["--recoveries", "1", "--seconds", "600"]));
        sim.wait_event(&probe, "ready");
        kill(Pid::from_raw(sim.server()), Signal::SIGKILL).expect("it runs");
        let finished = probe.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(events(&finished, "recovered")[0]["recovery"]["error"], 806, "{subject}");
    });
}

#[test]
fn work_lost_with_its_server_is_told_with_the_ranges_that_it_may_have_written() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let arguments = ["--idle", "--tail", "--recoveries", "1", "--seconds", "600"];
        let probe = Process::start(&mut replaying(&sim, &arguments));
        // Asked for before, since the first kernel takes 1.5 s and no longer.
        let server = Pid::from_raw(sim.server());
        sim.wait_event(&probe, "tail");
        // Under its work, of which nothing but the first kernel can have begun.
        kill(server, Signal::SIGKILL).expect("it runs");
        let finished = probe.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        let line = &events(&finished, "recovered")[0];
        let recovery = &line["recovery"];
        assert_eq!((line["told"].as_u64(), &line["is_told_right"]), (Some(806), &true.into()), "{subject}: {line}");
        assert_eq!((recovery["lost_streams"].as_u64(), recovery["lost_work"].as_u64()), (Some(1), Some(4)), "{line}");
        assert!(recovery["in_doubt"].as_u64() > Some(0), "{subject}: {line}");
        assert_eq!(recovery["in_doubt"], recovery["ranges_in_doubt"], "{subject}: {line}");
    });
}

#[test]
fn what_cannot_be_made_again_is_in_the_way_and_the_reason_is_told() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let refused = finished(&mut replaying(&sim, &["--faults", "trap", "--context", "--strange-graph"]));
        assert_eq!(error_of(&refused), Some(719), "{subject}: {refused:?}");
        assert!(reason(&refused).contains("cuCtxCreate_v4: "), "{subject}: {refused:?}");
        let of_graph = "cuGraphAddExternalSemaphoresSignalNode: a node of a graph is of a kind";
        assert!(reason(&refused).contains(of_graph), "{subject}: {refused:?}");
        let fault = &events(&refused, "fault")[0];
        assert_eq!((&fault["is_recovered"], fault["recovery"]["refused"].as_u64() > Some(0)), (&false.into(), true));
    });
}

#[test]
fn a_thread_that_does_not_come_out_of_the_driver_is_waited_for_in_bounds() {
    once(|subject| {
        let sim = Sim::new(subject, &[("MPS_SIM_STAY_AT", "1:cuStreamGetPriority")]);
        let refused = finished(&mut replaying(&sim, &["--faults", "trap", "--light", "--stuck"]));
        assert_eq!(error_of(&refused), Some(719), "{subject}: {refused:?}");
        assert!(reason(&refused).contains("1 threads do not come out of the driver"), "{subject}: {refused:?}");
    });
}
