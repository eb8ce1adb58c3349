//! The daemon's decisions, without any I/O: inputs and the time go in, effects come out.
//!
//! One task feeds [`Core::handle`] and performs the effects in order. Nothing here reads a clock, a file or a socket,
//! so the hard part of the daemon is tested in virtual time with random events (`tests.rs`).
//!
//! | room | decides |
//! |---|---|
//! | [`advance`] | what follows from the state and the time alone, and when it is due |
//! | [`successor`] | what a killed daemon leaves, and how the next one goes on with it |
//! | [`picture`] | what reports and metrics are made from |
//! | [`input`] | what can happen |
//! | [`commands`] | what the command line is answered |
//! | [`quit`] | how the daemon itself ends |
//! | [`serving`] | which server a client goes to, who waits, and who is taken back from an earlier daemon |
//! | [`faults`] | which servers a fault has spoilt, who it was, and what becomes of culprits, victims and the dead |
//! | [`clients`] | who a client is, where it is, how far it has come, and which domain it belongs to |
//! | [`servers`] | when a server starts, drains, is forced, is given up and started again, and what it is asked |
//! | [`gpus`] | compute modes, who passes MPS by, and which GPUs there are |
//! | [`vault`] | whose each kept region of GPU memory is, and until when |
//!
//! Each knows those below it, and nobody above (`tests/leaf_core_floors.rs`, drawn in `docs/rooms.md`). A room owns its state,
//! and the others reach that by its methods alone. A decision that takes more than one room is a method of [`Core`], in
//! the folder of the uppermost of them; what several of them must be told of is passed on here. Below the rooms is what
//! they tell each other: [`ids`], [`gpu`], [`peer`], [`place`], [`identity`], [`evidence`], [`verdict`], [`policy`], [`saved`],
//! [`client_recovery`], [`events`], [`facts`], and [`effect`] with the [`Turn`] that all are passed: the operator's policy, the time of the
//! input, whether the daemon ends, and the effects that the input has so far.
//!
//! # Invariants
//! A domain has at most one active server, and at most one start of a server under way. A client is in exactly one of:
//! waiting, dispatched, forgotten. Every request to a server has one purpose and is answered once. After `quit` nothing
//! is spawned. Nothing is routed to a server that has decided to end, or that is tainted. An input that names a server of
//! an earlier epoch is dropped. No culprit is ended, set apart or refused for a verdict that is less than certain. No
//! server is ended for a fault while a client of it lives that is known to have nothing on the GPUs that the fault
//! reaches. Copies of a client's descriptors live no longer than the client and its funeral, and memory that is kept has
//! an owner that lives or a deadline.
//!
//! The driver adds two: a descriptor is held before its other end is given away, and a connection ends for its peer only
//! when the daemon has closed it and the holder released it.

mod advance;
mod announcement;
pub(crate) mod catalogue;
mod client_recovery;
mod clients;
mod commands;
mod effect;
mod events;
mod evidence;
mod facts;
mod faults;
pub(crate) mod gpu;
mod gpus;
mod identity;
mod ids;
mod input;
mod kept_defaults;
mod milliseconds;
mod peer;
pub(crate) mod picture;
mod place;
mod policy;
mod quit;
pub(crate) mod saved;
mod servers;
mod serving;
mod successor;
#[cfg(test)]
mod tests;
pub(crate) mod vault;
mod verdict;

pub(crate) use announcement::Announcement;
pub(crate) use catalogue::{Remedy, Severity};
pub(crate) use client_recovery::{ClientRecovery, ClientRefusal};
pub(crate) use clients::channels::{Channel, Facts as ChannelFacts, HardwareChannel, HardwareFacts};
pub(crate) use clients::fate::{Fate, Part};
pub(crate) use clients::rest::{Awaited, RestFacts};
pub(crate) use clients::spares::{SparePlace, Standing};
pub(crate) use effect::Effect;
pub(crate) use effect::{PsRow, ServerSignal};
#[cfg(test)]
pub(crate) use events::HoldEnd;
pub(crate) use events::{ExitReason, FuneralEnd, JournalEvent};
pub(crate) use evidence::Isolation;
pub use evidence::{Access, MemoryFault, ProcessKey};
pub(crate) use evidence::{End, Evidence, XidClass};
pub(crate) use faults::funeral::Mourned;
pub(crate) use faults::held::GpuMemory;
pub(crate) use gpu::{ComputeMode, Gpu, ManagedMode, ModeChange, ModeOutcome, ModeStage};
pub(crate) use gpus::Device;
pub(crate) use gpus::{GpuPlace, GpuSeen, Outsider};
pub(crate) use identity::{Elsewhere, HiddenId, Identity, PodNames, Threads};
pub(crate) use ids::{
    ConnectionId, DomainId, EntranceId, JoinId, Pid, RequestId, ServerEpoch, SessionId, Uid, is_hidden, is_stand_in,
};
pub(crate) use input::Input;
pub(crate) use kept_defaults::{KeptDefaults, Said};
pub use peer::ExitCause;
pub(crate) use peer::{Entrance, NoReply, Peer};
pub(crate) use place::Place;
pub(crate) use place::{Namespace, Rights};
pub(crate) use policy::{
    Constants, DEFAULT_BURIAL_HOLD, DomainMatch, DomainPolicy, EndTainted, FaultPolicy, GpuPolicy, GroupPolicy,
    Grouping, Policy, Sharing, forms,
};
pub(crate) use servers::server::{Server, ServerState};
pub(crate) use verdict::{Confidence, Suspect, SuspectIdentity, Suspicion, Verdict};
#[cfg(test)]
pub(crate) use {
    events::{EarlyEnd, ModeCause, RefusalReason, Sanction},
    policy::{ComputeModeAction, CulpritAction, DomainPolicies, FuneralPolicy, StrangerAction, VictimAction},
    servers::server::Role,
    verdict::Testimony,
};

