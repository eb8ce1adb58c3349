//! Spare copies of the driver: who has a place for one, what it counts for, and what becomes of it.

mod connections;
mod ends;
mod guests;

use super::scene::*;
use super::*;
use crate::core::events::SpareEnd;
use crate::core::picture::DaemonFacts;
use crate::core::servers::Clientele as _;
use crate::core::servers::standby::LINGER;
use remps_proto::mps::server::{Reply, Request};
use remps_proto::shim::SpareTakes;
use std::sync::Arc;
use world::{identity, key};

const STANDBY: Pid = SERVER + 1;
const TOKEN: u64 = 0xabc;
const WAIT: Duration = Duration::from_secs(5);

impl Scene {
    fn wants_spare(&mut self, peer: Peer, token: u64) -> Vec<Effect> {
        self.feed(Input::SpareWanted { process: key(peer.pid, 0), token, patience: WAIT })
    }

    /// A client has a place on a server that stands by, which is started for it where there is none.
    fn has_place(&mut self, peer: Peer, token: u64) -> ServerEpoch {
        let effects = self.wants_spare(peer, token);
        if spawned(&effects).is_some() {
            self.serve(&effects, STANDBY);
        }
        self.place_of(peer).expect("it has a place").1
    }

    fn place_of(&self, peer: Peer) -> Option<(u64, ServerEpoch)> {
        match self.core.spare_of(key(peer.pid, 0)) {
            SparePlace::Granted { token, server } => Some((token, server)),
            SparePlace::Wanted | SparePlace::None => None,
        }
    }

    fn spare_comes(&mut self, peer: Peer, token: u64) -> (ConnectionId, Vec<Effect>) {
        let connection = self.new_connection();
        let identity = identity(peer.pid, 0);
        (connection, self.feed(Input::SpareArrived { connection, peer, identity, token, entrance: None }))
    }

    /// A spare copy gets its connection and a context.
    fn spare_stands(&mut self, peer: Peer, token: u64, server: ServerEpoch) {
        for _ in 0..2 {
            let (connection, effects) = self.spare_comes(peer, token);
            assert!(effects.contains(&Effect::Dispatch { server, connection }), "{effects:?}");
            self.finish(connection);
        }
        let process = key(peer.pid, 0);
        self.feed(Input::SpareStands { process, token, standing: standing(true, 0) });
    }

    fn server_of(&self, peer: Peer) -> Option<ServerEpoch> {
        self.core.fate_of(key(peer.pid, 0)).map(|(server, _)| server)
    }

    fn spare_of_picture(&self, peer: Peer) -> Option<facts::SpareFacts> {
        let picture = self.core.picture(self.now, DaemonFacts::blank(), Vec::new());
        picture.clients.into_iter().find(|client| client.process.pid == peer.pid).and_then(|client| client.spare)
    }

    fn role_of(&self, server: ServerEpoch) -> Option<Role> {
        self.core.servers().find(|known| known.epoch == server).map(|known| known.role)
    }

    fn command(&mut self, line: &str) -> Vec<Effect> {
        let session = SessionId(77);
        let peer = Peer { pid: 9, uid: 0, gid: 0 };
        let rights = Rights { privileged: true, ..Rights::beside_the_daemon() };
        self.feed(Input::Command { session, peer, rights, line: line.as_bytes().to_vec() })
    }
}

fn is_void(effects: &[Effect], peer: Peer, token: u64) -> bool {
    effects.contains(&Effect::SpareVoid { process: key(peer.pid, 0), token })
}

