//! Who may see what of an event.

use super::JournalEvent;
use crate::core::{SuspectIdentity, Uid, Verdict};

/// The witness that is the kernel's log.
const XID: &str = "xid";

impl JournalEvent {
    /// The event as `uid`, who is neither root nor the daemon's owner, may see it; `None` when it is none of his
    /// business.
    ///
    /// A user sees what happens to his own clients and servers, and to the daemon. Of a fault that hit them he sees who
    /// caused it, and not the command line, cgroup and pod of another user's process.
    pub(crate) fn seen_by(&self, uid: Uid) -> Option<Self> {
        match self {
            Self::DaemonStarted { .. }
            | Self::DaemonTakenOver { .. }
            | Self::DaemonEnded { .. }
            | Self::HardwareSuspected { .. }
            | Self::ComputeModeChanged { .. } => Some(self.clone()),
            Self::ServerStarted { uid: of, .. }
            | Self::ServerStartFailed { uid: of, .. }
            | Self::ServerReady { uid: of, .. }
            | Self::StandbyReady { uid: of, .. }
            | Self::ServerTainted { uid: of, .. }
            | Self::ServerEndedEarly { uid: of, .. }
            | Self::BurialHeld { uid: of, .. }
            | Self::ServerSwapped { uid: of, .. }
            | Self::ServerExited { uid: of, .. }
            | Self::ClientAdmitted { uid: of, .. }
            | Self::ClientRefused { uid: of, .. }
            | Self::ClientEnded { uid: of, .. }
            | Self::SpareGranted { uid: of, .. }
            | Self::SpareReady { uid: of, .. }
            | Self::SpareLives { uid: of, .. }
            | Self::SpareEnded { uid: of, .. }
            | Self::ClientRecovered { uid: of, .. }
            | Self::ClientUnrecovered { uid: of, .. }
            | Self::FaultSign { uid: of, .. }
            | Self::CulpritSanctioned { uid: of, .. }
            | Self::CulpritGone { uid: of, .. }
            | Self::VictimTerminated { uid: of, .. }
            | Self::FuneralBegun { uid: of, .. }
            | Self::FuneralMeasured { uid: of, .. }
            | Self::FuneralEnded { uid: of, .. }
            | Self::RegionEscrowed { uid: of, .. }
            | Self::RegionsReleased { uid: of, .. }
            | Self::RegionsAdopted { uid: of, .. }
            | Self::RegionExpired { uid: of, .. }
            | Self::StrangerFound { uid: of, .. }
            | Self::StrangerLeft { uid: of, .. }
            | Self::StrangerEnded { uid: of, .. }
            | Self::BreakerOpened { uid: of, .. }
            | Self::BreakerClosed { uid: of, .. } => (*of == uid).then(|| self.clone()),
            Self::Verdict { verdict, users } => users
                .contains(&uid)
                .then(|| Self::Verdict { verdict: verdict.without_private_parts(uid), users: vec![uid] }),
            Self::VerdictCorrected { verdict, users } => users
                .contains(&uid)
                .then(|| Self::VerdictCorrected { verdict: verdict.without_private_parts(uid), users: vec![uid] }),
            Self::EventsSuppressed { uid: of, .. } => (*of == Some(uid)).then(|| self.clone()),
            Self::WitnessLost { .. } | Self::WitnessMissing { .. } => None,
        }
    }
}

impl JournalEvent {
    /// The event without what the node's kernel has said in its log, which may name processes of other claims.
    #[must_use]
    pub(crate) fn without_the_nodes_words(mut self) -> Self {
        if let Self::Verdict { verdict, .. } | Self::VerdictCorrected { verdict, .. } = &mut self {
            verdict.forget_the_nodes_words();
        }
        if let Self::FaultSign { witness: XID, names, text, .. } = &mut self {
            *names = None;
            text.clear();
        }
        self
    }
}

impl Verdict {
    /// Without what the node's kernel has said in its log.
    pub(crate) fn forget_the_nodes_words(&mut self) {
        for one in self.witnesses.iter_mut().filter(|one| one.witness == XID) {
            one.names = None;
            one.text.clear();
        }
    }

    /// The verdict as `uid` may see it: unless the culprit is his own, without its command line, cgroup, container and
    /// pod, without the witnesses' words, which may name programs, and without whom the log names for no proven reason.
    pub(crate) fn without_private_parts(&self, uid: Uid) -> Self {
        let mut verdict = self.clone();
        if verdict.culprit.as_ref().is_some_and(|culprit| culprit.uid == uid) {
            return verdict;
        }
        if let Some(culprit) = verdict.culprit.as_mut() {
            culprit.identity = SuspectIdentity::default();
        }
        for testimony in &mut verdict.witnesses {
            testimony.text.clear();
        }
        verdict.named_by_log.clear();
        verdict
    }
}
