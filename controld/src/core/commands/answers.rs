//! What servers answer to commands, also where a command asks several of them.

use super::pci;
use crate::core::Device;
use crate::core::evidence::Evidence;
use crate::core::ids::{EntranceId, Pid, ServerEpoch, SessionId, Uid, is_stand_in};
use crate::core::servers::questions::Asked;
use crate::core::{Core, Effect, NoReply, PsRow, Sharing};
use remps_proto::admin::limits::MemLimit;
use remps_proto::admin::reply::{self, ClientRow, DeviceRow, PciAddress, ServerStatus};
use remps_proto::mps::device::DeviceRecord;
use remps_proto::mps::server::{Reply, Request};
use std::collections::BTreeMap;

/// A command that asks several servers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gather {
    session: SessionId,
    kind: GatherKind,
    due: usize,
    parts: BTreeMap<ServerEpoch, (Pid, Option<Reply>)>,
    own_devices: Option<Result<Vec<Device>, String>>,
}

/// Which command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatherKind {
    /// `ps`, for a user who sees his own clients only, or for one who sees all.
    Ps {
        /// Whose clients are shown; `None` is everybody's.
        of: Option<Uid>,
        /// Of which server's entrance alone.
        within: Option<EntranceId>,
    },
    /// `get_device_client_list`.
    DeviceClients,
    /// `device_query`, with the daemon's own devices first.
    DeviceQuery {
        /// Comma-separated.
        csv: bool,
    },
}

impl Core {
    /// A server has answered, or has not, what it was asked on account of a command.
    pub(in crate::core) fn command_answered(
        &mut self,
        server: ServerEpoch,
        pid: Pid,
        asked: Asked,
        reply: Result<Reply, NoReply>,
    ) {
        match asked {
            Asked::Status(session) => {
                if matches!(reply, Ok(Reply::Active(false))) {
                    self.evidence(Evidence::ServerStatus { server });
                }
                let lines = match reply {
                    Ok(Reply::Active(true)) => vec![ServerStatus::Active.word().to_owned()],
                    Ok(Reply::Active(false)) => vec![ServerStatus::Fault.word().to_owned()],
                    other => self.no_answer(pid, other),
                };
                self.answer(session, lines);
            }
            Asked::Clients(session) => {
                let lines = match reply {
                    Ok(Reply::Clients(pids)) => self.shown_clients(server, &pids),
                    other => self.no_answer(pid, other),
                };
                self.answer(session, lines);
            }
            Asked::Percentage(session) => {
                let lines = match reply {
                    Ok(Reply::ThreadPercentage(percentage)) => vec![reply::percentage(percentage)],
                    other => self.no_answer(pid, other),
                };
                self.answer(session, lines);
            }
            Asked::PinnedLimit(session) => {
                let lines = match reply {
                    Ok(Reply::PinnedLimit(0)) => vec![],
                    Ok(Reply::PinnedLimit(bytes)) => {
                        vec![MemLimit(bytes).to_string()]
                    }
                    other => self.no_answer(pid, other),
                };
                self.answer(session, lines);
            }
            Asked::TerminateLookup(session, client) => match reply {
                Ok(Reply::Clients(pids)) if is_stand_in(client) => self.end_hidden(session, server, client, &pids),
                Ok(Reply::Clients(pids)) if pids.contains(&client) => {
                    self.ask_for(server, Request::TerminateClient(client), Asked::Terminate(session));
                }
                Ok(Reply::Clients(_)) => {
                    let client = i32::try_from(client).unwrap_or(i32::MAX);
                    self.answer(session, reply::terminate_invalid_process(client));
                }
                other => {
                    let mut lines = self.no_answer(pid, other);
                    lines.push(reply::NOT_TERMINATED.to_owned());
                    self.answer(session, lines);
                }
            },
            Asked::TerminateHidden(session, client) => self.hidden_ended(session, server, client, &reply),
            Asked::Terminate(session) => {
                let lines = match reply {
                    Ok(Reply::Terminated(status)) => vec![status.to_string()],
                    other => {
                        let mut lines = self.no_answer(pid, other);
                        lines.push(reply::NOT_TERMINATED.to_owned());
                        lines
                    }
                };
                self.answer(session, lines);
            }
            Asked::Part(gather) => self.part_answered(gather, server, reply),
        }
    }

    /// What the user is told when a server gives no usable answer.
    fn no_answer(&mut self, pid: Pid, reply: Result<Reply, NoReply>) -> Vec<String> {
        match reply {
            // A server that went away while it was asked is not found any longer.
            Err(NoReply::Lost) => vec![reply::server_not_found(i32::try_from(pid).unwrap_or(i32::MAX))],
            Err(NoReply::Unsupported) => {
                self.turn.log(format!("Server {pid}: {}", NoReply::Unsupported));
                vec![]
            }
            Err(NoReply::TimedOut) => {
                let line = format!("Server {pid} does not answer");
                self.turn.log(line.clone());
                vec![line]
            }
            Ok(_) => vec![],
        }
    }

    pub(in crate::core) fn answer(&mut self, session: SessionId, lines: Vec<String>) {
        self.turn.push(Effect::Answer { session, lines });
    }

    // ---- commands that ask several servers -----------------------------------------------------------------------

