//! Waits for the daemon, for clients and for timers, and serves them one after the other.

use super::behaviour::{Behaviour, Step, hang};
use super::connection::{self, Connection, HandshakeError, Identity};
use super::log::Log;
use super::{Failure, system};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};
use remps_proto::mps::client::{PROCESS_CONTEXT, Status};
use remps_proto::mps::server::{Configuration, RequestDecoder};
use sim_wire::fault::FaultKind;
use sim_wire::rpc::{Attached, Command, Message};
use sim_wire::seqpacket::Seqpacket;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Instant;

/// What the vendor prints as the pid of a client it has not yet read anything of: memory nobody has written.
const UNINITIALISED_PID: i32 = -1_333_654_781;

/// A client process.
#[derive(Debug)]
pub(super) struct Process {
    /// The number that `ps` shows.
    pub(super) id: u64,
    /// Devices that it has had contexts on.
    pub(super) devices: BTreeSet<u32>,
    /// Its stand-in for the UVM descriptor, if it has sent one.
    pub(super) uvm: Option<File>,
}

/// Something to be done later.
#[derive(Debug)]
pub(super) struct Timer {
    pub(super) due: Instant,
    pub(super) fault: super::faults::Fault,
}

/// All that the server knows.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) control: Seqpacket,
    pub(super) behaviour: Behaviour,
    pub(super) log: Log,
    pub(super) decoder: RequestDecoder,
    pub(super) is_snapshot_unconfirmed: bool,
    pub(super) thread_percentage: f64,
    /// Pinned memory limits by device, in bytes.
    pub(super) limits: BTreeMap<String, u64>,
    pub(super) priority: u32,
    pub(super) connections: Vec<Connection>,
    pub(super) processes: BTreeMap<i32, Process>,
    clients_so_far: u64,
    pub(super) connections_so_far: u64,
    last_seen: Identity,
    /// Devices that are lost until their affected clients have gone.
    pub(super) faulted: BTreeSet<u32>,
    /// Devices on which the work of a dead client has faulted while nobody was there: the next context fails.
    pub(super) spoilt: BTreeSet<u32>,
    /// Devices whose contexts the next client has built anew.
    pub(super) without_context: BTreeSet<u32>,
    pub(super) timers: Vec<Timer>,
    /// Faults that nobody else knows of until their culprit has gone.
    pub(super) unnoticed: Vec<super::faults::Fault>,
    /// The client whose termination the daemon waits for.
    pub(super) terminating: Option<i32>,
    /// Dead clients whose UVM descriptor somebody else held and has now closed, by the devices they were on.
    released: File,
    pub(super) release_sender: OwnedFd,
    pub(super) is_ending: bool,
}

impl Server {
    pub(super) fn new(
        control: Seqpacket,
        behaviour: Behaviour,
        log: Log,
        configuration: &Configuration,
    ) -> Result<Self, Failure> {
        let (released, release_sender) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(system("make a pipe"))?;
        let mut server = Self {
            control,
            behaviour,
            log,
            decoder: RequestDecoder::default(),
            is_snapshot_unconfirmed: false,
            thread_percentage: configuration.thread_percentage,
            limits: BTreeMap::new(),
            priority: configuration.priority,
            connections: Vec::new(),
            processes: BTreeMap::new(),
            clients_so_far: 0,
            connections_so_far: 0,
            last_seen: Identity { pid: UNINITIALISED_PID, context: 0 },
            faulted: BTreeSet::new(),
            spoilt: BTreeSet::new(),
            without_context: BTreeSet::new(),
            timers: Vec::new(),
            unnoticed: Vec::new(),
            terminating: None,
            released: File::from(released),
            release_sender,
            is_ending: false,
        };
        for (device, bytes) in &configuration.pinned_limits {
            server.limits.insert(server.canonical(device), *bytes);
        }
        Ok(server)
    }

    /// Serves until the daemon goes away or asks the idle server to end.
    pub(super) fn serve(mut self) -> Result<(), Failure> {
        while !self.is_ending {
            self.turn()?;
        }
        Ok(())
    }

