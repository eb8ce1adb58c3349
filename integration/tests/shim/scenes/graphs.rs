//! What is known of graphs' nodes besides what the driver tells of them: where they work.

use super::{FOUND, play_alone};
use integration::under_test::once;
use serde_json::json;

/// The second device's context, which has ended before the fault, would have taken the graphs with it.
#[test]
fn a_copy_or_a_set_works_where_it_was_said_to_whatever_is_current_when_its_graph_changes() {
    once(|subject| {
        let line = play_alone(subject, "places-of-nodes", &[("MPS_SIM_DEVICES", "2")]);
        let heard = json!({ "found": FOUND, "launched": [0, 0, 0, 0, 0, 0], "words": [7, 7, 7, 7, 7, 7] });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}
