//! What a fault's signs come to: when there is a verdict, whom a client's own word points at, and who is a victim.

use super::scene::*;
use super::*;
use crate::core::faults::incident::BETWEEN_DOUBTS;
use remps_proto::mps::server::{Reply, Request};
use world::key;

/// The constant `evidence_window`.
const WINDOW: Duration = Duration::from_millis(500);
/// A third client.
const OTHER: Peer = Peer { pid: 13, uid: 1000, gid: 1000 };

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The kernel tells of an error of an application, naming this process or none.
fn xid(scene: &mut Scene, number: u32, pid: Option<Pid>) -> Vec<Effect> {
    let (class, bus, text) = (XidClass::Application, "0000:3b:00".to_owned(), "x".to_owned());
    scene.feed(Input::Evidence(Evidence::Xid { number, class, bus, instance: None, pid, channel: None, text }))
}

/// A record of which nothing can be believed but that the server is to be asked.
fn record(scene: &mut Scene) -> Vec<Effect> {
    let (text, server) = ("Server is handling a fatal GPU error.".to_owned(), SERVER);
    scene.feed(Input::Evidence(Evidence::ServerLog { server, named: None, blames: false, text }))
}

fn says(scene: &mut Scene, peer: Peer, error: u32) -> Vec<Effect> {
    scene.feed(Input::Evidence(Evidence::Shim { process: key(peer.pid, 0), error, own_work: true, server: None }))
}

/// Answers every question for the server's status with this until none is asked any more.
fn is_active(scene: &mut Scene, mut effects: Vec<Effect>) {
    while let Some(request) = asked(&effects, &Request::Status) {
        effects = scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
    }
}

#[track_caller]
fn assert_unknown(scene: &Scene, victims: &[Pid]) {
    let verdict = scene.verdict();
    assert_eq!((culprit(verdict), verdict.confidence), (None, Confidence::Unknown), "{verdict}");
    assert_eq!(verdict.victims, victims, "{verdict}");
}

#[test]
fn an_xid_and_failed_clients_have_a_verdict_also_when_the_server_is_in_no_fault_any_more() {
    let mut scene = Scene::new(Policy::default());
    scene.joins(OTHER);
    let mut effects = xid(&mut scene, 13, None);
    effects.extend(record(&mut scene));
    // The victims have left before the server is asked, and so it is sound again.
    scene.dies(CULPRIT, End::Exited(0));
    scene.dies(VICTIM, End::Exited(204));
    scene.dies(OTHER, End::Exited(207));
    is_active(&mut scene, effects);
    assert_eq!(scene.core.verdicts().len(), 0, "a better witness may come");
    scene.pass(WINDOW);
    assert_unknown(&scene, &[VICTIM.pid, OTHER.pid]);
    assert_eq!((scene.verdict().kind, scene.verdict().xid), ("exception", Some(13)));
    assert!(!scene.is_tainted());
}

#[test]
fn an_xid_and_a_server_that_ends_by_itself_have_a_verdict_and_its_clients_are_victims() {
    let mut scene = Scene::new(Policy::default());
    xid(&mut scene, 13, None);
    scene.feed(Input::ServerExited { server: scene.server, cause: ExitCause::Exited(1) });
    assert_unknown(&scene, &[CULPRIT.pid, VICTIM.pid]);
    // Without a sign of a fault it is the server's own death.
    let mut scene = Scene::new(Policy::default());
    scene.feed(Input::ServerExited { server: scene.server, cause: ExitCause::Signaled(9) });
    assert_eq!(scene.core.verdicts().len(), 0);
}

#[test]
fn what_the_kernel_says_of_a_server_or_of_a_client_that_has_just_died_has_a_verdict() {
    for (names, dies) in [(SERVER, false), (VICTIM.pid, false), (VICTIM.pid, true)] {
        let mut scene = Scene::new(Policy::default());
        if dies {
            let effects = scene.dies(VICTIM, End::Exited(0));
            is_active(&mut scene, effects);
        }
        let effects = xid(&mut scene, 43, Some(names));
        is_active(&mut scene, effects);
        scene.pass(WINDOW);
        assert_unknown(&scene, &[]);
    }
    // What it says of anybody's end is no fault.
    let mut scene = Scene::new(Policy::default());
    let effects = xid(&mut scene, 45, Some(VICTIM.pid));
    is_active(&mut scene, effects);
    scene.pass(WINDOW);
    assert_eq!(scene.core.verdicts().len(), 0);
}

