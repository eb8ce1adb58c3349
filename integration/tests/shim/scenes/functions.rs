//! Functions of the host that were lost with the work before them.

use super::{DIED, play};
use integration::under_test::once;
use serde_json::json;

/// XLA has all give up their wait for functions of a stream that answers so.
#[test]
fn a_stream_that_has_lost_functions_of_the_host_tells_who_asks_once_more_and_no_other_one() {
    once(|subject| {
        let line = play(subject, "lost-functions", 1, &[]);
        let (once, never) = (json!([DIED, 0]), json!([0, 0]));
        let heard =
            json!({ "told": once, "first": once, "second": once, "third": never, "without": never, "done": never });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

/// A capture of one stream says nothing of the others.
#[test]
fn functions_of_a_stream_are_known_while_others_are_captured() {
    once(|subject| {
        let line = play(subject, "lost-functions-beside-a-capture", 1, &[]);
        let (once, never) = (json!([DIED, 0]), json!([0, 0]));
        let heard = json!({ "told": once, "lost": once, "captured": never, "joined": never });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

#[test]
fn a_callback_that_is_lost_is_called_once_with_the_error_by_another_thread_and_others_as_ever() {
    once(|subject| {
        let line = play(subject, "callbacks", 1, &[]);
        let call = |name: &str, code: u64| json!([name, code, true, true]);
        let called =
            [call("done", 0), call("first", DIED), call("second", DIED), call("first again", DIED), call("later", 0)];
        assert_eq!(line["heard"]["called"], json!(called), "{subject}: {line}");
        assert_eq!(line["heard"]["told"], json!([DIED, 0]), "{subject}: {line}");
    });
}
