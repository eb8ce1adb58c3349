//! One server and the states it goes through.
//!
//! ```text
//!            hello             shutdown_server, idle,        0x05 answers 0
//!  Starting ───────► Serving ─────── another user ──► Draining ──────────────► Ending ──► (gone)
//!     │                 ▲                               │ │                      ▲
//!     │                 └──── called off ───────────────┘ └──── -f, timeout ─────┤
//!     └─────────────────────────── no hello in time, quit ──────────────────────┘
//! ```
//! `Starting` and `Serving` servers are active: their domain routes newcomers to them, unless they only stand by. A
//! server is forgotten when its process is gone.

use super::backoff::Backoff;
use super::health::Health;
use crate::core::events::{EarlyEnd, StartReason};
use crate::core::ids::{DomainId, Pid, ServerEpoch, Uid};
use core::time::Duration;

/// First pause of the vendor's daemon between two requests to end when idle.
const FIRST_ASK_AGAIN: Duration = Duration::from_millis(200);
/// Largest pause; the end of a client's process shortens it.
const LARGEST_ASK_AGAIN: Duration = Duration::from_secs(5);

/// Where a server is in its life.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ServerState {
    /// Its process is being started or initialises; no hello yet.
    Starting {
        /// When it is given up.
        deadline: Duration,
    },
    /// It takes clients.
    Serving,
    /// It is asked again and again to end as soon as it has no clients.
    Draining(Drain),
    /// It has said that it ends, or has a signal.
    Ending {
        /// When it gets SIGKILL; `None` once it has it.
        kill_at: Option<Duration>,
        /// Why.
        leaving: Leaving,
    },
}

/// What is known of a drain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drain {
    /// When to ask again; `None` while a request is under way.
    pub ask_at: Option<Duration>,
    /// Pauses between requests.
    pub pauses: Backoff,
    /// When to force it.
    pub force_at: Option<Duration>,
    /// Whether only its having been idle asked for this, so that one client calls it off.
    pub because_idle: bool,
    /// Whether it is asked to go so that another user's can start.
    pub makes_room: bool,
    /// Whether anything else than a fault asked for it, and when to force it for that.
    pub is_ordered: bool,
    /// When to force it whatever becomes of the fault.
    pub ordered_force_at: Option<Duration>,
}

impl Drain {
    /// A drain that asks at once.
    pub(crate) fn starting(now: Duration, force_at: Option<Duration>, because_idle: bool) -> Self {
        Self {
            ask_at: Some(now),
            pauses: Backoff::new(FIRST_ASK_AGAIN, LARGEST_ASK_AGAIN),
            force_at,
            because_idle,
            makes_room: false,
            is_ordered: false,
            ordered_force_at: None,
        }
    }
}

/// What a server is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It serves its domain's clients.
    Active,
    /// It takes over when a fault taints the active one; until then it gets no client.
    Standby,
}

/// Why a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It was asked to, and had no clients.
    Drained,
    /// The same because it had been idle.
    Idle,
    /// The same so that another user's can start.
    MakingRoom,
    /// It had to, whatever its clients did.
    Forced,
    /// A fault had spoilt it, and it was killed before its clients had left.
    Spoilt(EarlyEnd),
    /// Nobody wanted that: it did not get ready, or can't be controlled any longer.
    Lost,
}

/// One server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Server {
    /// Which start this is.
    pub epoch: ServerEpoch,
    /// The domain it serves.
    pub domain: DomainId,
    /// What it is for.
    pub role: Role,
    /// Why it was started.
    pub reason: StartReason,
    /// When it was started, or taken over.
    pub started_at: Duration,
    /// What it is taken for.
    pub health: Health,
    /// When the last sign came that a client of it may have faulted, from somebody who is no stranger to it.
    pub ill_at: Option<Duration>,
    /// When it last did anything that was asked of it; where it owed nothing, when it was asked again.
    pub progress_at: Duration,
    /// For which `progress_at` the driver was asked to tell all that has come; `None` when it is not asked.
    pub catching_up: Option<Duration>,
    /// A moment at which it is known to have been in no fault, the latest.
    pub healthy_at: Option<Duration>,
    /// When it was last asked for its status on a newcomer's account, and has not answered yet; it holds up nobody else.
    pub health_asked: Option<Duration>,
    /// The user it runs as.
    pub uid: Uid,
    /// Its pid; `None` until it is spawned.
    pub pid: Option<Pid>,
    /// Where it is in its life.
    pub state: ServerState,
    /// When it said hello.
    pub ready_at: Option<Duration>,
    /// Since when no client process is known on it.
    pub idle_since: Option<Duration>,
    /// Whether it still has to say which clients it has: it was taken over from an earlier daemon.
    pub census_due: bool,
    /// Clients that do their handshake with it now.
    pub handshakes: usize,
    /// Those of them that have their end of the connection, so that they may be the ones to be waited for.
    pub with_clients: usize,
    /// Whether a client has had its end of a connection to it.
    pub has_served: bool,
    /// Whether it may have clients whose processes nobody sees.
    pub has_hidden_clients: bool,
    /// Whether it may have such clients that nobody can tell from each other.
    pub has_unknown_clients: bool,
    /// Whether somebody has set limits of this server alone, which another one would not have.
    pub has_own_limits: bool,
    /// Until when a fault alone neither ends it nor has it asked to end, since clients of it recover.
    pub held_until: Option<Duration>,
    /// What it costs on the GPU without clients, in bytes, where that is known.
    pub memory_bytes: Option<u64>,
    /// The share of threads that its clients were last given, in percent; `None` when nobody has noted it.
    pub threads: Option<f64>,
}

