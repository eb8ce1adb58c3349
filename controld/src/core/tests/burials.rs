//! A server that a fault has spoilt and whose clients recover: when it is buried.

mod random;

use super::scene::*;
use super::*;
use crate::core::events::HoldEnd;
use remps_proto::mps::server::Request;
use remps_proto::shim::RecoveryStage;
use world::key;

const HOLD: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(50);
const OTHER: Peer = Peer { pid: 13, ..VICTIM };
const SECOND: Peer = Peer { pid: 14, ..VICTIM };
const STRANGER: Peer = Peer { pid: 15, uid: 1001, gid: 1001 };

/// A core with one server that has two clients, of which the second would recover, and that a fault spoils.
struct Story {
    scene: Scene,
}

/// What a hold has come to: whom it was for, who had come back, why it ended and after how long.
type Told = (usize, usize, HoldEnd, Duration);

fn told(effects: &[Effect]) -> Vec<Told> {
    let recorded = effects.iter().filter_map(|effect| match effect {
        Effect::Record(event) => match &**event {
            JournalEvent::BurialHeld { clients, back, reason, held, .. } => Some((*clients, *back, *reason, *held)),
            _ => None,
        },
        _ => None,
    });
    recorded.collect()
}

fn releases(effects: &[Effect], peer: Peer) -> bool {
    effects.contains(&Effect::ReleaseCopies { process: key(peer.pid, 0) })
}

impl Story {
    fn new(policy: Policy, able: &[Peer]) -> Self {
        let mut story = Self { scene: Scene::unsettled(policy) };
        able.iter().for_each(|peer| drop(story.says(*peer, RecoveryStage::ABLE)));
        story
    }

    fn usual() -> Self {
        Self::new(Policy::default(), &[VICTIM])
    }

    fn says(&mut self, peer: Peer, stage: RecoveryStage) -> Vec<Effect> {
        self.scene.feed(Input::RecoveryStands { process: key(peer.pid, 0), stage })
    }

    /// The server meets a fault and says so.
    fn faults(&mut self) -> Vec<Effect> {
        let effects = self.scene.log_record(CULPRIT.pid);
        let effects = self.scene.answer_status(&effects, false);
        assert!(self.scene.is_tainted());
        effects
    }

    fn is_asked(&self, effects: &[Effect]) -> bool {
        let server = self.scene.server;
        let asks = |effect: &Effect| matches!(effect, Effect::Ask { server: of, request: Request::Shutdown, .. } if *of == server);
        effects.iter().any(asks)
    }

    fn is_forced(&self, effects: &[Effect]) -> bool {
        effects.contains(&Effect::Signal { server: self.scene.server, signal: ServerSignal::Interrupt })
    }
}

#[test]
fn nothing_is_buried_before_who_recovers_is_back() {
    let mut story = Story::usual();
    let effects = story.faults();
    assert!(!story.is_asked(&effects), "{effects:?}");
    let effects = story.scene.dies(CULPRIT, End::Exited(1));
    assert!(!releases(&effects, CULPRIT) && !story.is_asked(&effects), "{effects:?}");
    let effects = story.scene.pass(MOMENT);
    assert!(!story.is_asked(&effects), "{effects:?}");
    let effects = story.says(VICTIM, RecoveryStage::BACK);
    assert!(releases(&effects, CULPRIT) && story.is_asked(&effects), "{effects:?}");
    assert_eq!(told(&effects), [(1, 1, HoldEnd::Over, MOMENT)]);
    assert_eq!(told(&story.says(VICTIM, RecoveryStage::BACK)), [], "once");
}

#[test]
fn who_hangs_or_lies_has_the_time_and_no_more() {
    let mut story = Story::usual();
    story.faults();
    story.scene.dies(CULPRIT, End::Exited(1));
    // It says so again and again, and never comes back.
    for _ in 0..9 {
        story.says(VICTIM, RecoveryStage::ABLE);
        let effects = story.scene.pass(HOLD / 10);
        assert!(!story.is_asked(&effects) && told(&effects).is_empty());
    }
    let effects = story.scene.pass(HOLD / 10);
    assert!(releases(&effects, CULPRIT) && story.is_asked(&effects), "{effects:?}");
    assert_eq!(told(&effects), [(1, 0, HoldEnd::TimedOut, HOLD)]);
    let later = story.scene.pass(HOLD);
    assert_eq!(told(&later), []);
}

