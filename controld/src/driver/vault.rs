//! Keeps the vault: does with the descriptors what [`crate::core::vault`] says, and lets the holder keep them too
//! ([`holding`]).
//!
//! A release is answered when the memory is free: [`succession`](super::succession) has what goes on about names.
//!
//! # After the daemon's death
//! | killed | found by the successor |
//! |---|---|
//! | before the region is held | nothing; the program was not answered and asks again |
//! | after that | the region, with its owner, or a deadline from now on if the owner ended meanwhile |
//! | in the middle of an adoption | some regions of a name with the new owner: it is given the rest |
//! | before a release is told | the region; its owner asks again, or ends |
//! | before a commit is held | the commit before; the program was not answered and asks again |
//! | in the middle of a succession | the title or some regions with the new owner: it is given the rest, and asks again |

mod holding;

pub(super) use holding::Fenced;
use holding::{FENCE_PATIENCE, Files};

use super::succession::Waiting;
use super::word::Watchers;
use super::{Driver, keys};
use crate::core::vault::{Caller, Kept, RegionId, Vault};
use crate::core::{Evidence, Fate, Input, JournalEvent, ProcessKey, ServerEpoch, Uid};
use crate::failpoint::reached;
use crate::holder::{Held, Kind};
use crate::io::process::{WatchedProcess, open_process, start_time};
use crate::report::RegionFacts;
use crate::settings::Settings;
use crate::vault::descriptor::Descriptor;
use crate::vault::device::Device;
use crate::vault::door::Door;
use crate::vault::note::{Note, TitleNote};
use crate::vault::{Reply, Request};
use crate::witness::uvm::may_look;
use remps_proto::shim::{Answer, Ask, Capabilities, Failure, Region, SOCKET_NAME, ServerState, VERSION, Welcome};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// Programs of every user connect here.
const SHIM_MODE: u32 = 0o666;
/// Requests that may wait for the driver before their threads do.
const QUEUE: usize = 256;
/// What the vault's tasks tell.
#[derive(Debug)]
pub(super) enum VaultNews {
    /// A program asks.
    Asked(Request),
    /// An owner has ended.
    Ended(ProcessKey),
}

/// The vault's rules with the descriptors.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) rules: Vault,
    pub(super) waiting: Waiting,
    pub(super) watchers: Watchers,
    files: HashMap<RegionId, Files>,
    watched: HashMap<ProcessKey, AbortHandle>,
    // sessions --requests--> driver
    requests_tx: mpsc::Sender<Request>,
    requests_rx: mpsc::Receiver<Request>,
    // watches --ended--> driver
    ended_tx: mpsc::UnboundedSender<ProcessKey>,
    ended_rx: mpsc::UnboundedReceiver<ProcessKey>,
    listener: Option<OwnedFd>,
    door: Option<Door>,
    fenced: VecDeque<(u64, Fenced)>,
    last_fence: u64,
    /// The fence that the holder has not answered yet, and when it was sent. One at a time: what is fenced meanwhile
    /// shares the next.
    in_flight: Option<(u64, Duration)>,
}

impl Keeper {
    /// An empty vault with a closed door.
    pub(super) fn new(settings: &Settings) -> Self {
        // sessions --requests--> driver
        let (requests_tx, requests_rx) = mpsc::channel(QUEUE);
        // watches --ended--> driver; no more than one for each owner is ever in it
        let (ended_tx, ended_rx) = mpsc::unbounded_channel();
        Self {
            rules: Vault::new(settings.file.vault_policy()),
            waiting: Waiting::default(),
            watchers: Watchers::default(),
            files: HashMap::new(),
            watched: HashMap::new(),
            requests_tx,
            requests_rx,
            ended_tx,
            ended_rx,
            listener: None,
            door: None,
            fenced: VecDeque::new(),
            last_fence: 0,
            in_flight: None,
        }
    }

