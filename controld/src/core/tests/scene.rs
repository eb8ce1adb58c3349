//! A core with one server that has two clients, and short words for what can happen to them.

use super::*;
use remps_proto::mps::server::{Reply, Request};
use world::{fault, identity, key};

pub(super) const SERVER: Pid = 500;
/// The constant `settle_time`.
pub(super) const SETTLE: Duration = Duration::from_millis(12);
pub(super) const CULPRIT: Peer = Peer { pid: 10, uid: 1000, gid: 1000 };
pub(super) const VICTIM: Peer = Peer { pid: 11, uid: 1000, gid: 1000 };
pub(super) const NEWCOMER: Peer = Peer { pid: 12, uid: 1000, gid: 1000 };

/// A core with one server that has two clients.
pub(super) struct Scene {
    pub(super) core: Core,
    pub(super) now: Duration,
    next: u64,
    pub(super) server: ServerEpoch,
    /// Whether the driver takes its time to tell what has come; else it has told everything whenever it is asked to.
    pub(super) is_behind: bool,
}

impl Scene {
    pub(super) fn new(policy: Policy) -> Self {
        let core = Core::new(policy, Defaults::default());
        let mut scene = Self { core, now: Duration::ZERO, next: 1, server: ServerEpoch(1), is_behind: false };
        let (first, effects) = scene.arrive(CULPRIT);
        let effects = scene.serve(&effects, SERVER);
        assert!(is_dispatched(&effects, first));
        scene.finish(first);
        let (context, effects) = scene.arrive(CULPRIT);
        assert!(is_dispatched(&effects, context), "who is alone waits for nothing");
        scene.finish(context);
        scene.joins(VICTIM);
        for peer in [CULPRIT, VICTIM] {
            let process = key(peer.pid, 0);
            scene.feed(Input::CopiesHeld { process, descriptors: 2 });
            scene.feed(Input::Tracked { process, tracked: true });
        }
        scene
    }

    /// One whose newcomers wait for nothing.
    pub(super) fn unsettled(mut policy: Policy) -> Self {
        policy.constants.settle_time = Duration::ZERO;
        Self::new(policy)
    }

    pub(super) fn with(change: impl FnOnce(&mut DomainPolicy)) -> Self {
        let mut policy = Policy::default();
        change(&mut policy.domains.default);
        Self::new(policy)
    }

    pub(super) fn feed(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = self.core.handle(self.now, input);
        while !self.is_behind
            && let Some(server) = asks_to_catch_up(&self.core)
        {
            effects.extend(self.core.handle(self.now, Input::CaughtUp { server }));
        }
        effects
    }

    pub(super) fn arrive(&mut self, peer: Peer) -> (ConnectionId, Vec<Effect>) {
        self.next += 1;
        let connection = ConnectionId(self.next);
        (
            connection,
            self.feed(Input::ClientArrived { connection, peer, identity: identity(peer.pid, 0), entrance: None }),
        )
    }

    /// A connection that nobody has had.
    pub(super) fn new_connection(&mut self) -> ConnectionId {
        self.next += 1;
        ConnectionId(self.next)
    }

    /// Lets the time pass that a newcomer waits where there is a sign of trouble, and the server say that it is sound.
    pub(super) fn settle(&mut self) -> Vec<Effect> {
        let effects = self.pass(SETTLE);
        self.answer_status(&effects, true)
    }

    /// A client comes, and its server is told of it at once; where it was asked how it is before that, it answers.
    pub(super) fn comes(&mut self, peer: Peer) -> (ConnectionId, Vec<Effect>) {
        let (connection, effects) = self.arrive(peer);
        assert!(is_dispatched(&effects, connection), "without a sign of trouble nothing is waited for: {effects:?}");
        if asked(&effects, &Request::Status).is_some() {
            self.answer_status(&effects, true);
        }
        (connection, effects)
    }

    /// Something says that a client may have faulted, which the server denies: one ends with an error.
    pub(super) fn is_in_doubt(&mut self) {
        let neighbour = Peer { pid: 19, ..CULPRIT };
        self.joins(neighbour);
        let effects = self.dies(neighbour, End::Exited(207));
        self.answer_status(&effects, true);
    }

    /// A process comes to a sound server that has clients, and gets its connection and a context, in doubt or not.
    pub(super) fn joins(&mut self, peer: Peer) {
        for _ in 0..2 {
            let (connection, mut effects) = self.arrive(peer);
            if !is_dispatched(&effects, connection) {
                effects.extend(self.pass(SETTLE));
            }
            if asked(&effects, &Request::Status).is_some() {
                effects.extend(self.answer_status(&effects, true));
            }
            assert!(is_dispatched(&effects, connection), "{effects:?}");
            self.finish(connection);
            self.pass(Duration::from_millis(1));
        }
    }

