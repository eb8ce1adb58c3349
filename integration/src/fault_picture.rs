//! `mps-fault-picture`: draws what one real fault was to a program beside the culprit, with a spare copy of the driver,
//! without one, and with NVIDIA's daemon, on one time axis.
//!
//! ```text
//! mps-fault-picture REPORT.json PICTURE.svg
//! ```
//! The report is one of `integration/gpu/run --suite spare`: its figure `one_fault` has what each program has written and
//! what the library says of its recovery. Every time in the picture is one of these, or a sum of steps that follow each
//! other. A report without the figure, or with one that has failed, is refused: nothing is drawn from spreads.
//!
//! The axis begins where each program's driver has answered with the error. When the culprit's kernel was launched is said
//! in words, since that is a hundred times as long ago as what is to be seen.

use remps_controld::parts::report::lanes::{Chart, Lane, Mark, Tone};
use remps_proto::shim::{RECOVERY_STEPS, SWITCH_STEPS};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The figure's name.
const FIGURE: &str = "one_fault";
/// The parts of the figure, with the lane's name and colour.
const WAYS: [(&str, &str, Tone); 3] = [
    ("with a spare copy", "with a spare", Tone::Good),
    ("without one", "without one", Tone::Program),
    ("with the vendor's daemon", "NVIDIA's daemon", Tone::Harm),
];
/// The step within which parts of a switch are done, and the first part that is not.
const FIRST_OF_OBJECTS: &str = "objects";
/// The step that is mostly done when the program runs again.
const LAST_STEP: &str = "amputate";
/// The first step of the scale.
const FINEST_MS: f64 = 0.01;

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.collect();
    let done = match arguments.as_slice() {
        [report, picture] => write(Path::new(report), Path::new(picture)),
        _ => Err("mps-fault-picture REPORT.json PICTURE.svg".to_owned()),
    };
    let Err(why) = done else { return ExitCode::SUCCESS };
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(std::io::stderr(), "mps-fault-picture: {why}");
    ExitCode::FAILURE
}

fn write(report: &Path, picture: &Path) -> Result<(), String> {
    let text = std::fs::read(report).map_err(|error| format!("{}: {error}", report.display()))?;
    let content = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", report.display()))?;
    let drawn = chart(&content).map_err(|why| format!("{}: {why}", report.display()))?.draw();
    std::fs::write(picture, drawn).map_err(|error| format!("{}: {error}", picture.display()))
}

