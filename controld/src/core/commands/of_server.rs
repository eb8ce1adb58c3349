//! Commands that name a server: what is asked of it, told to it and done to it, and that they wait for its start.

use super::answers::GatherKind;
use crate::core::Core;
use crate::core::Effect;
use crate::core::ids::{Pid, ServerEpoch, SessionId, Uid};
use crate::core::servers::questions::{Asked, Purpose};
use crate::core::servers::server::ServerState;
use core::time::Duration;
use remps_proto::admin::command::Command;
use remps_proto::admin::defaults::answer_without_server;
use remps_proto::admin::reply::{self, ServerStatus};
use remps_proto::mps::device::DeviceKey;
use remps_proto::mps::server::Request;

/// A command for a server that is still starting.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Deferred {
    /// When the user gets the vendor's empty answer after all.
    pub(super) deadline: Duration,
    session: SessionId,
    whose: Option<Uid>,
    server: ServerEpoch,
    command: Command,
}

fn wire_key(device: &remps_proto::admin::limits::DeviceKey) -> Option<DeviceKey> {
    DeviceKey::new(&device.to_string())
}

impl Core {
    /// Asks a server something whose answer is a command's.
    pub(super) fn ask_for(&mut self, server: ServerEpoch, request: Request, asked: Asked) {
        self.servers.ask(&mut self.turn, server, request, Purpose::Command(asked));
    }

    /// A command that names a server which exists, of somebody who may see the clients of this user, or of all.
    pub(super) fn server_command(
        &mut self,
        session: SessionId,
        whose: Option<Uid>,
        epoch: ServerEpoch,
        starting: bool,
        command: Command,
    ) {
        match command {
            Command::GetServerStatus { .. } if starting => {
                self.answer(session, vec![ServerStatus::Initializing.word().to_owned()]);
            }
            Command::ShutdownServer { force, .. } => {
                if force {
                    self.servers.drain(&mut self.turn, epoch, None, false);
                    self.servers.force(&mut self.turn, epoch);
                } else {
                    self.servers.drain(&mut self.turn, epoch, None, false);
                }
                self.answer(session, vec![]);
            }
            command if starting => {
                let deadline = self.turn.now + self.turn.policy.constants.command_patience;
                self.commands.deferred.push(Deferred { deadline, session, whose, server: epoch, command });
            }
            Command::GetServerStatus { .. } => self.ask_for(epoch, Request::Status, Asked::Status(session)),
            Command::GetClientList { .. } => self.ask_for(epoch, Request::Clients, Asked::Clients(session)),
            Command::GetDeviceClientList { .. } => self.gather(session, GatherKind::DeviceClients, &[epoch]),
            Command::Ps { .. } => self.gather(session, GatherKind::Ps { of: whose, within: None }, &[epoch]),
            Command::GetActiveThreadPercentage { .. } => {
                self.ask_for(epoch, Request::GetThreadPercentage, Asked::Percentage(session));
            }
            Command::SetActiveThreadPercentage { percentage, .. } => {
                match percentage {
                    Ok(percentage) => {
                        let request = Request::SetThreadPercentage(percentage.get());
                        self.turn.push(Effect::Tell { server: epoch, request });
                        self.servers.note_threads(epoch, percentage.get());
                        self.servers.has_own_limits(epoch);
                        self.turn.save();
                    }
                    Err(invalid) => self.turn.log(invalid.to_string()),
                }
                self.ask_for(epoch, Request::GetThreadPercentage, Asked::Percentage(session));
            }
            Command::GetDevicePinnedMemLimit { device, .. } => match device.map(|device| wire_key(&device)) {
                Ok(Some(device)) => self.ask_for(epoch, Request::GetPinnedLimit(device), Asked::PinnedLimit(session)),
                _ => self.answer(session, vec![]),
            },
            Command::SetDevicePinnedMemLimit { device, limit, .. } => {
                match (device.map(|device| wire_key(&device)), limit) {
                    (Ok(Some(device)), Ok(limit)) => {
                        let request = Request::SetPinnedLimit(device, limit.0);
                        self.turn.push(Effect::Tell { server: epoch, request });
                        self.servers.has_own_limits(epoch);
                        self.turn.save();
                    }
                    (Err(invalid), _) => self.turn.log(invalid.to_string()),
                    (_, Err(invalid)) => self.turn.log(invalid.to_string()),
                    (Ok(None), _) => {}
                }
                self.answer(session, vec![]);
            }
            Command::TerminateClient { client, .. } => match Pid::try_from(client) {
                Ok(client) if client != 0 => {
                    self.ask_for(epoch, Request::Clients, Asked::TerminateLookup(session, client));
                }
                // Which of those without a pid that is nobody can say.
                _ => self.answer(session, reply::terminate_invalid_process(client)),
            },
            other => self.answer(session, answer_without_server(&other).unwrap_or_default()),
        }
    }

    /// Commands whose server has become ready, is gone, or takes too long.
    pub(in crate::core) fn advance_deferred(&mut self) {
        let (due, still): (Vec<Deferred>, Vec<Deferred>) =
            core::mem::take(&mut self.commands.deferred).into_iter().partition(|deferred| {
                deferred.deadline <= self.turn.now
                    || self.servers.get(deferred.server).is_none_or(|server| {
                        server.ready_at.is_some() || matches!(server.state, ServerState::Ending { .. })
                    })
            });
        self.commands.deferred = still;
        for Deferred { session, whose, server, command, .. } in due {
            match self.servers.get(server) {
                Some(found) if found.ready_at.is_some() => {
                    self.server_command(session, whose, server, false, command);
                }
                Some(_) => self.answer(session, vec![]),
                None => self.answer(session, answer_without_server(&command).unwrap_or_default()),
            }
        }
    }
}

/// The server that a command names.
pub(super) fn named_server(command: &Command) -> Option<i32> {
    match command {
        Command::GetServerStatus { server } | Command::GetDeviceClientList { server } | Command::Ps { server } => {
            *server
        }
        Command::ShutdownServer { server, .. }
        | Command::GetClientList { server }
        | Command::SetActiveThreadPercentage { server, .. }
        | Command::GetActiveThreadPercentage { server }
        | Command::SetDevicePinnedMemLimit { server, .. }
        | Command::GetDevicePinnedMemLimit { server, .. }
        | Command::TerminateClient { server, .. } => Some(*server),
        _ => None,
    }
}
