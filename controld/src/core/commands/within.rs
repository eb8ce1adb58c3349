//! Commands given in the directory of a thin daemon: they are about its server alone, as if that were a daemon of its own.

use super::answers::GatherKind;
use super::of_server::named_server;
use super::rights::Asker;
use crate::core::ids::{EntranceId, ServerEpoch, SessionId};
use crate::core::peer::Entrance;
use crate::core::{Core, Effect};
use core::time::Duration;
use remps_proto::admin::command::Command;
use remps_proto::admin::defaults::{answer_before_server, answer_without_server};
use remps_proto::admin::limits::Priority;
use remps_proto::admin::module::{DEFAULT_NAMESPACE, Limits};
use remps_proto::admin::report::Report;

impl Core {
    fn has_server(&self, entrance: EntranceId, pid: i32) -> bool {
        self.server_by_pid(pid).is_some_and(|server| self.is_within(server.domain, &[entrance]))
    }

    fn connected_within(&self, entrance: EntranceId) -> Vec<ServerEpoch> {
        let connected = self.connected_servers();
        self.servers_within(&[entrance]).into_iter().filter(|epoch| connected.contains(epoch)).collect()
    }

    /// A command that whoever asks may use, of somebody who has come to this entrance.
    pub(super) fn perform_within(&mut self, session: SessionId, asker: &Asker, within: EntranceId, command: Command) {
        let Some((Entrance { server: name, .. }, _)) = self.servers.named().find(within) else {
            return self.perform_at_the_end(session, within, &command);
        };
        let joined = self.servers.named_mut().get_mut(&name).and_then(|server| server.joined.as_mut());
        if let Some(applied) = joined.and_then(|joined| joined.defaults.apply(&command)) {
            let is_priority = matches!(command, Command::SetDefaultClientPriority { .. });
            if applied.changed && is_priority {
                let said = Limits { priority: Some(Priority::Normal), ..Limits::default() };
                self.tell_limits(&name, DEFAULT_NAMESPACE, said);
            }
            if applied.changed {
                self.tell_join(&name);
            }
            return self.applied(session, applied);
        }
        if let Some(lines) = answer_before_server(&command, self.turn.policy.personality) {
            return self.answer(session, lines);
        }
        // A server of somebody else's is one that there is not.
        let named = match &command {
            Command::DeviceQuery { server, .. } => *server,
            other => named_server(other),
        };
        if named.is_some_and(|pid| !self.has_server(within, pid)) {
            return self.answer(session, answer_without_server(&command).unwrap_or_default());
        }
        match command {
            Command::Quit { timeout_s } => {
                let timeout = timeout_s.map(|seconds| Duration::from_secs(seconds.into()));
                let force_at = timeout.and_then(|timeout| self.turn.now.checked_add(timeout));
                self.take_down(&name, Some(session), force_at);
            }
            Command::StartServer { uid: Some(uid), .. } => {
                let gid = if uid == asker.peer.uid { asker.peer.gid } else { uid };
                let entrance = self.servers.named().entrance_of(&name);
                let domain = self.servers.domain_of_entrance(&self.turn.policy, uid, gid, entrance);
                self.servers.request_server(domain);
                self.answer(session, vec![]);
            }
            Command::GetServerList => {
                let of_it = self.servers_within(&[within]);
                let pids = of_it.iter().filter_map(|epoch| self.servers.get(*epoch)?.pid);
                let pids = pids.map(|pid| pid.to_string()).collect();
                self.answer(session, pids);
            }
            Command::Ps { server: None } if self.has_anybody(within) => {
                let kind = GatherKind::Ps { of: self.only_own(asker), within: Some(within) };
                self.gather(session, kind, &self.connected_within(within));
            }
            Command::GetDeviceClientList { server: None } => {
                self.gather(session, GatherKind::DeviceClients, &self.connected_within(within));
            }
            Command::DeviceQuery { csv, .. } => {
                self.gather(session, GatherKind::DeviceQuery { csv }, &self.connected_within(within));
            }
            Command::EndClient { client }
                if !self.server_of_client(asker, client).is_some_and(|pid| self.has_server(within, pid)) =>
            {
                let reason = vec![format!("Client {client} not found")];
                self.turn.push(Effect::AnswerFailure { session, reason });
            }
            Command::Report(Report::Misused { .. }) | Command::Ps { server: None } => {
                self.answer(session, answer_without_server(&command).unwrap_or_default());
            }
            // Whoever answers shows what is the claim's alone.
            Command::Report(
                report @ (Report::Status { .. }
                | Report::Faults { .. }
                | Report::FaultEvents { .. }
                | Report::Client { .. }
                | Report::Channels { .. }),
            ) => self.turn.push(Effect::Report { session, peer: asker.peer, report }),
            Command::Report(_) | Command::Change(_) | Command::ListDevices { .. } => {
                let reason = vec!["This daemon has joined another one, which alone answers that".to_owned()];
                self.turn.push(Effect::AnswerFailure { session, reason });
            }
            other => self.perform_own(session, asker, other),
        }
    }

    /// Whether there is a process of this server, or a client that waits for one.
    fn has_anybody(&self, entrance: EntranceId) -> bool {
        !self.servers_within(&[entrance]).is_empty() || !self.connections_within(&[entrance]).is_empty()
    }

    /// A command for a server that has been told to quit.
    fn perform_at_the_end(&mut self, session: SessionId, within: EntranceId, command: &Command) {
        if let Command::Quit { timeout_s } = command {
            let timeout = timeout_s.map(|seconds| Duration::from_secs(seconds.into()));
            let force_at = timeout.and_then(|timeout| self.turn.now.checked_add(timeout));
            if !self.ends_already(within, session, force_at) {
                self.turn.push(Effect::EndSession { session });
            }
            return;
        }
        let reason = vec!["This daemon is about to end".to_owned()];
        self.turn.push(Effect::AnswerFailure { session, reason });
    }
}
