//! *What happened, with NVIDIA's daemon, with ReMPS*: each figure is taken from the events of the runs.

use super::acts::{DEATH, FAULT, KEPT_BYTES, KILL, UPGRADE};
use super::story::{Lane, Side, Story, What};
use serde::Serialize;

/// A row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    /// What happened.
    pub(super) what: &'static str,
    /// With NVIDIA's daemon.
    pub(super) nvidia: String,
    /// With ours.
    pub(super) remps: String,
}

/// How a row reads its cell out of a run.
type Cell = fn(&Story) -> String;

/// Every row in order.
const ROWS: [(&str, Cell); 10] = [
    ("three programs share a GPU", shared),
    ("one makes a memory fault: who did it?", named),
    ("a program beside it that knows of nothing", plain),
    ("one under the preload library", in_place),
    ("one in another fault domain", elsewhere),
    ("the culprit, started again", found),
    ("a program is killed in a kernel: the one beside it", death),
    ("the daemon is killed", killed),
    ("the daemon is upgraded", upgraded),
    ("newcomers", newcomers),
];

/// The whole table.
pub(super) fn rows(nvidia: &Story, remps: &Story) -> Vec<Row> {
    ROWS.iter().map(|(what, cell)| Row { what, nvidia: cell(nvidia), remps: cell(remps) }).collect()
}

/// A time as a reader wants it: tenths below ten.
pub(super) fn ms(time: f64) -> String {
    if time < 9.95 { format!("{time:.1} ms") } else { format!("{time:.0} ms") }
}

/// Bytes in mebibytes.
pub(super) fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if bytes.is_multiple_of(1 << 20) { format!("{mib:.0} MiB") } else { format!("{mib:.1} MiB") }
}

fn ended(code: u32) -> String {
    format!("ends with CUDA error {code}")
}

/// What became of a lane in an act.
fn fate(story: &Story, act: u8, lane: Lane) -> String {
    match (story.failure(act, lane), story.was_lost(act, lane), story.longest_step(act, lane)) {
        (Some(code), ..) => ended(code),
        (None, true, _) => "is gone".to_owned(),
        (None, false, Some(step)) => format!("goes on; its longest step took {}", ms(step)),
        (None, false, None) => "not seen to go on".to_owned(),
    }
}

fn shared(story: &Story) -> String {
    let lanes = [Lane::Plain, Lane::InPlace, Lane::Culprit];
    let served: Vec<f64> = lanes.iter().filter_map(|lane| story.served(*lane)).map(|(_, after)| after).collect();
    let slowest = served.iter().copied().reduce(f64::max).map(|time| format!(", the last after {}", ms(time)));
    format!("{} of {} served{}", served.len(), lanes.len(), slowest.unwrap_or_default())
}

/// Who is named by whom, and whether that is right.
fn named(story: &Story) -> String {
    let (Some(fault), Some(culprit)) = (story.fault(), story.culprit()) else { return "there was no fault".to_owned() };
    let mut parts = Vec::new();
    let verdict = story.during(FAULT).find_map(|event| Some((event.ms, event.what.verdict()?)));
    if let Some((at, (pid, confidence, witness))) = verdict {
        let who = who(story, pid, culprit);
        parts.push(format!("names {who} after {} ({confidence}, {witness})", ms((at - fault).max(0.0))));
    }
    let blamed = story.during(FAULT).find_map(|event| event.what.blamed());
    match blamed {
        Some(pid) => parts.push(format!("the server's log names {}", who(story, Some(pid), culprit))),
        None if verdict.is_none() => parts.push("nobody is named".to_owned()),
        None => {}
    }
    parts.join("; ")
}

fn who(story: &Story, pid: Option<i32>, culprit: i32) -> String {
    match pid {
        Some(pid) if pid == culprit => "the culprit".to_owned(),
        Some(pid) => {
            let lane = story.lane_of(pid).map_or_else(|| format!("pid {pid}"), |lane| lane.to_string());
            format!("another ({lane}): wrong")
        }
        None => "nobody".to_owned(),
    }
}

