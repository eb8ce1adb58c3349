//! Single rules of the core, each in one short story.

mod commands;
mod hidden;
mod rights;

use super::*;
use remps_proto::mps::server::{Reply, Request};
use std::sync::Arc;
use world::identity;

const ROOT: Peer = Peer { pid: 9, uid: 0, gid: 0 };
const USER: Peer = Peer { pid: 10, uid: 1000, gid: 1000 };
const OTHER: Peer = Peer { pid: 11, uid: 1001, gid: 1001 };

/// The end of a process whose start nobody could read.
fn gone(pid: Pid) -> Input {
    Input::ProcessGone { process: ProcessKey { pid, start_time: 0 }, end: End::Exited(0) }
}

/// A core and what it asked for.
struct Story {
    core: Core,
    now: Duration,
    next: u64,
}

/// What somebody may do who is in a container with a PID namespace of its own.
fn from_pod(number: u64) -> Rights {
    let place = Place { user: Namespace::Own, pid: Namespace::Other(number), ..Place::default() };
    Rights { privileged: false, place, within: None }
}

impl Story {
    /// Newcomers don't wait for a sound server here: that has stories of its own.
    fn new(mut policy: Policy) -> Self {
        policy.constants.settle_time = Duration::ZERO;
        Self { core: Core::new(policy, Defaults::default()), now: Duration::ZERO, next: 1 }
    }

    /// Servers greet at once whom they are told of.
    fn feed(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = self.core.handle(self.now, input);
        for (_, connection) in dispatched(&effects) {
            effects.extend(self.core.handle(self.now, Input::ServerGreeted { connection }));
        }
        effects
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn arrive(&mut self, peer: Peer) -> (ConnectionId, Vec<Effect>) {
        let connection = ConnectionId(self.number());
        (
            connection,
            self.feed(Input::ClientArrived { connection, peer, identity: identity(peer.pid, 0), entrance: None }),
        )
    }

    fn command(&mut self, peer: Peer, line: &str) -> Vec<Effect> {
        self.command_from(peer, Rights::beside_the_daemon(), line)
    }

    fn command_from(&mut self, peer: Peer, rights: Rights, line: &str) -> Vec<Effect> {
        let session = SessionId(self.number());
        self.feed(Input::Command { session, peer, rights, line: line.as_bytes().to_vec() })
    }

    /// Where a client's process is has been found out.
    fn knows(&mut self, peer: Peer, rights: &Rights) {
        let identity = Identity { place: rights.place.clone(), ..Identity::clone(&identity(peer.pid, 0)) };
        self.feed(Input::IdentityKnown { pid: peer.pid, identity: Arc::new(identity) });
    }

    fn answer(&mut self, peer: Peer, line: &str) -> Vec<String> {
        answer(&self.command(peer, line)).expect("it is answered at once")
    }

    /// Brings the server that `effects` ask for to its hello.
    fn serve(&mut self, effects: &[Effect], pid: Pid) -> (ServerEpoch, Vec<Effect>) {
        let (server, uid) = effects.iter().find_map(spawned).expect("a server is asked for");
        let mut after = self.feed(Input::ServerSpawned { server, pid });
        let connection = ConnectionId(self.number());
        after.extend(self.feed(Input::ServerHello { connection, peer: Peer { pid, uid, gid: 0 } }));
        (server, after)
    }

    fn pass(&mut self, time: Duration) -> Vec<Effect> {
        self.now += time;
        self.feed(Input::Tick)
    }
}

fn spawned(effect: &Effect) -> Option<(ServerEpoch, Uid)> {
    match effect {
        Effect::SpawnServer { server, uid, .. } => Some((*server, *uid)),
        _ => None,
    }
}

fn asked(effects: &[Effect], wanted: &Request) -> Option<RequestId> {
    effects.iter().find_map(|effect| match effect {
        Effect::Ask { id, request, .. } if request == wanted => Some(*id),
        _ => None,
    })
}

fn dispatched(effects: &[Effect]) -> Vec<(ServerEpoch, ConnectionId)> {
    let to = |effect: &Effect| match effect {
        Effect::Dispatch { server, connection } => Some((*server, *connection)),
        _ => None,
    };
    effects.iter().filter_map(to).collect()
}

fn answer(effects: &[Effect]) -> Option<Vec<String>> {
    effects.iter().find_map(|effect| match effect {
        Effect::Answer { lines, .. } => Some(lines.clone()),
        _ => None,
    })
}

fn lines(effects: &[Effect]) -> Vec<&str> {
    fn line(effect: &Effect) -> Option<&str> {
        if let Effect::Log(line) = effect { Some(line) } else { None }
    }
    effects.iter().filter_map(line).collect()
}

#[test]
fn users_do_not_wait_for_each_other() {
    let mut story = Story::new(Policy::default());
    let (first, effects) = story.arrive(USER);
    let (server, effects) = story.serve(&effects, 501);
    assert_eq!(dispatched(&effects), [(server, first)]);
    let (second, effects) = story.arrive(OTHER);
    let (beside, effects) = story.serve(&effects, 502);
    assert_eq!(dispatched(&effects), [(beside, second)]);
    assert_ne!(server, beside);
    assert_eq!(story.answer(ROOT, "get_server_list"), ["501", "502"]);
}

#[test]
fn with_the_vendors_rule_the_second_user_waits_until_the_first_has_left() {
    let mut story = Story::new(Policy { sharing: Sharing::Single, ..Policy::default() });
    let (_, effects) = story.arrive(USER);
    let (server, _) = story.serve(&effects, 501);
    let (second, effects) = story.arrive(OTHER);
    assert!(effects.iter().all(|effect| spawned(effect).is_none()));
    let id = asked(&effects, &Request::Shutdown).expect("the first server is asked to go");
    let effects = story.feed(Input::Replied { request: id, reply: Ok(Reply::ActiveWorkers(2)) });
    assert!(lines(&effects).iter().any(|line| line.ends_with("again in at most 200ms")), "{effects:?}");
    // A newcomer of the first user is served meanwhile, as the vendor does.
    let (third, effects) = story.arrive(Peer { pid: 77, ..USER });
    assert_eq!(dispatched(&effects), [(server, third)]);
    let effects = story.pass(Duration::from_millis(200));
    let id = asked(&effects, &Request::Shutdown).expect("it is asked again");
    story.feed(Input::Replied { request: id, reply: Ok(Reply::ActiveWorkers(0)) });
    let effects = story.feed(Input::ServerExited { server, cause: ExitCause::Exited(0) });
    let (next, effects) = story.serve(&effects, 502);
    assert_eq!(dispatched(&effects), [(next, second)]);
}

#[test]
fn in_multi_user_mode_all_users_share_the_owners_server() {
    let mut story = Story::new(Policy { sharing: Sharing::MultiUser, ..Policy::default() });
    let (first, effects) = story.arrive(USER);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::SpawnServer { uid: 0, multi_user: true, .. })));
    let (server, effects) = story.serve(&effects, 501);
    assert_eq!(dispatched(&effects), [(server, first)]);
    let (second, effects) = story.arrive(OTHER);
    assert_eq!(dispatched(&effects), [(server, second)]);
}

