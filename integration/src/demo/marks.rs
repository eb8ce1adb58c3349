//! What the picture shows of a story: its lanes, and the marks on them.

use super::story::{Event, Lane, Side, Story, What};
use super::table::{mib, ms};

/// The colour of what goes wrong.
pub(super) const HARM: &str = "#c62828";
/// The colour of what is put right.
pub(super) const GOOD: &str = "#1455b0";

/// The answer of a server that takes nobody: `CUDA_ERROR_MPS_SERVER_NOT_READY`.
const REFUSED: u32 = 807;

/// What a lane is called in the picture. With NVIDIA's daemon programs have neither library nor domains.
pub(super) fn name(lane: Lane, side: Side) -> String {
    match (lane, side) {
        (Lane::Plain, _) => "plain program".to_owned(),
        (Lane::InPlace, Side::Remps) => "under the library".to_owned(),
        (Lane::InPlace, Side::Nvidia) => "(without library)".to_owned(),
        (Lane::Culprit, _) => "culprit".to_owned(),
        (Lane::Elsewhere, Side::Remps) => "in another domain".to_owned(),
        (Lane::Elsewhere, Side::Nvidia) => "(without domains)".to_owned(),
        (Lane::Killed, _) => "killed in a kernel".to_owned(),
        (Lane::Daemon | Lane::Server(_) | Lane::Newcomer(_), _) => lane.to_string(),
    }
}

/// The lanes in the order in which they are drawn.
pub(super) fn lanes(story: &Story) -> Vec<Lane> {
    let mut lanes = vec![Lane::Daemon];
    lanes.extend(story.servers().into_iter().map(Lane::Server));
    lanes.extend([Lane::Plain, Lane::InPlace, Lane::Culprit, Lane::Elsewhere, Lane::Killed]);
    lanes.extend(story.newcomers());
    lanes.retain(|lane| story.of(*lane).next().is_some());
    lanes
}

/// What is drawn of an event: kind, colour, words.
pub(super) fn mark(event: &Event) -> Option<(&'static str, &'static str, String)> {
    Some(match &event.what {
        What::Faulted => ("fault", HARM, "faults".to_owned()),
        What::Killed => ("killed", HARM, "kill -9".to_owned()),
        What::Failed { code: REFUSED, .. } => ("failed", HARM, format!("is refused: error {REFUSED}")),
        What::Failed { code, .. } => ("failed", HARM, format!("ends: CUDA error {code}")),
        What::Verdict { pid, confidence, .. } => {
            let who = pid.map_or_else(|| "nobody".to_owned(), |pid| format!("pid {pid}"));
            ("verdict", GOOD, format!("names {who}: {confidence}"))
        }
        What::Blamed { pid } => ("blamed", HARM, format!("its log blames pid {pid}")),
        What::Recovered { took_ms, bytes, is_intact } => {
            let (colour, equal) = if *is_intact { (GOOD, "equal") } else { (HARM, "NOT equal") };
            ("recovered", colour, format!("goes on after {}, {} {equal}", ms(*took_ms), mib(*bytes)))
        }
        What::Found { bytes: 0, .. } => ("found", HARM, "memory gone".to_owned()),
        What::Found { bytes, is_intact } => {
            let (colour, equal) = if *is_intact { (GOOD, "equal") } else { (HARM, "NOT equal") };
            ("found", colour, format!("has its {} again, {equal}", mib(*bytes)))
        }
        What::Upgraded => ("upgraded", GOOD, "upgraded".to_owned()),
        What::Act { .. }
        | What::Started { .. }
        | What::Ready
        | What::Served { .. }
        | What::Took { .. }
        | What::Worked { .. }
        | What::Committed { .. }
        | What::Launched
        | What::Ended { .. }
        | What::Gone { .. } => return None,
    })
}
