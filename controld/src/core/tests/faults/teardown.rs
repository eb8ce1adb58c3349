//! An isolated culprit's end, until nothing of it is left.

use super::*;

impl Scene {
    /// The module is read, and the culprit has these address spaces.
    fn with_spaces(spaces: &[u64]) -> Self {
        let mut scene = Self::new(Policy::default());
        scene.snapshot(spaces);
        scene
    }

    fn snapshot(&mut self, spaces: &[u64]) -> Vec<Effect> {
        self.feed(Input::HardwareForgotten);
        for &va_space in spaces {
            let process = key(CULPRIT.pid, 0);
            self.feed(Input::AddressSpaceAdded { va_space, process, condemned: false });
        }
        self.feed(Input::HardwareKnown)
    }

    fn isolated_fault(&mut self) -> Vec<Effect> {
        let (process, isolation) = (key(CULPRIT.pid, 0), Isolation::Isolated);
        self.feed(Input::Evidence(Evidence::Notice { process, fault: fault(), channel: None, isolation }))
    }

    fn space_gone(&mut self, va_space: u64) -> Vec<Effect> {
        self.feed(Input::AddressSpaceGone { va_space, process: Some(key(CULPRIT.pid, 0)) })
    }
}

/// How long after its end nothing was left of a culprit, and whether the module says so.
fn told(effects: &[Effect]) -> Option<(bool, u64)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Record(event) => match **event {
            JournalEvent::CulpritGone { process, complete, after, .. } => {
                assert_eq!(process, key(CULPRIT.pid, 0));
                Some((complete, after.as_secs()))
            }
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn an_isolated_culprits_copies_go_with_it_and_its_last_record_ends_the_wait() {
    let mut scene = Scene::with_spaces(&[7, 8]);
    scene.isolated_fault();
    scene.pass(Duration::from_secs(1));
    let effects = scene.dies(CULPRIT, End::Signaled(15));
    assert!(is_released(&effects, CULPRIT), "copies would hold the record back");
    assert_eq!(told(&effects), None);
    assert!(!scene.core.holds_copies_of(key(CULPRIT.pid, 0)));
    scene.pass(Duration::from_secs(3));
    assert_eq!(told(&scene.space_gone(7)), None, "it had two");
    assert_eq!(told(&scene.space_gone(8)), Some((true, 3)));
    assert_eq!(told(&scene.pass(Duration::from_secs(100))), None, "it is told once");
    assert!(!scene.is_tainted());
}

#[test]
fn a_last_record_that_was_lost_is_made_up_for_by_the_next_snapshot() {
    let mut scene = Scene::with_spaces(&[7]);
    scene.isolated_fault();
    scene.dies(CULPRIT, End::Signaled(9));
    scene.pass(Duration::from_secs(2));
    assert_eq!(told(&scene.snapshot(&[7])), None, "it is still there");
    assert_eq!(told(&scene.feed(Input::HardwareForgotten)), None, "which says nothing yet");
    assert_eq!(told(&scene.feed(Input::HardwareKnown)), Some((true, 2)));
}

#[test]
fn a_last_record_that_never_comes_is_not_waited_for_for_ever() {
    for is_read in [true, false] {
        let mut scene = Scene::with_spaces(&[7]);
        scene.isolated_fault();
        scene.dies(CULPRIT, End::Signaled(9));
        if !is_read {
            scene.feed(Input::HardwareForgotten);
        }
        assert_eq!(told(&scene.pass(Duration::from_secs(69))), None);
        let effects = scene.pass(Duration::from_secs(1));
        assert_eq!(told(&effects), Some((false, 70)));
        let what = if is_read { "something of it is left" } else { "does not say what is left of it" };
        let says = |effect: &Effect| matches!(effect, Effect::Log(line) if line.contains(what));
        assert!(effects.iter().any(says), "{effects:?}");
    }
}

#[test]
fn work_that_faults_while_the_last_record_is_waited_for_is_met_as_a_fault_of_all() {
    let mut scene = Scene::with_spaces(&[7]);
    scene.isolated_fault();
    let process = key(CULPRIT.pid, 0);
    let effects = scene.dies(CULPRIT, End::Signaled(9));
    scene.answer_status(&effects, true);
    let effects = scene.feed(Input::Evidence(Evidence::ZombieFault { process, fault: fault() }));
    assert!(asked(&effects, &Request::Status).is_some(), "the server is asked at once");
    scene.answer_status(&effects, false);
    assert!(scene.is_tainted(), "the isolation is lost");
}

#[test]
fn a_snapshot_that_shows_a_condemned_client_ends_it() {
    let mut scene = Scene::new(Policy::default());
    let process = key(CULPRIT.pid, 0);
    let effects = scene.feed(Input::AddressSpaceAdded { va_space: 7, process, condemned: true });
    assert!(asked(&effects, &Request::TerminateClient(CULPRIT.pid)).is_some(), "the record of its fault was lost");
    let effects = scene.feed(Input::AddressSpaceAdded { va_space: 7, process, condemned: true });
    assert!(asked(&effects, &Request::TerminateClient(CULPRIT.pid)).is_none(), "once");
    scene.feed(Input::HardwareKnown);
    assert!(is_released(&scene.dies(CULPRIT, End::Signaled(15)), CULPRIT));
    assert_eq!(told(&scene.space_gone(7)), Some((true, 0)));
}
