//! What is now, from a picture of the daemon.

use super::Extras;
use super::families::{DOMAIN, Labels, OTHER};
use crate::core::PodNames;
use crate::core::picture::{ClientFacts, ClientPhase, DomainPhase, ServerPhase, Snapshot};
use crate::observe::cluster::Told;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;

/// Domains that have series of their own; the sums of the rest have [`OTHER`].
const MOST_DOMAINS: usize = 256;
/// Processes that have series of their own, if any have.
const MOST_PROCESSES: usize = 2048;

type Decimal = Gauge<f64, AtomicU64>;

/// Gauges of one picture.
struct Gauges {
    registry: Registry,
}

impl Gauges {
    fn gauge(&mut self, name: &str, help: &str) -> Family<Labels, Gauge> {
        let family = Family::default();
        self.registry.register(name, help, family.clone());
        family
    }

    fn one(&mut self, name: &str, help: &str, value: usize) {
        let gauge = Gauge::<i64>::default();
        gauge.set(signed(value));
        self.registry.register(name, help, gauge);
    }

    fn count(&mut self, name: &str, help: &str, value: u64) {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        self.registry.register(name, help, counter);
    }
}

fn signed(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// The labels of a domain.
struct Domains<'a>(HashSet<&'a str>);

impl<'a> Domains<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        Self(snapshot.domains.iter().take(MOST_DOMAINS).map(|domain| domain.name.as_str()).collect())
    }

    fn labels(&self, name: &str, uid: u32) -> Labels {
        if self.0.contains(name) {
            vec![(DOMAIN, name.to_owned().into()), ("uid", uid.to_string().into())]
        } else {
            vec![(DOMAIN, OTHER.into())]
        }
    }
}

/// A registry with the gauges of a picture.
pub(super) fn registry(snapshot: &Snapshot, extras: Extras, with_pids: bool) -> Registry {
    let mut gauges = Gauges { registry: Registry::with_prefix("mps") };
    daemon(&mut gauges, snapshot, extras);
    let domains = Domains::of(snapshot);
    of_domains(&mut gauges, snapshot, &domains);
    spares(&mut gauges, snapshot, &domains);
    of_servers(&mut gauges, snapshot, &domains, with_pids);
    funerals(&mut gauges, snapshot, &domains);
    vault(&mut gauges, snapshot);
    witnesses(&mut gauges, snapshot);
    gpus(&mut gauges, snapshot);
    suspicions(&mut gauges, snapshot);
    if with_pids {
        clients(&mut gauges, snapshot);
    }
    gauges.registry
}

fn daemon(gauges: &mut Gauges, snapshot: &Snapshot, extras: Extras) {
    let daemon = &snapshot.daemon;
    let driver = daemon.driver.clone().unwrap_or_default();
    gauges
        .gauge("build_info", "The daemon and what it stands in for")
        .get_or_create(&vec![
            ("version", daemon.version.into()),
            ("protocol", "2".into()),
            ("server_version", daemon.personality.clone().into()),
            ("driver", driver.into()),
        ])
        .set(1);
    let uptime = Decimal::default();
    uptime.set(daemon.uptime.as_secs_f64());
    gauges.registry.register("uptime_seconds", "Time since the daemon's start", uptime);
    let ready = usize::from(snapshot.obstacles().is_empty());
    gauges.one("ready", "Whether a client can be admitted now", ready);
    gauges.one("event_followers", "Sessions that follow the events", extras.followers);
    gauges.count("journal_lost", "Events that could not be written into the journal", extras.journal_lost);
    gauges.count("log_records", "Lines that were written to the logs", extras.log.written);
    let dropped = Family::<Labels, Counter>::default();
    let lost = [("rate", extras.log.suppressed), ("unwritable", extras.log.dropped)];
    for (reason, count) in lost {
        dropped.get_or_create(&vec![("reason", reason.into())]).inc_by(count);
    }
    if let Some(Told { delivered, failed, dropped }) = extras.told {
        let told = Family::<Labels, Counter>::default();
        for (result, count) in [("delivered", delivered), ("failed", failed), ("dropped", dropped)] {
            told.get_or_create(&vec![("result", result.into())]).inc_by(count);
        }
        let help = "Events on pods and events for NVSentinel, by what became of them";
        gauges.registry.register("cluster_events", help, told);
    }
    gauges.registry.register("log_dropped", "Lines that were not written to the logs", dropped);
    gauges.count("log_garbage_bytes", "Bytes in the log FIFO that were no records", extras.fifo_garbage);
}

