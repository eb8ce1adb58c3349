//! Scenes of several GPUs and their contexts.

use super::{FOUND, is_as_on_a_gpu, play_alone};
use integration::under_test::once;
use serde_json::json;

#[test]
fn a_fault_on_one_gpu_leaves_the_work_of_another_one_to_its_end() {
    once(|subject| {
        let line = is_as_on_a_gpu(subject, "other-gpu");
        assert_eq!(line["recovery"]["lost_streams"], 1, "{subject}: {line}");
    });
}

#[test]
fn where_a_context_cannot_be_made_on_either_gpu_another_copy_makes_both() {
    once(|subject| {
        for call in 1..=2 {
            let fails = format!("2:cuDevicePrimaryCtxRetain:{call}");
            let variables = [("MPS_SIM_DEVICES", "2"), ("MPS_SIM_FAIL_AT", fails.as_str())];
            let line = play_alone(subject, "other-gpu", &variables);
            assert_eq!(
                line["heard"],
                json!({ "found": FOUND, "other": 0, "is_done": true }),
                "{subject}: {call}: {line}"
            );
            assert_eq!(line["recovery"]["begun_again"], 1, "{subject}: {call}: {line}");
        }
    });
}

/// As with cudart, which has the handles of all GPUs.
#[test]
fn a_gpu_of_which_a_program_has_the_contexts_handle_alone_is_in_nobodys_way() {
    once(|subject| {
        let line = is_as_on_a_gpu(subject, "named-contexts");
        assert_eq!(line["recovery"]["way"], 0, "{subject}: {line}");
    });
}

/// cuBLAS asks the driver's private table for it, and fails where it is told of none.
#[test]
fn a_threads_current_context_is_the_same_by_the_private_table_before_and_after_a_fault() {
    once(|subject| {
        is_as_on_a_gpu(subject, "private-current");
    });
}
