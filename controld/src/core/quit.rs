//! How the daemon itself ends.
//!
//! `quit` and SIGTERM drain: nobody is served any more and nothing is started, who waits is let go, and each server is
//! asked to end when it has no clients, again and again ([`lifecycle`](super::servers::lifecycle)). A deadline or a second
//! signal forces servers with SIGINT, and SIGKILL follows after a grace time. So the end always comes.

use super::effect::Quit;
use super::ids::{ConnectionId, ServerEpoch, SessionId};
use super::servers::server::ServerState;
use super::{Core, Effect};
use core::time::Duration;

impl Core {
    /// Whether the daemon was told to exit: nothing follows any more.
    pub(super) fn is_over(&self) -> bool {
        self.turn.quit.as_ref().is_some_and(|quit| quit.is_over)
    }

    /// `quit`, with or without a time after which servers are forced.
    pub(super) fn quit(&mut self, session: Option<SessionId>, timeout: Option<Duration>) {
        let force_at = timeout.and_then(|timeout| self.turn.now.checked_add(timeout));
        match &mut self.turn.quit {
            Some(quit) => {
                quit.sessions.extend(session);
                quit.force_at = [quit.force_at, force_at].into_iter().flatten().min();
            }
            None => {
                self.turn.quit =
                    Some(Quit { sessions: session.into_iter().collect(), force_at, status: 0, is_over: false });
                self.turn.push(Effect::CloseSessions);
                self.refuse_waiting();
            }
        }
        let epochs: Vec<ServerEpoch> = self.servers.iter().map(|server| server.epoch).collect();
        for epoch in epochs {
            self.servers.drain(&mut self.turn, epoch, force_at, false);
        }
        self.turn.save();
    }

    /// The daemon is about to go: those who have no server yet will get none.
    fn refuse_waiting(&mut self) {
        let waiting: Vec<ConnectionId> = self.clients.take_waiting();
        self.servers.forget_requests();
        for connection in waiting {
            self.turn.push(Effect::Close { connection });
        }
    }

    /// SIGTERM: a drain with the configured time; a second one forces at once.
    pub(super) fn terminate(&mut self) {
        if self.turn.quit.is_some() {
            self.turn.log("A second signal to end: servers are forced");
            self.quit(None, Some(Duration::ZERO));
        } else {
            let timeout = self.turn.policy.drain_timeout;
            self.turn.log(format!("A signal to end: clients have {} s to finish", timeout.as_secs()));
            self.quit(None, Some(timeout));
        }
    }

    pub(super) fn advance_quit(&mut self) {
        let Some(quit) = &self.turn.quit else {
            return;
        };
        if quit.force_at.is_some_and(|at| at <= self.turn.now) {
            let epochs: Vec<ServerEpoch> = self
                .servers
                .iter()
                .filter(|server| !matches!(server.state, ServerState::Ending { .. }))
                .map(|server| server.epoch)
                .collect();
            for epoch in epochs {
                self.servers.force(&mut self.turn, epoch);
            }
        }
        if self.servers.are_none()
            && !self.is_over()
            && self.gpus.modes_are_given_back(&mut self.turn)
            && let Some(quit) = &mut self.turn.quit
        {
            quit.is_over = true;
            let status = quit.status;
            self.faults.tell_all(&mut self.turn);
            self.turn.log(format!("Exit with status {status}"));
            self.turn.push(Effect::Exit { status });
        }
    }
}
