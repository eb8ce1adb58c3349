//! Records that anybody can write in a server's name, as many as he likes: what they cost, and whom.

use super::scene::*;
use super::*;
use crate::core::faults::incident::{LONGEST_OPEN, MAX_OF_WITNESS};
use remps_proto::mps::server::{Reply, Request};
use world::{assert_is_bounded, key};

/// How many of them reach the core, which hears four a second: as many as in seven hours.
const MANY: u32 = 100_000;
/// The time between two of them, much less than the driver lets pass.
const BETWEEN: Duration = Duration::from_micros(300);

fn verdicts_in(effects: &[Effect]) -> usize {
    let is_verdict =
        |event: &JournalEvent| matches!(event, JournalEvent::Verdict { .. } | JournalEvent::VerdictCorrected { .. });
    effects.iter().filter(|effect| matches!(effect, Effect::Record(event) if is_verdict(event))).count()
}

fn events_in(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Record(_))).count()
}

/// A server that has met a fault, on which there is a verdict.
fn judged() -> Scene {
    let mut scene = Scene::new(Policy::default());
    let effects = scene.log_record(CULPRIT.pid);
    scene.answer_status(&effects, false);
    scene.pass(Duration::from_millis(500));
    assert_eq!(scene.core.verdicts().len(), 1);
    scene
}

#[test]
fn forged_records_about_a_sound_server_cost_a_bounded_memory_and_bounded_work() {
    let mut scene = Scene::new(Policy::default());
    let clients = scene.core.is_or_were_clients(scene.server);
    let (mut questions, mut events, mut incidents) = (0, 0, std::collections::BTreeSet::new());
    let mut open: Option<RequestId> = None;
    for number in 0..MANY {
        scene.now += BETWEEN;
        let effects = scene.log_record(number % 5000);
        events += events_in(&effects);
        if let Some(request) = asked(&effects, &Request::Status) {
            questions += 1;
            assert_eq!(open.replace(request), None, "one question at a time");
        }
        for incident in scene.core.faults.incidents().values() {
            assert_is_bounded(incident, &clients, scene.now);
            incidents.insert(incident.id);
        }
        if number % 10 == 0
            && let Some(request) = open.take()
        {
            let effects = scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
            open = asked(&effects, &Request::Status);
        }
    }
    assert!(questions <= MANY / 10 + 1, "{questions}");
    assert_eq!(events, 0, "nothing of it is in the journal");
    assert_eq!(scene.core.verdicts().len(), 0);
    assert!(!scene.is_tainted());
    assert!((3..100).contains(&incidents.len()), "none of them goes on for ever: {}", incidents.len());
}

#[test]
fn forged_records_after_a_fault_change_no_verdict_and_leave_the_journal_alone() {
    let mut scene = judged();
    let clients = scene.core.is_or_were_clients(scene.server);
    let before = scene.verdict().clone();
    let (mut events, mut verdicts) = (0, 0);
    for number in 0..MANY {
        scene.now += BETWEEN;
        let effects = scene.log_record(if number % 2 == 0 { VICTIM.pid } else { number });
        events += events_in(&effects);
        verdicts += verdicts_in(&effects);
        assert!(effects.len() <= 8, "{effects:?}");
        scene.core.faults.incidents().values().for_each(|incident| assert_is_bounded(incident, &clients, scene.now));
    }
    assert_eq!(verdicts, 0, "nothing new is known");
    assert!(events <= MAX_OF_WITNESS, "{events}");
    let after = scene.verdict();
    assert_eq!((after.number, after.confidence, culprit(after)), (before.number, Confidence::Unknown, None));
}

#[test]
fn forged_records_leave_room_for_every_other_witness() {
    let mut scene = Scene::new(Policy::default());
    let effects = scene.log_record(VICTIM.pid);
    for number in 0..1000 {
        scene.log_record(number);
    }
    scene.answer_status(&effects, false);
    scene.feed(Input::Evidence(Evidence::Shim {
        process: key(CULPRIT.pid, 0),
        error: 719,
        own_work: true,
        server: None,
    }));
    scene.pass(Duration::from_millis(500));
    let verdict = scene.verdict();
    for witness in ["server-log", "server-status", "shim"] {
        assert!(verdict.witnesses.iter().any(|testimony| testimony.witness == witness), "{witness}: {verdict:?}");
    }
    assert_eq!(verdict.more_witnesses, 1001 - MAX_OF_WITNESS as u64);
    assert_eq!((culprit(verdict), verdict.confidence), (Some(CULPRIT.pid), Confidence::Likely), "by its own word");
}

