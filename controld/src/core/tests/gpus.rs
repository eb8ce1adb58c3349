//! Compute modes, and who passes MPS by.

mod strangers;

use super::scene::{CULPRIT, SERVER, Scene, spawned};
use super::world::identity;
use super::*;
use crate::core::ComputeMode as Mode;

const GPU: &str = "GPU-0";
const STRANGER: ProcessKey = ProcessKey { pid: 77, start_time: 7 };
const INTERVAL: Duration = Duration::from_secs(15);

struct Story {
    core: Core,
    now: Duration,
}

impl Story {
    fn new(gpus: GpuPolicy, noted: &[ManagedMode]) -> Self {
        let mut policy = Policy { gpus, ..Policy::default() };
        policy.domains.default.group.standby = true;
        let mut story = Self { core: Core::new(policy, Defaults::default()), now: Duration::ZERO };
        let effects = story.feed(Input::GpusWatched { modes: noted.to_vec(), may_end: true });
        assert!(effects.contains(&Effect::LookAtGpus));
        story
    }

    fn managing(noted: &[ManagedMode]) -> Self {
        Self::new(GpuPolicy { compute_mode: ComputeModeAction::Manage, ..GpuPolicy::default() }, noted)
    }

    fn feed(&mut self, input: Input) -> Vec<Effect> {
        self.core.handle(self.now, input)
    }

    /// A look that finds one GPU in this mode.
    fn sees(&mut self, mode: Mode) -> Vec<Effect> {
        self.feed(Input::GpusSeen(Ok(vec![gpu(mode, Vec::new())])))
    }

    fn sees_again(&mut self, seen: GpuSeen) -> Vec<Effect> {
        self.now += INTERVAL;
        assert!(self.feed(Input::Tick).contains(&Effect::LookAtGpus));
        self.feed(Input::GpusSeen(Ok(vec![seen])))
    }

    fn changed(&mut self, mode: Result<Mode, &str>) -> Vec<Effect> {
        let mode = mode.map_err(str::to_owned);
        self.feed(Input::ModesChanged(Ok(vec![ModeOutcome { uuid: GPU.into(), mode, is_others: false }])))
    }

    fn quits(&mut self) -> Vec<Effect> {
        self.feed(Input::Terminate)
    }
}

fn gpu(mode: Mode, outside: Vec<Outsider>) -> GpuSeen {
    GpuSeen { index: 0, uuid: GPU.into(), mode: Some(mode), before: None, whole: true, outside: Some(outside) }
}

fn noted(original: Mode, stage: ModeStage) -> ManagedMode {
    ManagedMode { uuid: GPU.into(), original, stage }
}

fn change(from: Mode, to: Mode) -> Effect {
    Effect::ChangeModes(vec![ModeChange { uuid: GPU.into(), from, to }])
}

fn changes(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::ChangeModes(_)))
}

fn exits(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Exit { .. }))
}

fn lines(effects: &[Effect]) -> Vec<String> {
    let line = |effect: &'_ Effect| if let Effect::Log(line) = effect { Some(line.clone()) } else { None };
    effects.iter().filter_map(line).collect()
}

fn words(effects: &[Effect]) -> Vec<&'static str> {
    let name = |effect: &Effect| if let Effect::Record(event) = effect { Some(event.name()) } else { None };
    effects.iter().filter_map(name).collect()
}

#[test]
fn what_was_there_is_noted_before_a_mode_is_set_and_given_back_before_the_end() {
    let mut story = Story::managing(&[]);
    let effects = story.sees(Mode::EXCLUSIVE_PROCESS);
    let note = Effect::HoldModes(vec![noted(Mode::EXCLUSIVE_PROCESS, ModeStage::Planned)]);
    let place = |wanted: &Effect| effects.iter().position(|effect| effect == wanted);
    assert!(place(&note).expect("noted") < place(&change(Mode::EXCLUSIVE_PROCESS, Mode::DEFAULT)).expect("changed"));
    let effects = story.changed(Ok(Mode::DEFAULT));
    assert!(effects.contains(&Effect::HoldModes(vec![noted(Mode::EXCLUSIVE_PROCESS, ModeStage::Set)])));
    assert_eq!(words(&effects), ["compute-mode-changed"]);
    let effects = story.quits();
    assert!(effects.contains(&change(Mode::DEFAULT, Mode::EXCLUSIVE_PROCESS)) && !exits(&effects), "{effects:?}");
    // A successor of one that dies now finds either mode.
    assert!(effects.contains(&note), "{effects:?}");
    let effects = story.changed(Ok(Mode::EXCLUSIVE_PROCESS));
    assert!(effects.contains(&Effect::HoldModes(Vec::new())) && exits(&effects), "{effects:?}");
}

