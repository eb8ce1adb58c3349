//! What is believed of a fault's kind, and whose word: until the server has confirmed an exception it is not ended.

use super::*;

#[test]
fn a_memory_fault_leaves_the_server_its_time_whatever_else_is_said() {
    // By the first word, by one after another, by the queue of the driver, by the kernel.
    let mut story = Story::spared(EndTainted::Always);
    let effects = story.fails(CULPRIT, ILLEGAL_ADDRESS);
    assert!(story.scene.is_tainted() && !story.is_killed(&effects));
    let effects = story.says(VICTIM, TRAP);
    assert!(!story.is_killed(&effects), "{effects:?}");
    for policy in [EndTainted::WhenSpared, EndTainted::Always] {
        let mut story = Story::spared(policy);
        let before = story.says(VICTIM, TRAP);
        let effects = story.says(CULPRIT, ILLEGAL_ADDRESS);
        assert!(!story.is_killed(&effects));
        let effects = story.scene.answer_status(&before, false);
        assert!(!story.is_killed(&effects), "{effects:?}");
        let mut story = Story::spared(policy);
        let (process, fault) = (key(CULPRIT.pid, 0), world::fault());
        story.scene.feed(Input::Evidence(Evidence::UvmEvent { process, fault, is_of_own_server: true }));
        let effects = story.says(VICTIM, TRAP);
        assert!(story.scene.is_tainted() && !story.is_killed(&effects));
        let mut story = Story::spared(policy);
        story.scene.feed(Input::Evidence(xid(31, Some(CULPRIT.pid))));
        let effects = story.says(VICTIM, TRAP);
        let effects = [effects, story.answers_if_asked(false)].concat();
        assert!(story.scene.is_tainted() && !story.is_killed(&effects));
    }
    // And without a word of its kind nobody knows.
    let mut story = Story::spared(EndTainted::Always);
    let effects = story.scene.log_record(VICTIM.pid);
    let effects = story.scene.answer_status(&effects, false);
    assert!(story.scene.is_tainted() && !story.is_killed(&effects));
    let effects = story.says(CULPRIT, TRAP);
    assert!(story.is_killed(&effects), "until somebody says: {effects:?}");
}

#[test]
fn the_kernels_line_says_what_kind_of_fault_it_was_too() {
    for number in [13, 43] {
        let mut story = Story::spared(EndTainted::WhenSpared);
        let effects = story.scene.feed(Input::Evidence(xid(number, Some(SERVER))));
        let effects = story.scene.answer_status(&effects, false);
        assert!(story.is_killed(&effects), "{number}: {effects:?}");
        let mut story = Story::spared(EndTainted::WhenSpared);
        let effects = story.scene.feed(Input::Evidence(xid(number, None)));
        let effects = story.scene.answer_status(&effects, false);
        assert!(story.scene.is_tainted() && !story.is_killed(&effects), "that line may be about another server");
    }
}

#[test]
fn a_liar_ends_no_server_of_others() {
    // A word alone, as often as he likes: the server says that it is in no fault.
    let mut story = Story::spared(EndTainted::Always);
    let mut questions = 0;
    for round in 0..500 {
        let mut effects = story.says(VICTIM, TRAP);
        effects.extend(story.scene.log_record(CULPRIT.pid));
        effects.extend(story.scene.pass(Duration::from_millis(u64::from(round % 7 == 0))));
        while let Some(request) = story.scene.open_questions().first().copied() {
            questions += 1;
            let reply = Ok(Reply::Active(true));
            effects.extend(story.scene.feed(Input::Replied { request, reply }));
        }
        assert!(!story.is_killed(&effects) && !story.scene.is_tainted(), "{effects:?}");
    }
    assert!(questions > 0);
    // A word about a server on which he is not, or that there is not.
    let mut story = Story::new(EndTainted::Always, &[CULPRIT]);
    for server in [story.standby, ServerEpoch(99)] {
        let said = Evidence::Shim { process: key(VICTIM.pid, 0), error: TRAP, own_work: true, server: Some(server) };
        let effects = story.scene.feed(Input::Evidence(said));
        assert_eq!(asked(&effects, &Request::Status), None, "{effects:?}");
    }
    let stranger =
        Evidence::Shim { process: key(99, 0), error: TRAP, own_work: true, server: Some(story.scene.server) };
    let effects = story.scene.feed(Input::Evidence(stranger));
    assert_eq!(asked(&effects, &Request::Status), None, "{effects:?}");
    // He can't speak for another's spare copy either.
    let mut story = Story::new(EndTainted::WhenSpared, &[CULPRIT]);
    let (process, token) = (key(CULPRIT.pid, 0), token(VICTIM));
    story.scene.feed(Input::SpareStands { process, token, standing: standing(true, 0) });
    let effects = story.fails(CULPRIT, TRAP);
    assert!(!story.is_killed(&effects));
}

#[test]
fn a_server_that_says_nothing_may_be_slow_and_is_not_ended_on_a_word() {
    let mut story = Story::spared(EndTainted::Always);
    let mut effects = story.says(CULPRIT, TRAP);
    let request = asked(&effects, &Request::Status).expect("it is asked");
    for _ in 0..100 {
        effects.extend(story.scene.pass(Duration::from_millis(10)));
    }
    assert!(story.scene.is_tainted(), "its silence is believed");
    assert!(!story.is_killed(&effects), "{effects:?}");
    let effects = story.scene.feed(Input::Replied { request, reply: Ok(Reply::Active(false)) });
    assert!(story.is_killed(&effects), "until it answers: {effects:?}");
}

#[test]
fn a_server_that_does_not_know_yet_is_asked_again_soon_and_not_for_long() {
    let mut story = Story::spared(EndTainted::WhenSpared);
    let effects = story.says(CULPRIT, TRAP);
    story.scene.answer_status(&effects, true);
    let effects = story.scene.pass(Duration::from_millis(2));
    let effects = story.scene.answer_status(&effects, false);
    assert!(story.is_killed(&effects), "{effects:?}");
    let mut story = Story::spared(EndTainted::WhenSpared);
    let mut effects = story.says(CULPRIT, TRAP);
    let mut questions = 0;
    for _ in 0..450 {
        if let Some(request) = asked(&effects, &Request::Status) {
            questions += 1;
            story.scene.feed(Input::Replied { request, reply: Ok(Reply::Active(true)) });
        }
        effects = story.scene.pass(Duration::from_millis(1));
    }
    assert_eq!(questions, 6, "at first, and after 2, 4, 8, 16 and 32 ms");
}

impl Story {
    fn answers_if_asked(&mut self, active: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        for request in self.scene.open_questions() {
            effects.extend(self.scene.feed(Input::Replied { request, reply: Ok(Reply::Active(active)) }));
        }
        effects
    }
}
