//! The timeline as a picture: a lane for each whom the fault concerns, and time to the right.

use super::Explanation;
use super::page::after;
use super::timeline::{Lane, Moment};
use crate::report::lanes::{self, Chart, Mark, Tone};

/// The first step of the scale.
const FINEST_MS: f64 = 0.1;
/// The lanes from top to bottom, with their names and colours.
const LANES: [(Lane, &str, Tone); 5] = [
    (Lane::Culprit, "culprit", Tone::Harm),
    (Lane::Daemon, "daemon", Tone::Daemon),
    (Lane::Servers, "servers", Tone::Server),
    (Lane::Victims, "victims", Tone::Program),
    (Lane::Newcomers, "newcomers", Tone::Good),
];

/// The whole picture.
pub(super) fn draw(explanation: &Explanation) -> String {
    let mark = |moment: &Moment| Mark {
        at_ms: moment.after_ms,
        until_ms: None,
        words: format!("{} {}", after(moment.after_ms), moment.what),
    };
    let lanes = LANES.map(|(lane, name, tone)| lanes::Lane {
        name: name.to_owned(),
        tone,
        marks: explanation.timeline.iter().filter(|moment| moment.lane == lane).map(mark).collect(),
    });
    Chart {
        title: format!("Fault {}, {}", explanation.fault, explanation.time),
        notes: vec![explanation.summary.clone()],
        finest_ms: FINEST_MS,
        lanes: lanes.into(),
    }
    .draw()
}
