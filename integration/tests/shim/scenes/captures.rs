//! Captures that nobody ends by `cuStreamEndCapture`, or that it does not end, and how threads are set that work beside captures of others.

use super::{DIED, FOUND, is_as_on_a_gpu, play, play_alone};
use integration::under_test::once;
use serde_json::json;

/// More memory in sum than there is comes and goes after the capture's end, and a fault is recovered from.
#[test]
fn a_capture_ends_with_its_context_by_a_reset() {
    once(|subject| {
        is_as_on_a_gpu(subject, "capture-of-a-reset-context");
    });
}

#[test]
fn a_capture_ends_with_its_context_when_that_is_destroyed() {
    once(|subject| {
        is_as_on_a_gpu(subject, "capture-of-a-destroyed-context");
    });
}

#[test]
fn a_capture_of_a_threads_own_stream_ends_with_the_thread() {
    once(|subject| {
        is_as_on_a_gpu(subject, "capture-of-an-ended-thread");
    });
}

/// One thread was in the relaxed mode (2), one in that of its own (1).
#[test]
fn a_threads_mode_of_captures_is_as_it_has_set_it_after_a_recovery() {
    once(|subject| {
        is_as_on_a_gpu(subject, "modes-of-captures");
    });
}

#[test]
fn a_capture_goes_on_that_another_thread_wants_to_end_or_that_is_to_be_ended_without_a_place_for_the_graph() {
    once(|subject| {
        let line = play(subject, "capture-that-goes-on", 1, &[]);
        let heard = json!({ "by_another": 908, "without_place": 1, "found": DIED, "again": DIED });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
        assert_eq!(line["recovery"]["count"], 0, "{subject}: {line}");
    });
}

#[test]
fn a_capture_that_was_broken_is_over_when_its_end_was_asked_for() {
    once(|subject| {
        let line = play_alone(subject, "capture-that-was-broken", &[]);
        assert_eq!(line["heard"], json!({ "forbidden": 900, "ended": 901, "found": FOUND }), "{subject}: {line}");
    });
}

/// What is beside the status is written where a capture goes on, and nowhere else.
#[test]
fn a_stream_that_captures_nothing_may_be_asked_with_places_that_nobody_has_written() {
    once(|subject| {
        let line = play_alone(subject, "capture-that-is-none", &[]);
        let [none, active, broken] = [0, 1, 2].map(|status| json!([[0, status], [0, status]]));
        let heard = json!({ "none": none, "active": active, "broken": broken, "ended": [900, 901], "again": none });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}
