//! Faults, each in one short story: who is named, who is served where, and what is kept of the dead.

mod dead;
mod teardown;

use super::scene::*;
use super::*;
use remps_proto::mps::server::{Reply, Request};
use std::sync::Arc;
use world::{fault, identity, key};

#[test]
fn a_memory_fault_names_its_culprit_at_once_and_newcomers_get_another_server() {
    let mut scene = Scene::new(Policy::default());
    let effects = scene.memory_fault();
    let verdict = scene.verdict();
    assert_eq!((culprit(verdict), verdict.confidence), (Some(CULPRIT.pid), Confidence::Certain));
    assert_eq!((verdict.victims.as_slice(), verdict.delay), ([VICTIM.pid].as_slice(), Duration::ZERO));
    let (newcomer, while_starting) = scene.arrive(NEWCOMER);
    assert_eq!(spawned(&while_starting), None, "one replacement is on its way");
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), newcomer));
}

#[test]
fn a_standby_serves_a_newcomer_in_the_same_moment() {
    let mut scene = Scene::with(|domain| domain.group.standby = true);
    let effects = scene.pass(Duration::from_millis(1));
    // It was asked for as soon as the active one was ready, which was before the clients came.
    assert_eq!(spawned(&effects), None);
    let standby = scene.core.servers().find(|server| server.role == Role::Standby).expect("one stands by").epoch;
    scene.feed(Input::ServerSpawned { server: standby, pid: SERVER + 1 });
    let hello = ConnectionId(900);
    scene.feed(Input::ServerHello { connection: hello, peer: Peer { pid: SERVER + 1, uid: 1000, gid: 0 } });
    let (early, effects) = scene.comes(NEWCOMER);
    assert!(effects.contains(&Effect::Dispatch { server: scene.server, connection: early }), "not to the standby");
    scene.finish(early);
    let effects = scene.memory_fault();
    assert!(spawned(&effects).is_some(), "another one is to stand by");
    let (newcomer, effects) = scene.arrive(Peer { pid: 13, ..NEWCOMER });
    assert!(effects.contains(&Effect::Dispatch { server: standby, connection: newcomer }));
}

#[test]
fn a_forged_record_makes_the_daemon_ask_and_nothing_else() {
    let mut scene = Scene::new(Policy::default());
    let effects = scene.log_record(VICTIM.pid);
    let recorded = effects.iter().any(|effect| matches!(effect, Effect::Record(_)));
    assert!(!recorded, "what is not confirmed must not fill the journal");
    let (newcomer, _) = scene.arrive(NEWCOMER);
    let waiting = scene.pass(SETTLE * 2);
    assert!(!is_dispatched(&waiting, newcomer), "until the server has answered nobody is sent there");
    assert_eq!(asked(&scene.log_record(VICTIM.pid), &Request::Status), None, "one question at a time");
    let again = scene.answer_status(&effects, true);
    scene.log_record(VICTIM.pid);
    let effects = scene.answer_status(&again, true);
    assert!(is_dispatched(&effects, newcomer), "signs without end keep nobody away");
    scene.finish(newcomer);
    scene.pass(Duration::from_secs(5));
    assert!(!scene.is_tainted());
    assert_eq!(scene.core.verdicts().len(), 0);
}

#[test]
fn who_is_blamed_by_the_log_alone_is_unknown_and_told_as_a_hint() {
    for (names, hinted) in [
        (&[CULPRIT.pid][..], &[CULPRIT.pid][..]),
        (&[CULPRIT.pid, VICTIM.pid], &[CULPRIT.pid, VICTIM.pid]),
        (&[CULPRIT.pid, 4711], &[CULPRIT.pid]),
        (&[4711], &[]),
    ] {
        let mut scene = Scene::with(|domain| domain.faults.culprit = CulpritAction::Terminate);
        let effects = scene.log_record(names[0]);
        scene.answer_status(&effects, false);
        names[1..].iter().for_each(|name| drop(scene.log_record(*name)));
        assert_eq!(scene.core.verdicts().len(), 0, "a better witness may come");
        let effects = scene.pass(Duration::from_millis(500));
        let verdict = scene.verdict();
        assert_eq!((culprit(verdict), verdict.confidence), (None, Confidence::Unknown), "{names:?}");
        assert_eq!(verdict.named_by_log, hinted, "clients of the server alone");
        let line = verdict.to_string();
        let words = hinted.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let words = format!("; the log, which anybody can write, names {words};");
        assert_eq!(line.contains(&words), !hinted.is_empty(), "{line}");
        assert_eq!(asked(&effects, &Request::TerminateClient(CULPRIT.pid)), None, "nothing is done to anybody");
    }
}

