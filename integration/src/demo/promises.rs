//! What ReMPS promises for such a play, and whether the run kept it.

use super::acts::{DEATH, FAULT, KEPT_BYTES, KILL, SHARE, UPGRADE};
use super::story::{Lane, Story, What};
use super::table::{self, Row};
use serde::Serialize;

/// A promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Promise {
    /// A short name that stays the same from release to release.
    pub(super) name: &'static str,
    /// What is promised.
    pub(super) text: &'static str,
    /// Whether it was kept; `None` when it could not be tried here.
    pub(super) kept: Option<bool>,
    /// What was seen.
    pub(super) seen: String,
}

/// Judges a run with our daemon; `no_proof` is why this machine has no witness that names a culprit with proof.
pub(super) fn promises(story: &Story, no_proof: Option<&str>) -> Vec<Promise> {
    let rows = table::rows(story, story);
    let seen = |index: usize| rows.get(index).map_or_else(String::new, |row: &Row| row.remps.clone());
    let is_faulted = story.fault().is_some();
    let if_faulted = |kept: bool| is_faulted.then_some(kept);
    let promise = |name, text, kept, seen| Promise { name, text, kept, seen };
    let named = match no_proof {
        Some(reason) => promise("culprit-named", NAMED, None, reason.to_owned()),
        None => promise("culprit-named", NAMED, if_faulted(is_named(story)), seen(1)),
    };
    vec![
        promise("programs-served", "every program gets a context and memory", Some(are_all_served(story)), seen(0)),
        named,
        promise(
            "goes-on-in-place",
            "a program under the library goes on after its neighbour's fault with every byte as it was",
            if_faulted(is_recovered(story)),
            seen(3),
        ),
        promise(
            "other-domain-unharmed",
            "a fault does not reach programs of another fault domain",
            if_faulted(works_through(story, FAULT)),
            seen(4),
        ),
        promise(
            "memory-found",
            "a program that `run` starts again finds its memory, with every byte as it was",
            if_faulted(is_memory_found(story)),
            seen(5),
        ),
        promise(
            "death-harms-nobody",
            "who is killed in the middle of a kernel takes nobody along",
            story.first(Lane::Killed, |what| *what == What::Killed).map(|_| works_through(story, DEATH)),
            seen(6),
        ),
        promise(
            "daemon-death-unnoticed",
            "no program ends when the daemon is killed, and the next one serves who came meanwhile",
            story.act(KILL).map(|_| is_unnoticed(story, KILL)),
            seen(7),
        ),
        promise(
            "upgrade-unnoticed",
            "no program ends when the daemon is upgraded, and who comes meanwhile is served",
            story.act(UPGRADE).map(|_| is_unnoticed(story, UPGRADE)),
            seen(8),
        ),
        promise(
            "newcomers-served",
            "whoever comes is served by MPS, whatever happens",
            are_newcomers_served(story),
            seen(9),
        ),
        nothing_left(story),
    ]
}

const NAMED: &str = "who made a memory fault is named for certain";

fn are_all_served(story: &Story) -> bool {
    let is_served = |lane: &Lane| story.during(SHARE).any(|event| event.lane == *lane && event.what.served().is_some());
    [Lane::Plain, Lane::InPlace, Lane::Culprit, Lane::Elsewhere].iter().all(is_served)
}

fn is_named(story: &Story) -> bool {
    let culprit = story.culprit();
    let first = story.during(FAULT).find_map(|event| event.what.verdict());
    culprit.is_some() && first.is_some_and(|(named, confidence, _)| named == culprit && confidence == "certain")
}

fn is_recovered(story: &Story) -> bool {
    let recovered = story.of(Lane::InPlace).find_map(|event| event.what.recovered());
    recovered.is_some_and(|(_, _, is_intact)| is_intact)
        && story.first(Lane::InPlace, |what| *what == What::Ended { is_intact: Some(true) }).is_some()
}

fn is_memory_found(story: &Story) -> bool {
    let all = What::Found { bytes: KEPT_BYTES, is_intact: true };
    story.first(Lane::Culprit, |what| *what == all).is_some()
}

/// Whether the one in another domain worked in an act and was not lost.
fn works_through(story: &Story, act: u8) -> bool {
    !story.was_lost(act, Lane::Elsewhere) && story.longest_step(act, Lane::Elsewhere).is_some()
}

