//! A server that an exception has spoilt, and whose clients have spare copies: when it is ended before they have left it.

mod evidence;
mod gpus;
mod random;

use super::scene::*;
use super::*;
use crate::core::events::EarlyEnd;
use crate::core::picture::DaemonFacts;
use remps_proto::mps::server::{Reply, Request};
use remps_proto::shim::RecoveryStage;
use world::{identity, key};

const STANDBY: Pid = SERVER + 1;
const WAIT: Duration = Duration::from_secs(5);
const TRAP: u32 = 719;
const ILLEGAL_ADDRESS: u32 = 700;

/// The token of a process's place.
fn token(peer: Peer) -> u64 {
    0xa00 + u64::from(peer.pid)
}

/// A core whose two clients are on one server, of which these have spare copies on another one.
struct Story {
    scene: Scene,
    standby: ServerEpoch,
}

impl Story {
    fn new(end_tainted: EndTainted, spared: &[Peer]) -> Self {
        let mut scene = Scene::unsettled(Policy { end_tainted, ..Policy::default() });
        let mut standby = ServerEpoch(0);
        for peer in spared {
            standby = has_spare(&mut scene, *peer);
        }
        Self { scene, standby }
    }

    /// All of whose clients have one.
    fn spared(end_tainted: EndTainted) -> Self {
        Self::new(end_tainted, &[CULPRIT, VICTIM])
    }

    /// A client says that its driver has failed on its own server.
    fn says(&mut self, peer: Peer, error: u32) -> Vec<Effect> {
        let (process, server) = (key(peer.pid, 0), Some(self.scene.server));
        self.scene.feed(Input::Evidence(Evidence::Shim { process, error, own_work: true, server }))
    }

    /// It says so, and the server confirms it.
    fn fails(&mut self, peer: Peer, error: u32) -> Vec<Effect> {
        let effects = self.says(peer, error);
        self.scene.answer_status(&effects, false)
    }

    fn stands(&mut self, peer: Peer, is_ready: bool) -> Vec<Effect> {
        let (process, token) = (key(peer.pid, 0), token(peer));
        self.scene.feed(Input::SpareStands { process, token, standing: standing(is_ready, 0) })
    }

    fn is_killed(&self, effects: &[Effect]) -> bool {
        kills(effects, self.scene.server)
    }

    /// The server's process is reaped.
    fn is_reaped(&mut self) -> Vec<Effect> {
        let server = self.scene.server;
        self.scene.feed(Input::ServerExited { server, cause: ExitCause::Signaled(9) })
    }
}

fn kills(effects: &[Effect], server: ServerEpoch) -> bool {
    effects.contains(&Effect::Signal { server, signal: ServerSignal::Kill })
}

/// A client's spare copy stands; where.
fn has_spare(scene: &mut Scene, peer: Peer) -> ServerEpoch {
    let (process, token) = (key(peer.pid, 0), token(peer));
    let effects = scene.feed(Input::SpareWanted { process, token, patience: WAIT });
    if spawned(&effects).is_some() {
        scene.serve(&effects, STANDBY);
    }
    let SparePlace::Granted { server, .. } = scene.core.spare_of(process) else { panic!("it has a place") };
    for _ in 0..2 {
        let connection = scene.new_connection();
        let identity = identity(peer.pid, 0);
        scene.feed(Input::SpareArrived { connection, peer, identity, token, entrance: None });
        scene.finish(connection);
    }
    scene.feed(Input::SpareStands { process, token, standing: standing(true, 0) });
    server
}