#[test]
fn a_clients_own_word_is_likely_only_of_errors_that_the_culprit_hears_first() {
    for (error, expected) in [(719, Some(CULPRIT.pid)), (716, None), (700, None)] {
        let mut scene = Scene::new(Policy::default());
        let process = key(CULPRIT.pid, 0);
        let effects = scene.feed(Input::Evidence(Evidence::Shim { process, error, own_work: true, server: None }));
        scene.answer_status(&effects, false);
        scene.pass(Duration::from_millis(500));
        assert_eq!(culprit(scene.verdict()), expected, "{error}");
    }
}

#[test]
fn newcomers_get_another_server_before_the_dead_have_taken_the_places_on_theirs() {
    let mut scene = Scene::new(Policy::default());
    let first = scene.server;
    let mut swap = None;
    for pid in 100..124 {
        assert_eq!(swap, None, "{pid} joins the others");
        let peer = Peer { pid, ..NEWCOMER };
        scene.joins(peer);
        scene.feed(Input::CopiesHeld { process: key(pid, 0), descriptors: 2 });
        let effects = scene.dies(peer, End::Signaled(9));
        swap = spawned(&effects);
        if swap.is_none() {
            scene.answer_status(&effects, true);
        }
    }
    assert!(swap.is_some_and(|server| server != first), "with two dozen dead ones held");
    assert!(scene.is_tainted());
    // Those that are there stay: nobody ends their server.
    scene.pass(Duration::from_secs(3600));
    assert_eq!(scene.core.client_processes().len(), 2);
}

#[test]
fn what_a_standby_costs_is_told_when_it_is_ready() {
    let mut scene = Scene::with(|domain| domain.group.standby = true);
    let standby = scene.core.servers().find(|server| server.role == Role::Standby).expect("one stands by").epoch;
    scene.feed(Input::ServerSpawned { server: standby, pid: SERVER + 1 });
    let peer = Peer { pid: SERVER + 1, uid: 1000, gid: 0 };
    let effects = scene.feed(Input::ServerHello { connection: ConnectionId(900), peer });
    assert!(effects.contains(&Effect::MeasureServer { server: standby, pid: SERVER + 1 }));
    let effects = scene.feed(Input::ServerMeasured { server: standby, memory_bytes: Some(66 << 20) });
    let told = effects.iter().any(|effect| {
        matches!(effect, Effect::Record(event)
            if matches!(**event, JournalEvent::StandbyReady { memory_bytes: Some(bytes), .. } if bytes == 66 << 20))
    });
    assert!(told, "{effects:?}");
}

#[test]
fn late_proof_corrects_a_verdict() {
    let mut scene = Scene::new(Policy::default());
    let process = key(VICTIM.pid, 0);
    let effects = scene.feed(Input::Evidence(Evidence::Shim { process, error: 719, own_work: true, server: None }));
    scene.answer_status(&effects, false);
    scene.pass(Duration::from_millis(500));
    assert_eq!(culprit(scene.verdict()), Some(VICTIM.pid));
    let wrong = scene.verdict().number;
    scene.memory_fault();
    let verdict = scene.verdict();
    assert_eq!((culprit(verdict), verdict.confidence), (Some(CULPRIT.pid), Confidence::Certain));
    assert_eq!(verdict.corrects, Some(wrong));
}

