//! What happened when: the events of a fault in words, by the time since its first sign.

use super::gather::Facts;
use super::people::end;
use super::recoveries;
use serde::Serialize;
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Whose line in the picture a moment is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Lane {
    /// What witnesses say and the daemon does.
    Daemon,
    /// The culprit's process.
    Culprit,
    /// Those who were lost with it.
    Victims,
    /// The spoilt server and the one in its place.
    Servers,
    /// Clients that came afterwards.
    Newcomers,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Moment {
    /// Milliseconds after the first sign.
    pub after_ms: f64,
    /// When, in RFC 3339.
    pub time: String,
    pub lane: Lane,
    pub what: String,
}

/// Everything that is known, in the order of time. A verdict alone is enough for its own time and that of the sign.
pub(super) fn of(facts: &Facts) -> Vec<Moment> {
    let verdict = &facts.verdict;
    let given = verdict["time"].as_str().and_then(|time| humantime::parse_rfc3339(time).ok());
    let delay = verdict["delay_ms"].as_f64().unwrap_or_default().max(0.0);
    let events = facts.events.as_deref().unwrap_or_default();
    let first_sign = events.iter().filter(|event| event["event"] == "fault-sign").find_map(time_of);
    let delay = Duration::try_from_secs_f64(delay / 1e3).unwrap_or_default();
    let Some(begin) = first_sign.or_else(|| given?.checked_sub(delay)) else {
        return Vec::new();
    };
    let mut moments: Vec<Moment> = events
        .iter()
        .filter_map(|event| {
            let (lane, what) = told(event, facts)?;
            Some(moment(begin, time_of(event)?, lane, what))
        })
        .collect();
    let has = |wanted: &str, moments: &[Moment]| moments.iter().any(|moment| moment.what.starts_with(wanted));
    let number = verdict["number"].as_u64().unwrap_or_default();
    if let Some(given) = given.filter(|_| !has(&format!("verdict {number}"), &moments)) {
        moments.push(moment(begin, given, Lane::Daemon, of_verdict(verdict)));
    }
    if first_sign.is_none() {
        moments.push(moment(begin, begin, Lane::Daemon, "first sign of the fault".to_owned()));
    }
    // The sort is stable.
    moments.sort_by(|one, other| one.after_ms.total_cmp(&other.after_ms));
    moments
}

fn time_of(event: &Value) -> Option<SystemTime> {
    humantime::parse_rfc3339(event["time"].as_str()?).ok()
}

fn moment(begin: SystemTime, time: SystemTime, lane: Lane, what: String) -> Moment {
    let after_ms = match time.duration_since(begin) {
        Ok(after) => after.as_secs_f64() * 1e3,
        Err(before) => -before.duration().as_secs_f64() * 1e3,
    };
    Moment { after_ms, time: humantime::format_rfc3339_micros(time).to_string(), lane, what }
}

fn of_verdict(verdict: &Value) -> String {
    let sure = verdict["confidence"].as_str().unwrap_or("unknown");
    let whom = match verdict["culprit"]["pid"].as_u64() {
        Some(pid) => format!("client {pid}, {sure}"),
        None => "nobody can be named".to_owned(),
    };
    let corrects = verdict["corrects"].as_u64().map(|number| format!(", corrects {number}")).unwrap_or_default();
    format!("verdict {}: {whom}{corrects}", verdict["number"])
}

/// An event in words, and on whose line; `None` for one that says nothing about this fault.
fn told(event: &Value, facts: &Facts) -> Option<(Lane, String)> {
    let text = |key: &str| event[key].as_str().unwrap_or("?").to_owned();
    let pid = &event["process"]["pid"];
    let culprit = &facts.verdict["culprit"]["pid"];
    let lane_of = |pid: &Value| if !pid.is_null() && pid == culprit { Lane::Culprit } else { Lane::Victims };
    let server = &event["server"];
    Some(match event["event"].as_str()? {
        "fault-sign" => {
            let names = event["names"].as_u64().map(|pid| format!(", names {pid}")).unwrap_or_default();
            (Lane::Daemon, format!("{} tells of a fault{names}", text("witness")))
        }
        "server-tainted" => (Lane::Servers, format!("server {server} gets no client any more")),
        "server-ended-early" => {
            let why = match event["reason"].as_str() {
                Some("all-have-spares") => "all its clients have spare copies",
                _ => "the configuration wants that",
            };
            (Lane::Servers, format!("server {server} is ended at once: {why}"))
        }
        "burial-held" => {
            let ms = event["held_ms"].as_f64().unwrap_or_default();
            let (back, clients) = (&event["back"], &event["clients"]);
            let what =
                format!("server {server} is buried, held back for {ms:.0} ms: {back} of {clients} have contexts again");
            (Lane::Servers, what)
        }
        "verdict" | "verdict-corrected" => (Lane::Daemon, of_verdict(&event["verdict"])),
        "culprit-sanctioned" => (Lane::Culprit, format!("the daemon's answer to {pid}: {}", text("sanction"))),
        "culprit-gone" => (Lane::Culprit, format!("{pid} has ended, and nothing is left of it")),
        "victim-terminated" => (lane_of(pid), format!("{pid} lingered and was ended at its server")),
        "client-ended" => (lane_of(pid), format!("{pid} {}", end(&event["end"]))),
        "client-recovered" => (lane_of(pid), recoveries::told(event)),
        "client-unrecovered" => {
            let tried = if event["final"] == true { "for good" } else { "for now" };
            (lane_of(pid), format!("{pid} says it is not recovered {tried}: {}", text("reason")))
        }
        "client-refused" => (lane_of(pid), format!("{pid} is refused: {}", text("reason"))),
        "server-started" => (Lane::Servers, format!("server {server} starts")),
        "server-start-failed" => (Lane::Servers, format!("no server can be started: {}", text("text"))),
        "server-ready" => (Lane::Servers, format!("server {server} serves")),
        "server-swapped" => (Lane::Servers, format!("server {} takes the place of {}", event["to"], event["from"])),
        "server-exited" => (Lane::Servers, format!("server {server} {}", end(&event["end"]))),
        "breaker-opened" => (Lane::Servers, "its servers keep failing: the next start waits".to_owned()),
        "breaker-closed" => (Lane::Servers, "its servers work again".to_owned()),
        "client-admitted" => {
            let is_hit =
                pid == culprit || facts.verdict["victims"].as_array().is_some_and(|victims| victims.contains(pid));
            if is_hit {
                (lane_of(pid), format!("{pid} is served again by server {server}"))
            } else {
                (Lane::Newcomers, format!("newcomer {pid} is served by server {server}"))
            }
        }
        "regions-adopted" => (lane_of(pid), format!("{pid} takes over the GPU memory of \"{}\"", text("name"))),
        _ => return None,
    })
}
