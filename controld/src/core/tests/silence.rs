//! Servers that say nothing: who gets another one, when, and what becomes of the silent one.

use super::scene::*;
use super::*;
use remps_proto::mps::server::Request;

/// The constant `silence`.
const SILENCE: Duration = Duration::from_secs(1);
/// Half of it, which is what a sign of a fault leaves.
const SUSPECTED: Duration = Duration::from_millis(500);

fn interrupted(effects: &[Effect], server: ServerEpoch) -> bool {
    effects.contains(&Effect::Signal { server, signal: ServerSignal::Interrupt })
}

fn xid(pid: Pid) -> Input {
    let (class, bus) = (XidClass::Application, "0000:3b:00".to_owned());
    Input::Evidence(Evidence::Xid {
        number: 43,
        class,
        bus,
        instance: None,
        pid: Some(pid),
        channel: Some(10),
        text: "x".to_owned(),
    })
}

/// A newcomer waits for a server that says nothing, with a sign of a fault or without.
fn falls_silent(scene: &mut Scene, has_sign: bool) -> Vec<Effect> {
    if has_sign {
        scene.dies(CULPRIT, End::Exited(207));
    }
    scene.pass(SETTLE * 2);
    scene.arrive(NEWCOMER);
    if has_sign {
        return scene.pass(SUSPECTED);
    }
    scene.pass(SILENCE)
}

fn is_lost(scene: &Scene) -> bool {
    scene.core.servers().any(|server| server.epoch == scene.server && server.is_lost())
}

#[test]
fn a_server_that_owes_nothing_is_not_silent() {
    let mut scene = Scene::new(Policy::default());
    assert_eq!(scene.core.next_deadline(), None);
    scene.pass(Duration::from_secs(3600));
    assert!(!scene.is_tainted());
}

#[test]
fn a_newcomer_that_a_server_says_nothing_about_gets_another_and_the_silent_one_keeps_its_clients() {
    let mut scene = Scene::new(Policy::default());
    scene.pass(SETTLE * 2);
    let (newcomer, _) = scene.arrive(NEWCOMER);
    assert_eq!(spawned(&scene.pass(SILENCE - Duration::from_millis(1))), None);
    let effects = scene.pass(Duration::from_millis(1));
    assert!(scene.is_tainted() && !is_lost(&scene));
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), newcomer));
    scene.finish(newcomer);
    let effects = scene.pass(Duration::from_secs(3600));
    assert!(!interrupted(&effects, scene.server), "nothing says that they have lost anything");
}

#[test]
fn a_server_that_greets_nobody_is_silent_too_and_whom_it_was_told_of_goes_elsewhere() {
    let mut scene = Scene::new(Policy::default());
    let (newcomer, _) = scene.comes(NEWCOMER);
    assert_eq!(spawned(&scene.pass(SILENCE)), None, "handshakes may take longer");
    let effects = scene.pass(SILENCE);
    assert!(effects.contains(&Effect::Recall { connection: newcomer }));
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), newcomer));
}

#[test]
fn while_a_client_may_be_what_a_server_waits_for_nothing_is_concluded() {
    let mut scene = Scene::new(Policy::default());
    let (slow, _) = scene.comes(NEWCOMER);
    scene.feed(Input::ServerGreeted { connection: slow });
    scene.arrive(Peer { pid: 13, ..NEWCOMER });
    scene.pass(Duration::from_secs(5));
    assert!(!scene.is_tainted());
    // The driver has had enough of it, and does the rest itself.
    scene.feed(Input::EndTakenBack { connection: slow });
    scene.pass(SILENCE * 2 - Duration::from_millis(1));
    // The server does it.
    scene.feed(Input::RestAnswered { connection: slow });
    scene.feed(Input::ClientDone { connection: slow, status: None });
    scene.pass(SILENCE - Duration::from_millis(1));
    assert!(!scene.is_tainted());
    scene.pass(SILENCE * 2);
    assert!(scene.is_tainted());
}

#[test]
fn a_culprit_that_ends_with_its_error_makes_the_daemon_ask_and_silence_is_believed_sooner() {
    let mut scene = Scene::new(Policy::default());
    let effects = scene.dies(CULPRIT, End::Exited(207));
    assert!(asked(&effects, &Request::Status).is_some());
    let effects = scene.pass(SUSPECTED);
    assert!(is_lost(&scene));
    scene.serve(&effects, SERVER + 1);
    assert!(!interrupted(&scene.pass(Duration::from_secs(29)), scene.server), "it has its time");
    assert!(interrupted(&scene.pass(Duration::from_secs(1)), scene.server));
}

