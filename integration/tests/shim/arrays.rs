//! Arrays, textures and surfaces of programs that are recovered, and of those that are refused by name.

use super::replay::{events, finished, is_whole, reason, replaying};
use super::scenes::{DIED, play};
use super::spare::{BY_THE_SPARE, STANDS, level, recovered, ways};
use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::shim;
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::{Subject, once};
use serde_json::{Value, json};
use std::fs;

const SECRET: &str = "the layout of an array is the driver's secret";
/// The step at which an array is noted no longer, and its textures are still noted with it.
pub(super) const TAKEN: &str = "array-taken";

#[test]
fn arrays_of_two_devices_are_made_again_with_the_same_values_on_each() {
    once(|subject| {
        let line = play(subject, "arrays-of-two-devices", 1, &[("MPS_SIM_DEVICES", "2")]);
        assert_eq!(
            (&line["heard"]["told"], &line["heard"]["wrong"]),
            (&json!([0, 0]), &json!([])),
            "{subject}: {line}"
        );
    });
}

#[test]
fn textures_without_their_arrays_keep_their_values_and_holes_are_filled_later() {
    once(|subject| {
        let line = play(subject, "textures-without-arrays", 1, &[]);
        let heard = &line["heard"];
        assert_eq!((&heard["told"], &heard["is_of_the_same"]), (&json!([0, 0]), &json!(true)), "{subject}: {line}");
        assert_eq!((&heard["before"], &heard["after"]), (&json!([1, 3, 4]), &json!([2, 5])), "{subject}: {line}");
    });
}

/// What is heard of a context that was reset before a fault.
fn is_heard_after_a_reset(heard: &Value, subject: &Subject) {
    assert_eq!(
        (&heard["told"], &heard["wrong"], &heard["are_usual"]),
        (&json!([0, 0]), &json!([]), &json!([true, true])),
        "{subject}: {heard}"
    );
}

#[test]
fn what_was_made_after_a_reset_of_its_context_is_made_again_and_nothing_of_before() {
    once(|subject| is_heard_after_a_reset(&play(subject, "arrays-after-a-reset", 1, &[])["heard"], subject));
}

