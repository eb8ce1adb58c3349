//! A world around the core: processes, peers and time, all of them simulated, and the rules that must hold in it.

mod act;
mod actions;
mod checks;
mod effects;
mod ends;
mod gpus;
mod joins;
mod machine;
mod servers;

use super::*;
use crate::core::Device;
use crate::core::picture::{ClientPhase, DaemonFacts};
use remps_proto::mps::server::{Reply, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) use actions::{Action, CHANGES, COMMANDS};
pub(super) use checks::assert_is_bounded;
pub(super) use gpus::devices;
pub(super) use joins::{CLAIMS, SAID};
pub(super) use machine::{GPUS, bus, fault, identity, key, listing, places, records, uuid};

#[derive(Debug)]
struct Process {
    pid: u32,
    domain: u32,
    hello: bool,
    alive: bool,
    signalled: bool,
    faulted: bool,
    /// The GPUs that its faults were on, as far as anybody has said so.
    named: BTreeSet<u32>,
    /// The clients that they have hit.
    hit: BTreeSet<u32>,
    /// Those of them that faults have hit of which the core of today has been told.
    known_hit: BTreeSet<u32>,
    /// How often it was told.
    signs: u32,
    /// How often it had been told when it asked what the server has answered by saying that it is in no fault.
    denied: u32,
    /// Whether an operator has asked for its end.
    ordered: bool,
    clients: BTreeSet<u32>,
    /// Whether a fault was on a GPU that an earlier one had reached, which changes nothing for who came in between.
    is_repeated: bool,
    /// Whether the core can't know how many contexts all that were there have had.
    is_uncounted: bool,
}

impl Process {
    /// Nobody knows any more of the faults of which the core was told.
    fn forget(&mut self) {
        self.named.clear();
        self.known_hit.clear();
        self.denied = self.signs;
        self.is_repeated = false;
    }
}

#[derive(Debug)]
struct Asked {
    id: RequestId,
    server: ServerEpoch,
    request: Request,
    at: Duration,
    /// How many signs of faults of the server there had been.
    signs: u32,
}

/// The world.
pub(super) struct World {
    core: Core,
    policy: Policy,
    now: Duration,
    next: u64,
    spawning_works: bool,
    servers: BTreeMap<ServerEpoch, Process>,
    asked: Vec<Asked>,
    /// On account of which servers the driver is still to tell what has come.
    behind: BTreeSet<ServerEpoch>,
    /// The processes that have come and have not ended.
    living: BTreeSet<u32>,
    /// To which server each of them was sent last and not taken back.
    homes: BTreeMap<u32, ServerEpoch>,
    waiting: BTreeMap<ConnectionId, Peer>,
    dispatched: BTreeMap<ConnectionId, (Peer, ServerEpoch)>,
    /// When each connection came, as far as the core of today knows.
    came: BTreeMap<ConnectionId, Duration>,
    /// Of each server the latest time at which it was asked, and then said, that it is in no fault.
    known_sound: BTreeMap<ServerEpoch, Duration>,
    /// From when on the server must be known to be sound before a connection that joins others there has its end.
    must_be_sound: BTreeMap<ConnectionId, Duration>,
    /// Those of them that their server has not greeted.
    told: BTreeSet<ConnectionId>,
    /// And those with which their process came to the server, which knows it by none yet.
    fresh: BTreeSet<ConnectionId>,
    /// How many connections of a process servers have accepted.
    accepted: BTreeMap<u32, usize>,
    watched: BTreeSet<u32>,
    /// Whose descriptors the driver has copies of, the living and the dead.
    copies: BTreeSet<ProcessKey>,
    /// Whether the machine has [`GPUS`].
    has_gpus: bool,
    /// On which of them the contexts of each process are, in the order in which it has made them on its server.
    contexts: BTreeMap<u32, Vec<u32>>,
    /// The contexts that each had on the server that it has left for one that has not taken it in yet.
    left_behind: BTreeMap<u32, Vec<u32>>,
    /// The processes of which the core was told since their last context which GPUs they see.
    placed: BTreeSet<u32>,
    /// Those of which it was told since then on which GPU each of their contexts is.
    listed: BTreeSet<u32>,
    /// The processes of which the driver is to find that out.
    sought: Vec<ProcessKey>,
    /// The address spaces that the module knows.
    spaces: BTreeMap<u64, ProcessKey>,
    verdicts: Vec<Verdict>,
    /// Those that nobody outside was told of, and the clients that none of them may call a victim.
    unannounced: BTreeMap<u64, BTreeSet<ProcessKey>>,
    /// Whoever was a client of each server at any time, on its way or there.
    ever: BTreeMap<ServerEpoch, BTreeSet<u32>>,
    /// Who was said to have died as a client of a server, by that one's pid.
    died_on: BTreeSet<(u32, u32)>,
    /// Who has caused a fault.
    guilty: BTreeSet<ProcessKey>,
    /// How many processes have had this pid and are dead.
    births: BTreeMap<u32, u64>,
    /// Servers that did not say which clients they have.
    untold: BTreeSet<ServerEpoch>,
    unanswered: BTreeSet<SessionId>,
    /// The namespaces that have their socket.
    open: BTreeMap<EntranceId, Entrance>,
    /// By which of them each connection came that has not come to its end.
    came_by: BTreeMap<ConnectionId, EntranceId>,
    /// To which namespaces each process has come that lives, or to none: it can reach the sockets of all of them.
    came_to: BTreeMap<u32, BTreeSet<Option<EntranceId>>>,
    /// Whether sockets can be made.
    opening_works: bool,
    /// The thin daemons that have joined, and as what.
    thin: BTreeMap<JoinId, String>,
    /// The sessions that are answered when a claim's last client has gone, which may be never.
    quits: BTreeSet<SessionId>,
    /// Whether changes of named servers are kept on disk before they are made.
    keeps: bool,
    quitting: bool,
    exit: Option<u8>,
    saved_at_least_once: bool,
}