fn of_domains(gauges: &mut Gauges, snapshot: &Snapshot, domains: &Domains<'_>) {
    let clients = gauges.gauge("clients", "Client processes on servers");
    let limit = gauges.gauge("clients_limit", "Clients that a domain may have, where that is limited");
    let pending = gauges.gauge("clients_pending", "Clients that wait for a server");
    let recovering = gauges.gauge("domains_recovering", "Domains without a sound server after a fault");
    let broken = gauges.gauge("breaker_open", "Domains whose servers kept failing and are not started for a while");
    for domain in &snapshot.domains {
        let labels = domains.labels(&domain.name, domain.uid);
        clients.get_or_create(&labels).inc_by(signed(domain.clients));
        pending.get_or_create(&labels).inc_by(signed(domain.waiting));
        if let Some(most) = domain.max_clients {
            limit.get_or_create(&labels).inc_by(signed(most));
        }
        recovering.get_or_create(&labels).inc_by(i64::from(domain.phase == DomainPhase::Recovering));
        broken.get_or_create(&labels).inc_by(i64::from(domain.phase == DomainPhase::Broken));
    }
}

fn spares(gauges: &mut Gauges, snapshot: &Snapshot, domains: &Domains<'_>) {
    let spares = gauges.gauge("spares", "Clients in which a second copy of the driver stands by, or is being made");
    let mut counts: HashMap<&str, [usize; 2]> = HashMap::new();
    for client in &snapshot.clients {
        if let Some(spare) = &client.spare {
            counts.entry(&client.domain).or_default()[usize::from(spare.ready)] += 1;
        }
    }
    for domain in &snapshot.domains {
        let counts = counts.remove(domain.name.as_str()).unwrap_or_default();
        for (state, count) in ["making", "ready"].into_iter().zip(counts) {
            let mut labels = domains.labels(&domain.name, domain.uid);
            labels.push(("state", state.into()));
            spares.get_or_create(&labels).inc_by(signed(count));
        }
    }
}

fn of_servers(gauges: &mut Gauges, snapshot: &Snapshot, domains: &Domains<'_>, with_pids: bool) {
    let state = gauges.gauge("server_state", "Servers in each state");
    let memory = gauges.gauge("server_memory_bytes", "GPU memory of servers without their clients, where it is known");
    for server in &snapshot.servers {
        let mut labels = domains.labels(&server.domain, server.uid);
        if let Some(pid) = server.pid.filter(|_| with_pids) {
            labels.push(("server", pid.to_string().into()));
        }
        for phase in ServerPhase::ALL {
            let mut labels = labels.clone();
            labels.push(("state", phase.word().into()));
            state.get_or_create(&labels).inc_by(i64::from(server.phase == phase));
        }
        if let Some(bytes) = server.memory_bytes {
            labels.push(("state", server.phase.word().into()));
            memory.get_or_create(&labels).inc_by(signed(bytes));
        }
    }
}

fn funerals(gauges: &mut Gauges, snapshot: &Snapshot, domains: &Domains<'_>) {
    let held = gauges.gauge("funerals_held", "Dead clients whose descriptors are held");
    let endless = gauges.gauge("funerals_endless", "Those of them whose work seems to have no end");
    let pinned = gauges.gauge("funeral_pinned_bytes", "GPU memory that they pin, where it is known");
    for funeral in &snapshot.funerals {
        let labels = domains.labels(&funeral.domain, funeral.uid);
        held.get_or_create(&labels).inc();
        endless.get_or_create(&labels).inc_by(i64::from(funeral.endless));
        if let Some(bytes) = funeral.pinned_bytes {
            pinned.get_or_create(&labels).inc_by(signed(bytes));
        }
    }
    let descriptors = gauges
        .gauge("held_descriptors", "Copies of clients' descriptors that are held, each by the daemon and its holder");
    let dead = snapshot.funerals.iter().map(|funeral| funeral.descriptors).sum::<usize>();
    let living = snapshot.clients.iter().map(|client| client.descriptors).sum::<usize>();
    for (of, count) in [("living", living), ("dead", dead)] {
        descriptors.get_or_create(&vec![("of", of.into())]).set(signed(count));
    }
}

