//! A fault on one GPU of which the kernel has told and the server has said nothing, and then one on the other.

use super::*;

/// The server waits for a newcomer, who may be anywhere, in its handshake when the kernel tells of a fault on the second
/// GPU, and does not say in time how it is.
fn unanswered_scene() -> Scene {
    let mut scene = default_scene();
    let (connection, _) = scene.comes(NEWCOMER);
    scene.feed(Input::ServerGreeted { connection });
    let effects = scene.feed(xid(43, 1, Some(SERVER)));
    let request = asked(&effects, &Request::Status).expect("the server is asked");
    scene.pass(Duration::from_secs(2));
    scene.feed(Input::Replied { request, reply: Err(NoReply::TimedOut) });
    scene
}

/// The question that the server has not answered.
fn question(scene: &Scene) -> RequestId {
    *scene.open_questions().last().expect("it is asked until it answers")
}

#[test]
fn who_is_where_the_kernel_has_told_of_a_fault_is_not_left_alone_by_a_later_one_elsewhere() {
    let mut scene = unanswered_scene();
    // So long that nothing else is known of that.
    scene.pass(Duration::from_secs(10));
    assert_eq!(scene.verdict().kind, "exception");
    let effects = memory_fault_on(&mut scene, 0);
    assert_eq!(told(&scene), (vec![VICTIM.pid, NEWCOMER.pid], vec![]));
    assert_eq!(scene.verdict().gpus, gpus(&[0]).into_iter().collect::<Vec<_>>(), "where this one was");
    assert!(is_told_to_end(&effects, scene.server));
}

#[test]
fn a_server_is_asked_until_it_says_that_it_is_in_no_fault_and_spoils_one_gpu_only_then() {
    let mut scene = unanswered_scene();
    for _ in 0..3 {
        let request = question(&scene);
        scene.pass(Duration::from_secs(2));
        scene.feed(Input::Replied { request, reply: Err(NoReply::TimedOut) });
    }
    let request = question(&scene);
    scene.pass(Duration::from_secs(10));
    scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
    assert!(scene.open_questions().is_empty(), "and then no more");
    memory_fault_on(&mut scene, 0);
    assert_eq!(told(&scene), (vec![NEWCOMER.pid], vec![VICTIM.pid]));
}

#[test]
fn what_a_server_was_asked_before_the_kernel_told_of_a_fault_is_no_answer_to_that() {
    let mut scene = unanswered_scene();
    let before = question(&scene);
    scene.feed(xid(43, 1, Some(SERVER)));
    scene.feed(Input::Replied { request: before, reply: Ok(Reply::Active(true)) });
    scene.pass(Duration::from_secs(10));
    memory_fault_on(&mut scene, 0);
    assert_eq!(told(&scene), (vec![VICTIM.pid, NEWCOMER.pid], vec![]));
}

#[test]
fn a_server_that_says_late_that_it_is_in_a_fault_is_so_where_the_kernel_has_told_of_one() {
    let mut scene = unanswered_scene();
    let request = question(&scene);
    scene.pass(Duration::from_secs(20));
    scene.feed(Input::Replied { request, reply: Ok(Reply::Active(false)) });
    assert!(scene.is_tainted());
    assert_eq!(scene.core.fate_of(key(VICTIM.pid, 0)), Some((scene.server, Fate::Tainted)));
    assert_eq!(scene.core.fate_of(key(CULPRIT.pid, 0)), Some((scene.server, Fate::Healthy)), "it is on the other one");
}