#[test]
fn a_tainted_server_is_ended_after_its_time_and_its_victims_are_named() {
    let mut scene = Scene::with(|domain| domain.faults.victims = VictimAction::Terminate);
    let replacement = scene.memory_fault();
    scene.serve(&replacement, SERVER + 1);
    scene.dies(CULPRIT, End::Exited(1));
    let effects = scene.pass(Duration::from_secs(30));
    let line = format!("Server {SERVER} still has clients after a fault and is ended: {}", VICTIM.pid);
    assert!(effects.contains(&Effect::Log(line)), "{effects:?}");
    assert!(effects.contains(&Effect::Signal { server: scene.server, signal: ServerSignal::Interrupt }));
    let ended = JournalEvent::VictimTerminated {
        incident: 1,
        process: key(VICTIM.pid, 0),
        uid: 1000,
        domain: "user 1000".to_owned(),
    };
    assert!(effects.contains(&Effect::Record(Box::new(ended))));
}

#[test]
fn a_culprit_is_terminated_before_it_is_killed() {
    let mut scene = Scene::with(|domain| domain.faults.culprit = CulpritAction::Terminate);
    let effects = scene.memory_fault();
    let end = |force| Effect::EndProcess { process: key(CULPRIT.pid, 0), force };
    assert!(!effects.contains(&end(false)), "its work first");
    let request = asked(&effects, &Request::TerminateClient(CULPRIT.pid)).expect("its work is ended");
    let effects = scene.feed(Input::Replied { request, reply: Ok(Reply::Terminated(0)) });
    assert!(effects.contains(&end(false)) && !effects.contains(&end(true)));
    assert!(scene.pass(Duration::from_secs(5)).contains(&end(true)));
}

#[test]
fn repeat_offenders_get_a_domain_of_their_own_and_are_refused_then() {
    let mut scene = Scene::with(|domain| {
        domain.faults.quarantine_after = 1;
        domain.faults.refuse_after = 2;
    });
    let replacement = scene.memory_fault();
    scene.serve(&replacement, SERVER + 1);
    scene.dies(CULPRIT, End::Exited(1));
    // The same program of the same user, in another process.
    let again = Peer { pid: 20, ..CULPRIT };
    let like = Arc::new(Identity { command: "program-10 --again".to_owned(), ..Identity::clone(&identity(20, 0)) });
    let arrive = |scene: &mut Scene, connection| {
        let (connection, identity) = (ConnectionId(connection), Arc::clone(&like));
        scene.feed(Input::ClientArrived { connection, peer: again, identity, entrance: None })
    };
    assert!(scene.core.must_know_clients(), "who a newcomer is matters from now on");
    let effects = arrive(&mut scene, 800);
    let own = effects.clone();
    assert!(spawned(&own).is_some(), "it gets a server of its own");
    let (other, effects) = scene.arrive(NEWCOMER);
    assert!(is_dispatched(&effects, other), "others don't");
    scene.serve(&own, SERVER + 2);
    scene.finish(ConnectionId(800));
    scene.feed(Input::Evidence(Evidence::UvmEvent { process: key(20, 0), fault: fault(), is_of_own_server: true }));
    assert_eq!(culprit(scene.verdict()), Some(20));
    scene.dies(again, End::Exited(1));
    assert!(arrive(&mut scene, 801).contains(&Effect::Close { connection: ConnectionId(801) }), "and is refused");
    scene.pass(Duration::from_secs(60));
    assert!(!arrive(&mut scene, 802).contains(&Effect::Close { connection: ConnectionId(802) }), "for its time only");
}

#[test]
fn an_offender_is_forgotten_when_its_faults_count_no_longer() {
    for (refuse_after, refuse_for, lasts) in [(0, 60, 600), (1, 60, 600), (1, 3600, 3600)] {
        let mut scene = Scene::with(|domain| {
            domain.faults.refuse_after = refuse_after;
            domain.faults.refuse_for = Duration::from_secs(refuse_for);
        });
        assert!(!scene.core.must_know_clients());
        scene.memory_fault();
        scene.pass(Duration::from_secs(lasts) - Duration::from_millis(1));
        assert!(scene.core.must_know_clients(), "who a newcomer is matters");
        scene.pass(Duration::from_millis(1));
        assert!(!scene.core.must_know_clients(), "and newcomers wait for that no longer");
    }
}

#[test]
fn where_nothing_follows_from_a_fault_no_offender_is_remembered() {
    let mut scene = Scene::with(|domain| (domain.faults.quarantine_after, domain.faults.refuse_after) = (0, 0));
    scene.memory_fault();
    assert!(!scene.core.must_know_clients());
}