fn ended(effects: &[Effect]) -> Option<SpareEnd> {
    effects.iter().find_map(|effect| match effect {
        Effect::Record(event) => match &**event {
            JournalEvent::SpareEnded { reason, .. } => Some(*reason),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn a_server_is_started_for_the_spare_copies_of_a_domain_and_goes_when_nobody_has_one() {
    let mut scene = Scene::unsettled(Policy::default());
    let effects = scene.wants_spare(VICTIM, TOKEN);
    let standby = spawned(&effects).expect("one is to stand by");
    assert_eq!(scene.core.spare_of(key(VICTIM.pid, 0)), SparePlace::Wanted);
    assert_eq!(spawned(&scene.wants_spare(CULPRIT, TOKEN + 1)), None, "one for all of a domain");
    scene.serve(&effects, STANDBY);
    assert_eq!(scene.place_of(VICTIM), Some((TOKEN, standby)));
    assert_eq!(scene.place_of(CULPRIT), Some((TOKEN + 1, standby)));
    scene.wants_spare(VICTIM, 99);
    assert_eq!(scene.place_of(VICTIM), Some((TOKEN, standby)), "a process has one place");
    for (peer, token) in [(VICTIM, TOKEN), (CULPRIT, TOKEN + 1)] {
        scene.feed(Input::SpareGone { process: key(peer.pid, 0), token });
        assert_eq!(scene.core.spare_of(key(peer.pid, 0)), SparePlace::None);
    }
    assert!(scene.core.next_deadline().is_some_and(|at| at <= scene.now + LINGER));
    let early = scene.pass(LINGER - Duration::from_millis(1));
    assert_eq!(asked(&early, &Request::Shutdown), None);
    assert!(asked(&scene.pass(Duration::from_millis(1)), &Request::Shutdown).is_some());
    assert_eq!(spawned(&scene.pass(LINGER)), None, "and no other one comes");
}

#[test]
fn nobody_has_a_place_where_there_can_be_none() {
    let forbidden = |policy: &mut Policy| policy.domains.default.group.spares = false;
    let single = |policy: &mut Policy| policy.sharing = Sharing::Single;
    let full = |policy: &mut Policy| policy.max_servers_per_user = Some(1);
    for change in [forbidden as fn(&mut Policy), single, full] {
        let mut policy = Policy::default();
        change(&mut policy);
        let mut scene = Scene::unsettled(policy);
        assert_eq!(spawned(&scene.wants_spare(VICTIM, TOKEN)), None);
        assert_eq!(scene.core.spare_of(key(VICTIM.pid, 0)), SparePlace::None);
    }
    let mut scene = Scene::unsettled(Policy::default());
    assert_eq!(spawned(&scene.wants_spare(NEWCOMER, TOKEN)), None, "who is no client has nothing to spare");
    assert_eq!(scene.core.spare_of(key(NEWCOMER.pid, 0)), SparePlace::None);
}

#[test]
fn who_waits_for_a_server_that_never_comes_waits_no_longer_than_he_said() {
    let mut scene = Scene::unsettled(Policy::default());
    scene.wants_spare(VICTIM, TOKEN);
    scene.pass(WAIT - Duration::from_millis(1));
    assert_eq!(scene.core.spare_of(key(VICTIM.pid, 0)), SparePlace::Wanted);
    scene.pass(Duration::from_millis(1));
    assert_eq!(scene.core.spare_of(key(VICTIM.pid, 0)), SparePlace::None);
}

#[test]
fn thousands_of_requests_make_one_server_and_one_grant() {
    let mut scene = Scene::unsettled(Policy::default());
    let mut started = 0;
    for round in 0..3000 {
        let effects = scene.wants_spare(VICTIM, round + 1);
        started += usize::from(spawned(&effects).is_some());
        if spawned(&effects).is_some() {
            scene.serve(&effects, STANDBY);
        }
        if let Some((token, _)) = scene.place_of(VICTIM).filter(|_| round % 2 == 0) {
            scene.feed(Input::SpareGone { process: key(VICTIM.pid, 0), token });
        }
    }
    assert_eq!(started, 1);
    assert!(scene.core.clients.spares().grants().count() <= 1);
    assert_eq!(scene.core.clients.spares().wishes().count(), 0);
    assert!(scene.core.saved().spares.len() <= 1);
}

#[test]
fn a_program_goes_on_with_its_spare_copy_and_newcomers_with_the_same_server() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    let fault = scene.memory_fault();
    assert!(!is_void(&fault, VICTIM, TOKEN), "the standby is the domain's server now");
    assert_eq!(scene.role_of(standby), Some(Role::Active));
    let next = spawned(&fault).expect("another one is to stand by");
    scene.feed(Input::SpareLives { process: key(VICTIM.pid, 0), token: TOKEN });
    assert_eq!(scene.core.fate_of(key(VICTIM.pid, 0)), Some((standby, Fate::Healthy)));
    assert_eq!(scene.core.spare_of(key(VICTIM.pid, 0)), SparePlace::None);
    assert_eq!(scene.spare_of_picture(VICTIM), None);
    // Its further contexts show the old token, and are ordinary ones.
    let (connection, effects) = scene.spare_comes(VICTIM, TOKEN);
    assert!(effects.contains(&Effect::Dispatch { server: standby, connection }), "{effects:?}");
    scene.finish(connection);
    let picture = scene.core.picture(scene.now, DaemonFacts::blank(), Vec::new());
    let own = picture.clients.iter().find(|client| client.process.pid == VICTIM.pid).expect("it is a client");
    assert_eq!((own.contexts, own.server), (2, Some(STANDBY)));
    // The next spare copy has another server.
    scene.wants_spare(VICTIM, TOKEN + 1);
    scene.serve(&fault, STANDBY + 1);
    assert_eq!(scene.place_of(VICTIM), Some((TOKEN + 1, next)));
}

#[test]
fn the_end_of_its_server_makes_the_spare_copy_a_client_also_unasked() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    scene.has_place(CULPRIT, TOKEN + 1);
    scene.memory_fault();
    let effects = scene.feed(Input::ServerExited { server: scene.server, cause: ExitCause::Signaled(9) });
    assert_eq!(scene.core.fate_of(key(VICTIM.pid, 0)), Some((standby, Fate::Healthy)));
    assert!(!is_released(&effects, VICTIM), "what is held of it is the spare copy's too");
    // The other one had made nothing there yet.
    assert!(is_void(&effects, CULPRIT, TOKEN + 1));
    assert_eq!(ended(&effects), Some(SpareEnd::NoClient));
    assert_eq!(scene.server_of(CULPRIT), None);
}

#[test]
fn a_fault_of_the_standby_that_nobody_is_named_for_only_voids_its_spare_copies() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    let text = "Worker is in reset".to_owned();
    let named = Some(VICTIM.pid);
    let effects = scene.feed(Input::Evidence(Evidence::ServerLog { server: STANDBY, named, blames: true, text }));
    let request = asked(&effects, &Request::Status).expect("it is asked");
    let effects = scene.feed(Input::Replied { request, reply: Ok(Reply::Active(false)) });
    assert!(is_void(&effects, VICTIM, TOKEN));
    assert_eq!(ended(&effects), Some(SpareEnd::ServerLost));
    scene.pass(Duration::from_secs(1));
    assert!(scene.core.verdicts().all(|verdict| verdict.culprit.is_none() && verdict.victims.is_empty()));
    assert_eq!(scene.core.fate_of(key(VICTIM.pid, 0)), Some((scene.server, Fate::Healthy)));
    let (connection, effects) = scene.spare_comes(VICTIM, TOKEN);
    assert!(effects.contains(&Effect::Close { connection }), "never to another server");
}

#[test]
fn the_death_of_the_standby_voids_its_grants_and_another_one_is_started() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    let (waiting, _) = scene.spare_comes(VICTIM, TOKEN);
    let death = scene.feed(Input::ServerExited { server: standby, cause: ExitCause::Signaled(11) });
    assert!(is_void(&death, VICTIM, TOKEN));
    // Its pair is gone, so it comes again.
    let (peer, identity) = (VICTIM, identity(VICTIM.pid, 0));
    let effects = scene.feed(Input::SpareArrived { connection: waiting, peer, identity, token: TOKEN, entrance: None });
    assert!(effects.contains(&Effect::Close { connection: waiting }));
    scene.wants_spare(VICTIM, TOKEN + 1);
    let next = spawned(&death).expect("another one");
    scene.serve(&death, STANDBY + 1);
    assert_eq!(scene.place_of(VICTIM), Some((TOKEN + 1, next)));
    assert_eq!(scene.server_of(VICTIM), Some(scene.server));
}

