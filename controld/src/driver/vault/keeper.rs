//! What the vault consists of beside its rules: descriptors, watches, the door, what waits for the holder.

use super::holding::{BARRIER_PATIENCE, Deferred, Files};
use super::names::Claims;
use super::notices::Watchers;
use super::spares::Spares;
use crate::core::picture::RegionFacts;
use crate::core::vault::{Caller, Kept, RegionId, Vault};
use crate::core::{End, ProcessKey};
use crate::door::accept::Door;
use crate::door::client::Client;
use crate::door::{Reply, Request, Told, done};
use crate::driver::processes::kernel_pid;
use crate::io::process::WatchedProcess;
use crate::settings::Settings;
use crate::sys::clock::milliseconds;
use nix::sys::resource::{Resource, getrlimit};
use remps_proto::shim::{Answer, Region};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Requests that may wait for the driver before their threads do.
const QUEUE: usize = 256;

/// What the vault's tasks tell.
#[derive(Debug)]
pub(in crate::driver) enum VaultNews {
    /// A program asks.
    Asked(Request),
    /// A process has closed its connection, and is past doing anything but end so.
    Ends { process: ProcessKey, end: End },
    /// An owner has ended.
    Ended(ProcessKey),
}

/// The vault's rules with the descriptors.
#[derive(Debug)]
pub(in crate::driver) struct Keeper {
    pub(in crate::driver) rules: Vault,
    pub(super) claims: Claims,
    pub(super) watchers: Watchers,
    pub(super) spares: Spares,
    pub(super) files: HashMap<RegionId, Files>,
    pub(super) watched: HashMap<ProcessKey, AbortHandle>,
    /// User namespaces by their numbers, of those who own something.
    pub(super) namespaces: BTreeMap<u64, OwnedFd>,
    // sessions --requests--> driver
    pub(super) requests_tx: mpsc::Sender<Told>,
    pub(super) requests_rx: mpsc::Receiver<Told>,
    // watches --ended--> driver
    pub(super) ended_tx: mpsc::UnboundedSender<ProcessKey>,
    pub(super) ended_rx: mpsc::UnboundedReceiver<ProcessKey>,
    pub(super) listener: Option<OwnedFd>,
    pub(super) door: Option<Door>,
    pub(super) deferred: VecDeque<(u64, Deferred)>,
    pub(super) last_barrier: u64,
    /// The barrier that the holder has not passed yet, and when it was sent. One at a time: what is deferred meanwhile
    /// shares the next.
    pub(super) in_flight: Option<(u64, Duration)>,
}

/// How many files this process may have open.
fn most_open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

impl Keeper {
    /// An empty vault with a closed door.
    pub(in crate::driver) fn new(settings: &Settings) -> Self {
        // sessions --requests--> driver
        let (requests_tx, requests_rx) = mpsc::channel(QUEUE);
        // watches --ended--> driver; no more than one for each owner is ever in it
        let (ended_tx, ended_rx) = mpsc::unbounded_channel();
        Self {
            rules: Vault::new(settings.file.vault.within(most_open_files())),
            claims: Claims::default(),
            watchers: Watchers::default(),
            spares: Spares::default(),
            files: HashMap::new(),
            watched: HashMap::new(),
            namespaces: BTreeMap::new(),
            requests_tx,
            requests_rx,
            ended_tx,
            ended_rx,
            listener: None,
            door: None,
            deferred: VecDeque::new(),
            last_barrier: 0,
            in_flight: None,
        }
    }

    /// Waits for the next news. May be dropped at any time.
    pub(in crate::driver) async fn next(&mut self) -> VaultNews {
        tokio::select! {
            // An end before a request: what the dead can still have asked is of later.
            biased;
            Some(process) = self.ended_rx.recv() => VaultNews::Ended(process),
            Some(told) = self.requests_rx.recv() => match told {
                Told::Asked(request) => VaultNews::Asked(request),
                Told::Ends { process, end } => VaultNews::Ends { process, end },
            },
            else => std::future::pending().await,
        }
    }

