//! What can happen in the world.

use super::*;

/// What the operators of the world type; `{S}` is a server's pid, `{C}` a client's.
pub(in crate::core::tests) const COMMANDS: &[&str] = &[
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

/// What root changes.
pub(in crate::core::tests) const CHANGES: &[&str] = &[
    "server create a",
    "server create b --uid=1000",
    "server create --uid=1000",
    "server create c --allowed-devices=1",
    "server create d --allowed-devices=7",
    "namespace create n --server=a",
    "namespace create m --server=a",
    "namespace create n --server=b",
    "namespace set n --server=a --active-thread-percentage=30 --pinned-memory-limit=1G",
    "server set a --pinned-memory-limit=2G --client-priority=1",
    "server set b --uid=1001",
    "namespace delete n --server=a",
    "namespace delete n --server=a --force",
    "namespace delete m --server=a --force",
    "server delete a",
    "server delete a --force",
    "server delete b --force",
    "server delete uid_1000 --force",
    "server list",
    "namespace list",
    "device list",
];

#[derive(Debug, Clone)]
pub(in crate::core::tests) enum Action {
    ClientArrives {
        uid: u32,
        slot: u32,
    },
    /// The same by the socket of a namespace, if there is one.
    ClientComesTo {
        uid: u32,
        slot: u32,
        entrance: usize,
    },
    /// Root changes named servers and namespaces.
    Names(usize),
    OpeningWorks(bool),
    /// A thin daemon joins.
    Joins {
        claim: usize,
        is_same_place: bool,
    },
    ThinDies(usize),
    ThinLeaves(usize),
    /// Somebody types something in its directory.
    ThinIsTold {
        index: usize,
        line: usize,
    },
    /// Changes of named servers are kept on disk from now on.
    Keeps,
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
    /// A client says how far it is with going on after a fault, right or wrong.
    RecoveryStands {
        index: usize,
        stage: u32,
    },
    /// Somebody writes records in a server's name, of a fault that there was not or of another one's doing, as many as he
    /// likes: the first names this process, the next ones others.
    ForgedRecords {
        server: usize,
        named: Option<u32>,
        count: u16,
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

impl World {
    pub(in crate::core::tests) fn act(&mut self, action: Action) {
        match action {
            Action::ClientArrives { uid, slot } => {
                let connection = ConnectionId(self.number());
                let peer = Peer { pid: uid * 10 + slot + 1, uid, gid: uid };
                if !self.quitting {
                    self.living.insert(peer.pid);
                    self.waiting.insert(connection, peer);
                    self.came.insert(connection, self.now);
                    self.came_to.entry(peer.pid).or_default().insert(None);
                    self.feed(Input::ClientArrived {
                        connection,
                        peer,
                        identity: self.at_once(peer.pid),
                        entrance: None,
                    });
                }
            }
            Action::ClientComesTo { uid, slot, entrance } => {
                let found = self.open.keys().nth(entrance).copied();
                if let Some(entrance) = found.filter(|_| !self.quitting) {
                    let connection = ConnectionId(self.number());
                    let peer = Peer { pid: uid * 10 + slot + 1, uid, gid: uid };
                    self.living.insert(peer.pid);
                    self.waiting.insert(connection, peer);
                    self.came.insert(connection, self.now);
                    self.came_by.insert(connection, entrance);
                    self.came_to.entry(peer.pid).or_default().insert(Some(entrance));
                    let (identity, entrance) = (self.at_once(peer.pid), Some(entrance));
                    self.feed(Input::ClientArrived { connection, peer, identity, entrance });
                }
            }
            Action::Names(command) => self.command(0, CHANGES[command]),
            Action::OpeningWorks(works) => self.opening_works = works,
            Action::Joins { claim, is_same_place } => self.joins(claim, is_same_place),
            Action::ThinDies(index) => self.thin_dies(index),
            Action::ThinLeaves(index) => self.thin_leaves(index),
            Action::ThinIsTold { index, line } => self.thin_is_told(index, line),
            Action::Keeps => {
                self.keeps = true;
                self.core.keep_servers();
            }
            Action::ClientFinishes(index) => {
                let key = self.dispatched.iter().nth(index).map(|(connection, (peer, _))| (*connection, *peer));
                if let Some((connection, peer)) = key {
                    self.dispatched.remove(&connection);
                    // Who has no end yet can only leave.
                    let status = if self.told.remove(&connection) { None } else { Some(0) };
                    if status.is_some() {
                        self.accept(peer.pid);
                    }
                    self.feed(Input::ClientDone { connection, status });
                } else if let Some(connection) = self.waiting.keys().nth(index).copied() {
                    self.waiting.remove(&connection);
                    self.feed(Input::ClientDone { connection, status: None });
                }
            }
            Action::ProcessEnds(index) => {
                // A process ends whether or not it is watched.
                if let Some(pid) = self.clients().iter().nth(index).copied() {
                    self.end(pid, End::Exited(0));
                }
            }
            Action::SuddenDeath(index) => {
                if let Some(pid) = self.clients().iter().nth(index).copied() {
                    self.end(pid, End::Signaled(9));
                }
            }
            Action::MemoryFault(index) => {
                if let Some((&pid, &home)) = self.homes.iter().nth(index) {
                    let gpu = self.contexts.get(&pid).and_then(|gpus| gpus.last().copied());
                    if self.has_gpus && gpu.is_none() {
                        // Who has no context has no work that could fault.
                        return;
                    }
                    self.break_server(home, gpu);
                    // A successor may not know yet whose queue that is.
                    if self.core.clients.process(pid).is_some() {
                        self.name(home, gpu);
                    }
                    self.guilty.insert(self.key(pid));
                    let gpu = gpu.map(|gpu| uuid(gpu).to_string());
                    let fault = MemoryFault { gpu, ..fault() };
                    self.feed(Input::Evidence(Evidence::UvmEvent {
                        process: self.key(pid),
                        fault,
                        is_of_own_server: true,
                    }));
                    let culprits = self.verdicts.iter().filter_map(|verdict| verdict.culprit.as_ref());
                    let is_named = culprits.into_iter().any(|culprit| culprit.process == self.key(pid));
                    assert!(self.core.clients.process(pid).is_none() || is_named, "the culprit is named at once");
                }
            }
            Action::RecoveryStands { index, stage } => {
                if let Some(pid) = self.homes.keys().nth(index).copied() {
                    let (process, stage) = (self.key(pid), remps_proto::shim::RecoveryStage(stage));
                    self.feed(Input::RecoveryStands { process, stage });
                }
            }
            Action::IsolatedFault(index) => {
                if let Some(pid) = self.homes.keys().nth(index).copied() {
                    let (process, isolation) = (self.key(pid), Isolation::Isolated);
                    self.guilty.insert(process);
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
                    let gpu = self.has_gpus.then_some(u32::try_from(named % 2).expect("0 or 1"));
                    self.break_server(epoch, gpu);
                    self.xid(epoch, gpu);
                    self.log_record(epoch, named);
                }
            }
            Action::ForgedRecords { server, named, count } => {
                let Some(server) = self.servers.values().nth(server).map(|process| process.pid) else {
                    return;
                };
                for number in 0..u32::from(count) {
                    let (named, text) =
                        (named.map(|pid| pid.wrapping_add(number)), format!("Worker is in reset {number}"));
                    self.feed(Input::Evidence(Evidence::ServerLog { server, named, blames: true, text }));
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

    /// A fault on a GPU costs everybody there the contexts; where there is one GPU, that is everybody.
    pub(super) fn break_server(&mut self, epoch: ServerEpoch, gpu: Option<u32>) {
        let contexts = &self.contexts;
        if let Some(process) = self.servers.get_mut(&epoch).filter(|process| process.hello) {
            process.faulted = true;
            process.faults += 1;
            let Some(gpu) = gpu else {
                process.hit.extend(&process.clients);
                return;
            };
            // Who is hit carries it to all GPUs that it has contexts on.
            let mut reached = BTreeSet::from([gpu]);
            loop {
                let has = |pid: &u32| contexts.get(pid).into_iter().flatten();
                let is_hit = |pid: &u32| has(pid).any(|gpu| reached.contains(gpu));
                let hit: BTreeSet<u32> = process.clients.iter().copied().filter(is_hit).collect();
                let before = reached.len();
                reached.extend(hit.iter().flat_map(has));
                if reached.len() == before {
                    process.hit.extend(hit);
                    return;
                }
            }
        }
    }

    /// The core is told on which GPU the fault of a server was.
    fn name(&mut self, epoch: ServerEpoch, gpu: Option<u32>) {
        if let Some(process) = self.servers.get_mut(&epoch).filter(|process| process.hello) {
            process.named.extend(gpu);
        }
    }

    /// The kernel tells of it, and names the server.
    fn xid(&mut self, epoch: ServerEpoch, gpu: Option<u32>) {
        self.name(epoch, gpu);
        let pid = self.servers.get(&epoch).map(|process| process.pid);
        if let Some(gpu) = gpu {
            let (number, class, bus, text) = (43, XidClass::Application, bus(gpu), "x".to_owned());
            self.feed(Input::Evidence(Evidence::Xid { number, class, bus, instance: None, pid, channel: None, text }));
        }
    }

    /// A server has accepted a connection; from the second one on it is a context's.
    fn accept(&mut self, pid: u32) {
        let gpu = self.next_gpu(pid);
        let accepted = self.accepted.entry(pid).or_default();
        *accepted += 1;
        self.left_behind.remove(&pid);
        if *accepted > 1 {
            self.contexts.entry(pid).or_default().push(gpu);
            self.placed.remove(&pid);
            self.listed.remove(&pid);
        }
    }

    pub(super) fn log_record(&mut self, epoch: ServerEpoch, named: usize) {
        let server = self.servers.get(&epoch).map_or(0, |process| process.pid);
        let named = self.homes.keys().nth(named).copied();
        let text = "Worker is in reset".to_owned();
        self.feed(Input::Evidence(Evidence::ServerLog { server, named, blames: true, text }));
    }

    pub(super) fn command(&mut self, uid: u32, command: &str) {
        if self.quitting {
            return;
        }
        let session = SessionId(self.number());
        let server = self.servers.values().next().map_or(1, |process| process.pid);
        let client = self.homes.keys().next().copied().unwrap_or(2);
        if command.contains("--force") {
            self.servers.values_mut().for_each(|process| process.ordered = true);
        }
        if command.contains("shutdown_server")
            && let Some(process) = self.servers.values_mut().next()
        {
            process.ordered = true;
        }
        let line = command.replace("{S}", &server.to_string()).replace("{C}", &client.to_string());
        self.unanswered.insert(session);
        let peer = Peer { pid: 1, uid, gid: uid };
        self.feed(Input::Command { session, peer, rights: Rights::beside_the_daemon(), line: line.into_bytes() });
    }
}