#[test]
fn a_spare_copy_has_nothing_that_a_reset_has_taken() {
    once(|subject| {
        let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
        let (dir, word) = (benches[0].lab.dir(), benches[0].lab.dir().join("word"));
        let mut command = super::spare::probe(&benches[0], &benches[1], &["--scene", "arrays-after-a-reset"]);
        let program = Process::start(command.env("MPS_PROBE_WORD", &word));
        let is_level = |since: usize| level(&program.errors()).is_some_and(|at| at >= since);
        benches[0].wait_event(&program, "before");
        wait_for(dir, dir, LIMIT, "a level copy", || is_level(0));
        let said = program.errors().len();
        fs::write(&word, []).expect("a file");
        benches[0].wait_event(&program, "pending");
        wait_for(dir, dir, LIMIT, "a level copy of what is there now", || is_level(said));
        assert_eq!(error_of(&benches[0].run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        let finished = program.finish(LIMIT).expect("it ends");
        assert_eq!(error_of(&finished), None, "{subject}: {finished:?}");
        let line = find_event(&finished.stdout_text(), "scene").expect("its line");
        assert_eq!(line["recovery"]["way"], BY_THE_SPARE, "{subject}: {finished:?}");
        is_heard_after_a_reset(&line["heard"], subject);
    });
}

/// The copy looks while the driver has the array still, and what is noted of it is half gone.
#[test]
fn a_spare_copy_waits_for_an_array_that_is_being_destroyed_and_stays() {
    once(|subject| {
        let benches = [Sim::started(subject, &[]), Sim::started(subject, &[])];
        let dir = benches[0].lab.dir();
        let [word, go, held] = ["word", "go", "go.held"].map(|name| dir.join(name));
        let mut command = super::spare::probe(&benches[0], &benches[1], &["--scene", "array-that-ends"]);
        command.env("MPS_PROBE_WORD", &word).env("MPS_SHIM_TEST_AT", format!("hold:{TAKEN}"));
        let program = Process::start(command.env("LD_PRELOAD", shim::with_steps()).env("MPS_SHIM_TEST_GO", &go));
        let says = |text: &str, since: usize| program.errors()[since..].contains(text);
        benches[0].wait_event(&program, "before");
        wait_for(dir, dir, LIMIT, "a level copy", || level(&program.errors()).is_some());
        // One that was made while the program reserved its first addresses, and could not have these, is another matter.
        let said = program.errors().len();
        let first = said;
        fs::write(&word, []).expect("a file");
        wait_for(dir, dir, LIMIT, "an array that ends", || held.exists());
        let waits = "has all that the program has, but for what is being destroyed";
        wait_for(dir, dir, LIMIT, "a look", || says(waits, said) || says("no spare copy of the driver", said));
        let said = program.errors().len();
        fs::write(&go, []).expect("a file");
        benches[0].wait_event(&program, "pending");
        wait_for(dir, dir, LIMIT, "a level copy", || level(&program.errors()).is_some_and(|at| at >= said));
        assert!(!says("no spare copy of the driver", first), "{subject}: {}", program.errors());
        assert_eq!(error_of(&benches[0].run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        let finished = program.finish(LIMIT).expect("it ends");
        let line = find_event(&finished.stdout_text(), "scene").expect("its line");
        assert_eq!(line["recovery"]["way"], BY_THE_SPARE, "{subject}: {finished:?}");
        let heard = json!({ "told": [0, 0], "values": [1, 2, 3], "is_of_the_same": true });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

/// The driver says nothing of an array without memory, or says what is of no use: it has none left of those that were asked
/// about, or one of each description.
#[test]
fn of_arrays_that_are_made_again_and_again_no_more_than_one_without_memory_stays() {
    once(|subject| {
        for (alignment, left) in [("0", 0), ("131072", 2), ("65536", 2)] {
            let most = (left + 1).to_string();
            let variables = [("MPS_SIM_ARRAY_ALIGNMENT", alignment), ("MPS_SIM_MOST_DEFERRED", most.as_str())];
            let line = play(subject, "twins-of-arrays", 0, &variables);
            assert_eq!(line["heard"]["without_memory"], 0, "{subject}: {alignment}: {line}");
        }
    });
}

/// Of 64 MiB a context takes nothing here; 4 MiB are the first array's and 2 MiB the scene's own.
#[test]
fn where_memory_is_short_the_drivers_answer_comes_and_nothing_is_left_of_arrays() {
    once(|subject| {
        let line = play(subject, "limits-of-arrays", 1, &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=64M")]);
        let heard = &line["heard"];
        assert_eq!((&heard["left"], &heard["child"], &heard["told"]), (&json!(0), &json!(3), &json!([0, 0])), "{line}");
        let [first, again, more] = ["filled", "again", "more"].map(|name| heard[name].clone());
        assert_eq!((first[1].as_u64(), again[1].as_u64(), more[1].as_u64()), (Some(2), Some(2), Some(2)), "{line}");
        let count = first[0].as_u64().expect("a number");
        assert!((10..16).contains(&count), "{subject}: {line}");
        assert_eq!((again[0].as_u64(), more[0].as_u64()), (Some(count), Some(count + 1)), "{subject}: {line}");
    });
}

#[test]
fn copies_to_arrays_that_are_lost_are_told_of() {
    once(|subject| {
        let line = play(subject, "lost-copies-to-arrays", 1, &[]);
        let (heard, recovery) = (&line["heard"], &line["recovery"]);
        assert_eq!((&heard["told"], &heard["is_usable"]), (&json!([DIED, 0]), &json!(true)), "{subject}: {line}");
        assert!(recovery["bytes_in_doubt"].as_u64() > Some(0), "{subject}: {line}");
    });
}

#[test]
fn an_array_of_another_kind_is_refused_by_name() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let finished = finished(&mut replaying(&sim, &["--light", "--strange-array", "--faults", "trap"]));
        assert_eq!(error_of(&finished), Some(719), "{subject}: {finished:?}");
        assert_eq!(reason(&finished), format!("719: cuArray3DCreate: {SECRET}"), "{subject}: {finished:?}");
    });
}

#[test]
fn a_graph_that_copies_to_an_array_is_refused_by_name() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let finished = finished(&mut replaying(&sim, &["--scene", "array-in-a-graph"]));
        let why = reason(&finished);
        assert!(why.contains("a node of a graph is of a kind that is not made again"), "{subject}: {finished:?}");
    });
}

/// Once something is mapped there again, it would have to be seen by it.
#[test]
fn a_texture_of_memory_that_is_not_mapped_now_is_in_a_recoverys_way() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let finished = finished(&mut replaying(&sim, &["--scene", "texture-of-unmapped-memory"]));
        let said = finished.stderr_text();
        let line = find_event(&finished.stdout_text(), "scene").expect("its line");
        assert_eq!(line["heard"], json!([719, 719]), "{subject}: {finished:?}");
        assert!(said.contains("a texture object is of memory that is not mapped now"), "{subject}: {finished:?}");
    });
}