#[test]
fn a_server_whose_time_is_over_is_forced_only_when_its_clients_are_back() {
    for comes_back in [true, false] {
        let mut policy = Policy::default();
        policy.domains.default.faults.victims_timeout = Duration::ZERO;
        let mut story = Story::new(policy, &[VICTIM]);
        let effects = story.faults();
        assert!(!story.is_forced(&effects), "{effects:?}");
        let effects = if comes_back { story.says(VICTIM, RecoveryStage::BACK) } else { story.scene.pass(HOLD) };
        assert!(story.is_forced(&effects), "{effects:?}");
    }
}

#[test]
fn nobody_is_waited_for_where_nobody_recovers() {
    type Prepare = fn(&mut Story);
    let cases: [(&str, Prepare); 3] = [
        ("nobody has said so", |_| {}),
        ("it has given that up", |story| {
            story.says(VICTIM, RecoveryStage::ABLE);
            story.says(VICTIM, RecoveryStage::GIVEN_UP);
        }),
        ("a stranger has said so", |story| drop(story.says(OTHER, RecoveryStage::ABLE))),
    ];
    for (case, prepare) in cases {
        let mut story = Story::new(Policy::default(), &[]);
        prepare(&mut story);
        let effects = story.faults();
        assert!(story.is_asked(&effects) && told(&effects).is_empty(), "{case}");
        let effects = story.scene.dies(CULPRIT, End::Exited(1));
        assert!(releases(&effects, CULPRIT), "{case}");
    }
    let mut story = Story::new(Policy { burial_hold: Duration::ZERO, ..Policy::default() }, &[VICTIM]);
    let effects = story.faults();
    assert!(story.is_asked(&effects), "the operator does not want that");
    let mut story = Story::new(Policy { sharing: Sharing::Single, ..Policy::default() }, &[VICTIM]);
    let effects = story.faults();
    assert!(story.is_asked(&effects), "its end is what the next server waits for");
}

#[test]
fn who_gives_up_or_ends_is_waited_for_no_longer() {
    for ends in [true, false] {
        let mut story = Story::usual();
        story.faults();
        story.scene.pass(MOMENT);
        let effects =
            if ends { story.scene.dies(VICTIM, End::Exited(1)) } else { story.says(VICTIM, RecoveryStage::GIVEN_UP) };
        assert_eq!(told(&effects), [(1, 0, HoldEnd::Over, MOMENT)], "{effects:?}");
        assert_eq!(releases(&effects, VICTIM), ends, "its own are kept for nobody: {effects:?}");
    }
}

#[test]
fn all_are_waited_for_and_each_for_itself() {
    let mut story = Story::usual();
    story.scene.joins(OTHER);
    story.says(OTHER, RecoveryStage::ABLE);
    story.faults();
    assert_eq!(told(&story.says(OTHER, RecoveryStage::BACK)), []);
    assert_eq!(told(&story.says(NEWCOMER, RecoveryStage::BACK)), [], "nobody asked for it");
    story.scene.pass(MOMENT);
    let effects = story.says(VICTIM, RecoveryStage::BACK);
    assert_eq!(told(&effects), [(2, 2, HoldEnd::Over, MOMENT)]);
}

#[test]
fn what_the_dead_hold_is_let_go_of_where_memory_is_short() {
    // One that recovers, one that has already, and one of the same user that has nothing to do with it.
    for (speaker, back) in [(VICTIM, 0), (OTHER, 1), (SECOND, 0)] {
        let mut story = Story::new(Policy::default(), &[VICTIM]);
        for peer in [OTHER, SECOND] {
            story.scene.joins(peer);
        }
        if back > 0 {
            story.says(OTHER, RecoveryStage::ABLE);
        }
        story.faults();
        story.scene.dies(CULPRIT, End::Exited(1));
        story.says(OTHER, RecoveryStage::BACK);
        let effects = story.says(STRANGER, RecoveryStage::SHORT);
        assert!(!releases(&effects, CULPRIT), "nobody knows it");
        assert_eq!(story.scene.core.held_burials(), 1);
        let effects = story.says(speaker, RecoveryStage::SHORT);
        assert!(releases(&effects, CULPRIT) && story.is_asked(&effects), "{effects:?}");
        assert_eq!(told(&effects), [(1 + back, back, HoldEnd::Memory, Duration::ZERO)]);
        assert_eq!(story.scene.core.held_burials(), 0);
    }
}