/// The picture of a report.
///
/// # Errors
/// What the report lacks.
pub fn chart(report: &Value) -> Result<Chart, String> {
    let figure = &report["figures"][FIGURE];
    if figure["ok"] != true {
        return Err(format!("it has no figure `{FIGURE}`, or one that has failed"));
    }
    let result = &figure["result"];
    let text = |value: &Value, what: &str| value.as_str().map(str::to_owned).ok_or_else(|| format!("no {what}"));
    let kind = text(&result["fault"], "kind of fault")?;
    let date = text(&report["machine"]["date"], "date")?;
    let gpus: Vec<&str> =
        report["machine"]["gpus"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let machine = machine(gpus.first().ok_or("no GPU")?)?;
    let kernel = text(&report["machine"]["kernel"], "kernel")?;
    let mut lanes = Vec::new();
    let mut launches = Vec::new();
    for (part, name, tone) in WAYS.into_iter().filter(|(part, ..)| !result[part].is_null()) {
        let seen = Seen::of(&result[part]).map_err(|what| format!("{part}: {what}"))?;
        launches.push(format!("{:.1} ms ({name})", seen.since_launch_ms));
        lanes.push(Lane { name: name.to_owned(), tone, marks: seen.marks()? });
    }
    if lanes.len() < 2 {
        return Err("it has less than two programs to compare".to_owned());
    }
    let notes = vec![
        format!(
            "{machine}, Linux {kernel}, {date}. A program beside the culprit, one fault each; the scale is logarithmic."
        ),
        format!(
            "The time is from the driver's error on. The culprit's kernel was launched before that: {}.",
            launches.join(", ")
        ),
    ];
    Ok(Chart { title: format!("One fault ({kind}) of a neighbour on the GPU"), notes, finest_ms: FINEST_MS, lanes })
}

/// A GPU and its driver, from name, driver, memory and compute mode.
fn machine(gpu: &str) -> Result<String, String> {
    let mut parts = gpu.split(", ");
    let name = parts.next().ok_or("no GPU")?;
    Ok(format!("{name}, driver {}", parts.next().ok_or("no driver")?))
}

/// What one program has seen.
struct Seen<'a> {
    since_launch_ms: f64,
    /// The error that the program was told, 0 for none.
    told: u64,
    /// Its recovery, and when its next kernel was done after the error; `None` if it was lost.
    recovery: Option<(&'a Value, f64)>,
}

impl<'a> Seen<'a> {
    fn of(part: &'a Value) -> Result<Self, String> {
        let us = |name: &str| part[name].as_u64().ok_or_else(|| format!("no {name}"));
        let (launched, error) = (us("launched_at_us")?, us("error_at_us")?);
        let after = |from: u64, to: u64| {
            let between = to.checked_sub(from).ok_or("the machine's clock was set meanwhile")?;
            Ok::<_, String>(between as f64 / 1e3)
        };
        let recovery = Some(&part["recovery"]).filter(|recovery| !recovery.is_null());
        let recovery =
            recovery.map(|recovery| Ok::<_, String>((recovery, after(error, us("good_at_us")?)?))).transpose()?;
        Ok(Self { since_launch_ms: after(launched, error)?, told: us("told")?, recovery })
    }

    fn marks(&self) -> Result<Vec<Mark>, String> {
        let told = match self.told {
            0 => "the program is told nothing".to_owned(),
            code => format!("the program is told {code}"),
        };
        let mark = |at_ms, words| Mark { at_ms, until_ms: None, words };
        let Some((recovery, good_ms)) = self.recovery else {
            return Ok(vec![mark(0.0, format!("the driver answers {}: {told}, and is lost with it", self.told))]);
        };
        let us =
            |value: &Value, what: &str| value.as_u64().map(|us| us as f64 / 1e3).ok_or_else(|| format!("no {what}"));
        let answer = recovery["error"].as_u64().ok_or("no error")?;
        let mut marks = vec![mark(0.0, format!("the driver answers {answer}"))];
        let mut at = 0.0;
        for step in RECOVERY_STEPS {
            let took = us(&recovery["steps_us"][step], step)?;
            // The dead copy is mostly cut off behind the gate.
            let end = recovery["cut_off_us"].as_u64().filter(|us| step == LAST_STEP && *us > 0);
            let begin = end.map_or(at, |us| (us as f64 / 1e3 - took).max(at));
            if took > 0.0 {
                marks.push(lasting(begin, took, step));
            }
            let mut part_at = at;
            for part in parts_of(step) {
                let took = us(&recovery["switch_us"][part], part)?;
                if took > 0.0 {
                    marks.push(lasting(part_at, took, &format!("· {part}")));
                }
                part_at += took;
            }
            at += took;
        }
        let total = us(&recovery["total_us"], "total_us")?;
        marks.push(mark(total, format!("the gate opens: {total:.3} ms")));
        marks.push(mark(good_ms, format!("next good kernel done: {good_ms:.3} ms; {told}")));
        Ok(marks)
    }
}

fn lasting(at_ms: f64, took_ms: f64, what: &str) -> Mark {
    Mark { at_ms, until_ms: Some(at_ms + took_ms), words: format!("{what} {took_ms:.3} ms") }
}

/// What a switch to a spare copy does within a step.
fn parts_of(step: &str) -> &'static [&'static str] {
    let objects = SWITCH_STEPS.iter().position(|part| *part == FIRST_OF_OBJECTS).unwrap_or(SWITCH_STEPS.len());
    match step {
        "map" => &SWITCH_STEPS[..objects],
        "objects" => &SWITCH_STEPS[objects..],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::report::milliseconds;
    use serde_json::json;
    use std::time::Duration;

    /// What the probe and the library write, as one run of the simulated driver has recorded it.
    fn recorded() -> Value {
        let text = include_str!("fault_picture/recorded.json");
        serde_json::from_str(text).expect("it is a report")
    }

    fn words(chart: &Chart) -> Vec<(String, f64)> {
        let marks = chart.lanes.iter().flat_map(|lane| &lane.marks);
        marks.map(|mark| (mark.words.clone(), mark.at_ms)).collect()
    }

    fn found(chart: &Chart, lane: usize, words: &str) -> (f64, Option<f64>) {
        let marks = &chart.lanes[lane].marks;
        let mark = marks.iter().find(|mark| mark.words.starts_with(words));
        let mark = mark.unwrap_or_else(|| panic!("{words}: {marks:?}"));
        (mark.at_ms, mark.until_ms)
    }

    #[test]
    fn every_step_of_both_ways_follows_the_one_before_and_the_gate_opens_behind_them() {
        let report = recorded();
        let chart = chart(&report).expect("a picture");
        assert_eq!(
            chart.lanes.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(),
            ["with a spare", "without one", "NVIDIA's daemon"]
        );
        for (lane, (part, ..)) in WAYS.iter().enumerate().take(2) {
            let recovery = &report["figures"][FIGURE]["result"][part]["recovery"];
            let mut at = 0.0;
            for step in RECOVERY_STEPS {
                let us = recovery["steps_us"][step].as_u64().expect("a number");
                let took = milliseconds(Duration::from_micros(us));
                if us > 0 {
                    let (from, to) = found(&chart, lane, &format!("{step} "));
                    assert!(
                        (from - at).abs() < 1e-6 && (to.expect("an end") - at - took).abs() < 1e-6,
                        "{step}: {from} {at}"
                    );
                }
                at += took;
            }
            let (gate, good) = (found(&chart, lane, "the gate opens").0, found(&chart, lane, "next good kernel").0);
            assert!(gate >= at - 1e-6 && good > gate, "{at} {gate} {good}");
        }
        assert!(words(&chart).iter().any(|(words, _)| words.starts_with("· variables")), "{:?}", words(&chart));
        assert!(found(&chart, 2, "the driver answers 700").1.is_none());
        let notes = chart.notes.join(" ");
        assert!(notes.contains("driver 580.159.04") && notes.contains("2026-11-24"), "{notes}");
        let drawn = chart.draw();
        assert!(roxmltree::Document::parse(&drawn).is_ok(), "{drawn}");
    }

    #[test]
    fn what_is_done_behind_the_gate_is_drawn_behind_it() {
        let mut report = recorded();
        let recovery = &mut report["figures"][FIGURE]["result"][WAYS[1].0]["recovery"];
        let total = recovery["total_us"].as_u64().expect("a number");
        recovery["steps_us"][LAST_STEP] = 2_000.into();
        recovery["cut_off_us"] = (total + 2_500).into();
        let chart = chart(&report).expect("a picture");
        let (from, to) = found(&chart, 1, LAST_STEP);
        let gate = found(&chart, 1, "the gate opens").0;
        assert!((from - gate - 0.5).abs() < 1e-6 && (to.expect("an end") - from - 2.0).abs() < 1e-6, "{from} {gate}");
    }

    #[test]
    fn what_a_report_lacks_is_said_and_nothing_is_drawn() {
        let refused = |change: fn(&mut Value)| {
            let mut report = recorded();
            change(&mut report);
            chart(&report).expect_err("it lacks something")
        };
        assert!(refused(|report| report["figures"] = json!({})).contains("no figure `one_fault`"));
        assert!(refused(|report| report["figures"][FIGURE]["ok"] = false.into()).contains("has failed"));
        assert!(refused(|report| report["machine"]["gpus"] = json!(["H100"])).contains("no driver"));
        assert_eq!(
            refused(|report| report["figures"][FIGURE]["result"]["without one"]["good_at_us"] = Value::Null),
            "without one: no good_at_us"
        );
        assert!(
            refused(|report| report["figures"][FIGURE]["result"]["without one"]["error_at_us"] = json!(1))
                .contains("clock")
        );
        assert!(
            refused(
                |report| report["figures"][FIGURE]["result"]["with a spare copy"]["recovery"]["steps_us"] = json!({})
            )
            .contains("no wait")
        );
        let mut alone = recorded();
        for part in ["without one", "with the vendor's daemon"] {
            alone["figures"][FIGURE]["result"][part] = Value::Null;
        }
        assert!(chart(&alone).expect_err("nothing to compare").contains("less than two"));
    }
}