/// Whatever step of a view is refused, the program has the driver's own array, and all of it works but a recovery.
#[test]
fn where_a_step_is_refused_the_program_has_the_drivers_own_and_is_refused_by_name() {
    once(|subject| {
        for step in [
            "cuArrayGetMemoryRequirements",
            "cuImportExternalMemory",
            "cuExternalMemoryGetMappedMipmappedArray",
            "cuMipmappedArrayGetLevel",
            "cuMipmappedArrayGetMemoryRequirements",
        ] {
            let sim = Sim::new(subject, &[("MPS_SIM_FAIL_AT", &format!("1:{step}"))]);
            let finished = finished(&mut replaying(&sim, &["--light", "--arrays", "--faults", "trap"]));
            assert_eq!(error_of(&finished), Some(719), "{subject}: {step}: {finished:?}");
            assert!(events(&finished, "wrong").is_empty(), "{subject}: {step}: {finished:?}");
            assert!(reason(&finished).contains(SECRET), "{subject}: {step}: {finished:?}");
        }
    });
}

#[test]
fn a_texture_that_would_have_another_value_is_in_a_recoverys_way() {
    once(|subject| {
        let sim = Sim::new(subject, &[("MPS_SIM_FIRST_TEXTURE", "2:5")]);
        let finished = finished(&mut replaying(&sim, &["--light", "--arrays", "--faults", "trap"]));
        assert_eq!(error_of(&finished), Some(719), "{subject}: {finished:?}");
        let said = finished.stderr_text();
        assert!(said.contains("a texture object would have another value: 5 in place of 1"), "{subject}: {said}");
    });
}

/// The spare copy is the second one, and the next spare the third. It begins when the program has its addresses: one that begins
/// while these are reserved cannot have them, and would be the second one in its place.
#[test]
fn a_spare_copy_in_which_a_texture_has_another_value_is_none() {
    once(|subject| {
        let benches = [Sim::started(subject, &[("MPS_SIM_FIRST_TEXTURE", "2:5")]), Sim::started(subject, &[])];
        let arguments = ["--light", "--arrays", "--recoveries", "1", "--seconds", "600"];
        let dir = benches[0].lab.dir();
        let go = dir.join("go");
        let mut command = super::spare::probe(&benches[0], &benches[1], &arguments);
        command.env("LD_PRELOAD", shim::with_steps()).env("MPS_SHIM_TEST_AT", "hold:spare-file");
        let program = Process::start(command.env("MPS_SHIM_TEST_GO", &go));
        benches[0].wait_event(&program, "ready");
        fs::write(&go, []).expect("a file");
        wait_for(dir, dir, LIMIT, "a copy that is given up", || {
            let said = program.errors();
            let given_up = said.find("no spare copy of the driver: cuTexObjectCreate with the same value answers 801");
            given_up.is_some() && said.rfind(STANDS) > given_up
        });
        assert_eq!(error_of(&benches[0].run("mps-aggressor", &["oob"])), Some(700), "{subject}");
        wait_for(dir, dir, LIMIT, "a recovery", || recovered(&program) > 0);
        let finished = program.finish(LIMIT).expect("it ends");
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(ways(&finished), [BY_THE_SPARE], "{subject}: {finished:?}");
    });
}

#[test]
fn where_nothing_is_recovered_arrays_are_the_drivers_own_and_are_counted() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let arguments = ["--light", "--arrays", "--faults", "trap"];
        let finished = finished(&mut shim::recording(sim.command("mps-replay-probe", &arguments)));
        assert_eq!(error_of(&finished), Some(719), "{subject}: {finished:?}");
        assert!(events(&finished, "wrong").is_empty(), "{subject}: {finished:?}");
        let said = finished.stderr_text();
        for function in ["cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate", "cuTexObjectCreate"] {
            let counted = format!(r#""function":"{function}","reason":"{SECRET}","live":"#);
            assert!(said.contains(&counted), "{subject}: {function}: {said}");
        }
    });
}