/// Whether nobody was lost in an act in which somebody worked.
fn is_unnoticed(story: &Story, act: u8) -> bool {
    let working = story.working_at(act);
    let came = story.came(act).into_iter();
    let is_taken = |lane: Lane| story.served(lane).is_some_and(|(pid, _)| story.was_taken(pid));
    working.contains(&Lane::Elsewhere)
        && working.iter().all(|lane| !story.was_lost(act, *lane))
        && works_through(story, act)
        && came.map(is_taken).reduce(|one, other| one && other) == Some(true)
}

fn are_newcomers_served(story: &Story) -> Option<bool> {
    let came = story.newcomers();
    let is_served = |lane: &Lane| story.served(*lane).is_some_and(|(pid, _)| story.was_taken(pid));
    (!came.is_empty()).then(|| came.iter().all(is_served))
}

fn nothing_left(story: &Story) -> Promise {
    let left = story.end.as_ref().map(|end| end.files_left.iter().chain(&end.processes_left));
    let left: Option<Vec<&str>> = left.map(|left| left.map(String::as_str).collect());
    let status = story.end.as_ref().and_then(|end| end.status);
    let seen = match &left {
        None => "there was no daemon to end".to_owned(),
        Some(left) if left.is_empty() => {
            format!("quit ends with status {}", status.map_or("none".to_owned(), |s| s.to_string()))
        }
        Some(left) => format!("left: {}", left.join(", ")),
    };
    Promise {
        name: "nothing-left",
        text: "after quit no file is left in the pipe directory and no process runs",
        kept: Some(left.is_some_and(|left| left.is_empty()) && status == Some(0)),
        seen,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{remps, with, without};
    use super::super::story::Event;
    use super::*;

    fn broken(story: &Story) -> Vec<&'static str> {
        let promises = promises(story, None).into_iter().filter(|promise| promise.kept == Some(false));
        promises.map(|promise| promise.name).collect()
    }

    #[test]
    fn a_run_in_which_all_went_well_keeps_every_promise() {
        let promises = promises(&remps(), None);
        assert!(promises.iter().all(|promise| promise.kept == Some(true)), "{promises:#?}");
    }

    #[test]
    fn what_an_event_takes_away_breaks_its_promise_and_no_other() {
        assert_eq!(
            broken(&without(remps(), Lane::Daemon, |what| matches!(what, What::Verdict { .. }))),
            ["culprit-named"]
        );
        let torn = What::Recovered { took_ms: 1.0, bytes: 1, is_intact: false };
        assert_eq!(broken(&with(remps(), |what| matches!(what, What::Recovered { .. }), torn)), ["goes-on-in-place"]);
        let less = What::Found { bytes: KEPT_BYTES - 1, is_intact: true };
        assert_eq!(broken(&with(remps(), |what| matches!(what, What::Found { .. }), less)), ["memory-found"]);
        let mut lost = remps();
        let error = What::Failed { call: "cuCtxSynchronize".to_owned(), code: 700, name: "X".to_owned() };
        let at = lost.act(DEATH).expect("it was played").0 + 1.0;
        lost.events.push(Event { ms: at, lane: Lane::Elsewhere, what: error });
        assert!(broken(&lost).contains(&"death-harms-nobody"), "{:?}", broken(&lost));
        let unserved = without(remps(), Lane::Newcomer(1), |what| matches!(what, What::Served { .. }));
        assert_eq!(broken(&unserved), ["newcomers-served"]);
        let mut left = remps();
        left.end.as_mut().expect("it ended").files_left.push("control".to_owned());
        assert_eq!(broken(&left), ["nothing-left"]);
    }

    #[test]
    fn what_was_not_tried_is_neither_kept_nor_broken() {
        let named = promises(&remps(), Some("no witness"));
        assert_eq!((named[1].name, named[1].kept, named[1].seen.as_str()), ("culprit-named", None, "no witness"));
        let calm = without(remps(), Lane::Culprit, |what| *what == What::Faulted);
        let untried: Vec<&str> =
            promises(&calm, None).iter().filter(|promise| promise.kept.is_none()).map(|promise| promise.name).collect();
        assert_eq!(untried, ["culprit-named", "goes-on-in-place", "other-domain-unharmed", "memory-found"]);
    }
}