#[test]
fn a_verdict_that_would_say_the_same_again_is_not_given() {
    let mut scene = judged();
    for _ in 0..3 {
        let effects = scene.log_record(VICTIM.pid);
        assert_eq!(verdicts_in(&effects), 0);
    }
    let word = |scene: &mut Scene, peer: Peer| {
        scene.feed(Input::Evidence(Evidence::Shim {
            process: key(peer.pid, 0),
            error: 719,
            own_work: true,
            server: None,
        }))
    };
    assert_eq!(verdicts_in(&word(&mut scene, CULPRIT)), 0, "it comes as late as a victim's");
    let mut scene = Scene::new(Policy::default());
    let effects = word(&mut scene, CULPRIT);
    assert_eq!(verdicts_in(&scene.answer_status(&effects, false)), 1, "somebody is likely");
    assert_eq!(verdicts_in(&word(&mut scene, CULPRIT)), 0);
    assert_eq!(verdicts_in(&scene.pass(Duration::from_millis(500))), 0);
    assert_eq!(verdicts_in(&word(&mut scene, VICTIM)), 0);
}

/// A client dies suddenly, and harms nobody. Somebody then holds an incident open with forged records, until his own
/// death in a kernel: reckoned from the first record, that would be the doing of who died before.
#[test]
fn forged_records_do_not_put_a_later_fault_down_to_an_earlier_death() {
    let mut scene = Scene::new(Policy::default());
    scene.joins(NEWCOMER);
    scene.feed(Input::Tracked { process: key(NEWCOMER.pid, 0), tracked: true });
    let effects = scene.dies(VICTIM, End::Signaled(9));
    scene.answer_status(&effects, true);
    let mut question = asked(&scene.log_record(NEWCOMER.pid), &Request::Status);
    for _ in 0..40 {
        scene.pass(Duration::from_millis(100));
        scene.log_record(NEWCOMER.pid);
        let request = question.expect("each record is asked about");
        let effects = scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
        question =
            asked(&effects, &Request::Status).or_else(|| asked(&scene.log_record(NEWCOMER.pid), &Request::Status));
    }
    scene.dies(CULPRIT, End::Signaled(9));
    scene.pass(Duration::from_millis(150));
    let (number, class, bus, pid) = (31, XidClass::Application, "0000:3b:00".to_owned(), Some(SERVER));
    let text = "MMU Fault".to_owned();
    scene.feed(Input::Evidence(Evidence::Xid { number, class, bus, instance: None, pid, channel: None, text }));
    let request = question.expect("it is asked");
    scene.feed(Input::Replied { request, reply: Ok(Reply::Active(false)) });
    scene.pass(Duration::from_millis(500));
    assert_eq!(culprit(scene.verdict()), Some(CULPRIT.pid), "{}", scene.verdict());
}

#[test]
fn a_server_that_says_nothing_is_no_worse_off_for_forged_records() {
    let mut scene = Scene::new(Policy::default());
    let effects = scene.log_record(VICTIM.pid);
    // One that comes while it is asked makes the daemon ask again.
    scene.log_record(VICTIM.pid);
    let effects = scene.answer_status(&effects, true);
    assert!(asked(&effects, &Request::Status).is_some());
    // It answers within its ordinary time, which is longer than that after a sign.
    scene.pass(Duration::from_millis(999));
    assert!(!scene.is_tainted());
    scene.pass(Duration::from_millis(1));
    assert!(scene.is_tainted());
    let taint = scene.core.servers().find(|server| server.epoch == scene.server).and_then(|server| server.tainted());
    assert_eq!(taint.map(|taint| taint.incident), Some(0), "it only gets no newcomers");
    let effects = scene.pass(Duration::from_secs(600));
    let own = scene.server;
    let is_signal = |effect: &Effect| matches!(effect, Effect::Signal { server, .. } if *server == own);
    assert!(!effects.iter().any(is_signal), "and is never ended for it");
}

#[test]
fn an_incident_that_only_forged_records_hold_open_has_an_end() {
    let mut scene = Scene::new(Policy::default());
    let mut question = asked(&scene.log_record(VICTIM.pid), &Request::Status);
    let first = scene.core.faults.incidents().values().next().expect("one is open").id;
    for _ in 0..LONGEST_OPEN.as_millis() / 100 {
        scene.pass(Duration::from_millis(100));
        let effects = match question.take() {
            Some(request) => scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) }),
            None => Vec::new(),
        };
        question = asked(&effects, &Request::Status).or_else(|| asked(&scene.log_record(VICTIM.pid), &Request::Status));
    }
    assert!(
        scene.core.faults.incidents().values().all(|incident| incident.id != first),
        "{:?}",
        scene.core.faults.incidents()
    );
}