    /// Waits for the next news. May be dropped at any time.
    pub(super) async fn next(&mut self) -> VaultNews {
        tokio::select! {
            // An end before a request: what the dead can still have asked is of later.
            biased;
            Some(process) = self.ended_rx.recv() => VaultNews::Ended(process),
            Some(request) = self.requests_rx.recv() => VaultNews::Asked(request),
            else => std::future::pending().await,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let overdue = self.in_flight.map(|(_, sent)| sent + FENCE_PATIENCE);
        let watchers = self.watchers.next_deadline();
        self.rules.next_deadline().into_iter().chain(overdue).chain(self.waiting.next_deadline()).chain(watchers).min()
    }

    /// What reports and metrics say.
    pub(super) fn facts(&self, now: Duration) -> Vec<RegionFacts> {
        let fact = |(id, kept): (RegionId, &Kept)| {
            let Region { key, name, gpu, bytes, address, .. } = kept.region.clone();
            let Caller { process, uid, cgroup } = kept.owner.clone();
            let left = kept.until.map(|at| at.saturating_sub(now));
            let device_held = self.files.get(&id).is_some_and(|files| files.device.is_some());
            RegionFacts { process, uid, cgroup, key, name, gpu, bytes, address, device_held, left }
        };
        self.rules.iter().map(fact).collect()
    }

    fn answer_of(&self, kept: &Kept, now: Duration) -> Answer {
        let lives = kept.until.is_none();
        let left = kept.until.map_or(Duration::ZERO, |at| at.saturating_sub(now));
        Answer::Region(Region {
            owner: if lives { kept.owner.process.pid } else { 0 },
            left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
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

    /// Stops watching a process that owns nothing any more.
    fn forget(&mut self, process: ProcessKey) {
        if !self.rules.has(process)
            && !self.waiting.has(process)
            && !self.watchers.has(process)
            && let Some(watch) = self.watched.remove(&process)
        {
            watch.abort();
        }
    }
}

pub(super) fn done(regions: usize) -> Reply {
    (Answer::Done { regions: u32::try_from(regions).unwrap_or(u32::MAX) }, None)
}

impl Driver {
    /// Opens the socket `shim`, or goes on with the one that an earlier daemon had. Without it the daemon does all else.
    pub(super) fn open_vault(&mut self, old: Option<OwnedFd>) {
        let policy = *self.vault.rules.policy();
        if !policy.enabled {
            self.kept(self.holder.release(keys::SHIM_LISTENER));
            return;
        }
        let old = old.filter(|_| self.directory.remove_on_exit(SOCKET_NAME).is_ok());
        let listener = match old.map_or_else(|| self.directory.bind_listener(SOCKET_NAME, SHIM_MODE), Ok) {
            Ok(listener) => listener,
            Err(error) => return self.say(&format!("No memory is kept for programs: {error}")),
        };
        self.kept(self.holder.hold(keys::SHIM_LISTENER, Kind::LISTENER_SHIM, &[], &[listener.as_fd()]));
        let welcome = Welcome {
            version: VERSION,
            capabilities: if may_look() { Capabilities::VAULT } else { Capabilities::VAULT.and(Capabilities::FOLLOWS) }
                .and(Capabilities::REPORTS)
                .and(Capabilities::EPOCHS)
                .and(Capabilities::NEWS)
                .and(Capabilities::STATE),
            most_bytes: policy.user_bytes.min(policy.bytes),
            most_regions: u32::try_from(policy.user_regions.min(policy.regions)).unwrap_or(u32::MAX),
            ttl_ms: u64::try_from(policy.ttl.as_millis()).unwrap_or(u64::MAX),
        };
        let opened =
            listener.try_clone().and_then(|accepting| Door::open(accepting, welcome, self.vault.requests_tx.clone()));
        match opened {
            Ok(door) => self.vault.door = Some(door),
            Err(error) => self.say(&format!("No memory is kept for programs: {error}")),
        }
        self.vault.listener = Some(listener);
    }

    /// Goes on with what an earlier daemon kept.
    pub(super) fn take_over_vault(&mut self, found: Vec<Held>) {
        let (now, policy) = (self.now(), *self.vault.rules.policy());
        for Held { key, state, fds, .. } in found {
            if let Some(id) = keys::name_of(key) {
                match TitleNote::read(&state, now, policy.ttl).filter(|_| policy.enabled) {
                    Some((name, title)) => self.vault.rules.restore_title(id, name, title),
                    None => self.kept(self.holder.release(key)),
                }
                continue;
            }
            let mut fds = fds.into_iter();
            let kept = Note::read(&state, now, policy.ttl).filter(|_| policy.enabled);
            let memory = fds.next().map(|fd| Arc::new(Descriptor::proven(fd)));
            let (Some(id), Some(kept), Some(memory)) = (keys::region_of(key), kept, memory) else {
                self.kept(self.holder.release(key));
                continue;
            };
            let device = fds.next().map(|fd| Arc::new(Device::proven(fd)));
            self.vault.files.insert(id, Files { memory, device });
            self.vault.rules.restore(id, kept);
        }
        let nameless: Vec<RegionId> = self.vault.rules.remove_nameless_orphans();
        self.close_regions(&nameless, None);
        let moved = self.vault.rules.finish_adoptions();
        self.note_regions(&moved);
        let regions = self.vault.rules.iter().filter(|(_, kept)| kept.until.is_none());
        let titles = self.vault.rules.titles().filter(|(_, _, title)| title.until.is_none());
        let owners: BTreeSet<ProcessKey> = regions
            .map(|(_, kept)| kept.owner.process)
            .chain(titles.map(|(_, _, title)| title.owner.process))
            .collect();
        for process in owners {
            let pid = super::processes::kernel_pid(process.pid);
            // Opened first and looked at then: what has the start time now is what was opened.
            let opened = open_process(pid).and_then(|opened| match start_time(pid) == Some(process.start_time) {
                true => Ok(opened),
                false => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
            });
            self.vault.watch(process, opened);
        }
        let orphans: Vec<RegionId> =
            self.vault.rules.iter().filter(|(_, kept)| kept.until.is_some()).map(|(id, _)| id).collect();
        // Their deadline now counts for the next successor too.
        self.note_regions(&orphans);
        self.hold_titles();
        reached("vault-restored");
    }

    pub(super) fn vault_news(&mut self, news: VaultNews) {
        match news {
            VaultNews::Asked(request) => self.vault_asked(request),
            VaultNews::Ended(process) => self.owner_ended(process),
        }
    }

    fn vault_asked(&mut self, request: Request) {
        if matches!(request.ask, Ask::Commit { .. } | Ask::Succeed { .. } | Ask::Fate { .. }) {
            return self.name_asked(request);
        }
        if matches!(request.ask, Ask::Watch { .. } | Ask::Renewed) {
            return self.word_asked(request);
        }
        if matches!(request.ask, Ask::Follow { .. }) {
            return self.handed_over(request);
        }
        let Request { client, ask, descriptor, device, given: _, reply } = request;
        let (caller, now) = (&client.caller, self.now());
        if let Ask::Adopt { name } | Ask::Discard { name } = &ask {
            self.look_at_owner(caller.uid, name);
        }
        let answers = match ask {
            Ask::Escrow(region) => {
                reached("region-asked");
                let region = Region { owner: 0, left_ms: 0, ..region };
                let Some(descriptor) = descriptor else { return };
                let (name, gpu, bytes) = (region.name.clone(), region.gpu.clone(), region.bytes);
                match self.vault.rules.escrow(caller, region) {
                    Ok(id) => {
                        let files = Files { memory: Arc::new(descriptor), device };
                        let before = self.vault.files.insert(id, files);
                        let server = self.core.fate_of(caller.process).map_or(0, |(server, _)| server.0);
                        self.vault.rules.note_server(caller, &name, server);
                        self.note_titles();
                        self.hold_region(id);
                        reached("region-held");
                        let opened = client.pidfd.try_clone();
                        let pid = super::processes::kernel_pid(caller.process.pid);
                        self.vault
                            .watch(caller.process, opened.and_then(|pidfd| WatchedProcess::from_pidfd(pid, pidfd)));
                        let (answers, point) = (vec![done(1)], "region-safe");
                        self.fence(Fenced::Answer { region: Some(id), name: None, point, answers, reply });
                        match before {
                            // The same again, which is nothing new.
                            Some(files) => self.fence(Fenced::close(vec![files])),
                            None => self.record(&JournalEvent::RegionEscrowed {
                                process: caller.process,
                                uid: caller.uid,
                                name,
                                gpu,
                                bytes,
                            }),
                        }
                        return;
                    }
                    Err(failure) => Err(failure),
                }
            }
            Ask::Release { key } => match self.vault.rules.release(caller, key) {
                Ok(kept) => return self.released(caller.process, caller.uid, vec![kept], Some(reply)),
                Err(failure) => Err(failure),
            },
            Ask::Discard { name } => match self.vault.rules.discard(caller, &name) {
                Ok(all) => return self.released(caller.process, caller.uid, all, Some(reply)),
                Err(failure) => Err(failure),
            },
            Ask::List { name } => {
                let fits = |kept: &Kept| kept.owner.uid == caller.uid && (name.is_empty() || kept.region.name == name);
                let ids: Vec<RegionId> =
                    self.vault.rules.iter().filter(|(_, kept)| fits(kept)).map(|(id, _)| id).collect();
                Ok(self.vault.told(&ids, false, now))
            }
            Ask::HandBack => {
                let ids: Vec<RegionId> = self.vault.rules.of_process(caller.process).collect();
                Ok(self.vault.told(&ids, true, now))
            }
            Ask::Adopt { name } => match self.vault.rules.adopt(caller, &name) {
                Ok(ids) => {
                    reached("adoption-known");
                    self.note_titles();
                    self.note_regions(&ids);
                    reached("adoption-noted");
                    let pid = super::processes::kernel_pid(caller.process.pid);
                    let opened = client.pidfd.try_clone();
                    self.vault.watch(caller.process, opened.and_then(|pidfd| WatchedProcess::from_pidfd(pid, pidfd)));
                    let answers = self.vault.told(&ids, true, now);
                    let bytes =
                        ids.iter().filter_map(|id| self.vault.rules.get(*id)).map(|kept| kept.region.bytes).sum();
                    let (process, uid, regions) = (caller.process, caller.uid, ids.len());
                    self.record(&JournalEvent::RegionsAdopted { process, uid, name, regions, bytes });
                    return self.fence(Fenced::Answer {
                        region: None,
                        name: None,
                        point: "region-safe",
                        answers,
                        reply,
                    });
                }
                Err(failure) => Err(failure),
            },
            Ask::Report { error, own_work } => {
                self.feed(Input::Evidence(Evidence::Shim { process: caller.process, error, own_work }));
                Ok(vec![done(0)])
            }
            Ask::Where => {
                let (server, state) = match self.core.fate_of(caller.process) {
                    None => (ServerEpoch(0), ServerState::NONE),
                    Some((server, Fate::Healthy)) => (server, ServerState::HEALTHY),
                    Some((server, Fate::Tainted)) => (server, ServerState::TAINTED),
                    Some((server, Fate::Ending)) => (server, ServerState::GONE),
                };
                let part = self.part_for(caller.process, server);
                Ok(vec![(Answer::Epoch { server: server.0, state, part }, None)])
            }
            // The session answers the first itself; the others were sorted out above.
            Ask::Hello { .. }
            | Ask::Commit { .. }
            | Ask::Succeed { .. }
            | Ask::Fate { .. }
            | Ask::Watch { .. }
            | Ask::Renewed
            | Ask::Follow { .. } => Err(Failure::NOT_GREETED),
        };
        // A program that has gone meanwhile needs no answer.
        let _ = reply.send(answers.unwrap_or_else(|failure| vec![(Answer::Failed(failure), None)]));
    }

    /// Looks whether a name's owner has ended: a successor may ask sooner than its watch is heard.
    fn look_at_owner(&mut self, uid: Uid, name: &str) {
        let owner = self.vault.rules.owner_of_name(uid, name).filter(|owner| self.vault.watched.contains_key(owner));
        if let Some(owner) = owner
            && start_time(super::processes::kernel_pid(owner.pid)) != Some(owner.start_time)
        {
            self.owner_ended(owner);
        }
    }

    fn owner_ended(&mut self, process: ProcessKey) {
        reached("owner-end-seen");
        self.vault.watched.remove(&process);
        self.vault.waiting.forget(process);
        self.vault.watchers.forget(process);
        let (orphaned, closed) = self.vault.rules.ended(self.now(), process);
        self.note_titles();
        self.note_regions(&orphaned);
        reached("owner-end-noted");
        if let Some(uid) = closed.first().map(|(_, kept)| kept.owner.uid) {
            self.released(process, uid, closed, None);
        }
    }

    /// Regions were given up; whoever asked for it is told when their memory is free.
    fn released(
        &mut self,
        process: ProcessKey,
        uid: Uid,
        gone: Vec<(RegionId, Kept)>,
        reply: Option<oneshot::Sender<Vec<Reply>>>,
    ) {
        let bytes = gone.iter().map(|(_, kept)| kept.region.bytes).sum();
        let ids: Vec<RegionId> = gone.into_iter().map(|(id, _)| id).collect();
        self.close_regions(&ids, reply.map(|reply| (vec![done(ids.len())], reply)));
        self.vault.forget(process);
        self.record(&JournalEvent::RegionsReleased { process, uid, regions: ids.len(), bytes });
    }

    /// Lets go of regions that nobody has adopted in time, and asks a holder again that has not answered.
    pub(super) fn expire_vault(&mut self) {
        let now = self.now();
        self.renew_fence(now);
        let expired = self.vault.rules.expire(now);
        let ids: Vec<RegionId> = expired.iter().map(|(id, _)| *id).collect();
        self.close_regions(&ids, None);
        for (_, kept) in expired {
            let (Caller { process, uid, .. }, Region { name, bytes, .. }) = (kept.owner, kept.region);
            self.record(&JournalEvent::RegionExpired { process, uid, name, bytes });
        }
    }
}
