//! The end of a server that a program's successor waits for.

use super::scene::*;
use super::*;
use remps_proto::mps::server::{Reply, Request};
use world::key;

fn forces(effects: &[Effect], server: ServerEpoch) -> bool {
    let forced = Effect::Signal { server, signal: ServerSignal::Interrupt };
    effects.contains(&forced)
}

fn awaited(scene: &mut Scene, ending: Option<(Peer, End)>) -> Vec<Effect> {
    let ending = ending.map(|(peer, end)| (key(peer.pid, 0), end));
    scene.feed(Input::EndAwaited { server: scene.server, ending })
}

/// A server with one client.
fn alone() -> Scene {
    let mut scene = Scene::new(Policy::default());
    scene.dies(VICTIM, End::Exited(0));
    scene
}

#[test]
fn a_server_whose_only_client_has_died_is_not_asked_but_ended_when_somebody_waits_for_it() {
    let mut scene = alone();
    let effects = scene.dies(CULPRIT, End::Signaled(9));
    let request = asked(&effects, &Request::Shutdown).expect("nobody waits");
    // It still has the dead one, and would be asked again after a pause.
    assert!(!forces(&scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(1)) }), scene.server));
    assert!(forces(&awaited(&mut scene, None), scene.server));
    assert!(!forces(&awaited(&mut scene, None), scene.server), "once");
}

#[test]
fn who_is_past_doing_anything_is_not_waited_for_and_its_copies_are_kept_until_the_servers_end() {
    let mut scene = alone();
    let effects = awaited(&mut scene, Some((CULPRIT, End::Signaled(9))));
    assert!(forces(&effects, scene.server) && scene.is_tainted());
    assert!(!is_released(&effects, CULPRIT));
    assert_eq!(asked(&effects, &Request::Shutdown), None, "it need not be asked");
    let (newcomer, waits) = scene.arrive(NEWCOMER);
    assert!(!is_dispatched(&waits, newcomer), "it waits for the server in its place");
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), newcomer));
    assert!(
        !is_released(&scene.dies(CULPRIT, End::Signaled(9)), CULPRIT),
        "its work may run until the server has ended"
    );
    let exited = Input::ServerExited { server: scene.server, cause: ExitCause::Signaled(2) };
    assert!(is_released(&scene.feed(exited), CULPRIT));
    // The other way round, the server's end is what its copies are closed for.
    let mut scene = alone();
    awaited(&mut scene, Some((CULPRIT, End::Signaled(9))));
    let exited = Input::ServerExited { server: scene.server, cause: ExitCause::Signaled(2) };
    assert!(is_released(&scene.feed(exited), CULPRIT));
    scene.dies(CULPRIT, End::Signaled(9));
    assert!(scene.core.servers().all(|server| server.epoch != scene.server));
}

#[test]
fn no_server_is_ended_for_a_successor_while_anybody_else_may_be_on_it() {
    // Two clients.
    let mut scene = Scene::new(Policy::default());
    assert!(!forces(&awaited(&mut scene, Some((CULPRIT, End::Signaled(9)))), scene.server));
    assert!(!scene.is_tainted());
    assert!(!forces(&scene.dies(CULPRIT, End::Signaled(9)), scene.server) && !scene.is_tainted());
    assert!(forces(&scene.dies(VICTIM, End::Signaled(9)), scene.server), "until the last one has died as well");
    // One that has its end of the connection already.
    let mut scene = alone();
    let (newcomer, effects) = scene.arrive(NEWCOMER);
    assert!(is_dispatched(&effects, newcomer));
    scene.feed(Input::ServerGreeted { connection: newcomer });
    assert!(!forces(&awaited(&mut scene, Some((CULPRIT, End::Signaled(9)))), scene.server));
    assert!(!forces(&scene.dies(CULPRIT, End::Signaled(9)), scene.server));
}

#[test]
fn a_server_that_its_client_leaves_in_good_order_stays_however_long_a_successor_waits() {
    for end in [End::Exited(0), End::Exited(1), End::Unknown] {
        let mut scene = alone();
        assert!(!forces(&awaited(&mut scene, Some((CULPRIT, end))), scene.server), "{end:?}");
        assert!(!scene.is_tainted(), "{end:?}");
        if end == End::Unknown {
            // What nobody can tell is waited for, and taken for a sudden end then.
            continue;
        }
        let effects = scene.dies(CULPRIT, end);
        assert!(!forces(&effects, scene.server), "{end:?}");
        let answered = if end == End::Exited(0) { Vec::new() } else { scene.answer_status(&effects, true) };
        assert!(!scene.is_tainted() && !forces(&answered, scene.server), "{end:?}");
        assert!(!forces(&scene.pass(Duration::from_secs(60)), scene.server), "{end:?}");
    }
}

#[test]
fn a_server_in_a_fault_is_ended_when_its_last_client_has_gone() {
    let mut scene = Scene::new(Policy::default());
    scene.memory_fault();
    assert!(scene.is_tainted());
    assert!(!forces(&awaited(&mut scene, None), scene.server), "its clients may still hear of it");
    assert!(!forces(&scene.dies(CULPRIT, End::Exited(1)), scene.server));
    assert!(forces(&scene.dies(VICTIM, End::Exited(1)), scene.server));
}

#[test]
fn the_end_of_an_earlier_server_or_of_a_stranger_is_nothing() {
    let mut scene = alone();
    let (earlier, own) = (ServerEpoch(77), scene.server);
    let ending = Some((key(CULPRIT.pid, 0), End::Signaled(9)));
    assert!(!forces(&scene.feed(Input::EndAwaited { server: earlier, ending }), own) && !scene.is_tainted());
    let stranger = Some((NEWCOMER, End::Signaled(9)));
    assert!(!forces(&awaited(&mut scene, stranger), own) && !scene.is_tainted(), "its only client lives");
    let mut later = Scene::new(Policy::default());
    later.dies(VICTIM, End::Exited(0));
    later.feed(Input::Terminate);
    awaited(&mut later, Some((CULPRIT, End::Signaled(9))));
    assert!(later.core.is_quitting());
}
