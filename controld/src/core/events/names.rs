//! The name that the journal has for each event.

use super::JournalEvent;

impl JournalEvent {
    /// The name that the journal has for it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::DaemonStarted { .. } => "daemon-started",
            Self::DaemonTakenOver { .. } => "daemon-taken-over",
            Self::DaemonEnded { .. } => "daemon-ended",
            Self::ServerStarted { .. } => "server-started",
            Self::ServerStartFailed { .. } => "server-start-failed",
            Self::ServerReady { .. } => "server-ready",
            Self::StandbyReady { .. } => "standby-ready",
            Self::ServerTainted { .. } => "server-tainted",
            Self::ServerEndedEarly { .. } => "server-ended-early",
            Self::BurialHeld { .. } => "burial-held",
            Self::ServerSwapped { .. } => "server-swapped",
            Self::ServerExited { .. } => "server-exited",
            Self::ClientAdmitted { .. } => "client-admitted",
            Self::ClientRefused { .. } => "client-refused",
            Self::ClientEnded { .. } => "client-ended",
            Self::SpareGranted { .. } => "spare-granted",
            Self::SpareReady { .. } => "spare-ready",
            Self::SpareLives { .. } => "spare-lives",
            Self::SpareEnded { .. } => "spare-ended",
            Self::ClientRecovered { .. } => "client-recovered",
            Self::ClientUnrecovered { .. } => "client-unrecovered",
            Self::FaultSign { .. } => "fault-sign",
            Self::Verdict { .. } => "verdict",
            Self::VerdictCorrected { .. } => "verdict-corrected",
            Self::HardwareSuspected { .. } => "hardware-suspected",
            Self::CulpritSanctioned { .. } => "culprit-sanctioned",
            Self::VictimTerminated { .. } => "victim-terminated",
            Self::CulpritGone { .. } => "culprit-gone",
            Self::FuneralBegun { .. } => "funeral-begun",
            Self::FuneralMeasured { .. } => "funeral-measured",
            Self::FuneralEnded { .. } => "funeral-ended",
            Self::RegionEscrowed { .. } => "region-escrowed",
            Self::RegionsReleased { .. } => "regions-released",
            Self::RegionsAdopted { .. } => "regions-adopted",
            Self::RegionExpired { .. } => "region-expired",
            Self::BreakerOpened { .. } => "breaker-opened",
            Self::BreakerClosed { .. } => "breaker-closed",
            Self::ComputeModeChanged { .. } => "compute-mode-changed",
            Self::StrangerFound { .. } => "stranger-found",
            Self::StrangerLeft { .. } => "stranger-left",
            Self::StrangerEnded { .. } => "stranger-ended",
            Self::WitnessLost { .. } => "witness-lost",
            Self::EventsSuppressed { .. } => "events-suppressed",
            Self::WitnessMissing { .. } => "witness-missing",
        }
    }
}