#[test]
fn a_word_of_short_memory_that_comes_behind_the_end_of_who_said_it_changes_nothing() {
    let mut story = Story::new(Policy::default(), &[VICTIM]);
    story.scene.joins(OTHER);
    story.says(OTHER, RecoveryStage::ABLE);
    story.faults();
    story.says(OTHER, RecoveryStage::BACK);
    story.scene.dies(OTHER, End::Signaled(9));
    let effects = story.says(OTHER, RecoveryStage::SHORT);
    assert_eq!((told(&effects), story.scene.core.held_burials()), (vec![], 1));
}

#[test]
fn an_order_is_not_held_back_and_neither_is_the_end_of_the_daemon() {
    let mut story = Story::usual();
    story.faults();
    let effects = story.scene.feed(Input::Terminate);
    assert!(story.is_asked(&effects), "{effects:?}");
    assert_eq!(told(&effects), [(1, 0, HoldEnd::Quitting, Duration::ZERO)]);
}

#[test]
fn another_standby_is_started_when_who_recovers_is_back_unless_a_spare_copy_waits_for_it() {
    for waits in [false, true] {
        let mut policy = Policy::default();
        policy.domains.default.group.standby = true;
        let mut story = Story::new(policy, &[VICTIM]);
        let (server, pid) = (ServerEpoch(2), SERVER + 1);
        story.scene.feed(Input::ServerSpawned { server, pid });
        let connection = story.scene.new_connection();
        story.scene.feed(Input::ServerHello { connection, peer: Peer { pid, uid: 1000, gid: 0 } });
        if waits {
            let (process, patience) = (key(CULPRIT.pid, 0), Duration::from_secs(5));
            story.scene.feed(Input::SpareWanted { process, token: 7, patience });
        }
        let effects = story.faults();
        assert_eq!(spawned(&effects).is_some(), waits, "{effects:?}");
        let effects = story.says(VICTIM, RecoveryStage::BACK);
        assert_eq!(spawned(&effects).is_some(), !waits, "{effects:?}");
    }
}

#[test]
fn a_server_that_ends_by_itself_is_buried() {
    let mut story = Story::usual();
    story.faults();
    story.scene.dies(CULPRIT, End::Exited(1));
    let effects = story.scene.feed(Input::ServerExited { server: story.scene.server, cause: ExitCause::Signaled(9) });
    assert!(releases(&effects, CULPRIT));
    assert_eq!(told(&effects), [(1, 0, HoldEnd::ServerEnded, Duration::ZERO)]);
}

#[test]
fn who_recovers_is_waited_for_although_it_is_on_another_server_by_now() {
    let mut story = Story::usual();
    let effects = story.faults();
    story.scene.dies(CULPRIT, End::Signaled(9));
    let (connection, _) = story.scene.arrive(VICTIM);
    let effects = [effects, story.scene.pass(Duration::ZERO)].concat();
    let replacement = spawned(&effects).expect("another server is started");
    let effects = story.scene.serve(&effects, SERVER + 1);
    assert!(effects.contains(&Effect::Dispatch { server: replacement, connection }), "{effects:?}");
    story.scene.finish(connection);
    // Nobody is on the spoilt server, as the daemon sees it, and a dead one's work may be there.
    let effects = story.scene.pass(HOLD - Duration::from_millis(1));
    assert!(!story.is_forced(&effects) && !story.is_asked(&effects), "{effects:?}");
    let effects = story.scene.pass(Duration::from_millis(1));
    assert!(story.is_forced(&effects) || story.is_asked(&effects), "{effects:?}");
}
