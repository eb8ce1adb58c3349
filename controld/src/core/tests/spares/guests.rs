//! A program that does not play by the rules of a spare copy: it works on the server that it was given a place on, comes with
//! many connections, says that it has gone and stays, or has no right to a place.

use super::*;
use crate::core::policy::CulpritAction;
use crate::core::serving::guests::PATIENCE;

/// The number of a question to this server.
fn asked_of(effects: &[Effect], of: ServerEpoch, what: &Request) -> Option<RequestId> {
    effects.iter().find_map(|effect| match effect {
        Effect::Ask { id, server, request } if *server == of && request == what => Some(*id),
        _ => None,
    })
}

impl Scene {
    fn answers(&mut self, request: RequestId, reply: Reply) -> Vec<Effect> {
        self.feed(Input::Replied { request, reply: Ok(reply) })
    }

    /// A process faults in an address space that it has made since it has a place.
    fn faults_late(&mut self, peer: Peer) -> Vec<Effect> {
        let fault = world::fault();
        let process = key(peer.pid, 0);
        self.feed(Input::Evidence(Evidence::UvmEvent { process, fault, is_of_own_server: false }))
    }

    fn is_spoilt(&self, server: ServerEpoch) -> bool {
        self.core.servers().find(|known| known.epoch == server).is_none_or(|known| known.tainted().is_some())
    }
}

/// A scene in which the victim's spare copy stands, and on which server.
fn standing(change: impl FnOnce(&mut Policy)) -> (Scene, ServerEpoch) {
    let mut policy = Policy::default();
    change(&mut policy);
    let mut scene = Scene::unsettled(policy);
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    (scene, standby)
}

#[test]
fn who_faults_on_the_server_of_its_spare_copy_is_named_there_and_ended_everywhere() {
    let (mut scene, standby) = standing(|policy| policy.domains.default.faults.culprit = CulpritAction::Terminate);
    let own = scene.server;
    let effects = scene.faults_late(VICTIM);
    assert!(!scene.is_spoilt(own) && !scene.is_spoilt(standby), "it is not known in which it was");
    let of_own = asked_of(&effects, own, &Request::Status).expect("its own server is asked");
    let of_standby = asked_of(&effects, standby, &Request::Status).expect("so is the other one");
    scene.answers(of_own, Reply::Active(true));
    let effects = scene.answers(of_standby, Reply::Active(false));
    assert!(!scene.is_spoilt(own), "nobody there is harmed");
    assert!(scene.is_spoilt(standby));
    let verdict = scene.verdict();
    assert_eq!((verdict.epoch, verdict.confidence), (standby, Confidence::Certain));
    assert_eq!(culprit(verdict), Some(VICTIM.pid));
    assert!(verdict.victims.is_empty());
    for server in [own, standby] {
        assert!(asked_of(&effects, server, &Request::TerminateClient(VICTIM.pid)).is_some(), "{effects:?}");
    }
    assert!(is_void(&effects, VICTIM, TOKEN));
    let ends = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::EndProcess { .. }));
    let of_both = [own, standby].map(|server| asked_of(&effects, server, &Request::TerminateClient(VICTIM.pid)));
    let [first, second] = of_both.map(|request| request.expect("it is asked"));
    assert!(!ends(&scene.answers(first, Reply::Terminated(0))), "not before both have ended its work");
    assert!(ends(&scene.answers(second, Reply::Terminated(0))));
}

#[test]
fn a_fault_of_its_own_server_is_no_fault_of_the_one_that_its_spare_copy_stands_on() {
    let (mut scene, standby) = standing(|_| ());
    let own = scene.server;
    let effects = scene.faults_late(VICTIM);
    let of_own = asked_of(&effects, own, &Request::Status).expect("it is asked");
    let of_standby = asked_of(&effects, standby, &Request::Status).expect("it is asked");
    scene.answers(of_standby, Reply::Active(true));
    scene.answers(of_own, Reply::Active(false));
    assert!(scene.is_spoilt(own) && !scene.is_spoilt(standby));
    let verdict = scene.verdict();
    assert_eq!((verdict.epoch, culprit(verdict)), (own, Some(VICTIM.pid)));
    assert_eq!(verdict.victims, [CULPRIT.pid]);
    // What the process had when it had one server is of that one, and believed at once.
    let (mut scene, _) = standing(|_| ());
    scene.memory_fault();
    assert_eq!(culprit(scene.verdict()), Some(CULPRIT.pid));
}

#[test]
fn what_a_process_says_of_itself_and_the_kernel_of_it_is_asked_of_both_its_servers() {
    let process = key(VICTIM.pid, 0);
    let pid = Some(VICTIM.pid);
    let (class, bus, text) = (XidClass::Application, world::bus(0), "x".to_owned());
    for sign in [
        Evidence::Shim { process, error: 700, own_work: true, server: None },
        Evidence::Xid { number: 31, class, bus, instance: None, pid, channel: None, text },
    ] {
        let (mut scene, standby) = standing(|_| ());
        let effects = scene.feed(Input::Evidence(sign.clone()));
        for server in [scene.server, standby] {
            assert!(asked_of(&effects, server, &Request::Status).is_some(), "{sign:?}: {effects:?}");
        }
    }
}

