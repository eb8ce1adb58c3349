//! In no order of events does anybody lose a server by another's word who could still use it, or could not go on without.
//!
//! The model beside the core knows what is true: whether the server is in a fault, of which kind, who has which copy ready
//! and where. The server answers honestly; clients and the log say what they like.

use super::*;
use crate::core::servers::questions::{Purpose, Question};
use std::collections::BTreeMap;

const PIDS: [Pid; 4] = [CULPRIT.pid, VICTIM.pid, 21, 22];
const ERRORS: [u32; 6] = [700, 702, 710, 716, 719, 999];

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A kernel really fails: the server knows from now on.
    Fault {
        is_memory: bool,
    },
    Word {
        client: usize,
        error: usize,
        names: u8,
    },
    Record {
        named: usize,
    },
    Xid {
        number: u32,
        names_server: bool,
    },
    Ready {
        client: usize,
        is_ready: bool,
    },
    GivesUp {
        client: usize,
    },
    GoesOn {
        client: usize,
    },
    Stands {
        client: usize,
    },
    Dies {
        client: usize,
    },
    Joins {
        client: usize,
    },
    Answers {
        standby: bool,
    },
    StandbyFails,
    Passes(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let client = 0..PIDS.len();
    prop_oneof![
        2 => any::<bool>().prop_map(|is_memory| Event::Fault { is_memory }),
        6 => (client.clone(), 0..ERRORS.len(), 0u8..4)
            .prop_map(|(client, error, names)| Event::Word { client, error, names }),
        2 => client.clone().prop_map(|named| Event::Record { named }),
        1 => (prop::sample::select(vec![13u32, 31, 43]), any::<bool>())
            .prop_map(|(number, names_server)| Event::Xid { number, names_server }),
        3 => (client.clone(), any::<bool>()).prop_map(|(client, is_ready)| Event::Ready { client, is_ready }),
        1 => client.clone().prop_map(|client| Event::GivesUp { client }),
        1 => client.clone().prop_map(|client| Event::GoesOn { client }),
        4 => client.clone().prop_map(|client| Event::Stands { client }),
        1 => client.clone().prop_map(|client| Event::Dies { client }),
        3 => client.prop_map(|client| Event::Joins { client }),
        6 => prop::bool::weighted(0.2).prop_map(|standby| Event::Answers { standby }),
        1 => Just(Event::StandbyFails),
        2 => prop::sample::select(vec![1u64, 3, 60, 600]).prop_map(Event::Passes),
    ]
}

/// What is true.
struct Model {
    scene: Scene,
    policy: EndTainted,
    next_token: u64,
    /// The processes on the server, and whether each has said that its copy is ready, with one that has two connections.
    clients: BTreeMap<Pid, Option<(u64, ServerEpoch, bool)>>,
    is_in_fault: bool,
    was_memory: bool,
    has_ended: bool,
    kills: usize,
}

impl Model {
    fn new(policy: EndTainted) -> Self {
        let scene = Scene::unsettled(Policy { end_tainted: policy, ..Policy::default() });
        let clients = BTreeMap::from([(CULPRIT.pid, None), (VICTIM.pid, None)]);
        let (next_token, kills) = (1, 0);
        Self { scene, policy, next_token, clients, is_in_fault: false, was_memory: false, has_ended: false, kills }
    }

    fn feed(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.scene.feed(input);
        self.check(&effects);
        effects
    }

    fn is_sound(&self, server: ServerEpoch) -> bool {
        self.scene.core.servers().any(|known| known.epoch == server && known.tainted().is_none() && known.is_up())
    }

