//! Captures that nobody ends by `cuStreamEndCapture`, and how threads are set that work beside captures of others.

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

#[test]
fn a_threads_mode_of_captures_is_as_it_has_set_it_after_a_recovery() {
    const RELAXED: u32 = 2;
    const THREAD_LOCAL: u32 = 1;
    once(|subject| {
        let line = play_alone(subject, "modes-of-captures", &[]);
        let back = [[0, RELAXED], [0, THREAD_LOCAL]];
        let told = [FOUND[0]; 2];
        let heard = json!({ "found": FOUND, "told": told, "beside": [0, 0], "ended": 0, "back": back });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}
