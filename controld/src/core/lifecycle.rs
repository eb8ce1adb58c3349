//! When a server starts, drains, is forced, is given up and started again; and how the daemon itself ends.

use super::admission::Domain;
use super::ids::{ConnectionId, Pid, ServerEpoch, SessionId, Uid};
use super::questions::Purpose;
use super::server::{Drain, Server, ServerState};
use super::{Core, Effect, ExitCause, NoReply, Peer, ServerSignal, Sharing};
use core::time::Duration;
use remps_proto::mps::device::DeviceKey;
use remps_proto::mps::server::{Configuration, Reply, Request};

/// How soon a draining server is asked again when the process of one of its clients has ended: it needs a moment to
/// notice that itself.
const ASK_AFTER_EXIT: Duration = Duration::from_millis(20);

/// The daemon's own end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Quit {
    /// Sessions whose `quit` is answered at the end.
    pub(super) sessions: Vec<SessionId>,
    /// When servers are forced.
    pub(super) force_at: Option<Duration>,
    /// The worst status of a server so far.
    pub(super) status: u8,
}

impl Server {
    /// A client's process has ended: a drain that waits for that asks again soon.
    pub(super) fn client_left(&mut self, now: Duration) {
        if let ServerState::Draining(drain) = &mut self.state
            && let Some(ask_at) = &mut drain.ask_at
        {
            *ask_at = (*ask_at).min(now + ASK_AFTER_EXIT);
            drain.pauses.reset();
        }
    }
}

impl Core {
    // ---- start -------------------------------------------------------------------------------------------------

    /// Asks for a server of a domain, as `start_server` does.
    pub(super) fn request_server(&mut self, domain: Uid, gid: u32) {
        let queue = self.domains.entry(domain).or_insert_with(|| Domain::new(&self.policy, gid));
        queue.requested = true;
    }

    /// Starts servers where clients wait, and makes room for them where only one may run.
    pub(super) fn advance_domains(&mut self, now: Duration) {
        let domains: Vec<Uid> = self.domains.keys().copied().collect();
        for domain in domains {
            self.dispatch_waiting(domain);
            self.start_if_wanted(now, domain);
        }
        // A domain that nobody needs is forgotten, its failures with it once they are old.
        let servers = &self.servers;
        self.domains.retain(|uid, domain| {
            domain.requested
                || !domain.waiting.is_empty()
                || domain.retry_at.is_some_and(|at| at > now)
                || servers.values().any(|server| server.domain == *uid)
        });
    }

    fn start_if_wanted(&mut self, now: Duration, uid: Uid) {
        let Some(domain) = self.domains.get(&uid) else {
            return;
        };
        if self.quit.is_some() || !self.wants_server(domain) {
            return;
        }
        if let Some(server) = self.server_for_newcomers(uid) {
            let is_active = server.is_active();
            if let Some(domain) = self.domains.get_mut(&uid) {
                domain.requested &= !is_active;
                // Set by an earlier server's end, when this one was on its way already.
                domain.retry_at = None;
            }
            return;
        }
        if domain.retry_at.is_some_and(|at| at > now) {
            return;
        }
        if let Some(domain) = self.domains.get_mut(&uid) {
            domain.retry_at = None;
        }
        if self.policy.sharing == Sharing::Single && !self.servers.is_empty() {
            self.queue_behind_others(now);
            return;
        }
        let epoch = ServerEpoch(self.next_epoch);
        self.next_epoch += 1;
        let run_as = if self.policy.sharing == Sharing::MultiUser { self.policy.owner } else { uid };
        let server = Server {
            epoch,
            domain: uid,
            uid: run_as,
            pid: None,
            state: ServerState::Starting { deadline: now + self.policy.start_timeout },
            ready_at: None,
            idle_since: None,
            census_due: false,
            handshakes: 0,
            end_wanted: false,
        };
        self.servers.insert(epoch, server);
        let mut gid = 0;
        if let Some(domain) = self.domains.get_mut(&uid) {
            domain.requested = false;
            gid = domain.gid;
        }
        let gid = if run_as == self.policy.owner { self.policy.owner_gid } else { gid };
        let multi_user = self.policy.sharing == Sharing::MultiUser;
        self.effects.push(Effect::SpawnServer { server: epoch, uid: run_as, gid, multi_user });
    }

