//! A fault in every order in which its signs can be heard: the culprit's own word, the ends of its clients, the server's
//! record, and its answers, which may be older than what was heard since.
//!
//! As on an H200 the server says `FAULT` from when it notices until the last client that it has hit has left. Time does
//! not pass unless a test lets it: whoever waits for a better witness when nobody is left to be one is found.

use super::scene::*;
use super::*;
use remps_proto::mps::server::Reply;
use std::collections::VecDeque;
use world::key;

/// With an error of CUDA, as most programs do.
const FAILED: End = End::Exited(207);

/// What happens, or is heard by the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The server notices, after the culprit has left it.
    Notices,
    /// The victim leaves the server.
    VictimLeaves,
    /// The daemon hears what the culprit says of itself; it has said so before it ended.
    Word,
    /// The daemon hears of the culprit's end.
    CulpritEnds,
    /// And of the victim's.
    VictimEnds,
    /// And the server's record.
    Record,
    /// The server answers the oldest question.
    Answers,
    /// The daemon hears its oldest answer.
    Heard,
}

struct Story {
    scene: Scene,
    done: Vec<Step>,
    /// Questions that the server has read.
    answered: VecDeque<(RequestId, bool)>,
    stays: bool,
}

impl Story {
    /// One in which these steps have been done. Where the victim `stays`, it does nothing more.
    fn told(steps: &[Step], stays: bool) -> Self {
        let (scene, answered) = (Scene::new(Policy::default()), VecDeque::new());
        let mut story = Self { scene, done: Vec::new(), answered, stays };
        steps.iter().for_each(|step| story.step(*step));
        story
    }

    fn has(&self, step: Step) -> bool {
        self.done.contains(&step)
    }

    /// The oldest question that the server has not read.
    fn unread(&self) -> Option<RequestId> {
        let is_read = |id: &RequestId| self.answered.iter().any(|(read, _)| read == id);
        self.scene.open_questions().into_iter().find(|id| !is_read(id))
    }

    fn can(&self, step: Step) -> bool {
        let once = |step| !self.has(step);
        match step {
            Step::Notices | Step::Word | Step::CulpritEnds => once(step),
            Step::VictimLeaves => once(step) && self.has(Step::Notices) && !self.stays,
            Step::VictimEnds => once(step) && self.has(Step::VictimLeaves),
            Step::Record => once(step) && self.has(Step::Notices),
            Step::Answers => self.unread().is_some(),
            Step::Heard => !self.answered.is_empty(),
        }
    }

    fn step(&mut self, step: Step) {
        self.done.push(step);
        match step {
            Step::Notices | Step::VictimLeaves => {}
            Step::Word => {
                let (process, error) = (key(CULPRIT.pid, 0), 719);
                self.scene.feed(Input::Evidence(Evidence::Shim { process, error, own_work: true, server: None }));
            }
            Step::CulpritEnds => drop(self.scene.dies(CULPRIT, FAILED)),
            Step::VictimEnds => drop(self.scene.dies(VICTIM, FAILED)),
            Step::Record => drop(self.scene.log_record(VICTIM.pid)),
            Step::Answers => {
                let is_in_fault = self.has(Step::Notices) && !self.has(Step::VictimLeaves);
                let unread = self.unread();
                self.answered.extend(unread.map(|id| (id, !is_in_fault)));
            }
            Step::Heard => {
                if let Some((request, is_active)) = self.answered.pop_front() {
                    self.scene.feed(Input::Replied { request, reply: Ok(Reply::Active(is_active)) });
                }
            }
        }
    }

    fn open(&self) -> Vec<Step> {
        use Step::*;
        let all = [Notices, VictimLeaves, Word, CulpritEnds, VictimEnds, Record, Answers, Heard];
        // Nobody sees when these happen but by what comes of it: they happen just before.
        let comes_of = |step| match self.done.last() {
            Some(Notices) => matches!(step, Answers | Record | VictimLeaves),
            Some(VictimLeaves) => matches!(step, Answers | VictimEnds),
            _ => true,
        };
        all.into_iter().filter(|step| self.can(*step) && comes_of(*step)).collect()
    }

    /// The server answers whatever it is asked until that is nothing any more.
    fn answers_all(&mut self) {
        while let Some(step) = [Step::Heard, Step::Answers].into_iter().find(|step| self.can(*step)) {
            self.step(step);
        }
    }
}

/// Tells each story to its end, and has it judged there; the number of stories.
fn in_every_order(stays: bool, judge: fn(&mut Story)) -> usize {
    let (mut begun, mut count) = (vec![Vec::new()], 0);
    while let Some(steps) = begun.pop() {
        let mut story = Story::told(&steps, stays);
        let open = story.open();
        if open.is_empty() {
            judge(&mut story);
            count += 1;
        }
        begun.extend(open.into_iter().map(|step| [&steps[..], &[step]].concat()));
    }
    count
}

#[test]
fn a_culprits_own_word_has_its_verdict_as_soon_as_nobody_is_left_in_whatever_order_it_is_heard() {
    let count = in_every_order(false, |story| {
        let verdicts: Vec<_> = story.scene.core.verdicts().map(culprit).collect();
        assert_eq!(verdicts.last(), Some(&Some(CULPRIT.pid)), "{:?}", story.done);
        let verdict = story.scene.verdict();
        assert_eq!((verdict.confidence, verdict.kind), (Confidence::Likely, "exception"), "{:?}", story.done);
        assert!(!verdict.victims.contains(&CULPRIT.pid), "{:?}", story.done);
    });
    assert!(count > 100, "{count} orders");
}

#[test]
fn a_server_that_notices_late_is_asked_until_it_has_heard_of_the_last_sign() {
    let count = in_every_order(true, |story| {
        for _ in 0..3 {
            story.scene.pass(Duration::from_millis(100));
            story.answers_all();
        }
        assert!(story.scene.is_tainted(), "{:?}", story.done);
        assert_eq!(culprit(story.scene.verdict()), Some(CULPRIT.pid), "{:?}", story.done);
        assert_eq!(story.scene.verdict().victims, [VICTIM.pid], "{:?}", story.done);
    });
    assert!(count > 100, "{count} orders");
}
