//! Contexts besides the primary one: which of them are in a recovery's way, and what is left of them.

use super::{FOUND, play_alone};
use integration::under_test::once;
use serde_json::json;

/// It is attached once more than it was made.
#[test]
fn a_context_is_in_the_way_until_it_is_detached_as_often_as_it_was_made_and_attached() {
    once(|subject| {
        for (scene, found) in [("detached-once", [FOUND[0]; 2]), ("detached-twice", FOUND)] {
            let line = play_alone(subject, scene, &[]);
            assert_eq!(line["heard"], json!({ "found": found, "is_same": true }), "{subject}: {scene}: {line}");
        }
    });
}

#[test]
fn what_is_made_in_a_green_context_is_the_primary_ones_and_outlives_it() {
    once(|subject| {
        let line = play_alone(subject, "green-context", &[]);
        let heard = json!({ "found": FOUND, "words": [0x0707_0708], "recorded": 0, "freed": 0 });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}