#[test]
fn an_isolated_fault_ends_its_culprit_alone() {
    let mut scene = Scene::new(Policy::default());
    let (process, isolation) = (key(CULPRIT.pid, 0), Isolation::Isolated);
    let notice = Evidence::Notice { process, fault: fault(), channel: None, isolation };
    let effects = scene.feed(Input::Evidence(notice.clone()));
    let verdict = scene.verdict();
    assert_eq!((culprit(verdict), verdict.isolated, verdict.victims.len()), (Some(CULPRIT.pid), true, 0));
    assert!(!scene.is_tainted());
    assert!(asked(&effects, &Request::TerminateClient(CULPRIT.pid)).is_some(), "what it computes is wrong from now on");
    scene.pass(Duration::from_secs(1));
    scene.feed(Input::Evidence(notice));
    assert_eq!(scene.core.verdicts().len(), 1, "it goes on faulting until it is gone");
    assert!(is_released(&scene.dies(CULPRIT, End::Signaled(15)), CULPRIT), "its work can't harm anybody");
}

#[test]
fn a_fault_that_was_not_isolated_is_met_as_without_the_module() {
    let mut scene = Scene::new(Policy::default());
    let isolation = Isolation::Passed { reason: "off".to_owned() };
    let process = key(CULPRIT.pid, 0);
    let effects = scene.feed(Input::Evidence(Evidence::Notice { process, fault: fault(), channel: None, isolation }));
    assert!(scene.is_tainted() && spawned(&effects).is_some());
    assert_eq!(culprit(scene.verdict()), Some(CULPRIT.pid));
}

#[test]
fn a_full_domain_has_another_part() {
    let mut scene = Scene::with(|domain| domain.group.max_clients = Some(2));
    let (second, effects) = scene.arrive(VICTIM);
    assert!(is_dispatched(&effects, second), "a context more is no client more");
    let (third, effects) = scene.arrive(NEWCOMER);
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), third));
}

#[test]
fn a_replacement_that_cannot_start_beside_the_lost_server_makes_it_go() {
    let mut scene = Scene::new(Policy::default());
    let server = spawned(&scene.memory_fault()).expect("a replacement");
    let effects = scene.feed(Input::SpawnFailed { server, reason: "EXCLUSIVE_PROCESS".to_owned() });
    assert!(effects.contains(&Effect::Signal { server: scene.server, signal: ServerSignal::Interrupt }));
}

#[test]
fn servers_that_have_served_and_die_are_replaced_at_once_however_often() {
    let mut scene = Scene::new(Policy::default());
    for round in 0..20 {
        let pid = SERVER + round;
        let (connection, effects) = scene.arrive(NEWCOMER);
        if round > 0 {
            assert!(
                is_dispatched(&scene.serve(&effects, pid), connection),
                "round {round}: a server is started at once"
            );
        }
        scene.finish(connection);
        scene.pass(Duration::from_millis(10));
        let server = scene.core.servers().find(|server| server.pid == Some(pid)).expect("it serves").epoch;
        scene.feed(Input::ServerExited { server, cause: ExitCause::Signaled(13) });
        scene.dies(NEWCOMER, End::Exited(38));
    }
}

#[test]
fn a_domain_whose_servers_keep_failing_is_left_alone_for_a_while() {
    let mut policy = Policy::default();
    policy.constants.breaker_failures = 3;
    let mut core = Core::new(policy, Defaults::default());
    let arrived =
        Input::ClientArrived { connection: ConnectionId(1), peer: CULPRIT, identity: identity(10, 0), entrance: None };
    let mut effects = core.handle(Duration::ZERO, arrived);
    let mut now = Duration::ZERO;
    let mut opened = false;
    for _ in 0..3 {
        let server = spawned(&effects).expect("a try");
        let failed = core.handle(now, Input::SpawnFailed { server, reason: "no".to_owned() });
        opened = failed.iter().any(
            |effect| matches!(effect, Effect::Record(event) if matches!(**event, JournalEvent::BreakerOpened { .. })),
        );
        let retry = core.next_deadline().expect("it is tried again");
        effects = core.handle(retry, Input::Tick);
        assert_eq!(retry - now >= Duration::from_secs(60), opened, "after the third failure");
        now = retry;
    }
    assert!(opened);
}
