//! How quarantines are called, by a daemon and by its successors.

use super::scene::*;
use super::*;
use crate::core::servers::domain::Group;
use crate::core::servers::quarantine::Offender;
use std::sync::Arc;
use world::identity;

/// The culprit's like, as it is shown.
const OFFENDER: &str = "program-10 of user 1000";

/// A process of the same program and workload as the culprit.
fn like(pid: Pid) -> Arc<Identity> {
    Arc::new(Identity { command: "program-10 --again".to_owned(), ..Identity::clone(&identity(pid, 0)) })
}

/// A scene whose culprit has been put into quarantine by its first fault, and its like has a server there.
fn quarantined() -> Scene {
    let mut scene = Scene::with(|domain| domain.faults.quarantine_after = 1);
    let effects = scene.memory_fault();
    let is_told = effects.iter().any(|effect| match effect {
        Effect::Record(event) => matches!(
            &**event,
            JournalEvent::CulpritSanctioned { quarantine: Some(name), offender: Some(offender), .. }
                if name == "q1" && offender == OFFENDER
        ),
        _ => false,
    });
    assert!(is_told, "who is in which quarantine stands in the journal: {effects:?}");
    scene.serve(&effects, SERVER + 1);
    scene.dies(CULPRIT, End::Exited(1));
    let (connection, peer) = (ConnectionId(800), Peer { pid: 20, ..CULPRIT });
    let effects = scene.feed(Input::ClientArrived { connection, peer, identity: like(peer.pid), entrance: None });
    scene.serve(&effects, SERVER + 2);
    scene.finish(connection);
    scene
}

fn names(core: &Core) -> Vec<String> {
    core.servers.domains().map(|(_, domain)| domain.name()).collect()
}

fn offenders(core: &Core) -> Vec<String> {
    core.servers.domains().filter_map(|(_, domain)| domain.offender()).collect()
}

#[test]
fn a_quarantine_has_a_short_name_and_its_offender_stands_beside_it() {
    let scene = quarantined();
    assert_eq!(names(&scene.core), ["user 1000", "q1"]);
    assert_eq!(offenders(&scene.core), [OFFENDER]);
}

#[test]
fn a_successor_calls_a_quarantine_as_it_was_called_and_gives_its_number_to_no_other() {
    let scene = quarantined();
    let saved = scene.core.saved();
    let alive: Vec<_> = saved.servers.iter().filter(|server| server.ready).cloned().collect();
    let (mut core, _) = Core::restored(scene.now, Policy::default(), &saved, &alive);
    assert_eq!(names(&core), ["user 1000", "q1"]);
    assert_eq!(offenders(&core), [OFFENDER]);
    let offender = Offender::of(CULPRIT.uid, &like(21));
    assert_eq!(core.quarantine_number(&offender), 1, "the same offender's is the same");
    assert!(matches!(core.servers.quarantine_group(offender), Group::Label(_)), "and has the server that is there");
    let other = Offender::of(CULPRIT.uid + 1, &like(21));
    assert_eq!(core.quarantine_number(&other), 2);
    let (again, _) = Core::restored(scene.now, Policy::default(), &core.saved(), &alive);
    assert_eq!((names(&again), again.saved().next_quarantine), (names(&core), 3));
}

#[test]
fn a_quarantine_of_a_daemon_that_gave_no_numbers_gets_one() {
    let scene = quarantined();
    let mut saved = scene.core.saved();
    saved.next_quarantine = 0;
    let mut alive: Vec<_> = saved.servers.iter().filter(|server| server.ready).cloned().collect();
    for group in alive.iter_mut().filter_map(|server| server.group.as_mut()) {
        group.quarantine = 0;
    }
    let (core, _) = Core::restored(scene.now, Policy::default(), &saved, &alive);
    assert_eq!((names(&core), core.saved().next_quarantine), (vec!["user 1000".to_owned(), "q1".to_owned()], 2));
}
