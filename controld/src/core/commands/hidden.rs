//! Clients without a pid here, as commands show and end them.
//!
//! A server names each of them by pid 0 and knows no other name. So the lists that servers give have the numbers in place
//! of that ([`stand_in`](crate::core::clients::stand_in)), and a server is asked to end pid 0 only where that can be one
//! process alone. What is done for whom:
//!
//! | on its server there is | `terminate_client` |
//! |---|---|
//! | no other client without a pid | the server is asked, and takes the client's work off the GPU |
//! | nobody else at all, and the server refuses | the server is ended, which ends the client's contexts and nobody else's |
//! | another client without a pid, or somebody whom nobody tells apart | refused: it would be the other's end as well |

use super::Core;
use crate::core::ids::{Pid, ServerEpoch, SessionId, Uid, is_stand_in};
use crate::core::servers::questions::Asked;
use crate::core::{NoReply, PsRow};
use remps_proto::admin::reply::{self, ClientRow};
use remps_proto::mps::server::{ClientContext, Reply, Request};

/// In the column of the device, where nobody can say which one it is.
const UNKNOWN_DEVICE: &str = "(unknown)";

impl Core {
    /// Those that a server lists as pid 0, as far as they are known: who has a context there.
    fn listed_hidden(&self, server: ServerEpoch) -> Vec<Pid> {
        let has_context = |pid: &Pid| self.clients.process(*pid).is_some_and(|it| it.contexts_made() != Some(0));
        self.clients.hidden_on(server).into_iter().filter(has_context).collect()
    }

    /// Whether a server may have clients that nobody tells apart.
    pub(super) fn has_unknown_clients(&self, server: ServerEpoch) -> bool {
        self.servers.get(server).is_none_or(|server| server.has_unknown_clients)
    }

    /// Whether a server's pid 0 may be somebody whom nobody tells apart.
    fn may_be_unknown(&self, server: ServerEpoch, known: &[Pid]) -> bool {
        known.is_empty() || self.has_unknown_clients(server)
    }

    /// A server's list of clients, as it is shown.
    pub(super) fn shown_clients(&self, server: ServerEpoch, pids: &[Pid]) -> Vec<String> {
        let known = self.listed_hidden(server);
        let mut shown: Vec<Pid> = pids.iter().copied().filter(|pid| *pid != 0).collect();
        let zeros = pids.len() - shown.len();
        if zeros > 0 {
            shown.extend(&known);
            if self.may_be_unknown(server, &known) {
                shown.extend(std::iter::repeat_n(0, zeros));
            }
        }
        shown.iter().map(u32::to_string).collect()
    }

    /// The rows of `ps` for what a server lists as pid 0.
    pub(super) fn hidden_rows(&self, server: ServerEpoch, pid: Pid, contexts: &[ClientContext]) -> Vec<PsRow> {
        let zeros: Vec<&ClientContext> = contexts.iter().filter(|context| context.pid == 0).collect();
        let Some(first) = zeros.first() else { return Vec::new() };
        let known = self.listed_hidden(server);
        let is_one = zeros.iter().all(|context| context.device == first.device);
        let device = if is_one { first.device.to_string() } else { UNKNOWN_DEVICE.to_owned() };
        let id = if zeros.len() == 1 && known.len() == 1 { u32::try_from(first.id).unwrap_or(u32::MAX) } else { 0 };
        let row = |client: Pid| {
            let (device, command) = (device.clone(), self.clients.program_of(client));
            PsRow(ClientRow { pid: client, id, server: pid, device, namespace: None, command })
        };
        known.into_iter().map(row).collect()
    }

    /// Which process a server's client of this pid is, as far as that is known.
    pub(super) fn shown_pid(&self, server: ServerEpoch, pid: Pid) -> Pid {
        match self.listed_hidden(server)[..] {
            [only] if pid == 0 && !self.may_be_unknown(server, &[only]) => only,
            _ => pid,
        }
    }

    /// Whether a row of a server's client is for whoever sees the clients of this user, or of all.
    pub(super) fn is_row_shown(&self, of: Option<Uid>, owner: Option<Uid>, client: Pid) -> bool {
        of.is_none_or(|uid| self.process_user(client).or(owner).is_some_and(|user| user == uid))
    }

    /// A server has said which clients it has, one of whom is to be ended that has no pid here.
    pub(super) fn end_hidden(&mut self, session: SessionId, server: ServerEpoch, client: Pid, listed: &[Pid]) {
        let is_there = self.clients.process(client).is_some_and(|process| process.server == server);
        if !is_there || !listed.contains(&0) {
            let client = i32::try_from(client).unwrap_or(i32::MAX);
            return self.answer(session, reply::terminate_invalid_process(client));
        }
        if self.is_only_hidden(server, client) {
            return self.ask_for(server, Request::TerminateClient(0), Asked::TerminateHidden(session, client));
        }
        self.end_with_server(session, server, client);
    }

    /// The server has ended the only client of pid 0, or has not.
    pub(super) fn hidden_ended(
        &mut self,
        session: SessionId,
        server: ServerEpoch,
        client: Pid,
        reply: &Result<Reply, NoReply>,
    ) {
        if matches!(reply, Ok(Reply::Terminated(0))) {
            self.turn.log(format!("Client {client} is ended by its server, of which it is the only one without a pid"));
            return self.answer(session, vec![reply::TERMINATED.to_owned()]);
        }
        let is_there = self.clients.process(client).is_some_and(|process| process.server == server);
        if !is_there || matches!(reply, Err(NoReply::Lost)) {
            // It has ended meanwhile, or its server has.
            let client = i32::try_from(client).unwrap_or(i32::MAX);
            return self.answer(session, reply::terminate_invalid_process(client));
        }
        self.end_with_server(session, server, client);
    }

    /// Ends a client with its server, if that harms nobody else.
    fn end_with_server(&mut self, session: SessionId, server: ServerEpoch, client: Pid) {
        if !self.has_unknown_clients(server) && is_stand_in(client) && self.clients.is_alone_on(server, client) {
            self.turn.log(format!("Client {client} is ended with its server, of which it is the only client"));
            self.servers.drain(&mut self.turn, server, None, false);
            self.servers.force(&mut self.turn, server);
            return self.answer(session, vec![reply::TERMINATED.to_owned()]);
        }
        let line = format!(
            "Client {client} has no pid here and can't be ended apart from others on its server (shutdown_server -f ends \
             all of them)"
        );
        self.answer(session, vec![line, reply::NOT_TERMINATED.to_owned()]);
    }
}
