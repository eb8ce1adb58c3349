//! What clients that have died leave behind, and what comes of it.

use super::*;

#[test]
fn copies_are_closed_at_once_after_an_orderly_exit() {
    let mut scene = Scene::new(Policy::default());
    assert!(is_released(&scene.dies(CULPRIT, End::Exited(0)), CULPRIT));
}

#[test]
fn after_a_sudden_death_copies_are_kept_while_others_are_there_and_newcomers_go_elsewhere_in_the_end() {
    let mut scene = Scene::new(Policy::default());
    let effects = scene.dies(CULPRIT, End::Signaled(9));
    assert!(!is_released(&effects, CULPRIT));
    scene.answer_status(&effects, true);
    assert!(!is_released(&scene.pass(Duration::from_secs(9)), CULPRIT));
    assert!(!scene.is_tainted());
    let effects = scene.pass(Duration::from_secs(1));
    assert!(!is_released(&effects, CULPRIT) && scene.is_tainted(), "its work may be endless");
    assert!(spawned(&effects).is_some(), "so newcomers get another server");
    scene.serve(&effects, SERVER + 1);
    let request = asked(&effects, &Request::Shutdown).expect("it may go when it has no clients");
    scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(2)) });
    let (second, effects) = scene.arrive(VICTIM);
    let own = Effect::Dispatch { server: scene.server, connection: second };
    assert!(effects.contains(&own), "who is there stays there");
    let old = scene.server;
    let is_forced = |effect: &Effect| matches!(effect, Effect::Signal { server, .. } if *server == old);
    let effects = scene.pass(Duration::from_secs(200));
    assert!(!effects.iter().any(is_forced), "nobody there loses anything");
    let effects = scene.dies(VICTIM, End::Exited(0));
    assert!(!is_released(&effects, CULPRIT), "the fault would be the GPU's as long as the server lives");
    assert!(scene.pass(Duration::from_secs(1)).iter().any(is_forced), "it has nobody to stay for");
    let exited = Input::ServerExited { server: scene.server, cause: ExitCause::Signaled(2) };
    assert!(is_released(&scene.feed(exited), CULPRIT), "when nobody can be harmed");
}

#[test]
fn what_the_last_look_at_a_dead_client_found_is_kept_with_the_rest() {
    let mut scene = Scene::new(Policy::default());
    scene.dies(CULPRIT, End::Signaled(9));
    let found = |descriptors| Input::CopiesHeld { process: key(CULPRIT.pid, 0), descriptors };
    assert!(!is_released(&scene.feed(found(4)), CULPRIT), "its work may still run");
    let mut scene = Scene::new(Policy::default());
    scene.dies(CULPRIT, End::Exited(0));
    assert!(is_released(&scene.feed(found(4)), CULPRIT), "it left in good order");
}

#[test]
fn a_server_whose_only_client_has_died_suddenly_is_retired_and_the_clients_memory_kept_until_then() {
    for hold in [true, false] {
        let mut policy = Policy::default();
        policy.funerals.hold = hold;
        let mut scene = Scene::new(policy);
        scene.dies(VICTIM, End::Exited(0));
        let effects = scene.dies(CULPRIT, End::Signaled(9));
        assert_eq!(is_released(&effects, CULPRIT), !hold);
        assert!(scene.is_tainted(), "it would say that it is active, and give the next client 719");
        let (newcomer, _) = scene.arrive(NEWCOMER);
        assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), newcomer));
        let request = asked(&effects, &Request::Shutdown).expect("it is asked to go");
        scene.feed(Input::Replied { request, reply: Ok(Reply::ActiveWorkers(0)) });
        let exited = Input::ServerExited { server: scene.server, cause: ExitCause::Exited(0) };
        assert_eq!(is_released(&scene.feed(exited), CULPRIT), hold);
    }
}

#[test]
fn a_server_whose_only_client_ends_in_order_stays() {
    let mut scene = Scene::new(Policy::default());
    scene.dies(VICTIM, End::Exited(0));
    assert!(is_released(&scene.dies(CULPRIT, End::Exited(1)), CULPRIT));
    assert!(!scene.is_tainted());
}

#[test]
fn a_fault_of_which_no_living_client_knows_is_the_dead_ones() {
    for tracked in [true, false] {
        let mut scene = Scene::new(Policy::default());
        scene.feed(Input::Tracked { process: key(VICTIM.pid, 0), tracked });
        let effects = scene.dies(CULPRIT, End::Signaled(9));
        scene.answer_status(&effects, true);
        scene.pass(Duration::from_millis(150));
        let (number, class, bus, pid) = (31, XidClass::Application, "0000:3b:00".to_owned(), Some(VICTIM.pid));
        let text = "MMU Fault".to_owned();
        let line = Evidence::Xid { number, class, bus, instance: None, pid, channel: None, text };
        let effects = scene.feed(Input::Evidence(line));
        scene.answer_status(&effects, false);
        scene.pass(Duration::from_millis(500));
        let verdict = scene.verdict();
        let expected = if tracked { (Some(CULPRIT.pid), Confidence::Likely) } else { (None, Confidence::Unknown) };
        assert_eq!((culprit(verdict), verdict.confidence), expected, "the kernel named {}", VICTIM.pid);
    }
}
