//! From the first sign of a fault to a sound server: evidence comes in, servers are suspected, tainted and replaced.
//!
//! | evidence | believed about the server | done |
//! |---|---|---|
//! | UVM event, notice that was not isolated | at once | tainted |
//! | the server's own status | at once | tainted |
//! | Xid, preload library, a client's end by a signal or with an error | no: anybody can cause them | the server is asked for its status, and nobody is sent there until it has answered |
//! | log record | nothing: anybody can forge it | the same; and if the server then says nothing, it has as long as without it |
//! | silence | after a time ([`silence`](crate::core::servers::silence)) | tainted |
//! | notice of an isolated fault | | a verdict; the server stays |
//!
//! A tainted server never gets another client. It drains, its domain gets another one at once, and after a fault it is
//! ended after `victims_timeout`, unless it has clients that the fault has left alone ([`spared`](super::spared)). Who was
//! on the way to it and has no end of the connection yet is taken back.
//! [`blame`](super::blame) says who it was.

use super::evidence::{Evidence, Isolation, MemoryFault, ProcessKey, XidClass};
use super::incident::Statement;
use super::own_word::OwnWord;
use crate::core::clients::admission::Process;
use crate::core::gpu::{Gpu, GpuSet};
use crate::core::ids::{Pid, ServerEpoch};
use crate::core::journal::{JournalEvent, StartReason};
use crate::core::policy::VictimAction;
use crate::core::servers::domain::Swap;
use crate::core::servers::questions::Purpose;
use crate::core::servers::server::{Role, Server, ServerState, Taint};
use crate::core::{Core, NoReply};
use core::time::Duration;
use remps_proto::mps::server::{Reply, Request};

/// `Xid` of the kernel's own tidying up after a process, which is also what a kill of one gets.
const CLEANUP_XID: u32 = 45;
/// How long after a client's end a line of the kernel that names it is still about its server.
const NAMED_AFTER_DEATH: Duration = Duration::from_secs(10);

/// Why a server gets no newcomers any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Cause {
    /// A fault, in the incident of this number: its clients are lost.
    Fault(u64),
    /// The work of a client that died suddenly may still run there.
    DeadClient,
    /// It says nothing, and nothing else is known.
    Silence,
}

impl Cause {
    /// As in [`Taint`].
    fn incident(self) -> u64 {
        match self {
            Self::Fault(incident) => incident,
            Self::DeadClient | Self::Silence => 0,
        }
    }
}

