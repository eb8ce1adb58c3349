//! What is known of graphs' nodes besides what the driver tells of them: where they work, and by what names a program knows
//! them; and attributes that are told one by one.

use super::super::replay::{finished, replaying};
use super::{FOUND, play_alone};
use integration::sim::Sim;
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

/// Where a node works the driver tells nobody. So the program ends as the fresh copy is told it, which it is by no other call.
#[test]
fn an_executable_graph_copies_and_sets_where_it_was_told_to_and_not_where_its_graph_does() {
    once(|subject| {
        let line = play_alone(subject, "places-of-executables", &[("MPS_SIM_DEVICES", "2")]);
        let heard = json!({ "found": FOUND, "launched": 0, "words": [0, 0, 7, 7] });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
        for call in ["cuGraphExecMemcpyNodeSetParams", "cuGraphExecMemsetNodeSetParams"] {
            let sim = Sim::new(subject, &[("MPS_SIM_DEVICES", "2"), ("MPS_SIM_END_AT", &format!("2:{call}"))]);
            let finished = finished(&mut replaying(&sim, &["--scene", "places-of-executables"]));
            assert_eq!(finished.signal, Some(9), "{subject}: {call}: {finished:?}");
        }
    });
}

#[test]
fn a_node_that_a_graph_cannot_have_is_named_as_the_program_knows_it() {
    once(|subject| {
        let line = play_alone(subject, "wrong-nodes", &[]);
        let updated = json!([[910, true], [910, true, true]]);
        let heard = json!({ "found": FOUND, "instantiated": [[1, true], [1, true]], "updated": updated });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

#[test]
fn the_last_nodes_of_a_capture_are_named_as_the_program_knows_them() {
    once(|subject| {
        let line = play_alone(subject, "last-nodes", &[]);
        let heard = json!({ "found": FOUND, "is_graph": true, "is_node": true });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

#[test]
fn attributes_of_nodes_that_cuda_13_has_added_are_given_again() {
    once(|subject| {
        let line = play_alone(subject, "newer-attributes-of-nodes", &[]);
        assert_eq!(line["heard"], json!({ "found": FOUND, "told": [[0, 1], [0, 1], [0, 1]] }), "{subject}: {line}");
    });
}

/// Where nothing is set the map of domains is not zeros.
#[test]
fn a_map_of_domains_that_was_set_to_zeros_is_zeros_again() {
    once(|subject| {
        let line = play_alone(subject, "domains-of-nodes", &[]);
        assert_eq!(line["heard"], json!({ "found": FOUND, "told": [[0, 0]] }), "{subject}: {line}");
    });
}

/// The driver gives a new node the handle of one that has ended, which has another name since the fault.
#[test]
fn a_node_is_named_as_when_it_was_added_whichever_handle_it_has() {
    once(|subject| {
        let line = play_alone(subject, "nodes-again", &[]);
        let heard = json!({ "found": FOUND, "is_same": true, "is_in_clone": true });
        assert_eq!(line["heard"], heard, "{subject}: {line}");
    });
}

/// All that a graph is made of is read as it is embedded, the fourth of these calls, and for no edit of it or of what embeds it:
/// the next one would fail, and with it all that is known.
#[test]
fn a_graph_that_is_edited_is_made_again_as_it_is_and_nothing_of_it_is_read_again() {
    once(|subject| {
        let line = play_alone(subject, "edits-of-graphs", &[("MPS_SIM_FAIL_AT", "1:cuGraphGetNodes:5")]);
        let words = json!([0, [7, 7, 7, 7, 0]]);
        assert_eq!(line["heard"], json!({ "found": FOUND, "words": [words, words] }), "{subject}: {line}");
    });
}
