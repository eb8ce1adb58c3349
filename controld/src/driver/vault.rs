//! Keeps the vault: does with the descriptors what [`crate::core::vault`] says, and lets the holder keep them too
//! ([`holding`]).
//!
//! A release is answered when the memory is free: [`names`] has what goes on about names.
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
mod keeper;
mod names;
mod namespaces;

pub(super) use holding::Deferred;
use holding::Files;
pub(super) use keeper::{Keeper, VaultNews};
use namespaces::Restored;

use super::{Driver, keys};
use crate::core::vault::{Caller, Kept, RegionId, VaultPolicy};
use crate::core::{Evidence, Fate, Input, JournalEvent, ProcessKey, ServerEpoch, Uid};
use crate::door::accept::Door;
use crate::door::descriptor::Descriptor;
use crate::door::device::Device;
use crate::door::note::{Note, TitleNote};
use crate::door::{Reply, Request};
use crate::failpoint::reached;
use crate::holder::{Held, Kind};
use crate::io::folder::Kind as FileKind;
use crate::io::process::{open_same, start_time};
use crate::sys::clock::milliseconds;
use crate::witness::uvm::may_look;
use remps_proto::shim::{Answer, Ask, Capabilities, Failure, Region, SOCKET_NAME, ServerState, VERSION, Welcome};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Programs of every user connect here.
const SHIM_MODE: u32 = 0o666;

/// The end of an answer that was about so many regions.
pub(super) fn done(regions: usize) -> Reply {
    (Answer::Done { regions: u32::try_from(regions).unwrap_or(u32::MAX) }, None)
}