#[test]
fn one_that_answers_after_all_and_is_in_no_fault_is_left_to_its_clients() {
    for is_sound in [true, false] {
        let mut scene = Scene::new(Policy::default());
        let late = scene.dies(CULPRIT, End::Exited(207));
        let replacement = scene.pass(SUSPECTED);
        scene.serve(&replacement, SERVER + 1);
        let effects = scene.answer_status(&late, true);
        scene.answer_status(&effects, is_sound);
        let effects = scene.pass(Duration::from_secs(60));
        assert_eq!(interrupted(&effects, scene.server), !is_sound);
        assert!(scene.is_tainted(), "but gets no newcomers");
    }
}

#[test]
fn the_kernels_word_about_a_silent_server_ends_it_soon_and_anybody_elses_does_not() {
    for (pid, soon) in [(SERVER, true), (VICTIM.pid, false)] {
        let mut scene = Scene::new(Policy::default());
        scene.feed(xid(pid));
        scene.log_record(VICTIM.pid);
        let replacement = scene.pass(SUSPECTED);
        assert!(is_lost(&scene));
        scene.serve(&replacement, SERVER + 1);
        assert_eq!(interrupted(&scene.pass(Duration::from_secs(1)), scene.server), soon);
    }
}

#[test]
fn when_the_replacement_does_not_get_ready_the_silent_one_is_ended_if_there_was_a_sign() {
    for has_sign in [true, false] {
        let mut scene = Scene::new(Policy::default());
        let effects = falls_silent(&mut scene, has_sign);
        let replacement = spawned(&effects).expect("another server");
        scene.feed(Input::ServerSpawned { server: replacement, pid: SERVER + 1 });
        assert!(!interrupted(&scene.pass(Duration::from_millis(1999)), scene.server));
        let effects = scene.pass(Duration::from_millis(1));
        assert_eq!(interrupted(&effects, scene.server), has_sign);
        assert_eq!(spawned(&effects), None, "the one under way goes on");
    }
}

#[test]
fn when_the_replacement_is_silent_too_the_first_one_is_ended_and_no_third_is_started() {
    let mut scene = Scene::new(Policy::default());
    scene.dies(CULPRIT, End::Exited(207));
    let (newcomer, _) = scene.arrive(NEWCOMER);
    let effects = scene.pass(SUSPECTED);
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), newcomer));
    let effects = scene.pass(SILENCE * 2);
    assert!(interrupted(&effects, scene.server));
    assert_eq!(spawned(&effects), None);
    let (silent, sound) = (scene.server, scene.core.servers().last().map(|server| server.epoch).expect("two"));
    assert_ne!(silent, sound);
    let exited = Input::ServerExited { server: silent, cause: ExitCause::Signaled(2) };
    scene.feed(exited);
    let effects = scene.feed(Input::ServerGreeted { connection: newcomer });
    assert!(effects.contains(&Effect::HandOver { connection: newcomer }));
}

#[test]
fn on_a_machine_that_is_slow_nobody_is_ended_and_no_third_server_is_started() {
    let mut scene = Scene::new(Policy::default());
    let effects = falls_silent(&mut scene, false);
    scene.serve(&effects, SERVER + 1);
    for _ in 0..10 {
        let effects = scene.pass(SILENCE * 2);
        assert!(!interrupted(&effects, scene.server));
        assert_eq!(spawned(&effects), None);
    }
}

#[test]
fn a_server_that_only_got_no_newcomers_may_meet_a_fault_all_the_same() {
    let mut scene = Scene::new(Policy::default());
    scene.pass(SETTLE * 2);
    scene.arrive(NEWCOMER);
    let effects = scene.pass(SILENCE);
    scene.serve(&effects, SERVER + 1);
    assert!(!is_lost(&scene));
    let effects = scene.memory_fault();
    assert!(is_lost(&scene));
    assert_eq!(spawned(&effects), None, "its domain has another server");
    assert_eq!(culprit(scene.verdict()), Some(CULPRIT.pid));
}

#[test]
fn a_crowd_whose_handshakes_go_on_is_left_alone() {
    let mut scene = Scene::new(Policy::default());
    let crowd: Vec<ConnectionId> = (20..28).map(|pid| scene.comes(Peer { pid, ..NEWCOMER }).0).collect();
    for connection in crowd {
        scene.pass(SILENCE * 2 - Duration::from_millis(1));
        scene.finish(connection);
    }
    assert!(!scene.is_tainted());
}