#[test]
fn a_process_stays_with_its_server_while_newcomers_get_a_fresh_one() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (old, _) = story.serve(&effects, 501);
    let effects = story.command(ROOT, "shutdown_server 501");
    let id = asked(&effects, &Request::Shutdown).expect("it is asked");
    let (context, effects) = story.arrive(USER);
    assert_eq!(dispatched(&effects), [], "it may decide to end");
    let effects = story.feed(Input::Replied { request: id, reply: Ok(Reply::ActiveWorkers(2)) });
    assert_eq!(dispatched(&effects), [(old, context)], "a second context goes where the first is");
    let (newcomer, effects) = story.arrive(Peer { pid: 20, ..USER });
    let (fresh, effects) = story.serve(&effects, 502);
    assert_eq!(dispatched(&effects), [(fresh, newcomer)]);
}

#[test]
fn a_server_that_does_not_start_is_tried_again_with_growing_delays_while_clients_wait() {
    let mut story = Story::new(Policy::default());
    let (connection, mut effects) = story.arrive(USER);
    for delay in [100, 200, 400, 800] {
        let (server, _) = effects.iter().find_map(spawned).expect("a start");
        story.feed(Input::ServerSpawned { server, pid: 501 });
        let failed = story.feed(Input::ServerExited { server, cause: ExitCause::Exited(1) });
        let said =
            lines(&failed).iter().filter(|line| line.contains("failed to start: it exited with status 1")).count();
        assert_eq!(said, 1, "one clear message: {failed:?}");
        assert!(story.pass(Duration::from_millis(delay - 1)).iter().all(|effect| spawned(effect).is_none()));
        effects = story.pass(Duration::from_millis(1));
    }
    let (server, effects) = story.serve(&effects, 502);
    assert_eq!(dispatched(&effects), [(server, connection)]);
}

#[test]
fn a_killed_server_is_replaced_at_once_for_the_next_client() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (server, _) = story.serve(&effects, 501);
    story.now += Duration::from_secs(10);
    story.feed(Input::ServerExited { server, cause: ExitCause::Signaled(9) });
    let (next, effects) = story.arrive(Peer { pid: 21, ..USER });
    let (fresh, effects) = story.serve(&effects, 502);
    assert_eq!(dispatched(&effects), [(fresh, next)]);
}

#[test]
fn an_idle_server_goes_when_there_are_others_and_a_client_calls_it_off() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (idle, _) = story.serve(&effects, 501);
    story.feed(gone(USER.pid));
    assert_eq!(story.core.next_deadline(), None, "the only server stays");
    let (_, effects) = story.arrive(OTHER);
    story.serve(&effects, 502);
    let effects = story.pass(Duration::from_secs(60));
    let id = asked(&effects, &Request::Shutdown).expect("it has been idle for long");
    let effects = story.feed(Input::Replied { request: id, reply: Ok(Reply::ActiveWorkers(2)) });
    assert!(lines(&effects).is_empty());
    let (connection, effects) = story.arrive(USER);
    assert_eq!(dispatched(&effects), [(idle, connection)], "somebody was there whom only the server knew");
}

