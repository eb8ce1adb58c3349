//! What is written for the daemon's successor: beside a region's descriptor, and of a name.

use crate::core::ProcessKey;
use crate::core::vault::{Caller, Kept, NameEntry, Predecessor, Scope, VaultPolicy};
use crate::core::{Namespace, Place};
use crate::io::process::start_time;
use crate::sys::clock::{milliseconds, since_boot};
use prost::Message;
use remps_proto::shim::{Commit, Range, Region, Rest, wire};
use remps_proto::who::Reach;
use std::time::Duration;

/// The note.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegionNote {
    /// Pid of the owner.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// Its start time.
    #[prost(uint64, tag = "2")]
    pub start_time: u64,
    /// Its user.
    #[prost(uint32, tag = "3")]
    pub uid: u32,
    /// Its cgroup.
    #[prost(string, tag = "4")]
    pub cgroup: String,
    /// The region.
    #[prost(message, required, tag = "5")]
    pub region: wire::Region,
    /// When it is closed, in milliseconds since boot, suspended time included; 0 while the owner lives.
    #[prost(uint64, tag = "6")]
    pub until_ms: u64,
    /// Among whom its name is looked for. An earlier release notes none.
    #[prost(message, optional, tag = "7")]
    pub scope: Option<ScopeNote>,
}

/// Among whom a name is looked for, besides the owner's user. `number` and `users` are of one namespace, and neither of
/// the daemon's own.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ScopeNote {
    /// The user namespace's inode number.
    #[prost(uint64, optional, tag = "1")]
    pub number: Option<u64>,
    /// What its users are, where it could not be opened.
    #[prost(string, optional, tag = "2")]
    pub users: Option<String>,
    /// The container's or pod's path.
    #[prost(string, tag = "3")]
    pub within: String,
    /// Whether the namespace is not known, as with what an earlier release kept.
    #[prost(bool, tag = "4")]
    pub any_namespace: bool,
}

impl ScopeNote {
    fn of(Scope { namespace, within, .. }: &Scope) -> Self {
        let mut note = Self { within: within.clone(), ..Self::default() };
        match namespace {
            Namespace::Unknown => note.any_namespace = true,
            Namespace::Own => {}
            Namespace::Other(number) => note.number = Some(*number),
            Namespace::Alike(users) => note.users = Some(users.clone()),
        }
        note
    }

    fn read(self, uid: u32) -> Scope {
        let namespace = match self {
            Self { any_namespace: true, .. } => Namespace::Unknown,
            Self { number: Some(number), .. } => Namespace::Other(number),
            Self { users: Some(users), .. } => Namespace::Alike(users),
            Self { .. } => Namespace::Own,
        };
        Scope { uid, namespace, within: self.within }
    }
}

/// What an earlier release noted no scope of: the container is that of the cgroup, and the namespace is not known.
fn scope(noted: Option<ScopeNote>, owner: &Caller, name: &str, policy: &VaultPolicy) -> Scope {
    noted.map_or_else(|| Scope::of(policy.scope, owner, name), |note| note.read(owner.uid))
}

/// The owner as noted; its namespaces are not.
fn owner(process: ProcessKey, uid: u32, cgroup: String) -> Caller {
    let Reach { container, pod } = Reach::of(&cgroup);
    Caller { process, uid, cgroup, place: Place { container, pod, ..Place::default() } }
}

impl RegionNote {
    /// The note of a region, at a time of the daemon's clock.
    #[must_use]
    pub fn of(kept: &Kept, now: Duration) -> Vec<u8> {
        let Region { key, name, gpu, bytes, address, handle_type, flags, .. } = kept.region.clone();
        let region = wire::Region { key, name, gpu, bytes, address, handle_type, flags, owner: 0, left_ms: 0 };
        let until_ms = noted_deadline(kept.until, now);
        let Caller { process, uid, cgroup, .. } = kept.owner.clone();
        let scope = Some(ScopeNote::of(&kept.scope));
        Self { pid: process.pid, start_time: process.start_time, uid, cgroup, region, until_ms, scope }.encode_to_vec()
    }

    /// What an earlier daemon kept, at a time of this daemon's clock. An owner that has ended unnoticed has the whole
    /// time to live from now on. `None` when it is no note.
    #[must_use]
    pub fn read(bytes: &[u8], now: Duration, policy: &VaultPolicy) -> Option<Kept> {
        let Self { pid, start_time: started, uid, cgroup, region, until_ms, scope: noted } =
            Self::decode(bytes).ok()?;
        let wire::Region { key, name, gpu, bytes, address, handle_type, flags, .. } = region;
        let region = Region { key, name, gpu, bytes, address, handle_type, flags, owner: 0, left_ms: 0 };
        let process = ProcessKey { pid, start_time: started };
        let until = read_deadline(until_ms, process, now, policy.ttl);
        let owner = owner(process, uid, cgroup);
        let scope = scope(noted, &owner, &region.name, policy);
        Some(Kept { owner, region, until, scope })
    }
}