#[test]
fn a_client_that_fails_beside_forged_records_has_a_verdict_and_not_without_end() {
    let mut scene = Scene::new(Policy::default());
    for (pid, expected) in [(100, 1), (101, 1), (102, 1)] {
        let peer = Peer { pid, ..NEWCOMER };
        scene.joins(peer);
        let effects = record(&mut scene);
        scene.dies(peer, End::Exited(1));
        is_active(&mut scene, effects);
        scene.pass(WINDOW);
        assert_eq!(scene.core.verdicts().len(), expected, "{pid}");
        assert_unknown(&scene, &[100]);
        // What else is said of the same fault has no verdict of its own.
        scene.pass(Duration::from_secs(5));
    }
    scene.pass(BETWEEN_DOUBTS);
    let effects = record(&mut scene);
    scene.dies(VICTIM, End::Exited(1));
    is_active(&mut scene, effects);
    scene.pass(WINDOW);
    assert_unknown(&scene, &[VICTIM.pid]);
}

#[test]
fn a_verdict_that_was_given_too_soon_is_corrected_when_the_server_is_lost_after_all() {
    let mut scene = Scene::new(Policy::default());
    let effects = xid(&mut scene, 43, Some(SERVER));
    is_active(&mut scene, effects);
    scene.pass(WINDOW);
    assert_unknown(&scene, &[]);
    let first = scene.verdict().number;
    let effects = record(&mut scene);
    scene.answer_status(&effects, false);
    scene.pass(WINDOW);
    assert_unknown(&scene, &[CULPRIT.pid, VICTIM.pid]);
    assert_eq!((scene.verdict().corrects, scene.core.verdicts().len()), (Some(first), 2));
}

#[test]
fn a_culprits_own_word_makes_it_known_as_soon_as_the_server_is_lost() {
    // In whichever order the three come.
    for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0]] {
        let mut scene = Scene::new(Policy::default());
        let mut effects = Vec::new();
        for step in order {
            match step {
                0 => effects.extend(says(&mut scene, CULPRIT, 719)),
                1 => effects.extend(record(&mut scene)),
                _ => drop(scene.answer_status(&effects, false)),
            }
            scene.pass(ms(14));
        }
        let verdict = scene.verdict();
        assert_eq!((culprit(verdict), verdict.confidence), (Some(CULPRIT.pid), Confidence::Likely), "{order:?}");
        assert_eq!((verdict.victims.as_slice(), verdict.kind), (&[VICTIM.pid][..], "exception"));
        // Victims get the same error later, and change nothing.
        scene.pass(ms(138));
        says(&mut scene, VICTIM, 719);
        scene.pass(WINDOW);
        assert_eq!((culprit(scene.verdict()), scene.core.verdicts().len()), (Some(CULPRIT.pid), 1));
    }
}

#[test]
fn a_victims_word_makes_nobody_the_culprit() {
    type Story = fn(&mut Scene) -> Vec<Effect>;
    let late: Story = |scene| {
        let effects = record(scene);
        scene.answer_status(&effects, false);
        scene.pass(ms(138));
        says(scene, VICTIM, 719)
    };
    let misaligned: Story = |scene| {
        let effects = xid(scene, 13, None);
        record(scene);
        scene.answer_status(&effects, false);
        scene.pass(ms(31));
        says(scene, VICTIM, 719)
    };
    let beside_another_kind: Story = |scene| {
        says(scene, CULPRIT, 716);
        let effects = says(scene, VICTIM, 719);
        let request = asked(&effects, &Request::Status);
        assert_eq!(request, None, "it is asked already");
        effects
    };
    let two_at_once: Story = |scene| {
        let effects = says(scene, CULPRIT, 719);
        says(scene, VICTIM, 719);
        effects
    };
    let other_errors: Story = |scene| {
        let effects = says(scene, VICTIM, 715);
        says(scene, VICTIM, 719);
        effects
    };
    let of_a_dead_server: Story = |scene| says(scene, VICTIM, 806);
    let after_a_sudden_death: Story = |scene| {
        let effects = scene.dies(CULPRIT, End::Signaled(9));
        scene.answer_status(&effects, true);
        says(scene, VICTIM, 719)
    };
    let behind_forged_records: Story = |scene| {
        let effects = record(scene);
        is_active(scene, effects);
        scene.pass(Duration::from_secs(2));
        says(scene, VICTIM, 719)
    };
    let stories: [(&str, Story); 8] = [
        ("late", late),
        ("misaligned", misaligned),
        ("beside another kind", beside_another_kind),
        ("two at once", two_at_once),
        ("other errors", other_errors),
        ("of a dead server", of_a_dead_server),
        ("after a sudden death", after_a_sudden_death),
        ("behind forged records", behind_forged_records),
    ];
    for (name, story) in stories {
        let mut scene = Scene::new(Policy::default());
        story(&mut scene);
        for _ in 0..3 {
            // Whatever is still asked is answered with the truth.
            let asked: Vec<RequestId> = scene.open_questions();
            for request in asked {
                scene.feed(Input::Replied { request, reply: Ok(Reply::Active(false)) });
            }
        }
        scene.pass(WINDOW);
        assert!(scene.is_tainted(), "{name}");
        assert_eq!((culprit(scene.verdict()), scene.verdict().confidence), (None, Confidence::Unknown), "{name}");
    }
}

