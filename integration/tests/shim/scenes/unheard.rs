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