#[test]
fn who_says_that_it_has_gone_and_stays_is_seen_ended_and_has_no_other_place_before() {
    let (mut scene, standby) = standing(|_| ());
    let process = key(VICTIM.pid, 0);
    let effects = scene.feed(Input::SpareGone { process, token: TOKEN });
    let request = asked_of(&effects, standby, &Request::Clients).expect("the server is asked at once");
    scene.answers(request, Reply::Clients(vec![VICTIM.pid]));
    let spare = scene.spare_of_picture(VICTIM).expect("it is seen");
    assert_eq!((spare.word(), spare.server, spare.connections), ("leaving", Some(STANDBY), 2));
    scene.wants_spare(VICTIM, TOKEN + 1);
    assert_eq!(scene.place_of(VICTIM), None);
    let mut is_ended = None;
    let mut waited = Duration::ZERO;
    while is_ended.is_none() && waited < 2 * PATIENCE {
        waited += Duration::from_millis(500);
        let effects = scene.pass(Duration::from_millis(500));
        if let Some(request) = asked_of(&effects, standby, &Request::Clients) {
            scene.answers(request, Reply::Clients(vec![VICTIM.pid]));
        }
        is_ended = asked_of(&effects, standby, &Request::TerminateClient(VICTIM.pid));
    }
    assert!(waited >= PATIENCE, "a program has its time");
    scene.wants_spare(VICTIM, TOKEN + 1);
    scene.answers(is_ended.expect("its work is ended"), Reply::Terminated(0));
    assert_eq!(scene.place_of(VICTIM), Some((TOKEN + 1, standby)), "what it had is over");
}

#[test]
fn who_has_left_has_a_place_again_at_once() {
    let (mut scene, standby) = standing(|_| ());
    let effects = scene.feed(Input::SpareGone { process: key(VICTIM.pid, 0), token: TOKEN });
    scene.wants_spare(VICTIM, TOKEN + 1);
    let request = asked_of(&effects, standby, &Request::Clients).expect("the server is asked");
    scene.answers(request, Reply::Clients(vec![]));
    assert_eq!(scene.place_of(VICTIM), Some((TOKEN + 1, standby)));
    assert!(scene.core.clients.guests().get(standby, VICTIM.pid).is_none());
}

#[test]
fn who_stays_when_its_own_server_is_gone_is_a_client_of_the_other_one() {
    let (mut scene, standby) = standing(|_| ());
    scene.feed(Input::SpareGone { process: key(VICTIM.pid, 0), token: TOKEN });
    scene.memory_fault();
    scene.feed(Input::ServerExited { server: scene.server, cause: ExitCause::Signaled(9) });
    assert_eq!(scene.core.fate_of(key(VICTIM.pid, 0)), Some((standby, Fate::Healthy)));
    let picture = scene.core.picture(scene.now, DaemonFacts::blank(), Vec::new());
    let own = picture.clients.iter().find(|client| client.process.pid == VICTIM.pid).expect("it is a client");
    assert_eq!((own.server, own.contexts), (Some(STANDBY), 1));
}

#[test]
fn nobody_has_a_place_past_what_is_set_for_its_own_server() {
    for line in
        [format!("set_active_thread_percentage {SERVER} 20"), format!("set_device_pinned_mem_limit {SERVER} 0 1G")]
    {
        let (mut scene, _) = standing(|_| ());
        let effects = scene.command(&line);
        assert!(is_void(&effects, VICTIM, TOKEN), "{line}: {effects:?}");
        assert_eq!(ended(&effects), Some(SpareEnd::Refused));
        scene.wants_spare(VICTIM, TOKEN + 1);
        assert_eq!(scene.core.spare_of(key(VICTIM.pid, 0)), SparePlace::None);
        let saved = scene.core.saved();
        assert!(saved.servers.iter().any(|server| server.pid == SERVER && server.limited), "a successor knows");
    }
}

#[test]
fn a_culprits_like_has_no_place_as_long_as_it_is_set_apart() {
    let (mut scene, standby) = standing(|policy| policy.domains.default.faults.quarantine_after = 1);
    scene.has_place(CULPRIT, TOKEN + 1);
    let effects = scene.memory_fault();
    assert!(is_void(&effects, CULPRIT, TOKEN + 1), "{effects:?}");
    assert_eq!(ended(&effects), Some(SpareEnd::Refused));
    assert_eq!(scene.place_of(VICTIM), Some((TOKEN, standby)), "its victim has what it had");
    scene.wants_spare(CULPRIT, TOKEN + 2);
    assert_eq!(scene.core.spare_of(key(CULPRIT.pid, 0)), SparePlace::None);
}

#[test]
fn the_sudden_end_of_the_only_guest_ends_the_server_that_its_work_may_still_run_on() {
    let (mut scene, standby) = standing(|_| ());
    scene.dies(VICTIM, End::Signaled(9));
    assert!(scene.is_spoilt(standby));
    let (mut scene, standby) = standing(|_| ());
    scene.dies(VICTIM, End::Exited(0));
    assert!(!scene.is_spoilt(standby), "the driver has tidied up");
    let picture = scene.core.picture(scene.now, DaemonFacts::blank(), Vec::new());
    let rows = picture.clients.iter().filter(|client| client.process.pid == VICTIM.pid).count();
    assert_eq!(rows, 1, "it is told once");
}

#[test]
fn a_successor_knows_who_stays_without_a_place() {
    let (mut scene, standby) = standing(|_| ());
    scene.feed(Input::SpareGone { process: key(VICTIM.pid, 0), token: TOKEN });
    let saved = scene.core.saved();
    let (core, effects) = Core::restored(Duration::ZERO, Policy::default(), &saved, &saved.servers);
    (scene.core, scene.now) = (core, Duration::ZERO);
    for server in [scene.server, standby] {
        let pids = if server == standby { vec![VICTIM.pid] } else { vec![CULPRIT.pid, VICTIM.pid] };
        let request = asked_of(&effects, server, &Request::Clients).expect("each names its clients");
        scene.answers(request, Reply::Clients(pids));
    }
    assert_eq!(scene.server_of(VICTIM), Some(scene.server));
    assert_eq!(scene.spare_of_picture(VICTIM).map(|spare| spare.word()), Some("leaving"));
}