impl Core {
    /// What a witness says.
    pub(in crate::core) fn evidence(&mut self, now: Duration, evidence: Evidence) {
        match evidence {
            Evidence::UvmEvent { process, fault } => {
                let text = format!("{} of {:#x}, {}", fault.access, fault.address, fault.kind);
                let gpus = self.gpus_of_fault(process, &fault);
                let statement = Statement::new("uvm-event", Some(process.pid), text).about(fault).on(gpus);
                if let Some(server) = self.server_of(process) {
                    let incident = self.testify(now, server, statement);
                    self.taint(now, server, Cause::Fault(incident));
                    self.judge_certain(now, server, process);
                }
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
                if let Some(server) = self.server_of(process) {
                    let isolated = statement.isolated;
                    let incident = self.testify(now, server, statement);
                    if !isolated {
                        self.taint(now, server, Cause::Fault(incident));
                    }
                    self.judge_certain(now, server, process);
                }
            }
            Evidence::ZombieFault { process, fault } => {
                let text = format!("{} of {:#x} by work of a dead client", fault.access, fault.address);
                let mut statement = Statement::new("notice", Some(process.pid), text).about(fault);
                statement.points_at = Some(process.pid);
                if let Some(server) = self.server_of_dead(process) {
                    self.testify(now, server, statement);
                    self.suspect(now, server);
                }
            }
            Evidence::Shim { process, error, own_work } => {
                let text = format!("its driver answers {error}{}", if own_work { " for its own work" } else { "" });
                let mut statement = Statement::new("shim", Some(process.pid), text);
                statement.own_word = Some(OwnWord { pid: process.pid, error, of_own_work: own_work });
                statement.is_hearsay = true;
                if let Some(server) = self.server_of(process) {
                    self.testify(now, server, statement);
                    self.suspect(now, server);
                }
            }
            Evidence::ServerLog { server, named, blames, text } => {
                if let Some(epoch) = self.server_of_log(server) {
                    let named = named.filter(|pid| self.is_or_was_client(*pid, epoch));
                    let mut statement = Statement::new("server-log", named, text);
                    statement.hints_at = named.filter(|_| blames);
                    statement.is_hearsay = true;
                    self.testify(now, epoch, statement);
                    self.ask_how_it_is(now, epoch);
                }
            }
            Evidence::ServerStatus { server } => self.confirmed_by_status(now, server),
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
                    let own = self.servers.get(&server).and_then(|server| server.pid);
                    statement.is_kernels_word = pid.is_some() && own == pid;
                    // What a GPU has to say of itself spoils no other one than that of the fault.
                    let is_lost = self.servers.get(&server).is_some_and(Server::is_lost);
                    let on = gpu.iter().filter(|_| class == XidClass::Application || !is_lost).cloned().collect();
                    self.testify(now, server, statement.clone().on(on));
                    self.suspect(now, server);
                }
            }
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
            let connected = self.servers.values().filter(|server| server.is_connected()).map(|server| server.epoch);
            return connected.filter(|server| gpu.is_none_or(|gpu| self.may_be_on(*server, gpu))).collect();
        };
        let own = self.servers.values().find(|server| server.pid == Some(pid)).map(|server| server.epoch);
        let of_client = || self.clients.process(pid).map(|process| process.server);
        let of_dead = || {
            let mut late =
                self.faults.deaths.iter().rev().filter(|death| death.died_at + NAMED_AFTER_DEATH >= self.turn.now);
            late.find(|death| death.key.pid == pid).map(|death| death.process.server)
        };
        let named = own.or_else(of_client).or_else(of_dead);
        named.filter(|server| self.servers.contains_key(server)).into_iter().collect()
    }

    /// The server in whose name a record of the log FIFO may be heard.
    fn server_of_log(&self, pid: Pid) -> Option<ServerEpoch> {
        let known = self.servers.values().find(|known| known.pid == Some(pid) && known.ready_at.is_some());
        known.map(|server| server.epoch)
    }

    /// Whether records of the log FIFO are heard that have this pid: that of a server that has been ready.
    #[must_use]
    pub fn hears_log_of(&self, pid: Pid) -> bool {
        self.server_of_log(pid).is_some()
    }

    /// Whether a process is a client of this server, or was one lately.
    fn is_or_was_client(&self, pid: Pid, epoch: ServerEpoch) -> bool {
        self.clients.process(pid).is_some_and(|process| process.server == epoch)
            || self.faults.deaths.iter().any(|death| death.key.pid == pid && death.process.server == epoch)
    }

    fn server_of(&self, process: ProcessKey) -> Option<ServerEpoch> {
        self.clients.known(process).map(|process| process.server).filter(|server| self.servers.contains_key(server))
    }

    fn server_of_dead(&self, process: ProcessKey) -> Option<ServerEpoch> {
        let death = self.faults.deaths.iter().rev().find(|death| death.key == process)?;
        self.servers.contains_key(&death.process.server).then_some(death.process.server)
    }

    /// After a sign that not everybody can give: if the server says nothing either, it has met a fault sooner.
    pub(in crate::core) fn suspect(&mut self, now: Duration, epoch: ServerEpoch) {
        if let Some(server) = self.servers.get_mut(&epoch) {
            server.ill_at = Some(now);
            self.ask_how_it_is(now, epoch);
        }
    }

    /// Asks a server whether it is in a fault, and sends nobody there until it has answered.
    fn ask_how_it_is(&mut self, now: Duration, epoch: ServerEpoch) {
        self.faults.relapses(now, epoch);
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        if server.tainted.is_some() || !server.is_connected() {
            return;
        }
        if server.suspected {
            // It may have answered already, before this came.
            server.suspected_anew = true;
            return;
        }
        server.suspected = true;
        self.ask(epoch, Request::Status, Purpose::FaultCheck);
    }

    pub(in crate::core) fn fault_check_answered(
        &mut self,
        now: Duration,
        epoch: ServerEpoch,
        reply: &Result<Reply, NoReply>,
    ) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        server.suspected = false;
        // Once: whoever makes signs without end must not keep newcomers away.
        let is_old = std::mem::take(&mut server.suspected_anew) && !server.asked_again;
        server.asked_again = is_old;
        match reply {
            Ok(Reply::Active(false)) => self.evidence(now, Evidence::ServerStatus { server: epoch }),
            Ok(Reply::Active(true)) if is_old => self.ask_how_it_is(now, epoch),
            Ok(Reply::Active(true)) => self.is_in_no_fault(epoch),
            Ok(_) | Err(_) => {}
        }
    }

    fn confirmed_by_status(&mut self, now: Duration, epoch: ServerEpoch) {
        if self.servers.contains_key(&epoch) {
            let incident = self.testify(now, epoch, Statement::new("server-status", None, "FAULT".to_owned()));
            self.taint(now, epoch, Cause::Fault(incident));
            self.faults.admits_fault(epoch);
            self.faults.relapses(now, epoch);
            self.has_its_time(now, epoch);
        }
    }

    /// A server in a fault is ended after `victims_timeout`, also when it has said otherwise before.
    fn has_its_time(&mut self, now: Duration, epoch: ServerEpoch) {
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        let patience = self.domains.get(server.domain).map(|domain| domain.policy.faults.victims_timeout);
        if let ServerState::Draining(drain) = &mut server.state
            && drain.force_at.is_none()
        {
            drain.force_at = patience.map(|patience| now + patience);
        }
    }

    /// Nobody is sent to this server any more, and its domain gets another one.
    pub(in crate::core) fn taint(&mut self, now: Duration, epoch: ServerEpoch, cause: Cause) {
        let incident = cause.incident();
        let Some(server) = self.servers.get_mut(&epoch) else {
            return;
        };
        // One that only got no newcomers may meet a fault all the same.
        if server.tainted.is_some_and(|taint| taint.incident != 0 || incident == 0) {
            return;
        }
        server.tainted = Some(Taint { at: now, incident });
        let (domain, uid, pid, role) = (server.domain, server.uid, server.pid.unwrap_or_default(), server.role);
        let gpus = self.faults.incidents.get(&epoch).filter(|_| incident != 0).map(|known| known.gpus.clone());
        let gpus = gpus.unwrap_or_default();
        self.spoil(epoch, &gpus);
        let clients = self.hit_processes(epoch).len();
        let spared = self.clients.processes_of(epoch).len() - clients;
        let name = self.domain_name(domain);
        let on = gpus.iter().cloned().collect();
        self.turn.record(JournalEvent::ServerTainted {
            epoch,
            server: pid,
            uid,
            domain: name,
            incident,
            clients,
            gpus: on,
            spared,
        });
        let patience = self.domains.get(domain).map(|domain| domain.policy.faults.victims_timeout).unwrap_or_default();
        // Work of a dead client that never ends harms nobody as long as its descriptors are held.
        let force_at = (incident != 0).then_some(now + patience);
        self.turn.log(format!(
            "Server {pid} takes no new clients: {}",
            match cause {
                Cause::Fault(_) => format!("a fault on the GPU, incident {incident}, {clients} clients"),
                Cause::DeadClient => "the work of a client that died may still run there".to_owned(),
                Cause::Silence => "it does not answer".to_owned(),
            }
        ));
        if spared == 0 {
            self.drain_after_fault(now, epoch, force_at);
        }
        if incident != 0 {
            self.confirm_incident(now, epoch);
        }
        self.recall_all(epoch);
        if role == Role::Active && self.quit.is_none() && self.active_server(domain).is_none() {
            if let Some(domain) = self.domains.get_mut(domain) {
                domain.swap.get_or_insert(Swap { incident, from: pid, since: now });
                domain.requested = true;
            }
            self.promote(now, domain);
        }
        self.turn.save();
    }

    /// Lets a server that stands by serve its domain, if the domain has no active one.
    pub(in crate::core) fn promote(&mut self, now: Duration, domain: crate::core::DomainId) {
        if self.server_for_newcomers(domain).is_some() {
            return;
        }
        let standby = self
            .servers
            .values_mut()
            .find(|server| server.domain == domain && server.role == Role::Standby && server.is_up());
        let Some(server) = standby else {
            return;
        };
        server.role = Role::Active;
        server.idle_since = server.ready_at.map(|_| now);
        let (epoch, is_ready) = (server.epoch, server.ready_at.is_some());
        if is_ready {
            self.swapped(now, epoch, true);
        }
        self.turn.save();
    }

    /// A domain has a sound server: if a fault had cost it the last one, that is over.
    pub(in crate::core) fn swapped(&mut self, now: Duration, epoch: ServerEpoch, standby: bool) {
        let Some(server) = self.servers.get(&epoch) else {
            return;
        };
        let (uid, to, id) = (server.uid, server.pid.unwrap_or_default(), server.domain);
        let Some(domain) = self.domains.get_mut(id) else {
            return;
        };
        domain.requested = false;
        let name = domain.name();
        if let Some(Swap { incident, from, since }) = domain.swap.take() {
            let after = now.saturating_sub(since);
            self.turn.log(format!("Server {to} serves {name} in place of {from}, after {} ms", after.as_millis()));
            self.turn.record(JournalEvent::ServerSwapped { incident, uid, domain: name, from, to, standby, after });
        }
    }

    /// Which start of a server this is.
    pub(in crate::core) fn start_reason(&self, id: crate::core::DomainId) -> StartReason {
        match self.domains.get(id) {
            Some(domain) if domain.swap.is_some() => StartReason::Fault,
            Some(domain) if domain.starts.tries() > 0 => StartReason::Retry,
            Some(domain) if domain.requested && !self.clients.are_waiting(id) => StartReason::Command,
            Some(_) | None => StartReason::Client,
        }
    }

    /// A tainted server's time is over: those who linger are named, and ended if the operator wants that.
    pub(in crate::core) fn list_victims(&mut self, now: Duration, epoch: ServerEpoch) {
        let Some((taint, id)) = self.servers.get(&epoch).and_then(|server| Some((server.tainted?, server.domain)))
        else {
            return;
        };
        let victims: Vec<(Pid, Process)> = self.hit_processes(epoch);
        if victims.is_empty() {
            return;
        }
        let pids: Vec<String> = victims.iter().map(|(pid, _)| pid.to_string()).collect();
        let server = self.servers.get(&epoch).and_then(|server| server.pid).unwrap_or_default();
        let is_ended = if self.has_spared(epoch) { "" } else { " and is ended" };
        self.turn.log(format!("Server {server} still has clients after a fault{is_ended}: {}", pids.join(" ")));
        let action = self.domains.get(id).map_or(VictimAction::Wait, |domain| domain.policy.faults.victims);
        if action == VictimAction::Terminate {
            let domain = self.domain_name(id);
            for (pid, process) in victims {
                let key = process.key(pid);
                let (uid, domain) = (process.uid, domain.clone());
                self.turn.record(JournalEvent::VictimTerminated {
                    incident: taint.incident,
                    process: key,
                    uid,
                    domain,
                });
                self.end_client(now, key, &process);
            }
        }
    }

    /// When a domain's replacement can't start beside the tainted server (compute mode `EXCLUSIVE_PROCESS`), the
    /// tainted one goes first: its clients are lost already.
    pub(in crate::core) fn make_room_for_replacement(&mut self, now: Duration, domain: crate::core::DomainId) {
        let tainted: Vec<ServerEpoch> = self
            .servers
            .values()
            .filter(|server| server.domain == domain && server.is_lost() && !self.has_spared(server.epoch))
            .filter(|server| !matches!(server.state, ServerState::Ending { .. }))
            .map(|server| server.epoch)
            .collect();
        for epoch in tainted {
            self.turn.log("The replacement can't start beside the server that a fault has tainted, which is ended now");
            self.force(now, epoch);
        }
    }

    /// Where a domain wants a server that stands by, and none is under way, one is started.
    pub(in crate::core) fn wants_standby(&self, domain: crate::core::DomainId) -> bool {
        let wanted = self.domains.get(domain).is_some_and(|domain| domain.policy.group.standby);
        let mut own = self.servers.values().filter(|server: &&Server| server.domain == domain && server.is_up());
        wanted
            && self.quit.is_none()
            && !self.fits_one_server()
            && self.policy.sharing != crate::core::Sharing::Single
            && own.clone().any(|server| server.role == Role::Active && server.ready_at.is_some())
            && own.all(|server| server.role == Role::Active && !server.is_starting())
    }
}
