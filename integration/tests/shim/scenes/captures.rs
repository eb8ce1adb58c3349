//! Captures that nobody ends by `cuStreamEndCapture`.

use super::{FOUND, play_alone};
use integration::under_test::once;
use serde_json::json;

/// More memory in sum than there is comes and goes after the capture's end, and a fault is recovered from.
fn is_over(scene: &str) {
    once(|subject| {
        let line = play_alone(subject, scene, &[]);
        let heard = json!({ "refused": [], "found": FOUND, "recoveries": 1 });
        assert_eq!(line["heard"], heard, "{subject}: {scene}: {line}");
    });
}

#[test]
fn a_capture_ends_with_its_context_by_a_reset() {
    is_over("capture-of-a-reset-context");
}

#[test]
fn a_capture_ends_with_its_context_when_that_is_destroyed() {
    is_over("capture-of-a-destroyed-context");
}

#[test]
fn a_capture_of_a_threads_own_stream_ends_with_the_thread() {
    is_over("capture-of-an-ended-thread");
}