/// Of each user and GPU; the cgroups are in `vault list`, since there can be any number of them.
fn vault(gauges: &mut Gauges, snapshot: &Snapshot) {
    let kept = gauges.gauge("vault_regions", "Regions of GPU memory that are kept");
    let bytes = gauges.gauge("vault_bytes", "GPU memory that is kept, as its owners tell it");
    let mut known = HashSet::new();
    for region in &snapshot.regions {
        let place = (region.uid, region.gpu.as_str());
        let of = if region.left.is_none() { "living" } else { "dead" };
        let labels: Labels = if known.contains(&place) || known.len() < MOST_DOMAINS {
            known.insert(place);
            vec![("uid", region.uid.to_string().into()), ("UUID", region.gpu.clone().into()), ("of", of.into())]
        } else {
            vec![("uid", OTHER.into()), ("UUID", OTHER.into()), ("of", of.into())]
        };
        kept.get_or_create(&labels).inc();
        bytes.get_or_create(&labels).inc_by(signed(region.bytes));
    }
}

fn witnesses(gauges: &mut Gauges, snapshot: &Snapshot) {
    let up = gauges.gauge("witness_up", "Whether a witness can be heard");
    let attached = gauges.gauge("witness_attached", "Processes that a witness follows");
    let refused = gauges.gauge("witness_refused", "Processes that a witness should follow and can't");
    for witness in &snapshot.witnesses {
        let labels: Labels = vec![("witness", witness.name.into())];
        up.get_or_create(&labels).set(i64::from(witness.missing.is_none()));
        refused.get_or_create(&labels).set(signed(witness.refused));
        if let Some(count) = witness.attached {
            attached.get_or_create(&labels).set(signed(count));
        }
    }
}

fn gpus(gauges: &mut Gauges, snapshot: &Snapshot) {
    let mode = gauges.gauge("gpu_compute_mode", "The compute mode that each GPU has");
    let strangers =
        gauges.gauge("strangers", "Processes with contexts on a GPU outside MPS, where they are looked for");
    for gpu in &snapshot.gpus {
        let uuid = || Cow::Owned(gpu.uuid.clone());
        if let Some(of) = gpu.compute_mode {
            mode.get_or_create(&vec![("UUID", uuid()), ("mode", of.to_string().into())]).set(1);
        }
        let here = snapshot.strangers.iter().filter(|stranger| stranger.gpus.contains(&gpu.uuid)).count();
        strangers.get_or_create(&vec![("UUID", uuid())]).set(signed(here));
    }
}

/// Places that may be ill, each with its faults.
fn suspicions(gauges: &mut Gauges, snapshot: &Snapshot) {
    let suspected = gauges.gauge("gpu_suspected", "Faults of several programs at one place of a GPU, which may be ill");
    for suspicion in &snapshot.suspicions {
        let (gpu, place) = (suspicion.gpu.clone(), suspicion.place.clone());
        suspected.get_or_create(&vec![("UUID", gpu.into()), ("place", place.into())]).set(signed(suspicion.faults));
    }
}

fn clients(gauges: &mut Gauges, snapshot: &Snapshot) {
    let info = gauges.gauge("client_info", "Clients that are there");
    let labels = |client: &ClientFacts| -> Labels {
        let word = |value: &Option<String>| Cow::Owned(value.clone().unwrap_or_default());
        vec![
            ("pid", client.process.pid.to_string().into()),
            ("uid", client.uid.to_string().into()),
            ("state", client.phase.word().into()),
            ("pod_uid", word(&client.identity.pod)),
            ("container_id", word(&client.identity.container)),
            ("namespace", named(client, |names| &names.namespace)),
            ("pod", named(client, |names| &names.pod_name)),
            ("container", named(client, |names| &names.container_name)),
            ("comm", comm(&client.identity.command).into()),
        ]
    };
    let here = snapshot.clients.iter().filter(|client| client.phase != ClientPhase::Gone);
    for client in here.take(MOST_PROCESSES) {
        info.get_or_create(&labels(client)).set(1);
    }
}

/// What its cluster calls a client; empty where that is not known.
fn named(client: &ClientFacts, of: impl Fn(&PodNames) -> &String) -> Cow<'static, str> {
    client.identity.names.as_deref().map(of).cloned().unwrap_or_default().into()
}

/// The program's name alone: arguments may hold secrets, and a scraper may be anybody.
fn comm(command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    program.rsplit('/').next().unwrap_or_default().to_owned()
}
