//! Records of events by a thread that has to be told of lost work.

use super::{DIED, play};
use integration::under_test::once;
use serde_json::json;

/// Libraries record events where they free memory, in destructors that end the program at an error.
#[test]
fn a_record_of_an_event_tells_nothing_and_who_waits_for_the_event_is_told_though_it_was_before() {
    once(|subject| {
        let line = play(subject, "unheard-records", 1, &[]);
        let (once, never) = (json!([DIED, 0]), json!([0, 0]));
        let heard = json!({
            "told": [once, once, once, once, once, once], "destroyed": never, "recorded": never, "synchronize": once, "wait": once,
            "launch": once, "launch_other": never, "ask_other": never, "own": once, "recorded_again": 0, "again": never,
        });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

#[test]
fn an_event_recorded_for_a_context_and_one_that_a_time_is_asked_from_tell_who_takes_them() {
    once(|subject| {
        let line = play(subject, "seldom-records", 1, &[]);
        let once = json!([DIED, 0]);
        let heard = json!({ "told": [once, once], "recorded": [0, 0], "asked": once, "waited": once });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

#[test]
fn events_that_a_launch_records_behind_lost_work_are_in_doubt_both() {
    once(|subject| {
        let line = play(subject, "records-by-launches", 1, &[]);
        let once = json!([DIED, 0]);
        assert_eq!(line["heard"], json!({ "own": once, "late": [once, once], "beside": [0, 0] }), "{subject}: {line}");
    });
}