fn why(effects: &[Effect]) -> Option<(usize, EarlyEnd)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Record(event) => match &**event {
            JournalEvent::ServerEndedEarly { clients, reason, .. } => Some((*clients, *reason)),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn a_server_is_killed_as_soon_as_it_has_confirmed_an_exception_where_all_have_spare_copies() {
    for speaker in [CULPRIT, VICTIM] {
        for error in [710, 714, 715, 716, 717, 718, TRAP] {
            let mut story = Story::spared(EndTainted::WhenSpared);
            let effects = story.says(speaker, error);
            assert!(!story.is_killed(&effects), "a word is none of the daemon's own");
            let effects = story.scene.answer_status(&effects, false);
            assert!(story.is_killed(&effects), "{error}: {effects:?}");
            assert_eq!(why(&effects), Some((2, EarlyEnd::AllHaveSpares)));
            let picture = story.scene.core.picture(story.scene.now, DaemonFacts::blank(), Vec::new());
            let shown: Vec<_> = picture.servers.iter().filter_map(|server| server.early_end).collect();
            assert_eq!(shown, [EarlyEnd::AllHaveSpares]);
            let later = story.scene.pass(Duration::from_secs(60));
            assert!(!story.is_killed(&later), "once");
            let effects = story.is_reaped();
            for peer in [CULPRIT, VICTIM] {
                let fate = story.scene.core.fate_of(key(peer.pid, 0)).map(|(server, _)| server);
                assert_eq!(fate, Some(story.standby), "{effects:?}");
            }
        }
    }
}

#[test]
fn who_has_a_spare_copy_needs_no_context() {
    for goes_on in [false, true] {
        let mut story = Story::spared(EndTainted::Never);
        for peer in [CULPRIT, VICTIM] {
            let process = key(peer.pid, 0);
            story.scene.feed(Input::RecoveryStands { process, stage: RecoveryStage::ABLE });
        }
        // One is not ready, and is gone on with all the same.
        story.stands(VICTIM, !goes_on);
        let effects = story.fails(CULPRIT, TRAP);
        assert_eq!(asked(&effects, &Request::Shutdown).is_none(), goes_on, "{effects:?}");
        if goes_on {
            let (process, token) = (key(VICTIM.pid, 0), token(VICTIM));
            let effects = story.scene.feed(Input::SpareLives { process, token });
            assert!(asked(&effects, &Request::Shutdown).is_some(), "{effects:?}");
        }
    }
}

#[test]
fn who_has_gone_on_by_itself_is_no_client_of_the_server_any_more() {
    let mut story = Story::spared(EndTainted::WhenSpared);
    let effects = story.says(CULPRIT, TRAP);
    story.scene.feed(Input::SpareLives { process: key(CULPRIT.pid, 0), token: token(CULPRIT) });
    let effects = story.scene.answer_status(&effects, false);
    assert_eq!(why(&effects), Some((1, EarlyEnd::AllHaveSpares)));
    let mut story = Story::spared(EndTainted::WhenSpared);
    let effects = story.says(CULPRIT, TRAP);
    for peer in [CULPRIT, VICTIM] {
        story.scene.feed(Input::SpareLives { process: key(peer.pid, 0), token: token(peer) });
    }
    let effects = story.scene.answer_status(&effects, false);
    assert!(!story.is_killed(&effects), "nobody is left who waits for its end");
}

#[test]
fn who_has_gone_on_before_its_word_was_heard_has_spoken_of_the_server_that_it_was_on() {
    let mut story = Story::spared(EndTainted::WhenSpared);
    let effects = story.scene.log_record(CULPRIT.pid);
    story.scene.answer_status(&effects, false);
    assert!(story.scene.is_tainted(), "nobody has said yet what it was");
    story.scene.feed(Input::SpareLives { process: key(CULPRIT.pid, 0), token: token(CULPRIT) });
    let effects = story.says(CULPRIT, TRAP);
    assert_eq!(why(&effects), Some((1, EarlyEnd::AllHaveSpares)), "{effects:?}");
}

#[test]
fn a_client_without_a_ready_spare_copy_keeps_its_server() {
    let mut story = Story::new(EndTainted::WhenSpared, &[CULPRIT]);
    let effects = story.fails(CULPRIT, TRAP);
    assert!(story.scene.is_tainted() && !story.is_killed(&effects));
    let effects = story.scene.dies(VICTIM, End::Exited(1));
    assert!(story.is_killed(&effects), "the one without has left");
    // One that says that it is not ready, one that has given its own up, one whose server knows nothing of it.
    let mut story = Story::spared(EndTainted::WhenSpared);
    story.stands(VICTIM, false);
    let effects = story.fails(CULPRIT, TRAP);
    assert!(!story.is_killed(&effects));
    let effects = story.stands(VICTIM, true);
    assert!(story.is_killed(&effects), "and then it is: {effects:?}");
    let mut story = Story::spared(EndTainted::WhenSpared);
    story.scene.feed(Input::SpareGone { process: key(VICTIM.pid, 0), token: token(VICTIM) });
    let effects = story.fails(CULPRIT, TRAP);
    assert!(!story.is_killed(&effects));
    let mut story = Story::new(EndTainted::WhenSpared, &[CULPRIT]);
    let (process, token) = (key(VICTIM.pid, 0), token(VICTIM));
    story.scene.feed(Input::SpareWanted { process, token, patience: WAIT });
    story.stands(VICTIM, true);
    let effects = story.fails(CULPRIT, TRAP);
    assert!(!story.is_killed(&effects), "who only says so has nothing on the other server");
}

#[test]
fn a_client_on_its_way_to_the_server_keeps_it() {
    for has_end in [false, true] {
        let mut story = Story::spared(EndTainted::WhenSpared);
        let (connection, effects) = story.scene.arrive(NEWCOMER);
        assert!(is_dispatched(&effects, connection), "{effects:?}");
        if has_end {
            story.scene.feed(Input::ServerGreeted { connection });
        }
        let effects = story.fails(CULPRIT, TRAP);
        assert!(!story.is_killed(&effects), "{effects:?}");
        let effects = if has_end {
            story.scene.dies(NEWCOMER, End::Exited(1));
            story.scene.feed(Input::ClientDone { connection, status: None })
        } else {
            story.scene.feed(Input::EndTakenBack { connection })
        };
        assert!(story.is_killed(&effects), "{has_end}: it has left: {effects:?}");
    }
}

#[test]
fn who_comes_between_the_taint_and_the_end_is_served_by_the_next_server() {
    let mut story = Story::spared(EndTainted::WhenSpared);
    let effects = story.says(CULPRIT, TRAP);
    let (early, arrived) = story.scene.arrive(NEWCOMER);
    assert!(!is_dispatched(&arrived, early), "nobody is sent to a server that is asked how it is");
    let effects = story.scene.answer_status(&effects, false);
    assert!(story.is_killed(&effects));
    let (server, standby) = (story.scene.server, story.standby);
    assert!(effects.contains(&Effect::Dispatch { server: standby, connection: early }), "{effects:?}");
    let (late, effects) = story.scene.arrive(Peer { pid: 13, ..NEWCOMER });
    assert!(!effects.contains(&Effect::Dispatch { server, connection: late }), "{effects:?}");
}

#[test]
fn the_operators_word_decides() {
    let mut story = Story::spared(EndTainted::Never);
    let effects = story.fails(CULPRIT, TRAP);
    assert!(story.scene.is_tainted() && !story.is_killed(&effects));
    let mut story = Story::new(EndTainted::Always, &[]);
    let effects = story.fails(CULPRIT, TRAP);
    assert_eq!(why(&effects), Some((2, EarlyEnd::Always)));
    assert!(story.is_killed(&effects));
}

#[test]
fn a_spare_copy_on_a_server_that_is_not_sound_is_none() {
    let mut story = Story::spared(EndTainted::WhenSpared);
    let (process, server) = (key(CULPRIT.pid, 0), Some(story.standby));
    story.scene.feed(Input::Evidence(Evidence::Shim { process, error: TRAP, own_work: true, server }));
    let of_standby = story.scene.open_questions();
    let effects = story.says(VICTIM, TRAP);
    let effects = story.scene.answer_status(&effects, false);
    assert!(!story.is_killed(&effects), "it is asked how it is");
    let [request] = of_standby[..] else { panic!("one question: {of_standby:?}") };
    let effects = story.scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
    assert!(story.is_killed(&effects), "it is sound: {effects:?}");
}

fn xid(number: u32, pid: Option<Pid>) -> Evidence {
    let (class, bus, text) = (XidClass::Application, world::bus(0), "x".to_owned());
    Evidence::Xid { number, class, bus, instance: None, pid, channel: None, text }
}
