//! What the command line is answered.
//!
//! | part | is |
//! |---|---|
//! | this file | what is done at once |
//! | [`rights`] | who may do what |
//! | [`answers`] | what servers say to it |
//! | [`of_server`] | what is done with the server that they name |
//! | [`hidden`] | what differs of clients without a pid here |
//! | [`named`] | what changes named servers and namespaces |
//! | [`joins`] | how thin daemons join and go |
//! | [`within`] | what is answered in their directories |
#![expect(clippy::wildcard_enum_match_arm, reason = "most commands share one answer in each of these places")]

mod answers;
mod default_limits;
mod hidden;
mod joins;
mod keeping;
mod named;
mod of_server;
mod rights;
mod within;

pub(super) use rights::Asker;

use super::clients::client::Stage;
use super::ids::{EntranceId, Pid, ServerEpoch, SessionId, Uid};
use super::servers::server::Server;
use super::{Core, Effect, PsRow};
use crate::core::Device;
use answers::{Gather, GatherKind};
use core::time::Duration;
use of_server::{Deferred, named_server};
use remps_proto::admin::command::{Command, SmPartition};
use remps_proto::admin::defaults::{Applied, answer_before_server, answer_without_server};
use remps_proto::admin::reply::{self, ClientRow, PciAddress, SmDevice};
use remps_proto::mps::device::DeviceInfo;
use remps_proto::mps::server::Request;
use slab::Slab;

/// Commands that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Commands {
    deferred: Vec<Deferred>,
    gathers: Slab<Gather>,
    pending: named::Pending,
    endings: Vec<joins::Ending>,
    keeping: keeping::Keeping,
}

impl Commands {
    /// When the first one is answered that waits for its server's start.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deferred.iter().map(|deferred| deferred.deadline).min()
    }
}

/// The address that `get_device_client_list` prints.
fn pci(info: &DeviceInfo) -> PciAddress {
    let byte = |number: u32| u8::try_from(number & 0xff).unwrap_or_default();
    PciAddress { domain: 0, bus: byte(info.first), device: byte(info.second), function: 0 }
}

impl Core {
    pub(super) fn command(&mut self, session: SessionId, asker: &Asker, line: &[u8]) {
        let command = Command::parse(line, self.turn.policy.personality);
        if !command.is_look() {
            let text = String::from_utf8_lossy(line);
            self.turn.log(format!("Cmd:{}", text.trim_end_matches(['\n', '\0'])));
        }
        self.perform(session, asker, command);
    }

    fn server_by_pid(&self, pid: i32) -> Option<&Server> {
        let pid = Pid::try_from(pid).ok().filter(|&pid| pid != 0)?;
        self.servers.iter().find(|server| server.pid == Some(pid))
    }

    /// The server of a client that `asker` may see.
    fn server_of_client(&self, asker: &Asker, client: Pid) -> Option<i32> {
        let of = self.only_own(asker);
        let process = self.clients.process(client).filter(|process| of.is_none_or(|uid| uid == process.uid))?;
        self.servers.get(process.server)?.pid.and_then(|pid| i32::try_from(pid).ok())
    }

    fn perform(&mut self, session: SessionId, asker: &Asker, command: Command) {
        let peer = asker.peer;
        if !self.is_permitted(asker, &command) {
            let lines = self.refusal(peer, &command);
            if matches!(command, Command::Change(_)) {
                self.turn.push(Effect::AnswerFailure { session, reason: lines });
            } else {
                self.answer(session, lines);
            }
            return;
        }
        if let Some(within) = asker.rights.within {
            return self.perform_within(session, asker, within, command);
        }
        if self.perform_default(session, &command) {
            return;
        }
        if let Some(lines) = answer_before_server(&command, self.turn.policy.personality) {
            self.answer(session, lines);
            return;
        }
        self.perform_own(session, asker, command);
    }

    /// A command about defaults is done.
    fn applied(&mut self, session: SessionId, applied: Applied) {
        if let Some(remark) = applied.remark {
            self.turn.log(remark);
        }
        if applied.changed {
            self.turn.save();
        }
        self.answer(session, applied.answer);
    }