#[test]
fn a_look_that_began_before_a_change_was_done_tells_nothing_of_the_mode() {
    let mut story = Story::managing(&[]);
    assert!(changes(&story.sees(Mode::EXCLUSIVE_PROCESS)));
    story.now += INTERVAL;
    assert!(story.feed(Input::Tick).contains(&Effect::LookAtGpus), "beside the change");
    assert_eq!(words(&story.changed(Ok(Mode::DEFAULT))), ["compute-mode-changed"]);
    let effects = story.sees(Mode::EXCLUSIVE_PROCESS);
    assert_eq!((words(&effects), lines(&effects)), (Vec::new(), Vec::new()), "nobody else has set it");
    assert!(effects.contains(&Effect::LookAtGpus), "{effects:?}");
    assert_eq!(words(&story.sees(Mode::DEFAULT)), Vec::<&str>::new());
    assert!(story.quits().contains(&change(Mode::DEFAULT, Mode::EXCLUSIVE_PROCESS)), "it is given back");
}

#[test]
fn a_mode_that_another_daemon_has_changed_is_given_back_by_whichever_ends_last() {
    let exclusive = Mode::EXCLUSIVE_PROCESS;
    let seen = || GpuSeen { before: Some(exclusive), ..gpu(Mode::DEFAULT, Vec::new()) };
    for is_others in [true, false] {
        let mut story = Story::managing(&[]);
        let effects = story.feed(Input::GpusSeen(Ok(vec![seen()])));
        assert!(effects.contains(&Effect::HoldModes(vec![noted(exclusive, ModeStage::Set)])) && !changes(&effects));
        assert!(story.quits().contains(&change(Mode::DEFAULT, exclusive)));
        let mode = if is_others { Mode::DEFAULT } else { exclusive };
        let outcome = ModeOutcome { uuid: GPU.into(), mode: Ok(mode), is_others };
        let effects = story.feed(Input::ModesChanged(Ok(vec![outcome])));
        assert!(exits(&effects), "{effects:?}");
        assert_eq!(words(&effects).contains(&"compute-mode-changed"), !is_others, "{effects:?}");
        assert_eq!(lines(&effects).iter().any(|line| line.contains("for another daemon")), is_others, "{effects:?}");
    }
    // Of a GPU in parts its mode is nobody's to give back, and of a record of another mode nothing follows.
    for seen in [GpuSeen { whole: false, ..seen() }, GpuSeen { before: Some(Mode::PROHIBITED), ..seen() }] {
        let mut story = Story::managing(&[]);
        story.feed(Input::GpusSeen(Ok(vec![seen])));
        assert!(exits(&story.quits()));
    }
}

#[test]
fn an_end_waits_for_a_change_and_not_for_a_look() {
    let mut story = Story::managing(&[]);
    assert!(exits(&story.quits()), "nothing was changed");
    let mut story = Story::managing(&[]);
    story.sees(Mode::EXCLUSIVE_PROCESS);
    assert!(!exits(&story.quits()), "a change is under way");
    let effects = story.changed(Ok(Mode::DEFAULT));
    assert!(effects.contains(&change(Mode::DEFAULT, Mode::EXCLUSIVE_PROCESS)), "{effects:?}");
    let effects = story.feed(Input::ModesChanged(Err("it hangs".into())));
    assert!(exits(&effects), "whatever came of it: {effects:?}");
}

#[test]
fn a_successor_knows_what_its_predecessor_had_come_to() {
    let exclusive = Mode::EXCLUSIVE_PROCESS;
    // Noted and not set; noted and set and not noted as set; set; left to somebody else.
    let mut story = Story::managing(&[noted(exclusive, ModeStage::Planned)]);
    assert!(story.sees(exclusive).contains(&change(exclusive, Mode::DEFAULT)));
    for stage in [ModeStage::Planned, ModeStage::Set] {
        let mut story = Story::managing(&[noted(exclusive, stage)]);
        assert!(!changes(&story.sees(Mode::DEFAULT)));
        assert!(story.quits().contains(&change(Mode::DEFAULT, exclusive)), "{stage:?}");
    }
    let mut story = Story::managing(&[noted(exclusive, ModeStage::Left)]);
    assert!(!changes(&story.sees(exclusive)));
    assert!(exits(&story.quits()));
}

#[test]
fn a_successor_that_is_not_to_manage_modes_gives_them_back() {
    let mut story = Story::new(GpuPolicy::default(), &[noted(Mode::EXCLUSIVE_PROCESS, ModeStage::Set)]);
    let effects = story.sees(Mode::DEFAULT);
    assert!(effects.contains(&change(Mode::DEFAULT, Mode::EXCLUSIVE_PROCESS)));
    let effects = story.changed(Ok(Mode::EXCLUSIVE_PROCESS));
    assert!(effects.contains(&Effect::HoldModes(Vec::new())));
    assert!(exits(&story.quits()));
    let mut story = Story::new(GpuPolicy::default(), &[noted(Mode::EXCLUSIVE_PROCESS, ModeStage::Set)]);
    let effects = story.feed(Input::GpusSeen(Err("no answer".into())));
    assert!(changes(&effects), "even blindly, since only what was set is changed");
}