    /// Asks these servers and answers when all have answered.
    pub(super) fn gather(&mut self, session: SessionId, kind: GatherKind, servers: &[ServerEpoch]) {
        let own = matches!(kind, GatherKind::DeviceQuery { .. });
        let due = servers.len() + usize::from(own);
        let key =
            self.commands.gathers.insert(Gather { session, kind, due, parts: BTreeMap::new(), own_devices: None });
        if own {
            self.turn.push(Effect::ListDevices { session });
        }
        for &server in servers {
            let request = match kind {
                GatherKind::Ps { .. } => Request::Snapshot,
                GatherKind::DeviceClients => Request::DeviceClients,
                GatherKind::DeviceQuery { .. } => Request::QueryDevices,
            };
            self.ask_for(server, request, Asked::Part(key));
        }
        self.finish_gather(key);
    }

    fn part_answered(&mut self, key: usize, server: ServerEpoch, reply: Result<Reply, NoReply>) {
        let pid = self.servers.get(server).and_then(|server| server.pid).unwrap_or_default();
        if let Some(gather) = self.commands.gathers.get_mut(key) {
            gather.due = gather.due.saturating_sub(1);
            gather.parts.insert(server, (pid, reply.ok()));
            self.finish_gather(key);
        }
    }

    pub(in crate::core) fn devices_listed(&mut self, session: SessionId, devices: Result<Vec<Device>, String>) {
        if self.devices_awaited(session, &devices) {
            return;
        }
        let found =
            self.commands.gathers.iter().find(|(_, gather)| gather.session == session && gather.own_devices.is_none());
        let Some((key, _)) = found else {
            self.lspart_listed(session, devices);
            return;
        };
        if let Some(gather) = self.commands.gathers.get_mut(key) {
            gather.due = gather.due.saturating_sub(1);
            gather.own_devices = Some(devices);
        }
        self.finish_gather(key);
    }

    fn finish_gather(&mut self, key: usize) {
        if self.commands.gathers.get(key).is_none_or(|gather| gather.due > 0) {
            return;
        }
        let gather = self.commands.gathers.remove(key);
        match gather.kind {
            GatherKind::Ps { of, within } => self.finish_ps(&gather, of, within),
            GatherKind::DeviceClients => {
                let lines = self.device_clients(&gather);
                self.answer(gather.session, lines);
            }
            GatherKind::DeviceQuery { csv } => {
                let lines = self.device_query(&gather, csv);
                self.answer(gather.session, lines);
            }
        }
    }

    fn finish_ps(&mut self, gather: &Gather, of: Option<Uid>, within: Option<EntranceId>) {
        let mut rows = Vec::new();
        for (epoch, (pid, part)) in &gather.parts {
            let Some(Reply::Snapshot(contexts)) = part else {
                continue;
            };
            // A client that the daemon does not know is its server's user's, where a server has one.
            let owner = self.servers.get(*epoch).filter(|_| self.turn.policy.sharing != Sharing::MultiUser);
            let owner = owner.map(|server| server.uid);
            let hidden = self.hidden_rows(*epoch, *pid, contexts);
            let are_all_known = !hidden.is_empty() && !self.has_unknown_clients(*epoch);
            rows.extend(hidden.into_iter().filter(|PsRow(row)| self.is_row_shown(of, None, row.pid)));
            let named = contexts.iter().filter(|context| context.pid != 0 || !are_all_known);
            let shown = named.filter(|context| self.is_row_shown(of, owner, context.pid));
            rows.extend(shown.map(|context| {
                PsRow(ClientRow {
                    pid: context.pid,
                    id: u32::try_from(context.id).unwrap_or(u32::MAX),
                    server: *pid,
                    device: context.device.to_string(),
                    namespace: None,
                    command: self.clients.program_of(context.pid),
                })
            }));
        }
        // Who waits is shown too; the vendor shows nobody until it is served.
        rows.extend(self.waiting_rows(of, within));
        self.turn.push(Effect::AnswerPs { session: gather.session, rows });
    }

    /// `get_device_client_list`: the vendor prints the devices of a server last one first.
    fn device_clients(&self, gather: &Gather) -> Vec<String> {
        let mut lines = Vec::new();
        for (epoch, (_, part)) in &gather.parts {
            let Some(Reply::DeviceClients(devices)) = part else {
                continue;
            };
            for device in devices.iter().rev() {
                lines.push(reply::device_clients_heading(device.info.second, pci(&device.info), &device.info.name));
                let own = device.clients.iter();
                lines.extend(
                    own.map(|client| reply::client_on_device(self.shown_pid(*epoch, client.pid), client.context)),
                );
            }
        }
        lines
    }

    fn device_query(&mut self, gather: &Gather, csv: bool) -> Vec<String> {
        let own = match &gather.own_devices {
            Some(Ok(devices)) => devices.iter().map(|device| device.row.clone()).collect(),
            Some(Err(reason)) => {
                self.turn.log(format!("The devices can't be listed: {reason}"));
                Vec::new()
            }
            None => Vec::new(),
        };
        let mut lines = reply::device_query("Default", &own, csv);
        for (pid, part) in gather.parts.values() {
            if let Some(Reply::Devices(devices)) = part {
                let rows: Vec<DeviceRow> = devices.iter().map(device_row).collect();
                lines.push(String::new());
                lines.extend(reply::device_query(&format!("Server {pid}"), &rows, csv));
            }
        }
        lines
    }
}

fn device_row(record: &DeviceRecord) -> DeviceRow {
    let byte = |number: u32| u8::try_from(number & 0xff).unwrap_or_default();
    DeviceRow {
        ordinal: record.ordinal,
        pci: PciAddress { domain: record.domain, bus: byte(record.bus), device: byte(record.device), function: 0 },
        uuid: record.uuid.to_string(),
        name: record.name.clone(),
        attributes: None,
    }
}
