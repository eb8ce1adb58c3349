//! Servers that seem silent while the daemon itself is behind: nothing is concluded from what nobody has read.

use super::scene::*;
use super::*;
use remps_proto::mps::server::{Reply, Request};

/// The constant `silence`.
const SILENCE: Duration = Duration::from_secs(1);

/// Whether the driver is asked to tell first what has come.
fn asks(effects: &[Effect], server: ServerEpoch) -> bool {
    effects.contains(&Effect::CatchUp { server })
}

/// The driver has told what had come.
fn catches_up(scene: &mut Scene) -> Vec<Effect> {
    scene.feed(Input::CaughtUp { server: scene.server })
}

/// A newcomer's server is asked for its status, and its time is over while the driver is behind.
fn seems_silent(scene: &mut Scene) -> RequestId {
    scene.is_behind = true;
    scene.pass(SETTLE * 2);
    let (_, effects) = scene.arrive(NEWCOMER);
    let request = asked(&effects, &Request::Status).expect("the server is asked");
    assert!(asks(&scene.pass(SILENCE), scene.server) && !scene.is_tainted());
    request
}

#[test]
fn a_server_whose_answer_the_daemon_has_not_got_round_to_is_not_silent() {
    let mut scene = Scene::new(Policy::default());
    let request = seems_silent(&mut scene);
    assert_eq!(scene.core.next_deadline(), None, "nothing is due until that is known");
    let effects = scene.pass(Duration::from_secs(3));
    assert!(!asks(&effects, scene.server) && !scene.is_tainted(), "however long it takes");
    scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
    catches_up(&mut scene);
    assert!(!scene.is_tainted());
}

#[test]
fn a_server_whose_greeting_the_daemon_has_not_got_round_to_is_not_silent() {
    let mut scene = Scene::new(Policy::default());
    let (newcomer, _) = scene.comes(NEWCOMER);
    scene.is_behind = true;
    assert!(asks(&scene.pass(SILENCE * 2), scene.server));
    let effects = scene.feed(Input::ServerGreeted { connection: newcomer });
    assert!(effects.contains(&Effect::HandOver { connection: newcomer }));
    catches_up(&mut scene);
    scene.feed(Input::ClientDone { connection: newcomer, status: Some(0) });
    scene.pass(Duration::from_secs(3600));
    assert!(!scene.is_tainted());
}

#[test]
fn a_server_that_had_said_nothing_is_silent_when_the_daemon_knows_that_and_not_before() {
    let mut scene = Scene::new(Policy::default());
    seems_silent(&mut scene);
    scene.pass(Duration::from_secs(1));
    assert!(!scene.is_tainted());
    let effects = catches_up(&mut scene);
    assert!(scene.is_tainted() && spawned(&effects).is_some());
}

#[test]
fn what_a_server_has_not_done_since_it_seemed_silent_is_another_question() {
    let mut scene = Scene::new(Policy::default());
    let request = seems_silent(&mut scene);
    // It answers, is told of the newcomer, and greets nobody for longer than it may.
    scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
    let effects = scene.pass(SILENCE * 2);
    assert!(!asks(&effects, scene.server), "one at a time");
    let effects = catches_up(&mut scene);
    assert!(asks(&effects, scene.server) && !scene.is_tainted(), "the first one says nothing about that");
    catches_up(&mut scene);
    assert!(scene.is_tainted());
}

#[test]
fn a_server_that_is_gone_or_that_goes_with_the_daemon_is_not_found_silent() {
    let mut scene = Scene::new(Policy::default());
    seems_silent(&mut scene);
    let (session, peer, rights) = (SessionId(1), Peer { pid: 1, uid: 0, gid: 0 }, Rights::beside_the_daemon());
    let quit = Input::Command { session, peer, rights, line: b"quit".to_vec() };
    scene.feed(quit);
    catches_up(&mut scene);
    assert!(!scene.is_tainted());
    let mut scene = Scene::new(Policy::default());
    seems_silent(&mut scene);
    scene.feed(Input::ServerExited { server: scene.server, cause: ExitCause::Signaled(9) });
    assert_eq!(catches_up(&mut scene), []);
}

#[test]
fn of_two_servers_that_seem_silent_each_is_judged_by_itself() {
    let mut scene = Scene::new(Policy::default());
    let stranger = Peer { pid: 30, uid: 1001, gid: 1001 };
    let (connection, effects) = scene.arrive(stranger);
    let other = spawned(&effects).expect("another user's server");
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), connection));
    scene.is_behind = true;
    scene.pass(SETTLE * 2);
    scene.arrive(NEWCOMER);
    let effects = scene.pass(SILENCE * 2);
    assert!(asks(&effects, scene.server) && asks(&effects, other));
    let effects = scene.feed(Input::ServerGreeted { connection });
    assert!(effects.contains(&Effect::HandOver { connection }));
    scene.feed(Input::CaughtUp { server: other });
    assert!(!scene.is_tainted());
    catches_up(&mut scene);
    assert!(scene.is_tainted());
    assert!(scene.core.servers().all(|server| server.epoch != other || server.tainted().is_none()));
}