    /// What may be ended, and under whom.
    fn check(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Record(event) = effect else { continue };
            let JournalEvent::ServerEndedEarly { epoch, clients, .. } = &**event else { continue };
            assert_eq!(*epoch, self.scene.server, "no other one has met a fault");
            assert!(self.is_in_fault, "it is ended on a word alone");
            assert!(!self.has_ended, "it is ended once");
            assert_ne!(self.policy, EndTainted::Never);
            assert_eq!(*clients, self.clients.len(), "{:?}", self.clients);
            assert!(kills(effects, *epoch));
            if self.policy == EndTainted::WhenSpared {
                for (pid, spare) in &self.clients {
                    let is_ready = spare.is_some_and(|(_, server, is_ready)| is_ready && self.is_sound(server));
                    assert!(is_ready, "client {pid} has none: {:?}", self.clients);
                }
            }
            self.has_ended = true;
            self.kills += 1;
        }
    }

    fn peer(client: usize) -> Peer {
        Peer { pid: PIDS[client], ..CULPRIT }
    }

    fn spare_of(&self, pid: Pid) -> Option<(u64, ServerEpoch, bool)> {
        self.clients.get(&pid).copied().flatten()
    }

    /// Grants that the core has ended are no copies any more.
    fn forget_void(&mut self) {
        for (pid, spare) in &mut self.clients {
            let granted = self.scene.core.spare_of(key(*pid, 0));
            let is_it = |(token, server, _): &(u64, ServerEpoch, bool)| {
                granted == SparePlace::Granted { token: *token, server: *server }
            };
            *spare = spare.filter(is_it);
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Fault { is_memory } => {
                (self.is_in_fault, self.was_memory) = (true, self.was_memory || is_memory);
            }
            Event::Word { client, error, names } => {
                let named = [None, Some(self.scene.server), Some(ServerEpoch(2)), Some(ServerEpoch(77))];
                let (process, error) = (key(PIDS[client], 0), ERRORS[error]);
                let said = Evidence::Shim { process, error, own_work: true, server: named[usize::from(names % 4)] };
                self.feed(Input::Evidence(said));
            }
            Event::Record { named } => {
                let (named, text) = (Some(PIDS[named]), "Worker is in reset".to_owned());
                self.feed(Input::Evidence(Evidence::ServerLog { server: SERVER, named, blames: true, text }));
            }
            Event::Xid { number, names_server } => {
                self.feed(Input::Evidence(xid(number, Some(if names_server { SERVER } else { CULPRIT.pid }))));
            }
            Event::Ready { client, is_ready } => {
                let Some((token, server, _)) = self.spare_of(PIDS[client]) else { return };
                self.clients.insert(PIDS[client], Some((token, server, is_ready)));
                let process = key(PIDS[client], 0);
                self.feed(Input::SpareStands { process, token, standing: standing(is_ready, 0) });
            }
            Event::GivesUp { client } => {
                let Some((token, ..)) = self.spare_of(PIDS[client]) else { return };
                self.clients.insert(PIDS[client], None);
                self.feed(Input::SpareGone { process: key(PIDS[client], 0), token });
            }
            Event::GoesOn { client } => {
                let Some((token, ..)) = self.spare_of(PIDS[client]) else { return };
                self.clients.remove(&PIDS[client]);
                self.feed(Input::SpareLives { process: key(PIDS[client], 0), token });
            }
            Event::Stands { client } => self.stands(client),
            Event::Dies { client } => {
                if self.clients.remove(&PIDS[client]).is_some() {
                    self.feed(Input::ProcessGone { process: key(PIDS[client], 0), end: End::Exited(1) });
                }
            }
            Event::Joins { client } => self.joins(client),
            Event::Answers { standby } => self.answers(standby),
            Event::StandbyFails => self.standby_fails(),
            Event::Passes(time) => {
                self.scene.now += Duration::from_millis(time);
                self.feed(Input::Tick);
            }
        }
        self.forget_void();
    }

    /// A client gets a copy that stands: with two connections, and not ready.
    fn stands(&mut self, client: usize) {
        let peer = Self::peer(client);
        let (pid, process) = (peer.pid, key(peer.pid, 0));
        if self.clients.get(&pid) != Some(&None) {
            return;
        }
        let token = self.next_token;
        self.next_token += 1;
        let effects = self.feed(Input::SpareWanted { process, token, patience: WAIT });
        if spawned(&effects).is_some() {
            let effects = self.scene.serve(&effects, SERVER + u32::try_from(token).expect("small"));
            self.check(&effects);
        }
        let SparePlace::Granted { server, token } = self.scene.core.spare_of(process) else { return };
        for _ in 0..2 {
            let (connection, identity) = (self.scene.new_connection(), identity(pid, 0));
            let effects = self.feed(Input::SpareArrived { connection, peer, identity, token, entrance: None });
            if effects.contains(&Effect::Dispatch { server, connection }) {
                self.feed(Input::ServerGreeted { connection });
                self.feed(Input::ClientDone { connection, status: Some(0) });
            }
        }
        self.clients.insert(pid, Some((token, server, false)));
    }

    /// A process comes: to this server, where it may.
    fn joins(&mut self, client: usize) {
        let peer = Self::peer(client);
        if self.clients.contains_key(&peer.pid) || self.scene.core.fate_of(key(peer.pid, 0)).is_some() {
            return;
        }
        let connection = self.scene.new_connection();
        let (server, identity) = (self.scene.server, identity(peer.pid, 0));
        let effects = self.feed(Input::ClientArrived { connection, peer, identity, entrance: None });
        if !effects.contains(&Effect::Dispatch { server, connection }) {
            // It waits, or goes elsewhere; it gives up.
            self.feed(Input::ClientDone { connection, status: None });
            self.feed(Input::ProcessGone { process: key(peer.pid, 0), end: End::Exited(0) });
            return;
        }
        self.clients.insert(peer.pid, None);
        self.feed(Input::ServerGreeted { connection });
        self.feed(Input::ClientDone { connection, status: Some(0) });
    }

    /// The oldest question for a status is answered, by the server or by all others.
    fn answers(&mut self, standby: bool) {
        let own = self.scene.server;
        let questions = self.scene.core.servers.questions();
        let of_this = |(_, question): &(&RequestId, &Question)| {
            matches!(question.purpose, Purpose::FaultCheck) && (question.server == own) != standby
        };
        let Some(request) = questions.iter().find(of_this).map(|(request, _)| *request) else { return };
        let reply = Ok(Reply::Active(standby || !self.is_in_fault));
        self.feed(Input::Replied { request, reply });
    }

    fn standby_fails(&mut self) {
        let others: Vec<ServerEpoch> = self
            .scene
            .core
            .servers()
            .filter(|known| known.epoch != self.scene.server)
            .map(|known| known.epoch)
            .collect();
        for server in others {
            self.feed(Input::ServerExited { server, cause: ExitCause::Signaled(9) });
        }
    }
}

#[test]
fn no_order_of_events_ends_a_server_that_somebody_could_use_or_could_not_do_without() {
    let policies = prop::sample::select(vec![EndTainted::WhenSpared, EndTainted::Always, EndTainted::Never]);
    let kills = std::cell::Cell::new(0);
    holds(600, &(policies, prop::collection::vec(event(), 1..80)), |(policy, events)| {
        let mut model = Model::new(policy);
        for event in events {
            model.happens(event);
            if model.has_ended {
                break;
            }
        }
        kills.set(kills.get() + model.kills);
    });
    assert!(kills.get() > 20, "{} servers were ended: the model has tried nothing", kills.get());
}
