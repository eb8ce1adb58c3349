//! What a fault does to the others, and what a client's sudden death does.
//!
//! Measured: all clients of the server on that GPU, and of every GPU that one of those has contexts on too, get the culprit's error (after a misaligned access some get that of a
//! failed launch, and the culprit's own calls succeed until then); the log names a client that did not do it
//! and, for faults other than memory faults, none; newcomers are refused until the last affected context has gone, and
//! the next client after that has the device's context built anew. A failed assertion stays with its client. After a
//! trap or an assertion the log says `Worker is in reset` when the culprit's context ends, and of nobody else. When the
//! work of a dead client faults on a server that has no other, nothing is seen of it until the next client has a context,
//! which fails with 719.

use super::behaviour::Step;
use super::connection::Connection;
use super::event_loop::{Server, Timer};
use remps_proto::mps::client::PROCESS_CONTEXT;
use sim_wire::fault::FaultKind;
use sim_wire::rpc::Notice;
use sim_wire::uvm;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

/// How often a server that hangs with a stopped victim looks whether it goes on.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A fault that has happened and that nobody but its culprit knows of.
#[derive(Debug)]
pub(super) struct Fault {
    device: u32,
    kind: FaultKind,
    culprit: i32,
}

impl Server {
    /// A kernel of `culprit` has faulted: the others will know a little later.
    pub(super) fn plan_fault(&mut self, device: u32, kind: FaultKind, culprit: i32) {
        let due = Instant::now() + self.behaviour.fault_spread;
        if kind.is_memory_fault() {
            // On real hardware the channels know it before the server does, whose death saves nobody then.
            let on_device = self.connections.iter().filter(|connection| connection.device == Some(device));
            on_device.for_each(|connection| connection.notify(Notice::Doom(kind.0)));
        }
        let fault = Fault { device, kind, culprit };
        if self.behaviour.faults_after_culprit {
            self.unnoticed.push(fault);
        } else {
            self.timers.push(Timer { due, fault });
        }
    }

    /// A process has gone: where the script says so, the others learn now of what it did wrong.
    pub(super) fn notice_faults_of(&mut self, pid: i32) {
        let (noticed, later) = std::mem::take(&mut self.unnoticed).into_iter().partition(|fault| fault.culprit == pid);
        self.unnoticed = later;
        let noticed: Vec<Fault> = noticed;
        noticed.iter().for_each(|fault| self.spread(fault));
    }

    /// Everyone on the device gets the error.
    pub(super) fn spread(&mut self, fault: &Fault) {
        if !self.faulted.insert(fault.device) {
            return;
        }
        if fault.kind.is_told_by_server() && !fault.kind.is_memory_fault() {
            // The culprit has its error even where the server gets no further.
            let of_culprit = self.connections.iter().filter(|connection| connection.identity.pid == fault.culprit);
            of_culprit.for_each(|connection| connection.notify(Notice::Poison(fault.kind.0)));
        }
        self.hang_with_stopped(fault);
        let mut victims = Vec::new();
        let is_untold = self.behaviour.traps_stay_untold && fault.kind == FaultKind::TRAP;
        let on_device = |connection: &Connection| connection.device == Some(fault.device);
        let count = self.connections.iter().filter(|connection| on_device(connection)).count();
        for connection in self.connections.iter_mut().filter(|connection| on_device(connection)) {
            connection.is_affected = true;
            if !is_untold {
                connection.notify(Notice::Poison(fault.kind.seen_by(victims.len(), count).0));
            }
            victims.push(connection.identity);
        }
        self.carry(fault);
        if fault.kind.is_memory_fault()
            && let Some(named) = victims.iter().find(|victim| victim.pid != fault.culprit).or(victims.first())
        {
            let text =
                format!("Client {{PID: {}, Context: {}}} encountered a fatal GPU error.", named.pid, named.context);
            self.log.say(text);
        }
        self.log.say("Server is handling a fatal GPU error.");
        for victim in &victims {
            self.log.say(format!("Client {victim} on device {} to be torn down", fault.device));
        }
        let mut pids: Vec<i32> = victims.iter().map(|victim| victim.pid).collect();
        pids.dedup();
        for pid in &pids {
            self.log.say(format!("All clients belonging to error trigging process {pid} will be torn down"));
            for victim in victims.iter().filter(|victim| victim.pid == *pid) {
                self.log.say(format!("Client {victim} on the error-trigging process {pid} to be torn down"));
            }
        }
        self.log.say("The following devices will be reset:");
        self.log.say(fault.device.to_string());
        self.log.say("The following client process have a sticky error set:");
        for pid in &pids {
            self.log.say(pid.to_string());
        }
        self.recover();
    }