use clients::Clients;
use clients::spares::Wish;
use commands::{Asker, Commands};
use core::time::Duration;
use effect::Turn;
use faults::Faults;
use gpus::Gpus;
use remps_proto::admin::defaults::Defaults;
use remps_proto::mps::server::Reply;
use servers::Servers;
use servers::questions::{Purpose, Question};

/// The daemon's whole state that decides anything.
#[derive(Debug)]
pub(crate) struct Core {
    defaults: Defaults,
    servers: Servers,
    clients: Clients,
    faults: Faults,
    commands: Commands,
    gpus: Gpus,
    turn: Turn,
}

impl Core {
    /// A core without servers and clients.
    pub(crate) fn new(policy: Policy, defaults: Defaults) -> Self {
        Self {
            defaults,
            servers: Servers::default(),
            clients: Clients::default(),
            faults: Faults::default(),
            commands: Commands::default(),
            gpus: Gpus::default(),
            turn: Turn::new(policy),
        }
    }

    /// Takes in what happened at `now`, the time since the daemon's start, and says what is to be done.
    #[must_use]
    pub(crate) fn handle(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        self.turn.now = now;
        match input {
            Input::ClientArrived { connection, peer, identity, entrance } => {
                self.client_arrived(connection, peer, identity, entrance);
            }
            Input::SpareArrived { connection, peer, identity, token, entrance } => {
                self.spare_arrived(connection, peer, identity, token, entrance);
            }
            Input::EntranceOpened { entrance, result } => self.entrance_opened(entrance, result),
            Input::JoinWanted { join, name, devices, limits, listed, is_same_place } => {
                self.join(join, &name, &devices, limits, &listed, is_same_place);
            }
            Input::JoinBound { join, entrance, result } => self.join_bound(join, entrance, result),
            Input::JoinLeaves { join } => self.join_leaves(join),
            Input::JoinGone { join } => self.join_gone(join),
            Input::ServersKept { number, result } => self.servers_kept(number, result),
            Input::SpareWanted { process, token, patience } => {
                let until = now.saturating_add(patience);
                self.spare_wanted(process, Wish { token, until });
            }
            Input::SpareStands { process, token, standing } => self.spare_stands(process, token, standing),
            Input::SpareLives { process, token } => self.spare_lives(process, token),
            Input::SpareGone { process, token } => self.spare_gone(process, token),
            Input::RecoveryStands { process, stage } => self.recovery_stands(process, stage),
            Input::ClientRecovered { process, uid, recovery } => self.client_recovered(process, uid, recovery),
            Input::ClientUnrecovered { process, uid, refusal } => self.client_unrecovered(process, uid, refusal),
            Input::IdentityKnown { pid, identity } => {
                self.clients.identity_known(pid, &identity);
                self.faults.identity_known(pid, &identity);
            }
            Input::Evidence(evidence) => self.evidence(evidence),
            Input::CopiesHeld { process, descriptors } => self.copies_held(process, descriptors),
            Input::Tracked { process, tracked } => self.clients.tracked(process, tracked),
            Input::ChannelAdded { process, channel, facts } => {
                self.clients.channels_mut().add(process, channel, facts);
            }
            Input::ChannelRemoved { channel } => drop(self.clients.channels_mut().remove(&channel)),
            Input::AddressSpaceGone { va_space, process } => self.address_space_gone(va_space, process),
            Input::AddressSpaceAdded { va_space, process, condemned } => {
                self.address_space_added(va_space, process, condemned);
            }
            Input::HardwareForgotten => self.hardware_forgotten(),
            Input::HardwareKnown => self.faults.hardware_known(&mut self.turn),
            Input::GpusFound(places) => self.gpus_found(places),
            Input::SpacesFound { process, gpus } => self.spaces_found(process, gpus.as_deref()),
            Input::ServerGreeted { connection } => self.server_greeted(connection),
            Input::EndTakenBack { connection } => self.end_taken_back(connection),
            Input::RestAnswered { connection } => self.rest_answered(connection),
            Input::ClientDone { connection, status } => self.client_done(connection, status),
            Input::ProcessGone { process, end } => self.process_ended(process, end),
            Input::EndAwaited { server, ending } => self.end_awaited(server, ending),
            Input::ServerSpawned { server, pid } => self.servers.server_spawned(&mut self.turn, server, pid),
            Input::SpawnFailed { server, reason } => {
                if self.servers.spawn_failed(&mut self.turn, &self.clients, server, &reason) {
                    self.gpus.doubt_gpus(now);
                }
            }
            Input::ServerMeasured { server, memory_bytes } => {
                self.servers.server_measured(&mut self.turn, server, memory_bytes);
            }
            Input::ServerHello { connection, peer } => self.server_hello(connection, peer),
            Input::ServerLinkLost { server, reason } => {
                self.servers.server_link_lost(&mut self.turn, server, &reason);
            }
            Input::ServerExited { server, cause } => self.server_exited(server, cause),
            Input::CaughtUp { server } => self.caught_up(server),
            Input::Replied { request, reply } => self.replied(request, reply),
            Input::DevicesListed { session, devices } => self.devices_listed(session, devices),
            Input::Command { session, peer, rights, line } => {
                self.command(session, &Asker { peer, rights }, &line);
            }
            Input::GpusWatched { modes, may_end } => {
                self.faults.hold_is_watched(now);
                self.gpus.watch(now, modes, may_end);
            }
            Input::GpusSeen(seen) => {
                let is_of_mps = |pid| self.servers.is_one(pid) || self.clients.is_one(pid);
                self.gpus.seen(&mut self.turn, seen, is_of_mps);
            }
            Input::MemorySeen { memory, asked } => self.memory_seen(memory, asked),
            Input::ModesChanged(outcomes) => self.gpus.modes_changed(&mut self.turn, outcomes),
            Input::Terminate => self.terminate(),
            Input::Tick => {}
        }
        self.advance();
        self.turn.take()
    }

