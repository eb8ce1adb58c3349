//! Which event counts where.

use super::families::{Counters, DOMAIN, Histograms, Labels, Seconds};
use crate::core::{Announcement, ClientRecovery, End, ExitReason, Gpu, JournalEvent, Verdict};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::borrow::Cow;

/// What is counted of events.
#[derive(Debug)]
pub(super) struct EventMetrics {
    events: Counters,
    restarts: Counters,
    early_ends: Counters,
    start_seconds: Histograms,
    admitted: Counters,
    refused: Counters,
    wait_seconds: Histograms,
    ends: Counters,
    signs: Counters,
    /// Without labels, so that it is there before the first fault: a series that begins with 1 has not increased.
    incidents: Counter,
    verdicts: Counters,
    corrections: Counters,
    faults: Counters,
    /// Of pods whose names are known.
    pods: Counters,
    isolations: Counters,
    recovery_seconds: Histograms,
    client_recoveries: Histograms,
    client_refusals: Counters,
    recovery_steps: Seconds,
    switch_steps: Seconds,
    sanctions: Counters,
    victims_terminated: Counters,
    funerals: Counters,
    burials: Histograms,
    funeral_seconds: Histograms,
    breaker: Counters,
    witness_lost: Counters,
    strangers_ended: Counters,
}

fn domain(domain: &str) -> (&'static str, Cow<'static, str>) {
    (DOMAIN, domain.to_owned().into())
}

fn label(name: &'static str, value: &'static str) -> (&'static str, Cow<'static, str>) {
    (name, value.into())
}

/// A label with the journal's word for something, written as such values are here.
fn kind(name: &'static str, value: impl Serialize) -> (&'static str, Cow<'static, str>) {
    let word = serde_json::to_value(value).unwrap_or_default();
    (name, word.as_str().unwrap_or_default().replace('-', "_").into())
}