    /// A command about nothing but what the asker has to do with.
    fn perform_own(&mut self, session: SessionId, asker: &Asker, command: Command) {
        let peer = asker.peer;
        match command {
            Command::Quit { timeout_s } => {
                if let Some(seconds) = timeout_s {
                    self.turn.log(format!("quit command issued with timeout of {seconds}"));
                }
                self.quit(Some(session), timeout_s.map(|seconds| Duration::from_secs(seconds.into())));
            }
            Command::StartServer { uid: Some(uid), .. } => {
                if self.turn.quit.is_none() {
                    let domain = self.servers.domain_of_user(
                        &self.turn.policy,
                        uid,
                        if uid == peer.uid { peer.gid } else { uid },
                    );
                    self.servers.request_server(domain);
                }
                self.answer(session, vec![]);
            }
            Command::GetServerList => {
                let pids = self.servers.iter().filter_map(|server| server.pid).map(|pid| pid.to_string()).collect();
                self.answer(session, pids);
            }
            // Who waits while no server can be started is shown too.
            Command::Ps { server: None } if !self.servers.are_none() || self.clients.all_waiting() > 0 => {
                let servers = self.connected_servers();
                self.gather(session, GatherKind::Ps { of: self.only_own(asker), within: None }, &servers);
            }
            Command::GetDeviceClientList { server: None } if !self.servers.are_none() => {
                let servers = self.connected_servers();
                self.gather(session, GatherKind::DeviceClients, &servers);
            }
            // 580 shows every server, whichever is named.
            Command::DeviceQuery { server, csv } if server.is_none_or(|pid| self.server_by_pid(pid).is_some()) => {
                let servers = self.connected_servers();
                self.gather(session, GatherKind::DeviceQuery { csv }, &servers);
            }
            Command::EndClient { client } => match self.server_of_client(asker, client) {
                Some(server) => {
                    let client = i32::try_from(client).unwrap_or_default();
                    self.perform(session, asker, Command::TerminateClient { server, client });
                }
                None => {
                    let reason = vec![format!("Client {client} not found")];
                    self.turn.push(Effect::AnswerFailure { session, reason });
                }
            },
            Command::ListDevices { server, format } => self.list_devices(session, server, format),
            Command::Change(change) => self.change(session, asker, change),
            Command::Lspart => self.turn.push(Effect::ListDevices { session }),
            Command::Report(report) => self.turn.push(Effect::Report { session, peer, report }),
            Command::SmPartition(SmPartition::Add { chunks, .. }) => {
                self.turn.log("No server release whose partitions this daemon can make is known");
                self.answer(session, vec![reply::partition_refused(chunks)]);
            }
            Command::SmPartition(SmPartition::Remove { device, partition }) => {
                self.answer(session, vec![format!("Failed to find partition {device}/{partition}")]);
            }
            other => match named_server(&other).and_then(|pid| self.server_by_pid(pid)) {
                Some(server) => {
                    let (epoch, starting) = (server.epoch, server.ready_at.is_none());
                    self.server_command(session, self.only_own(asker), epoch, starting, other);
                }
                None => self.answer(session, answer_without_server(&other).unwrap_or_default()),
            },
        }
    }

    fn connected_servers(&self) -> Vec<ServerEpoch> {
        self.servers.iter().filter(|server| server.is_connected()).map(|server| server.epoch).collect()
    }

    /// A new default priority reaches running servers at once.
    fn tell_priority(&mut self) {
        let priority = self.defaults.priority().get();
        for server in self.connected_servers() {
            if self.has_own_priority(server) {
                continue;
            }
            self.turn.push(Effect::Tell { server, request: Request::SetPriority(priority) });
        }
    }

    /// The clients that wait for a server, as rows of `ps`, of this user or of all.
    fn waiting_rows(&self, of: Option<Uid>, within: Option<EntranceId>) -> Vec<PsRow> {
        self.clients
            .iter()
            .filter(|client| {
                client.stage == Stage::Waiting
                    && client.spare.is_none()
                    && of.is_none_or(|uid| uid == client.peer.uid)
                    && within.is_none_or(|entrance| self.is_within(client.domain, &[entrance]))
            })
            .map(|client| {
                let server = self.servers.active(client.domain).and_then(|server| server.pid).unwrap_or_default();
                PsRow(ClientRow {
                    pid: client.peer.pid,
                    id: 0,
                    server,
                    device: "(waiting)".to_owned(),
                    namespace: None,
                    command: client.identity.program.clone(),
                })
            })
            .collect()
    }

    /// `lspart`: every device with all its SMs free, since no partition can be made.
    fn lspart_listed(&mut self, session: SessionId, devices: Result<Vec<Device>, String>) {
        let lines = match devices {
            Ok(devices) => {
                let devices: Vec<SmDevice> = devices
                    .into_iter()
                    .map(|device| SmDevice {
                        free_chunks: device.multiprocessors / device.chunk(),
                        free_sms: device.multiprocessors,
                        uuid: device.row.uuid,
                        used_chunks: 0,
                        used_sms: 0,
                        partitions: vec![],
                    })
                    .collect();
                reply::lspart(&devices)
            }
            Err(reason) => {
                self.turn.log(format!("The devices can't be listed: {reason}"));
                vec![]
            }
        };
        self.answer(session, lines);
    }
}