    /// A connection's way to a server comes to its good end.
    pub(super) fn finish(&mut self, connection: ConnectionId) {
        self.feed(Input::ServerGreeted { connection });
        self.feed(Input::ClientDone { connection, status: Some(0) });
    }

    /// Brings the server that the effects ask for to its hello.
    pub(super) fn serve(&mut self, effects: &[Effect], pid: Pid) -> Vec<Effect> {
        let server = spawned(effects).expect("a server is asked for");
        self.feed(Input::ServerSpawned { server, pid });
        self.next += 1;
        let connection = ConnectionId(self.next);
        let mut effects = self.feed(Input::ServerHello { connection, peer: Peer { pid, uid: 1000, gid: 0 } });
        if let Some(request) = asked(&effects, &Request::QueryDevices) {
            let reply = Ok(Reply::Devices(world::records()));
            effects.extend(self.feed(Input::Replied { request, reply }));
        }
        effects
    }

    pub(super) fn pass(&mut self, time: Duration) -> Vec<Effect> {
        self.now += time;
        self.feed(Input::Tick)
    }

    pub(super) fn memory_fault(&mut self) -> Vec<Effect> {
        self.feed(Input::Evidence(Evidence::UvmEvent {
            process: key(CULPRIT.pid, 0),
            fault: fault(),
            is_of_own_server: true,
        }))
    }

    pub(super) fn log_record(&mut self, named: Pid) -> Vec<Effect> {
        let text = "Worker is in reset".to_owned();
        self.feed(Input::Evidence(Evidence::ServerLog { server: SERVER, named: Some(named), blames: true, text }))
    }

    /// The server answers the question for its status that is among the effects.
    pub(super) fn answer_status(&mut self, effects: &[Effect], active: bool) -> Vec<Effect> {
        let request = asked(effects, &Request::Status).expect("the server is asked for its status");
        self.feed(Input::Replied { request, reply: Ok(Reply::Active(active)) })
    }

    /// The questions that no server has answered.
    pub(super) fn open_questions(&self) -> Vec<RequestId> {
        self.core.servers.questions().keys().copied().collect()
    }

    pub(super) fn dies(&mut self, peer: Peer, end: End) -> Vec<Effect> {
        self.feed(Input::ProcessGone { process: key(peer.pid, 0), end })
    }

    pub(super) fn verdict(&self) -> &Verdict {
        self.core.verdicts().next_back().expect("there is a verdict")
    }

    pub(super) fn is_tainted(&self) -> bool {
        self.core.servers().any(|server| server.epoch == self.server && server.tainted().is_some())
    }
}

/// A server on account of which the driver is still to tell what has come.
pub(super) fn asks_to_catch_up(core: &Core) -> Option<ServerEpoch> {
    core.servers().find(|server| server.catching_up.is_some()).map(|server| server.epoch)
}

pub(super) fn spawned(effects: &[Effect]) -> Option<ServerEpoch> {
    effects.iter().find_map(|effect| match effect {
        Effect::SpawnServer { server, .. } => Some(*server),
        _ => None,
    })
}

pub(super) fn asked(effects: &[Effect], wanted: &Request) -> Option<RequestId> {
    effects.iter().find_map(|effect| match effect {
        Effect::Ask { id, request, .. } if request == wanted => Some(*id),
        _ => None,
    })
}

pub(super) fn is_dispatched(effects: &[Effect], wanted: ConnectionId) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Dispatch { connection, .. } if *connection == wanted))
}

pub(super) fn is_released(effects: &[Effect], peer: Peer) -> bool {
    effects.contains(&Effect::ReleaseCopies { process: key(peer.pid, 0) })
}

pub(super) fn culprit(verdict: &Verdict) -> Option<Pid> {
    verdict.culprit.as_ref().map(|culprit| culprit.process.pid)
}

impl Core {
    /// Whom the log may name of a server: its clients, and those that were.
    pub(super) fn is_or_were_clients(&self, epoch: ServerEpoch) -> std::collections::BTreeSet<Pid> {
        let incident = self.faults.incidents().get(&epoch).into_iter().flat_map(|incident| incident.clients.iter());
        let living = self.clients.on(epoch).map(|(pid, _)| pid);
        let dead = self.faults.deaths().filter(|death| death.process.server == epoch).map(|death| death.key.pid);
        living.chain(dead).chain(incident.map(|(pid, _)| *pid)).collect()
    }
}

/// How far a program says that its spare copy is.
pub(super) fn standing(is_ready: bool, behind: u64) -> Standing {
    Standing { is_ready, behind, ..Standing::default() }
}