/// A deadline by the clock that all daemons share; 0 for none, and never 0 for one.
fn noted_deadline(until: Option<Duration>, now: Duration) -> u64 {
    until.map_or(0, |at| milliseconds(since_boot() + at.saturating_sub(now)).max(1))
}

/// A noted deadline by this daemon's clock. An owner that has ended unnoticed has the whole time from now on.
fn read_deadline(until_ms: u64, owner: ProcessKey, now: Duration, ttl: Duration) -> Option<Duration> {
    let lives = || start_time(nix::unistd::Pid::from_raw(owner.pid.cast_signed())) == Some(owner.start_time);
    match until_ms {
        0 if lives() => None,
        0 => Some(now + ttl),
        at => Some(now + Duration::from_millis(at).saturating_sub(since_boot())),
    }
}

/// What is noted of a name.
#[derive(Clone, PartialEq, Message)]
pub struct NameNote {
    /// Pid of the owner.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// Its start time.
    #[prost(uint64, tag = "2")]
    pub start_time: u64,
    /// Its user.
    #[prost(uint32, tag = "3")]
    pub uid: u32,
    /// Its cgroup.
    #[prost(string, tag = "4")]
    pub cgroup: String,
    /// The name.
    #[prost(string, tag = "5")]
    pub name: String,
    /// As in [`RegionNote`].
    #[prost(uint64, tag = "6")]
    pub until_ms: u64,
    /// The owner's server.
    #[prost(uint64, tag = "7")]
    pub server: u64,
    /// Whom it has succeeded, with nothing of its commit.
    #[prost(message, optional, tag = "8")]
    pub predecessor: Option<wire::Inherited>,
    /// Its commit.
    #[prost(message, optional, tag = "9")]
    pub commit: Option<wire::Commit>,
    /// As in [`RegionNote`].
    #[prost(message, optional, tag = "10")]
    pub scope: Option<ScopeNote>,
}

impl NameNote {
    /// The note of a name, at a time of the daemon's clock.
    #[must_use]
    pub fn of(name: &str, entry: &NameEntry, now: Duration) -> Vec<u8> {
        let Caller { process, uid, cgroup, .. } = entry.owner.clone();
        let scope = Some(ScopeNote::of(&entry.scope));
        let predecessor = entry.predecessor.map(|Predecessor { pid, server, rest }| wire::Inherited {
            predecessor: pid,
            server,
            rest: rest.0,
            ..wire::Inherited::default()
        });
        let range = |Range { label, address, bytes, flags }| wire::Range { label, address, bytes, flags };
        let commit = entry.commit.clone().map(|Commit { generation, data, ranges }| wire::Commit {
            name: String::new(),
            generation,
            data,
            ranges: ranges.into_iter().map(range).collect(),
        });
        let until_ms = noted_deadline(entry.until, now);
        let (pid, start_time) = (process.pid, process.start_time);
        let name = name.to_owned();
        let server = entry.server;
        Self { pid, start_time, uid, cgroup, name, until_ms, server, predecessor, commit, scope }.encode_to_vec()
    }

