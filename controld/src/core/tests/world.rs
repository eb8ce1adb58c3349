//! A world around the core: processes, peers and time, all of them simulated, and the rules that must hold in it.

use super::*;
use crate::devices::Device;
use remps_proto::mps::device::DeviceInfo;
use remps_proto::mps::server::{DeviceClients, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};

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
    ServerDies {
        index: usize,
        status: i32,
    },
    SpawningWorks(bool),
    ServerAnswers(usize),
    ServerIsSilent(usize),
    Command {
        uid: u32,
        command: usize,
    },
    TimePasses(u64),
    /// The daemon is killed and a successor takes over.
    Restart,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    domain: u32,
    hello: bool,
    alive: bool,
    signalled: bool,
    clients: BTreeSet<u32>,
}

#[derive(Debug)]
struct Asked {
    id: RequestId,
    server: ServerEpoch,
    request: Request,
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
    /// Where each living client process is, by pid.
    homes: BTreeMap<u32, ServerEpoch>,
    waiting: BTreeMap<ConnectionId, Peer>,
    dispatched: BTreeMap<ConnectionId, (Peer, ServerEpoch)>,
    watched: BTreeSet<u32>,
    /// Servers that did not say which clients they have.
    untold: BTreeSet<ServerEpoch>,
    unanswered: BTreeSet<SessionId>,
    quitting: bool,
    exit: Option<u8>,
    saved_at_least_once: bool,
}

