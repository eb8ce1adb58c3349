//! What a program is told of its objects, and what it has set between them, is the same after faults as before.

use super::{FOUND, play_alone};
use integration::under_test::once;
use serde_json::json;

/// Memory by allocation, by a pool, of the host, and a variable; and memory of the host's that is made after each fault.
#[test]
fn memory_is_of_the_same_context_and_pool_and_has_no_number_of_other_memory() {
    let each =
        json!([[true, null, true], [true, true, false], [true, null, false], [true, null, false], [true, null, false]]);
    once(|subject| {
        let line = play_alone(subject, "belongings-of-pointers", &[]);
        assert_eq!(line["heard"], json!({ "told": [each, each, each], "shared": 0 }), "{subject}: {line}");
        assert_eq!(line["recovery"]["count"], 2, "{subject}: {line}");
    });
}

#[test]
fn contexts_and_streams_keep_their_numbers_and_none_gets_one_that_another_had() {
    once(|subject| {
        let line = play_alone(subject, "numbers-of-objects", &[]);
        let heard = json!({ "streams": true, "context": [true, true], "twice": 0 });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
        assert_eq!(line["recovery"]["count"], 2, "{subject}: {line}");
    });
}

#[test]
fn a_context_reaches_another_ones_memory_if_it_has_said_so_and_not_taken_it_back() {
    const ALREADY: u32 = 704;
    const NOT_ENABLED: u32 = 705;
    once(|subject| {
        let line = play_alone(subject, "peers", &[("MPS_SIM_DEVICES", "2")]);
        let after = json!([FOUND, ALREADY, NOT_ENABLED, 0, 0]);
        let heard = json!({ "enabled": 0, "changed": [0, 0], "given": 0, "after": [after, after] });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

#[test]
fn memory_is_freed_in_the_order_of_a_stream_of_any_context() {
    const INVALID_VALUE: u32 = 1;
    once(|subject| {
        let line = play_alone(subject, "freed-elsewhere", &[("MPS_SIM_DEVICES", "2")]);
        let heard = json!({ "freed": 0, "waited": 0, "again": INVALID_VALUE, "found": FOUND });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}