    /// The servers that there are, oldest first.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter()
    }

    /// The namespaces of named servers, each with its socket or about to have it.
    pub(crate) fn entrances(&self) -> Vec<Entrance> {
        self.servers.named().entrances().collect()
    }

    /// The namespace whose clients a server takes.
    pub(crate) fn entrance_of(&self, server: ServerEpoch) -> Option<Entrance> {
        self.servers.domain(self.servers.get(server)?.domain)?.key.entrance.clone()
    }

    /// Whether a server is still to be started, or starting.
    pub(crate) fn is_starting(&self, server: ServerEpoch) -> bool {
        self.servers.get(server).is_some_and(|server| matches!(server.state, ServerState::Starting { .. }))
    }

    /// What the holder is to keep of compute modes, for one that knows nothing yet.
    pub(crate) fn managed_modes(&self) -> Vec<ManagedMode> {
        self.gpus.managed_modes()
    }

    /// Whether the daemon is about to end.
    pub(crate) fn is_quitting(&self) -> bool {
        self.turn.quit.is_some()
    }

    /// How many clients wait for a server.
    pub(crate) fn waiting(&self) -> usize {
        self.clients.all_waiting()
    }

    fn replied(&mut self, id: RequestId, reply: Result<Reply, NoReply>) {
        let Some(Question { server, pid, purpose }) = self.servers.answered(id) else {
            return;
        };
        if reply.is_ok() {
            self.servers.progress(&mut self.turn, server);
        }
        self.faults.may_be_denied(server, id, &purpose, &reply);
        match purpose {
            Purpose::Shutdown => self.servers.shutdown_answered(&mut self.turn, server, reply),
            Purpose::Census => self.census_answered(server, reply),
            Purpose::FaultCheck => self.fault_check_answered(server, &reply),
            Purpose::Health(asked_at) => self.health_answered(server, asked_at, &reply),
            Purpose::Recovered(asked_at) => self.recovery_answered(server, asked_at, &reply),
            Purpose::Devices => self.gpus.devices_told(server, &reply),
            Purpose::Contexts => self.contexts_told(server, reply),
            Purpose::Remaining => self.remaining_told(server, &reply),
            Purpose::EndClient(key) => self.faults.client_terminated(&mut self.turn, key),
            Purpose::Guests => self.guests_told(server, &reply),
            Purpose::EndGuest(key) => self.guest_ended(server, key, &reply),
            Purpose::Command(asked) => self.command_answered(server, pid, asked, reply),
        }
    }

    fn server_exited(&mut self, epoch: ServerEpoch, cause: ExitCause) {
        self.close_incident(epoch);
        let Some(server) = self.servers.take(epoch) else {
            return;
        };
        self.buried_itself(&server);
        let reason = if self.has_clients(epoch) { FuneralEnd::ServerEnded } else { FuneralEnd::NobodyLeft };
        self.faults.end_funerals_of(&mut self.turn, epoch, reason);
        self.faults.server_gone(epoch);
        self.gpus.forget_devices_of(epoch);
        self.spares_live_after(epoch);
        for (pid, process) in self.clients.server_gone(epoch) {
            // The process lives on, or its end comes later; its copies are of use no more, and a new context of it
            // brings new ones.
            if process.copies > 0 {
                self.turn.push(Effect::ReleaseCopies { process: process.key(pid) });
            }
        }
        if self.servers.has_exited(&mut self.turn, &self.clients, &server, cause) {
            self.gpus.doubt_gpus(self.turn.now);
        }
    }
}
