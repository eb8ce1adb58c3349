//! What is written beside a region's descriptor for the daemon's successor.

use crate::core::ProcessKey;
use crate::core::vault::{Caller, Kept};
use crate::io::process::start_time;
use nix::time::{ClockId, clock_gettime};
use prost::Message;
use remps_proto::shim::Region;
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
    pub region: remps_proto::shim::wire::Region,
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
        let region = remps_proto::shim::wire::Region {
            key,
            name,
            gpu,
            bytes,
            address,
            handle_type,
            flags,
            owner: 0,
            left_ms: 0,
        };
        // Never 0, which says that the owner lives.
        let until_ms = kept.until.map_or(0, |at| milliseconds(since_boot() + at.saturating_sub(now)).max(1));
        let Caller { process, uid, cgroup } = kept.owner.clone();
        Self { pid: process.pid, start_time: process.start_time, uid, cgroup, region, until_ms }.encode_to_vec()
    }

    /// What an earlier daemon kept, at a time of this daemon's clock. An owner that has ended unnoticed has the whole
    /// time to live from now on. `None` when it is no note.
    #[must_use]
    pub fn read(bytes: &[u8], now: Duration, ttl: Duration) -> Option<Kept> {
        let Self { pid, start_time: started, uid, cgroup, region, until_ms } = Self::decode(bytes).ok()?;
        let remps_proto::shim::wire::Region { key, name, gpu, bytes, address, handle_type, flags, .. } = region;
        let region = Region { key, name, gpu, bytes, address, handle_type, flags, owner: 0, left_ms: 0 };
        let lives = || start_time(nix::unistd::Pid::from_raw(pid.cast_signed())) == Some(started);
        let until = match until_ms {
            0 if lives() => None,
            0 => Some(now + ttl),
            at => Some(now + Duration::from_millis(at).saturating_sub(since_boot())),
        };
        let process = ProcessKey { pid, start_time: started };
        Some(Kept { owner: Caller { process, uid, cgroup }, region, until })
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
    fn an_owner_that_ended_unnoticed_has_its_whole_time_left() {
        // Another process had the pid before.
        let gone = kept(ProcessKey { pid: std::process::id(), start_time: 1 }, None);
        let (now, ttl) = (Duration::from_secs(5), Duration::from_secs(60));
        assert_eq!(Note::read(&Note::of(&gone, Duration::ZERO), now, ttl).unwrap().until, Some(now + ttl));
    }
}
