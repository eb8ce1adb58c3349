//! What a program is told of its objects, and what it has set between them, is the same after faults as before.

use super::{FOUND, is_as_on_a_gpu, play_alone};
use integration::under_test::once;
use serde_json::json;

/// Memory by allocation, by a pool, of the host, and a variable; and memory of the host's that is made after each fault.
#[test]
fn memory_is_of_the_same_context_and_pool_and_has_no_number_of_other_memory() {
    once(|subject| {
        let line = is_as_on_a_gpu(subject, "belongings-of-pointers");
        assert_eq!(line["recovery"]["count"], 2, "{subject}: {line}");
    });
}

#[test]
fn contexts_and_streams_keep_their_numbers_and_none_gets_one_that_another_had() {
    once(|subject| {
        let line = is_as_on_a_gpu(subject, "numbers-of-objects");
        assert_eq!(line["recovery"]["count"], 2, "{subject}: {line}");
    });
}

/// What is enabled already is refused (704), and so is disabling what is not (705).
#[test]
fn a_context_reaches_another_ones_memory_if_it_has_said_so_and_not_taken_it_back() {
    once(|subject| {
        is_as_on_a_gpu(subject, "peers");
    });
}

#[test]
fn memory_is_freed_in_the_order_of_a_stream_of_any_context() {
    once(|subject| {
        is_as_on_a_gpu(subject, "freed-elsewhere");
    });
}

/// A pool that keeps what it has, and a program far ahead of its GPU.
#[test]
fn memory_in_a_streams_order_is_given_again_in_that_order_and_kept_as_the_pool_is_told() {
    once(|subject| {
        is_as_on_a_gpu(subject, "pieces-in-order");
    });
}

/// A pool without room, memory that was freed during a capture, and memory that waits for the work of a context that ends.
#[test]
fn calls_about_memory_wait_for_no_stream_that_the_driver_would_not_wait_for() {
    once(|subject| {
        is_as_on_a_gpu(subject, "not-held-by-a-stream");
    });
}

/// The first fault moves the variable, and the second one what is known of it since.
#[test]
fn an_operation_of_a_stream_goes_to_its_variable_wherever_that_is_by_now() {
    once(|subject| {
        let line = play_alone(subject, "operations-on-variables", &[]);
        assert_eq!(line["heard"], json!([[FOUND, 0, 7, true], [FOUND, 0, 8, true]]), "{subject}: {line}");
    });
}

#[test]
fn where_there_is_no_memory_there_is_no_number_of_memory_after_a_fault_either() {
    once(|subject| {
        let line = play_alone(subject, "nowhere", &[]);
        assert_eq!(line["heard"], json!({ "found": FOUND, "numbers": [[0, 0], [0, 0]] }), "{subject}: {line}");
    });
}

#[test]
fn memory_of_a_pool_that_is_destroyed_counts_for_no_other_pool_with_its_handle() {
    once(|subject| {
        let line = play_alone(subject, "pools-with-one-handle", &[]);
        let heard = json!({ "is_same": true, "pool": 0, "used": [0, 0], "taken": 0 });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

/// Pieces that are reserved, that were at most, and that are used.
#[test]
fn what_a_pool_is_told_to_keep_is_reserved_until_it_is_trimmed() {
    once(|subject| {
        let line = play_alone(subject, "reserved-of-a-pool", &[]);
        let heard = json!({
            "used": [1, 1, 1], "kept": [1, 1, 0], "anew": [1, 1, 0], "trimmed": [0, 1, 0], "all_anew": [0, 0, 0],
        });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}