    /// The name and what an earlier daemon noted of it, at a time of this daemon's clock. `None` when it is no note.
    #[must_use]
    pub fn read(bytes: &[u8], now: Duration, policy: &VaultPolicy) -> Option<(String, NameEntry)> {
        let note = Self::decode(bytes).ok()?;
        let process = ProcessKey { pid: note.pid, start_time: note.start_time };
        let predecessor = note.predecessor.map(|inherited| Predecessor {
            pid: inherited.predecessor,
            server: inherited.server,
            rest: Rest(inherited.rest),
        });
        let range = |wire::Range { label, address, bytes, flags }| Range { label, address, bytes, flags };
        let commit = note.commit.map(|wire::Commit { generation, data, ranges, .. }| Commit {
            generation,
            data,
            ranges: ranges.into_iter().map(range).collect(),
        });
        let owner = owner(process, note.uid, note.cgroup);
        let scope = scope(note.scope, &owner, &note.name, policy);
        let until = read_deadline(note.until_ms, process, now, policy.ttl);
        let entry = NameEntry { owner, until, server: note.server, predecessor, commit, scope };
        Some((note.name, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(process: ProcessKey, until: Option<Duration>) -> Kept {
        let region =
            Region { key: 7, name: "weights".into(), gpu: "GPU-1".into(), bytes: 2 << 20, ..Region::default() };
        Kept { owner: owner(process, 1000, "/a".into()), region, until, scope: sandbox() }
    }

    fn sandbox() -> Scope {
        Scope { uid: 1000, namespace: Namespace::Other(4_026_531_900), within: "/docker/a".into() }
    }

    fn policy(ttl: Duration) -> VaultPolicy {
        VaultPolicy { ttl, ..VaultPolicy::default() }
    }

    #[test]
    fn a_successor_reads_what_was_noted_by_its_own_clock() {
        let own = std::process::id();
        let started = start_time(nix::unistd::Pid::this()).unwrap();
        let alive = kept(ProcessKey { pid: own, start_time: started }, None);
        let (then, now) = (Duration::from_secs(1000), Duration::from_secs(5));
        assert_eq!(RegionNote::read(&RegionNote::of(&alive, then), now, &policy(Duration::ZERO)), Some(alive.clone()));
        let orphan = Kept { until: Some(then + Duration::from_secs(60)), ..alive };
        let until =
            RegionNote::read(&RegionNote::of(&orphan, then), now, &policy(Duration::ZERO)).unwrap().until.unwrap();
        assert!(until <= now + Duration::from_secs(60) && until > now + Duration::from_secs(50), "{until:?}");
        assert_eq!(RegionNote::read(b"\xff", now, &policy(Duration::ZERO)), None);
    }

    #[test]
    fn an_entry_of_a_name_is_read_as_it_was_noted() {
        let own = std::process::id();
        let started = start_time(nix::unistd::Pid::this()).unwrap();
        let process = ProcessKey { pid: own, start_time: started };
        let range = Range { label: "kv".into(), address: 1 << 40, bytes: 9, flags: 1 };
        let entry = NameEntry {
            owner: owner(process, 1000, "/a".into()),
            scope: sandbox(),
            until: None,
            server: 7,
            predecessor: Some(Predecessor { pid: 5, server: 6, rest: Rest::SERVER }),
            commit: Some(Commit { generation: 3, data: vec![1, 2], ranges: vec![range] }),
        };
        let (now, ttl) = (Duration::from_secs(5), Duration::from_secs(60));
        let policy = policy(ttl);
        assert_eq!(
            NameNote::read(&NameNote::of("llm", &entry, now), now, &policy),
            Some(("llm".to_owned(), entry.clone()))
        );
        let gone = NameEntry {
            owner: Caller { process: ProcessKey { start_time: 1, ..process }, ..entry.owner.clone() },
            ..entry
        };
        assert_eq!(NameNote::read(&NameNote::of("llm", &gone, now), now, &policy).unwrap().1.until, Some(now + ttl));
        assert_eq!(NameNote::read(b"\xff", now, &policy), None);
    }

    #[test]
    fn every_scope_is_read_as_it_was_noted() {
        let namespaces = [Namespace::Own, Namespace::Other(7), Namespace::Alike("0 1000 1".into()), Namespace::Unknown];
        for namespace in namespaces {
            let scope = Scope { namespace, ..sandbox() };
            assert_eq!(ScopeNote::of(&scope).read(1000), scope);
        }
    }

    #[test]
    fn what_an_earlier_release_kept_is_of_its_container_and_of_no_namespace_that_is_known() {
        let process = ProcessKey { pid: std::process::id(), start_time: 1 };
        let container = format!("/docker/{}", "a".repeat(64));
        let older = |bytes: Vec<u8>| RegionNote {
            scope: None,
            cgroup: container.clone(),
            ..RegionNote::decode(&*bytes).unwrap()
        };
        let note = older(RegionNote::of(&kept(process, None), Duration::ZERO)).encode_to_vec();
        let policy = policy(Duration::from_secs(60));
        let read = RegionNote::read(&note, Duration::ZERO, &policy).unwrap();
        assert_eq!(read.scope, Scope { uid: 1000, namespace: Namespace::Unknown, within: container.clone() });
        // And an earlier release reads what this one notes.
        assert_eq!(older(RegionNote::of(&read, Duration::ZERO)).region.name, "weights");
    }

    #[test]
    fn an_owner_that_ended_unnoticed_has_its_whole_time_left() {
        // Another process had the pid before.
        let gone = kept(ProcessKey { pid: std::process::id(), start_time: 1 }, None);
        let (now, ttl) = (Duration::from_secs(5), Duration::from_secs(60));
        assert_eq!(
            RegionNote::read(&RegionNote::of(&gone, Duration::ZERO), now, &policy(ttl)).unwrap().until,
            Some(now + ttl)
        );
    }
}
