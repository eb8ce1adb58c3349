//! What clients say that their recoveries took.

use super::scene::*;
use super::*;
use crate::core::picture::{DaemonFacts, RecoveryFacts};
use remps_proto::shim::{Recovered, Way};
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