fn plain(story: &Story) -> String {
    fate(story, FAULT, Lane::Plain)
}

fn in_place(story: &Story) -> String {
    let mut in_place = story.during(FAULT).filter(|event| event.lane == Lane::InPlace);
    let recovered = in_place.find_map(|event| event.what.recovered());
    match recovered {
        Some((took, bytes, true)) => {
            format!("goes on in place after {}, all {} compared and equal", ms(took), mib(bytes))
        }
        Some((took, bytes, false)) => {
            format!("goes on in place after {}, but {} are not all equal", ms(took), mib(bytes))
        }
        None => match fate(story, FAULT, Lane::InPlace) {
            fate if story.side == Side::Nvidia => format!("without it: {fate}"),
            fate => fate,
        },
    }
}

fn elsewhere(story: &Story) -> String {
    match fate(story, FAULT, Lane::Elsewhere) {
        fate if story.side == Side::Nvidia => format!("all share one: {fate}"),
        fate => fate,
    }
}

fn found(story: &Story) -> String {
    let Some(fault) = story.fault() else { return "there was no fault".to_owned() };
    let found = story.first(Lane::Culprit, |what| matches!(what, What::Found { .. }));
    let Some((at, What::Found { bytes, is_intact })) = found.map(|event| (event.ms, &event.what)) else {
        let back = story.of(Lane::Culprit).find(|event| event.ms > fault && matches!(event.what, What::Served { .. }));
        let is_kept = story.first(Lane::Culprit, |what| *what == What::Committed { is_kept: true }).is_some();
        return match (back, is_kept) {
            (None, _) => "does not come back".to_owned(),
            (Some(_), true) => "comes back without its memory".to_owned(),
            (Some(_), false) => format!("begins anew: nobody has kept its {}", mib(KEPT_BYTES)),
        };
    };
    let after = ms(at - fault);
    match (*bytes, *is_intact) {
        (0, _) => format!("finds nothing: 0 of {}", mib(KEPT_BYTES)),
        (bytes, true) => format!("has its {} again {after} after the fault, every byte equal", mib(bytes)),
        (bytes, false) => format!("has {} again {after} after the fault, not all equal", mib(bytes)),
    }
}

fn death(story: &Story) -> String {
    match story.first(Lane::Killed, |what| *what == What::Killed) {
        Some(_) => fate(story, DEATH, Lane::Elsewhere),
        None => "nobody was killed".to_owned(),
    }
}

/// What the daemon's absence cost, and how a newcomer fared meanwhile.
fn absence(story: &Story, act: u8) -> String {
    let working = story.working_at(act);
    let lost: Vec<&Lane> = working.iter().filter(|lane| story.was_lost(act, **lane)).collect();
    let code = lost.iter().find_map(|lane| story.failure(act, **lane));
    let code = code.map(|code| format!(" (CUDA error {code})")).unwrap_or_default();
    let newcomer = match story.came(act).first().copied().map(|lane| story.served(lane)) {
        None => "nobody comes".to_owned(),
        Some(None) => "a newcomer is not served".to_owned(),
        Some(Some((pid, after))) if story.was_taken(pid) => format!("a newcomer is served after {}", ms(after)),
        Some(Some(_)) => "a newcomer runs without MPS".to_owned(),
    };
    format!("{} of {} programs end{code}; {newcomer}", lost.len(), working.len())
}

fn killed(story: &Story) -> String {
    match story.act(KILL) {
        Some(_) => absence(story, KILL),
        None => "not played".to_owned(),
    }
}

fn upgraded(story: &Story) -> String {
    match story.act(UPGRADE) {
        Some(_) => absence(story, UPGRADE),
        None => "not played: the act before has left nobody".to_owned(),
    }
}

