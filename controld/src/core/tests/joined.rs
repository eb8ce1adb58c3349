//! Thin daemons that join, as the core has them: whose server is whose, and how long it lasts.

use super::*;
use crate::core::tests::scene::{asked, spawned};
use remps_proto::admin::limits::DeviceKey;
use remps_proto::mps::server::Request;

const ROOT: Peer = Peer { pid: 1, uid: 0, gid: 0 };
const LONG: Duration = Duration::from_secs(601);

/// A core, the time, and the numbers given out.
struct Story {
    core: Core,
    now: Duration,
    next: u64,
    /// What thin daemons that join say of limits.
    remembered: Option<Defaults>,
    /// What they were told of them last.
    told: Option<Defaults>,
}

/// What a thin daemon is told of limits.
fn told(effects: &[Effect], wanted: JoinId) -> Option<Defaults> {
    effects.iter().rev().find_map(|effect| match effect {
        Effect::TellJoin { join, defaults } if *join == wanted => Some(defaults.clone()),
        _ => None,
    })
}

impl Story {
    fn new() -> Self {
        let core = Core::new(Policy::default(), Defaults::default());
        Self { core, now: Duration::ZERO, next: 1, remembered: None, told: None }
    }

    fn feed(&mut self, input: Input) -> Vec<Effect> {
        self.core.handle(self.now, input)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A thin daemon joins; its entrance, or why it may not.
    fn joins(&mut self, name: &str, is_same_place: bool) -> Result<(JoinId, EntranceId), String> {
        let join = JoinId(self.number());
        let (name, devices): (_, Vec<DeviceKey>) = (name.to_owned(), Vec::new());
        let listed = Ok(Vec::new());
        let limits = self.remembered.clone();
        let effects = self.feed(Input::JoinWanted { join, name, devices, limits, listed, is_same_place });
        let bound = effects.iter().find_map(|effect| match effect {
            Effect::BindJoined { entrance, .. } => Some(Ok(entrance.id)),
            Effect::RefuseJoin { reason, .. } => Some(Err(reason.clone())),
            _ => None,
        });
        let entrance = bound.expect("it is answered")?;
        let effects = self.feed(Input::JoinBound { join, entrance, result: Ok(()) });
        assert!(effects.iter().any(|effect| matches!(effect, Effect::AcceptJoin { .. })));
        self.told = told(&effects, join).or(self.told.take());
        Ok((join, entrance))
    }

    fn says(&mut self, within: EntranceId, line: &str) -> Vec<Effect> {
        let session = SessionId(self.number());
        let rights = Rights { within: Some(within), ..Rights::beside_the_daemon() };
        self.feed(Input::Command { session, peer: ROOT, rights, line: line.as_bytes().to_vec() })
    }

    /// The server that is started for a client who comes there.
    fn client(&mut self, pid: u32, entrance: EntranceId) -> Option<ServerEpoch> {
        let connection = ConnectionId(self.number());
        let peer = Peer { pid, uid: 0, gid: 0 };
        let identity = world::identity(pid, 1);
        spawned(&self.feed(Input::ClientArrived { connection, peer, identity, entrance: Some(entrance) }))
    }

    /// Brings a server to its hello.
    fn is_ready(&mut self, server: ServerEpoch) -> Vec<Effect> {
        let (connection, pid) = (ConnectionId(self.number()), 500 + u32::try_from(server.0).expect("small"));
        self.feed(Input::ServerSpawned { server, pid });
        self.feed(Input::ServerHello { connection, peer: Peer { pid, uid: 0, gid: 0 } })
    }

    fn passes(&mut self, time: Duration) -> Vec<Effect> {
        self.now += time;
        self.feed(Input::Tick)
    }
}

fn closes(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::CloseEntrance(_)))
}

fn is_answered(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::EndSession { .. }))
}

#[test]
fn a_server_that_nobody_stands_for_lasts_until_nobody_uses_it_for_long() {
    let mut story = Story::new();
    let (join, entrance) = story.joins("claim", false).expect("it may");
    assert!(!closes(&story.passes(LONG * 10)), "somebody stands for it");
    story.feed(Input::JoinGone { join });
    assert_eq!(story.core.next_deadline(), Some(story.now + LONG - Duration::from_secs(1)));
    story.passes(LONG / 2);
    // Found again, with the same entrance.
    let (join, again) = story.joins("claim", false).expect("it may");
    assert_eq!(again, entrance);
    story.passes(LONG);
    story.feed(Input::JoinGone { join });
    // Somebody waits there.
    assert!(story.client(20, entrance).is_some());
    assert!(!closes(&story.passes(LONG)), "it is in use");
    let mut other = Story::new();
    let (join, _) = other.joins("claim", false).expect("it may");
    other.feed(Input::JoinGone { join });
    assert!(closes(&other.passes(LONG)));
    assert!(!other.core.has_joined("claim"));
}

#[test]
fn one_name_is_one_daemons_and_its_successors_in_the_same_place() {
    let mut story = Story::new();
    let (first, entrance) = story.joins("claim", false).expect("it may");
    assert!(story.joins("claim", false).is_err_and(|reason| reason.contains("and lives")));
    let (second, again) = story.joins("claim", true).expect("it has the lock of the first");
    assert_eq!((entrance, story.core.entrance_of_join(second)), (again, Some(again)));
    // The end of the first comes late, and is not the second's.
    story.feed(Input::JoinGone { join: first });
    assert_eq!(story.core.entrance_of_join(second), Some(again));
    let saved = story.core.saved();
    let (core, _) = Core::restored(Duration::ZERO, Policy::default(), &saved, &[]);
    assert!(core.has_joined("claim") && core.is_joined(entrance));
}

