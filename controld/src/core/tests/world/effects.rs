//! What the world does of what the core asks for, and what it takes note of.

use super::*;

impl World {
    pub(super) fn perform(&mut self, effect: Effect) {
        assert_eq!(self.exit, None, "nothing is done after the end: {effect:?}");
        match effect {
            Effect::Log(_) => {}
            Effect::LookAtGpus | Effect::ChangeModes(_) | Effect::HoldModes(_) | Effect::EndStranger { .. } => {
                panic!("nobody looks at GPUs here")
            }
            Effect::LookAtMemory => {
                // One look in three tells nothing.
                let pids = self.servers.values().map(|process| process.pid).collect();
                let of_processes = (!self.number().is_multiple_of(3)).then_some(1 << 30);
                let used = (1 << 30) + self.copies.len() as u64 * (600 << 20);
                let memory = Ok(vec![GpuMemory { total: 1 << 40, used, of_processes, pids }]);
                let effects = self.core.handle(self.now, Input::MemorySeen { memory, asked: true });
                effects.into_iter().for_each(|effect| self.perform(effect));
            }
            Effect::Save => self.saved_at_least_once = true,
            Effect::SpawnServer { server, uid, .. } => self.spawn(server, uid),
            Effect::AdoptLink { server, .. } => assert!(self.servers.contains_key(&server)),
            Effect::Ask { server, id, request } => {
                assert!(self.asked.iter().all(|asked| asked.id != id), "a request id is used once");
                if request == Request::Shutdown {
                    self.check_end(server);
                }
                let signs = self.servers.get(&server).map_or(0, |process| process.signs);
                self.asked.push(Asked { id, server, request, at: self.now, signs });
            }
            Effect::Tell { server, request } => {
                assert!(!request.is_answered());
                assert!(self.servers.contains_key(&server), "only a known server is told anything");
            }
            Effect::CatchUp { server } => assert!(self.behind.insert(server), "it is asked once at a time"),
            Effect::Dispatch { server, connection } => self.dispatch(server, connection),
            Effect::HandOver { connection } => {
                let to = self.dispatched.get(&connection).copied().expect("only who was dispatched gets an end");
                assert!(self.told.remove(&connection), "and once");
                if let Some(since) = self.must_be_sound.remove(&connection) {
                    assert!(
                        self.known_sound[&to.1] >= since,
                        "who joins others has an end only of a server that is known to be sound"
                    );
                }
                // The server knows the process now, with whichever connection it came.
                let same = |(peer, server): &(Peer, ServerEpoch)| (peer.pid, *server) == (to.0.pid, to.1);
                self.fresh.retain(|fresh| !self.dispatched.get(fresh).is_some_and(same));
            }
            Effect::Recall { connection } => {
                assert!(self.dispatched.contains_key(&connection), "only who was dispatched is taken back");
                assert!(self.told.contains(&connection), "nobody is taken back who has its end");
                self.not_told(connection);
            }
            Effect::WatchProcess { pid, .. } => self.watch(pid),
            Effect::Record(event) => self.recorded(*event),
            Effect::Announce(told) => {
                let unharmed = self.unannounced.remove(&told.verdict.number).expect("each verdict is told once");
                let pids: Vec<u32> = told.victims.iter().map(|victim| victim.process.pid).collect();
                assert_eq!(pids, told.verdict.victims, "{told:?}");
                let unharmed = told.victims.iter().find(|victim| unharmed.contains(&victim.process));
                assert_eq!(unharmed, None, "who has nothing on the GPU is no victim: {told:?}");
            }
            Effect::FindGpus { process } => self.sought.push(process),
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
                self.check_end(server);
                if let Some(process) = self.servers.get_mut(&server) {
                    process.signalled = true;
                }
            }
            Effect::Answer { session, .. }
            | Effect::AnswerFailure { session, .. }
            | Effect::AnswerRows { session, .. }
            | Effect::AnswerPs { session, .. } => {
                assert!(self.unanswered.remove(&session), "a command is answered once");
            }
            Effect::Report { session, .. } => {
                assert!(self.unanswered.remove(&session), "a command is answered once");
                self.check_picture();
            }
            Effect::ListDevices { session } => {
                self.feed_later_devices(session);
            }
            Effect::OpenEntrance(entrance) => {
                let result = if self.opening_works { Ok(()) } else { Err("the disk is full".to_owned()) };
                let id = entrance.id;
                if result.is_ok() {
                    assert!(self.open.insert(id, entrance).is_none(), "a socket is made once");
                }
                let effects = self.core.handle(self.now, Input::EntranceOpened { entrance: id, result });
                effects.into_iter().for_each(|effect| self.perform(effect));
            }
            Effect::CloseEntrance(entrance) => {
                assert!(self.open.remove(&entrance.id).is_some(), "a socket is removed that is there, and once");
            }
            Effect::KeepServers { number, .. } => {
                let result = if self.opening_works { Ok(()) } else { Err("the disk is full".to_owned()) };
                let effects = self.core.handle(self.now, Input::ServersKept { number, result });
                effects.into_iter().for_each(|effect| self.perform(effect));
            }
            Effect::CloseSessions => {}
            Effect::BindJoined { join, entrance } => self.bind_joined(join, entrance),
            Effect::AcceptJoin { join, name } => self.accepts_join(join, name),
            Effect::TellJoin { join, .. } => assert!(self.thin.contains_key(&join), "who has joined is told"),
            Effect::RefuseJoin { join, .. } | Effect::EndJoin { join, .. } => self.parts_from(join),
            Effect::EndSession { session } => {
                assert!(self.quits.remove(&session), "a session ends once, and is not answered before");
            }
            // Nobody asks for a place here.
            Effect::SpareVoid { .. } => panic!("nobody has a spare copy"),
            Effect::Exit { status } => {
                assert!(self.unannounced.is_empty(), "all is told before the end: {:?}", self.unannounced);
                self.exit = Some(status);
            }
        }
    }

    /// A server is told to end. Work of a dead client that may never end is another reason than a fault, and asks only
    /// for the end of one without clients.
    fn check_end(&self, server: ServerEpoch) {
        let is_ordered = self.servers.get(&server).is_some_and(|process| process.ordered);
        let is_lost = self.is_lost(server);
        // What is done to one that is ending already was decided when that began.
        let is_ending = self.servers.get(&server).is_some_and(|process| process.signalled);
        let may_end = !is_lost || is_ordered || is_ending || self.quitting || self.policy.sharing == Sharing::Single;
        assert!(may_end || !self.has_unharmed(server), "nobody is ended for a fault elsewhere: {:?}", self.servers);
    }

    /// The driver answers in a later input; here it is the next one.
    pub(super) fn find_gpus(&mut self, process: ProcessKey) {
        let gpus = Some(Self::seen(process.pid).iter().map(|gpu| uuid(*gpu).to_string()).collect());
        if self.lives(process) {
            self.placed.insert(process.pid);
        }
        let effects = self.core.handle(self.now, Input::SpacesFound { process, gpus });
        for effect in effects {
            self.perform(effect);
        }
    }

    pub(super) fn watch(&mut self, pid: u32) {
        if !self.living.contains(&pid) {
            // It died before anybody watched.
            let effects = self.core.handle(self.now, Input::ProcessGone { process: self.key(pid), end: End::Unknown });
            for effect in effects {
                self.perform(effect);
            }
        } else {
            self.watched.insert(pid);
            let process = self.key(pid);
            self.copies.insert(process);
            // Some are never read.
            let identity = if pid % 4 == 1 { self.at_once(pid) } else { self.identity(pid) };
            for input in [
                Input::CopiesHeld { process, descriptors: 2 },
                Input::Tracked { process, tracked: true },
                Input::IdentityKnown { pid, identity },
            ] {
                let effects = self.core.handle(self.now, input);
                for effect in effects {
                    self.perform(effect);
                }
            }
        }
    }

    pub(super) fn recorded(&mut self, event: JournalEvent) {
        if let JournalEvent::CulpritGone { process, complete: true, .. } = event {
            assert!(self.spaces.values().all(|owner| *owner != process), "nothing is left of who is said to be gone");
        }
        if let JournalEvent::ClientEnded { process, server, .. } = event {
            self.died_on.insert((server, process.pid));
        }
        let (JournalEvent::Verdict { verdict, .. } | JournalEvent::VerdictCorrected { verdict, .. }) = event else {
            return;
        };
        if let Some(culprit) = &verdict.culprit {
            let pid = culprit.process.pid;
            let is_known = self.servers.contains_key(&verdict.epoch);
            assert!(!is_known || self.ever_on(verdict.epoch).contains(&pid), "a verdict names a client of the server");
            assert!(!verdict.victims.contains(&pid), "nobody is both");
            assert!(
                self.guilty.contains(&culprit.process),
                "whatever is forged, nobody innocent is blamed: {verdict:?}"
            );
        }
        let last = self.verdicts.iter().rfind(|last| last.epoch == verdict.epoch && last.incident == verdict.incident);
        let word = |verdict: &Verdict| (verdict.culprit.as_ref().map(|culprit| culprit.process), verdict.confidence);
        let is_new = |last: &Verdict| word(last) != word(&verdict) || last.victims.len() != verdict.victims.len();
        assert!(last.is_none_or(is_new), "nothing is said twice: {verdict:?}");
        let mut unharmed = BTreeSet::new();
        if let Some(server) = self.servers.get(&verdict.epoch) {
            // Who was taken back on the way there and went elsewhere is told of as what he was before.
            // Nor is one here that has not been let in yet: what it had accepted was on another server.
            let is_on_its_way = |pid: &u32| {
                let mut fresh = self.fresh.iter().filter_map(|connection| self.dispatched.get(connection));
                fresh.any(|(peer, server)| peer.pid == *pid && *server == verdict.epoch)
            };
            let is_at_home = |pid: &u32| self.homes.get(pid) == Some(&verdict.epoch) && self.accepted.contains_key(pid);
            let is_here = |pid: &u32| is_at_home(pid) && !is_on_its_way(pid);
            let is_client = |pid: &u32| server.clients.contains(pid) && is_here(pid);
            let is_unharmed = |pid: &&u32| is_client(pid) && self.is_left_alone(verdict.epoch, **pid);
            unharmed.extend(verdict.victims.iter().filter(is_unharmed).map(|pid| self.key(*pid)));
            // A pid may be that of one who has died there and was spared, and of who has it now.
            let has_died = |pid: &u32| self.died_on.contains(&(verdict.server, *pid));
            let is_first = !server.is_repeated && !server.is_uncounted && last.is_none();
            let is_hit = |pid: &&u32| is_client(pid) && !has_died(pid) && server.known_hit.contains(pid);
            let hit = verdict.spared.iter().filter(|_| is_first).find(is_hit);
            assert_eq!(hit, None, "nobody is called spared whom the fault has reached: {verdict:?}");
        }
        self.unannounced.insert(verdict.number, unharmed);
        self.verdicts.push(verdict);
    }

    /// The driver answers a list of devices in a later input; here it is the next one.
    pub(super) fn feed_later_devices(&mut self, session: SessionId) {
        let devices: Result<Vec<Device>, String> = Ok(devices());
        let effects = self.core.handle(self.now, Input::DevicesListed { session, devices });
        for effect in effects {
            self.perform(effect);
        }
    }

    pub(super) fn dispatch(&mut self, server: ServerEpoch, connection: ConnectionId) {
        let peer = self.waiting.remove(&connection).expect("only a client that waits is dispatched, and once");
        let process = self.servers.get(&server).expect("only to a server that there is");
        assert!(process.hello, "only to a server that is ready");
        assert!(!process.signalled, "not to a server that must end");
        let deciding = self.asked.iter().any(|asked| asked.server == server && asked.request == Request::Shutdown);
        assert!(!deciding, "not to a server that is deciding to end");
        if self.policy.sharing != Sharing::MultiUser {
            assert_eq!(process.domain, peer.uid, "only to a server of its own user");
        }
        if self.came_by.contains_key(&connection) && self.homes.get(&peer.pid) != Some(&server) {
            let domain = self.core.servers.get(server).and_then(|server| self.core.servers.domain(server.domain));
            let entrance = domain.and_then(|domain| domain.key.entrance.as_ref());
            let theirs = entrance.map(|entrance| entrance.id);
            // One that has come to several, or to none before, is held for one's client, whichever it comes to next. Who has
            // come to none has come to his own server, where one is named for him.
            let own = self.came_to.get(&peer.pid);
            let is_of_user = entrance.is_some_and(|entrance| entrance.server == format!("uid_{}", peer.uid));
            let is_own = own.is_some_and(|own| own.contains(&theirs) || (is_of_user && own.contains(&None)));
            assert!(is_own, "who has come to a namespace is served there and nowhere else: {theirs:?}, {own:?}");
            let is_open = theirs.is_none_or(|theirs| self.open.contains_key(&theirs));
            assert!(is_open, "nobody is sent to a namespace that is gone");
        }
        if let Some(home) = self.homes.get(&peer.pid) {
            let has_contexts = self.accepted.get(&peer.pid).is_some_and(|&accepted| accepted > 1);
            let is_unharmed = self.servers.get(home).is_some_and(|process| !process.hit.contains(&peer.pid))
                && self.is_left_alone(*home, peer.pid);
            let can_be_left = |s: &Server| s.tainted().is_some() || self.core.servers.is_of_removed_namespace(s);
            let keeps = |s: &Server| (!s.is_lost() || is_unharmed) && (!can_be_left(s) || has_contexts);
            let works = |s: &Server| s.epoch == *home && s.is_connected() && keeps(s);
            let home_works = self.core.servers().any(works);
            let home_told = !self.untold.contains(home);
            assert!(*home == server || !home_works || !home_told, "a process stays with its server");
        }
        let is_own = process.clients.contains(&peer.pid);
        let claims_another = Self::claim(peer.pid).is_some_and(|gpu| !process.named.contains(&gpu));
        // A fault that no sign has told of has hit its clients unknown to anybody.
        let is_unharmed = is_own && (!process.known_hit.contains(&peer.pid) || self.is_left_alone(server, peer.pid));
        let may_go = self.has_gpus && (is_unharmed || (claims_another && process.hit.is_empty()));
        let spoilt = |s: &Server| (s.is_lost() && !may_go) || (s.tainted().is_some() && !s.is_lost() && !is_own);
        let spoilt = self.core.servers().any(|s| s.epoch == server && spoilt(s));
        assert!(!spoilt, "no newcomer is routed to a server that a fault has spoilt, and nobody to a lost one");
        let joins = process.clients.iter().any(|other| *other != peer.pid);
        if joins && !is_own && !self.untold.contains(&server) {
            let since = self.came[&connection].saturating_sub(self.policy.constants.settle_time);
            self.must_be_sound.insert(connection, since);
        }
        if !is_own {
            self.note_where_it_carried(peer.pid);
        }
        let process = self.servers.get_mut(&server).expect("it is there still");
        process.clients.insert(peer.pid);
        self.ever.entry(server).or_default().insert(peer.pid);
        self.homes.insert(peer.pid, server);
        self.dispatched.insert(connection, (peer, server));
        self.told.insert(connection);
        if !is_own {
            self.fresh.insert(connection);
            // Contexts that it had are on a server that is lost.
            let left_behind = self.contexts.remove(&peer.pid);
            self.left_behind.extend(left_behind.map(|contexts| (peer.pid, contexts)));
            self.placed.remove(&peer.pid);
            self.listed.remove(&peer.pid);
            if let Some(accepted) = self.accepted.get_mut(&peer.pid) {
                *accepted = 1.min(*accepted);
            }
        }
    }
}
