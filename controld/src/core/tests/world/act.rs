//! How the world does what can happen in it.

use super::*;

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
                    // A successor may not know yet whose queue that is.
                    let is_heard = self.core.clients.process(pid).is_some();
                    self.break_server(home, gpu, is_heard);
                    if is_heard {
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
                    self.break_server(epoch, gpu, true);
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

    /// A fault on a GPU costs everybody there the contexts; where there is one GPU, that is everybody. The core is told of
    /// it or is not.
    pub(super) fn break_server(&mut self, epoch: ServerEpoch, gpu: Option<u32>, is_heard: bool) {
        let contexts = &self.contexts;
        if let Some(process) = self.servers.get_mut(&epoch).filter(|process| process.hello) {
            process.faulted = true;
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
                    process.known_hit.extend(hit.iter().filter(|_| is_heard));
                    process.hit.extend(hit);
                    return;
                }
            }
        }
    }

    /// The core is told on which GPU the fault of a server was.
    fn name(&mut self, epoch: ServerEpoch, gpu: Option<u32>) {
        let reached = self.reach(epoch).unwrap_or_default();
        if let Some(process) = self.servers.get_mut(&epoch).filter(|process| process.hello) {
            process.is_repeated |= gpu.is_some_and(|gpu| reached.contains(&gpu));
            process.named.extend(gpu);
            process.signs += 1;
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