impl EventMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut counters = |name: &str, help: &str| Counters::register(registry, name, help);
        let events = counters("events", "Events of the journal");
        let restarts = counters("server_restarts", "Ends of servers and starts that failed, by reason");
        let early_ends = counters("server_early_ends", "Servers that were ended at once after an exception, by reason");
        let admitted = counters("clients_admitted", "Clients that a server has taken");
        let refused = counters("clients_refused", "Clients that were sent away");
        let ends = counters("client_ends", "Ends of client processes");
        let signs = counters("fault_signs", "Statements of witnesses that may be faults");
        let verdicts = counters("verdicts", "Verdicts on faults, each with how sure it is");
        let corrections = counters("verdict_corrections", "Verdicts that late evidence has changed");
        let faults = counters("client_faults", "Clients that were hit by a fault, as its culprit or its victims");
        let pods = counters("pod_faults", "Faults that hit processes of a pod, as their culprit or as victims");
        let isolations =
            counters("client_isolations", "Faults that hit their culprit alone, or everybody on the server");
        let client_refusals =
            counters("client_recoveries_refused", "Recoveries of clients that were refused, as they say");
        let sanctions = counters("culprit_sanctions", "What was done to culprits");
        let victims_terminated = counters("victims_terminated", "Lingering victims that were ended");
        let funerals = counters("funerals", "Dead clients whose descriptors were held and are closed, by reason");
        let breaker = counters("breaker_opened", "Times that a domain's servers kept failing");
        let witness_lost = counters("witness_lost", "Statements of witnesses that were lost before they were read");
        let strangers_ended = counters("stranger_ends", "Signals to processes that used a GPU outside MPS");
        let mut seconds = |name: &str, help: &str| Seconds::register(registry, name, help);
        let recovery_steps = seconds("client_recovery_step", "Time in each step of clients' recoveries, as they say");
        let switch_steps =
            seconds("client_switch_step", "Time in each step of clients' switches to their spare copy, as they say");
        let incidents = Counter::default();
        registry.register("faults", "Faults on which there is a verdict", incidents.clone());
        let mut histograms = |name: &str, help: &str| Histograms::register(registry, name, help);
        Self {
            events,
            restarts,
            early_ends,
            start_seconds: histograms("server_start_seconds", "Time from a server's start to its first word"),
            admitted,
            refused,
            wait_seconds: histograms("client_wait_seconds", "Time that clients waited for a server"),
            ends,
            signs,
            incidents,
            verdicts,
            corrections,
            faults,
            pods,
            isolations,
            recovery_seconds: histograms(
                "recovery_seconds",
                "Time from a fault's first sign to the verdict (detect) and to a sound server (respawn)",
            ),
            client_recoveries: histograms(
                "client_recovery_seconds",
                "Time that clients' recoveries took, as they say, by the way that they took",
            ),
            client_refusals,
            recovery_steps,
            switch_steps,
            sanctions,
            victims_terminated,
            funerals,
            burials: histograms(
                "burial_hold_seconds",
                "Time that nothing of a spoilt server was buried while clients of it recovered, by why it was then",
            ),
            funeral_seconds: histograms("funeral_seconds", "Time that a dead client's descriptors were held"),
            breaker,
            witness_lost,
            strangers_ended,
        }
    }

    pub(super) fn observe(&mut self, event: &JournalEvent) {
        self.events.add(vec![label("event", event.name())], 1);
        match event {
            JournalEvent::ServerStartFailed { domain: of, .. } => {
                self.restarts.add(vec![domain(of), kind("reason", ExitReason::ExecFailed)], 1);
            }
            JournalEvent::ServerReady { domain: of, start, .. }
            | JournalEvent::StandbyReady { domain: of, start, .. } => {
                self.start_seconds.observe(vec![domain(of)], *start);
            }
            JournalEvent::ServerSwapped { domain: of, after, .. } => {
                self.recovery_seconds.observe(vec![domain(of), label("phase", "respawn")], *after);
            }
            JournalEvent::ServerEndedEarly { domain: of, reason, .. } => {
                self.early_ends.add(vec![domain(of), kind("reason", reason)], 1);
            }
            JournalEvent::BurialHeld { reason, held, .. } => {
                self.burials.observe(vec![kind("reason", reason)], *held);
            }
            JournalEvent::ServerExited { domain: of, reason, .. } => {
                self.restarts.add(vec![domain(of), kind("reason", reason)], 1);
            }
            JournalEvent::ClientAdmitted { domain: of, waited, .. } => {
                self.admitted.add(vec![domain(of)], 1);
                self.wait_seconds.observe(vec![domain(of)], *waited);
            }
            JournalEvent::ClientRefused { domain: of, reason, .. } => {
                self.refused.add(vec![domain(of), kind("reason", reason)], 1);
            }
            JournalEvent::ClientEnded { domain: of, end, .. } => {
                self.ends.add(vec![domain(of), label("end", end_word(*end))], 1);
            }
            JournalEvent::ClientRecovered { recovery, .. } => self.client_recovery(recovery),
            // Its reason is no label: as many series as a client wants would come of it.
            JournalEvent::ClientUnrecovered { refusal, .. } => {
                self.client_refusals.add(vec![label("final", if refusal.is_final { "yes" } else { "no" })], 1);
            }
            JournalEvent::FaultSign { witness, .. } => self.signs.add(vec![label("witness", witness)], 1),
            JournalEvent::Verdict { verdict, .. } => self.verdict(verdict),
            // The fault and its victims are counted already; who is named has changed.
            JournalEvent::VerdictCorrected { verdict, .. } => {
                self.corrections.add(vec![kind("confidence", verdict.confidence)], 1);
            }
            JournalEvent::CulpritSanctioned { sanction: what, .. } => {
                self.sanctions.add(vec![kind("sanction", what)], 1);
            }
            JournalEvent::VictimTerminated { domain: of, .. } => self.victims_terminated.add(vec![domain(of)], 1),
            JournalEvent::FuneralEnded { reason, held, .. } => {
                self.funerals.add(vec![kind("reason", reason)], 1);
                self.funeral_seconds.observe(vec![kind("reason", reason)], *held);
            }
            JournalEvent::BreakerOpened { domain: of, .. } => self.breaker.add(vec![domain(of)], 1),
            JournalEvent::WitnessLost { witness, count, .. } => {
                self.witness_lost.add(vec![label("witness", witness)], *count);
            }
            JournalEvent::StrangerEnded { .. } => self.strangers_ended.add(vec![], 1),
            JournalEvent::DaemonStarted { .. }
            | JournalEvent::DaemonTakenOver { .. }
            | JournalEvent::DaemonEnded { .. }
            | JournalEvent::ServerStarted { .. }
            | JournalEvent::ServerTainted { .. }
            | JournalEvent::HardwareSuspected { .. }
            | JournalEvent::SpareGranted { .. }
            | JournalEvent::SpareReady { .. }
            | JournalEvent::SpareLives { .. }
            | JournalEvent::SpareEnded { .. }
            | JournalEvent::CulpritGone { .. }
            | JournalEvent::FuneralBegun { .. }
            | JournalEvent::FuneralMeasured { .. }
            | JournalEvent::RegionEscrowed { .. }
            | JournalEvent::RegionsReleased { .. }
            | JournalEvent::RegionsAdopted { .. }
            | JournalEvent::RegionExpired { .. }
            | JournalEvent::BreakerClosed { .. }
            | JournalEvent::ComputeModeChanged { .. }
            | JournalEvent::StrangerFound { .. }
            | JournalEvent::StrangerLeft { .. }
            | JournalEvent::EventsSuppressed { .. }
            | JournalEvent::WitnessMissing { .. } => {}
        }
    }

    /// Counts each process of a pod that a verdict concerns. One that corrects another has only the culprit to add.
    pub(super) fn announce(&mut self, announcement: &Announcement) {
        let verdict = &announcement.verdict;
        let xid = announcement.xid().map(|number| number.to_string()).unwrap_or_default();
        let culprit = verdict.culprit.iter().map(|suspect| ("culprit", suspect));
        let victims = announcement.victims.iter().filter(|_| verdict.corrects.is_none());
        for (role, suspect) in culprit.chain(victims.map(|suspect| ("victim", suspect))) {
            let Some(names) = &suspect.identity.names else { continue };
            let labels: Labels = vec![
                ("namespace", names.namespace.clone().into()),
                ("pod", names.pod_name.clone().into()),
                ("container", names.container_name.clone().into()),
                ("UUID", announcement.uuid().unwrap_or_default().to_owned().into()),
                ("xid", xid.clone().into()),
                label("role", role),
            ];
            self.pods.add(labels.into_iter().chain(instance_id(verdict.gpus.first())).collect(), 1);
        }
    }

    /// Ways and steps are words of ours, so that there are as many series as these have, whatever a client says.
    fn client_recovery(&mut self, recovery: &ClientRecovery) {
        let way = || kind("way", recovery.way);
        self.client_recoveries.observe(vec![way()], recovery.total);
        for (step, time) in recovery.steps.iter() {
            self.recovery_steps.add(vec![way(), label("step", step)], time);
        }
        for (step, time) in recovery.switch.iter() {
            self.switch_steps.add(vec![label("step", step)], time);
        }
    }

    fn verdict(&mut self, verdict: &Verdict) {
        let named = verdict.gpus.first();
        let of_fault = verdict.fault.as_ref().and_then(|fault| fault.gpu.clone());
        let gpu = named.map(|gpu| gpu.uuid().to_owned()).or(of_fault).unwrap_or_default();
        // A label of its own only where there are such instances.
        let mig = || named.and_then(Gpu::instance).map(|mig| ("MIG", Cow::from(mig)));
        let xid = verdict.xid.map(|number| number.to_string()).unwrap_or_default();
        self.incidents.inc();
        self.verdicts.add(vec![kind("confidence", verdict.confidence), label("kind", verdict.kind)], 1);
        let faults = |role| -> Labels {
            let labels = [
                ("UUID", gpu.clone().into()),
                ("xid", xid.clone().into()),
                label("kind", verdict.kind),
                label("role", role),
            ];
            labels.into_iter().chain(mig()).chain(instance_id(named)).collect()
        };
        if verdict.culprit.is_some() {
            self.faults.add(faults("culprit"), 1);
        }
        if !verdict.isolated && !verdict.victims.is_empty() {
            self.faults.add(faults("victim"), verdict.victims.len() as u64);
        }
        let result = if verdict.isolated { "isolated" } else { "escalated" };
        let labels = [("UUID", gpu.clone().into()), label("result", result)];
        self.isolations.add(labels.into_iter().chain(mig()).collect(), 1);
        let labels = vec![domain(&verdict.domain), label("phase", "detect")];
        self.recovery_seconds.observe(labels, verdict.delay);
    }
}

/// The number of a MIG GPU instance, as NVIDIA's exporter has it, where it is known.
fn instance_id(gpu: Option<&Gpu>) -> Option<(&'static str, Cow<'static, str>)> {
    Some(("GPU_I_ID", gpu?.instance_number()?.to_string().into()))
}

const fn end_word(end: End) -> &'static str {
    match end {
        End::Exited(0) => "exited",
        End::Exited(_) => "failed",
        End::Signaled(_) => "signaled",
        End::OutOfMemory => "out_of_memory",
        End::Unknown => "unknown",
    }
}
