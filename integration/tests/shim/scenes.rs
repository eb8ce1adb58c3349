//! What counts as evidence that work was done, what does not, and who is told of work that was lost: scenes of
//! `mps-replay-probe`, each on a server that is killed under its work.

mod captures;
mod contexts;
mod counted;
mod functions;
mod gpus;
mod graphs;
mod told;
mod unheard;
mod variables;

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::shim;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::{Skipped, Subject, once};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The error of a server's death.
pub(super) const DIED: u64 = 806;

/// Plays a scene, in which it is recovered `count` times; its line.
pub(super) fn play(subject: &Subject, name: &str, count: usize, variables: &[(&str, &str)]) -> Value {
    let sim = Sim::started(subject, variables);
    let mut command = shim::recording(sim.command("mps-replay-probe", &["--scene", name]));
    command.env("MPS_SHIM_REPLAY", "in-place");
    let probe = Process::start(&mut command);
    for done in 0..count {
        let dir = sim.lab.dir();
        let is_pending = || {
            let output = probe.output();
            output.matches("\"event\":\"pending\"").count() > done || output.contains("\"event\":\"error\"")
        };
        wait_for(dir, dir, LIMIT, "pending", is_pending);
        kill(Pid::from_raw(sim.server()), Signal::SIGKILL).expect("it runs");
    }
    let finished = probe.finish(LIMIT).expect("it ends");
    assert_eq!(error_of(&finished), None, "{subject}: {name}: {finished:?}");
    find_event(&finished.stdout_text(), "scene").unwrap_or_else(|| panic!("{subject}: {name}: {finished:?}"))
}

/// A scene in which work is lost though something was waited for.
fn is_told(name: &str, variables: &[(&str, &str)]) {
    once(|subject| {
        let line = play(subject, name, 1, variables);
        assert_eq!(line["heard"]["told"], json!([DIED, 0]), "{subject}: {name}: {line}");
        assert!(line["recovery"]["lost_streams"].as_u64() > Some(0), "{subject}: {name}: {line}");
        assert_ne!(line["heard"]["is_same"], false, "{subject}: {name}: the handle is given out again: {line}");
    });
}

/// A scene in which nothing is lost.
fn is_unaware(name: &str) {
    once(|subject| {
        let line = play(subject, name, 1, &[]);
        assert_eq!(line["heard"]["told"], json!([0, 0]), "{subject}: {name}: {line}");
        assert_eq!(line["recovery"]["lost_streams"], 0, "{subject}: {name}: {line}");
    });
}

#[test]
fn a_wait_of_one_thread_says_nothing_of_another_ones_default_stream() {
    once(|subject| {
        let line = play(subject, "threads", 1, &[]);
        let heard = &line["heard"];
        assert_eq!((&heard["before"], &heard["left"]), (&json!([0, 0, 0, 0]), &json!([true, [0, 0]])), "{line}");
        assert_eq!((&heard["other"], &heard["told"]), (&json!([DIED, 0]), &json!([DIED, 0])), "{subject}: {line}");
        assert_eq!(line["recovery"]["lost_streams"], 1, "{subject}: {line}");
    });
}

#[test]
fn an_event_says_nothing_of_what_another_one_with_its_handle_was_recorded_behind() {
    is_told("event-again", &[]);
}

#[test]
fn an_event_says_nothing_of_what_it_was_recorded_behind_before() {
    is_told("event-elsewhere", &[]);
    is_told("event-of-a-graph", &[]);
}

#[test]
fn a_wait_for_a_context_says_nothing_of_another_one() {
    let two = [("MPS_SIM_DEVICES", "2")];
    is_told("other-context", &two);
    is_told("stream-again", &two);
    is_told("pushed-context", &[]);
}

/// NVIDIA's driver takes the handle of one that a dead copy has made for a context of its own.
#[test]
fn contexts_that_have_ended_are_not_on_a_threads_stack_after_a_recovery() {
    once(|subject| {
        let line = play(subject, "ended-contexts", 1, &[]);
        assert_eq!(line["heard"], json!({ "stack": [true], "told": [DIED, 0] }), "{subject}: {line}");
    });
}

#[test]
fn a_copy_of_nothing_says_nothing() {
    is_told("empty-copy", &[]);
}

#[test]
fn what_was_waited_for_was_not_lost_however_many_streams_there_were() {
    is_unaware("finished");
    is_unaware("many-streams");
    is_unaware("too-many-streams");
}

