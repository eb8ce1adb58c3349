//! What a server is taken for, and what it is asked about itself.
//!
//! A sign of a fault that anybody could have forged makes the daemon ask, and send nobody there meanwhile. A newcomer's
//! question (`settle`) holds up nobody but those whom it is asked for.

use super::Servers;
use super::questions::Purpose;
use super::server::Server;
use crate::core::NoReply;
use crate::core::effect::Turn;
use crate::core::ids::ServerEpoch;
use core::time::Duration;
use remps_proto::mps::server::{Reply, Request};

/// What a server is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// Nothing speaks against it.
    Sound,
    /// It was asked for its status because of a sign of a fault that anybody could have forged; until it has answered
    /// nobody is sent there.
    Suspected(Suspicion),
    /// It never serves a newcomer again.
    Tainted(Taint),
}

/// A question whether a server is in a fault that has no answer yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// Whether another sign has come since it was asked.
    pub is_anew: bool,
    /// Whether it is asked for the second time because of that.
    pub is_second: bool,
}

/// Whether a server owes something and does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It was never silent.
    Never,
    /// It has been since then.
    Since(Duration),
    /// It was, and has answered since.
    Over,
}

/// Since when, and in which incident, a server's clients are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taint {
    /// When the daemon knew.
    pub at: Duration,
    /// The incident; 0 for a server whose clients have lost nothing: in which the work of a dead client may still run,
    /// or that says nothing and shows no sign of a fault.
    pub incident: u64,
    /// What it was asked before, and has not answered.
    pub suspicion: Option<Suspicion>,
    /// Whether it says nothing. A server that falls silent is tainted.
    pub silence: Silence,
}

impl Taint {
    /// One of this time and this incident.
    pub(crate) fn new(at: Duration, incident: u64) -> Self {
        Self { at, incident, suspicion: None, silence: Silence::Never }
    }
}

impl Server {
    /// Whether, and since when, it gets no newcomer any more.
    pub(crate) fn tainted(&self) -> Option<Taint> {
        match self.health {
            Health::Tainted(taint) => Some(taint),
            Health::Sound | Health::Suspected(_) => None,
        }
    }

    /// Whether it was asked whether it is in a fault, and has not answered.
    pub(crate) fn is_suspected(&self) -> bool {
        match self.health {
            Health::Sound => false,
            Health::Suspected(_) => true,
            Health::Tainted(taint) => taint.suspicion.is_some(),
        }
    }

    /// Since when it has owed something and done nothing.
    pub(crate) fn silent(&self) -> Option<Duration> {
        match self.tainted()?.silence {
            Silence::Since(at) => Some(at),
            Silence::Never | Silence::Over => None,
        }
    }

    /// It gets no newcomer any more.
    pub(super) fn taint(&mut self, at: Duration, incident: u64) {
        self.health = Health::Tainted(match self.health {
            Health::Sound => Taint::new(at, incident),
            Health::Suspected(suspicion) => Taint { suspicion: Some(suspicion), ..Taint::new(at, incident) },
            Health::Tainted(before) => Taint { at, incident, ..before },
        });
    }

    /// It has answered, or has not, whether it is in a fault; what it was asked on account of.
    pub(super) fn answers_suspicion(&mut self) -> Option<Suspicion> {
        match &mut self.health {
            Health::Sound => None,
            Health::Suspected(suspicion) => {
                let suspicion = *suspicion;
                self.health = Health::Sound;
                Some(suspicion)
            }
            Health::Tainted(taint) => taint.suspicion.take(),
        }
    }

    /// It says nothing from now on, or answers again; it is tainted.
    pub(super) fn set_silence(&mut self, silence: Silence) {
        if let Health::Tainted(taint) = &mut self.health {
            taint.silence = silence;
        }
    }
}

impl Servers {
    /// Asks a server how it is, for newcomers that may go there then.
    pub(in crate::core) fn ask_for_health(&mut self, turn: &mut Turn, epoch: ServerEpoch) {
        let now = turn.now;
        if let Some(server) = self.all.get_mut(&epoch) {
            server.health_asked = Some(now);
            self.ask(turn, epoch, Request::Status, Purpose::Health(now));
        }
    }

    /// After a sign that not everybody can give: if the server says nothing either, it has met a fault sooner. Whether
    /// there is such a server.
    pub(in crate::core) fn is_ill(&mut self, now: Duration, epoch: ServerEpoch) -> bool {
        let server = self.all.get_mut(&epoch);
        server.map(|server| server.ill_at = Some(now)).is_some()
    }

    /// Asks a server whether it is in a fault, and sends nobody there until it has answered.
    pub(in crate::core) fn ask_on_suspicion(&mut self, turn: &mut Turn, epoch: ServerEpoch, is_second: bool) {
        let Some(server) = self.all.get_mut(&epoch).filter(|server| server.is_connected()) else {
            return;
        };
        match &mut server.health {
            Health::Sound => {
                server.health = Health::Suspected(Suspicion { is_anew: false, is_second });
                self.ask(turn, epoch, Request::Status, Purpose::FaultCheck);
            }
            // It may have answered already, before this came.
            Health::Suspected(suspicion) => suspicion.is_anew = true,
            Health::Tainted(_) => {}
        }
    }

    /// A server has answered, or has not, whether it is in a fault; what it was asked on account of.
    pub(in crate::core) fn answers_suspicion(&mut self, epoch: ServerEpoch) -> Option<Suspicion> {
        self.all.get_mut(&epoch)?.answers_suspicion()
    }

    /// The answer to a question of that time for newcomers; whether there is such a server.
    pub(in crate::core) fn answers_health(
        &mut self,
        now: Duration,
        epoch: ServerEpoch,
        asked_at: Duration,
        reply: &Result<Reply, NoReply>,
    ) -> bool {
        let Some(server) = self.all.get_mut(&epoch) else {
            return false;
        };
        // A later question may be under way.
        server.health_asked = server.health_asked.filter(|at| *at > asked_at);
        match reply {
            Ok(Reply::Active(false)) | Err(NoReply::TimedOut | NoReply::Lost) => {}
            Ok(_) => server.healthy_at = server.healthy_at.max(Some(asked_at)),
            // Nobody can know it of this release.
            Err(NoReply::Unsupported) => server.healthy_at = Some(now),
        }
        true
    }
}
