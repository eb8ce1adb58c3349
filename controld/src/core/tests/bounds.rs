//! How many servers one user can have, whatever is a domain.

use super::scene::spawned;
use super::*;
use crate::core::identity::{Elsewhere, HiddenId};
use crate::core::ids::first_stand_in;
use crate::core::picture::{ClientFacts, ClientPhase, DaemonFacts};
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use world::{fault, key};

const ATTACKER: u32 = 1000;
const OTHER: u32 = 1001;

/// A core, and its servers by their pids.
struct Story {
    core: Core,
    now: Duration,
    next: u64,
    servers: BTreeMap<ServerEpoch, Pid>,
}

impl Story {
    fn new(change: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = Policy { max_servers_per_user: Some(3), ..Policy::default() };
        change(&mut policy);
        let core = Core::new(policy, Defaults::default());
        Self { core, now: Duration::ZERO, next: 1, servers: BTreeMap::new() }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Feeds an input; every server that is asked for gets ready at once.
    fn feed(&mut self, input: Input) -> Vec<Effect> {
        let mut all = self.core.handle(self.now, input);
        let mut next = all.clone();
        while let Some(server) = spawned(&next) {
            let pid = Pid::try_from(self.number()).expect("small") + 50_000;
            self.servers.insert(server, pid);
            next.retain(|effect| !matches!(effect, Effect::SpawnServer { server: other, .. } if *other == server));
            next.extend(self.core.handle(self.now, Input::ServerSpawned { server, pid }));
            let connection = ConnectionId(self.number());
            let hello = Input::ServerHello { connection, peer: Peer { pid, uid: 0, gid: 0 } };
            next.extend(self.core.handle(self.now, hello));
            all.extend(next.iter().cloned());
        }
        all
    }

    /// A process of a label of its own comes, and gets its connection if there is a server.
    fn comes(&mut self, uid: u32, pid: Pid) -> ConnectionId {
        self.comes_as(Peer { pid, uid, gid: uid }, pid)
    }

    /// The same of one that has this number elsewhere, and none here.
    fn comes_hidden(&mut self, uid: u32, number: Pid) -> ConnectionId {
        self.comes_as(Peer { pid: 0, uid, gid: uid }, number)
    }

    /// The same of one that can be told from others.
    fn comes_apart(&mut self, uid: u32, number: Pid) {
        let elsewhere = Some(Box::new(Elsewhere { id: hidden(number), seen_as: None }));
        let known = Identity { elsewhere, ..Identity::default() };
        self.comes_known(Peer { pid: 0, uid, gid: uid }, number, known);
    }

    fn comes_as(&mut self, peer: Peer, pid: Pid) -> ConnectionId {
        self.comes_known(peer, pid, Identity::default())
    }

    fn comes_known(&mut self, peer: Peer, pid: Pid, known: Identity) -> ConnectionId {
        let connection = ConnectionId(self.number());
        let identity = Identity {
            start_time: key(pid, 0).start_time,
            label: Some(format!("label {pid}")),
            cgroup: format!("/user.slice/run-{pid}.service"),
            ..known
        };
        self.feed(Input::ClientArrived { connection, peer, identity: Arc::new(identity), entrance: None });
        if self.core.waiting_peer(connection).is_none() {
            self.feed(Input::ServerGreeted { connection });
            self.feed(Input::ClientDone { connection, status: Some(0) });
        }
        connection
    }

    fn standing(&self, role: Role) -> usize {
        self.core.servers().filter(|server| server.role == role && server.tainted().is_none()).count()
    }

    fn exits(&mut self, server: ServerEpoch) {
        self.servers.remove(&server);
        self.feed(Input::ServerExited { server, cause: ExitCause::Exited(0) });
    }
}

#[test]
fn one_user_has_a_bounded_number_of_servers_whatever_is_a_domain_and_others_have_theirs() {
    for grouping in [Grouping::Client, Grouping::Label, Grouping::Cgroup] {
        for sharing in [Sharing::PerUser, Sharing::MultiUser] {
            let mut story =
                Story::new(|policy| (policy.domains.default.group.by, policy.sharing) = (grouping, sharing));
            for pid in 10..40 {
                story.comes(ATTACKER, pid);
            }
            assert_eq!(story.core.servers().count(), 3, "{grouping:?} {sharing:?}");
            assert_eq!(story.core.waiting(), 27, "they wait");
            let other = story.comes(OTHER, 50);
            assert_eq!(story.core.waiting_peer(other), None, "another user is served: {grouping:?} {sharing:?}");
        }
    }
}

#[test]
fn who_waits_because_its_user_has_too_many_servers_gets_one_when_another_is_empty() {
    let mut story = Story::new(|policy| policy.domains.default.group.by = Grouping::Client);
    for pid in 10..13 {
        story.comes(ATTACKER, pid);
    }
    let next = story.comes(ATTACKER, 13);
    assert!(story.core.waiting_peer(next).is_some());
    // Long before `idle_timeout`.
    let effects = story.feed(Input::ProcessGone { process: key(10, 0), end: End::Exited(0) });
    let asked = effects.iter().find_map(|effect| match effect {
        Effect::Ask { server, id, request: remps_proto::mps::server::Request::Shutdown } => Some((*server, *id)),
        _ => None,
    });
    let (server, request) = asked.expect("the empty one is asked to go");
    let reply = Ok(Reply::ActiveWorkers(0));
    story.feed(Input::Replied { request, reply });
    story.exits(server);
    assert_eq!(story.core.waiting_peer(next), None, "it has a server");
    assert_eq!(story.core.servers().count(), 3);
}

#[test]
fn standbys_are_started_only_where_there_is_room_and_keep_nobody_from_a_server() {
    let mut story = Story::new(|policy| {
        policy.domains.default.group.by = Grouping::Client;
        policy.domains.default.group.standby = true;
    });
    for pid in 10..40 {
        story.comes(ATTACKER, pid);
        assert!(story.core.servers().count() <= 6);
    }
    assert_eq!(story.standing(Role::Active), 3, "none less for those that stand by");
    assert!(story.standing(Role::Standby) <= 2, "{}", story.standing(Role::Standby));
}

#[test]
fn a_spoilt_server_is_replaced_though_its_user_has_as_many_as_it_may_and_not_without_end() {
    let mut story = Story::new(|policy| {
        policy.domains.default.group.by = Grouping::Label;
        policy.domains.default.faults.quarantine_after = 0;
    });
    for pid in 10..13 {
        story.comes(ATTACKER, pid);
    }
    for round in 0..10 {
        // Whoever is served faults, and lingers; another one of its label comes.
        let served: Vec<ProcessKey> = story.core.client_processes();
        for process in served {
            story.feed(Input::Evidence(Evidence::UvmEvent { process, fault: fault(), is_of_own_server: true }));
        }
        let connection = ConnectionId(story.number());
        let label = Some("label 10".to_owned());
        let pid = 100 + round;
        let identity = Arc::new(Identity { start_time: key(pid, 0).start_time, label, ..Identity::default() });
        let peer = Peer { pid, uid: ATTACKER, gid: ATTACKER };
        story.feed(Input::ClientArrived { connection, peer, identity, entrance: None });
        if round == 0 {
            assert_eq!(story.core.waiting_peer(connection), None, "it is served");
        }
        if story.core.waiting_peer(connection).is_none() {
            story.feed(Input::ServerGreeted { connection });
            story.feed(Input::ClientDone { connection, status: Some(0) });
        }
        assert!(story.core.servers().count() <= 6, "{round}");
    }
}

#[test]
fn one_user_has_a_bounded_number_of_waiting_clients_whatever_is_a_domain() {
    let mut story = Story::new(|policy| {
        policy.domains.default.group.by = Grouping::Client;
        policy.constants.max_waiting_per_user = 5;
    });
    for pid in 10..40 {
        story.comes(ATTACKER, pid);
    }
    assert_eq!(story.core.waiting(), 5, "the others are refused");
}

#[test]
fn clients_without_a_pid_have_the_same_bounds_and_keep_nobody_else_out() {
    let mut story = Story::new(|policy| {
        policy.domains.default.group.by = Grouping::Client;
        policy.constants.max_waiting_per_user = 5;
    });
    for number in 10..40 {
        story.comes_hidden(ATTACKER, number);
    }
    assert_eq!((story.core.servers().count(), story.core.waiting()), (3, 5), "the others are refused");
    let others = [story.comes(OTHER, 50), story.comes_hidden(OTHER, 51)];
    assert!(others.iter().all(|other| story.core.waiting_peer(*other).is_none()), "another user's are served");
}

#[test]
fn clients_without_a_pid_that_come_and_go_by_the_thousand_leave_nothing_behind() {
    let mut story = Story::new(|_| {});
    story.comes_hidden(ATTACKER, 10);
    let saved = |story: &Story| story.core.saved().encoded_len();
    let before = saved(&story);
    for number in 11..5_000 {
        story.comes_hidden(ATTACKER, number);
    }
    assert_eq!((story.core.waiting(), story.core.servers().count()), (0, 1));
    assert_eq!(story.core.clients.iter().count(), 0, "no connection of those that the server has");
    assert_eq!(story.core.client_processes(), [], "nobody knows when they end, so none is remembered");
    assert_eq!(saved(&story), before, "nor told to a successor");
    story.comes(ATTACKER, 9);
    assert_eq!((story.core.waiting(), story.core.servers().count()), (0, 1));
}

fn hidden(number: Pid) -> HiddenId {
    HiddenId([0, number.into()])
}

/// Its process, started as `comes_known` has it.
fn ended(number: Pid) -> ProcessKey {
    ProcessKey { pid: stand_in(number), start_time: u64::from(number) * 1000 }
}

/// What stands for the pid of such a one.
fn stand_in(number: Pid) -> Pid {
    first_stand_in(hidden(number).0)
}

#[test]
fn clients_without_a_pid_that_can_be_told_apart_fill_parts_and_are_shown_one_by_one() {
    let mut story = Story::new(|policy| {
        policy.domains.default.group.max_clients = Some(1);
        policy.max_servers_per_user = None;
    });
    for (number, servers) in [(11, 1), (11, 1), (12, 2), (11, 2), (12, 2)] {
        story.comes_apart(ATTACKER, number);
        assert_eq!(story.core.servers().count(), servers, "{number}");
    }
    story.comes(ATTACKER, 10);
    assert_eq!(story.core.servers().count(), 3, "one with a pid finds no room beside them");
    let daemon = DaemonFacts::blank();
    let shown = |story: &Story| {
        let picture = story.core.picture(story.now, daemon.clone(), Vec::new());
        let of = |client: &ClientFacts| (client.process.pid, client.contexts, client.phase, client.server);
        let living = picture.clients.iter().filter(|client| client.phase != ClientPhase::Gone);
        living.map(of).collect::<Vec<_>>()
    };
    let [with_pid, first, second]: [_; 3] = shown(&story).try_into().expect("each once");
    assert_eq!((with_pid.0, with_pid.1), (10, 0));
    assert_eq!(
        [(first.0, first.1, first.2), (second.0, second.1, second.2)],
        [(stand_in(11), 2, ClientPhase::Live), (stand_in(12), 1, ClientPhase::Live)]
    );
    assert!(first.3.is_some() && first.3 != second.3, "each on a server of its own");
    // One that has ended makes room for another one, and its number may come again.
    story.feed(Input::ProcessGone { process: ended(11), end: End::Exited(0) });
    assert_eq!(shown(&story).len(), 2);
    story.comes_apart(ATTACKER, 13);
    assert_eq!(story.core.servers().count(), 3);
    story.comes_apart(ATTACKER, 11);
    assert_eq!(story.core.servers().count(), 4);
}

#[test]
fn clients_without_a_pid_that_can_be_told_apart_leave_nothing_behind() {
    let mut story = Story::new(|_| {});
    for number in 11..5_000 {
        story.comes_apart(ATTACKER, number);
        story.feed(Input::ProcessGone { process: ended(number), end: End::Exited(0) });
    }
    assert_eq!((story.core.clients.iter().count(), story.core.client_processes()), (0, Vec::new()));
}

#[test]
fn who_has_no_pid_has_a_part_of_shared_limits_where_it_can_be_told_apart_and_only_there() {
    let mut story = Story::new(|policy| policy.domains.default.group.shared_by = Some(2));
    story.comes_hidden(ATTACKER, 9);
    assert_eq!((story.core.servers().count(), story.core.waiting()), (0, 0), "it is refused: nobody could count it");
    // Each once, with as many connections as it likes.
    for number in [11, 11, 12, 11, 12] {
        story.comes_apart(ATTACKER, number);
        assert_eq!(story.core.waiting(), 0, "{number}");
    }
    story.comes_apart(ATTACKER, 13);
    story.comes(ATTACKER, 14);
    assert_eq!((story.core.client_processes().len(), story.core.waiting()), (2, 2), "there are two parts");
    story.feed(Input::ProcessGone { process: ended(12), end: End::Exited(0) });
    assert_eq!((story.core.client_processes().len(), story.core.waiting()), (2, 1), "and one is given back");
}

#[test]
fn clients_without_a_pid_are_not_counted_and_stay_with_one_server() {
    let mut story = Story::new(|policy| policy.domains.default.group.max_clients = Some(1));
    story.comes(ATTACKER, 10);
    // Its connections are of one process, as far as anybody can tell, and must not be spread over servers.
    story.comes_hidden(ATTACKER, 11);
    story.feed(Input::ProcessGone { process: key(10, 0), end: End::Exited(0) });
    story.comes_hidden(ATTACKER, 11);
    assert_eq!(story.core.servers().count(), 1, "beside the one that fills it, and without it");
    story.comes(ATTACKER, 12);
    assert_eq!(story.core.servers().count(), 1, "they fill nothing");
    story.comes(ATTACKER, 13);
    assert_eq!(story.core.servers().count(), 2);
    story.comes_hidden(ATTACKER, 11);
    assert_eq!(story.core.servers().count(), 2);
}