#[test]
fn more_is_never_known_of_a_spare_copy_than_of_its_process() {
    let mut scene = Scene::unsettled(Policy::default());
    scene.has_place(VICTIM, TOKEN);
    let known = Identity { start_time: key(VICTIM.pid, 0).start_time, ..Identity::default() };
    scene.feed(Input::IdentityKnown { pid: VICTIM.pid, identity: Arc::new(known) });
    let spare = scene.spare_of_picture(VICTIM).expect("it has a place");
    assert_eq!((spare.word(), spare.behind), ("making", 0));
    let process = key(VICTIM.pid, 0);
    scene.feed(Input::SpareStands { process, token: TOKEN + 1, standing: standing(true, 0) });
    assert_eq!(scene.spare_of_picture(VICTIM), Some(spare), "another token tells nothing");
    let takes = SpareTakes { threads: 4, host_bytes: 45 << 20 };
    let stands = Input::SpareStands { process, token: TOKEN, standing: Standing { takes, ..standing(false, 7) } };
    scene.feed(stands);
    let saved = scene.core.saved();
    let (successor, _) = Core::restored(scene.now, Policy::default(), &saved, &saved.servers);
    for core in [scene.core, successor] {
        let spare = core.clients.spares().grant_of(process).expect("it has its place").standing;
        assert_eq!((spare.is_ready, spare.behind, spare.takes), (false, 7, takes));
    }
}

#[test]
fn a_program_that_has_gone_on_before_anybody_knew_of_a_fault_has_its_next_place_on_the_server_that_it_left() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    // Its server says that it is in no fault, as half of the servers do after a misaligned access.
    scene.feed(Input::SpareLives { process: key(VICTIM.pid, 0), token: TOKEN });
    assert_eq!((scene.server_of(VICTIM), scene.role_of(standby)), (Some(standby), Some(Role::Standby)));
    scene.wants_spare(VICTIM, TOKEN + 1);
    assert_eq!(scene.place_of(VICTIM), Some((TOKEN + 1, scene.server)));
    scene.wants_spare(CULPRIT, TOKEN + 2);
    assert_eq!(scene.place_of(CULPRIT), Some((TOKEN + 2, standby)));
    // The one that it is on goes on as the domain's when the other one is lost.
    let effects = scene.memory_fault();
    assert!(is_void(&effects, VICTIM, TOKEN + 1));
    assert_eq!((scene.server_of(VICTIM), scene.role_of(standby)), (Some(standby), Some(Role::Active)));
}
