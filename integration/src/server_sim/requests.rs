//! The daemon's requests and their answers.

use super::Failure;
use super::behaviour::{Step, hang};
use super::connection::Connection;
use super::event_loop::Server;
use nix::errno::Errno;
use remps_proto::mps::client::PROCESS_CONTEXT;
use remps_proto::mps::decode_u32;
use remps_proto::mps::device::{DeviceKey, DeviceUuid};
use remps_proto::mps::server::{ClientContext, DeviceClients, Reply, Request};
use sim_wire::rpc::Notice;
use sim_wire::seqpacket::{Packet, Seqpacket};
use std::collections::BTreeSet;

/// `CUDA_ERROR_INVALID_CONTEXT`, the answer to a termination of somebody who has no context.
const INVALID_CONTEXT: u32 = 201;

impl Server {
    /// Handles one packet from the daemon.
    pub(super) fn handle_packet(&mut self, packet: Packet) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_snapshot_unconfirmed) {
            decode_u32("snapshot confirmation", &packet.bytes)?;
            return Ok(());
        }
        let Some(request) = self.decoder.feed(&packet.bytes)? else { return Ok(()) };
        if self.behaviour.hang_request == Some(request.operation().0) {
            hang();
        }
        let sent = self.answer(&request, packet).map_or(Ok(()), |reply| self.send(&reply));
        if matches!(request, Request::Shutdown) && self.is_ending {
            // The daemon of 535 closes without waiting for the answer.
            self.log.say("Exiting");
            return Ok(());
        }
        sent
    }

    fn send(&self, reply: &Reply) -> Result<(), Failure> {
        reply.packets().iter().try_for_each(|packet| self.control.send(packet)).map_err(|errno| {
            let is_gone = [Errno::EPIPE, Errno::ECONNRESET].contains(&errno);
            if is_gone { Failure::Closed } else { Failure::System { what: "answer the daemon", errno } }
        })
    }

    fn answer(&mut self, request: &Request, packet: Packet) -> Option<Reply> {
        match request {
            Request::NewClient => {
                if let Some(descriptor) = packet.descriptor {
                    self.welcome(Seqpacket::from(descriptor));
                }
                None
            }
            Request::Shutdown => Some(self.shut_down()),
            Request::Clients => Some(Reply::Clients(self.client_pids())),
            Request::DeviceClients => Some(Reply::DeviceClients(self.device_clients())),
            Request::GetThreadPercentage => Some(Reply::ThreadPercentage(self.thread_percentage)),
            Request::SetThreadPercentage(percentage) => {
                self.thread_percentage = *percentage;
                None
            }
            Request::TerminateClient(pid) => self.terminate(*pid),
            Request::Snapshot => {
                self.is_snapshot_unconfirmed = true;
                Some(Reply::Snapshot(self.snapshot()))
            }
            Request::SetPriority(priority) => {
                self.priority = *priority;
                self.log.say(format!("Client Priority set to {priority}"));
                None
            }
            Request::Status => {
                self.fault_if_at(Step::Status);
                Some(Reply::Active(self.faulted.is_empty()))
            }
            Request::GetPinnedLimit(device) => {
                Some(Reply::PinnedLimit(self.limits.get(&self.canonical(device)).copied().unwrap_or_default()))
            }
            Request::SetPinnedLimit(device, bytes) => {
                let key = self.canonical(device);
                self.limits.insert(key, *bytes);
                let text = format!("Device pinned memory limit for device {} set to {bytes:#x} bytes", device.as_str());
                self.log.say(text);
                None
            }
            Request::QueryDevices => {
                let devices = &self.behaviour.devices;
                self.log.say(format!("Received device query command. There are {} devices", devices.len()));
                Some(Reply::Devices((0..).zip(devices).map(|(number, device)| device.record(number)).collect()))
            }
        }
    }

    /// A limit set by UUID is found by number and the other way round. The number is that of its device among those that
    /// the server sees, as it tells them itself.
    pub(super) fn canonical(&self, key: &DeviceKey) -> String {
        let number = self.behaviour.devices.iter().position(|device| device.uuid.to_string() == key.as_str());
        number.map_or_else(|| key.as_str().to_owned(), |number| number.to_string())
    }

    fn shut_down(&mut self) -> Reply {
        self.log.say("Server has been notified to shutdown");
        let workers = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        if workers == 0 {
            self.log.say("Waiting for current clients to finish");
            self.is_ending = true;
        } else {
            self.log.say(format!("Server was unable to shutdown due to {workers} active clients"));
        }
        Reply::ActiveWorkers(workers)
    }

    fn contexts(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter().filter(|connection| connection.identity.context != PROCESS_CONTEXT)
    }

    /// Pids of the processes that have a context; one whose contexts were terminated is not among them.
    fn client_pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = Vec::new();
        for connection in self.contexts() {
            let pid = connection.identity.pid.unsigned_abs();
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
        pids
    }

    /// The first context of each process: a real server's snapshot has no other one (measured on two H200s).
    fn first_contexts(&self) -> impl Iterator<Item = &Connection> {
        let mut named = BTreeSet::new();
        self.contexts().filter(move |connection| named.insert(connection.identity.pid))
    }

    fn snapshot(&self) -> Vec<ClientContext> {
        let uuid = |ordinal| self.behaviour.devices.iter().find(|device| Some(device.ordinal) == ordinal);
        self.first_contexts()
            .map(|connection| ClientContext {
                pid: connection.identity.pid.unsigned_abs(),
                context: connection.identity.context,
                reserved: 0,
                device: uuid(connection.device).map(|device| device.uuid).unwrap_or_default(),
                id: self.processes.get(&connection.identity.pid).map(|process| process.id).unwrap_or_default(),
            })
            .collect()
    }

    fn device_clients(&self) -> Vec<DeviceClients> {
        let on = |ordinal| {
            self.contexts().filter(move |connection| connection.device == Some(ordinal)).map(|connection| {
                let (pid, context) = (connection.identity.pid.unsigned_abs(), connection.identity.context);
                ClientContext { pid, context, reserved: 0, device: DeviceUuid::default(), id: 0 }
            })
        };
        self.behaviour
            .devices
            .iter()
            .map(|device| DeviceClients {
                uuid: device.uuid,
                info: device.info(),
                clients: on(device.ordinal).collect(),
            })
            .collect()
    }

    /// Asks the client to give up its contexts; the answer comes when it has.
    fn terminate(&mut self, pid: u32) -> Option<Reply> {
        let contexts: Vec<&Connection> =
            self.contexts().filter(|connection| connection.identity.pid.unsigned_abs() == pid).collect();
        let Some(first) = contexts.first() else { return Some(Reply::Terminated(INVALID_CONTEXT)) };
        let process = first.identity.pid;
        for connection in contexts {
            self.log.say(format!("MPS server requesting client {} to exit", connection.identity));
            connection.notify(Notice::Terminate);
        }
        self.terminating = Some(process);
        None
    }

    /// Answers a termination when the client's last context has gone.
    pub(super) fn finish_termination(&mut self) {
        let Some(pid) = self.terminating else { return };
        if self.contexts().all(|connection| connection.identity.pid != pid) {
            self.terminating = None;
            self.log.say("Client termination succeeded.");
            if self.send(&Reply::Terminated(0)).is_err() {
                self.is_ending = true;
            }
        }
    }
}