impl Server {
    /// An active server for a client, of which nothing is known but its state.
    pub(in crate::core) fn new(
        epoch: ServerEpoch,
        domain: DomainId,
        uid: Uid,
        now: Duration,
        state: ServerState,
    ) -> Self {
        Self {
            epoch,
            domain,
            role: Role::Active,
            reason: StartReason::Client,
            started_at: now,
            health: Health::Sound,
            ill_at: None,
            progress_at: now,
            catching_up: None,
            healthy_at: None,
            health_asked: None,
            uid,
            pid: None,
            state,
            ready_at: None,
            idle_since: None,
            census_due: false,
            handshakes: 0,
            with_clients: 0,
            has_served: false,
            has_hidden_clients: false,
            has_unknown_clients: false,
            has_own_limits: false,
            held_until: None,
            memory_bytes: None,
            threads: None,
        }
    }

    /// Whether newcomers of its domain belong to it.
    pub(crate) fn is_active(&self) -> bool {
        self.role == Role::Active && self.is_up()
    }

    /// Whether it starts or takes clients, or could.
    pub(crate) fn is_up(&self) -> bool {
        self.tainted().is_none() && matches!(self.state, ServerState::Starting { .. } | ServerState::Serving)
    }

    /// Whether a fault has cost its clients their contexts. One that only gets no newcomers still serves those it has.
    pub(crate) fn is_lost(&self) -> bool {
        self.tainted().is_some_and(|taint| taint.incident != 0)
    }

    /// Why it was killed, where that was on account of a fault and before its clients had left.
    pub(crate) fn early_end(&self) -> Option<EarlyEnd> {
        match self.state {
            ServerState::Ending { leaving: Leaving::Spoilt(reason), .. } => Some(reason),
            ServerState::Starting { .. }
            | ServerState::Serving
            | ServerState::Draining(_)
            | ServerState::Ending { .. } => None,
        }
    }

    /// Whether anybody asked for its end, so that its exit is no surprise.
    pub(crate) fn is_told_to_end(&self) -> bool {
        match &self.state {
            ServerState::Starting { .. } | ServerState::Serving => false,
            ServerState::Draining(_) => true,
            ServerState::Ending { leaving, .. } => *leaving != Leaving::Lost,
        }
    }

    /// Whether it is known to have been in no fault then, or later.
    pub(crate) fn is_known_sound_since(&self, since: Duration) -> bool {
        self.healthy_at.is_some_and(|at| at >= since)
    }

    /// Whether it is still starting.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.state, ServerState::Starting { .. })
    }

    /// Whether it can be asked anything.
    pub(crate) fn is_connected(&self) -> bool {
        self.ready_at.is_some() && !matches!(self.state, ServerState::Ending { .. })
    }

    /// Whether a process without a context there goes to another server with its next connection.
    pub(crate) fn can_be_left(&self) -> bool {
        self.tainted().is_some() || !self.is_connected()
    }

    /// Whether an answer is outstanding that decides whether it takes clients: to a request to end when idle, or for
    /// the clients it has.
    pub(crate) fn is_deciding(&self) -> bool {
        self.census_due
            || self.is_suspected()
            || matches!(&self.state, ServerState::Draining(Drain { ask_at: None, .. }))
    }

    /// What is done then on account of a fault is not done before the hold of its burial is over.
    fn not_before(&self, at: Option<Duration>) -> Option<Duration> {
        at.map(|at| self.held_until.map_or(at, |held| at.max(held)))
    }

    /// When it is asked to end the next time.
    fn asked_at(&self, drain: &Drain) -> Option<Duration> {
        if drain.is_ordered { drain.ask_at } else { self.not_before(drain.ask_at) }
    }

    /// Whether it drains and is to be asked to end by now.
    pub(crate) fn is_to_be_asked(&self, now: Duration) -> bool {
        match &self.state {
            ServerState::Draining(drain) => self.asked_at(drain).is_some_and(|at| at <= now),
            ServerState::Starting { .. } | ServerState::Serving | ServerState::Ending { .. } => false,
        }
    }

    /// When it is forced if it has not ended by then; nothing is known of that unless it drains.
    pub(crate) fn forced_at(&self) -> Option<Duration> {
        match &self.state {
            ServerState::Draining(drain) => {
                let on_account_of_all = self.not_before(drain.force_at);
                [on_account_of_all, drain.ordered_force_at].into_iter().flatten().min()
            }
            ServerState::Starting { .. } | ServerState::Serving | ServerState::Ending { .. } => None,
        }
    }

    /// The next time at which something must be done about it.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match &self.state {
            ServerState::Starting { deadline } => Some(*deadline),
            ServerState::Serving => None,
            ServerState::Draining(drain) => [self.asked_at(drain), self.forced_at()].into_iter().flatten().min(),
            ServerState::Ending { kill_at, .. } => *kill_at,
        }
    }
}
