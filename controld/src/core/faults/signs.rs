//! What a sign is taken for: whose server it is about, and what is done at once.
//!
//! | evidence | believed about the server | done |
//! |---|---|---|
//! | UVM event, notice that was not isolated | at once | tainted |
//! | the server's own status | at once | tainted |
//! | Xid, preload library, a client's end by a signal or with an error | no: anybody can cause them | the server is asked for its status, and nobody is sent there until it has answered |
//! | log record | nothing: anybody can forge it | the same; and if the server then says nothing, it has as long as without it |
//! | silence | after a time ([`silence`](crate::core::servers::silence)) | tainted |
//! | notice of an isolated fault | | a verdict; the server stays |
//! | preload library: the server gives no context ([`barren`](super::barren)) | that newcomers get none there | another server for them |
//!
//! What a taint is, and what follows, is in [`taint`](super::taint); [`blame`](super::blame) says who it was.

use super::barren::NO_CONTEXT;
use super::self_report::SelfReport;
use super::statement::Statement;
use super::taint::Cause;
use crate::core::Core;
use crate::core::evidence::{Evidence, Isolation, MemoryFault, ProcessKey, XidClass};
use crate::core::gpu::{Gpu, GpuSet};
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::servers::server::Server;
use core::time::Duration;

/// `Xid` of the kernel's own tidying up after a process, which is also what a kill of one gets.
const CLEANUP_XID: u32 = 45;
/// How long after a client's end a line of the kernel that names it is still about its server.
const NAMED_AFTER_DEATH: Duration = Duration::from_secs(10);

impl Core {
    /// What a witness says.
    pub(in crate::core) fn evidence(&mut self, evidence: Evidence) {
        match evidence {
            Evidence::UvmEvent { process, fault, is_of_own_server } => {
                let text = format!("{} of {:#x}, {}", fault.access, fault.address, fault.kind);
                let gpus = self.gpus_of_fault(process, &fault);
                let statement = Statement::new("uvm-event", Some(process.pid), text).about(fault).on(gpus);
                self.certain_fault(process, statement, is_of_own_server);
            }
            Evidence::Notice { process, fault, channel, isolation } => {
                let word = match &isolation {
                    Isolation::Isolated => "isolated".to_owned(),
                    Isolation::Passed { reason } => format!("not isolated: {reason}"),
                };
                let text = format!("{} of {:#x}, {}, {word}", fault.access, fault.address, fault.kind);
                let gpus = self.gpus_of_fault(process, &fault);
                let mut statement = Statement::new("notice", Some(process.pid), text).about(fault).on(gpus);
                statement.channel = channel;
                statement.isolated = isolation == Isolation::Isolated;
                self.certain_fault(process, statement, false);
            }
            Evidence::ZombieFault { process, fault } => {
                let text = format!("{} of {:#x} by work of a dead client", fault.access, fault.address);
                let mut statement = Statement::new("notice", Some(process.pid), text).about(fault);
                statement.points_at = Some(process.pid);
                for server in self.servers_of_dead(process) {
                    self.testify(server, statement.clone());
                    self.suspect(server);
                }
            }
            Evidence::Shim { process, error: NO_CONTEXT, server, .. } => self.gives_no_context(process, server),
            Evidence::Shim { process, error, own_work, server } => {
                let text = format!("its driver answers {error}{}", if own_work { " for its own work" } else { "" });
                let mut statement = Statement::new("shim", Some(process.pid), text);
                statement.self_report = Some(SelfReport { pid: process.pid, error, of_own_work: own_work });
                statement.is_hearsay = true;
                // It says so before it ends, and that may be heard first.
                for server in self.servers_of_error(process, server) {
                    self.testify(server, statement.clone());
                    self.suspect(server);
                }
            }
            Evidence::ServerLog { server, named, blames, text } => {
                if let Some(epoch) = self.server_of_log(server) {
                    let named = named.filter(|pid| self.is_or_was_client(*pid, epoch));
                    let mut statement = Statement::new("server-log", named, text);
                    statement.hints_at = named.filter(|_| blames);
                    statement.is_hearsay = true;
                    self.testify(epoch, statement);
                    self.ask_how_it_is(epoch);
                }
            }
            Evidence::ServerStatus { server } => self.confirmed_by_status(server),
            Evidence::Xid { number, class, bus, instance, pid, channel: _, text } => {
                let gpu = self.gpus.known().at(&bus, instance);
                let text = format!("{number} on {bus}: {text}");
                if class != XidClass::Application {
                    // The GPU itself is ill; no client is to blame, and NVIDIA's server says whether it goes on.
                    self.turn.log(format!("Xid {text} ({class:?})"));
                }
                let mut statement = Statement::new("xid", pid, text);
                statement.xid = Some(number);
                statement.is_kernels_fault = pid.is_some() && class == XidClass::Application && number != CLEANUP_XID;
                for server in self.servers_meant(pid, gpu.as_ref()) {
                    let own = self.servers.get(server).and_then(|server| server.pid);
                    statement.is_kernels_word = pid.is_some() && own == pid;
                    // Of a guest it is not known where it was.
                    let is_guest = pid.is_some_and(|pid| self.clients.guests().get(server, pid).is_some());
                    statement.is_kernels_fault &= !is_guest;
                    // What a GPU has to say of itself spoils no other one than that of the fault.
                    let is_lost = self.servers.get(server).is_some_and(Server::is_lost);
                    let on = gpu.iter().filter(|_| class == XidClass::Application || !is_lost).cloned().collect();
                    self.testify(server, statement.clone().on(on));
                    self.suspect_late(server);
                    self.suspect(server);
                }
            }
        }
    }