    /// The vendor's rule: the other user's server is asked to go as soon as its clients have left.
    fn queue_behind_others(&mut self, now: Duration) {
        let others: Vec<ServerEpoch> = self
            .servers
            .values()
            .filter(|server| matches!(server.state, ServerState::Serving))
            .map(|server| server.epoch)
            .collect();
        for epoch in others {
            self.drain(now, epoch, None, false);
        }
    }

    pub(super) fn server_spawned(&mut self, epoch: ServerEpoch, pid: Pid) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.pid = Some(pid);
        let uid = server.uid;
        self.log(format!("Starting new server {pid} for user {uid}"));
        self.effects.push(Effect::Save);
    }

    pub(super) fn spawn_failed(&mut self, now: Duration, epoch: ServerEpoch, reason: &str) {
        if let Some(server) = self.servers.remove(&epoch)
            && !server.end_wanted
        {
            self.start_failed(now, server.domain, reason);
        }
    }

    /// Waits before the next try, and says once a try what is wrong and what happens next.
    fn start_failed(&mut self, now: Duration, uid: Uid, reason: &str) {
        let Some(domain) = self.domains.get_mut(&uid) else {
            return;
        };
        let delay = domain.starts.next_delay();
        domain.retry_at = Some(now + delay);
        let (tries, waiting) = (domain.starts.tries(), domain.waiting.len());
        self.log(format!(
            "Server for user {uid} failed to start: {reason}. Try {} in {} ms, {waiting} clients wait",
            tries + 1,
            delay.as_millis(),
        ));
        // Servers whose clients only they know may have none any longer: they are asked again with every try.
        for server in self.servers.values_mut().filter(|server| server.domain != uid) {
            if matches!(server.state, ServerState::Serving)
                && !self.processes.values().any(|process| process.server == server.epoch)
            {
                server.idle_since.get_or_insert(now);
            }
        }
    }

    pub(super) fn server_hello(&mut self, now: Duration, connection: ConnectionId, peer: Peer) {
        let found = self
            .servers
            .values_mut()
            .find(|server| server.pid == Some(peer.pid) && matches!(server.state, ServerState::Starting { .. }));
        let Some(server) = found else {
            self.log(format!("Process {} of user {} is no server of this daemon", peer.pid, peer.uid));
            self.effects.push(Effect::Close { connection });
            return;
        };
        server.state = ServerState::Serving;
        server.ready_at = Some(now);
        server.idle_since = Some(now);
        let epoch = server.epoch;
        let pinned_limits = self
            .defaults
            .limits()
            .iter()
            .filter_map(|(device, limit)| Some((DeviceKey::new(&device.to_string())?, limit.0)))
            .collect();
        let configuration = Configuration {
            thread_percentage: self.defaults.percentage().get(),
            pinned_limits,
            priority: self.defaults.priority().get(),
        };
        self.effects.push(Effect::AdoptLink { server: epoch, connection, configuration });
        self.log(format!("NEW SERVER {}: Ready", peer.pid));
        self.effects.push(Effect::Save);
        if self.quit.is_some() {
            self.drain(now, epoch, self.quit_deadline(), false);
        }
    }

    // ---- end ---------------------------------------------------------------------------------------------------

    /// Asks a server to end when it has no clients, again and again; by `force_at` it is forced.
    pub(super) fn drain(&mut self, now: Duration, epoch: ServerEpoch, force_at: Option<Duration>, because_idle: bool) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.end_wanted = true;
        match &mut server.state {
            ServerState::Starting { .. } => self.force(now, epoch),
            ServerState::Serving => {
                server.state = ServerState::Draining(Drain::starting(now, force_at, because_idle));
                self.effects.push(Effect::Save);
            }
            ServerState::Draining(drain) => {
                if drain.because_idle && !because_idle {
                    drain.because_idle = false;
                    self.effects.push(Effect::Save);
                }
                drain.force_at = [drain.force_at, force_at].into_iter().flatten().min();
                if let Some(ask_at) = &mut drain.ask_at {
                    *ask_at = now;
                }
            }
            ServerState::Ending { .. } => {}
        }
    }

    /// Ends a server whatever its clients do: SIGINT now, as the vendor, and SIGKILL when that did not help.
    pub(super) fn force(&mut self, now: Duration, epoch: ServerEpoch) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.end_wanted = true;
        if matches!(server.state, ServerState::Ending { kill_at: None }) {
            return;
        }
        server.state = ServerState::Ending { kill_at: Some(now + self.policy.kill_timeout) };
        if let Some(pid) = server.pid {
            self.log(format!("Force shutting down server {pid}"));
        }
        self.effects.push(Effect::Save);
        self.effects.push(Effect::Signal { server: epoch, signal: ServerSignal::Interrupt });
    }

    /// The answer to a request to end when idle.
    pub(super) fn shutdown_answered(&mut self, now: Duration, epoch: ServerEpoch, reply: Result<Reply, NoReply>) {
        let kill_at = now + self.policy.kill_timeout;
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        let ServerState::Draining(drain) = &mut server.state else {
            return;
        };
        let pid = server.pid.unwrap_or_default();
        let workers = match reply {
            Ok(Reply::ActiveWorkers(0)) => {
                server.state = ServerState::Ending { kill_at: Some(kill_at) };
                self.effects.push(Effect::Save);
                return;
            }
            Ok(Reply::ActiveWorkers(workers)) => Ok(workers),
            Ok(_) | Err(NoReply::TimedOut | NoReply::Unsupported) => Err(NoReply::TimedOut),
            // Its link is gone: the process is about to follow, and a deadline is set when the loss is handled.
            Err(NoReply::Lost) => return,
        };
        if drain.because_idle {
            server.state = ServerState::Serving;
            server.end_wanted = false;
            server.idle_since = None;
            return;
        }
        let pause = drain.pauses.next_delay();
        drain.ask_at = Some(now + pause);
        match workers {
            Ok(workers) => {
                self.log(format!("Server {pid} has {workers} active worker threads. Server will not shutdown."));
            }
            Err(reason) => self.log(format!("Server {pid} can't be asked to shut down: {reason}")),
        }
        self.log(format!("Control will try shutting down server {pid} again in at most {}ms", pause.as_millis()));
    }

    pub(super) fn server_link_lost(&mut self, now: Duration, epoch: ServerEpoch, reason: &str) {
        let Some(server) = self.servers.get(&epoch) else {
            return;
        };
        if matches!(server.state, ServerState::Ending { .. }) {
            return;
        }
        let (pid, wanted) = (server.pid.unwrap_or_default(), server.end_wanted);
        if !wanted {
            self.log(format!("Server {pid} can't be controlled any longer: {reason}"));
        }
        self.force(now, epoch);
        if let Some(server) = self.servers.get_mut(&epoch) {
            server.end_wanted = wanted;
        }
    }

    pub(super) fn server_exited(&mut self, now: Duration, epoch: ServerEpoch, cause: ExitCause) {
        let Some(server) = self.servers.remove(&epoch) else {
            return;
        };
        self.processes.retain(|_, process| process.server != epoch);
        let pid = server.pid.unwrap_or_default();
        let (status, words) = match cause {
            ExitCause::Exited(status) => (status, String::new()),
            ExitCause::Signaled(signal) => (0, format!(" (ended by signal {signal})")),
            ExitCause::Unknown => (0, " (its status is not known to this daemon)".to_owned()),
        };
        if !server.end_wanted && server.ready_at.is_some() {
            self.log("Server encountered a fatal exception. Shutting down");
        }
        self.log(format!("Server {pid} exited with status {status}{words}"));
        if let Some(quit) = &mut self.quit {
            let status = u8::try_from(status & 0xff).unwrap_or(u8::MAX);
            quit.status = quit.status.max(status);
        }
        self.effects.push(Effect::Save);
        // It may have been in the way of those that could not start.
        for (_, domain) in self.domains.iter_mut().filter(|(uid, _)| **uid != server.domain) {
            domain.retry_at = domain.retry_at.map(|at| at.min(now));
        }
        let stable = server.ready_at.is_some_and(|at| now.saturating_sub(at) >= self.policy.stable_after);
        if server.end_wanted || stable {
            if let Some(domain) = self.domains.get_mut(&server.domain) {
                domain.starts.reset();
                domain.retry_at = None;
            }
        } else {
            let reason = match cause {
                ExitCause::Exited(status) => format!("it exited with status {status}"),
                ExitCause::Signaled(signal) => format!("signal {signal} ended it"),
                ExitCause::Unknown => "it ended".to_owned(),
            };
            self.start_failed(now, server.domain, &reason);
        }
    }

    /// Acts on the deadlines of servers.
    pub(super) fn advance_servers(&mut self, now: Duration) {
        let epochs: Vec<ServerEpoch> = self.servers.keys().copied().collect();
        for epoch in epochs {
            let Some(server) = self.servers.get_mut(&epoch) else {
                continue;
            };
            let pid = server.pid.unwrap_or_default();
            match &mut server.state {
                ServerState::Starting { deadline } if *deadline <= now => {
                    self.log(format!("Server {pid} did not become ready in {:?}", self.policy.start_timeout));
                    self.force(now, epoch);
                    if let Some(server) = self.servers.get_mut(&epoch) {
                        server.end_wanted = false;
                    }
                }
                ServerState::Draining(drain) if drain.force_at.is_some_and(|at| at <= now) => self.force(now, epoch),
                ServerState::Draining(drain) if drain.ask_at.is_some_and(|at| at <= now) => {
                    drain.ask_at = None;
                    let quiet = drain.because_idle;
                    let backoff = if drain.pauses.tries() == 0 { "disabled" } else { "enabled" };
                    if !quiet {
                        self.log(format!("Try shutting down server {pid}, backoff is {backoff}"));
                    }
                    self.ask(epoch, Request::Shutdown, Purpose::Shutdown);
                }
                ServerState::Ending { kill_at } if kill_at.is_some_and(|at| at <= now) => {
                    *kill_at = None;
                    self.log(format!("Server {pid} did not end, killing it"));
                    self.effects.push(Effect::Signal { server: epoch, signal: ServerSignal::Kill });
                }
                ServerState::Starting { .. }
                | ServerState::Serving
                | ServerState::Draining(_)
                | ServerState::Ending { .. } => {}
            }
        }
    }

    // ---- idle --------------------------------------------------------------------------------------------------

    /// Whether a domain other than this one could not start a server and still needs one: on a GPU in compute mode
    /// `EXCLUSIVE_PROCESS` that is so as long as any other server lives.
    fn is_in_the_way(&self, server: &Server) -> bool {
        self.domains
            .iter()
            .any(|(uid, domain)| *uid != server.domain && domain.starts.tries() > 0 && self.wants_server(domain))
    }

    /// Servers that are only kept for the next client of their user, with the time at which they have been long enough.
    ///
    /// When all are idle, the one that was used last stays, unless it is in the way of one that can't start.
    fn idle_servers(&self) -> Vec<(ServerEpoch, Duration)> {
        if self.quit.is_some() {
            return Vec::new();
        }
        let serving = self.servers.values().filter(|server| matches!(server.state, ServerState::Serving));
        let in_the_way: Vec<(ServerEpoch, Duration)> = serving
            .filter(|server| self.is_in_the_way(server))
            .filter_map(|server| Some((server.epoch, server.idle_since?)))
            .collect();
        if !in_the_way.is_empty() {
            return in_the_way;
        }
        let Some(timeout) = self.policy.idle_timeout else {
            return Vec::new();
        };
        let active = self.servers.values().filter(|server| server.is_active());
        let idle = |server: &Server| server.idle_since.filter(|_| matches!(server.state, ServerState::Serving));
        let mut due: Vec<(ServerEpoch, Duration)> =
            active.clone().filter_map(|server| Some((server.epoch, idle(server)? + timeout))).collect();
        if due.len() == active.count() {
            due.sort_by_key(|(epoch, at)| (*at, *epoch));
            due.pop();
        }
        due
    }

    pub(super) fn idle_deadline(&self) -> Option<Duration> {
        self.idle_servers().into_iter().map(|(_, at)| at).min()
    }

    /// With several servers up, those that have been idle for long go: each holds some 70 MiB of GPU memory.
    pub(super) fn advance_idle(&mut self, now: Duration) {
        for (epoch, _) in self.idle_servers().into_iter().filter(|(_, at)| *at <= now) {
            if let Some(server) = self.servers.get(&epoch) {
                let (pid, user) = (server.pid.unwrap_or_default(), server.domain);
                let why = if self.is_in_the_way(server) { "another user's can't start" } else { "it has been idle" };
                self.log(format!("Server {pid} of user {user} has no clients and is shut down: {why}"));
            }
            self.drain(now, epoch, None, true);
        }
    }

    // ---- the daemon's end --------------------------------------------------------------------------------------

    /// `quit`, with or without a time after which servers are forced.
    pub(super) fn quit(&mut self, now: Duration, session: Option<SessionId>, timeout: Option<Duration>) {
        let force_at = timeout.and_then(|timeout| now.checked_add(timeout));
        match &mut self.quit {
            Some(quit) => {
                quit.sessions.extend(session);
                quit.force_at = [quit.force_at, force_at].into_iter().flatten().min();
            }
            None => {
                self.quit = Some(Quit { sessions: session.into_iter().collect(), force_at, status: 0 });
                self.effects.push(Effect::CloseSessions);
                self.refuse_waiting();
            }
        }
        let epochs: Vec<ServerEpoch> = self.servers.keys().copied().collect();
        for epoch in epochs {
            self.drain(now, epoch, force_at, false);
        }
        self.effects.push(Effect::Save);
    }

    /// The daemon is about to go: those who have no server yet will get none.
    fn refuse_waiting(&mut self) {
        let waiting: Vec<ConnectionId> =
            self.domains.values_mut().flat_map(|domain| domain.waiting.drain(..)).collect();
        for domain in self.domains.values_mut() {
            domain.requested = false;
        }
        for connection in waiting {
            self.clients.remove(&connection);
            self.effects.push(Effect::Close { connection });
        }
    }

    /// SIGTERM: a drain with the configured time; a second one forces at once.
    pub(super) fn terminate(&mut self, now: Duration) {
        if self.quit.is_some() {
            self.log("A second signal to end: servers are forced");
            self.quit(now, None, Some(Duration::ZERO));
        } else {
            let timeout = self.policy.drain_timeout;
            self.log(format!("A signal to end: clients have {} s to finish", timeout.as_secs()));
            self.quit(now, None, Some(timeout));
        }
    }

    pub(super) fn quit_deadline(&self) -> Option<Duration> {
        // Once forced, the servers' own deadlines count.
        let quit = self.quit.as_ref()?;
        quit.force_at.filter(|_| self.servers.values().any(|s| !matches!(s.state, ServerState::Ending { .. })))
    }

    pub(super) fn advance_quit(&mut self, now: Duration) {
        let Some(quit) = &self.quit else {
            return;
        };
        if quit.force_at.is_some_and(|at| at <= now) {
            let epochs: Vec<ServerEpoch> = self
                .servers
                .values()
                .filter(|server| !matches!(server.state, ServerState::Ending { .. }))
                .map(|server| server.epoch)
                .collect();
            for epoch in epochs {
                self.force(now, epoch);
            }
        }
        if self.servers.is_empty() && !self.exited {
            self.exited = true;
            let status = self.quit.as_ref().map_or(0, |quit| quit.status);
            self.log(format!("Exit with status {status}"));
            self.effects.push(Effect::Exit { status });
        }
    }
}