fn newcomers(story: &Story) -> String {
    let came = story.newcomers();
    let served: Vec<(i32, f64)> = came.iter().filter_map(|lane| story.served(*lane)).collect();
    let under: Vec<&(i32, f64)> = served.iter().filter(|(pid, _)| story.was_taken(*pid)).collect();
    let slowest = under.iter().map(|(_, after)| *after).reduce(f64::max);
    let refusals: usize = came.iter().map(|lane| story.refusals(*lane)).sum();
    let slowest = slowest.map(|time| format!(", the last after {}", ms(time))).unwrap_or_default();
    format!("{} of {} served by MPS{slowest}; {refusals} refusals", under.len(), came.len())
}

#[cfg(test)]
mod tests {
    use super::super::sample::{nvidia, remps, with};
    use super::*;

    fn cells(story: &Story) -> Vec<String> {
        rows(story, story).into_iter().map(|row| row.remps).collect()
    }

    #[test]
    fn a_row_says_what_its_events_say() {
        let ours = [
            "3 of 3 served, the last after 300 ms",
            "names the culprit after 0.7 ms (certain, uvm-event); the server's log names another (plain program): wrong",
            "ends with CUDA error 700",
            "goes on in place after 31 ms, all 8 MiB compared and equal",
            "goes on; its longest step took 2.5 ms",
            "has its 64 MiB again 200 ms after the fault, every byte equal",
            "goes on; its longest step took 3.5 ms",
            "0 of 3 programs end; a newcomer is served after 250 ms",
            "0 of 3 programs end; a newcomer is served after 90 ms",
            "3 of 3 served by MPS, the last after 250 ms; 0 refusals",
        ];
        assert_eq!(cells(&remps()), ours);
        let theirs = [
            "3 of 3 served, the last after 300 ms",
            "the server's log names another (plain program): wrong",
            "ends with CUDA error 700",
            "without it: ends with CUDA error 700",
            "all share one: ends with CUDA error 700",
            "begins anew: nobody has kept its 64 MiB",
            "ends with CUDA error 719",
            "1 of 1 programs end (CUDA error 806); a newcomer runs without MPS",
            "not played: the act before has left nobody",
            "1 of 2 served by MPS, the last after 80 ms; 1 refusals",
        ];
        assert_eq!(cells(&nvidia()), theirs);
    }

    #[test]
    fn a_figure_changes_with_its_event() {
        let change = |is_it: fn(&What) -> bool, what: What, row: usize, expected: &str| {
            let changed = cells(&with(remps(), is_it, what));
            assert_eq!(changed[row], expected);
            let others = cells(&remps());
            let differ = (0..changed.len()).filter(|index| changed[*index] != others[*index]).count();
            assert_eq!(differ, 1, "{changed:?}");
        };
        let certain = |pid, confidence: &str| What::Verdict {
            pid,
            confidence: confidence.to_owned(),
            witness: "uvm-event".to_owned(),
        };
        let log = "; the server's log names another (plain program): wrong";
        let is_verdict = |what: &What| matches!(what, What::Verdict { .. });
        let wrong = format!("names another (with the library): wrong after 0.7 ms (certain, uvm-event){log}");
        change(is_verdict, certain(Some(12), "certain"), 1, &wrong);
        change(
            is_verdict,
            certain(None, "unknown"),
            1,
            &format!("names nobody after 0.7 ms (unknown, uvm-event){log}"),
        );
        let torn = What::Recovered { took_ms: 7.0, bytes: 3 << 20, is_intact: false };
        let is_recovered = |what: &What| matches!(what, What::Recovered { .. });
        change(is_recovered, torn, 3, "goes on in place after 7.0 ms, but 3 MiB are not all equal");
        let nothing = What::Found { bytes: 0, is_intact: false };
        change(|what| matches!(what, What::Found { .. }), nothing, 5, "finds nothing: 0 of 64 MiB");
        let slow = What::Worked { steps: 9, longest_ms: 44.0 };
        let is_slowest = |what: &What| matches!(what, What::Worked { longest_ms, .. } if *longest_ms == 3.5);
        change(is_slowest, slow, 6, "goes on; its longest step took 44 ms");
    }
}
