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
mod tests;