#[test]
fn the_end_of_an_earlier_process_of_the_same_pid_is_not_the_clients() {
    let mut story = Story::new(Policy::default());
    let connection = ConnectionId(story.number());
    let arrival = Input::ClientArrived { connection, peer: USER, identity: identity(USER.pid, 2), entrance: None };
    let effects = story.feed(arrival);
    story.serve(&effects, 501);
    for (birth, left) in [(1, 1), (2, 0)] {
        story.feed(Input::ProcessGone { process: world::key(USER.pid, birth), end: End::Signaled(9) });
        assert_eq!(story.core.client_processes().len(), left, "the process of birth {birth} has ended");
    }
}

#[test]
fn a_crowd_goes_to_a_server_a_few_at_a_time() {
    let mut story =
        Story::new(Policy { constants: Constants { max_handshakes: 2, ..Constants::default() }, ..Policy::default() });
    let (first, effects) = story.arrive(USER);
    let (server, _) = story.serve(&effects, 501);
    let (second, effects) = story.arrive(Peer { pid: 31, ..USER });
    assert_eq!(dispatched(&effects), [(server, second)]);
    let (third, effects) = story.arrive(Peer { pid: 32, ..USER });
    assert_eq!(dispatched(&effects), [], "two are at it");
    let effects = story.feed(Input::ClientDone { connection: first, status: Some(0) });
    assert_eq!(dispatched(&effects), [(server, third)]);
}

#[test]
fn a_server_without_clients_makes_room_for_one_that_cannot_start_beside_it() {
    // As on a GPU in compute mode EXCLUSIVE_PROCESS.
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (first, _) = story.serve(&effects, 501);
    let (waiting, effects) = story.arrive(OTHER);
    let (second, _) = effects.iter().find_map(spawned).expect("a start");
    story.feed(Input::ServerSpawned { server: second, pid: 502 });
    let effects = story.feed(Input::ServerExited { server: second, cause: ExitCause::Exited(1) });
    assert_eq!(asked(&effects, &Request::Shutdown), None, "the first one has a client");
    let (another, effects) = story.arrive(Peer { pid: 33, ..USER });
    assert_eq!(dispatched(&effects), [(first, another)], "and goes on to take more");
    story.feed(gone(33));
    let effects = story.feed(gone(USER.pid));
    let id = asked(&effects, &Request::Shutdown).expect("it has none and is in the way");
    story.feed(Input::Replied { request: id, reply: Ok(Reply::ActiveWorkers(0)) });
    let effects = story.feed(Input::ServerExited { server: first, cause: ExitCause::Exited(0) });
    let (next, effects) = story.serve(&effects, 503);
    assert_eq!(dispatched(&effects), [(next, waiting)], "at once, whatever the delay was");
}

#[test]
fn who_was_kept_out_for_long_starts_at_once_when_the_other_ones_server_has_let_go() {
    let mut story = Story::new(Policy::default());
    let (_, effects) = story.arrive(USER);
    let (first, _) = story.serve(&effects, 501);
    let (waiting, mut effects) = story.arrive(OTHER);
    let failures = Policy::default().constants.breaker_failures;
    for pid in 600..600 + failures {
        while effects.iter().all(|effect| spawned(effect).is_none()) {
            let next = story.core.next_deadline().expect("it is tried again");
            effects = story.pass(next - story.now);
        }
        let (second, _) = effects.iter().find_map(spawned).expect("a start");
        story.feed(Input::ServerSpawned { server: second, pid });
        effects = story.feed(Input::ServerExited { server: second, cause: ExitCause::Exited(1) });
    }
    // It is left alone for a minute now.
    let effects = story.feed(gone(USER.pid));
    let id = asked(&effects, &Request::Shutdown).expect("it has none and is in the way");
    story.feed(Input::Replied { request: id, reply: Ok(Reply::ActiveWorkers(0)) });
    let effects = story.feed(Input::ServerExited { server: first, cause: ExitCause::Exited(0) });
    let (next, effects) = story.serve(&effects, 503);
    assert_eq!(dispatched(&effects), [(next, waiting)]);
}

#[test]
fn no_wake_up_is_due_when_nothing_happens() {
    let mut story = Story::new(Policy::default());
    assert_eq!(story.core.next_deadline(), None);
    let (_, effects) = story.arrive(USER);
    story.serve(&effects, 501);
    assert_eq!(story.core.next_deadline(), None);
}

#[test]
fn a_stranger_that_says_it_is_a_server_is_sent_away() {
    let mut story = Story::new(Policy::default());
    let connection = ConnectionId(5);
    let effects = story.feed(Input::ServerHello { connection, peer: USER });
    assert!(effects.contains(&Effect::Close { connection }));
}
