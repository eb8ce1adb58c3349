//! The rules that must hold after every step, and at the end of everything.

use super::*;
use crate::core::faults::incident::{Incident, LONGEST_OPEN, MAX_OF_WITNESS};

/// For how long the world is let come to rest.
const SETTLING: Duration = Duration::from_secs(200);
/// How long servers and clients take for their next step meanwhile.
const PAUSE: Duration = Duration::from_millis(500);

/// Whatever anybody writes, an incident takes a bounded memory and a bounded time.
pub(in crate::core::tests) fn assert_is_bounded(incident: &Incident, clients: &BTreeSet<u32>, now: Duration) {
    const WITNESSES: usize = 6;
    assert!(incident.testimonies.len() <= WITNESSES * MAX_OF_WITNESS, "{}", incident.testimonies.len());
    assert!(incident.hinted_at.iter().all(|pid| clients.contains(pid)), "only clients are named: {incident:?}");
    assert!(incident.is_confirmed || now < incident.first + LONGEST_OPEN, "it comes to an end: {incident:?}");
}

impl World {
    /// The picture that reports are made from shows every client once, and nothing that does not exist.
    pub(super) fn check_picture(&self) {
        let quitting = self.core.is_quitting();
        let daemon = DaemonFacts { pid: 1, uptime: self.now, quitting, ..DaemonFacts::blank() };
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

    /// The rules that hold after every step.
    pub(super) fn check(&self) {
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
        self.check_shares();
        self.check_joins();
        for (epoch, incident) in self.core.faults.incidents() {
            assert_is_bounded(incident, &self.ever_on(*epoch), self.now);
        }
        for funeral in self.core.faults.funerals().keys() {
            assert!(self.copies.contains(funeral), "a funeral is of one whose copies are held");
            assert!(!self.lives(*funeral), "a funeral is of one who is dead");
        }
        for dead in self.core.faults.teardowns().keys() {
            assert!(!self.lives(*dead), "what is left is of one who is dead");
        }
        assert_eq!(self.core.waiting(), self.waiting.len(), "who waits is known");
        for (connection, peer) in &self.waiting {
            assert_eq!(self.core.waiting_peer(*connection), Some(*peer));
        }
        assert_eq!(self.core.servers.questions().len(), self.asked.len(), "every request is waited for");
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

    /// No domain's clients are more than may share what it may have, on whatever servers. Those that a server names of
    /// itself are as many as it has let in, for all that is known.
    fn check_shares(&self) {
        let Some(most) = self.policy.domains.default.group.shared_by.filter(|_| self.untold.is_empty()) else { return };
        let mut clients = BTreeMap::<_, BTreeSet<Pid>>::new();
        for (pid, process) in self.core.clients.processes() {
            if let Some(server) = self.core.servers.get(process.server) {
                clients.entry(server.domain).or_default().insert(pid);
            }
        }
        assert!(clients.values().all(|those| those.len() <= most), "more than {most} share: {clients:?}");
    }

    /// Lets everything that is under way come to its end: servers answer, start and obey, nothing else happens. Where
    /// only one server may run, processes end too, one after the other, since others wait for that.
    pub(in crate::core::tests) fn settle(&mut self) {
        self.spawning_works = true;
        let end = self.now + SETTLING;
        while self.now < end {
            self.do_what_is_asked();
            let Some(deadline) = self.core.next_deadline() else {
                if self.is_at_rest() {
                    return;
                }
                self.pass(PAUSE);
                continue;
            };
            // Until then nothing would happen by itself.
            let time = if self.is_at_rest() { deadline.saturating_sub(self.now) } else { PAUSE };
            self.pass(time.min(end.saturating_sub(self.now)).max(PAUSE));
        }
    }

    /// Brings clients of a user to a server: one on the first GPU, one on the second and one on both, as the core knows.
    pub(in crate::core::tests) fn populate(&mut self) {
        for slot in [0, 1, 2, 0, 1, 2, 1] {
            self.act(Action::ClientArrives { uid: 1000, slot });
            for _ in 0..3 {
                self.do_what_is_asked();
                self.pass(Duration::from_millis(20));
            }
        }
        for _ in 0..3 {
            self.pass(PAUSE);
            while !self.asked.is_empty() {
                self.reply(0, false);
            }
        }
    }

    /// What servers, clients and the driver do as soon as they can.
    fn do_what_is_asked(&mut self) {
        while !self.asked.is_empty() {
            self.reply(0, false);
        }
        while !self.behind.is_empty() {
            self.catch_up(0);
        }
        self.hello(0);
        while !self.told.is_empty() {
            self.greet(0);
            while !self.asked.is_empty() {
                self.reply(0, false);
            }
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
    }

    /// Whether there is nothing left that anybody could do before the time does something.
    fn is_at_rest(&self) -> bool {
        let is_still = |process: &Process| process.hello && !process.signalled;
        let is_done = self.asked.is_empty() && self.behind.is_empty() && self.dispatched.is_empty();
        let nobody_ends = self.policy.sharing != Sharing::Single || self.clients().is_empty();
        is_done && nobody_ends && self.servers.values().all(is_still)
    }

    /// When every client is dead, nothing of any is held.
    pub(in crate::core::tests) fn check_nothing_is_held(&mut self) {
        while let Some(pid) = self.living.first().copied() {
            self.end(pid, End::Signaled(9));
        }
        // A server that is left to the dead ends first.
        self.settle();
        assert!(self.core.faults.funerals().is_empty(), "{:?} {:?}", self.core.faults.funerals(), self.core.clients);
        assert!(self.copies.is_empty(), "every copy is closed: {:?}", self.copies);
        assert!(self.core.faults.endings().is_empty(), "{:?}", self.core.faults.endings());
    }

    pub(in crate::core::tests) fn check_nobody_waits(&self) {
        assert!(self.waiting.is_empty(), "everybody is served in the end: {:?}", self.waiting);
        assert!(self.unanswered.is_empty(), "every command is answered: {:?}", self.unanswered);
    }

    pub(in crate::core::tests) fn quit_and_end(&mut self, timeout: u64) {
        let session = SessionId(self.number());
        let peer = Peer { pid: 1, uid: 0, gid: 0 };
        self.quitting = true;
        self.feed(Input::Command {
            session,
            peer,
            rights: Rights::beside_the_daemon(),
            line: format!("quit -t {timeout}").into_bytes(),
        });
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
