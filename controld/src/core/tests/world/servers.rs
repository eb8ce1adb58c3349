//! What the servers of the world do and say, from their start on.

use super::*;
use crate::core::servers::questions::Purpose;

impl World {
    pub(super) fn spawn(&mut self, server: ServerEpoch, domain: u32) {
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
            named: BTreeSet::new(),
            hit: BTreeSet::new(),
            known_hit: BTreeSet::new(),
            signs: 0,
            denied: 0,
            ordered: false,
            clients: BTreeSet::new(),
            is_repeated: false,
            is_uncounted: false,
        };
        if self.policy.sharing == Sharing::Single {
            let tainted = |epoch: &ServerEpoch| self.core.servers.get(*epoch).is_some_and(|s| s.tainted().is_some());
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

    pub(super) fn hello(&mut self, index: usize) {
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

    pub(super) fn greet(&mut self, index: usize) {
        if let Some(connection) = self.told.iter().nth(index).copied() {
            self.feed(Input::ServerGreeted { connection });
        }
    }

    /// A client that a server was told of waits again.
    pub(super) fn not_told(&mut self, connection: ConnectionId) {
        self.told.remove(&connection);
        self.must_be_sound.remove(&connection);
        let is_fresh = self.fresh.remove(&connection);
        if let Some((peer, server)) = self.dispatched.remove(&connection) {
            self.waiting.insert(connection, peer);
            // The process may be on its way to the server with others of its connections.
            let same = |to: &(Peer, ServerEpoch)| (to.0.pid, to.1) == (peer.pid, server);
            let next = self.dispatched.iter().find(|(_, to)| same(to)).map(|(connection, _)| *connection);
            match next {
                _ if !is_fresh => {}
                Some(next) => drop(self.fresh.insert(next)),
                None => {
                    self.homes.remove(&peer.pid);
                    if let Some(process) = self.servers.get_mut(&server) {
                        process.clients.remove(&peer.pid);
                    }
                    // It may still be on the server that it has left only for this one.
                    let before = self.servers.iter().find(|(_, process)| process.clients.contains(&peer.pid));
                    let left_behind = self.left_behind.remove(&peer.pid);
                    if let Some(epoch) = before.map(|(epoch, _)| *epoch) {
                        self.homes.insert(peer.pid, epoch);
                        self.contexts.extend(left_behind.map(|contexts| (peer.pid, contexts)));
                    }
                }
            }
        }
    }

    pub(super) fn die(&mut self, index: usize, cause: ExitCause) {
        let Some((&epoch, _)) = self.servers.iter().nth(index) else {
            return;
        };
        self.servers.remove(&epoch);
        // On another server they begin anew.
        for (pid, _) in self.homes.extract_if(.., |_, home| *home == epoch) {
            self.accepted.remove(&pid);
            self.contexts.remove(&pid);
        }
        self.feed(Input::ServerLinkLost { server: epoch, reason: "closed".to_owned() });
        let told: Vec<_> = self.told.iter().filter(|told| self.dispatched[*told].1 == epoch).copied().collect();
        for connection in told {
            self.not_told(connection);
            if self.exit.is_some() {
                continue;
            }
            let peer = self.waiting[&connection];
            let entrance = self.came_by.get(&connection).copied();
            self.feed(Input::ClientArrived { connection, peer, identity: self.at_once(peer.pid), entrance });
        }
        while let Some(index) = self.asked.iter().position(|asked| asked.server == epoch) {
            let Asked { id, .. } = self.asked.remove(index);
            self.feed(Input::Replied { request: id, reply: Err(NoReply::Lost) });
        }
        self.feed(Input::ServerExited { server: epoch, cause });
    }

    pub(super) fn reply(&mut self, index: usize, silent: bool) {
        if index >= self.asked.len() {
            return;
        }
        let Asked { id, server, request, at, signs } = self.asked.remove(index);
        let is_look = self.core.servers.questions().get(&id).is_some_and(|asked| asked.purpose == Purpose::Contexts);
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
            Request::DeviceClients => self.list(server, &clients, is_look),
            Request::GetThreadPercentage => Reply::ThreadPercentage(50.0),
            Request::TerminateClient(_) => Reply::Terminated(0),
            Request::Snapshot => Reply::Snapshot(Vec::new()),
            Request::Status => {
                let has_gpus = self.has_gpus;
                let is_faulty = |process: &Process| process.faulted && (!has_gpus || !process.hit.is_empty());
                let is_sound = !self.servers.get(&server).is_some_and(is_faulty);
                if is_sound {
                    let known = self.known_sound.entry(server).or_default();
                    *known = at.max(*known);
                    let process = self.servers.get_mut(&server);
                    process.into_iter().for_each(|process| process.denied = signs.max(process.denied));
                }
                Reply::Active(is_sound)
            }
            Request::GetPinnedLimit(_) => Reply::PinnedLimit(1 << 30),
            Request::QueryDevices => Reply::Devices(if self.has_gpus { records() } else { Vec::new() }),
            other => panic!("{other:?} has no answer"),
        };
        self.feed(Input::Replied { request: id, reply: Ok(reply) });
    }

    /// What a server lists of its clients' contexts: some name all, some the first one of each client.
    fn list(&mut self, server: ServerEpoch, clients: &BTreeSet<u32>, is_look: bool) -> Reply {
        let names_all = server.0.is_multiple_of(2);
        let is_heard = |known: &Server| known.epoch == server && !known.is_lost() && !known.is_suspected();
        let is_heard = is_look && self.core.servers().any(is_heard);
        let mut rows = Vec::new();
        for pid in clients {
            let own = self.contexts.get(pid).map(Vec::as_slice).unwrap_or_default();
            let listed = if names_all { own } else { &own[..own.len().min(1)] };
            rows.extend((1..).zip(listed).map(|(number, gpu)| (*pid, number, *gpu)));
            if is_heard && self.homes.get(pid) == Some(&server) && listed.len() == own.len() {
                self.listed.insert(*pid);
            }
        }
        listing(&rows)
    }

    pub(super) fn catch_up(&mut self, index: usize) {
        if let Some(server) = self.behind.iter().nth(index).copied() {
            // Which may have ended meanwhile.
            self.behind.remove(&server);
            self.feed(Input::CaughtUp { server });
        }
    }
}
