//! In no order of events is a spoilt server buried before those who recover are back, nor ever later than it may be.
//!
//! The model beside the core knows who has said what and when the server was spoilt. Clients say what they like.

use super::*;
use std::collections::BTreeSet;

const PIDS: [Pid; 4] = [CULPRIT.pid, VICTIM.pid, 21, 22];

#[derive(Debug, Clone, Copy)]
enum Event {
    Says { client: usize, stage: u32 },
    Dies { client: usize, is_orderly: bool },
    Fault,
    Passes(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let client = 0..PIDS.len();
    prop_oneof![
        8 => (client.clone(), 0u32..6).prop_map(|(client, stage)| Event::Says { client, stage }),
        2 => (client, any::<bool>()).prop_map(|(client, is_orderly)| Event::Dies { client, is_orderly }),
        2 => Just(Event::Fault),
        3 => prop::sample::select(vec![1u64, 30, 300, 1500]).prop_map(Event::Passes),
    ]
}

/// What is true.
struct Model {
    story: Story,
    clients: BTreeSet<Pid>,
    able: BTreeSet<Pid>,
    /// Since when the server is spoilt, and who is waited for.
    spoilt: Option<(Duration, BTreeSet<Pid>)>,
    was_awaited: bool,
    is_buried: bool,
    /// Dead clients whose copies are kept.
    kept: BTreeSet<Pid>,
    held: usize,
}

impl Model {
    fn new() -> Self {
        let mut policy = Policy::default();
        // It is forced at once where nothing holds it back.
        policy.domains.default.faults.victims_timeout = Duration::ZERO;
        let clients = BTreeSet::from(PIDS);
        let (able, kept) = (BTreeSet::new(), BTreeSet::new());
        let mut story = Story::new(policy, &[]);
        PIDS[2..].iter().for_each(|pid| story.scene.joins(Self::of(*pid)));
        Self { story, clients, able, spoilt: None, was_awaited: false, is_buried: false, kept, held: 0 }
    }

    fn peer(client: usize) -> Peer {
        Peer { pid: PIDS[client], ..CULPRIT }
    }

    /// Whether the burial may and must have begun.
    fn is_due(&self) -> bool {
        let is_over = |since: Duration| self.story.scene.now >= since + HOLD;
        self.spoilt.as_ref().is_some_and(|(since, awaited)| awaited.is_empty() || is_over(*since))
    }

    fn check(&mut self, effects: &[Effect], is_short: bool) {
        let is_forced = self.story.is_forced(effects);
        let is_due = self.is_due() || (is_short && self.spoilt.is_some());
        assert!(is_due || self.is_buried || !is_forced, "it is buried under those who recover");
        let released: Vec<Pid> = self.kept.iter().copied().filter(|pid| releases(effects, Self::of(*pid))).collect();
        assert!(is_due || self.is_buried || released.is_empty(), "what is kept for them is closed: {released:?}");
        self.kept.retain(|pid| !released.contains(pid));
        let told = told(effects);
        assert_eq!(told.len(), usize::from(is_due && !self.is_buried && self.was_awaited), "{effects:?}");
        self.held += told.len();
        if is_due && !self.is_buried {
            self.is_buried = true;
            assert!(is_forced, "it is late: {effects:?}");
        }
        assert!(!self.is_buried || self.kept.is_empty(), "{:?} are kept for nobody", self.kept);
    }

    fn of(pid: Pid) -> Peer {
        Peer { pid, ..CULPRIT }
    }

    fn awaits_no_longer(&mut self, pid: Pid) -> bool {
        self.spoilt.as_mut().is_some_and(|(_, awaited)| awaited.remove(&pid))
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Says { client, stage } => {
                let (pid, stage) = (PIDS[client], RecoveryStage(stage));
                let mut is_short = false;
                match stage {
                    RecoveryStage::ABLE => {
                        self.able.insert(pid);
                    }
                    RecoveryStage::BACK => {
                        self.awaits_no_longer(pid);
                    }
                    RecoveryStage::GIVEN_UP => {
                        self.able.remove(&pid);
                        self.awaits_no_longer(pid);
                    }
                    RecoveryStage::SHORT => {
                        // All are one user's, and those who have ended are nobody's.
                        is_short = self.spoilt.is_some() && self.clients.contains(&pid);
                    }
                    _ => {}
                }
                let effects = self.story.says(Self::peer(client), stage);
                self.check(&effects, is_short);
            }
            Event::Dies { client, is_orderly } => {
                let pid = PIDS[client];
                if !self.clients.remove(&pid) {
                    return;
                }
                self.able.remove(&pid);
                self.awaits_no_longer(pid);
                // Of the first two copies are held.
                let is_held = self.spoilt.is_some() && !self.is_buried && !self.is_due();
                if is_held && is_orderly && client < 2 {
                    self.kept.insert(pid);
                }
                // Before the fault a sudden death, or one with an error, would be another story.
                let is_orderly = is_orderly || self.spoilt.is_none();
                let status = i32::from(self.spoilt.is_some());
                let end = if is_orderly { End::Exited(status) } else { End::Signaled(9) };
                let effects = self.story.scene.dies(Self::peer(client), end);
                self.check(&effects, false);
            }
            Event::Fault => {
                if self.spoilt.is_none() && !self.clients.is_empty() {
                    let awaited: BTreeSet<Pid> = self.able.intersection(&self.clients).copied().collect();
                    self.was_awaited = !awaited.is_empty();
                    self.spoilt = Some((self.story.scene.now, awaited));
                    let effects = self.story.scene.log_record(*self.clients.first().expect("one"));
                    let effects = self.story.scene.answer_status(&effects, false);
                    self.check(&effects, false);
                }
            }
            Event::Passes(time) => {
                let effects = self.story.scene.pass(Duration::from_millis(time));
                self.check(&effects, false);
            }
        }
    }
}

#[test]
fn no_order_of_events_buries_a_server_under_those_who_recover_or_leaves_it_unburied() {
    let held = std::cell::Cell::new(0);
    holds(600, &prop::collection::vec(event(), 1..60), |events| {
        let mut model = Model::new();
        for event in events {
            model.happens(event);
            if model.is_buried {
                break;
            }
        }
        held.set(held.get() + model.held);
    });
    assert!(held.get() > 20, "{} burials were held back: the model has tried nothing", held.get());
}