#[test]
fn a_quit_is_answered_when_the_servers_and_the_thin_daemon_are_gone() {
    let mut story = Story::new();
    let (join, entrance) = story.joins("claim", false).expect("it may");
    let (_, neighbour) = story.joins("neighbour", false).expect("it may");
    let server = story.client(20, entrance).expect("one is started");
    let quit = story.says(entrance, "quit");
    assert!(closes(&quit) && !is_answered(&quit));
    assert!(!story.core.has_joined("claim") && story.core.has_joined("neighbour"));
    let ended = story.feed(Input::SpawnFailed { server, reason: "it is not wanted".to_owned() });
    assert!(ended.iter().any(|effect| matches!(effect, Effect::EndJoin { join: told, .. } if *told == join)));
    assert!(!is_answered(&ended), "the thin daemon lives");
    assert!(is_answered(&story.feed(Input::JoinGone { join })));
    // One that does not go when it is told keeps nobody waiting for ever.
    let quit = story.says(neighbour, "quit");
    assert!(!is_answered(&quit));
    assert!(is_answered(&story.passes(LONG)));
}

#[test]
fn what_a_claim_may_have_is_told_to_its_thin_daemon_and_heard_of_it_where_nobody_knows_better() {
    let mut story = Story::new();
    let (join, entrance) = story.joins("claim", false).expect("it may");
    assert_eq!(story.told, Some(Defaults::default()));
    let effects = story.says(entrance, "set_default_device_pinned_mem_limit 0 8G");
    let limited = told(&effects, join).expect("it is told of each change");
    assert_eq!(limited.limits().len(), 1);
    assert_eq!(told(&story.says(entrance, "get_default_device_pinned_mem_limit 0"), join), None, "and of nothing else");
    // The daemon of the node ends in order, and the next one knows nothing.
    let mut next = Story::new();
    next.remembered = Some(limited.clone());
    let (_, entrance) = next.joins("claim", false).expect("it may");
    assert_eq!(next.told.as_ref(), Some(&limited));
    // Who stands in the same place does not undo what was said meanwhile.
    let _changed = next.says(entrance, "set_default_device_pinned_mem_limit 0 2G");
    let (again, _) = next.joins("claim", true).expect("it may");
    let known = next.told.clone().expect("it is told");
    assert!(again != join && known != limited && known.limits().len() == 1, "{known:?}");
}

#[test]
fn the_end_of_a_claim_is_that_of_the_namespaces_that_root_has_made_in_it() {
    let mut story = Story::new();
    let (join, _) = story.joins("claim", false).expect("it may");
    let (session, rights) = (SessionId(story.number()), Rights::beside_the_daemon());
    let line = b"namespace create jobs --server=claim".to_vec();
    let made = story.feed(Input::Command { session, peer: ROOT, rights, line });
    let opened = made.iter().find_map(|effect| match effect {
        Effect::OpenEntrance(entrance) => Some(entrance.id),
        _ => None,
    });
    let jobs = opened.expect("it is made");
    story.feed(Input::EntranceOpened { entrance: jobs, result: Ok(()) });
    assert!(story.client(20, jobs).is_some(), "a server is started for it, and it waits");
    let waiting = ConnectionId(story.next);
    let left = story.feed(Input::JoinLeaves { join });
    assert!(left.contains(&Effect::Close { connection: waiting }), "it is not served without limits: {left:?}");
    assert_eq!(left.iter().filter(|effect| matches!(effect, Effect::CloseEntrance(_))).count(), 2);
}

/// Both of its connections are on their way to the one claim's server when that claim ends, and neither has its end yet.
#[test]
fn a_process_on_its_way_to_a_claim_that_ends_goes_to_the_other_one_that_it_has_come_to() {
    let mut story = Story::new();
    let (join, ending) = story.joins("a", false).expect("it may");
    let (_, staying) = story.joins("b", false).expect("it may");
    let first = story.client(30, ending).expect("one is started");
    let somebody = ConnectionId(story.next);
    story.is_ready(first);
    story.feed(Input::ServerGreeted { connection: somebody });
    story.feed(Input::ClientDone { connection: somebody, status: Some(0) });
    story.passes(LONG / 10);
    let second = story.client(20, staying).expect("one is started");
    let other = ConnectionId(story.next);
    let (connection, identity) = (ConnectionId(story.number()), world::identity(20, 1));
    let peer = Peer { pid: 20, uid: 0, gid: 0 };
    let effects = story.feed(Input::ClientArrived { connection, peer, identity, entrance: Some(ending) });
    for on_its_way in [connection, other] {
        assert!(effects.contains(&Effect::Dispatch { server: first, connection: on_its_way }), "{effects:?}");
    }
    let request = asked(&effects, &Request::Status).expect("it joins somebody");
    story.feed(Input::JoinLeaves { join });
    let effects = story.feed(Input::Replied { request, reply: Err(NoReply::TimedOut) });
    assert!(effects.contains(&Effect::Close { connection }), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Dispatch { .. })), "{effects:?}");
    assert!(story.is_ready(second).contains(&Effect::Dispatch { server: second, connection: other }));
}
