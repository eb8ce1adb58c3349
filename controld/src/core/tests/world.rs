//! A world around the core: processes, peers and time, all of them simulated, and the rules that must hold in it.

use super::*;
use crate::devices::Device;
use crate::report::{ClientPhase, DaemonFacts};
use remps_proto::mps::device::DeviceInfo;
use remps_proto::mps::server::{DeviceClients, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the operators of the world type; `{S}` is a server's pid, `{C}` a client's.
pub(super) const COMMANDS: &[&str] = &[
    "get_server_list",
    "get_server_status {S}",
    "get_client_list {S}",
    "ps",
    "ps -p {S}",
    "get_device_client_list",
    "device_query",
    "set_default_active_thread_percentage 40",
    "set_default_device_pinned_mem_limit 0 1G",
    "set_default_client_priority 1",
    "set_active_thread_percentage {S} 50",
    "get_device_pinned_mem_limit {S} 0",
    "set_device_pinned_mem_limit {S} 0 2G",
    "terminate_client {S} {C}",
    "shutdown_server {S}",
    "shutdown_server {S} -f",
    "start_server -uid 1000",
    "start_server -uid 0",
    "status",
    "nonsense",
];

#[derive(Debug, Clone)]
pub(super) enum Action {
    ClientArrives {
        uid: u32,
        slot: u32,
    },
    ClientFinishes(usize),
    ProcessEnds(usize),
    ServerHello(usize),
    /// A server takes in a client that it was told of.
    ServerGreets(usize),
    ServerDies {
        index: usize,
        status: i32,
    },
    SpawningWorks(bool),
    ServerAnswers(usize),
    ServerIsSilent(usize),
    /// The driver has told all that had come when it was asked to.
    CatchesUp(usize),
    Command {
        uid: u32,
        command: usize,
    },
    TimePasses(u64),
    /// A client's tools queue has a fault: its server is lost, and so are all of its clients.
    MemoryFault(usize),
    /// A server is lost, and says something in its log, right or wrong about who.
    Exception {
        server: usize,
        named: usize,
    },
    /// Somebody writes a record of a fault that there was not.
    ForgedRecord {
        server: usize,
        named: usize,
    },
    /// The patched module has isolated a fault.
    IsolatedFault(usize),
    /// It tells that an address space is there, or gone.
    AddressSpace {
        index: usize,
        there: bool,
    },
    /// A client dies in the middle of its work.
    SuddenDeath(usize),
    /// The daemon is killed is killed and a successor takes over.
    Restart,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    domain: u32,
    hello: bool,
    alive: bool,
    signalled: bool,
    faulted: bool,
    clients: BTreeSet<u32>,
    /// Whoever was its client at any time.
    ever: BTreeSet<u32>,
}

#[derive(Debug)]
struct Asked {
    id: RequestId,
    server: ServerEpoch,
    request: Request,
    at: Duration,
}

/// The process that has this pid after so many others had it.
pub(super) fn key(pid: u32, birth: u64) -> ProcessKey {
    ProcessKey { pid, start_time: u64::from(pid) * 1000 + birth }
}

pub(super) fn identity(pid: u32, birth: u64) -> Arc<Identity> {
    let command = format!("program-{pid}");
    Arc::new(Identity { start_time: key(pid, birth).start_time, command, ..Identity::default() })
}

pub(super) fn fault() -> MemoryFault {
    MemoryFault { address: 0x10, access: Access::Write, kind: "invalid PDE".to_owned(), gpu: None }
}

/// The world.
pub(super) struct World {
    core: Core,
    policy: Policy,
    now: Duration,
    next: u64,
    spawning_works: bool,
    servers: BTreeMap<ServerEpoch, Process>,
    asked: Vec<Asked>,
    /// On account of which servers the driver is still to tell what has come.
    behind: BTreeSet<ServerEpoch>,
    /// Where each living client process is, by pid.
    homes: BTreeMap<u32, ServerEpoch>,
    waiting: BTreeMap<ConnectionId, Peer>,
    dispatched: BTreeMap<ConnectionId, (Peer, ServerEpoch)>,
    /// When each connection came, as far as the core of today knows.
    came: BTreeMap<ConnectionId, Duration>,
    /// Of each server the latest time at which it was asked, and then said, that it is in no fault.
    known_sound: BTreeMap<ServerEpoch, Duration>,
    /// Those of them that their server has not greeted.
    told: BTreeSet<ConnectionId>,
    /// And those with which their process came to the server.
    fresh: BTreeSet<ConnectionId>,
    /// How many connections of a process servers have accepted.
    accepted: BTreeMap<u32, usize>,
    watched: BTreeSet<u32>,
    /// Whose descriptors the driver has copies of, the living and the dead.
    copies: BTreeSet<ProcessKey>,
    /// The address spaces that the module knows.
    spaces: BTreeMap<u64, ProcessKey>,
    verdicts: Vec<Verdict>,
    /// How many processes have had this pid and are dead.
    births: BTreeMap<u32, u64>,
    /// Servers that did not say which clients they have.
    untold: BTreeSet<ServerEpoch>,
    unanswered: BTreeSet<SessionId>,
    quitting: bool,
    exit: Option<u8>,
    saved_at_least_once: bool,
}

impl World {
    pub(super) fn new(sharing: Sharing, domain: DomainPolicy) -> Self {
        let domains = DomainPolicies { default: domain, overrides: Vec::new() };
        let policy = Policy { sharing, domains, ..Policy::default() };
        Self {
            core: Core::new(policy.clone(), Defaults::default()),
            policy,
            now: Duration::ZERO,
            next: 100,
            spawning_works: true,
            servers: BTreeMap::new(),
            asked: Vec::new(),
            behind: BTreeSet::new(),
            homes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            dispatched: BTreeMap::new(),
            came: BTreeMap::new(),
            known_sound: BTreeMap::new(),
            told: BTreeSet::new(),
            fresh: BTreeSet::new(),
            accepted: BTreeMap::new(),
            watched: BTreeSet::new(),
            copies: BTreeSet::new(),
            spaces: BTreeMap::new(),
            verdicts: Vec::new(),
            births: BTreeMap::new(),
            untold: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            quitting: false,
            exit: None,
            saved_at_least_once: false,
        }
    }

    fn birth(&self, pid: u32) -> u64 {
        self.births.get(&pid).copied().unwrap_or_default()
    }

    fn key(&self, pid: u32) -> ProcessKey {
        key(pid, self.birth(pid))
    }

    fn identity(&self, pid: u32) -> Arc<Identity> {
        identity(pid, self.birth(pid))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn feed(&mut self, input: Input) {
        if self.exit.is_some() {
            return;
        }
        let effects = self.core.handle(self.now, input);
        for effect in effects {
            self.perform(effect);
        }
        self.check();
    }

    fn perform(&mut self, effect: Effect) {
        assert_eq!(self.exit, None, "nothing is done after the end: {effect:?}");
        match effect {
            Effect::Log(_) => {}
            Effect::Save => self.saved_at_least_once = true,
            Effect::SpawnServer { server, uid, .. } => self.spawn(server, uid),
            Effect::AdoptLink { server, .. } => assert!(self.servers.contains_key(&server)),
            Effect::Ask { server, id, request } => {
                assert!(self.asked.iter().all(|asked| asked.id != id), "a request id is used once");
                self.asked.push(Asked { id, server, request, at: self.now });
            }
            Effect::Tell { server, request } => {
                assert!(!request.is_answered());
                assert!(self.servers.contains_key(&server), "only a known server is told anything");
            }
            Effect::CatchUp { server } => assert!(self.behind.insert(server), "it is asked once at a time"),
            Effect::Dispatch { server, connection } => self.dispatch(server, connection),
            Effect::HandOver { connection } => {
                assert!(self.dispatched.contains_key(&connection), "only who was dispatched gets an end");
                assert!(self.told.remove(&connection), "and once");
                self.fresh.remove(&connection);
            }
            Effect::Recall { connection } => {
                assert!(self.dispatched.contains_key(&connection), "only who was dispatched is taken back");
                assert!(self.told.contains(&connection), "nobody is taken back who has its end");
                self.not_told(connection);
            }
            Effect::WatchProcess { pid, .. } => self.watch(pid),
            Effect::Record(event) => self.recorded(*event),
            Effect::MeasureServer { server, .. } => {
                let input = Input::ServerMeasured { server, memory_bytes: Some(66 << 20) };
                let effects = self.core.handle(self.now, input);
                for effect in effects {
                    self.perform(effect);
                }
            }
            Effect::EndProcess { process, .. } => {
                // It obeys when its turn comes.
                assert!(process.start_time <= self.key(process.pid).start_time, "an order to end is of one who lived");
            }
            Effect::NoteFuneral { process, .. } => assert!(self.core.holds_copies_of(process)),
            Effect::ReleaseCopies { process } => {
                self.copies.remove(&process);
            }
            Effect::Close { connection } => drop(self.waiting.remove(&connection)),
            Effect::Signal { server, .. } => {
                if let Some(process) = self.servers.get_mut(&server) {
                    process.signalled = true;
                }
            }
            Effect::Answer { session, .. } | Effect::AnswerPs { session, .. } => {
                assert!(self.unanswered.remove(&session), "a command is answered once");
            }
            Effect::Report { session, .. } => {
                assert!(self.unanswered.remove(&session), "a command is answered once");
                self.check_picture();
            }
            Effect::ListDevices { session } => {
                self.feed_later_devices(session);
            }
            Effect::CloseSessions => {}
            Effect::Exit { status } => self.exit = Some(status),
        }
    }

    fn watch(&mut self, pid: u32) {
        if !self.homes.contains_key(&pid) {
            // It died before anybody watched.
            let effects = self.core.handle(self.now, Input::ProcessGone { pid, end: End::Unknown });
            for effect in effects {
                self.perform(effect);
            }
        } else {
            self.watched.insert(pid);
            let process = self.key(pid);
            self.copies.insert(process);
            for input in [
                Input::CopiesHeld { process, descriptors: 2 },
                Input::Tracked { process, tracked: true },
                Input::IdentityKnown { pid, identity: self.identity(pid) },
            ] {
                let effects = self.core.handle(self.now, input);
                for effect in effects {
                    self.perform(effect);
                }
            }
        }
    }

    fn recorded(&mut self, event: JournalEvent) {
        if let JournalEvent::CulpritGone { process, complete: true, .. } = event {
            assert!(self.spaces.values().all(|owner| *owner != process), "nothing is left of who is said to be gone");
        }
        let (JournalEvent::Verdict { verdict, .. } | JournalEvent::VerdictCorrected { verdict, .. }) = event else {
            return;
        };
        if let Some(culprit) = &verdict.culprit {
            let pid = culprit.process.pid;
            let server = self.servers.get(&verdict.epoch);
            assert!(server.is_none_or(|server| server.ever.contains(&pid)), "a verdict names a client of the server");
            assert!(!verdict.victims.contains(&pid), "nobody is both");
        }
        self.verdicts.push(verdict);
    }

    /// The picture that reports are made from shows every client once, and nothing that does not exist.
    fn check_picture(&self) {
        let daemon = DaemonFacts {
            pid: 1,
            version: "",
            personality: String::new(),
            owner: 0,
            uptime: self.now,
            quitting: self.core.is_quitting(),
            obstacles: vec![],
            driver: None,
        };
        let picture = self.core.picture(self.now, daemon, vec![]);
        let mut living = BTreeSet::new();
        for client in picture.clients.iter().filter(|client| client.phase != ClientPhase::Gone) {
            assert!(living.insert(client.process.pid), "a client is in one phase: {client:?}");
            assert_eq!(client.end, None);
            assert_eq!(
                client.phase == ClientPhase::Waiting,
                client.server.is_none() && client.contexts == 0 && !client.tracked
            );
        }
        for server in &picture.servers {
            assert!(picture.domains.iter().any(|domain| domain.name == server.domain), "{server:?}");
        }
        let on_servers: usize = picture.servers.iter().map(|server| server.clients).sum();
        let of_domains: usize = picture.domains.iter().map(|domain| domain.clients).sum();
        assert_eq!(on_servers, of_domains);
        assert!(picture.channels.iter().all(|channel| living.contains(&channel.process.pid)));
        let waiting: usize = picture.domains.iter().map(|domain| domain.waiting).sum();
        assert_eq!(waiting, self.core.waiting());
    }

    /// The driver answers a list of devices in a later input; here it is the next one.
    fn feed_later_devices(&mut self, session: SessionId) {
        let devices: Result<Vec<Device>, String> = Ok(Vec::new());
        let effects = self.core.handle(self.now, Input::DevicesListed { session, devices });
        for effect in effects {
            self.perform(effect);
        }
    }

    fn spawn(&mut self, server: ServerEpoch, domain: u32) {
        assert!(!self.quitting, "after quit nothing is spawned");
        let number = self.number();
        let pid = u32::try_from(number).expect("small");
        let process = Process {
            pid,
            domain,
            hello: false,
            alive: self.spawning_works,
            signalled: false,
            faulted: false,
            clients: BTreeSet::new(),
            ever: BTreeSet::new(),
        };
        if self.policy.sharing == Sharing::Single {
            let tainted = |epoch: &ServerEpoch| self.core.servers.get(epoch).is_some_and(|s| s.tainted.is_some());
            let sound = self.servers.iter().filter(|(epoch, other)| other.alive && !tainted(epoch));
            assert_eq!(sound.count(), 0, "one server at a time");
        }
        let input = if self.spawning_works {
            self.servers.insert(server, process);
            Input::ServerSpawned { server, pid }
        } else {
            Input::SpawnFailed { server, reason: "nothing works".to_owned() }
        };
        let effects = self.core.handle(self.now, input);
        for effect in effects {
            self.perform(effect);
        }
    }

    fn dispatch(&mut self, server: ServerEpoch, connection: ConnectionId) {
        let peer = self.waiting.remove(&connection).expect("only a client that waits is dispatched, and once");
        let process = self.servers.get_mut(&server).expect("only to a server that there is");
        assert!(process.hello, "only to a server that is ready");
        assert!(!process.signalled, "not to a server that must end");
        let deciding = self.asked.iter().any(|asked| asked.server == server && asked.request == Request::Shutdown);
        assert!(!deciding, "not to a server that is deciding to end");
        if self.policy.sharing != Sharing::MultiUser {
            assert_eq!(process.domain, peer.uid, "only to a server of its own user");
        }
        if let Some(home) = self.homes.get(&peer.pid) {
            let has_contexts = self.accepted.get(&peer.pid).is_some_and(|&accepted| accepted > 1);
            let keeps = |s: &Server| !s.is_lost() && (s.tainted.is_none() || has_contexts);
            let works = |s: &Server| s.epoch == *home && s.is_connected() && keeps(s);
            let home_works = self.core.servers().any(works);
            let home_told = !self.untold.contains(home);
            assert!(*home == server || !home_works || !home_told, "a process stays with its server");
        }
        let is_own = process.clients.contains(&peer.pid);
        let spoilt = |s: &Server| s.is_lost() || (s.tainted.is_some() && !is_own);
        let spoilt = self.core.servers().any(|s| s.epoch == server && spoilt(s));
        assert!(!spoilt, "no newcomer is routed to a server that a fault has spoilt, and nobody to a lost one");
        let joins = process.clients.iter().any(|other| *other != peer.pid);
        if joins && !is_own && !self.untold.contains(&server) {
            let since = self.came[&connection] + self.policy.domains.default.faults.settle_time;
            assert!(
                self.known_sound[&server] >= since,
                "who joins others does so on a server that is known to be sound"
            );
        }
        process.clients.insert(peer.pid);
        process.ever.insert(peer.pid);
        self.homes.insert(peer.pid, server);
        self.dispatched.insert(connection, (peer, server));
        self.told.insert(connection);
        if !is_own {
            self.fresh.insert(connection);
        }
    }

    /// The rules that hold after every step.
    fn check(&self) {
        let mut active = BTreeMap::new();
        for server in self.core.servers().filter(|server| server.is_active()) {
            *active.entry(server.domain).or_insert(0) += 1;
        }
        assert!(active.values().all(|&count| count == 1), "a domain has one active server: {active:?}");
        let mut starting = BTreeMap::new();
        for server in self.core.servers().filter(|server| server.is_up() && server.is_starting()) {
            *starting.entry(server.domain).or_insert(0) += 1;
        }
        assert!(starting.values().all(|&count| count == 1), "a domain starts one server at a time: {starting:?}");
        assert!(
            self.core.verdicts().all(|verdict| verdict.confidence != Confidence::Certain || verdict.culprit.is_some()),
            "only somebody is certain"
        );
        for funeral in self.core.funerals.keys() {
            assert!(self.copies.contains(funeral), "a funeral is of one whose copies are held");
            let lives = self.homes.contains_key(&funeral.pid) && self.key(funeral.pid) == *funeral;
            assert!(!lives, "a funeral is of one who is dead");
        }
        for remains in self.core.remains.keys() {
            let lives = self.homes.contains_key(&remains.pid) && self.key(remains.pid) == *remains;
            assert!(!lives, "what is left is of one who is dead");
        }
        assert_eq!(self.core.waiting(), self.waiting.len(), "who waits is known");
        for (connection, peer) in &self.waiting {
            assert_eq!(self.core.waiting_peer(*connection), Some(*peer));
        }
        assert_eq!(self.core.questions.len(), self.asked.len(), "every request is waited for");
        let mut catching_up = self.core.servers().filter(|server| server.catching_up.is_some());
        assert!(catching_up.all(|server| self.behind.contains(&server.epoch)), "nobody waits for what is not asked");
        if let Some(deadline) = self.core.next_deadline()
            && self.exit.is_none()
        {
            assert!(
                deadline > self.now,
                "a deadline that has passed was acted on: {deadline:?} at {:?}\n{:#?}",
                self.now,
                self.core
            );
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::ClientArrives { uid, slot } => {
                let connection = ConnectionId(self.number());
                let peer = Peer { pid: uid * 10 + slot + 1, uid, gid: uid };
                if !self.quitting {
                    self.waiting.insert(connection, peer);
                    self.came.insert(connection, self.now);
                    self.feed(Input::ClientArrived { connection, peer, identity: self.identity(peer.pid) });
                }
            }
            Action::ClientFinishes(index) => {
                let key = self.dispatched.iter().nth(index).map(|(connection, (peer, _))| (*connection, *peer));
                if let Some((connection, peer)) = key {
                    self.dispatched.remove(&connection);
                    // Who has no end yet can only leave.
                    let status = if self.told.remove(&connection) { None } else { Some(0) };
                    if status.is_some() {
                        *self.accepted.entry(peer.pid).or_default() += 1;
                    }
                    self.feed(Input::ClientDone { connection, status });
                } else if let Some(connection) = self.waiting.keys().nth(index).copied() {
                    self.waiting.remove(&connection);
                    self.feed(Input::ClientDone { connection, status: None });
                }
            }
            Action::ProcessEnds(index) => {
                // A process ends whether or not it is watched.
                if let Some(pid) = self.homes.keys().nth(index).copied() {
                    self.end(pid, End::Exited(0));
                }
            }
            Action::SuddenDeath(index) => {
                if let Some(pid) = self.homes.keys().nth(index).copied() {
                    self.end(pid, End::Signaled(9));
                }
            }
            Action::MemoryFault(index) => {
                if let Some((&pid, &home)) = self.homes.iter().nth(index) {
                    self.break_server(home);
                    self.feed(Input::Evidence(Evidence::UvmEvent { process: self.key(pid), fault: fault() }));
                    let culprits = self.verdicts.iter().filter_map(|verdict| verdict.culprit.as_ref());
                    let is_named = culprits.into_iter().any(|culprit| culprit.process == self.key(pid));
                    assert!(!self.core.processes.contains_key(&pid) || is_named, "the culprit is named at once");
                }
            }
            Action::IsolatedFault(index) => {
                if let Some(pid) = self.homes.keys().nth(index).copied() {
                    let (process, isolation) = (self.key(pid), Isolation::Isolated);
                    self.feed(Input::Evidence(Evidence::Notice { process, fault: fault(), channel: None, isolation }));
                }
            }
            Action::AddressSpace { index, there: true } => {
                if let Some(pid) = self.homes.keys().nth(index).copied() {
                    let (va_space, process) = (self.number(), self.key(pid));
                    self.spaces.insert(va_space, process);
                    self.feed(Input::AddressSpaceAdded { va_space, process, condemned: false });
                }
            }
            Action::AddressSpace { index, there: false } => {
                if let Some((&va_space, &process)) = self.spaces.iter().nth(index) {
                    self.spaces.remove(&va_space);
                    self.feed(Input::AddressSpaceGone { va_space, process: Some(process) });
                }
            }
            Action::Exception { server, named } => {
                if let Some(epoch) = self.servers.keys().nth(server).copied() {
                    self.break_server(epoch);
                    self.log_record(epoch, named);
                }
            }
            Action::ForgedRecord { server, named } => {
                if let Some(epoch) = self.servers.keys().nth(server).copied() {
                    self.log_record(epoch, named);
                }
            }
            Action::ServerHello(index) => self.hello(index),
            Action::ServerGreets(index) => self.greet(index),
            Action::ServerDies { index, status } => self.die(index, ExitCause::Exited(status)),
            Action::SpawningWorks(works) => self.spawning_works = works,
            Action::ServerAnswers(index) => self.reply(index, false),
            Action::ServerIsSilent(index) => self.reply(index, true),
            Action::CatchesUp(index) => self.catch_up(index),
            Action::Command { uid, command } => self.command(uid, COMMANDS[command]),
            Action::TimePasses(ms) => self.pass(Duration::from_millis(ms)),
            Action::Restart => self.restart(),
        }
    }

    fn end(&mut self, pid: u32, end: End) {
        self.homes.remove(&pid);
        // The kernel closes what it had open.
        let waiting: Vec<_> = self.waiting.iter().filter(|(_, peer)| peer.pid == pid).map(|(key, _)| *key).collect();
        let under_way: Vec<_> =
            self.dispatched.iter().filter(|(_, (peer, _))| peer.pid == pid).map(|(key, _)| *key).collect();
        for connection in waiting.into_iter().chain(under_way) {
            self.waiting.remove(&connection);
            self.dispatched.remove(&connection);
            self.told.remove(&connection);
            self.feed(Input::ClientDone { connection, status: None });
        }
        let old = self.key(pid);
        self.accepted.remove(&pid);
        *self.births.entry(pid).or_default() += 1;
        for process in self.servers.values_mut() {
            process.clients.remove(&pid);
        }
        if self.watched.remove(&pid) {
            self.feed(Input::ProcessGone { pid, end });
        } else {
            // The driver lets go of what nobody waits for.
            self.copies.remove(&old);
        }
    }

    fn break_server(&mut self, epoch: ServerEpoch) {
        if let Some(process) = self.servers.get_mut(&epoch).filter(|process| process.hello) {
            process.faulted = true;
        }
    }

    fn log_record(&mut self, epoch: ServerEpoch, named: usize) {
        let server = self.servers.get(&epoch).map_or(0, |process| process.pid);
        let named = self.homes.keys().nth(named).copied();
        let text = "Worker is in reset".to_owned();
        self.feed(Input::Evidence(Evidence::ServerLog { server, named, blames: true, text }));
    }

    fn hello(&mut self, index: usize) {
        let starting = self.servers.iter_mut().filter(|(_, process)| process.alive && !process.hello);
        let Some((epoch, process)) = starting.into_iter().nth(index) else {
            return;
        };
        // A real server that has a signal does not get to its hello.
        if process.signalled {
            return;
        }
        process.hello = true;
        self.known_sound.insert(*epoch, self.now);
        let peer = Peer { pid: process.pid, uid: process.domain, gid: 0 };
        let connection = ConnectionId(self.number());
        self.feed(Input::ServerHello { connection, peer });
    }

    /// A client that a server was told of waits again.
    fn not_told(&mut self, connection: ConnectionId) {
        self.told.remove(&connection);
        let is_fresh = self.fresh.remove(&connection);
        if let Some((peer, server)) = self.dispatched.remove(&connection) {
            self.waiting.insert(connection, peer);
            if is_fresh {
                self.homes.remove(&peer.pid);
                if let Some(process) = self.servers.get_mut(&server) {
                    process.clients.remove(&peer.pid);
                }
            }
        }
    }

    fn greet(&mut self, index: usize) {
        if let Some(connection) = self.told.iter().nth(index).copied() {
            self.feed(Input::ServerGreeted { connection });
        }
    }

    fn die(&mut self, index: usize, cause: ExitCause) {
        let Some((&epoch, _)) = self.servers.iter().nth(index) else {
            return;
        };
        self.servers.remove(&epoch);
        self.homes.retain(|_, home| *home != epoch);
        self.feed(Input::ServerLinkLost { server: epoch, reason: "closed".to_owned() });
        let told: Vec<_> = self.told.iter().filter(|told| self.dispatched[*told].1 == epoch).copied().collect();
        for connection in told {
            self.not_told(connection);
            if self.exit.is_some() {
                continue;
            }
            let peer = self.waiting[&connection];
            self.feed(Input::ClientArrived { connection, peer, identity: self.identity(peer.pid) });
        }
        while let Some(index) = self.asked.iter().position(|asked| asked.server == epoch) {
            let Asked { id, .. } = self.asked.remove(index);
            self.feed(Input::Replied { request: id, reply: Err(NoReply::Lost) });
        }
        self.feed(Input::ServerExited { server: epoch, cause });
    }

    fn reply(&mut self, index: usize, silent: bool) {
        if index >= self.asked.len() {
            return;
        }
        let Asked { id, server, request, at } = self.asked.remove(index);
        if silent {
            if request == Request::Clients {
                self.untold.insert(server);
            }
            return self.feed(Input::Replied { request: id, reply: Err(NoReply::TimedOut) });
        }
        let clients = self.servers.get(&server).map(|process| process.clients.clone()).unwrap_or_default();
        let reply = match request {
            Request::Shutdown => {
                let workers = u32::try_from(clients.len() * 2).expect("small");
                if workers == 0
                    && let Some(process) = self.servers.get_mut(&server)
                {
                    process.signalled = true;
                }
                Reply::ActiveWorkers(workers)
            }
            Request::Clients => Reply::Clients(clients.into_iter().collect()),
            Request::DeviceClients => Reply::DeviceClients(vec![DeviceClients {
                uuid: Default::default(),
                info: DeviceInfo { first: 0, second: 0, name: "GPU".to_owned() },
                clients: Vec::new(),
            }]),
            Request::GetThreadPercentage => Reply::ThreadPercentage(50.0),
            Request::TerminateClient(_) => Reply::Terminated(0),
            Request::Snapshot => Reply::Snapshot(Vec::new()),
            Request::Status => {
                let is_sound = !self.servers.get(&server).is_some_and(|process| process.faulted);
                if is_sound {
                    let known = self.known_sound.entry(server).or_default();
                    *known = at.max(*known);
                }
                Reply::Active(is_sound)
            }
            Request::GetPinnedLimit(_) => Reply::PinnedLimit(1 << 30),
            Request::QueryDevices => Reply::Devices(Vec::new()),
            other => panic!("{other:?} has no answer"),
        };
        self.feed(Input::Replied { request: id, reply: Ok(reply) });
    }

    fn catch_up(&mut self, index: usize) {
        if let Some(server) = self.behind.iter().nth(index).copied() {
            // Which may have ended meanwhile.
            self.behind.remove(&server);
            self.feed(Input::CaughtUp { server });
        }
    }

    fn command(&mut self, uid: u32, command: &str) {
        if self.quitting {
            return;
        }
        let session = SessionId(self.number());
        let server = self.servers.values().next().map_or(1, |process| process.pid);
        let client = self.homes.keys().next().copied().unwrap_or(2);
        let line = command.replace("{S}", &server.to_string()).replace("{C}", &client.to_string());
        self.unanswered.insert(session);
        let peer = Peer { pid: 1, uid, gid: uid };
        self.feed(Input::Command { session, peer, line: line.into_bytes() });
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        // Deadlines are met one after the other, as a driver with a timer does.
        while let Some(deadline) = self.core.next_deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.feed(Input::Tick);
            if self.exit.is_some() {
                break;
            }
        }
        self.now = end;
        self.feed(Input::Tick);
    }

    /// SIGKILL and a successor: it finds the servers that have said hello, and the clients that wait.
    fn restart(&mut self) {
        let saved = self.core.saved();
        let (alive, unfinished): (Vec<_>, Vec<_>) = saved.servers.iter().cloned().partition(|server| {
            server.ready && self.servers.get(&ServerEpoch(server.epoch)).is_some_and(|process| process.hello)
        });
        for server in unfinished {
            self.servers.remove(&ServerEpoch(server.epoch));
        }
        let known: Vec<ServerEpoch> = alive.iter().map(|server| ServerEpoch(server.epoch)).collect();
        self.servers.retain(|epoch, _| known.contains(epoch));
        self.homes.retain(|_, home| known.contains(home));
        self.asked.clear();
        self.behind.clear();
        self.unanswered.clear();
        self.watched.clear();
        self.copies.clear();
        let (core, effects) = Core::restored(self.now, self.policy.clone(), &saved, &alive);
        assert_eq!(core.defaults(), self.core.defaults(), "defaults survive");
        self.core = core;
        // The driver finds out from the server that it was not told, or tells it again.
        for connection in self.told.clone() {
            self.not_told(connection);
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.known_sound = self.servers.keys().map(|epoch| (*epoch, Duration::ZERO)).collect();
        for effect in effects {
            self.perform(effect);
        }
        let dispatched: Vec<_> = self.dispatched.iter().map(|(connection, to)| (*connection, *to)).collect();
        for (connection, (peer, server)) in dispatched {
            if let Some(effect) =
                self.core.restore_dispatched(self.now, connection, peer, self.identity(peer.pid), server)
            {
                self.perform(effect);
            }
        }
        for (va_space, process) in self.spaces.clone() {
            self.feed(Input::AddressSpaceAdded { va_space, process, condemned: false });
        }
        self.feed(Input::HardwareKnown);
        for (connection, peer) in waiting {
            self.waiting.insert(connection, peer);
            self.came.insert(connection, self.now);
            self.feed(Input::ClientArrived { connection, peer, identity: self.identity(peer.pid) });
        }
    }

    /// Lets everything that is under way come to its end: servers answer, start and obey, nothing else happens.
    pub(super) fn settle(&mut self) {
        self.spawning_works = true;
        for _ in 0..400 {
            while !self.asked.is_empty() {
                self.reply(0, false);
            }
            while !self.behind.is_empty() {
                self.catch_up(0);
            }
            self.hello(0);
            while !self.told.is_empty() {
                self.greet(0);
            }
            let obedient = self.servers.values().position(|process| process.signalled);
            if let Some(index) = obedient {
                self.die(index, ExitCause::Exited(0));
            }
            while !self.dispatched.is_empty() {
                self.act(Action::ClientFinishes(0));
            }
            if self.policy.sharing == Sharing::Single {
                self.act(Action::ProcessEnds(0));
            }
            self.pass(Duration::from_millis(500));
        }
    }

    /// When every client is dead, nothing of any is held.
    pub(super) fn check_nothing_is_held(&mut self) {
        while let Some(pid) = self.homes.keys().next().copied() {
            self.end(pid, End::Signaled(9));
        }
        // A server that is left to the dead ends first.
        self.settle();
        assert!(self.core.funerals.is_empty(), "{:?} {:?}", self.core.funerals, self.core.processes);
        assert!(self.copies.is_empty(), "every copy is closed: {:?}", self.copies);
        assert!(self.core.endings.is_empty(), "{:?}", self.core.endings);
    }

    pub(super) fn check_nobody_waits(&self) {
        assert!(self.waiting.is_empty(), "everybody is served in the end: {:?}", self.waiting);
        assert!(self.unanswered.is_empty(), "every command is answered: {:?}", self.unanswered);
    }

    pub(super) fn quit_and_end(&mut self, timeout: u64) {
        let session = SessionId(self.number());
        let peer = Peer { pid: 1, uid: 0, gid: 0 };
        self.quitting = true;
        self.feed(Input::Command { session, peer, line: format!("quit -t {timeout}").into_bytes() });
        let limit = self.now + Duration::from_secs(timeout) + self.policy.kill_timeout + Duration::from_secs(1);
        while self.exit.is_none() {
            assert!(self.now < limit, "quit -t {timeout} has not ended at {:?}", self.now);
            // Servers answer nothing and obey only SIGKILL, which the world takes as a signal at the second time.
            let deadline = self.core.next_deadline();
            self.pass(Duration::from_millis(100));
            if deadline.is_none() || self.now + Duration::from_secs(1) >= limit {
                while !self.servers.is_empty() {
                    self.die(0, ExitCause::Signaled(9));
                }
            }
        }
        assert!(self.waiting.is_empty(), "nobody is left waiting for a daemon that is gone");
    }
}
