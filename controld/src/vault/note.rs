//! What is written for the daemon's successor: beside a region's descriptor, and of a name.

use crate::core::ProcessKey;
use crate::core::vault::{Caller, Kept, Predecessor, Title};
use crate::io::process::start_time;
use nix::time::{ClockId, clock_gettime};
use prost::Message;
use remps_proto::shim::{Commit, Range, Region, Rest, wire};
use std::time::Duration;

/// The note.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Note {
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
}

/// Time since boot, suspended time included: the same for every daemon on the machine until it starts again, when
/// nothing of the vault is left either.
#[must_use]
pub fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Note {
    /// The note of a region, at a time of the daemon's clock.
    #[must_use]
    pub fn of(kept: &Kept, now: Duration) -> Vec<u8> {
        let Region { key, name, gpu, bytes, address, handle_type, flags, .. } = kept.region.clone();
        let region = wire::Region { key, name, gpu, bytes, address, handle_type, flags, owner: 0, left_ms: 0 };
        let until_ms = noted_deadline(kept.until, now);
        let Caller { process, uid, cgroup } = kept.owner.clone();
        Self { pid: process.pid, start_time: process.start_time, uid, cgroup, region, until_ms }.encode_to_vec()
    }

    /// What an earlier daemon kept, at a time of this daemon's clock. An owner that has ended unnoticed has the whole
    /// time to live from now on. `None` when it is no note.
    #[must_use]
    pub fn read(bytes: &[u8], now: Duration, ttl: Duration) -> Option<Kept> {
        let Self { pid, start_time: started, uid, cgroup, region, until_ms } = Self::decode(bytes).ok()?;
        let wire::Region { key, name, gpu, bytes, address, handle_type, flags, .. } = region;
        let region = Region { key, name, gpu, bytes, address, handle_type, flags, owner: 0, left_ms: 0 };
        let process = ProcessKey { pid, start_time: started };
        let until = read_deadline(until_ms, process, now, ttl);
        Some(Kept { owner: Caller { process, uid, cgroup }, region, until })
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
pub struct TitleNote {
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
    /// As in [`Note`].
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
}

impl TitleNote {
    /// The note of a name, at a time of the daemon's clock.
    #[must_use]
    pub fn of(name: &str, title: &Title, now: Duration) -> Vec<u8> {
        let Caller { process, uid, cgroup } = title.owner.clone();
        let predecessor = title.predecessor.map(|Predecessor { pid, server, rest }| wire::Inherited {
            predecessor: pid,
            server,
            rest: rest.0,
            ..wire::Inherited::default()
        });
        let range = |Range { label, address, bytes, flags }| wire::Range { label, address, bytes, flags };
        let commit = title.commit.clone().map(|Commit { generation, data, ranges }| wire::Commit {
            name: String::new(),
            generation,
            data,
            ranges: ranges.into_iter().map(range).collect(),
        });
        let until_ms = noted_deadline(title.until, now);
        let (pid, start_time) = (process.pid, process.start_time);
        let name = name.to_owned();
        Self { pid, start_time, uid, cgroup, name, until_ms, server: title.server, predecessor, commit }.encode_to_vec()
    }

    /// The name and what an earlier daemon noted of it, at a time of this daemon's clock. `None` when it is no note.
    #[must_use]
    pub fn read(bytes: &[u8], now: Duration, ttl: Duration) -> Option<(String, Title)> {
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
        let title = Title {
            owner: Caller { process, uid: note.uid, cgroup: note.cgroup },
            until: read_deadline(note.until_ms, process, now, ttl),
            server: note.server,
            predecessor,
            commit,
        };
        Some((note.name, title))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(process: ProcessKey, until: Option<Duration>) -> Kept {
        let region =
            Region { key: 7, name: "weights".into(), gpu: "GPU-1".into(), bytes: 2 << 20, ..Region::default() };
        Kept { owner: Caller { process, uid: 1000, cgroup: "/a".into() }, region, until }
    }

    #[test]
    fn a_successor_reads_what_was_noted_by_its_own_clock() {
        let own = std::process::id();
        let started = start_time(nix::unistd::Pid::this()).unwrap();
        let alive = kept(ProcessKey { pid: own, start_time: started }, None);
        let (then, now) = (Duration::from_secs(1000), Duration::from_secs(5));
        assert_eq!(Note::read(&Note::of(&alive, then), now, Duration::ZERO), Some(alive.clone()));
        let orphan = Kept { until: Some(then + Duration::from_secs(60)), ..alive };
        let until = Note::read(&Note::of(&orphan, then), now, Duration::ZERO).unwrap().until.unwrap();
        assert!(until <= now + Duration::from_secs(60) && until > now + Duration::from_secs(50), "{until:?}");
        assert_eq!(Note::read(b"\xff", now, Duration::ZERO), None);
    }

    #[test]
    fn a_title_is_read_as_it_was_noted() {
        let own = std::process::id();
        let started = start_time(nix::unistd::Pid::this()).unwrap();
        let process = ProcessKey { pid: own, start_time: started };
        let range = Range { label: "kv".into(), address: 1 << 40, bytes: 9, flags: 1 };
        let title = Title {
            owner: Caller { process, uid: 1000, cgroup: "/a".into() },
            until: None,
            server: 7,
            predecessor: Some(Predecessor { pid: 5, server: 6, rest: Rest::SERVER }),
            commit: Some(Commit { generation: 3, data: vec![1, 2], ranges: vec![range] }),
        };
        let (now, ttl) = (Duration::from_secs(5), Duration::from_secs(60));
        assert_eq!(
            TitleNote::read(&TitleNote::of("llm", &title, now), now, ttl),
            Some(("llm".to_owned(), title.clone()))
        );
        let gone = Title {
            owner: Caller { process: ProcessKey { start_time: 1, ..process }, ..title.owner.clone() },
            ..title
        };
        assert_eq!(TitleNote::read(&TitleNote::of("llm", &gone, now), now, ttl).unwrap().1.until, Some(now + ttl));
        assert_eq!(TitleNote::read(b"\xff", now, ttl), None);
    }

    #[test]
    fn an_owner_that_ended_unnoticed_has_its_whole_time_left() {
        // Another process had the pid before.
        let gone = kept(ProcessKey { pid: std::process::id(), start_time: 1 }, None);
        let (now, ttl) = (Duration::from_secs(5), Duration::from_secs(60));
        assert_eq!(Note::read(&Note::of(&gone, Duration::ZERO), now, ttl).unwrap().until, Some(now + ttl));
    }
}