impl World {
    pub(super) fn new(sharing: Sharing) -> Self {
        let policy = Policy { sharing, ..Policy::default() };
        Self {
            core: Core::new(policy.clone(), Defaults::default()),
            policy,
            now: Duration::ZERO,
            next: 100,
            spawning_works: true,
            servers: BTreeMap::new(),
            asked: Vec::new(),
            homes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            dispatched: BTreeMap::new(),
            watched: BTreeSet::new(),
            untold: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            quitting: false,
            exit: None,
            saved_at_least_once: false,
        }
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
                self.asked.push(Asked { id, server, request });
            }
            Effect::Tell { server, request } => {
                assert!(!request.is_answered());
                assert!(self.servers.contains_key(&server), "only a known server is told anything");
            }
            Effect::Dispatch { server, connection } => self.dispatch(server, connection),
            Effect::WatchProcess { pid, .. } => drop(self.watched.insert(pid)),
            Effect::Close { connection } => drop(self.waiting.remove(&connection)),
            Effect::Signal { server, .. } => {
                if let Some(process) = self.servers.get_mut(&server) {
                    process.signalled = true;
                }
            }
            Effect::Answer { session, .. } | Effect::AnswerPs { session, .. } => {
                assert!(self.unanswered.remove(&session), "a command is answered once");
            }
            Effect::ListDevices { session } => {
                self.feed_later_devices(session);
            }
            Effect::CloseSessions => {}
            Effect::Exit { status } => self.exit = Some(status),
        }
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
            clients: BTreeSet::new(),
        };
        if self.policy.sharing == Sharing::Single {
            assert!(self.servers.values().all(|other| !other.alive), "one server at a time");
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
            let home_works = self.core.servers().any(|s| s.epoch == *home && s.is_connected());
            let home_told = !self.untold.contains(home);
            assert!(*home == server || !home_works || !home_told, "a process stays with its server");
        }
        process.clients.insert(peer.pid);
        self.homes.insert(peer.pid, server);
        self.dispatched.insert(connection, (peer, server));
    }

    /// The rules that hold after every step.
    fn check(&self) {
        let mut active = BTreeMap::new();
        for server in self.core.servers().filter(|server| server.is_active()) {
            *active.entry(server.domain).or_insert(0) += 1;
        }
        assert!(active.values().all(|&count| count == 1), "a domain has one active server: {active:?}");
        assert_eq!(self.core.waiting(), self.waiting.len(), "who waits is known");
        for (connection, peer) in &self.waiting {
            assert_eq!(self.core.waiting_peer(*connection), Some(*peer));
        }
        assert_eq!(self.core.questions.len(), self.asked.len(), "every request is waited for");
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
                    self.feed(Input::ClientArrived { connection, peer });
                }
            }
            Action::ClientFinishes(index) => {
                let key = self.dispatched.keys().nth(index).copied();
                if let Some(connection) = key {
                    self.dispatched.remove(&connection);
                    self.feed(Input::ClientDone { connection, status: Some(0) });
                } else if let Some(connection) = self.waiting.keys().nth(index).copied() {
                    self.waiting.remove(&connection);
                    self.feed(Input::ClientDone { connection, status: None });
                }
            }
            Action::ProcessEnds(index) => {
                // A process ends whether or not it is watched.
                if let Some(pid) = self.homes.keys().nth(index).copied() {
                    self.homes.remove(&pid);
                    for process in self.servers.values_mut() {
                        process.clients.remove(&pid);
                    }
                    if self.watched.remove(&pid) {
                        self.feed(Input::ProcessGone { pid });
                    }
                }
            }
            Action::ServerHello(index) => self.hello(index),
            Action::ServerDies { index, status } => self.die(index, ExitCause::Exited(status)),
            Action::SpawningWorks(works) => self.spawning_works = works,
            Action::ServerAnswers(index) => self.reply(index, false),
            Action::ServerIsSilent(index) => self.reply(index, true),
            Action::Command { uid, command } => self.command(uid, COMMANDS[command]),
            Action::TimePasses(ms) => self.pass(Duration::from_millis(ms)),
            Action::Restart => self.restart(),
        }
    }

    fn hello(&mut self, index: usize) {
        let starting = self.servers.iter_mut().filter(|(_, process)| process.alive && !process.hello);
        let Some((_, process)) = starting.into_iter().nth(index) else {
            return;
        };
        // A real server that has a signal does not get to its hello.
        if process.signalled {
            return;
        }
        process.hello = true;
        let peer = Peer { pid: process.pid, uid: process.domain, gid: 0 };
        let connection = ConnectionId(self.number());
        self.feed(Input::ServerHello { connection, peer });
    }

    fn die(&mut self, index: usize, cause: ExitCause) {
        let Some((&epoch, _)) = self.servers.iter().nth(index) else {
            return;
        };
        self.servers.remove(&epoch);
        self.homes.retain(|_, home| *home != epoch);
        self.feed(Input::ServerLinkLost { server: epoch, reason: "closed".to_owned() });
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
        let Asked { id, server, request } = self.asked.remove(index);
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
            Request::Status => Reply::Active(true),
            Request::GetPinnedLimit(_) => Reply::PinnedLimit(1 << 30),
            Request::QueryDevices => Reply::Devices(Vec::new()),
            other => panic!("{other:?} has no answer"),
        };
        self.feed(Input::Replied { request: id, reply: Ok(reply) });
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
        self.unanswered.clear();
        self.watched.clear();
        let (core, effects) = Core::restored(self.now, self.policy.clone(), &saved, &alive);
        assert_eq!(core.defaults(), self.core.defaults(), "defaults survive");
        self.core = core;
        let waiting = std::mem::take(&mut self.waiting);
        for effect in effects {
            self.perform(effect);
        }
        let dispatched: Vec<_> = self.dispatched.iter().map(|(connection, to)| (*connection, *to)).collect();
        for (connection, (peer, server)) in dispatched {
            if let Some(effect) = self.core.restore_dispatched(connection, peer, server) {
                self.perform(effect);
            }
        }
        for (connection, peer) in waiting {
            self.waiting.insert(connection, peer);
            self.feed(Input::ClientArrived { connection, peer });
        }
    }

    /// Lets everything that is under way come to its end: servers answer, start and obey, nothing else happens.
    pub(super) fn settle(&mut self) {
        self.spawning_works = true;
        for _ in 0..400 {
            while !self.asked.is_empty() {
                self.reply(0, false);
            }
            self.hello(0);
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