impl Driver {
    /// Opens the socket `shim`, or goes on with the one that an earlier daemon had. Without it the daemon does all else.
    pub(super) fn open_vault(&mut self, old: Option<OwnedFd>) {
        let policy = *self.vault.rules.policy();
        if !policy.enabled {
            self.successor.release(keys::SHIM_LISTENER);
            return;
        }
        if policy.regions < VaultPolicy::default().regions {
            let VaultPolicy { regions, user_regions, .. } = policy;
            self.say(&format!(
                "So few files may be open that {regions} regions of memory are kept at most, {user_regions} of one user"
            ));
        }
        // Programs give their memory to who listens there, so it is a socket of ours or a new one.
        let old = old.filter(|_| self.directory.folder().has(SOCKET_NAME, FileKind::Socket));
        let old = old.filter(|_| self.directory.remove_on_exit(SOCKET_NAME).is_ok());
        let listener = match old.map_or_else(|| self.directory.bind_listener(SOCKET_NAME, SHIM_MODE), Ok) {
            Ok(listener) => listener,
            Err(error) => return self.say(&format!("No memory is kept for programs: {error}")),
        };
        self.successor.hold(keys::SHIM_LISTENER, Kind::LISTENER_SHIM, &[], &[listener.as_fd()]);
        let welcome = Welcome {
            version: VERSION,
            capabilities: if may_look() { Capabilities::VAULT } else { Capabilities::VAULT.and(Capabilities::FOLLOWS) }
                .and(Capabilities::REPORTS)
                .and(Capabilities::EPOCHS)
                .and(Capabilities::NEWS)
                .and(Capabilities::SUBSCRIPTIONS)
                .and(Capabilities::STATE),
            most_bytes: policy.user_bytes.into_iter().chain(policy.bytes).min().unwrap_or(u64::MAX),
            most_regions: u32::try_from(policy.user_regions.min(policy.regions)).unwrap_or(u32::MAX),
            ttl_ms: milliseconds(policy.ttl),
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
        let mut restored = Restored::default();
        for held in found {
            if let Some(number) = keys::namespace_of(held.key) {
                self.take_over_namespace(number, held);
                continue;
            }
            let Held { key, state, fds, .. } = held;
            if let Some(id) = keys::name_of(key) {
                match TitleNote::read(&state, now, &policy).filter(|_| policy.enabled) {
                    Some((name, title)) => restored.titles.push((id, name, title)),
                    None => self.successor.release(key),
                }
                continue;
            }
            let mut fds = fds.into_iter();
            let kept = Note::read(&state, now, &policy).filter(|_| policy.enabled);
            let memory = fds.next().map(|fd| Arc::new(Descriptor::proven(fd)));
            let (Some(id), Some(kept), Some(memory)) = (keys::region_of(key), kept, memory) else {
                self.successor.release(key);
                continue;
            };
            let device = fds.next().map(|fd| Arc::new(Device::proven(fd)));
            self.vault.files.insert(id, Files { memory, device });
            restored.regions.push((id, kept));
        }
        self.settle_scopes(&mut restored);
        for (id, name, title) in restored.titles {
            self.vault.rules.restore_title(id, name, title);
        }
        for (id, kept) in restored.regions {
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
            self.vault.watch(process, open_same(pid, process.start_time));
        }
        let all: Vec<RegionId> = self.vault.rules.iter().map(|(id, _)| id).collect();
        // The deadlines of orphans now count for the next successor too, and so does what was settled.
        self.note_regions(&all);
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
        if matches!(request.ask, Ask::Watch { .. } | Ask::Subscribe { .. }) {
            return self.word_asked(request);
        }
        if matches!(request.ask, Ask::Follow { .. }) {
            return self.witnesses.following.descriptors_given(request);
        }
        if matches!(request.ask, Ask::Renewed) {
            return self.witnesses.following.sift(request);
        }
        let Request { client, ask, descriptor, device, given: _, line: _, reply } = request;
        let (caller, now) = (&client.caller, self.now());
        if let Ask::Adopt { name } | Ask::Discard { name } = &ask {
            self.look_at_owner(caller, name);
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
                        let server = self.server_of_caller(caller);
                        self.vault.rules.note_server(caller, &name, server);
                        self.keep_namespace(&client);
                        self.note_titles();
                        self.hold_region(id);
                        reached("region-held");
                        self.watch_caller(&client);
                        let (answers, point) = (vec![done(1)], "region-safe");
                        self.after_barrier(Deferred::Answer { region: Some(id), name: None, point, answers, reply });
                        match before {
                            // The same again, which is nothing new.
                            Some(files) => self.after_barrier(Deferred::close(vec![files])),
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
                let rules = &self.vault.rules;
                let fits = |kept: &Kept| rules.may_see(caller, kept) && (name.is_empty() || kept.region.name == name);
                let ids: Vec<RegionId> = rules.iter().filter(|(_, kept)| fits(kept)).map(|(id, _)| id).collect();
                Ok(self.vault.told(&ids, false, now))
            }
            Ask::HandBack => {
                let ids: Vec<RegionId> = self.vault.rules.of_process(caller.process).collect();
                Ok(self.vault.told(&ids, true, now))
            }
            Ask::Adopt { name } => match self.vault.rules.adopt(caller, &name) {
                Ok(ids) => {
                    reached("adoption-known");
                    self.keep_namespace(&client);
                    self.note_titles();
                    self.note_regions(&ids);
                    reached("adoption-noted");
                    self.watch_caller(&client);
                    let answers = self.vault.told(&ids, true, now);
                    let bytes =
                        ids.iter().filter_map(|id| self.vault.rules.get(*id)).map(|kept| kept.region.bytes).sum();
                    let (process, uid, regions) = (caller.process, caller.uid, ids.len());
                    self.record(&JournalEvent::RegionsAdopted { process, uid, name, regions, bytes });
                    return self.after_barrier(Deferred::Answer {
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
            | Ask::Subscribe { .. }
            | Ask::Renewed
            | Ask::Follow { .. } => Err(Failure::NOT_GREETED),
        };
        // A program that has gone meanwhile needs no answer.
        let _ = reply.send(answers.unwrap_or_else(|failure| vec![(Answer::Failed(failure), None)]));
    }

    /// Looks whether a name's owner has ended: a successor may ask sooner than its watch is heard.
    fn look_at_owner(&mut self, caller: &Caller, name: &str) {
        let owner = self.vault.rules.owner_of_name(caller, name);
        let owner = owner.filter(|owner| self.vault.watched.contains_key(owner));
        if let Some(owner) = owner
            && start_time(super::processes::kernel_pid(owner.pid)) != Some(owner.start_time)
        {
            self.owner_ended(owner);
        }
    }

    fn owner_ended(&mut self, process: ProcessKey) {
        reached("owner-end-seen");
        self.vault.watched.remove(&process);
        self.vault.claims.forget(process);
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
        self.renew_barrier(now);
        let expired = self.vault.rules.expire(now);
        let ids: Vec<RegionId> = expired.iter().map(|(id, _)| *id).collect();
        self.close_regions(&ids, None);
        for (_, kept) in expired {
            let (Caller { process, uid, .. }, Region { name, bytes, .. }) = (kept.owner, kept.region);
            self.record(&JournalEvent::RegionExpired { process, uid, name, bytes });
        }
    }
}
