//! What clients say that their recoveries took.

use super::scene::*;
use super::*;
use crate::core::picture::{DaemonFacts, RecoveryFacts};
use remps_proto::shim::{Recovered, Unrecovered, Way};
use world::key;

fn said(number: u64, way: Way) -> ClientRecovery {
    let (steps_us, switch_us) = (vec![100, 0, 50], vec![20]);
    ClientRecovery::of(&Recovered { number, way, error: 700, total_us: 250, steps_us, switch_us })
}

impl Scene {
    fn says(&mut self, process: ProcessKey, uid: Uid, recovery: ClientRecovery) -> Vec<JournalEvent> {
        let effects = self.feed(Input::ClientRecovered { process, uid, recovery });
        let recorded = effects.into_iter().filter_map(|effect| match effect {
            Effect::Record(event) => Some(*event),
            _ => None,
        });
        recorded.collect()
    }

    fn shown(&self, peer: Peer) -> Option<RecoveryFacts> {
        let clients = self.core.picture(self.now, DaemonFacts::blank(), Vec::new()).clients;
        clients.into_iter().find(|client| client.process.pid == peer.pid).expect("it is there").recovery
    }
}

#[test]
fn what_a_recovery_took_is_told_once_and_shown_until_its_process_ends() {
    let mut scene = Scene::unsettled(Policy::default());
    let (process, uid) = (key(VICTIM.pid, 0), VICTIM.uid);
    assert_eq!(scene.shown(VICTIM), None);
    let first = said(1, Way::SPARE);
    let events = scene.says(process, uid, first.clone());
    let domain = "user 1000".to_owned();
    let event = JournalEvent::ClientRecovered { process, uid, domain, server: Some(SERVER), recovery: first.clone() };
    assert_eq!(events, [event]);
    scene.pass(Duration::from_secs(3));
    assert_eq!(scene.shown(VICTIM), Some(RecoveryFacts { recovery: first.clone(), ago: Duration::from_secs(3) }));
    assert_eq!(scene.shown(CULPRIT), None, "it is its own alone");
    assert_eq!(scene.says(process, uid, first), [], "its library was not answered the first time");
    let third = said(3, Way::NO_SPARE);
    assert_eq!(scene.says(process, uid, third.clone()).len(), 1);
    assert_eq!(scene.says(process, uid, said(2, Way::COLD)), []);
    assert_eq!(scene.shown(VICTIM).map(|facts| facts.recovery), Some(third));
    scene.dies(VICTIM, End::Exited(0));
    scene.joins(VICTIM);
    assert_eq!(scene.shown(VICTIM), None, "another process of that pid");
}

#[test]
fn why_a_client_is_not_recovered_is_told_once_and_shown_until_it_is() {
    let mut scene = Scene::unsettled(Policy::default());
    let (process, uid) = (key(VICTIM.pid, 0), VICTIM.uid);
    let refusal = |number, is_final| {
        let reason = "a stream is being captured".to_owned();
        ClientRefusal::of(Unrecovered { number, error: 719, reason, is_final })
    };
    let says = |scene: &mut Scene, process, uid, refusal: ClientRefusal| {
        let effects = scene.feed(Input::ClientUnrecovered { process, uid, refusal });
        let recorded = effects.into_iter().filter_map(|effect| match effect {
            Effect::Record(event) => Some(*event),
            _ => None,
        });
        recorded.collect::<Vec<_>>()
    };
    let shown = |scene: &Scene| {
        let clients = scene.core.picture(scene.now, DaemonFacts::blank(), Vec::new()).clients;
        clients.into_iter().find(|client| client.process.pid == VICTIM.pid).expect("it is there").unrecovered
    };
    assert_eq!(shown(&scene), None);
    let first = refusal(1, false);
    let domain = "user 1000".to_owned();
    let event = JournalEvent::ClientUnrecovered { process, uid, domain, server: Some(SERVER), refusal: first.clone() };
    assert_eq!(says(&mut scene, process, uid, first.clone()), [event]);
    assert_eq!(shown(&scene).map(|facts| facts.refusal), Some(first.clone()));
    assert_eq!(says(&mut scene, process, uid, first), [], "its library was not answered the first time");
    // What it was refused for is no more, and then it is again.
    scene.says(process, uid, said(1, Way::COLD));
    assert_eq!(shown(&scene), None);
    assert_eq!(says(&mut scene, process, uid, refusal(1, false)), [], "that was before");
    assert_eq!(says(&mut scene, process, uid, refusal(4, true)).len(), 1);
    assert_eq!(shown(&scene).map(|facts| facts.refusal), Some(refusal(4, true)));
    for pid in 10_000..20_000 {
        assert_eq!(says(&mut scene, key(pid, 0), 1234, refusal(1, true)).len(), 1);
    }
    assert!(shown(&scene).is_some(), "strangers push no client's out");
    scene.dies(VICTIM, End::Exited(0));
    scene.joins(VICTIM);
    assert_eq!(shown(&scene), None, "another process of that pid");
}

#[test]
fn who_is_no_client_is_heard_and_forgotten_before_a_client() {
    let mut scene = Scene::unsettled(Policy::default());
    assert_eq!(scene.says(key(VICTIM.pid, 0), VICTIM.uid, said(1, Way::COLD)).len(), 1);
    for pid in 10_000..20_000 {
        let events = scene.says(key(pid, 0), 1234, said(1, Way::COLD));
        let [JournalEvent::ClientRecovered { uid, domain, server, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!((*uid, domain.as_str(), *server), (1234, "user 1234", None));
    }
    assert!(scene.shown(VICTIM).is_some(), "strangers push no client's out");
}