    /// Waits for one round of events and handles them.
    fn turn(&mut self) -> Result<(), Failure> {
        let timeout = self.timers.iter().map(|timer| timer.due).min().map_or(PollTimeout::NONE, |due| {
            let left = due.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let readable = PollFlags::POLLIN;
        // While a termination is under way the daemon's next request waits, since answers come in order.
        let control = if self.terminating.is_some() { PollFlags::empty() } else { readable };
        let mut set = vec![PollFd::new(self.control.as_fd(), control), PollFd::new(self.released.as_fd(), readable)];
        for connection in &self.connections {
            set.push(PollFd::new(connection.commands.as_fd(), readable));
            set.push(PollFd::new(connection.socket.as_fd(), readable));
        }
        match poll(&mut set, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Failure::System { what: "wait", errno }),
        }
        let ready: Vec<PollFlags> = set.iter().map(|entry| entry.revents().unwrap_or(PollFlags::empty())).collect();
        drop(set);

        self.run_timers();
        if !ready[1].is_empty() {
            self.read_released();
        }
        self.read_clients(&ready[2..]);
        if ready[0].contains(PollFlags::POLLIN) {
            let packet = self.control.receive().map_err(system("receive from the daemon"))?;
            if packet.bytes.is_empty() {
                return Err(Failure::Closed);
            }
            self.handle_packet(packet)?;
        } else if ready[0].intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            return Err(Failure::Closed);
        }
        Ok(())
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.timers).into_iter().partition(|timer| timer.due <= now);
        self.timers = later;
        let due: Vec<Timer> = due;
        for timer in due {
            self.spread(&timer.fault);
        }
    }

    fn read_released(&mut self) {
        let mut pid = [0; 4];
        if self.released.read_exact(&mut pid).is_ok() {
            self.let_go(i32::from_le_bytes(pid));
        }
    }

    /// Handles what clients have sent; `ready` has two entries for each connection.
    fn read_clients(&mut self, ready: &[PollFlags]) {
        let mut gone = Vec::new();
        for (index, flags) in ready.chunks_exact(2).enumerate() {
            if flags[1].contains(PollFlags::POLLIN) {
                self.take_uvm(index);
            }
            if flags[0].is_empty() {
                continue;
            }
            match self.connections[index].read_commands() {
                Some(messages) => messages.iter().for_each(|message| self.handle_command(index, message)),
                None => gone.push((self.connections[index].identity, self.connections[index].commands.as_raw_fd())),
            }
        }
        // A process that ends closes all at once; the vendor's log has its contexts first.
        gone.sort_by_key(|(identity, _)| std::cmp::Reverse(identity.context));
        for (identity, commands) in gone {
            self.disconnect(identity, commands);
        }
    }

    fn take_uvm(&mut self, index: usize) {
        let connection = &self.connections[index];
        if let (Ok(packet), Some(process)) =
            (connection.socket.receive(), self.processes.get_mut(&connection.identity.pid))
            && let Some(descriptor) = packet.descriptor
        {
            process.uvm = Some(File::from(descriptor));
        }
    }

    fn handle_command(&mut self, index: usize, message: &Message) {
        let identity = self.connections[index].identity;
        match message.command() {
            Some(Command::Devices) => {
                let ordinals = self.behaviour.devices.iter().map(|device| device.ordinal);
                self.connections[index].reply(&Message::of_devices(ordinals));
            }
            Some(Command::Attach(ordinal)) => {
                let Some(number) = self.behaviour.devices.iter().position(|device| device.ordinal == ordinal) else {
                    // Who waits for an answer gets one.
                    self.connections[index].reply(&Message::of_devices(std::iter::empty()));
                    return;
                };
                let device = &self.behaviour.devices[number];
                self.log.say(format!("Device {} (uuid {}) is associated", device.name, device.uuid));
                self.log.say(format!("Status of client {identity} is ACTIVE"));
                let pinned_limit = self.limits.get(&number.to_string()).copied().unwrap_or_default();
                self.connections[index].device = Some(ordinal);
                if let Some(process) = self.processes.get_mut(&identity.pid) {
                    process.devices.insert(ordinal);
                }
                let attached = Attached { thread_percentage: self.thread_percentage, pinned_limit };
                self.connections[index].reply(&attached.into());
                if self.spoilt.remove(&ordinal) {
                    self.plan_fault(ordinal, FaultKind::TRAP, identity.pid);
                }
            }
            Some(Command::Fault(status)) => {
                let kind = FaultKind(status);
                self.connections[index].is_in_reset = kind.resets_worker();
                if let Some(device) = self.connections[index].device
                    && kind.is_shared()
                {
                    self.plan_fault(device, kind, identity.pid);
                }
            }
            None => {}
        }
    }

    /// Serves a new client, or refuses it.
    pub(super) fn welcome(&mut self, socket: Seqpacket) {
        self.log.say(format!("Received new client request for {}", self.last_seen));
        self.connections_so_far += 1;
        self.fault_if_at(Step::Told);
        let greeted = match connection::greet(socket, || self.fault_if_at(Step::Greeted)) {
            Ok(greeted) => greeted,
            Err(HandshakeError::NoCredentials) => return self.log.say("User did not send valid credentials"),
            Err(error) => return self.log.say(format!("Failed to accept client: {error}")),
        };
        let identity = greeted.identity;
        self.last_seen = identity;
        self.fault_if_at(Step::Credentials);
        let is_new = !self.processes.contains_key(&identity.pid);
        let status = if !self.faulted.is_empty() {
            self.log.say(format!("Server teardown in progress. Refusing to accept new client {identity}"));
            Status::MPS_SERVER_NOT_READY
        } else if is_new && self.processes.len() >= self.behaviour.max_clients {
            Status::MPS_MAX_CLIENTS_REACHED
        } else {
            Status::SUCCESS
        };
        if status != Status::SUCCESS {
            self.log.say(format!("Failed to accept client {identity} with status {}", status.0));
            return greeted.refuse(status);
        }
        self.rebuild();
        self.log.say(format!("Client {identity} connected"));
        self.log.say(format!("Creating worker thread for client {identity}"));
        if is_new {
            self.clients_so_far += 1;
            if self.behaviour.crash_at_clients == Some(self.clients_so_far) {
                raise(Signal::SIGKILL).expect("a process may signal itself");
                hang();
            }
            let process = Process { id: self.clients_so_far, devices: BTreeSet::new(), uvm: None };
            self.processes.insert(identity.pid, process);
        }
        self.connections.push(greeted.accept());
    }

    /// Forgets a connection whose client has closed it. A process with two copies of the library has the same identity
    /// twice, so the connection is known by its pipe.
    fn disconnect(&mut self, identity: Identity, commands: RawFd) {
        let is_it = |connection: &Connection| connection.commands.as_raw_fd() == commands;
        let Some(index) = self.connections.iter().position(is_it) else { return };
        let gone = self.connections.remove(index);
        self.log.say(format!("Server failed to recevie command with status 806, assuming client {identity} exit"));
        if identity.context == PROCESS_CONTEXT {
            // First, so that who waits for the line may do what would have mattered to it.
            self.bury(identity.pid);
            self.log.say(format!("Client process {} disconnected", identity.pid));
        } else {
            self.finish_termination();
            let left = self.connections.iter().filter(|other| other.identity.context != PROCESS_CONTEXT).count();
            let reset = if gone.is_in_reset { " Worker is in reset." } else { "" };
            self.log.say(format!("Client {identity} exiting.{reset} Number of active client contexts is {left}."));
        }
        // Its connections are closed in any order.
        if !self.connections.iter().any(|other| other.identity.pid == identity.pid) {
            self.notice_faults_of(identity.pid);
        }
        self.recover();
    }
}