    /// Who is hit loses its contexts on other GPUs too, and everybody there with it.
    fn carry(&mut self, fault: &Fault) {
        loop {
            let hit = self.connections.iter().filter(|connection| connection.is_affected);
            let hit: BTreeSet<i32> = hit.map(|connection| connection.identity.pid).collect();
            let is_carried = |connection: &&Connection| {
                hit.contains(&connection.identity.pid)
                    && connection.device.is_some_and(|device| !self.faulted.contains(&device))
            };
            let Some(device) = self.connections.iter().find(is_carried).and_then(|connection| connection.device) else {
                return;
            };
            self.faulted.insert(device);
            for connection in self.connections.iter_mut().filter(|connection| connection.device == Some(device)) {
                connection.is_affected = true;
                let is_own = hit.contains(&connection.identity.pid);
                connection.notify(Notice::Poison(if is_own { fault.kind.0 } else { FaultKind::TRAP.0 }));
            }
        }
    }

    /// Where the script says so, somebody's trap comes at this step of a client's way here.
    pub(super) fn fault_if_at(&mut self, step: Step) {
        // The question how the server is comes before the connection that it is asked for.
        let number = self.connections_so_far + u64::from(step == Step::Status);
        if self.behaviour.fault_at != Some(step) || number != self.behaviour.fault_at_connection {
            return;
        }
        let culprit = self.connections.first().map_or(0, |connection| connection.identity.pid);
        if let Some(device) = self.behaviour.devices.first().map(|device| device.ordinal) {
            self.spread(&Fault { device, kind: FaultKind::TRAP, culprit });
        }
    }

    /// Where the script says so, does nothing as long as a victim of an exception is stopped.
    fn hang_with_stopped(&self, fault: &Fault) {
        let of_device = |connection: &&Connection| connection.device == Some(fault.device);
        let is_stopped = |connection: &Connection| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", connection.identity.pid)).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        let hangs = self.behaviour.hangs_with_stopped_victims && !fault.kind.is_memory_fault();
        while hangs && self.connections.iter().filter(of_device).any(is_stopped) {
            std::thread::park_timeout(LOOK_AGAIN);
        }
    }

    /// Gives up the contexts of faulted devices, once nobody affected is left on them.
    pub(super) fn recover(&mut self) {
        for ordinal in self.faulted.clone() {
            let is_occupied =
                self.connections.iter().any(|connection| connection.is_affected && connection.device == Some(ordinal));
            if !is_occupied {
                self.faulted.remove(&ordinal);
                self.without_context.insert(ordinal);
                self.log.say(format!("Destroy server context on device {ordinal} ({})", self.name_of(ordinal)));
            }
        }
    }

    /// Builds the contexts that were given up; a real server does it for the next client and not before.
    pub(super) fn rebuild(&mut self) {
        for ordinal in std::mem::take(&mut self.without_context) {
            self.log.say(format!("Creating server context on device {ordinal} ({})", self.name_of(ordinal)));
        }
    }

    fn name_of(&self, ordinal: u32) -> &str {
        let device = self.behaviour.devices.iter().find(|device| device.ordinal == ordinal);
        device.map_or("", |device| &device.name)
    }

    /// A client process has gone. If one of its kernels was still running its page tables decide over the others.
    pub(super) fn bury(&mut self, pid: i32) {
        // A process that has connected a second time, after a reset, is not dead.
        if self.connections.iter().any(|other| other.identity.pid == pid && other.identity.context == PROCESS_CONTEXT) {
            return;
        }
        let is_running = |file: &File| uvm::busy_until(file).is_ok_and(|until| until > uvm::now());
        let Some(file) =
            self.processes.get(&pid).and_then(|process| process.uvm.as_ref()).filter(|file| is_running(file))
        else {
            self.processes.remove(&pid);
            return;
        };
        match (uvm::is_held(file), file.try_clone(), self.release_sender.try_clone()) {
            (Ok(true), Ok(file), Ok(sender)) => {
                // The thread lives at most as long as somebody holds the descriptor, and no longer than the server.
                std::thread::spawn(move || {
                    if uvm::wait_until_free(&file).is_ok() {
                        // The server has ended if nobody reads this.
                        let _ = File::from(sender).write_all(&pid.to_le_bytes());
                    }
                });
            }
            _ => self.let_go(pid),
        }
    }

    /// Nobody holds the page tables of this dead client any longer.
    pub(super) fn let_go(&mut self, pid: i32) {
        let Some(process) = self.processes.remove(&pid) else { return };
        let is_running =
            process.uvm.as_ref().is_some_and(|file| uvm::busy_until(file).is_ok_and(|until| until > uvm::now()));
        if is_running {
            for device in process.devices {
                if self.connections.iter().all(|connection| connection.device != Some(device)) {
                    self.spoilt.insert(device);
                    continue;
                }
                self.plan_fault(device, FaultKind::OUT_OF_BOUNDS, pid);
            }
        }
    }
}