#[test]
fn two_words_that_contradict_each_other_take_back_what_the_first_made_known() {
    let mut scene = Scene::new(Policy::default());
    let effects = says(&mut scene, VICTIM, 719);
    scene.answer_status(&effects, false);
    assert_eq!(culprit(scene.verdict()), Some(VICTIM.pid));
    let first = scene.verdict().number;
    scene.pass(ms(1));
    says(&mut scene, CULPRIT, 719);
    assert_unknown(&scene, &[CULPRIT.pid, VICTIM.pid]);
    assert_eq!(scene.verdict().corrects, Some(first));
}

#[test]
fn an_assertion_is_its_own_clients() {
    let mut scene = Scene::new(Policy::default());
    let mut effects = says(&mut scene, CULPRIT, 710);
    effects.extend(scene.log_record(CULPRIT.pid));
    scene.dies(CULPRIT, End::Exited(198));
    is_active(&mut scene, effects);
    scene.pass(WINDOW);
    let verdict = scene.verdict();
    assert_eq!((culprit(verdict), verdict.confidence), (Some(CULPRIT.pid), Confidence::Likely), "{verdict}");
    assert!(verdict.victims.is_empty(), "{verdict}");
    // Where the server is lost, it was something else.
    let mut scene = Scene::new(Policy::default());
    let effects = says(&mut scene, CULPRIT, 710);
    scene.answer_status(&effects, false);
    scene.pass(WINDOW);
    assert_unknown(&scene, &[CULPRIT.pid, VICTIM.pid]);
}

#[test]
fn who_was_taken_back_before_the_fault_or_has_nothing_there_yet_is_no_victim() {
    let mut scene = Scene::new(Policy::default());
    // One that was greeted and no more, and one with its own connection alone.
    let (on_its_way, _) = scene.comes(NEWCOMER);
    let (alone, _) = scene.comes(OTHER);
    scene.finish(alone);
    // A record takes the first one back, and then the fault comes.
    let effects = record(&mut scene);
    scene.feed(Input::ServerGreeted { connection: on_its_way });
    scene.answer_status(&effects, false);
    scene.pass(WINDOW);
    assert_unknown(&scene, &[CULPRIT.pid, VICTIM.pid]);
    // But who has its end of the connection is refused by a server in a fault.
    let mut scene = Scene::new(Policy::default());
    let (greeted, _) = scene.comes(NEWCOMER);
    scene.feed(Input::ServerGreeted { connection: greeted });
    scene.memory_fault();
    assert_eq!(scene.verdict().victims, [VICTIM.pid, NEWCOMER.pid]);
}

/// A successor of a scene's daemon, which has been told by the server who its clients are.
fn succeeded(scene: &Scene) -> (Core, Vec<Effect>) {
    let saved = scene.core.saved();
    let (mut core, effects) = Core::restored(scene.now, Policy::default(), &saved, &saved.servers);
    let request = asked(&effects, &Request::Clients).expect("it is asked who is there");
    let pids = vec![CULPRIT.pid, VICTIM.pid];
    let effects = core.handle(scene.now, Input::Replied { request, reply: Ok(Reply::Clients(pids)) });
    (core, effects)
}

#[test]
fn numbers_of_incidents_and_verdicts_go_on_with_a_successor() {
    let mut scene = Scene::new(Policy::default());
    scene.memory_fault();
    let (before, noted) = (scene.verdict().clone(), scene.core.saved());
    assert_eq!((noted.next_incident, noted.next_verdict), (before.incident + 1, before.number + 1));
    let (mut core, _) = succeeded(&scene);
    assert_eq!(core.verdicts().len(), 0, "the verdict was given");
    let _ = core.handle(scene.now + WINDOW * 2, Input::Tick);
    assert_eq!(core.verdicts().len(), 0);
    assert_eq!((core.saved().next_incident, core.saved().next_verdict), (before.incident + 1, before.number + 1));
    // What an earlier release has left says nothing of numbers.
    let mut old = noted;
    (old.next_incident, old.next_verdict) = (0, 0);
    let (core, _) = Core::restored(scene.now, Policy::default(), &old, &old.servers);
    assert_eq!((core.saved().next_incident, core.saved().next_verdict), (before.incident + 1, 1));
}

#[test]
fn a_fault_whose_daemon_is_killed_before_its_verdict_has_one_by_the_next() {
    let mut scene = Scene::new(Policy::default());
    let effects = record(&mut scene);
    scene.answer_status(&effects, false);
    assert_eq!(scene.core.verdicts().len(), 0);
    let (mut core, _) = succeeded(&scene);
    let _ = core.handle(scene.now + WINDOW, Input::Tick);
    let verdict = core.verdicts().next_back().expect("there is one");
    assert_eq!((verdict.incident, verdict.confidence), (1, Confidence::Unknown));
    assert_eq!(verdict.victims, [CULPRIT.pid, VICTIM.pid]);
    assert!(core.saved().servers.iter().all(|server| !server.unjudged), "and no third one");
}
