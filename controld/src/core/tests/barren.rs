//! A server that gives newcomers no context, and who may say so.

use super::scene::*;
use super::*;
use world::key;

const NO_CONTEXT: u32 = 401;
const STRANGER: Pid = 99;

fn word(scene: &mut Scene, pid: Pid, server: Option<ServerEpoch>) -> Vec<Effect> {
    scene.feed(Input::Evidence(Evidence::Shim { process: key(pid, 0), error: NO_CONTEXT, own_work: false, server }))
}

#[test]
fn newcomers_get_another_server_than_one_that_gives_no_context_and_its_clients_stay() {
    for names_it in [false, true] {
        let mut scene = Scene::unsettled(Policy::default());
        scene.joins(NEWCOMER);
        let before = scene.server;
        let effects = word(&mut scene, NEWCOMER.pid, names_it.then_some(before));
        assert!(scene.is_tainted(), "{effects:?}");
        let effects = scene.serve(&effects, SERVER + 1);
        let next = Peer { pid: 20, ..NEWCOMER };
        let (connection, more) = scene.arrive(next);
        let is_sent = |effect: &Effect| matches!(effect, Effect::Dispatch { connection: of, server, .. } if *of == connection && *server != before);
        assert!(effects.iter().chain(&more).any(is_sent), "{more:?}");
        assert_eq!(scene.core.verdicts().len(), 0, "nobody is to blame");
        for living in [CULPRIT, VICTIM] {
            let known = scene.core.clients.known(key(living.pid, 0)).expect("it is there");
            assert_eq!(known.server, before);
            assert!(!known.is_hit(&scene.core.servers), "nobody has lost anything");
        }
        // Nor is it ended as long as they are there.
        let effects = scene.pass(Duration::from_secs(3600));
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Signal { .. })), "{effects:?}");
    }
}

#[test]
fn a_word_of_nobody_that_the_server_has_is_none() {
    let mut scene = Scene::new(Policy::default());
    let server = scene.server;
    for (pid, named) in [(STRANGER, None), (STRANGER, Some(server)), (VICTIM.pid, Some(ServerEpoch(77)))] {
        word(&mut scene, pid, named);
        assert!(!scene.is_tainted(), "{pid} {named:?}");
    }
}

#[test]
fn a_domain_leaves_no_more_than_two_servers_on_such_a_word() {
    let mut scene = Scene::unsettled(Policy::default());
    let left = |scene: &Scene| scene.core.servers().filter(|server| server.tainted().is_some()).count();
    for round in 0..4 {
        let peer = Peer { pid: 30 + round, ..NEWCOMER };
        scene.joins(peer);
        let effects = word(&mut scene, peer.pid, None);
        if spawned(&effects).is_some() {
            scene.serve(&effects, SERVER + 1 + round);
        }
        assert_eq!(left(&scene), 2.min(usize::try_from(round).unwrap() + 1), "{effects:?}");
    }
}
