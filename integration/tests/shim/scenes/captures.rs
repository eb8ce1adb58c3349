//! Captures that nobody ends by `cuStreamEndCapture`, and how threads are set that work beside captures of others.

use super::is_as_on_a_gpu;
use integration::under_test::once;

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