#[test]
fn somebody_elses_change_is_told_once_and_neither_undone_nor_given_back() {
    for mode in [Mode::EXCLUSIVE_PROCESS, Mode::PROHIBITED] {
        let mut story = Story::managing(&[]);
        story.sees(Mode::EXCLUSIVE_PROCESS);
        story.changed(Ok(Mode::DEFAULT));
        let effects = story.sees_again(gpu(mode, Vec::new()));
        assert_eq!((words(&effects), changes(&effects)), (vec!["compute-mode-changed"], false));
        let effects = story.sees_again(gpu(mode, Vec::new()));
        assert_eq!((words(&effects), lines(&effects)), (Vec::new(), Vec::new()));
        assert!(!changes(&story.sees_again(gpu(Mode::DEFAULT, Vec::new()))));
        assert!(exits(&story.quits()), "it is none of ours any more");
    }
}

#[test]
fn a_mode_that_can_not_be_changed_is_said_once_with_what_does_not_work() {
    let mut story = Story::managing(&[]);
    story.sees(Mode::EXCLUSIVE_PROCESS);
    let effects = story.changed(Err("it takes root"));
    let said = lines(&effects).join("\n");
    assert!(said.contains("it takes root") && said.contains("none stands by"), "{said}");
    assert_eq!(words(&effects), Vec::<&str>::new());
    let effects = story.sees_again(gpu(Mode::EXCLUSIVE_PROCESS, Vec::new()));
    assert_eq!((lines(&effects), changes(&effects)), (Vec::new(), false));
    assert!(exits(&story.quits()));
}

#[test]
fn a_mode_that_forbids_and_a_gpu_that_is_shared_with_others_are_left_as_they_are() {
    let mut story = Story::managing(&[]);
    let effects = story.sees(Mode::PROHIBITED);
    assert_eq!((lines(&effects).len(), changes(&effects)), (1, false), "{effects:?}");
    let mut story = Story::managing(&[]);
    let seen = GpuSeen { whole: false, ..gpu(Mode::EXCLUSIVE_PROCESS, Vec::new()) };
    let effects = story.feed(Input::GpusSeen(Ok(vec![seen])));
    assert!(!changes(&effects) && lines(&effects)[0].contains("a part of it"), "{effects:?}");
}

#[test]
fn what_can_not_be_looked_at_is_said_once_for_each_reason_where_it_matters() {
    let mut story = Story::managing(&[]);
    assert_eq!(lines(&story.feed(Input::GpusSeen(Err("no library".into())))).len(), 1);
    story.now += INTERVAL;
    assert!(story.feed(Input::Tick).contains(&Effect::LookAtGpus), "it may come yet");
    assert_eq!(lines(&story.feed(Input::GpusSeen(Err("no library".into())))).len(), 0);
    let mut story = Story::new(GpuPolicy::default(), &[]);
    assert_eq!(lines(&story.feed(Input::GpusSeen(Err("no library".into())))).len(), 0);
    assert_eq!(story.core.next_deadline(), None);
}

/// A scene whose domains want a server that stands by, on a GPU in this mode.
fn with_standby(mode: Mode) -> (Story, Vec<Effect>) {
    let mut story = Story::new(GpuPolicy::default(), &[]);
    let effects = story.sees(mode);
    let is_told = lines(&effects).iter().any(|line| line.contains("none stands by"));
    assert_eq!(is_told, mode == Mode::EXCLUSIVE_PROCESS);
    let (connection, peer) = (ConnectionId(1), CULPRIT);
    let effects =
        story.feed(Input::ClientArrived { connection, peer, identity: identity(peer.pid, 0), entrance: None });
    let server = spawned(&effects).expect("the first server");
    story.feed(Input::ServerSpawned { server, pid: SERVER });
    let peer = Peer { pid: SERVER, uid: 1000, gid: 0 };
    let effects = story.feed(Input::ServerHello { connection: ConnectionId(2), peer });
    (story, effects)
}

#[test]
fn no_server_stands_by_where_it_could_never_start() {
    let (_, effects) = with_standby(Mode::DEFAULT);
    assert!(spawned(&effects).is_some(), "as it does elsewhere");
    let (mut story, effects) = with_standby(Mode::EXCLUSIVE_PROCESS);
    assert_eq!(spawned(&effects), None);
    story.now = Duration::from_secs(59);
    assert_eq!((spawned(&story.feed(Input::Tick)), story.feed(Input::Tick)), (None, Vec::new()));
    story.now = Duration::from_secs(60);
    assert!(story.feed(Input::Tick).contains(&Effect::LookAtGpus), "the mode may have changed");
    let effects = story.sees(Mode::DEFAULT);
    assert!(spawned(&effects).is_some(), "and then one does");
}

#[test]
fn a_server_that_does_not_start_makes_the_daemon_look_again() {
    let (mut story, effects) = with_standby(Mode::DEFAULT);
    let server = spawned(&effects).expect("one that is to stand by");
    story.now += Duration::from_secs(120);
    let effects = story.feed(Input::SpawnFailed { server, reason: "all devices are busy".into() });
    assert!(effects.contains(&Effect::LookAtGpus), "{effects:?}");
    assert!(lines(&story.sees(Mode::EXCLUSIVE_PROCESS)).iter().any(|line| line.contains("none stands by")));
    story.now += Duration::from_secs(40);
    assert_eq!(spawned(&story.feed(Input::Tick)), None, "it is not tried for ever");
}