    /// A witness that can't be wrong has named a process. Where that can do something on several servers, and it is not
    /// known in which the fault was, each is asked, and the one that says so is spoilt.
    fn certain_fault(&mut self, process: ProcessKey, mut statement: Statement, is_of_own_server: bool) {
        let servers: Vec<ServerEpoch> = self.clients.servers_of(process);
        let servers: Vec<ServerEpoch> =
            servers.into_iter().filter(|server| self.servers.get(*server).is_some()).collect();
        // Who is cut off from its memory is so everywhere, and has harmed nobody.
        let is_sure = servers.len() < 2 || is_of_own_server || statement.isolated;
        if is_sure {
            let Some(server) = servers.first().copied() else { return };
            let isolated = statement.isolated;
            let incident = self.testify(server, statement);
            if !isolated {
                self.taint(server, Cause::Fault(incident));
            }
            self.judge_certain(server, process);
            return;
        }
        statement.certain = Some(process);
        for server in servers {
            self.testify(server, statement.clone());
            self.suspect(server);
            self.judge_named(server);
        }
    }

    /// The GPUs that a memory fault of a client may have been on: the one that its witness names, else those that the
    /// client uses, else the one that its server has.
    fn gpus_of_fault(&mut self, process: ProcessKey, fault: &MemoryFault) -> GpuSet {
        if let Some(gpu) = fault.gpu.as_deref().and_then(|name| self.gpus.known().named(name)) {
            self.was_met_on(process, &gpu);
            return GpuSet::from([gpu]);
        }
        let Some(known) = self.clients.known(process) else {
            return GpuSet::new();
        };
        self.gpus_of(process.pid, known).unwrap_or_else(|| {
            let own = self.gpus.known().of_server(known.server);
            if own.len() == 1 { own } else { GpuSet::new() }
        })
    }

    /// The servers that a line of the kernel may be about: the one that it names or whose client it names, else all that
    /// may have something on the GPU.
    fn servers_meant(&self, pid: Option<Pid>, gpu: Option<&Gpu>) -> Vec<ServerEpoch> {
        let Some(pid) = pid else {
            let connected = self.servers.iter().filter(|server| server.is_connected()).map(|server| server.epoch);
            return connected.filter(|server| gpu.is_none_or(|gpu| self.may_be_on(*server, gpu))).collect();
        };
        let own = self.servers.iter().find(|server| server.pid == Some(pid)).map(|server| server.epoch);
        let guest_of = self.clients.guests().iter().filter(|(_, guest, _)| *guest == pid).map(|(server, ..)| server);
        let guest_of: Vec<ServerEpoch> = guest_of.collect();
        let of_client = || self.clients.process(pid).map(|process| process.server);
        let of_dead = || {
            let mut late =
                self.faults.deaths.iter().rev().filter(|death| death.died_at + NAMED_AFTER_DEATH >= self.turn.now);
            late.find(|death| death.key.pid == pid).map(|death| death.process.server)
        };
        let named = own.or_else(of_client).or_else(of_dead).into_iter().chain(guest_of);
        named.filter(|server| self.servers.get(*server).is_some()).collect()
    }

    /// The server in whose name a record of the log FIFO may be heard.
    fn server_of_log(&self, pid: Pid) -> Option<ServerEpoch> {
        let known = self.servers.iter().find(|known| known.pid == Some(pid) && known.ready_at.is_some());
        known.map(|server| server.epoch)
    }

    /// Whether records of the log FIFO are heard that have this pid: that of a server that has been ready.
    pub(crate) fn hears_log_of(&self, pid: Pid) -> bool {
        self.server_of_log(pid).is_some()
    }

    /// Whether a process is a client of this server, or was one lately.
    fn is_or_was_client(&self, pid: Pid, epoch: ServerEpoch) -> bool {
        self.clients.process(pid).is_some_and(|process| process.server == epoch)
            || self.clients.guests().get(epoch, pid).is_some()
            || self.faults.deaths.iter().any(|death| death.key.pid == pid && death.process.server == epoch)
    }

    /// The servers in which a process may have met an error that it tells of: its own, and where it is a guest, unless its
    /// own is known to be in a fault, which explains it. It says so before it ends, and that may be heard first. Of those
    /// on which it may have been it may say which one it was, also when it has gone on with its spare copy meanwhile.
    fn servers_of_error(&self, process: ProcessKey, said: Option<ServerEpoch>) -> Vec<ServerEpoch> {
        if let Some(said) = said {
            let is_on = self.clients.known_on(said, process).is_some();
            let was_on = || self.servers_of_dead(process).contains(&said);
            let was_hit = || self.faults.clients_noted(said).any(|(pid, noted)| noted.key(*pid) == process);
            let is_there = self.servers.get(said).is_some() && (is_on || was_on() || was_hit());
            return is_there.then_some(said).into_iter().collect();
        }
        if self.clients.known(process).is_some_and(|known| known.is_hit(&self.servers)) {
            return self.clients.known(process).map(|known| known.server).into_iter().collect();
        }
        let alive: Vec<ServerEpoch> = self.clients.servers_of(process);
        let alive: Vec<ServerEpoch> = alive.into_iter().filter(|server| self.servers.get(*server).is_some()).collect();
        if alive.is_empty() { self.servers_of_dead(process) } else { alive }
    }

    fn servers_of_dead(&self, process: ProcessKey) -> Vec<ServerEpoch> {
        let deaths = self.faults.deaths.iter().rev().filter(|death| death.key == process);
        let servers = deaths.map(|death| death.process.server);
        let mut servers: Vec<ServerEpoch> = servers.filter(|server| self.servers.get(*server).is_some()).collect();
        servers.dedup();
        servers
    }
}