    pub(in crate::driver) fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let overdue = self.in_flight.map(|(_, sent)| sent + BARRIER_PATIENCE);
        let promised = self.claims.next_deadline().and(self.rules.promise_ends(now));
        let others = self.watchers.next_deadline().into_iter().chain(self.spares.next_deadline()).chain(promised);
        self.rules.next_deadline().into_iter().chain(overdue).chain(self.claims.next_deadline()).chain(others).min()
    }

    /// What reports and metrics say.
    pub(in crate::driver) fn facts(&self, now: Duration) -> Vec<RegionFacts> {
        self.facts_of(now, |_| true)
    }

    /// The same of what a process may find under its name.
    pub(in crate::driver) fn facts_for(&self, now: Duration, caller: &Caller) -> Vec<RegionFacts> {
        self.facts_of(now, |kept| self.rules.may_see(caller, kept))
    }

    fn facts_of(&self, now: Duration, is_told: impl Fn(&Kept) -> bool) -> Vec<RegionFacts> {
        let fact = |(id, kept): (RegionId, &Kept)| {
            let Region { key, name, gpu, bytes, address, .. } = kept.region.clone();
            let Caller { process, uid, cgroup, .. } = kept.owner.clone();
            let left = kept.until.map(|at| at.saturating_sub(now));
            let device_held = self.files.get(&id).is_some_and(|files| files.device.is_some());
            RegionFacts { process, uid, cgroup, key, name, gpu, bytes, address, device_held, left }
        };
        self.rules.iter().filter(|(_, kept)| is_told(kept)).map(fact).collect()
    }

    pub(super) fn answer_of(&self, kept: &Kept, now: Duration) -> Answer {
        let lives = kept.until.is_none();
        let left = kept.until.map_or(Duration::ZERO, |at| at.saturating_sub(now));
        Answer::Region(Region {
            owner: if lives { kept.owner.process.pid } else { 0 },
            left_ms: milliseconds(left),
            ..kept.region.clone()
        })
    }

    /// These regions and that it was all, with their descriptors or without.
    pub(super) fn told(&self, ids: &[RegionId], with_descriptors: bool, now: Duration) -> Vec<Reply> {
        let regions = ids.iter().filter_map(|id| {
            let files = self.files.get(id).filter(|_| with_descriptors);
            Some((self.answer_of(self.rules.get(*id)?, now), files.map(|files| Arc::clone(&files.memory))))
        });
        regions.chain([done(ids.len())]).collect()
    }

    /// Reports when a process ends; at once, when it has ended already.
    pub(super) fn watch(&mut self, process: ProcessKey, opened: std::io::Result<WatchedProcess>) {
        if self.watched.contains_key(&process) {
            return;
        }
        let ended = self.ended_tx.clone();
        let watch = tokio::spawn(async move {
            if let Ok(opened) = opened {
                // A watch that fails can't tell more than that nothing more will be known of the process.
                let _ = opened.ended().await;
            }
            // When the driver has ended nobody needs to know any more.
            let _ = ended.send(process);
        });
        self.watched.insert(process, watch.abort_handle());
    }

    pub(super) fn watch_caller(&mut self, client: &Client) {
        let process = client.caller.process;
        let opened = client.pidfd.try_clone();
        self.watch(process, opened.and_then(|pidfd| WatchedProcess::from_pidfd(kernel_pid(process.pid), pidfd)));
    }

    /// Stops watching a process that owns nothing any more, or never did: one that has asked in vain and may live for long.
    pub(super) fn forget(&mut self, process: ProcessKey) {
        if !self.rules.has(process)
            && !self.rules.has_offer(process)
            && !self.claims.has(process)
            && !self.watchers.has(process)
            && !self.spares.has(process)
            && let Some(watch) = self.watched.remove(&process)
        {
            watch.abort();
        }
    }
}