impl World {
    pub(super) fn new(sharing: Sharing, policy: Policy) -> Self {
        // So that there is no room for all the dead.
        let funerals = FuneralPolicy {
            hold_memory: Some(3 << 30),
            hold_memory_per_user: Some(2 << 30),
            ..FuneralPolicy::default()
        };
        let policy = Policy { sharing, funerals, ..policy };
        let mut core = Core::new(policy.clone(), Defaults::default());
        core.faults.hold_is_watched(Duration::ZERO);
        Self {
            core,
            policy,
            now: Duration::ZERO,
            next: 100,
            spawning_works: true,
            servers: BTreeMap::new(),
            asked: Vec::new(),
            behind: BTreeSet::new(),
            living: BTreeSet::new(),
            homes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            dispatched: BTreeMap::new(),
            came: BTreeMap::new(),
            known_sound: BTreeMap::new(),
            must_be_sound: BTreeMap::new(),
            told: BTreeSet::new(),
            fresh: BTreeSet::new(),
            accepted: BTreeMap::new(),
            watched: BTreeSet::new(),
            copies: BTreeSet::new(),
            has_gpus: false,
            contexts: BTreeMap::new(),
            left_behind: BTreeMap::new(),
            placed: BTreeSet::new(),
            listed: BTreeSet::new(),
            sought: Vec::new(),
            spaces: BTreeMap::new(),
            verdicts: Vec::new(),
            unannounced: BTreeMap::new(),
            ever: BTreeMap::new(),
            died_on: BTreeSet::new(),
            guilty: BTreeSet::new(),
            births: BTreeMap::new(),
            untold: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            open: BTreeMap::new(),
            came_by: BTreeMap::new(),
            came_to: BTreeMap::new(),
            opening_works: true,
            thin: BTreeMap::new(),
            quits: BTreeSet::new(),
            keeps: false,
            quitting: false,
            exit: None,
            saved_at_least_once: false,
        }
    }

    /// The same on a machine with several GPUs.
    pub(super) fn with_gpus(sharing: Sharing, policy: Policy) -> Self {
        let mut world = Self::new(sharing, policy);
        world.has_gpus = true;
        world.feed(Input::GpusFound(places()));
        world
    }

    fn ever_on(&self, server: ServerEpoch) -> BTreeSet<u32> {
        self.ever.get(&server).cloned().unwrap_or_default()
    }

    fn birth(&self, pid: u32) -> u64 {
        self.births.get(&pid).copied().unwrap_or_default()
    }

    fn key(&self, pid: u32) -> ProcessKey {
        key(pid, self.birth(pid))
    }

    fn identity(&self, pid: u32) -> Arc<Identity> {
        let visible = Self::claim(pid).filter(|_| self.has_gpus).map(|gpu| uuid(gpu).to_string());
        Arc::new(Identity { visible, ..Identity::clone(&identity(pid, self.birth(pid))) })
    }

    /// What is known of a process when it comes: of every other one more follows, unless it can't be read.
    fn at_once(&self, pid: u32) -> Arc<Identity> {
        Arc::new(Identity { awaits_more: pid % 2 == 1, ..Identity::clone(&self.identity(pid)) })
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn feed(&mut self, input: Input) {
        if self.exit.is_some() {
            return;
        }
        let effects = self.core.handle(self.now, input);
        self.forget_signs();
        for effect in effects {
            self.perform(effect);
        }
        while let Some(process) = self.sought.pop() {
            self.find_gpus(process);
        }
        self.check();
    }

    /// Signs of a server that has said since that it is in no fault are forgotten: nobody knows then where one was.
    fn forget_signs(&mut self) {
        let is_open = |epoch: ServerEpoch| self.is_lost(epoch) || self.core.faults.incidents().contains_key(&epoch);
        let open: BTreeSet<ServerEpoch> = self.servers.keys().copied().filter(|epoch| is_open(*epoch)).collect();
        let others = self.servers.iter_mut().filter(|(epoch, _)| !open.contains(epoch));
        others.map(|(_, process)| process).filter(|process| process.denied == process.signs).for_each(Process::forget);
    }

    fn is_lost(&self, server: ServerEpoch) -> bool {
        self.core.servers().any(|known| known.epoch == server && known.is_lost())
    }

    /// Whether this very process lives, and not another one that has its pid by now.
    fn lives(&self, process: ProcessKey) -> bool {
        self.living.contains(&process.pid) && self.key(process.pid) == process
    }

    /// Whom servers or the daemon know. A process that was taken back may have no home, and be watched all the same.
    fn clients(&self) -> BTreeSet<u32> {
        let of_servers = self.servers.values().flat_map(|process| process.clients.iter());
        self.homes.keys().chain(&self.watched).chain(of_servers).copied().collect()
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        // Deadlines are met one after the other, as a driver with a timer does.
        while let Some(deadline) = self.core.next_deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.feed(Input::Tick);
            if self.exit.is_some() {
                break;
            }
        }
        self.now = end;
        self.feed(Input::Tick);
    }
}