#[test]
fn who_waits_for_lost_work_of_others_is_told_once() {
    once(|subject| {
        let line = play(subject, "consumers", 1, &[]);
        let heard = &line["heard"];
        for name in ["early", "late_event", "late_wait", "late_stream", "behind_it", "own", "late_chain"] {
            assert_eq!(heard[name], json!([DIED, 0]), "{subject}: {name}: {line}");
        }
        for name in ["sound_event", "recorded_again"] {
            assert_eq!(heard[name], json!([0, 0]), "{subject}: {name}: {line}");
        }
    });
}

/// All of them use a stream that has lost nothing.
#[test]
fn a_thread_is_told_in_the_place_of_the_one_that_has_begun_it_until_one_of_them_was() {
    once(|subject| {
        let line = play(subject, "children-of-threads", 1, &[]);
        let (told, unaware) = (json!([DIED, 0]), json!([0, 0]));
        let heard = json!({
            "was_there": told, "of_told": unaware, "of_untold": [told, told], "of_silent": unaware, "later": unaware,
            "strangers": [told, unaware], "own": told,
        });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

#[test]
fn calls_whose_errors_programs_ignore_succeed_and_the_next_one_tells() {
    once(|subject| {
        let line = play(subject, "ignored", 1, &[]);
        assert_eq!(line["heard"]["calls"], json!([0, 0, 0, 0, 0, 0]), "{subject}: {line}");
        assert_eq!(line["heard"]["told"], json!([DIED, 0]), "{subject}: {line}");
    });
}

#[test]
fn what_a_profiler_asks_when_the_driver_calls_it_waits_for_nobody_who_has_closed_the_gate() {
    once(|subject| {
        let line = play(subject, "asked-at-rest", 0, &[("MPS_SIM_CALLS_BACK", "cuStreamQuery")]);
        assert_eq!(line["heard"]["rest"], true, "{subject}: {line}");
        // In the copy that dies, in the one that takes its place, and in a thread that waits for another GPU.
        for (function, devices) in [("cuMemUnmap", "1"), ("cuDevicePrimaryCtxRetain", "1"), ("cuCtxSynchronize", "2")] {
            let line = play(subject, "finished", 1, &[("MPS_SIM_CALLS_BACK", function), ("MPS_SIM_DEVICES", devices)]);
            assert_eq!(line["heard"]["told"], json!([0, 0]), "{subject}: {function}: {line}");
        }
    });
}

#[test]
fn code_from_a_file_is_what_the_file_had_when_it_was_loaded() {
    once(|subject| {
        let line = play(subject, "module-of-a-file", 1, &[]);
        assert_eq!(line["heard"], json!({ "told": [0, 0], "first": 2 }), "{subject}: {line}");
        assert_eq!(line["recovery"]["modules_anew"], 0, "{subject}: {line}");
    });
}

#[test]
fn a_program_in_the_middle_of_a_capture_is_not_recovered_whatever_else_it_ends() {
    once(|subject| {
        let line = play(subject, "capture", 1, &[]);
        let heard = &line["heard"];
        assert_eq!((&heard["found"], &heard["again"]), (&json!(DIED), &json!(DIED)), "{subject}: {line}");
        assert!(heard["before"].as_u64() > Some(0), "{subject}: the end of no capture fails: {line}");
        assert_eq!(line["recovery"]["count"], 0, "{subject}: {line}");
    });
}

#[test]
fn host_memory_that_lost_work_may_have_written_is_in_doubt_until_the_program_has_read_that() {
    once(|subject| {
        let line = play(subject, "host-memory", 3, &[]);
        let heard = &line["heard"];
        assert_eq!(heard["told"], json!([DIED, 0]), "{subject}: {line}");
        assert_eq!((&heard["has_host"], &heard["has_device"]), (&true.into(), &true.into()), "{subject}: {line}");
        assert_eq!((&heard["is_same"], &heard["after_it_was_read"]), (&true.into(), &0.into()), "{subject}: {line}");
        assert_eq!(heard["sound"], 0, "{subject}: {line}");
    });
}

/// Plays a scene with faults of the program's own, without MPS; its line.
fn play_alone(subject: &Subject, name: &str, variables: &[(&str, &str)]) -> Value {
    let sim = Sim::new(subject, variables);
    let finished = super::replay::finished(&mut super::replay::replaying(&sim, &["--scene", name]));
    assert_eq!(error_of(&finished), None, "{subject}: {name}: {finished:?}");
    find_event(&finished.stdout_text(), "scene").unwrap_or_else(|| panic!("{subject}: {name}: {finished:?}"))
}

/// What scenes with faults of the program's own answer on a GPU, where `integration/gpu/run --suite replay` plays them: by
/// name, with how many GPUs they need.
const ON_A_GPU: &str = include_str!("../../goldens/scenes.json");

/// Plays such a scene, which answers the same here; its line.
fn is_as_on_a_gpu(subject: &Subject, name: &str) -> Value {
    let all: Value = serde_json::from_str(ON_A_GPU).expect("it is JSON");
    let scene = &all[name];
    let line = play_alone(subject, name, &[("MPS_SIM_DEVICES", &scene["devices"].to_string())]);
    assert_eq!(line["heard"], scene["heard"], "{subject}: {name}: {line}");
    line
}

/// What a call answers that finds a fault of the program's own, and the next one.
const FOUND: [u32; 2] = [719, 0];

/// Where a kernel's arguments lie is asked once for each function, which ends with its module.
#[test]
fn a_function_with_the_handle_of_one_that_has_ended_has_arguments_of_its_own() {
    once(|subject| {
        let line = play_alone(subject, "handle-again", &[]);
        let heard = &line["heard"];
        assert_eq!(heard["again"], true, "{subject}: {line}");
        assert_eq!((&heard["launched"], &heard["waited"]), (&json!(1), &json!(0)), "{subject}: {line}");
        // As it is in the image, and counted up once since.
        assert_eq!(heard["first"], 2, "{subject}: {line}");
    });
}

#[test]
fn a_thread_that_compiles_is_waited_for() {
    once(|subject| {
        let line = play_alone(subject, "compiling", &[("MPS_SIM_STAY_AT", "1:cuModuleLoadData:2:4500")]);
        let heard = &line["heard"];
        assert_eq!((&heard["found"], &heard["recoveries"]), (&json!(FOUND), &json!(1)), "{subject}: {line}");
    });
}

#[test]
fn a_thread_that_comes_out_of_the_driver_late_ends_no_chance_of_a_recovery() {
    once(|subject| {
        let line = play_alone(subject, "staying", &[("MPS_SIM_STAY_AT", "1:cuStreamGetPriority:1:7000")]);
        let heard = &line["heard"];
        assert_eq!((&heard["found"], &heard["recoveries"]), (&json!([719, 719]), &json!(1)), "{subject}: {line}");
        // As long as it does not come out nobody is kept waiting for it again and again.
        assert!(heard["tries"].as_u64() > Some(10), "{subject}: {line}");
    });
}

#[test]
fn files_and_mappings_that_are_not_the_drivers_are_left_alone() {
    once(|subject| {
        // The second device's context takes a while.
        let variables = [("MPS_SIM_DEVICES", "2"), ("MPS_SIM_STAY_AT", "1:cuDevicePrimaryCtxRetain:3:100")];
        let line = play_alone(subject, "foreign-files", &variables);
        let heard = &line["heard"];
        assert_eq!((&heard["found"], &heard["lost_pipes"]), (&json!(FOUND), &json!(0)), "{subject}: {line}");
        assert!(heard["pipes"].as_u64() > Some(0), "{subject}: none was made meanwhile: {line}");
        if heard["mapping"].is_null() {
            Skipped("no file can be made in /dev".to_owned()).report();
        } else {
            assert_eq!(heard["mapping"], true, "{subject}: {line}");
        }
    });
}

#[test]
fn a_forked_child_has_nothing_of_the_driver() {
    once(|subject| {
        let line = play_alone(subject, "children", &[]);
        let heard = &line["heard"];
        let nothing = json!({ "files": 0, "sockets": 0, "mappings": 0 });
        assert_eq!(heard["found"], json!(FOUND), "{subject}: {line}");
        assert_eq!([&heard["at_once"], &heard["before"], &heard["after"]], [&nothing; 3], "{subject}: {line}");
        for kind in ["files", "sockets", "mappings"] {
            assert!(heard["parent"][kind].as_u64() > Some(0), "{subject}: {kind}: {line}");
        }
    });
}

#[test]
fn memory_that_comes_and_goes_beside_a_capture_does_not_break_it() {
    once(|subject| {
        is_as_on_a_gpu(subject, "memory-beside-a-capture");
    });
}

#[test]
fn a_graphs_nodes_have_their_own_attributes_though_its_executable_form_has_others() {
    once(|subject| {
        let heard = &play(subject, "attributes-of-nodes", 1, &[])["heard"];
        let expected = json!({ "told": [0, 0], "priorities": [0, -1], "word": 2 });
        assert_eq!(*heard, expected, "{subject}");
    });
}
